// SPDX-License-Identifier: BSL-1.0
// The application's interface of a connection, except for the functions that send (connection_sending.cpp).
#include <algorithm>

#include "kernel/events.hpp"
#include "kernel/panic.hpp"
#include "net/connection_state.hpp"
#include "net/stack.hpp"

namespace neap::net {

void ConnectionHandler::peer_closed() { connection().close(); }

Result<void> Connection::send(Buffer&& data) {
  ConnectionState& self = ConnectionState::of(*this);
  require(this_core() == self.core_, "a connection is used on its own core", self.core_);
  if (self.gone() || self.end_wanted_ || self.abort_wanted_) return failure(ErrorCode::closed, "the connection is closed");
  if (data.bytes() + unacknowledged_bytes() > send_queue_bytes_max && data.bytes() > send_space_bytes()) {
    self.wanted_bytes_ = static_cast<std::uint32_t>(std::min(data.bytes(), send_queue_bytes_max));
    return failure(ErrorCode::full, "too many bytes are unacknowledged", data.bytes());
  }
  self.queued_.append(std::move(data));
  self.stack_.mark_dirty(self);
  return {};
}

std::size_t Connection::held_bytes() const noexcept { return ConnectionState::of(*this).memory_held(); }

std::size_t Connection::send_space_bytes() const noexcept {
  const std::size_t unacknowledged = unacknowledged_bytes(), limit = ConnectionState::of(*this).send_queue_limit();
  return limit - std::min(limit, unacknowledged);
}

std::size_t ConnectionState::send_queue_limit() const noexcept {
  if (send_.flow == nullptr) [[likely]]
    return send_queue_bytes_max;
  return std::max<std::size_t>(send_queue_bytes_max, std::min(send_.send_bytes_wanted(), tcp::settings.send_bytes_max));
}

std::size_t Connection::unacknowledged_bytes() const noexcept {
  const ConnectionState& self = ConnectionState::of(*this);
  return self.waiting_bytes() + (self.gone() ? 0 : self.sent_bytes());
}

void Connection::end_sending() {
  ConnectionState& self = ConnectionState::of(*this);
  require(this_core() == self.core_, "a connection is used on its own core", self.core_);
  if (self.gone() || self.end_wanted_) return;
  self.end_wanted_ = true;
  self.ordinary_ = false;
  self.stack_.mark_dirty(self);
}

void Connection::close() {
  ConnectionState& self = ConnectionState::of(*this);
  require(this_core() == self.core_, "a connection is used on its own core", self.core_);
  if (self.gone() || self.close_wanted_) return;
  self.close_wanted_ = self.end_wanted_ = true;
  self.ordinary_ = false;
  self.since_s_ = self.progress_s_ = self.stack_.now_s();
  self.stack_.mark_dirty(self);
}

void Connection::abort() { ConnectionState::of(*this).request_abort(); }

void Connection::set_nagle(bool on) {
  ConnectionState& self = ConnectionState::of(*this);
  require(this_core() == self.core_, "a connection is used on its own core", self.core_);
  self.nagle_ = on;
  self.update_ordinary();
  self.stack_.mark_dirty(self);
}

void Connection::set_delayed_acknowledgements(bool on) {
  ConnectionState& self = ConnectionState::of(*this);
  require(this_core() == self.core_, "a connection is used on its own core", self.core_);
  self.acknowledgements_.set_delayed(on);
  self.stack_.mark_dirty(self);
}

Endpoint Connection::local() const noexcept { return source_of(ConnectionState::of(*this).sent_addresses()); }

Endpoint Connection::remote() const noexcept { return source_of(ConnectionState::of(*this).key()); }

std::chrono::milliseconds Connection::silence() const noexcept {
  const ConnectionState& self = ConnectionState::of(*this);
  require(this_core() == self.core_, "a connection is used on its own core", self.core_);
  if (self.gone()) return {};
  const std::uint32_t units = static_cast<std::uint32_t>(self.stack_.now_us() >> 10) - self.received_at_;
  return std::chrono::milliseconds((std::uint64_t{units} << 10) / 100'000 * 100);
}

std::uint32_t visit_connections(std::uint16_t port, std::uint32_t position, unsigned budget,
                                const std::function<void(ConnectionHandler&)>& visit) {
  Stack* const stack = Stack::here();
  if (stack == nullptr) return 0;
  unsigned visited = 0;
  do {
    for (ConnectionState* connection = stack->first_of(position); connection != nullptr;) {
      ConnectionState* const next = connection->chain_next;
      if (connection->local_port() == port && connection->handler() != nullptr) {
        visit(*connection->handler());
        ++visited;
      }
      connection = next;
    }
  } while (++position < stack->chains() && visited < budget);
  return position < stack->chains() ? position : 0;
}

}  // namespace neap::net
