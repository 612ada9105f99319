// SPDX-License-Identifier: BSL-1.0
// Detecting a write to a cache line.
//
// A core that sleeps until a cache line is written must know before and after the sleep whether the line was written. A write may occur
// between its last check and the instruction that monitors the line, and MWAIT also ends for other reasons. So the core copies the line
// before its last check and later compares the line with the copy.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "kernel/panic.hpp"

namespace neap {

class WatchedLine {
 public:
  /// Watches no line: `changed` is always false.
  constexpr WatchedLine() = default;
  /// Copies the 64 bytes at `line`, which MUST be aligned to 64. A card or another core may write them at any moment.
  explicit WatchedLine(const volatile void* line) noexcept : line_(line) {
    require(line != nullptr && reinterpret_cast<std::uintptr_t>(line) % sizeof noted_ == 0, "a watched line is aligned to its size");
    for (std::size_t i = 0; i < noted_.size(); ++i) noted_[i] = load(i);
  }

  [[nodiscard]] const volatile void* line() const noexcept { return line_; }
  [[nodiscard]] bool changed() const noexcept {
    if (line_ == nullptr) return false;
    for (std::size_t i = 0; i < noted_.size(); ++i) {
      if (load(i) != noted_[i]) return true;
    }
    return false;
  }

 private:
  [[nodiscard]] std::uint64_t load(std::size_t index) const noexcept {
    auto* const words = static_cast<std::uint64_t*>(const_cast<void*>(line_));
    return std::atomic_ref(words[index]).load(std::memory_order_acquire);
  }

  const volatile void* line_ = nullptr;
  std::array<std::uint64_t, 8> noted_{};
};

}  // namespace neap
