// SPDX-License-Identifier: BSL-1.0
// The end of an event: what a connection sends then.
//
// A reply that fits one frame is one object (outgoing_segment.hpp), and is sent by `settle` alone. A long reply becomes objects of up to 64
// KiB, which the card cuts into segments (TSO), so its cost does not grow with its segments. The sender's rules are in tcp/send_state.hpp:
// how much may be sent, and what has to be sent again.
#include <algorithm>
#include <cstring>
#include <utility>

#include "kernel/panic.hpp"
#include "kernel/short_copy.hpp"
#include "net/connection_frames.hpp"
#include "net/payload_reference.hpp"

namespace neap::net {

// --- The end of an event -----------------------------------------------------------------------------------------------------------------
// Called at the end of the event. If the handler has sent further bytes meanwhile, for example the reply to a request that came with the
// acknowledgement, not all bytes are acknowledged.
void ConnectionState::report_acknowledged() noexcept {
  const bool room = wanted_bytes_ != 0 && send_space_bytes() >= wanted_bytes_;
  if (!room && (waiting_bytes() != 0 || send_.nxt != send_.una)) return;
  wanted_bytes_ = 0;
  if (handler() != nullptr && !gone() && !end_wanted_ && !abort_wanted_)
    call_handler([](ConnectionHandler& handler) { handler.writable(); });
}

// In an ordinary connection, at most one reply and an acknowledgement are due.
[[gnu::always_inline]] inline void ConnectionState::settle() noexcept {
  if (std::exchange(acknowledged_, false) && (ready_ == nullptr || wanted_bytes_ != 0)) report_acknowledged();
  if (ordinary_ && ready_ != nullptr && queued_.empty() && send_.fits(ready_->bytes)) [[likely]] {
    OutgoingSegment& made = *ready_;
    if (transmit_next(made) == Sent::done) [[likely]] {
      ready_ = nullptr;
      const std::uint64_t now_us = stack_.now_us();
      sent_memory_ += memory_of(made);
      send_.sent_bytes(made, now_us);
      stack_.arm(*this, send_.due_us(now_us));
      const std::size_t held = received_memory_ + sent_memory_;
      if (held != charged_bytes_) charge(held);
      return;
    }
  }
  // An acknowledgement of a long reply, all of which was sent.
  if (ordinary_ && ready_ == nullptr && queued_.empty() && !acknowledgements_.waits() && !send_.has_retransmission() &&
      send_.timer() != tcp::SendState::Timer::none) {
    stack_.arm(*this, send_.due_us(stack_.now_us()));
    charge();
    return;
  }
  settle_slowly();
}

void Stack::settle_dirty() noexcept {
  while (ConnectionState* const connection = dirty_.pop_front()) connection->settle();
}

[[gnu::noinline]] void ConnectionState::settle_slowly() noexcept {
  if (gone()) return;
  if (abort_wanted_) return abort_now();
  const std::uint64_t now_us = stack_.now_us();
  if (!out_of_order_.empty()) settle_out_of_order();
  Sent sent = Sent::done;
  if (state_ >= TcpState::established) {
    if (send_.has_retransmission()) sent = resend_lost(now_us);
    if (sent == Sent::done && waiting_bytes() != 0 && !end_sent_) sent = send_new(now_us);
    if (sent == Sent::done && end_wanted_ && !end_sent_ && waiting_bytes() == 0) sent = send_fin(now_us);
    if (sent == Sent::done) sent = settle_acknowledgement(now_us);
  } else if (send_.has_retransmission()) {
    sent = resend_lost(now_us);
  }
  if (sent == Sent::refused) stack_.mark_blocked(*this);
  arm_timer(now_us);
  update_ordinary();
  charge();
}

ConnectionState::Sent ConnectionState::settle_acknowledgement(std::uint64_t now_us) noexcept {
  switch (acknowledgements_.decide()) {
    case tcp::AckDecision::now:
      return acknowledge();
    case tcp::AckDecision::delayed:
      if (!ack_delayed_) {
        ack_delayed_ = true;
        ack_due_us_ = static_cast<std::uint32_t>(now_us) + tcp::ack_delay_us;
      }
      break;
    case tcp::AckDecision::none:
      break;
  }
  if (receives() && receive_.update_due(held_bytes_, acknowledgements_.full_bytes())) return acknowledge();
  return Sent::done;
}

ConnectionState::Sent ConnectionState::acknowledge(std::uint32_t sequence) noexcept {
  OutgoingSegment* const made = OutgoingSegment::make(0);
  if (made == nullptr) return Sent::refused;
  const Sent sent = transmit(*made, sequence, flag::ack);
  OutgoingSegment::release(*made);
  return sent;
}

// --- Old bytes ---------------------------------------------------------------------------------------------------------------------------
/// Sends a segment as frames with copies of its payload: the card does not cut up segments (any more), or the neighbour is not known.
ConnectionState::Sent ConnectionState::transmit_in_frames(OutgoingSegment& segment) noexcept {
  const unsigned last_flags = flags_of(segment);
  for (std::uint32_t at = 0; at < segment.bytes;) {
    const std::uint32_t bytes = std::min<std::uint32_t>(send_.mss, segment.bytes - at);
    OutgoingSegment* const frame = OutgoingSegment::make_any(bytes);
    if (frame == nullptr) return Sent::refused;
    segment.copy_payload(at, {frame->payload(), bytes});
    const bool last = at + bytes == segment.bytes;
    const Sent sent = transmit(*frame, segment.sequence + at, last ? last_flags : last_flags & ~(flag::fin | flag::psh));
    OutgoingSegment::release(*frame);
    if (sent != Sent::done) return Sent::refused;
    at += bytes;
  }
  return Sent::done;
}

ConnectionState::Sent ConnectionState::resend(OutgoingSegment& segment, std::uint64_t now_us) noexcept {
  if (segment.references != 1) stack_.reap();
  const bool whole = segment.bytes <= send_.mss || (stack_.sends_long_segments() && resolve());
  const Sent sent = whole ? transmit(segment, segment.sequence, flags_of(segment)) : transmit_in_frames(segment);
  if (sent != Sent::done) return Sent::refused;
  send_.resent(segment, now_us);
  stack_.counters().retransmissions.add();
  return Sent::done;
}

ConnectionState::Sent ConnectionState::resend_lost(std::uint64_t now_us) noexcept {
  while (tcp::SentSegment* const segment = send_.next_retransmission(now_us, &OutgoingSegment::split)) {
    if (resend(OutgoingSegment::of(*segment), now_us) != Sent::done) return Sent::refused;
  }
  return Sent::done;
}

// --- New bytes ---------------------------------------------------------------------------------------------------------------------------
void ConnectionState::queue_ready() noexcept {
  if (ready_ == nullptr) return;
  Buffer all = OutgoingSegment::as_buffer(*std::exchange(ready_, nullptr));
  all.append(std::move(queued_));
  queued_ = std::move(all);
}

// Nagle's algorithm (RFC 9293, 3.7.4) is off by default: a handler's bytes of one event are one write.
ConnectionState::Sent ConnectionState::send_new(std::uint64_t now_us) noexcept {
  const std::uint32_t full = send_.mss;
  while (true) {
    const auto waiting = static_cast<std::uint32_t>(waiting_bytes());
    if (waiting == 0) return Sent::done;
    std::uint32_t bytes = send_.room(now_us, waiting);
    if (bytes == 0) return Sent::done;
    if (nagle_ && waiting < full && send_.nxt != send_.una && !end_wanted_) return Sent::done;
    bool may_be_long = stack_.sends_long_segments() && (bytes <= full || resolve());
    bytes = std::min(bytes, may_be_long ? tcp::SendState::burst_bytes_max / full * full : full);
    OutgoingSegment* made = nullptr;
    if (ready_ != nullptr && ready_->bytes <= bytes && (ready_->bytes == bytes || queued_.empty())) {
      made = std::exchange(ready_, nullptr);
    } else {
      queue_ready();
      made = make_segment(bytes);
      if (made == nullptr) return Sent::refused;
    }
    if (pass_new(*made, now_us) != Sent::done) return Sent::refused;
  }
}

ConnectionState::Sent ConnectionState::pass_new(OutgoingSegment& made, std::uint64_t now_us) noexcept {
  // Bytes that the close follows carry the FIN.
  const bool last = end_wanted_ && !end_sent_ && waiting_bytes() == 0 && made.bytes <= send_.mss;
  if (last) made.set(tcp::SentSegment::fin);
  unsigned flags = flag::ack | (last ? flag::fin : 0U);
  if (made.bytes != 0 && waiting_bytes() == 0) flags |= flag::psh;
  if (transmit(made, send_.nxt, flags) != Sent::done) {
    made.clear(tcp::SentSegment::fin);
    if (made.bytes == 0) {
      OutgoingSegment::release(made);
    } else {
      require(ready_ == nullptr, "one segment waits for the card", made.bytes);
      ready_ = &made;
    }
    return Sent::refused;
  }
  sent_memory_ += memory_of(made);
  send_.sent(made, now_us);
  if (last) {
    end_sent_ = true;
    state_ = state_ == TcpState::close_wait ? TcpState::last_ack : TcpState::fin_wait_1;
  }
  return Sent::done;
}

ConnectionState::Sent ConnectionState::send_fin(std::uint64_t now_us) noexcept {
  OutgoingSegment* const made = OutgoingSegment::make(0);
  if (made == nullptr) return Sent::refused;
  return pass_new(*made, now_us);
}

OutgoingSegment* ConnectionState::copy_front(std::uint32_t bytes) noexcept {
  OutgoingSegment* const made = OutgoingSegment::make_any(bytes);
  if (made == nullptr) return nullptr;
  std::byte* to = made->payload();
  std::size_t left = bytes;
  for (const Buffer::Piece* piece = queued_.first(); left != 0; piece = piece->next) {
    require(piece != nullptr, "the pieces of a buffer have its length", left);
    const std::size_t part = std::min<std::size_t>(piece->bytes, left);
    std::memcpy(to, piece->data, part);
    to += part;
    left -= part;
  }
  queued_.drop_front(bytes);
  return made;
}

// A frame with a copy of its bytes costs less than references, unless it is one long piece or a jumbo frame. A segment that the card cuts
// up refers to all its pieces. If there are too many, it ends before, at a multiple of the MSS.
OutgoingSegment* ConnectionState::make_segment(std::uint32_t bytes) noexcept {
  const bool is_long = bytes > send_.mss, refers = is_long || bytes > OutgoingSegment::payload_bytes_max;
  const Buffer::Piece& first = *queued_.first();
  if (!refers && (bytes == queued_.bytes() || first.bytes < bytes)) {
    if (first.bytes < bytes && queued_.pieces() >= stack_.pieces_limit()) stack_.counters().transmit_copied.add();
    return copy_front(bytes);
  }
  if (is_long && stack_.copies_long_segments()) {
    if (OutgoingSegment* const made = copy_front(bytes); made != nullptr) {
      stack_.counters().joined_copied_bytes.add(bytes);
      return made;
    }
    stack_.counters().joined_no_memory.add();
    return copy_front(send_.mss);
  }
  if (refers) {
    std::uint32_t reach = 0;
    unsigned pieces = 1;
    for (const Buffer::Piece* piece = &first; piece != nullptr && reach < bytes && pieces < stack_.pieces_limit(); piece = piece->next) {
      reach += piece->bytes;
      ++pieces;
    }
    if (reach < bytes) {
      const std::uint32_t whole = reach - reach % send_.mss;
      if (whole <= send_.mss) {
        stack_.counters().transmit_copied.add();
        return copy_front(std::min<std::uint32_t>(send_.mss, bytes));
      }
      bytes = whole;
    }
  }
  Buffer data;
  if (bytes == queued_.bytes()) {
    data = std::move(queued_);
  } else if (!take_front(queued_, bytes, data)) {
    return nullptr;
  }
  OutgoingSegment* const made = OutgoingSegment::make_chain(std::move(data));
  if (made == nullptr) {
    data.append(std::move(queued_));
    queued_ = std::move(data);
  }
  return made;
}

// --- The application's bytes -------------------------------------------------------------------------------------------------------------
[[gnu::always_inline]] inline bool ConnectionState::has_frame() const noexcept {
  const bool open = ordinary_ || (state_ == TcpState::established && !end_wanted_ && !abort_wanted_);
  return open && ready_ == nullptr && queued_.empty() && send_.nxt == send_.una;
}

[[gnu::always_inline]] inline void ConnectionState::make_ready(OutgoingSegment& made) noexcept {
  ready_ = &made;
  stack_.mark_dirty(*this);
}

bool Connection::send_copy(std::span<const std::byte> bytes) noexcept {
  ConnectionState& self = ConnectionState::of(*this);
  require(this_core() == self.core_, "a connection is used on its own core", self.core_);
  if (bytes.size() > send_copy_bytes_max) return false;
  const std::span<std::byte> room = self.has_frame() ? OutgoingSegment::frame() : std::span<std::byte>();
  if (room.empty()) return self.send_copy_behind(bytes);
  copy_medium(reinterpret_cast<char*>(room.data()), reinterpret_cast<const char*>(bytes.data()), bytes.size());
  self.make_ready(OutgoingSegment::take_frame(bytes.size()));
  return true;
}

/// `send_copy`, if other bytes wait or are not acknowledged, and in every case that is not ordinary.
[[gnu::noinline]] bool ConnectionState::send_copy_behind(std::span<const std::byte> bytes) noexcept {
  if (gone() || end_wanted_ || abort_wanted_) return false;
  if (bytes.size() > send_space_bytes()) {
    wanted_bytes_ = static_cast<std::uint32_t>(bytes.size());
    return false;
  }
  OutgoingSegment* const made = OutgoingSegment::make(bytes.size());
  if (made == nullptr) return false;
  copy_medium(reinterpret_cast<char*>(made->payload()), reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (waiting_bytes() == 0) {
    make_ready(*made);
    return true;
  }
  queued_.append(OutgoingSegment::as_buffer(*made));
  stack_.mark_dirty(*this);
  return true;
}

std::span<std::byte> Connection::frame() noexcept {
  const ConnectionState& self = ConnectionState::of(*this);
  require(this_core() == self.core_, "a connection is used on its own core", self.core_);
  return self.has_frame() ? OutgoingSegment::frame() : std::span<std::byte>();
}

void Connection::send_frame(std::size_t bytes) noexcept {
  ConnectionState& self = ConnectionState::of(*this);
  require(!self.gone() && self.ready_ == nullptr && self.queued_.empty(), "a frame is sent by an open connection, if nothing else waits",
          bytes);
  self.make_ready(OutgoingSegment::take_frame(bytes));
}

}  // namespace neap::net
