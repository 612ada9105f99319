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
    for (std::uint32_t chain = 0; chain < chains() && listener->half_open != 0; ++chain) {
      for (ConnectionState* connection = first_of(chain); connection != nullptr;) {
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

ConnectionState* Stack::make_connection(const ConnectionKey& key, bool control) noexcept {
  const std::size_t limit = Listener::connections_max + (control ? Listener::connections_reserved : 0);
  if (table_.count() + table6_.count() >= limit) return nullptr;
  if (const auto* const ipv4 = std::get_if<SegmentAddresses>(&key)) return new (std::nothrow) ConnectionState(*this, *ipv4);
  std::unique_ptr<ConnectionIpv6> part(new (std::nothrow) ConnectionIpv6(headers_of(std::get<SegmentAddresses6>(key).reversed())));
  return part == nullptr ? nullptr : new (std::nothrow) ConnectionState(*this, std::move(part));
}

void Stack::insert(ConnectionState& connection) noexcept {
  const ConnectionKey key = connection.key();
  if (const auto* const ipv4 = std::get_if<SegmentAddresses>(&key)) return table_.add(connection, *ipv4);
  table6_.add(connection, std::get<SegmentAddresses6>(key));
}

void Stack::remove(ConnectionState& connection) noexcept {
  const ConnectionKey key = connection.key();
  if (const auto* const ipv4 = std::get_if<SegmentAddresses>(&key)) {
    table_.remove(connection, *ipv4);
  } else {
    table6_.remove(connection, std::get<SegmentAddresses6>(key));
  }
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
  const bool ipv6 = is_ipv6(segment.key);
  const std::uint16_t mss_default = ipv6 ? 1220 : 536;  // RFC 9293, MUST-15
  const std::uint16_t mss = options.mss == 0 ? mss_default : options.mss;
  const bool timestamps = tcp::settings.timestamps && options.has_timestamps;
  const auto offset_of = [now](const auto& key) { return tcp::initial_numbers(key, now).timestamp_offset; };
  const std::uint32_t offset = timestamps ? std::visit(offset_of, segment.key) : 0;
  const tcp::CookieOptions agreed{.window_shift = options.window_shift,
                                  .window_scale = options.has_window_shift,
                                  .sack_permitted = tcp::settings.sack && options.sack_permitted,
                                  .ecn = tcp::settings.ecn && segment.has(flag::ece) && segment.has(flag::cwr)};
  tcp::SynOptions own{.mss = announced_mss()};
  if (ipv6) own.mss = static_cast<std::uint16_t>(ipv6_.link_mtu() - SegmentHeaders6::ip_header_bytes - SegmentHeaders6::tcp_header_bytes);
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
  const auto cookie_of = [&](const auto& key) { return tcp::make_cookie(key, segment.sequence, mss, now); };
  send_bare({.sent = reversed(segment.key),
             .sequence = std::visit(cookie_of, segment.key),
             .acknowledgement = segment.sequence + 1,
             .flags = flag::syn | flag::ack | (timestamps && agreed.ecn ? flag::ece : 0U),
             .window = tcp::ReceiveWindow::first_limit_bytes,
             .options = std::span(bytes).first(count)});
}

bool Stack::take_cookie(Listener& listener, IncomingSegment& segment) noexcept {
  const std::uint64_t now = now_us();
  if (!listener.cookies.may_return(now)) return false;
  const auto mss = std::visit(
      [&](const auto& key) { return tcp::check_cookie(key, segment.sequence - 1, segment.acknowledgement - 1, now); }, segment.key);
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
