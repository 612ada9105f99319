// SPDX-License-Identifier: BSL-1.0
// Frames for the unit tests of all drivers. A wrong or repeated frame must differ from the expected one, so each has contents of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace neap::test {

using Bytes = std::vector<std::uint8_t>;

/// Returns a frame of `bytes` bytes whose content depends on `seed`.
inline Bytes frame_of(std::uint32_t seed, std::size_t bytes) {
  Bytes frame(bytes);
  std::uint32_t state = seed * 2654435761U + 1;
  for (auto& byte : frame) {
    state = state * 1664525 + 1013904223;
    byte = static_cast<std::uint8_t>(state >> 24);
  }
  return frame;
}

}  // namespace neap::test
