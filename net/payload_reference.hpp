// SPDX-License-Identifier: BSL-1.0
// Reference counts for payload that is sent without a copy.
//
// A piece of payload may be split into many segments. lwIP keeps each segment until it is acknowledged. The card may read a retransmission
// even later. So every pbuf of the piece holds a reference, and dropping the last reference releases the piece. Internal to net/.
#pragma once

#include <cstdint>

#include "net/buffer.hpp"

struct pbuf;

namespace neap::net {

class PayloadReference {
 public:
  /// Gives `piece` a reference count, unless `piece` is never freed. Returns false, with no change, if memory is short.
  [[nodiscard]] static bool share(Buffer::Piece& piece) noexcept;
  /// While this object exists, pbufs that tcp_write() makes on this core hold references to `piece`. `share(piece)` MUST have succeeded.
  class Writing {
   public:
    explicit Writing(const Buffer::Piece& piece) noexcept;
    Writing& operator=(Writing&&) = delete;
    ~Writing();
  };

  void hold() noexcept { ++count_; }
  static void drop(void* reference) noexcept;

  PayloadReference(Buffer::Release release, void* owner) noexcept : release_(release), owner_(owner) {}

 private:
  Buffer::Release release_;
  void* owner_;
  std::uint32_t count_ = 1;
};

/// Returns a pbuf for the first `bytes` of `piece`, which holds a reference to the piece's payload; null without memory.
[[nodiscard]] pbuf* refer_to(Buffer::Piece& piece, std::uint32_t bytes) noexcept;
/// Returns a pbuf for bytes that exist as long as the pbuf; null without memory.
[[nodiscard]] pbuf* refer_to(const std::byte* data, std::uint32_t bytes) noexcept;

/// Returns this core's spare objects to malloc (for tests).
void trim_payload_references() noexcept;

}  // namespace neap::net
