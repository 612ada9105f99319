// SPDX-License-Identifier: BSL-1.0
// When to acknowledge (RFC 9293, 3.8.6.3; RFC 5681, 4.2).
//
// An acknowledgement for each segment doubles the frames of a transfer, and one that is delayed for long stops a sender that has a small
// congestion window. So more than one full segment is acknowledged at once, and less is acknowledged by the reply, or after 40 ms. A peer
// in slow start needs an acknowledgement for each segment: at the start of a connection, after a loss and after a pause, the next 16
// segments are acknowledged at once (as Linux does). That ends as soon as this side answers data by data.
#pragma once

#include <algorithm>
#include <cstdint>

namespace neap::net::tcp {

enum class AckDecision : std::uint8_t {
  none,     ///< nothing has to be acknowledged
  delayed,  ///< by the next segment, at the latest `ack_delay_us` after the first byte that waits
  now,
};

constexpr std::uint32_t ack_delay_us = 40'000;  ///< as Linux; RFC 9293 permits 500 ms

/// 12 bytes of each connection. `decide` is called at the end of an event.
class AckPolicy {
 public:
  static constexpr unsigned quick_segments = 16;

  /// New payload arrived in order. `bytes` > 0. 7 instructions.
  void received(std::uint32_t bytes) noexcept {
    waiting_bytes_ += bytes;
    if (bytes > full_bytes_) [[unlikely]]
      full_bytes_ = static_cast<std::uint16_t>(std::min<std::uint32_t>(bytes, full_bytes_max_));
  }
  /// A segment that has to be acknowledged at once arrived: out of order, a duplicate, one that fills a hole (RFC 5681, 4.2), a FIN, one
  /// that is not acceptable, or a change of congestion marks (RFC 8257, 3.2).
  void require_now() noexcept { now_ = true; }
  /// The peer is probably in slow start: a segment out of order, or the first one after a pause.
  void begin_quick() noexcept { quick_ = quick_segments; }
  /// A segment with the current acknowledgement number was passed to the card. `with_payload`: it answers data by data. 4 instructions.
  void sent(bool with_payload) noexcept {
    if (quick_ > 0) [[unlikely]]
      quick_ = with_payload ? 0 : static_cast<std::uint8_t>(quick_ - 1);
    waiting_bytes_ = 0;
    now_ = false;
  }
  [[nodiscard]] AckDecision decide() const noexcept {
    if (now_) return AckDecision::now;
    if (waiting_bytes_ == 0) [[likely]]
      return AckDecision::none;
    if (quick_ > 0 || undelayed_ || waiting_bytes_ > full_bytes_) return AckDecision::now;
    return AckDecision::delayed;
  }
  [[nodiscard]] bool waits() const noexcept { return waiting_bytes_ != 0 || now_; }
  /// The largest segment of the peer so far, in bytes of payload: an estimate of the peer's MSS.
  [[nodiscard]] std::uint32_t full_bytes() const noexcept { return full_bytes_; }
  /// The peer's segments have at most `bytes` of payload. Frames that the card has joined (RSC) are longer than any segment.
  void set_full_bytes_max(std::uint32_t bytes) noexcept {
    full_bytes_max_ = static_cast<std::uint16_t>(bytes);
    full_bytes_ = std::min(full_bytes_, full_bytes_max_);
  }
  /// False: every segment is acknowledged at once.
  void set_delayed(bool delayed) noexcept { undelayed_ = !delayed; }

 private:
  std::uint32_t waiting_bytes_ = 0;  // payload that is not acknowledged
  std::uint16_t full_bytes_ = 536, full_bytes_max_ = 1'460;
  std::uint8_t quick_ = quick_segments;
  bool now_ : 1 = false;
  bool undelayed_ : 1 = false;
};
static_assert(sizeof(AckPolicy) == 12);

/// The ECN echo of a receiver: RFC 3168, 6.1.3, or RFC 8257, 3.2 (DCTCP). One byte of each connection.
class CongestionEcho {
 public:
  /// A segment with payload arrived. `marked`: its IP header has CE. `window_reduced`: it has CWR. Returns true if the mark has changed
  /// with DCTCP: bytes that wait for an acknowledgement are then acknowledged first, with the old echo, and this segment at once.
  [[nodiscard]] bool received(bool marked, bool window_reduced, bool dctcp) noexcept {
    if (dctcp) {
      const bool changed = marked != echo_;
      echo_ = marked;
      return changed;
    }
    echo_ = marked || (echo_ && !window_reduced);
    return false;
  }
  /// True if segments that this side sends carry ECE.
  [[nodiscard]] bool echo() const noexcept { return echo_; }

 private:
  bool echo_ = false;
};

}  // namespace neap::net::tcp
