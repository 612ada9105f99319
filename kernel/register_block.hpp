// SPDX-License-Identifier: BSL-1.0
// Registers of different widths in mapped memory, of which a device says where they are and how many.
//
// A device may describe a structure that is shorter than the driver expects, or name a place outside of it. So each access is checked: a
// register outside of the block reads as zero, and a write to it has no effect. Each register is accessed by one access of its own width,
// as devices require, except that a register of 8 bytes is written as two halves, the low one first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace neap {

class RegisterBlock {
 public:
  /// The memory MUST stay mapped. Alignment counts from its start.
  constexpr explicit RegisterBlock(std::span<volatile std::byte> start = {}) noexcept : bytes_(start) {}

  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_.size(); }
  /// The address of a register of type T; null if it is not aligned or not in the block.
  template <class T>
  [[nodiscard]] volatile T* at(std::uint64_t offset) const noexcept {
    const bool fits = bytes_.size() >= sizeof(T) && offset <= bytes_.size() - sizeof(T) && offset % sizeof(T) == 0;
    return fits ? reinterpret_cast<volatile T*>(bytes_.data() + offset) : nullptr;
  }
  /// Reads a register of 1, 2 or 4 bytes.
  [[nodiscard]] std::uint32_t read(std::uint64_t offset, unsigned width) const noexcept {
    return width == 1 ? load<std::uint8_t>(offset) : width == 2 ? load<std::uint16_t>(offset) : load<std::uint32_t>(offset);
  }
  /// Writes a register of 1, 2, 4 or 8 bytes.
  void write(std::uint64_t offset, unsigned width, std::uint64_t value) const noexcept {
    if (width == 1) return store<std::uint8_t>(offset, value);
    if (width == 2) return store<std::uint16_t>(offset, value);
    if (width == 8 && at<std::uint64_t>(offset) == nullptr) return;
    store<std::uint32_t>(offset, value);
    if (width == 8) store<std::uint32_t>(offset + 4, value >> 32);
  }

 private:
  template <class T>
  [[nodiscard]] std::uint32_t load(std::uint64_t offset) const noexcept {
    const volatile T* const place = at<T>(offset);
    return place != nullptr ? __atomic_load_n(place, __ATOMIC_ACQUIRE) : 0;
  }
  template <class T>
  void store(std::uint64_t offset, std::uint64_t value) const noexcept {
    if (volatile T* const place = at<T>(offset)) __atomic_store_n(place, static_cast<T>(value), __ATOMIC_RELEASE);
  }

  std::span<volatile std::byte> bytes_;
};

}  // namespace neap
