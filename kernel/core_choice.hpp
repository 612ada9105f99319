// SPDX-License-Identifier: BSL-1.0
// The choice of the cores that run.
//
// Measurements compare two cores with eight cores, or one thread of each core with both threads, on the same machine. A core that does not
// run must not disturb the others. So it is parked in the deepest idle state, where it takes no interrupt (machine.hpp, `start_cores`). The
// cores that run are numbered without gaps. The option `cores=` selects by positions in firmware's list, so its numbers may have gaps.
#pragma once

#include <expected>
#include <span>
#include <string>
#include <string_view>

#include "kernel/machine.hpp"

namespace neap {

class Arguments;

/// Returns the cores that `cores=` (`text`) and `smt=` select. `text` is empty (all cores), the number of cores that run, or a list of
/// present cores ("0-3,6"). The list MUST contain 0, the core that booted. Without `smt` only the first listed thread of each physical core
/// runs. The error states what is wrong with `text`.
[[nodiscard]] std::expected<machine::CoreSet, std::string> choose_cores(std::string_view text, bool smt,
                                                                        std::span<const machine::CorePlace> present);

/// Reads the options `cores=` and `smt=`. Values that do not fit this machine become complaints of `arguments`.
[[nodiscard]] machine::CoreSet choose_cores(Arguments& arguments);

/// Prints at boot which cores exist and which run, by package and NUMA node. Threads of one core are joined by `+`; a parked thread is
/// shown as `-`.
void print_cores() noexcept;

}  // namespace neap
