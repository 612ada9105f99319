// SPDX-License-Identifier: BSL-1.0
#include <algorithm>
#include <cstring>
#include <new>

#include "kernel/events.hpp"
#include "kernel/panic.hpp"
#include "kernel/short_copy.hpp"
#include "lwip/priv/tcp_priv.h"
#include "lwip/tcp.h"
#include "net/connection_state.hpp"
#include "net/control_frames.hpp"
#include "net/outgoing_segment.hpp"
#include "net/payload_reference.hpp"
#include "net/received_piece.hpp"
#include "net/stack.hpp"
#include "net/stack_memory.hpp"

namespace neap::net {

namespace {

constexpr unsigned poll_ticks = 1000 / TCP_SLOW_INTERVAL;  // while this side is closed, lwIP calls `on_poll` once a second
constexpr std::chrono::seconds connect_limit{10};
/// A connection that this side closed is aborted after this many seconds without an acknowledgement from the peer.
constexpr unsigned quiet_polls_max = 60;
/// A closed connection is aborted after this many seconds in any case: a peer could keep it open by acknowledging one byte a minute.
constexpr std::uint32_t closing_s_max = 600;

std::uint32_t now_s() noexcept { return static_cast<std::uint32_t>(BootClock::now().time_since_epoch() / std::chrono::seconds(1)); }

void release_on_own_core(RemoteNode* node) noexcept;

/// Releases a received piece on the connection's core, which owns the receive buffer and updates the connection's window.
void release_received(void* owner) noexcept {
  auto& piece = *static_cast<ReceivedPiece*>(owner);
  if (this_core() != piece.connection->core()) {
    piece.run = &release_on_own_core;
    hand_over(piece.connection->core(), piece);
    return;
  }
  ConnectionState& connection = *piece.connection;
  const std::uint32_t bytes = piece.pbuf.len;
  const std::size_t memory_bytes = Stack::memory_of(piece.buffer());
  pbuf_free(&piece.pbuf);
  connection.piece_released(bytes, memory_bytes);
}

void release_on_own_core(RemoteNode* node) noexcept { release_received(static_cast<ReceivedPiece*>(node)); }

}  // namespace

// --- The application's interface ---------------------------------------------------------------------------------------------------------
void ConnectionHandler::peer_closed() { connection().close(); }

Result<void> Connection::send(Buffer&& data) {
  ConnectionState& self = ConnectionState::of(*this);
  require(this_core() == self.core_, "a connection is used on its own core", self.core_);
  if (self.gone() || self.end_wanted_ || self.abort_wanted_) return failure(ErrorCode::closed, "the connection is closed");
  if (data.bytes() > send_space_bytes()) {
    self.wanted_bytes_ = static_cast<std::uint32_t>(std::min(data.bytes(), send_queue_bytes_max));
    return failure(ErrorCode::full, "too many bytes are unacknowledged", data.bytes());
  }
  self.queue_ready();
  self.queued_.append(std::move(data));
  self.stack_.mark_dirty(self);
  return {};
}

// An ordinary connection is open, and neither its end nor its abort was requested.
[[gnu::always_inline]] inline bool ConnectionState::has_frame() const noexcept {
  return ordinary_at_ == stack_.lwip_uses() && ready_ == nullptr && (queued_.bytes() | lwip_bytes()) == 0;
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
  queue_ready();
  queued_.append(Buffer(made->as_piece()));
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

std::size_t Connection::held_bytes() const noexcept { return ConnectionState::of(*this).memory_held(); }

std::size_t Connection::send_space_bytes() const noexcept {
  return send_queue_bytes_max - std::min(send_queue_bytes_max, unacknowledged_bytes());
}

std::size_t Connection::unacknowledged_bytes() const noexcept {
  const ConnectionState& self = ConnectionState::of(*this);
  return self.waiting_bytes() + (self.gone() ? 0 : self.lwip_bytes());
}

void Connection::end_sending() {
  ConnectionState& self = ConnectionState::of(*this);
  require(this_core() == self.core_, "a connection is used on its own core", self.core_);
  if (self.gone() || self.end_wanted_) return;
  self.end_wanted_ = true;
  self.ordinary_at_ = 0;
  self.stack_.mark_dirty(self);
}

void Connection::close() {
  ConnectionState& self = ConnectionState::of(*this);
  require(this_core() == self.core_, "a connection is used on its own core", self.core_);
  if (self.gone() || self.close_wanted_) return;
  self.close_wanted_ = self.end_wanted_ = true;
  self.ordinary_at_ = 0;
  self.quiet_polls_ = 0;
  self.closing_since_s_ = static_cast<std::uint16_t>(now_s());
  self.stack_.mark_dirty(self);
}

void Connection::abort() { ConnectionState::of(*this).request_abort(); }

Endpoint Connection::local() const noexcept {
  const SegmentAddresses sent = ConnectionState::of(*this).sent_addresses();
  return {.address = Ipv4Address{lwip_ntohl(static_cast<std::uint32_t>(sent.addresses))},
          .port = lwip_ntohs(static_cast<std::uint16_t>(sent.ports))};
}

Endpoint Connection::remote() const noexcept {
  const SegmentAddresses received = ConnectionState::of(*this).sent_addresses().reversed();
  return {.address = Ipv4Address{lwip_ntohl(static_cast<std::uint32_t>(received.addresses))},
          .port = lwip_ntohs(static_cast<std::uint16_t>(received.ports))};
}

std::chrono::milliseconds Connection::silence() const noexcept {
  const ConnectionState& self = ConnectionState::of(*this);
  require(this_core() == self.core_, "a connection is used on its own core", self.core_);
  if (self.gone()) return {};
  self.stack_.wake_clock(false);  // adds the ticks in which the core slept
  return std::chrono::milliseconds(std::uint64_t{tcp_ticks - self.pcb_->tmr} * TCP_SLOW_INTERVAL);
}

std::uint32_t visit_connections(std::uint16_t port, std::uint32_t position, unsigned budget,
                                const std::function<void(ConnectionHandler&)>& visit) {
  if (Stack::here() == nullptr) return 0;
  unsigned visited = 0;
  do {
    for (tcp_pcb* pcb = tcp_pcb_hash_first(position); pcb != nullptr;) {
      tcp_pcb* const next = pcb->hash_next;
      ConnectionState* const connection = pcb->local_port == port && pcb->state != TIME_WAIT ? ConnectionState::of(*pcb) : nullptr;
      if (connection != nullptr && !connection->gone() && connection->handler() != nullptr) {
        visit(*connection->handler());
        ++visited;
      }
      pcb = next;
    }
  } while (++position < TCP_PCB_HASH_SIZE && visited < budget);
  return position < TCP_PCB_HASH_SIZE ? position : 0;
}

// --- Start and end -----------------------------------------------------------------------------------------------------------------------
ConnectionState::ConnectionState(Stack& stack, tcp_pcb* pcb) noexcept
    : stack_(stack), pcb_(pcb), core_(static_cast<std::uint16_t>(stack.core())) {
  tcp_arg(pcb, this);
  tcp_nagle_disable(pcb);
  ip_set_option(pcb, SOF_KEEPALIVE);
  remember_addresses();
  control_ = is_control_port(pcb->local_port);
  stack_.add(*this);
}

void ConnectionState::remember_addresses() noexcept {
  headers_.set_addresses(lwip_ntohl(pcb_->local_ip.addr), lwip_ntohl(pcb_->remote_ip.addr), pcb_->local_port, pcb_->remote_port);
}

bool ConnectionState::adopt(std::unique_ptr<ConnectionHandler> handler) noexcept {
  if (handler == nullptr) {
    stack_.counters().connections_refused.add();
    request_abort();
    return false;
  }
  require(handler_ == nullptr && !connecting_, "a connection has one handler", core_);
  handler_ = handler.release();
  bind(*handler_);
  return true;
}

void ConnectionState::begin_attempt(ConnectAttempt& attempt) {
  require(handler_ == nullptr && !connecting_, "a connection has one attempt", core_);
  connecting_ = true;
  attempt_ = &attempt;
  attempt.limit.arm(connect_limit, [this] { request_abort(); });
}

ConnectAttempt& ConnectionState::take_attempt() noexcept {
  require(connecting_, "an established connection had an attempt", core_);
  connecting_ = false;
  ConnectAttempt& attempt = *attempt_;
  handler_ = nullptr;
  return attempt;
}

void ConnectionState::request_abort() noexcept {
  require(this_core() == core_, "a connection is used on its own core", core_);
  if (gone() || abort_wanted_) return;
  abort_wanted_ = true;
  ordinary_at_ = 0;
  stack_.mark_dirty(*this);
}

void ConnectionState::detach() noexcept {
  require(!gone(), "a connection is detached from lwIP once", core_);
  tcp_arg(pcb_, nullptr);
  tcp_poll(pcb_, nullptr, 0);
  clear_lwip();
  orderly_ = true;
  stack_.mark_gone(*this);
}

void ConnectionState::clear_lwip() noexcept {
  pcb_ = nullptr;
  stack_.forget_addresses(*this);
  reordered_memory_ = 0;
  charge();
}

void ConnectionState::finish() noexcept {
  require(this_core() == core_ && gone(), "a handler ends on its own core, after lwIP released the connection", core_);
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

// --- Receiving ---------------------------------------------------------------------------------------------------------------------------
Buffer ConnectionState::take_received(pbuf* chain) noexcept {
  Buffer data;
  if (stack_.card_buffers_short(held_bytes_ > 0)) [[unlikely]] {
    if (!gather(chain, data)) {
      stack_.counters().dropped_memory.add();
      request_abort();  // lwIP has acknowledged the bytes, so they cannot be dropped
    }
    return data;
  }
  while (chain != nullptr) {
    pbuf* const rest = chain->next;
    chain->next = nullptr;
    chain->tot_len = chain->len;
    if (chain->len == 0) {
      pbuf_free(chain);
    } else {
      ReceivedPiece& piece = ReceivedPiece::of(*chain);
      piece.connection = this;
      piece.piece = {
          .data = static_cast<const std::byte*>(chain->payload), .bytes = chain->len, .release = &release_received, .owner = &piece};
      data.append_piece(piece.piece);
      received_memory_ += static_cast<std::uint32_t>(Stack::memory_of(piece.buffer()));
      ++references_;
    }
    chain = rest;
  }
  held_bytes_ += static_cast<std::uint32_t>(data.bytes());
  return data;
}

void ConnectionState::piece_released(std::uint32_t bytes, std::size_t memory_bytes, std::uint32_t references) noexcept {
  require(held_bytes_ >= bytes && received_memory_ >= memory_bytes, "no more bytes are released than were received", bytes);
  held_bytes_ -= bytes;
  received_memory_ -= static_cast<std::uint32_t>(memory_bytes);
  if (!gone()) {
    released_bytes_ += bytes;
    stack_.mark_dirty(*this);
  } else {
    charge();
  }
  drop_references(references);
}

void ConnectionState::open_window() noexcept {
  while (released_bytes_ > 0) {
    const auto bytes = static_cast<std::uint16_t>(std::min<std::uint32_t>(released_bytes_, 0xFFFF));
    released_bytes_ -= bytes;
    tcp_recved(pcb_, bytes);
  }
}

void ConnectionState::on_received(pbuf* data) noexcept {
  if (data == nullptr) {
    if (!close_wanted_ && !abort_wanted_ && handler_ != nullptr) {
      call_handler([](ConnectionHandler& handler) { handler.peer_closed(); });
    }
    return;
  }
  if (close_wanted_ || abort_wanted_ || handler_ == nullptr) {
    stack_.counters().discarded_bytes.add(data->tot_len);
    released_bytes_ += data->tot_len;
    stack_.mark_dirty(*this);
    pbuf_free(data);
    return;
  }
  Buffer received = take_received(data);
  if (received.empty()) return;
  call_handler([&](ConnectionHandler& handler) { handler.received(std::move(received)); });
}

// --- Sending -----------------------------------------------------------------------------------------------------------------------------
bool ConnectionState::write_queued() noexcept {
  while (!queued_.empty()) {
    Buffer::Piece& piece = *queued_.first();
    const std::size_t room = std::min<std::size_t>(tcp_sndbuf(pcb_), 0xFFFF);
    const std::size_t bytes = std::min<std::size_t>(piece.bytes, room);
    if (bytes == 0) return true;  // lwIP has room for more bytes after the next acknowledgement
    const std::uint8_t more = bytes < piece.bytes || piece.next != nullptr ? TCP_WRITE_FLAG_MORE : 0;
    err_t error = ERR_MEM;
    if (piece.bytes <= copy_bytes_max) {
      error = tcp_write(pcb_, piece.data, static_cast<std::uint16_t>(bytes), static_cast<std::uint8_t>(TCP_WRITE_FLAG_COPY | more));
    } else if (PayloadReference::share(piece)) {
      const PayloadReference::Writing writing(piece);
      error = tcp_write(pcb_, piece.data, static_cast<std::uint16_t>(bytes), more);
    }
    if (error != ERR_OK) return false;
    queued_.drop_front(bytes);
  }
  return true;
}

void ConnectionState::on_sent() noexcept {
  quiet_polls_ = 0;
  acknowledged();
  stack_.mark_dirty(*this);
}

void ConnectionState::settle_with_lwip() noexcept {
  stack_.note_lwip_use();
  if (pcb_->ooseq != nullptr || reordered_memory_ != 0) [[unlikely]]
    settle_out_of_order();
  if (abort_wanted_) {
    tcp_abort(pcb_);  // lwIP then calls `on_error`
    return;
  }
  open_window();
  const Sent sent = send_queued();
  bool complete = sent == Sent::not_possible ? write_queued() : sent == Sent::all;
  if (end_wanted_ && !end_sent_ && queued_.empty()) {
    if (tcp_shutdown(pcb_, 0, 1) == ERR_OK) {
      end_sent_ = true;
    } else {
      complete = false;
    }
  }
  if (close_wanted_) tcp_poll(pcb_, nullptr, poll_ticks);
  if (sent != Sent::waits && !output()) complete = false;
  if (!complete) stack_.mark_blocked(*this);
  if (!gone()) charge();
}

// --- lwIP's events -----------------------------------------------------------------------------------------------------------------------
void ConnectionState::on_poll() noexcept {
  if (!close_wanted_) return;
  if (++quiet_polls_ > quiet_polls_max || static_cast<std::uint16_t>(now_s() - closing_since_s_) > closing_s_max) request_abort();
}

void ConnectionState::on_error(err_t error) noexcept {
  clear_lwip();
  orderly_ = error == ERR_CLSD;
  if (connecting_) {
    ConnectAttempt& attempt = take_attempt();
    attempt.limit.cancel();
    attempt.done.fulfil(error == ERR_RST ? failure(ErrorCode::closed, "the peer refused the connection")
                                         : failure(ErrorCode::timeout, "the peer does not answer"));
  }
  stack_.mark_gone(*this);
}

void ConnectionState::on_connected() noexcept {
  ConnectAttempt& attempt = take_attempt();
  attempt.limit.cancel();
  remember_addresses();
  stack_.counters().connections_made.add();
  if (adopt(make_handler(attempt.acceptor))) {
    attempt.done.fulfil({});
  } else {
    attempt.done.fulfil(failure(ErrorCode::closed, "no handler was made for the connection"));
  }
}

}  // namespace neap::net

// `pcb` is null for errors, because it is freed already.
extern "C" err_t lwip_tcp_event(void* argument, tcp_pcb* pcb, lwip_event event, pbuf* data, u16_t, err_t error) {
  using namespace neap::net;
  if (event == LWIP_EVENT_ACCEPT) return Stack::accepted(argument, pcb);
  if (argument == nullptr) {  // a connection that was given up
    if (data != nullptr) pbuf_free(data);
    return ERR_OK;
  }
  ConnectionState& connection = *static_cast<ConnectionState*>(argument);
  switch (event) {
    case LWIP_EVENT_RECV:
      connection.on_received(data);
      break;
    case LWIP_EVENT_SENT:
      connection.on_sent();
      break;
    case LWIP_EVENT_POLL:
      connection.on_poll();
      break;
    case LWIP_EVENT_CONNECTED:
      connection.on_connected();
      break;
    case LWIP_EVENT_ERR:
      connection.on_error(error);
      break;
    case LWIP_EVENT_ACCEPT:
      break;
  }
  return ERR_OK;
}

extern "C" int neap_lwip_input_done(tcp_pcb* pcb) {
  using namespace neap::net;
  ConnectionState* const connection = ConnectionState::of(*pcb);
  if (connection == nullptr) return 1;
  if (pcb->state == TIME_WAIT) {
    connection->detach();
    return 1;
  }
  Stack::here()->mark_dirty(*connection);
  return 0;
}
