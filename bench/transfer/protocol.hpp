// SPDX-License-Identifier: BSL-1.0
// The messages of a transfer, and its bytes.
//
// A bench of bad links has to prove that all bytes arrived in order, at a cost that is small beside the network's. So the bytes are words
// that follow from a seed, and both ends compute a sum that depends on the words' order. tests/linux_guest/transfer.c has the same
// definitions for Linux, in another language: each end checks the other.
//
// A client sends a `Request` on a new connection. All words are little-endian.
//
//   up      the client sends `bytes` bytes, and the server answers with a `Received`
//   down    the server sends `bytes` bytes, and their sum in 8 further bytes
//   status  the server answers with a `Status`
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace neap::bench {

enum class Kind : std::uint64_t { up = 1, down = 2, status = 3 };

struct Request {
  static constexpr std::uint64_t magic_value = 0x315246534E415254;  ///< "TRANSFR1"

  std::uint64_t magic, kind, bytes, seed;

  /// `bytes` MUST be a multiple of 8, at most `bytes_max`.
  [[nodiscard]] bool is_valid() const noexcept {
    const bool known = kind == static_cast<std::uint64_t>(Kind::up) || kind == static_cast<std::uint64_t>(Kind::down) ||
                       kind == static_cast<std::uint64_t>(Kind::status);
    return magic == magic_value && known && bytes % sizeof(std::uint64_t) == 0 && bytes <= bytes_max;
  }
  static constexpr std::uint64_t bytes_max = std::uint64_t{1} << 40;
};

struct Received {
  std::uint64_t bytes, sum;
  std::uint64_t ns;  ///< from the request to the last byte
};

/// Of all cores. The connection that asks is one of the open ones.
struct Status {
  std::uint64_t open, half_open, held_bytes, held_bytes_max, retransmissions;
};

inline constexpr std::uint64_t factor = 0x9E3779B97F4A7C15;  ///< the golden ratio's fraction: no two words of a transfer are equal

/// The sum of a sequence of words. Each step is a bijection of the sum so far, so a wrong word is never lost.
class Sum {
 public:
  void add(std::uint64_t word) noexcept {
    value_ = (value_ ^ word) * factor;
    value_ ^= value_ >> 29;
  }
  [[nodiscard]] std::uint64_t value() const noexcept { return value_; }

 private:
  std::uint64_t value_ = factor;
};

/// Fills blocks with the words of a transfer.
class Words {
 public:
  explicit Words(std::uint64_t seed) noexcept : number_(seed) {}
  /// `out` MUST have a multiple of 8 bytes.
  void fill(std::span<std::byte> out, Sum& sum) noexcept {
    for (std::size_t at = 0; at < out.size(); at += sizeof(std::uint64_t)) {
      const std::uint64_t word = ++number_ * factor;
      std::memcpy(out.data() + at, &word, sizeof word);
      sum.add(word);
    }
  }

 private:
  std::uint64_t number_;
};

/// Sums bytes that arrive in pieces of any size.
class ByteSum {
 public:
  void add(std::span<const std::byte> bytes) noexcept {
    while (!bytes.empty()) {
      if (held_ == 0 && bytes.size() >= sizeof(std::uint64_t)) {
        std::uint64_t word;
        std::memcpy(&word, bytes.data(), sizeof word);
        sum_.add(word);
        bytes = bytes.subspan(sizeof word);
        continue;
      }
      unfinished_[held_++] = bytes.front();
      bytes = bytes.subspan(1);
      if (held_ < unfinished_.size()) continue;
      held_ = 0;
      std::uint64_t word;
      std::memcpy(&word, unfinished_.data(), sizeof word);
      sum_.add(word);
    }
  }
  /// Of whole words.
  [[nodiscard]] std::uint64_t value() const noexcept { return sum_.value(); }

 private:
  Sum sum_;
  std::array<std::byte, sizeof(std::uint64_t)> unfinished_{};
  std::size_t held_ = 0;
};

}  // namespace neap::bench
