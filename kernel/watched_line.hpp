// SPDX-License-Identifier: BSL-1.0
// Has somebody written here?
//
// A core that sleeps until a cache line is written must know, before it lies down and after it has got up, whether that has happened:
// between its last look at the line and the instruction that watches it there is a gap, and MWAIT also ends for other reasons. So it notes
// what stands in the line first, and compares.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace neap {

class WatchedLine {
 public:
  /// Watches nothing; it never changes.
  constexpr WatchedLine() = default;
  /// Notes the 64 bytes at `line`, which is aligned to them and which a card or another core may write at any moment.
  explicit WatchedLine(const volatile void* line) noexcept : line_(line) {
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
