// SPDX-License-Identifier: BSL-1.0
// The one function that an application defines.
//
// The kernel starts all cores, then runs `application` as a task on core 0. When it returns 0 the machine powers off (in an emulator:
// exits); any other value is a failure. A server never returns: it waits for ever, while its callbacks run as events.
#pragma once

#include "kernel/arguments.hpp"
#include "kernel/task.hpp"

namespace neap {

/// Defined by each application, in its `main.cpp`.
task<int> application(Arguments& arguments);

/// What this image is, as its build knows it (generated): the application's name, the project's version; the commit, with `-dirty` if a
/// file that git knows differed from it, `unknown` without git; the kind of build and the compiler.
extern const char* const application_name;
extern const char* const neap_version;
extern const char* const neap_commit;
extern const char* const neap_build;

}  // namespace neap
