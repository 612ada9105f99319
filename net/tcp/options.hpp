// SPDX-License-Identifier: BSL-1.0
// The options of a TCP header (RFC 9293, 3.1; RFC 7323; RFC 2018).
//
// Nearly every segment of a connection carries the same 12 bytes: two NOPs and the timestamps option. `read_timestamps` checks for this
// form and reads it in a few instructions. All other forms are read by `parse_options`, which accepts every order and any padding. A peer
// may write anything there, so each length is checked against the bytes that are left, and at most four SACK blocks are kept.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "net/tcp/sequence.hpp"

namespace neap::net::tcp {

struct Timestamps {
  std::uint32_t value = 0, echo = 0;  ///< TSval and TSecr, in host byte order
};

constexpr std::size_t options_bytes_max = 40;      ///< a TCP header has at most 60 bytes
constexpr std::size_t timestamps_bytes = 12;       ///< with two NOPs in front
constexpr unsigned window_shift_max = 14;          ///< RFC 7323, 2.3
constexpr std::size_t sack_blocks_max = 4;         ///< without timestamps
constexpr std::size_t sack_blocks_timestamps = 3;  ///< with timestamps

/// The options of one segment.
struct Options {
  Timestamps timestamps;          ///< valid if `has_timestamps`
  std::uint16_t mss = 0;          ///< only in a SYN; 0: the option is missing
  std::uint8_t window_shift = 0;  ///< only in a SYN, at most `window_shift_max`; valid if `has_window_shift`
  std::uint8_t sack_count = 0;    ///< number of valid entries in `sack`
  bool has_timestamps = false, has_window_shift = false, sack_permitted = false;
  std::array<SequenceRange, sack_blocks_max> sack;  ///< in the order of the segment; the limits are not checked

  [[nodiscard]] std::span<const SequenceRange> sack_blocks() const noexcept { return {sack.data(), sack_count}; }
};

/// Reads `bytes`, all that follows the first 20 bytes of the header, into `options`, which MUST be new. MSS, window scale and
/// SACK-permitted count only with `syn`. Of an option that is there twice, the last one counts. Returns false at an illegal length. The
/// options before it are then valid, and the segment is still acceptable (RFC 9293, MUST-7).
[[nodiscard, gnu::noinline]] bool parse_options(std::span<const std::byte> bytes, bool syn, Options& options) noexcept;

/// Reads a number in network byte order.
[[nodiscard]] inline std::uint32_t load_big(const std::byte* at) noexcept {
  std::uint32_t value;
  std::memcpy(&value, at, sizeof value);
  return std::byteswap(value);
}
inline void store_big(std::byte* at, std::uint32_t value) noexcept {
  value = std::byteswap(value);
  std::memcpy(at, &value, sizeof value);
}

/// The first four bytes of the usual form: NOP, NOP, kind 8, length 10.
constexpr std::uint32_t timestamps_start = 0x0101'080A;

/// True if the `timestamps_bytes` bytes at `at` are the timestamps option in its usual form; `timestamps` is then set. The caller MUST have
/// checked that the header's options are `timestamps_bytes` long. 8 instructions.
[[nodiscard]] inline bool read_timestamps(const std::byte* at, Timestamps& timestamps) noexcept {
  if (load_big(at) != timestamps_start) return false;
  timestamps = {.value = load_big(at + 4), .echo = load_big(at + 8)};
  return true;
}

/// Writes the timestamps option in its usual form, `timestamps_bytes` long.
inline void write_timestamps(std::byte* at, Timestamps timestamps) noexcept {
  store_big(at, timestamps_start);
  store_big(at + 4, timestamps.value);
  store_big(at + 8, timestamps.echo);
}

/// Returns the length of `write_sack`'s option, a multiple of 4; 0 for no block.
[[nodiscard]] constexpr std::size_t sack_bytes(std::size_t blocks) noexcept { return blocks == 0 ? 0 : 4 + 8 * blocks; }

/// Writes two NOPs and the SACK option with `blocks`, at most as many as fit behind the other options. Returns its length.
std::size_t write_sack(std::byte* at, std::span<const SequenceRange> blocks) noexcept;

/// The options of a SYN or a SYN-ACK that this machine sends.
struct SynOptions {
  std::uint16_t mss = 0;
  std::uint8_t window_shift = 0;
  bool window_scale = false, sack_permitted = false, has_timestamps = false;
  Timestamps timestamps;
};

/// Writes the options and returns their length, a multiple of 4, at most 20. `at` MUST have room for 20 bytes.
std::size_t write_syn_options(std::byte* at, const SynOptions& options) noexcept;

/// PAWS (RFC 7323, 5.3): true if a segment with `value` is older than one with `recent`. The caller MUST ignore the result if `recent` is
/// older than 24 days.
[[nodiscard]] constexpr bool timestamp_is_old(std::uint32_t value, std::uint32_t recent) noexcept {
  return static_cast<std::int32_t>(value - recent) < 0;
}

}  // namespace neap::net::tcp
