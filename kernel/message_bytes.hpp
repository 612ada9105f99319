// SPDX-License-Identifier: BSL-1.0
// The bytes of a short message to a device, which is put together from numbers and arrays.
//
// A command to a device is a sequence of little-endian fields, as the CPU stores them, and often with a table of variable length. The list
// has a fixed capacity, so that making a message allocates nothing and cannot fail.
//
//   MessageBytes<64> message;
//   message << std::uint16_t{7} << address;
#pragma once

#include <array>
#include <cstddef>
#include <cstring>
#include <span>
#include <type_traits>

#include "kernel/panic.hpp"

namespace neap {

template <std::size_t capacity>
class MessageBytes {
 public:
  /// Appends the bytes of `value`, which MUST fit.
  template <class T>
    requires std::is_trivially_copyable_v<T>
  MessageBytes& operator<<(const T& value) noexcept {
    require(sizeof value <= capacity - count_, "a message is too long", count_);
    std::memcpy(&bytes_[count_], &value, sizeof value);
    count_ += sizeof value;
    return *this;
  }
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return {bytes_.data(), count_}; }

 private:
  std::array<std::byte, capacity> bytes_;
  std::size_t count_ = 0;
};

}  // namespace neap
