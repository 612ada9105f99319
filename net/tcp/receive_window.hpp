// SPDX-License-Identifier: BSL-1.0
// The receive window.
//
// The window bounds the bytes that a peer can make a connection hold, and a window smaller than bandwidth times delay bounds the transfer.
// So it begins with 64 KiB and grows while a transfer needs it, up to the setting `receive_bytes_max`. RFC 9293, 3.8.6: the right edge MUST
// NOT move to the left (SHLD-14), and it moves in steps that are worth a segment (3.8.6.2.2).
//
// Growth: if the application consumed half of the window's limit within one round trip, the peer's congestion window is at least that
// large, and the limit doubles. So the limit stays ahead of a peer in slow start. For a connection of small requests, the check is one
// comparison of the bytes since the last mark.
#pragma once

#include <algorithm>
#include <cstdint>

#include "net/tcp/sequence.hpp"

namespace neap::net::tcp {

/// Returns the window scale (RFC 7323, 2) with which a window of `bytes_max` bytes can be announced.
[[nodiscard]] constexpr std::uint8_t window_shift_for(std::uint32_t bytes_max) noexcept {
  std::uint8_t shift = 0;
  while (shift < 14 && (std::uint32_t{65'535} << shift) < bytes_max) ++shift;
  return shift;
}

/// "Held" bytes were received in order, and the application has not released them.
class ReceiveWindow {
 public:
  static constexpr std::uint32_t first_limit_bytes = 65'535;
  /// The limit that a window scale can express, and 1 GiB (RFC 7323, 2.3).
  [[nodiscard]] static constexpr std::uint32_t limit_max(std::uint8_t shift) noexcept { return std::uint32_t{65'535} << shift; }

  /// The peer's SYN arrived. `limit_bytes`: the first limit, at most 65,535, which the SYN or SYN-ACK announces without scale.
  void start(std::uint32_t peer_initial_sequence, std::uint32_t limit_bytes, std::uint32_t now_us) noexcept {
    next_ = peer_initial_sequence + 1;
    limit_bytes_ = std::min(limit_bytes, first_limit_bytes);
    edge_ = next_ + limit_bytes_;
    tune_at_ = next_ + limit_bytes_ / 2;
    mark_us_ = now_us;
  }
  /// The scale of later segments; 0 if the peer does not scale windows.
  void set_shift(std::uint8_t shift) noexcept { shift_ = shift; }

  [[nodiscard]] std::uint32_t next() const noexcept { return next_; }            ///< RCV.NXT
  [[nodiscard]] std::uint32_t edge() const noexcept { return edge_; }            ///< RCV.NXT + RCV.WND
  [[nodiscard]] std::uint32_t window() const noexcept { return edge_ - next_; }  ///< RCV.WND
  [[nodiscard]] std::uint32_t limit_bytes() const noexcept { return limit_bytes_; }
  [[nodiscard]] std::uint8_t shift() const noexcept { return shift_; }

  /// RFC 9293, 3.10.7.4: true if a segment with `length` sequence numbers, SYN and FIN included, has a part in the
  /// window. Unlike there, a segment that begins before the window and ends behind it is accepted too.
  [[nodiscard]] bool accepts(std::uint32_t sequence, std::uint32_t length) const noexcept {
    if (length == 0) return edge_ == next_ ? sequence == next_ : sequence - next_ < edge_ - next_;
    return before(sequence, edge_) && after(sequence + length, next_);
  }
  /// True if all of a segment that begins at `next()` is in the window. 3 instructions.
  [[nodiscard]] bool fits(std::uint32_t bytes) const noexcept { return bytes <= edge_ - next_; }

  /// `count` sequence numbers were received in order. They MUST be in the window; a FIN may be one beyond it.
  void advance(std::uint32_t count) noexcept {
    next_ += count;
    if (before(edge_, next_)) [[unlikely]]
      edge_ = next_;
  }

  /// As `advance`, for a segment that `fits`.
  void advance_within(std::uint32_t count) noexcept { next_ += count; }
  /// Returns the window field of a segment that is sent now, and moves the edge as far as `held_bytes` permits. `full_bytes`: the peer's
  /// segment size. About 12 instructions.
  [[nodiscard]] std::uint16_t announce(std::uint32_t held_bytes, std::uint32_t full_bytes) noexcept {
    std::uint32_t shown = edge_ - next_;
    const auto more = static_cast<std::int32_t>(limit_bytes_ - held_bytes - shown);  // by which the edge may move
    const std::uint32_t unit_mask = (1U << shift_) - 1;
    // Rounding down would move the edge to the left in the peer's eyes, by less than 2^shift. Rounding up moves it to the right. A peer
    // that sends single bytes must not move it for ever. So the held bytes and the window together exceed the limit by less than 2^shift.
    if (more >= 0) [[likely]] {
      if (more >= static_cast<std::int32_t>(step(full_bytes))) shown += static_cast<std::uint32_t>(more);
      shown += unit_mask;
    } else if (held_bytes + ((shown + unit_mask) & ~unit_mask) <= limit_bytes_ + unit_mask) {
      shown += unit_mask;
    }
    const std::uint32_t field = shown >> shift_;
    const std::uint32_t announced = next_ + (field << shift_);
    if (after(announced, edge_)) edge_ = announced;
    return static_cast<std::uint16_t>(field);
  }
  /// The field of a SYN or SYN-ACK, which is never scaled.
  [[nodiscard]] std::uint16_t announce_unscaled() const noexcept {
    return static_cast<std::uint16_t>(std::min(window(), first_limit_bytes));
  }

  /// True if an acknowledgement should be sent only because the application has released bytes: the edge can move by a quarter of the
  /// limit, or the window is below a quarter of it and the edge can move by two segments.
  [[nodiscard]] bool update_due(std::uint32_t held_bytes, std::uint32_t full_bytes) const noexcept {
    const std::uint32_t room = room_for(held_bytes);
    const std::uint32_t window = edge_ - next_;
    if (room <= window) [[likely]]
      return false;
    const std::uint32_t more = room - window, quarter = limit_bytes_ / 4;
    return more >= quarter || (window < quarter && more >= std::min(2 * full_bytes, limit_bytes_ / 2));
  }

  /// True if `tune` has to be called after received bytes. 4 instructions.
  [[nodiscard]] bool tuning_due(std::uint32_t held_bytes) const noexcept { return at_or_after(next_ - held_bytes, tune_at_); }
  /// Doubles the limit, up to `limit_max_bytes`, if half of it was consumed within a round trip. `round_trip_us`: an estimate, for example
  /// the age of the received segment's timestamp echo; 0: unknown. `may_grow`: false if the core is short of memory.
  /// Returns true if the limit has grown.
  [[gnu::noinline]] bool tune(std::uint32_t held_bytes, std::uint32_t now_us, std::uint32_t round_trip_us, std::uint32_t limit_max_bytes,
                              bool may_grow) noexcept {
    const std::uint32_t took_us = now_us - mark_us_;
    tune_at_ = next_ - held_bytes + limit_bytes_ / 2;
    mark_us_ = now_us;
    if (round_trip_us != 0) {
      if (round_trip_us_ == 0 || round_trip_us < round_trip_us_) {
        round_trip_us_ = round_trip_us;
      } else {
        round_trip_us_ += (round_trip_us - round_trip_us_) / 8;
      }
    }
    const std::uint32_t bound = std::min(limit_max_bytes, limit_max(shift_));
    if (!may_grow || limit_bytes_ >= bound || took_us > std::max(round_trip_us_, round_trip_us_min)) return false;
    set_limit(std::min(2 * limit_bytes_, bound));
    return true;
  }
  /// The connection has been idle, or the core is short of memory: the limit returns to the first one. The announced edge stays.
  void shrink_limit() noexcept { set_limit(std::min(limit_bytes_, first_limit_bytes)); }

 private:
  /// The clock of timestamps has steps of 1 ms.
  static constexpr std::uint32_t round_trip_us_min = 1'000;

  void set_limit(std::uint32_t bytes) noexcept {
    tune_at_ += bytes / 2 - limit_bytes_ / 2;
    limit_bytes_ = bytes;
  }
  /// The window that the held bytes leave.
  [[nodiscard]] std::uint32_t room_for(std::uint32_t held_bytes) const noexcept {
    return held_bytes < limit_bytes_ ? limit_bytes_ - held_bytes : 0;
  }
  /// RFC 9293, 3.8.6.2.2.
  [[nodiscard]] std::uint32_t step(std::uint32_t full_bytes) const noexcept { return std::min(limit_bytes_ / 2, full_bytes); }

  std::uint32_t next_ = 0, edge_ = 0;
  std::uint32_t limit_bytes_ = first_limit_bytes;
  std::uint32_t tune_at_ = 0;  // when all before this number is consumed, `tune` is due: half a limit behind its last call
  std::uint32_t mark_us_ = 0;  // the time of that call
  std::uint32_t round_trip_us_ = 0;
  std::uint8_t shift_ = 0;
};
static_assert(sizeof(ReceiveWindow) == 28);

}  // namespace neap::net::tcp
