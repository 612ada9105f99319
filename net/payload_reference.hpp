// SPDX-License-Identifier: BSL-1.0
// Who still needs bytes that are sent from where they lie.
//
// A piece of payload may be cut into many segments, each of which lwIP keeps until it is acknowledged and the card until it has read it. A
// retransmission in the card's ring may outlive the acknowledgement. So every pbuf that refers to the piece holds it, and the last one
// releases it. Internal to net/.
#pragma once

#include <cstdint>

#include "net/buffer.hpp"

namespace neap::net {

class PayloadReference {
 public:
  /// From now on `piece` holds its owner through a counted reference. False: no memory, nothing changed. Pieces that live for ever need
  /// none.
  [[nodiscard]] static bool share(Buffer::Piece& piece) noexcept;
  /// While it lives, pbufs that tcp_write() makes on this core hold `piece`, which was shared.
  class Writing {
   public:
    explicit Writing(const Buffer::Piece& piece) noexcept;
    Writing(const Writing&) = delete;
    Writing& operator=(const Writing&) = delete;
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

/// Gives this core's spare objects back to malloc (tests).
void trim_payload_references() noexcept;

}  // namespace neap::net
