// SPDX-License-Identifier: BSL-1.0
// The list of facts that decides whether two runs may be compared (docs/machine-list.md).
//
// Figures of Neap and of Linux are compared only if the machines are the same. Linux has a program that gathers the same list
// (tools/linux_log/machine_list.c), so members have the same names on both systems. All values are those of the moment of the call. A
// member that Neap does not know is absent.
#pragma once

#include <string>

#include "kernel/net_device.hpp"
#include "observe/log_file.hpp"

namespace neap::observe {

/// Returns one JSON object in ASCII, without a line feed, of at most some 8 KiB. `device` is the network card; null: there is none. Any
/// core MAY call it. It reads no register. Throws `bad_alloc`.
[[nodiscard]] std::string make_machine_list(const BootFacts& boot, const NetDevice* device);

}  // namespace neap::observe
