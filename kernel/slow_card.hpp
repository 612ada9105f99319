// SPDX-License-Identifier: BSL-1.0
// The boot option `slow=`, by which a run is told that its card's clock is slower than the CPU's.
//
// `./neap run --slow N` runs the clock of the soft card N times slower, and passes this word. Nothing in the image depends on it. A log's
// header names it, because times that the card counts are then N times longer than they say. Every image accepts the word.
#pragma once

#include <cstdint>

#include "kernel/arguments.hpp"

namespace neap {

inline std::uint32_t read_slow(Arguments& arguments) {
  constexpr std::uint64_t slow_max = 1000;  // the launcher's limit
  return static_cast<std::uint32_t>(
      arguments.number("slow", 1, {1, slow_max}, "the card's clock runs that many times slower (./neap run --slow); only logs name it"));
}

}  // namespace neap
