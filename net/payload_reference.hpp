// SPDX-License-Identifier: BSL-1.0
// Reference counts for payload that is sent without a copy.
//
// A piece of payload may be split into many segments, and each segment is released when it is acknowledged and the card no longer reads it.
// So every part of a piece that was cut holds a reference, and dropping the last reference releases the piece. Internal to net/.
#pragma once

#include <cstdint>

#include "net/buffer.hpp"

namespace neap::net {

class PayloadReference {
 public:
  /// Gives `piece` a reference count, unless `piece` is never freed. Returns false, with no change, if memory is short.
  [[nodiscard]] static bool share(Buffer::Piece& piece) noexcept;

  void hold() noexcept { ++count_; }
  static void drop(void* reference) noexcept;

  PayloadReference(Buffer::Release release, void* owner) noexcept : release_(release), owner_(owner) {}

 private:
  Buffer::Release release_;
  void* owner_;
  std::uint32_t count_ = 1;
};

/// Moves the first `bytes` of `from`, which MUST have more, to the end of `to`. A piece that is cut is shared. Returns false, with no
/// change, without memory. Both buffers MUST be released on this core.
[[nodiscard]] bool take_front(Buffer& from, std::uint32_t bytes, Buffer& to) noexcept;

/// Returns this core's spare objects to malloc (for tests).
void trim_payload_references() noexcept;

}  // namespace neap::net
