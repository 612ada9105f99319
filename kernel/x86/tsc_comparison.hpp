// SPDX-License-Identifier: BSL-1.0
// Comparison of another core's TSC with core 0's.
//
// Firmware may have written the TSCs of some cores, and a machine of several boards may start them at different moments. Core 0 sends a
// request, and the other core answers with its TSC. The shortest of many round trips bounds the difference. One comparison at a time.
#pragma once

#include <cstdint>

namespace neap::x86::tsc_comparison {

/// Called on core 0 before the other core calls `answer`.
void begin();
/// Called on core 0, once for each `begin`. Returns the value to add to the other core's TSC; 0 if the measurement cannot distinguish it
/// from zero. Ends after 2 s if the other core does not answer.
[[nodiscard]] std::uint64_t measure();
/// Answers core 0's requests until `measure` ends, at most for `limit_ns`.
void answer(std::uint64_t limit_ns);

}  // namespace neap::x86::tsc_comparison
