// SPDX-License-Identifier: BSL-1.0
// The time-outs of a connection, and errors that ICMP reports. All time-outs of a connection share one node of the core's heap
// (tcp/timer_heap.hpp). A time-out that was postponed is found to be early here.
#include <algorithm>

#include "net/connection_frames.hpp"
#include "net/listeners.hpp"

namespace neap::net {

namespace {

constexpr std::uint64_t never = tcp::TimerHeap::never;
constexpr std::uint64_t second_us = 1'000'000;
constexpr std::uint32_t half_open_s = 20;
/// A connection that this side closed is reset after so many seconds without an acknowledgement from the peer.
constexpr std::uint32_t quiet_s_max = 60;
/// A closed connection is reset after so many seconds in any case: a peer could keep it open by acknowledging one byte a minute.
constexpr std::uint32_t closing_s_max = 600;
constexpr std::uint32_t keep_alive_interval_s = 30, keep_alive_probes_max = 5;
/// Keep-alive may be late. It is delayed to a multiple of this, so that several connections share one wake-up.
constexpr std::uint64_t coarse_us = 15 * second_us;

/// The time in us at which `units` of 1,024 us have passed since `at`, a time of the last 2^32 units.
std::uint64_t time_after(std::uint64_t now_us, std::uint32_t at, std::uint64_t later_us) noexcept {
  const std::uint32_t passed = static_cast<std::uint32_t>(now_us >> 10) - at;
  return (now_us & ~std::uint64_t{1023}) - (std::uint64_t{passed} << 10) + later_us;
}

}  // namespace

std::uint64_t ConnectionState::next_due(std::uint64_t now_us) const noexcept {
  std::uint64_t due = never;
  if (send_.timer() != tcp::SendState::Timer::none) due = send_.due_us(now_us);
  if (ack_delayed_) {
    const std::int32_t left = tcp::distance(static_cast<std::uint32_t>(now_us), ack_due_us_);
    due = std::min(due, now_us + static_cast<std::uint64_t>(std::max(left, 0)));
  }
  const auto at_second = [](std::uint32_t second) { return std::uint64_t{second} * second_us; };
  if (state_ == TcpState::syn_received && !connecting_) due = std::min(due, at_second(since_s_ + half_open_s + 1));
  if (close_wanted_) due = std::min({due, at_second(since_s_ + closing_s_max + 1), at_second(progress_s_ + quiet_s_max + 1)});
  const bool keeps_alive = state_ == TcpState::established || state_ == TcpState::close_wait;
  if (keeps_alive && tcp::settings.keep_alive_s != 0 && send_.nxt == send_.una) {
    const std::uint64_t silence_s = tcp::settings.keep_alive_s + std::uint64_t{keep_alive_probes_} * keep_alive_interval_s;
    const std::uint64_t probe = time_after(now_us, received_at_, silence_s * second_us);
    due = std::min(due, (probe + coarse_us - 1) / coarse_us * coarse_us);
  }
  if (send_.window_closed_s(now_us) != 0 && tcp::settings.zero_window_end_s != 0) due = std::min(due, now_us + second_us);
  return due;
}

void ConnectionState::arm_timer(std::uint64_t now_us) noexcept {
  if (gone()) return;
  if (const std::uint64_t due = next_due(now_us); due != never) stack_.arm(*this, std::max<std::uint64_t>(due, 1));
}

/// Ends the connection if one of its limits is exceeded. Returns false if the connection has ended.
bool ConnectionState::check_limits(std::uint64_t now_us) noexcept {
  const std::uint32_t now_s = stack_.now_s();
  if (listener() != nullptr && now_s - since_s_ > half_open_s) {
    drop_half_open();
    return false;
  }
  bool ended = close_wanted_ && (now_s - since_s_ > closing_s_max || now_s - progress_s_ > quiet_s_max);
  if (tcp::settings.zero_window_end_s != 0 && send_.window_closed_s(now_us) > tcp::settings.zero_window_end_s) ended = true;
  const bool keeps_alive = state_ == TcpState::established || state_ == TcpState::close_wait;
  if (keeps_alive && tcp::settings.keep_alive_s != 0 && send_.nxt == send_.una && !ended) {
    if (time_after(now_us, received_at_, tcp::settings.keep_alive_s * second_us) > now_us) {
      keep_alive_probes_ = 0;
    } else if (time_after(now_us, received_at_,
                          (tcp::settings.keep_alive_s + std::uint64_t{keep_alive_probes_} * keep_alive_interval_s) * second_us) <= now_us) {
      if (keep_alive_probes_ == keep_alive_probes_max) {
        ended = true;
      } else {
        ++keep_alive_probes_;
        static_cast<void>(acknowledge(send_.nxt - 1));  // RFC 9293, 3.8.4
      }
    }
  }
  if (ended) abort_now();
  return !ended;
}

void ConnectionState::on_timer(std::uint64_t now_us) noexcept {
  if (gone() || !check_limits(now_us)) return;
  if (!run_sender_timer(now_us)) return;
  if (ack_delayed_ && tcp::at_or_before(ack_due_us_, static_cast<std::uint32_t>(now_us))) {
    ack_delayed_ = false;
    acknowledgements_.require_now();
    stack_.mark_dirty(*this);
  }
  // Not for a time that has passed: the core would not leave the loop that calls this function.
  if (const std::uint64_t due = next_due(now_us); due != never) stack_.arm(*this, std::max(due, now_us + 1));
}

/// Returns false if the connection has ended. It may be deleted then.
bool ConnectionState::run_sender_timer(std::uint64_t now_us) noexcept {
  const tcp::SendState::Timer timer = send_.timer();
  if (timer == tcp::SendState::Timer::none ||
      tcp::before(static_cast<std::uint32_t>(now_us), static_cast<std::uint32_t>(send_.due_us(now_us))))
    return true;
  const bool timed_out = timer == tcp::SendState::Timer::retransmission;
  if (timed_out) {
    stack_.reap();
    if (send_.head != nullptr && path_mtu_.timed_out(send_.head->bytes + headers_bytes() + (timestamps_ ? 12 : 0), stack_.now_s())) {
      send_.change_mss(mss_of_path(), now_us);
      remember_path_mtu(stack_.now_s());
    }
  }
  const tcp::SendState::Action action = send_.on_timer(now_us, static_cast<std::uint32_t>(waiting_bytes()), &OutgoingSegment::split);
  release_acknowledged(action.acknowledged);
  using Kind = tcp::SendState::Action::Kind;
  ordinary_ = false;
  Sent sent = Sent::done;
  const auto send_bytes = [&](std::uint32_t bytes) {
    queue_ready();
    OutgoingSegment* const made = make_segment(bytes);
    return made == nullptr ? Sent::refused : pass_new(*made, now_us);
  };
  switch (action.kind) {
    case Kind::none:
      break;
    case Kind::resend:
      sent = resend(OutgoingSegment::of(*action.segment), now_us);
      break;
    case Kind::probe_new:
      if (const auto waiting = static_cast<std::uint32_t>(waiting_bytes()); waiting != 0)
        sent = send_bytes(std::min<std::uint32_t>(waiting, send_.mss));
      break;
    case Kind::probe_window: {
      const std::uint32_t bytes = send_.window_probe_bytes(static_cast<std::uint32_t>(waiting_bytes()));
      sent = bytes != 0 ? send_bytes(bytes) : acknowledge(send_.una - 1);
      break;
    }
    case Kind::give_up:
      if (listener() != nullptr) {
        drop_half_open();
      } else {
        drop(false, ErrorCode::timeout);
      }
      return false;
  }
  if (listener() != nullptr) {  // `settle` is for open connections
    if (send_.has_retransmission()) static_cast<void>(resend_lost(now_us));
    return true;
  }
  if (sent == Sent::refused) stack_.mark_blocked(*this);
  stack_.mark_dirty(*this);
  return true;
}

// --- Errors that ICMP reports ------------------------------------------------------------------------------------------------------------
// RFC 5927: such a message may be forged, so it counts only if it quotes a number in flight, and it never ends an open connection.
void ConnectionState::unreachable(std::uint32_t sequence, bool hard) noexcept {
  if (gone() || !tcp::in_range(sequence, send_.una, send_.nxt)) return;
  if (state_ == TcpState::syn_sent && hard) return drop(false, ErrorCode::closed);
  if (hard || state_ <= TcpState::syn_received) return;
  const std::uint64_t now_us = stack_.now_us();
  send_.revert_backoff(now_us);  // RFC 6069
  arm_timer(now_us);
}

bool ConnectionState::too_big(std::uint32_t sequence, std::uint16_t reported_mtu, std::uint16_t quoted_bytes) noexcept {
  if (gone() || state_ < TcpState::established) return false;
  const std::uint32_t now_s = stack_.now_s();
  if (!path_mtu_.reported_too_big(reported_mtu, quoted_bytes, sequence, send_.una, send_.nxt, now_s)) return false;
  remember_path_mtu(now_s);
  send_.change_mss(mss_of_path(), stack_.now_us());
  ordinary_ = false;
  stack_.mark_dirty(*this);
  return true;
}

}  // namespace neap::net
