// SPDX-License-Identifier: BSL-1.0
// The general path of received segments: RFC 9293, 3.10.7, with RFC 5961 (forged segments), RFC 7323 (timestamps) and RFC 2018 (selective
// acknowledgements). A segment changes nothing before its numbers are accepted.
#include <algorithm>
#include <array>
#include <utility>

#include "kernel/panic.hpp"
#include "net/connection_frames.hpp"
#include "net/listeners.hpp"
#include "net/tcp/answer_limit.hpp"

namespace neap::net {

namespace {

/// RFC 7323, 5.5: a recent timestamp of this age, in units of 1,024 us, may have been overtaken by the peer's clock. 24 days.
constexpr std::uint32_t timestamp_valid_units = 2'025'000'000;

}  // namespace

/// RFC 5961: the answer to a segment that may be forged.
void ConnectionState::challenge() noexcept {
  if (!tcp::may_answer(challenge_ms_, stack_.now_us(), stack_.challenge_limit())) {
    stack_.counters().challenge_acks_limited.add();
    return;
  }
  stack_.counters().challenge_acks.add();
  static_cast<void>(acknowledge());
}

// --- SYN-SENT (3.10.7.3) -----------------------------------------------------------------------------------------------------------------
void ConnectionState::input_syn_sent(IncomingSegment& segment) noexcept {
  const bool acknowledges = segment.has(flag::ack);
  if (acknowledges && segment.acknowledgement != send_.nxt) {
    if (!segment.has(flag::rst)) stack_.answer_by_reset(segment);
    return;
  }
  if (segment.has(flag::rst)) {
    if (acknowledges) drop(false, ErrorCode::closed);
    return;
  }
  if (!segment.has(flag::syn)) return;
  Agreement agreement = agree(segment);
  agreement.ecn = tcp::settings.ecn && acknowledges && segment.has(flag::ece) && !segment.has(flag::cwr);
  receive_.start(segment.sequence, tcp::ReceiveWindow::first_limit_bytes, static_cast<std::uint32_t>(stack_.now_us()));
  if (segment.options.has_timestamps) timestamp_recent_ = segment.options.timestamps.value;
  use(agreement);
  send_.wl1 = segment.sequence;
  send_.wl2 = segment.acknowledgement;
  send_.window = segment.window;  // never scaled in a SYN
  if (!acknowledges) {            // both sides have sent a SYN
    state_ = TcpState::syn_received;
    if (send_.head != nullptr) static_cast<void>(resend(OutgoingSegment::of(*send_.head), stack_.now_us()));
    return;
  }
  send_.establish(mss_of_path(), sack_, ecn_);
  if (!take_ack(segment)) return;
  acknowledgements_.require_now();
  open();
}

// --- Checks (3.10.7.4) -------------------------------------------------------------------------------------------------------------------
bool ConnectionState::check_sequence(IncomingSegment& segment) noexcept {
  const bool reset = segment.has(flag::rst);
  if (timestamps_ && !reset) {
    const bool recent_valid = static_cast<std::uint32_t>(stack_.now_us() >> 10) - received_at_ < timestamp_valid_units;
    const bool has = segment.options.has_timestamps;
    if (!has || (recent_valid && tcp::timestamp_is_old(segment.options.timestamps.value, timestamp_recent_))) {
      stack_.counters().segments_refused.add();
      if (has) {
        if (segment.length() != 0) {
          static_cast<void>(acknowledge());
        } else {
          challenge();
        }
      }
      return false;
    }
  }
  if (receive_.accepts(segment.sequence, segment.length())) return true;
  // RFC 9293, 3.10.7.4: with a closed window, valid acknowledgements and resets are taken all the same.
  if (receive_.window() == 0 && segment.sequence == receive_.next() && !segment.has(flag::syn)) {
    segment.payload_bytes = 0;
    segment.flags &= ~flag::fin;
    acknowledgements_.require_now();
    return true;
  }
  stack_.counters().segments_refused.add();
  if (reset) return false;
  if (segment.length() == 0 || segment.has(flag::syn)) {
    challenge();
    return false;
  }
  // It may be a genuine segment that the peer repeats because an acknowledgement was lost.
  if (sack_ && tcp::before(segment.sequence, receive_.next()) && segment.payload_bytes != 0) {
    out_of_order_.report_duplicate(segment.sequence, tcp::earlier(segment.sequence + segment.payload_bytes, receive_.next()));
  }
  acknowledgements_.require_now();
  if (state_ >= TcpState::established) {
    stack_.mark_dirty_at_receipt(*this);
  } else {
    static_cast<void>(acknowledge());
  }
  return false;
}

/// RST, SYN and a missing ACK. Returns false if the segment is done. The object may be deleted then.
bool ConnectionState::check_flags(const IncomingSegment& segment) noexcept {
  if (segment.has(flag::rst)) {
    if (segment.sequence == receive_.next()) {
      if (listener() != nullptr) {
        drop_half_open();
      } else {
        drop(state_ >= TcpState::closing, ErrorCode::closed);
      }
    } else {
      stack_.counters().segments_refused.add();
      challenge();
    }
    return false;
  }
  if (segment.has(flag::syn)) {
    stack_.counters().segments_refused.add();
    challenge();
    return false;
  }
  if (!segment.has(flag::ack)) {
    stack_.counters().segments_refused.add();
    return false;
  }
  return true;
}

/// Returns false if the segment is done.
bool ConnectionState::take_ack(const IncomingSegment& segment) noexcept {
  const std::uint32_t number = segment.acknowledgement;
  if (tcp::after(number, send_.nxt) || tcp::before(number, send_.una - send_.window_max)) {  // RFC 5961, 5.2
    stack_.counters().segments_refused.add();
    challenge();
    return false;
  }
  // SND.WL1 assumes segments in order (RFC 9293, 3.10.7.4). A segment behind a gap counts as the next one in order, so that those that fill
  // the gap may change the window too, even if this one is dropped.
  const std::uint32_t sequence = tcp::earlier(segment.sequence, receive_.next());
  const bool ece = ecn_ && segment.has(flag::ece);
  if (state_ >= TcpState::established && send_.plain(number) && segment.options.sack_count == 0 && !ece) {
    release_acknowledged(send_.ack_all(stack_.now_us()));
    send_.update_window(sequence, number, segment.window << send_shift_);
    acknowledged_ = true;
    progress_s_ = stack_.now_s();
    return true;
  }
  const bool has_echo = timestamps_ && segment.options.has_timestamps;
  const tcp::SendState::Acknowledged done =
      send_.on_ack({.now_us = stack_.now_us(),
                    .number = number,
                    .sequence = sequence,
                    .window = segment.has(flag::syn) ? segment.window : segment.window << send_shift_,
                    .segment_length = segment.length(),
                    .sack = sack_ ? segment.options.sack_blocks() : std::span<const tcp::SequenceRange>{},
                    .echoed_ms = has_echo ? segment.options.timestamps.echo - timestamp_offset_ : 0,
                    .has_echo = has_echo,
                    .ece = ece,
                    .more_queued = waiting_bytes() != 0},
                   &OutgoingSegment::split);
  if (done.segments != nullptr) release_acknowledged(done.segments);
  if (done.numbers != 0) {
    acknowledged_ = true;
    progress_s_ = stack_.now_s();
  }
  return true;
}

void ConnectionState::release_acknowledged(tcp::SentSegment* segments) noexcept {
  while (segments != nullptr) {
    OutgoingSegment& segment = OutgoingSegment::of(*std::exchange(segments, segments->next));
    sent_memory_ -= std::min(sent_memory_, memory_of(segment));
    path_mtu_.acknowledged(std::min<std::uint32_t>(segment.bytes, send_.mss) + headers_bytes() + (timestamps_ ? tcp::timestamps_bytes : 0));
    OutgoingSegment::release(segment);
  }
  if (send_.nxt == send_.una) sent_memory_ = 0;  // splits have changed the objects
  if (path_mtu_.raise_due(stack_.now_s())) [[unlikely]] {
    path_mtu_.raise(stack_.now_s());
    send_.change_mss(mss_of_path(), stack_.now_us());
  }
}

/// RFC 7323, 4.3.
void ConnectionState::take_timestamps(const IncomingSegment& segment) noexcept {
  if (timestamps_ && segment.options.has_timestamps && tcp::at_or_before(segment.sequence, acknowledged_to_))
    timestamp_recent_ = segment.options.timestamps.value;
}

/// With DCTCP, bytes that wait are acknowledged with the echo of their own marks (RFC 8257, 3.2).
void ConnectionState::take_congestion_mark(const IncomingSegment& segment) noexcept {
  const bool dctcp = tcp::settings.congestion == tcp::CongestionControl::dctcp;
  if (dctcp && segment.marked != congestion_echo_.echo() && acknowledgements_.waits()) static_cast<void>(acknowledge());
  if (congestion_echo_.received(segment.marked, segment.has(flag::cwr), dctcp)) acknowledgements_.require_now();
}

// --- The path ----------------------------------------------------------------------------------------------------------------------------
void ConnectionState::input(IncomingSegment& segment) noexcept {
  if (!tcp::parse_options(segment.option_bytes, segment.has(flag::syn), segment.options)) stack_.counters().options_malformed.add();
  if (state_ == TcpState::syn_sent) return input_syn_sent(segment);
  const bool half_open = state_ == TcpState::syn_received;
  if (half_open && segment.has(flag::syn) && segment.sequence + 1 == receive_.next() && !segment.has(flag::rst)) {
    if (segment.has(flag::ack) && connecting_) {
      // The peer's answer to this side's SYN, after both had sent one: its acknowledgement counts.
    } else {
      if (send_.head != nullptr) static_cast<void>(resend(OutgoingSegment::of(*send_.head), stack_.now_us()));
      return;
    }
  } else {
    if (!check_sequence(segment)) return;
    if (!check_flags(segment)) return;
  }
  if (half_open) {
    if (!tcp::after(segment.acknowledgement, send_.una) || tcp::after(segment.acknowledgement, send_.nxt)) {
      stack_.answer_by_reset(segment);
      return;
    }
    send_.wl1 = tcp::earlier(segment.sequence, receive_.next());
    send_.wl2 = segment.acknowledgement;
    send_.window = segment.window << (segment.has(flag::syn) ? 0 : send_shift_);
    acknowledged_to_ = receive_.next();
    send_.establish(mss_of_path(), sack_, ecn_);
  }
  take_timestamps(segment);
  received_at_ = static_cast<std::uint32_t>(stack_.now_us() >> 10);
  if (!take_ack(segment)) return;
  if (segment.has(flag::syn)) acknowledgements_.require_now();  // both sides have sent a SYN
  if (half_open) open();
  stack_.mark_dirty_at_receipt(*this);
  ordinary_ = false;

  const bool fin_acknowledged = end_sent_ && send_.una == send_.nxt;
  if (fin_acknowledged) {
    if (state_ == TcpState::fin_wait_1) state_ = TcpState::fin_wait_2;
    if (state_ == TcpState::closing) return enter_time_wait();
    if (state_ == TcpState::last_ack) return drop(true);
  }
  if (ecn_ && segment.payload_bytes != 0) take_congestion_mark(segment);
  if (segment.payload_bytes != 0 || segment.has(flag::fin)) take_payload(segment);
}

}  // namespace neap::net
