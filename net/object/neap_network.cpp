// SPDX-License-Identifier: BSL-1.0
#include "net/object/neap_network.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "net/connection_state.hpp"
#include "net/object/machine.hpp"
#include "net/object/sockets.hpp"

namespace {

using neap::net::Endpoint;
using neap::net::object::Bytes;
using neap::net::object::DatagramSocket;
using neap::net::object::Listener;
using neap::net::object::Machine;
using neap::net::object::MachineSettings;
using neap::net::object::SentFrame;
using neap::net::object::Stream;
using neap::net::object::the_machine;

Machine& machine() { return *the_machine(); }

std::span<const std::byte> bytes_of(const void* data, std::size_t bytes) { return {static_cast<const std::byte*>(data), bytes}; }

Bytes copy_of(const void* data, std::size_t bytes) {
  const auto span = bytes_of(data, bytes);
  return {span.begin(), span.end()};
}

long copy_out(const SentFrame& frame, void* to, std::size_t capacity, std::uint64_t* time_ns) {
  const std::size_t bytes = std::min(capacity, frame.bytes.size());
  if (bytes != 0) std::memcpy(to, frame.bytes.data(), bytes);
  if (time_ns != nullptr) *time_ns = frame.time_ns;
  return static_cast<long>(bytes);
}

// An endpoint that is not known yet is 0.0.0.0, port 0.
neap_endpoint endpoint_of(const Endpoint& endpoint) {
  return {.address = endpoint.address.is_v4() ? endpoint.address.v4().value : 0, .port = endpoint.port};
}
Endpoint endpoint_of(const neap_endpoint& endpoint) { return {.address = neap::net::Ipv4Address{endpoint.address}, .port = endpoint.port}; }

/// Ends this side of a connection by `end`, and frees its handle.
template <class End>
int leave(int handle, End end) {
  const auto stream = machine().find<Stream>(handle);
  if (stream == nullptr) return -EBADF;
  machine().core().call([&] {
    stream->abandoned = true;
    stream->sending_ended = true;
    if (stream->connection != nullptr) end(*stream);
    stream->received.clear();
  });
  machine().remove(handle);
  return 0;
}

}  // namespace

unsigned neap_network_version() { return NEAP_NETWORK_VERSION; }

int neap_machine_make(const char* settings, char* error, std::size_t error_bytes) {
  const auto fail = [&](std::string_view why) {
    if (error_bytes != 0) {
      const std::size_t bytes = std::min(error_bytes - 1, why.size());
      std::memcpy(error, why.data(), bytes);
      error[bytes] = '\0';
    }
    return 0;
  };
  if (the_machine() != nullptr) return fail("this process has a machine already");
  auto parsed = MachineSettings::parse(settings == nullptr ? "" : settings);
  if (!parsed.has_value()) return fail(parsed.error());
  the_machine() = std::make_unique<Machine>(std::move(*parsed));
  if (const auto started = machine().start(); !started.has_value()) {
    the_machine().reset();
    return fail(started.error());
  }
  return 1;
}

void neap_machine_destroy() { the_machine().reset(); }
std::uint64_t neap_now_ns() { return machine().core().now_ns(); }
void neap_advance_to_ns(std::uint64_t time_ns) { machine().core().advance_to(time_ns); }
int neap_advance_to_packet_ns(std::uint64_t time_ns) { return machine().advance_to_packet(time_ns) ? 1 : 0; }

int neap_put_packet(const void* packet, std::size_t bytes) {
  machine().put_packet(copy_of(packet, bytes));
  return 0;
}

int neap_put_frame(const void* frame, std::size_t bytes) {
  machine().put_frame(copy_of(frame, bytes));
  return 0;
}

long neap_take_packet(void* packet, std::size_t capacity, std::uint64_t* time_ns) {
  return copy_out(machine().take_packet(), packet, capacity, time_ns);
}

long neap_take_frame(void* frame, std::size_t capacity, std::uint64_t* time_ns) {
  return copy_out(machine().take_frame(), frame, capacity, time_ns);
}

int neap_listen(std::uint16_t port) { return neap::net::object::listen(machine(), port); }

int neap_accept(int listener, neap_endpoint* remote) {
  const auto socket = machine().find<Listener>(listener);
  if (socket == nullptr) return -EBADF;
  if (socket->waiting.empty()) return -EAGAIN;
  std::shared_ptr<Stream> stream = std::move(socket->waiting.front());
  socket->waiting.pop_front();
  if (remote != nullptr) *remote = endpoint_of(stream->remote);
  return machine().add(std::move(stream));
}

int neap_connect(std::uint32_t address, std::uint16_t port) {
  return neap::net::object::connect(machine(), {.address = neap::net::Ipv4Address{address}, .port = port});
}

int neap_connected(int handle) {
  const auto stream = machine().find<Stream>(handle);
  if (stream == nullptr) return -EBADF;
  if (stream->established) return 1;
  return stream->error != 0 ? -std::exchange(stream->error, 0) : 0;
}

