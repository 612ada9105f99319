// SPDX-License-Identifier: BSL-1.0
// Checks of on-target tests. The first check that fails ends the machine with `ExitStatus::failure`; an application that returns 0 passes.
#pragma once

#include <source_location>
#include <string_view>

#include "kernel/application.hpp"
#include "kernel/console.hpp"
#include "kernel/events.hpp"
#include "kernel/machine.hpp"

namespace neap::test {

inline void check(bool holds, std::string_view what, std::uint64_t detail = 0,
                  std::source_location where = std::source_location::current()) {
  if (holds) return;
  neap::print("FAILED on core ", this_core(), ": ", what, " (", hex(detail), " = ", detail, ") at ", where.file_name(), ':', where.line());
  machine::exit(machine::ExitStatus::failure);
}

/// Hides a value from the compiler's optimisation.
template <typename T>
T hidden(T value) {
  asm volatile("" : "+r"(value));
  return value;
}

}  // namespace neap::test
