// SPDX-License-Identifier: BSL-1.0
// Reads a fuzzer's choices from the bytes of its input, and reports failed cases.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "net/testing/wire.hpp"

namespace neap::net::testing {

/// Choices read from the input's bytes. After the last byte, every choice is 0.
class Choices {
 public:
  Choices(const std::uint8_t* data, std::size_t size) : data_(data), left_(size) {}
  [[nodiscard]] bool empty() const { return left_ == 0; }
  std::uint32_t bits(int bytes) {
    std::uint32_t value = 0;
    for (int i = 0; i < bytes; ++i) {
      value = value << 8 | (left_ > 0 ? *data_++ : 0);
      if (left_ > 0) --left_;
    }
    return value;
  }
  std::uint32_t below(std::uint32_t end) { return bits(end > 0x100 ? 4 : 1) % end; }
  Bytes any(std::size_t bytes) {
    Bytes result(bytes);
    for (std::byte& one : result) one = static_cast<std::byte>(bits(1));
    return result;
  }

 private:
  const std::uint8_t* data_;
  std::size_t left_;
};

[[noreturn]] inline void fail(const char* what, std::uint64_t value) {
  std::fprintf(stderr, "%s (%llu)\n", what, static_cast<unsigned long long>(value));
  std::abort();
}

}  // namespace neap::net::testing