long neap_send(int handle, const void* data, std::size_t bytes) {
  const auto stream = machine().find<Stream>(handle);
  return stream == nullptr ? -EBADF : neap::net::object::send(machine(), *stream, bytes_of(data, bytes));
}

long neap_receive(int handle, void* data, std::size_t bytes) {
  const auto stream = machine().find<Stream>(handle);
  return stream == nullptr ? -EBADF : neap::net::object::receive(machine(), *stream, {static_cast<std::byte*>(data), bytes});
}

int neap_shutdown(int handle) {
  const auto stream = machine().find<Stream>(handle);
  if (stream == nullptr) return -EBADF;
  if (stream->connection == nullptr) return -ENOTCONN;
  machine().core().call([&] {
    stream->sending_ended = true;
    stream->connection->end_sending();
  });
  return 0;
}

int neap_close(int handle) {
  return leave(handle, [](Stream& stream) { stream.connection->close(); });
}

int neap_abort(int handle) {
  return leave(handle, [](Stream& stream) { stream.connection->abort(); });
}

int neap_local(int handle, neap_endpoint* local) {
  const auto stream = machine().find<Stream>(handle);
  if (stream == nullptr) return -EBADF;
  *local = endpoint_of(stream->local);
  return 0;
}

int neap_state(int handle, neap_connection_state* state, std::size_t bytes) {
  const auto stream = machine().find<Stream>(handle);
  if (stream == nullptr) return -EBADF;
  neap_connection_state now{.established = stream->established && !stream->ended,
                            .peer_closed = stream->peer_closed,
                            .ended = stream->ended,
                            .error = stream->error,
                            .readable_bytes = stream->received.bytes()};
  machine().core().call([&] {
    if (stream->connection == nullptr) return;
    now.unacknowledged_bytes = stream->connection->unacknowledged_bytes();
    now.send_space_bytes = stream->connection->send_space_bytes();
    now.held_bytes = stream->connection->held_bytes();
    const auto& sender = neap::net::ConnectionState::of(*stream->connection).sender();
    now.congestion_window_bytes = sender.cwnd;
    now.threshold_bytes = sender.ssthresh;
    now.timeout_us = sender.round_trip.rto_us;
  });
  std::memcpy(state, &now, std::min(bytes, sizeof now));
  return 0;
}

int neap_open_datagrams(std::uint16_t port) { return neap::net::object::open_datagrams(machine(), port); }

long neap_send_datagram(int handle, neap_endpoint to, const void* data, std::size_t bytes) {
  const auto socket = machine().find<DatagramSocket>(handle);
  if (socket == nullptr) return -EBADF;
  long result = static_cast<long>(bytes);
  machine().core().call([&] {
    const auto sent = machine().network().send_datagram(socket->port, endpoint_of(to), bytes_of(data, bytes));
    if (!sent.has_value()) result = -neap::net::object::error_number(sent.error().code);
  });
  return result;
}

long neap_receive_datagram(int handle, neap_endpoint* from, void* data, std::size_t bytes) {
  const auto socket = machine().find<DatagramSocket>(handle);
  if (socket == nullptr) return -EBADF;
  if (socket->waiting.empty()) return -EAGAIN;
  const auto datagram = std::move(socket->waiting.front());
  socket->waiting.pop_front();
  if (from != nullptr) *from = endpoint_of(datagram.from);
  const std::size_t taken = std::min(bytes, datagram.data.size());
  if (taken != 0) std::memcpy(data, datagram.data.data(), taken);
  return static_cast<long>(taken);
}

std::int64_t neap_counter(const char* name) {
  using neap::net::Counters;
  using Field = std::pair<std::string_view, std::uint64_t Counters::*>;
  static constexpr std::array fields{Field{"dropped_malformed", &Counters::dropped_malformed},
                                     Field{"dropped_checksum", &Counters::dropped_checksum},
                                     Field{"retransmissions", &Counters::retransmissions},
                                     Field{"connections_open", &Counters::connections_open},
                                     Field{"connections_reset", &Counters::connections_reset},
                                     Field{"segments_received", &Counters::segments_received},
                                     Field{"segments_sent", &Counters::segments_sent},
                                     Field{"segments_refused", &Counters::segments_refused},
                                     Field{"challenge_acks", &Counters::challenge_acks},
                                     Field{"half_open", &Counters::half_open},
                                     Field{"cookies_sent", &Counters::cookies_sent},
                                     Field{"cookies_accepted", &Counters::cookies_accepted},
                                     Field{"cookies_rejected", &Counters::cookies_rejected},
                                     Field{"held_bytes", &Counters::held_bytes},
                                     Field{"out_of_order_dropped", &Counters::out_of_order_dropped}};
  const auto* const found = std::ranges::find(fields, std::string_view(name), &Field::first);
  return found == fields.end() ? -1 : static_cast<std::int64_t>(neap::net::counters(0).*found->second);
}
