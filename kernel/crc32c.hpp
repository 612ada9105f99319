// SPDX-License-Identifier: BSL-1.0
// CRC-32C (Castagnoli; RFC 3720 appendix B.4). It protects the log's header, the blocks of a log stream and a panic's text
// (kept_panic.hpp).
#pragma once

#include <boost/crc.hpp>
#include <cstddef>
#include <cstdint>
#include <span>

namespace neap {

class Crc32c {
 public:
  void add(std::span<const std::byte> bytes) { crc_.process_bytes(bytes.data(), bytes.size()); }
  [[nodiscard]] std::uint32_t value() const { return crc_.checksum(); }

 private:
  boost::crc_optimal<32, 0x1EDC6F41, 0xFFFFFFFF, 0xFFFFFFFF, true, true> crc_;
};

[[nodiscard]] inline std::uint32_t crc32c(std::span<const std::byte> bytes) {
  Crc32c crc;
  crc.add(bytes);
  return crc.value();
}

}  // namespace neap
