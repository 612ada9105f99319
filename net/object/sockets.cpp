// SPDX-License-Identifier: BSL-1.0
#include "net/object/sockets.hpp"

#include <algorithm>

namespace neap::net::object {

// Not reached with an open connection, except at the machine's end: then `take_down` resets it.
Stream::~Stream() { received.clear(); }

void StreamHandler::closed() {
  Stream& stream = *stream_;
  stream.connection = nullptr;
  stream.ended = true;
  // The interface does not tell a reset from a time-out. A reset ends a connection while a packet is processed, a time-out does not.
  const bool in_order = stream.peer_closed && stream.sending_ended;
  if (!in_order && stream.error == 0) stream.error = machine_.receiving() ? ECONNRESET : ETIMEDOUT;
}

std::unique_ptr<ConnectionHandler> attach(Machine& machine, Connection& connection, const std::shared_ptr<Stream>& stream) {
  stream->connection = &connection;
  stream->established = true;
  stream->local = connection.local();
  stream->remote = connection.remote();
  return std::make_unique<StreamHandler>(machine, stream);
}

int error_number(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::invalid:
      return EINVAL;
    case ErrorCode::unsupported:
      return EOPNOTSUPP;
    case ErrorCode::not_found:
      return ENOENT;
    case ErrorCode::out_of_memory:
      return ENOMEM;
    case ErrorCode::full:
      return EADDRNOTAVAIL;
    case ErrorCode::timeout:
      return ETIMEDOUT;
    case ErrorCode::device:
      return EIO;
    case ErrorCode::closed:
      return ECONNREFUSED;
  }
  return EIO;
}

// GCC 12 destroys a lambda's captures twice if the lambda is an argument within an expression of `co_await`. So each call and its wait are
// two statements here.
int listen(Machine& machine, std::uint16_t port) {
  const auto listener = std::make_shared<Listener>();
  int error = EIO;
  const bool ended = machine.core().run([&] -> task<void> {
    task<Result<void>> begun = machine.network().listen(port, [&machine, listener](Connection& connection) {
      auto stream = std::make_shared<Stream>();
      listener->waiting.push_back(stream);
      return attach(machine, connection, stream);
    });
    const auto made = co_await std::move(begun);
    error = made.has_value() ? 0 : made.error().code == ErrorCode::invalid && port != 0 ? EADDRINUSE : error_number(made.error().code);
  });
  if (!ended || error != 0) return -error;
  return machine.add(listener);
}

int connect(Machine& machine, Endpoint remote) {
  const auto stream = std::make_shared<Stream>();
  stream->remote = remote;
  static_cast<void>(machine.core().run([&machine, stream, remote] -> task<void> {
    task<Result<void>> begun = machine.network().connect(remote, [&machine, stream](Connection& connection) {
      auto handler = attach(machine, connection, stream);
      return stream->abandoned ? nullptr : std::move(handler);
    });
    const auto result = co_await std::move(begun);
    if (!result.has_value()) {
      stream->error = error_number(result.error().code);
      stream->ended = true;
    }
  }));
  return machine.add(stream);
}

long send(Machine& machine, Stream& stream, std::span<const std::byte> bytes) {
  if (stream.sending_ended) return -EPIPE;
  if (stream.ended) return stream.error != 0 ? -std::exchange(stream.error, 0) : -EPIPE;
  if (stream.connection == nullptr) return -EAGAIN;
  long sent = -EAGAIN;
  machine.core().call([&] {
    const std::size_t now = std::min(bytes.size(), stream.connection->send_space_bytes());
    if (now == 0) return;
    Buffer data = Buffer::copy(bytes.first(now));
    if (data.empty()) {
      sent = -ENOMEM;
    } else if (const Result<void> result = stream.connection->send(std::move(data)); result.has_value()) {
      sent = static_cast<long>(now);
    } else if (result.error().code == ErrorCode::closed) {
      sent = -EPIPE;
    }
  });
  return sent;
}

long receive(Machine& machine, Stream& stream, std::span<std::byte> bytes) {
  if (stream.received.empty()) {
    if (stream.error != 0) return -std::exchange(stream.error, 0);
    return stream.peer_closed || stream.ended ? 0 : -EAGAIN;
  }
  std::size_t taken = 0;
  machine.core().call([&] {
    taken = stream.received.peek(bytes);
    stream.received.drop_front(taken);
  });
  return static_cast<long>(taken);
}

int open_datagrams(Machine& machine, std::uint16_t port) {
  const auto socket = std::make_shared<DatagramSocket>();
  socket->port = port;
  int error = EIO;
  const bool ended = machine.core().run([&] -> task<void> {
    task<Result<void>> begun = machine.network().receive_datagrams(port, [socket](Datagram datagram) {
      Bytes bytes(datagram.data.bytes());
      datagram.data.peek(bytes);
      socket->waiting.push_back({.from = datagram.from, .data = std::move(bytes)});
    });
    const auto made = co_await std::move(begun);
    error = made.has_value() ? 0 : made.error().code == ErrorCode::invalid && port != 0 ? EADDRINUSE : error_number(made.error().code);
  });
  if (!ended || error != 0) return -error;
  return machine.add(socket);
}

}  // namespace neap::net::object
