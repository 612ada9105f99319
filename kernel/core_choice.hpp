// SPDX-License-Identifier: BSL-1.0
// Which of the machine's cores run.
//
// A study compares two cores with eight, or one thread of each core with both, on the same machine. What does not run must not disturb: it
// is parked in the deepest state there is, where it takes no interrupt (machine.hpp, `start_cores`). The cores that run have dense numbers;
// those of firmware's list, which `cores=` names, need not be.
#pragma once

#include <cstddef>
#include <expected>
#include <span>
#include <string>
#include <string_view>

#include "kernel/machine.hpp"

namespace neap {

class Arguments;

/// What `cores=` and `smt=` say. `text`: empty for all, a number for so many, or a list of those present ("0-3,6"), 0 among them: it is the
/// one that booted. Without `smt`, of each physical core only its first thread in the list. The error says what is wrong with `text`.
[[nodiscard]] std::expected<machine::CoreSet, std::string> choose_cores(std::string_view text, bool smt,
                                                                        std::span<const machine::CorePlace> present);

/// Asks for `cores=` and `smt=`, complaining to `arguments` of what does not fit this machine.
[[nodiscard]] machine::CoreSet choose_cores(Arguments& arguments);

/// Says once, at boot, which cores there are and which run: by package and NUMA node, threads of one core joined by `+`, `-` for a parked
/// one.
void print_cores() noexcept;

}  // namespace neap
