// SPDX-License-Identifier: BSL-1.0
// Listeners, and the SYNs that arrive for them. Each half-open connection holds memory for 20 s. While a listener has as many as it may
// have, SYNs are answered by cookies (tcp/cookies.hpp).
#include "net/listeners.hpp"

#include <array>
#include <new>

#include "kernel/panic.hpp"
#include "net/control_frames.hpp"
#include "net/stack.hpp"
#include "net/tcp/cookies.hpp"
#include "net/tcp/initial_sequence.hpp"

namespace neap::net {

Result<void> Stack::listen(std::uint16_t port, const std::function<std::unique_ptr<ConnectionHandler>(Connection&)>& acceptor) {
  if (find_listener(port) != nullptr) return failure(ErrorCode::invalid, "the port is in use", port);
  auto listener = std::make_unique<Listener>(Listener{.acceptor = acceptor, .port = port, .control = is_control_port(port)});
  listener->next = listeners_;
  listeners_ = listener.release();
  return {};
}

void Stack::stop_listening(std::uint16_t port) noexcept {
  for (Listener** entry = &listeners_; *entry != nullptr; entry = &(*entry)->next) {
    if ((*entry)->port != port) continue;
    const std::unique_ptr<Listener> listener(*entry);
    *entry = listener->next;
    for (std::uint32_t chain = 0; chain < table_.chains() && listener->half_open != 0; ++chain) {
      for (ConnectionState* connection = table_.first_of(chain); connection != nullptr;) {
        ConnectionState* const next = connection->chain_next;
        if (connection->listener() == listener.get()) connection->drop_half_open();
        connection = next;
      }
    }
    return;
  }
}

Listener* Stack::find_listener(std::uint16_t port) const noexcept {
  Listener* listener = listeners_;
  while (listener != nullptr && listener->port != port) listener = listener->next;
  return listener;
}

ConnectionState* Stack::make_connection(const SegmentAddresses& key, bool control) noexcept {
  const std::size_t limit = Listener::connections_max + (control ? Listener::connections_reserved : 0);
  if (table_.count() >= limit) return nullptr;
  return new (std::nothrow) ConnectionState(*this, key);
}

void Stack::insert(ConnectionState& connection) noexcept { table_.add(connection, connection.key()); }

void Stack::remove(ConnectionState& connection) noexcept {
  table_.remove(connection, connection.key());
  timers_.cancel(connection);
}

void Stack::input_syn(Listener& listener, IncomingSegment& segment, std::uint32_t initial_at_least) noexcept {
  const std::uint64_t now = now_us();
  if (listener.full() || listener.cookies.only_cookies(now)) {
    if (listener.full()) listener.cookies.overflowed(now);
    return send_cookie(listener, segment);
  }
  ConnectionState* const connection = make_connection(segment.key, listener.control);
  if (connection == nullptr) {
    counters_.connections_refused.add();
    counters_.syns_refused.add();
    return;
  }
  connection->answer_syn(listener, segment, initial_at_least);
}

void Stack::send_cookie(Listener& listener, const IncomingSegment& segment) noexcept {
  const std::uint64_t now = now_us();
  const tcp::Options& options = segment.options;
  const std::uint16_t mss = options.mss == 0 ? 536 : options.mss;
  const bool timestamps = tcp::settings.timestamps && options.has_timestamps;
  const std::uint32_t offset = timestamps ? tcp::initial_numbers(segment.key, now).timestamp_offset : 0;
  const tcp::CookieOptions agreed{.window_shift = options.window_shift,
                                  .window_scale = options.has_window_shift,
                                  .sack_permitted = tcp::settings.sack && options.sack_permitted,
                                  .ecn = tcp::settings.ecn && segment.has(flag::ece) && segment.has(flag::cwr)};
  tcp::SynOptions own{.mss = announced_mss()};
  if (timestamps) {
    own.window_shift = tcp::window_shift_for(tcp::settings.receive_bytes_max);
    own.window_scale = agreed.window_scale;
    own.sack_permitted = agreed.sack_permitted;
    own.has_timestamps = true;
    own.timestamps = {.value = tcp::cookie_timestamp(now_ms() + offset, agreed), .echo = options.timestamps.value};
  }
  std::array<std::byte, tcp::options_bytes_max> bytes;
  const std::size_t count = tcp::write_syn_options(bytes.data(), own);
  listener.cookies.sent(now);
  counters_.cookies_sent.add();
  send_bare({.sent = segment.key.reversed(),
             .sequence = tcp::make_cookie(segment.key, segment.sequence, mss, now),
             .acknowledgement = segment.sequence + 1,
             .flags = flag::syn | flag::ack | (timestamps && agreed.ecn ? flag::ece : 0U),
             .window = tcp::ReceiveWindow::first_limit_bytes,
             .options = std::span(bytes).first(count)});
}

bool Stack::take_cookie(Listener& listener, IncomingSegment& segment) noexcept {
  const std::uint64_t now = now_us();
  if (!listener.cookies.may_return(now)) return false;
  const auto mss = tcp::check_cookie(segment.key, segment.sequence - 1, segment.acknowledgement - 1, now);
  if (!mss.has_value()) {
    counters_.cookies_rejected.add();
    return false;
  }
  ConnectionState* const connection = make_connection(segment.key, listener.control);
  if (connection == nullptr) {
    counters_.connections_refused.add();
    counters_.syns_refused.add();
    return true;  // the peer's next segment may find room
  }
  counters_.cookies_accepted.add();
  ConnectionState::Agreement agreement{.peer_mss = *mss};
  if (tcp::settings.timestamps && segment.options.has_timestamps) {
    const tcp::CookieOptions options = tcp::cookie_options(segment.options.timestamps.echo);
    agreement.timestamps = true;
    agreement.window_scale = options.window_scale;
    agreement.window_shift = options.window_shift;
    agreement.sack = options.sack_permitted;
    agreement.ecn = options.ecn;
  }
  connection->accept_cookie(listener, segment, agreement);
  connection->input(segment);
  return true;
}

}  // namespace neap::net
