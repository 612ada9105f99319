// SPDX-License-Identifier: BSL-1.0
// The blocks of a log stream: a header of 64 bytes and a payload, little-endian (docs/log-format.md).
//
// A collector (a client that stores streams) must know that it has every entry, or which entries are missing. So each block contains its
// number on this connection, its position in the core's log, and two checksums. A `gap` block names entries that were overwritten unsent.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernel/crc32c.hpp"
#include "kernel/log_record.hpp"
#include "kernel/panic.hpp"
#include "observe/log_file.hpp"

namespace neap::observe {

/// The maximum number of entries in a block. Such a block has 8 KiB with its header, and is read and sent in one event.
constexpr std::size_t block_entries_max = 127;
/// The payload of a block is entries or a file's header.
constexpr std::size_t block_payload_bytes_max = std::max<std::size_t>(block_entries_max * log::entry_bytes, header_bytes);
static_assert(block_payload_bytes_max <= 65536, "docs/log-format.md");

enum class BlockType : std::uint8_t {
  header = 1,       ///< the core's file header; sent after the core's last entry
  entries = 2,      ///< entries of one core, from `position` on
  gap = 3,          ///< `count` entries from `position` on were overwritten before they could be sent
  end_of_core = 4,  ///< no more entries of this core follow; the run has `count` of them
  end = 5,          ///< the end of the run
  alive = 6,        ///< sent when there is nothing else to send
};

struct BlockHeader {
  std::uint32_t magic = 0x4B4C424E;  ///< "NBLK"
  BlockType type{};
  std::uint8_t reserved = 0;
  std::uint16_t core = 0;
  std::uint64_t number = 0;  ///< number of this block on its connection, from 0
  std::uint64_t position = 0;
  std::uint32_t payload_bytes = 0;
  std::uint32_t payload_crc32c = 0;
  std::uint64_t count = 0;
  std::uint32_t run = 0;
  std::uint32_t reserved2 = 0;
  std::uint64_t boot_id = 0;
  std::uint32_t reserved3 = 0;
  std::uint32_t header_crc32c = 0;  ///< CRC of the bytes before this member

  /// Fills in the payload's size and the checksums. The caller MUST have set all other fields.
  void seal(std::span<const std::byte> payload) {
    require(payload.size() <= block_payload_bytes_max, "log: a block's payload is bounded", payload.size());
    payload_bytes = static_cast<std::uint32_t>(payload.size());
    payload_crc32c = crc32c(payload);
    header_crc32c = crc32c(std::as_bytes(std::span(this, 1)).first(offsetof(BlockHeader, header_crc32c)));
  }
};
static_assert(sizeof(BlockHeader) == 64);

}  // namespace neap::observe
