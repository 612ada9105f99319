// SPDX-License-Identifier: BSL-1.0
// A value that one core writes and all cores read, without a lock.
//
// The first core owns the tables of IPv6 (own addresses, routes, neighbours, path MTUs). The other cores need them for each packet, and
// change them never. A sequence number around the words of a value lets a reader notice a write in progress and read again. A write is
// rare and takes a few nanoseconds. Internal to net/.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace neap::net::ipv6 {

/// `T` MUST be trivially copyable, and a multiple of eight bytes long without padding that matters.
template <typename T>
class Published {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % sizeof(std::uint64_t) == 0);
  using Words = std::array<std::uint64_t, sizeof(T) / sizeof(std::uint64_t)>;

 public:
  /// MUST be called on one core only.
  void store(const T& value) noexcept {
    const auto words = std::bit_cast<Words>(value);
    const std::uint32_t sequence = sequence_.load(std::memory_order_relaxed);
    sequence_.store(sequence + 1, std::memory_order_relaxed);  // odd: a write is in progress
    // Release orders each word behind the odd number, without a fence, which Thread sanitizer does not model.
    for (std::size_t i = 0; i < words.size(); ++i) words_[i].store(words[i], std::memory_order_release);
    sequence_.store(sequence + 2, std::memory_order_release);
  }
  [[nodiscard]] T load() const noexcept {
    for (;;) {
      const std::uint32_t before = sequence_.load(std::memory_order_acquire);
      Words words;
      // Acquire orders the second read of the number behind each word.
      for (std::size_t i = 0; i < words.size(); ++i) words[i] = words_[i].load(std::memory_order_acquire);
      if (before % 2 == 0 && sequence_.load(std::memory_order_relaxed) == before) return std::bit_cast<T>(words);
    }
  }

 private:
  std::atomic<std::uint32_t> sequence_{0};
  std::array<std::atomic<std::uint64_t>, sizeof(T) / sizeof(std::uint64_t)> words_{};
};

}  // namespace neap::net::ipv6
