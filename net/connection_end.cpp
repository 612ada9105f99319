// SPDX-License-Identifier: BSL-1.0
// How a connection ends (RFC 9293, 3.6): in order, by a reset, or by a time-out.
#include <new>
#include <utility>

#include "kernel/events.hpp"
#include "kernel/panic.hpp"
#include "net/connection_frames.hpp"
#include "net/listeners.hpp"

namespace neap::net {

void ConnectionState::request_abort() noexcept {
  require(this_core() == core_, "a connection is used on its own core", core_);
  if (gone() || abort_wanted_) return;
  abort_wanted_ = true;
  ordinary_ = false;
  stack_.mark_dirty(*this);
}

void ConnectionState::abort_now() noexcept {
  if (state_ != TcpState::syn_sent) {
    stack_.send_bare({.sent = sent_addresses(), .sequence = send_.nxt, .acknowledgement = receive_.next(), .flags = flag::rst | flag::ack});
  }
  drop(false, ErrorCode::timeout);
}

void ConnectionState::drop(bool orderly, ErrorCode reason) noexcept {
  require(!gone() && listener() == nullptr, "an open connection ends once", core_);
  state_ = TcpState::closed;
  ordinary_ = false;
  orderly_ = orderly;
  OutgoingSegment::release_list(send_.abandon());
  sent_memory_ = 0;
  out_of_order_ = tcp::OutOfOrder();
  stack_.remove(*this);
  if (connecting_) {
    take_attempt().done.fulfil(reason == ErrorCode::closed ? failure(ErrorCode::closed, "the peer refused the connection")
                                                           : failure(ErrorCode::timeout, "the peer does not answer"));
  }
  charge();
  stack_.mark_gone(*this);
}

void ConnectionState::drop_half_open() noexcept {
  Listener* const listening = listener();
  require(listening != nullptr, "a connection in SYN-RECEIVED has a listener", core_);
  --listening->half_open;
  stack_.count_half_open(-1);
  state_ = TcpState::closed;
  handler_ = nullptr;
  OutgoingSegment::release_list(send_.abandon());
  sent_memory_ = 0;
  stack_.remove(*this);
  charge();
  drop_references(1);
}

void ConnectionState::finish() noexcept {
  require(this_core() == core_ && gone(), "a handler ends on its own core, after its connection has ended", core_);
  require(!connecting_, "an attempt ends before its connection", core_);
  if (!orderly_) stack_.counters().connections_reset.add();
  if (handler_ != nullptr) {
    try {
      handler_->closed();
    } catch (const std::bad_alloc&) {
      stack_.counters().handler_out_of_memory.add();
    }
    delete std::exchange(handler_, nullptr);
  }
  queue_ready();
  queued_.clear();
  charge();
  stack_.forget(*this);
  drop_references(1);
}

void ConnectionState::drop_references(std::uint32_t count) noexcept {
  require(references_ >= count, "no more references to a connection are dropped than are held", count);
  references_ -= count;
  if (references_ == 0) delete this;
}

void ConnectionState::handler_failed() noexcept {
  stack_.counters().handler_out_of_memory.add();
  request_abort();
}

void ConnectionState::enter_time_wait() noexcept {
  // From CLOSING, nothing waits for an acknowledgement: the peer's FIN was acknowledged before.
  if (acknowledgements_.waits()) static_cast<void>(acknowledge());
  stack_.enter_time_wait(key(), {.send_next = send_.nxt,
                                 .receive_next = receive_.next(),
                                 .timestamp_recent = timestamp_recent_,
                                 .timestamp_offset = timestamp_offset_,
                                 .window = receive_.announce(held_bytes_, acknowledgements_.full_bytes()),
                                 .has_timestamps = timestamps_});
  drop(true);
}

void ConnectionState::charge(std::size_t now) noexcept {
  stack_.charge(std::exchange(charged_bytes_, static_cast<std::uint32_t>(now)), now);
}

}  // namespace neap::net
