// SPDX-License-Identifier: BSL-1.0
// What a log stream is made of: blocks of a 64 byte header and a payload, little-endian (docs/log-format.md).
//
// A collector must know that it has everything, in order and whole, or what exactly it lacks. So each block has its number on this
// connection, its lines' position in their core's log, and two checksums; what was overwritten before it could be sent is a block too.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernel/crc32c.hpp"
#include "kernel/log_record.hpp"

namespace neap::observe {

enum class BlockType : std::uint8_t {
  header = 1,       ///< the core's file header, now that it is final
  lines = 2,        ///< of one core, from `position` on
  gap = 3,          ///< `count` lines from `position` on were overwritten before they could be sent
  end_of_core = 4,  ///< the core's run had `count` lines in all
  end = 5,          ///< of the run
  alive = 6,        ///< nothing to send
};

struct BlockHeader {
  std::uint32_t magic = 0x4B4C424E;  ///< "NBLK"
  BlockType type{};
  std::uint8_t reserved = 0;
  std::uint16_t core = 0;
  std::uint64_t number = 0;  ///< of this block on its connection, from 0
  std::uint64_t position = 0;
  std::uint32_t payload_bytes = 0;
  std::uint32_t payload_crc32c = 0;
  std::uint64_t count = 0;
  std::uint32_t run = 0;
  std::uint32_t reserved2 = 0;
  std::uint64_t boot_id = 0;
  std::uint32_t reserved3 = 0;
  std::uint32_t header_crc32c = 0;  ///< of the bytes before it

  /// Fills in what depends on the payload and the rest.
  void seal(std::span<const std::byte> payload) {
    payload_bytes = static_cast<std::uint32_t>(payload.size());
    payload_crc32c = crc32c(payload);
    header_crc32c = crc32c(std::as_bytes(std::span(this, 1)).first(offsetof(BlockHeader, header_crc32c)));
  }
};
static_assert(sizeof(BlockHeader) == 64);

/// Lines at most in a block: with its header 8 KiB, as much as is read, summed up and sent in one event.
constexpr std::size_t block_lines_max = 127;

}  // namespace neap::observe
