// SPDX-License-Identifier: BSL-1.0
// For death tests: a panic ends the process, after its text was written to stderr.
#pragma once

#include <gtest/gtest.h>

#include "kernel/machine.hpp"

namespace neap::host {

/// Expects that `call` panics, in a child process, with a text that matches `text`.
template <class Call>
void expect_panic(const char* text, Call call) {
  EXPECT_EXIT(call(), testing::ExitedWithCode(static_cast<int>(machine::ExitStatus::panic)), text);
}

}  // namespace neap::host
