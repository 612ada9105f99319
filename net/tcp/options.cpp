// SPDX-License-Identifier: BSL-1.0
#include "net/tcp/options.hpp"

#include <algorithm>

#include "kernel/panic.hpp"

namespace neap::net::tcp {

namespace {

// Kinds and lengths of options: RFC 9293, 3.2; RFC 7323, 2.2 and 3.2; RFC 2018, 2 and 3.
constexpr std::uint8_t kind_end = 0, kind_nop = 1, kind_mss = 2, kind_window_scale = 3, kind_sack_permitted = 4, kind_sack = 5,
                       kind_timestamps = 8;
constexpr std::size_t mss_length = 4, window_scale_length = 3, sack_permitted_length = 2, timestamps_length = 10;
constexpr std::size_t block_length = 8;

std::uint8_t byte_at(std::span<const std::byte> bytes, std::size_t at) noexcept { return static_cast<std::uint8_t>(bytes[at]); }

/// Reads the option `option`, which has all its bytes. Options of another length than theirs are ignored, as unknown ones are.
void read_option(std::span<const std::byte> option, bool syn, Options& options) noexcept {
  switch (byte_at(option, 0)) {
    case kind_mss:
      if (syn && option.size() == mss_length) options.mss = static_cast<std::uint16_t>(byte_at(option, 2) << 8 | byte_at(option, 3));
      break;
    case kind_window_scale:
      if (!syn || option.size() != window_scale_length) break;
      options.has_window_shift = true;
      options.window_shift = static_cast<std::uint8_t>(std::min<unsigned>(byte_at(option, 2), window_shift_max));
      break;
    case kind_sack_permitted:
      if (syn && option.size() == sack_permitted_length) options.sack_permitted = true;
      break;
    case kind_sack:
      if (syn || (option.size() - 2) % block_length != 0) break;
      options.sack_count = static_cast<std::uint8_t>(std::min((option.size() - 2) / block_length, sack_blocks_max));
      for (std::size_t i = 0; i < options.sack_count; ++i) {
        const std::byte* const block = option.data() + 2 + i * block_length;
        options.sack[i] = {.first = load_big(block), .end = load_big(block + 4)};
      }
      break;
    case kind_timestamps:
      if (option.size() != timestamps_length) break;
      options.has_timestamps = true;
      options.timestamps = {.value = load_big(option.data() + 2), .echo = load_big(option.data() + 6)};
      break;
    default:
      break;
  }
}

}  // namespace

bool parse_options(std::span<const std::byte> bytes, bool syn, Options& options) noexcept {
  while (!bytes.empty()) {
    const std::uint8_t kind = byte_at(bytes, 0);
    if (kind == kind_end) return true;
    if (kind == kind_nop) {
      bytes = bytes.subspan(1);
      continue;
    }
    if (bytes.size() < 2) return false;
    const std::size_t length = byte_at(bytes, 1);
    if (length < 2 || length > bytes.size()) return false;
    read_option(bytes.first(length), syn, options);
    bytes = bytes.subspan(length);
  }
  return true;
}

std::size_t write_sack(std::byte* at, std::span<const SequenceRange> blocks) noexcept {
  require(blocks.size() <= sack_blocks_max, "a segment has at most four SACK blocks", blocks.size());
  if (blocks.empty()) return 0;
  const auto length = static_cast<std::uint32_t>(2 + blocks.size() * block_length);
  store_big(at, std::uint32_t{kind_nop} << 24 | std::uint32_t{kind_nop} << 16 | std::uint32_t{kind_sack} << 8 | length);
  std::byte* to = at + 4;
  for (const SequenceRange& block : blocks) {
    store_big(to, block.first);
    store_big(to + 4, block.end);
    to += block_length;
  }
  return sack_bytes(blocks.size());
}

std::size_t write_syn_options(std::byte* at, const SynOptions& options) noexcept {
  std::byte* to = at;
  store_big(to, std::uint32_t{kind_mss} << 24 | std::uint32_t{mss_length} << 16 | options.mss);
  to += 4;
  constexpr std::uint32_t nops = std::uint32_t{kind_nop} << 24 | std::uint32_t{kind_nop} << 16;
  constexpr std::uint32_t sack_permitted = std::uint32_t{kind_sack_permitted} << 8 | sack_permitted_length;
  if (options.has_timestamps) {
    write_timestamps(to, options.timestamps);
    // SACK-permitted takes the place of the two NOPs.
    if (options.sack_permitted) store_big(to, sack_permitted << 16 | (timestamps_start & 0xFFFF));
    to += timestamps_bytes;
  } else if (options.sack_permitted) {
    store_big(to, nops | sack_permitted);
    to += 4;
  }
  if (options.window_scale) {
    const auto shift = std::min<std::uint32_t>(options.window_shift, window_shift_max);
    store_big(to, std::uint32_t{kind_nop} << 24 | std::uint32_t{kind_window_scale} << 16 | std::uint32_t{window_scale_length} << 8 | shift);
    to += 4;
  }
  return static_cast<std::size_t>(to - at);
}

}  // namespace neap::net::tcp
