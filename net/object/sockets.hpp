// SPDX-License-Identifier: BSL-1.0
// Sockets over the network's callbacks: received bytes wait here until the caller reads them. Internal to net/object.
#pragma once

#include <cerrno>
#include <deque>
#include <memory>
#include <utility>

#include "net/object/machine.hpp"

namespace neap::net::object {

/// A TCP connection. It outlives the network's own object, so that the caller can read the last bytes and the reason of the end.
class Stream final : public Socket {
 public:
  /// Sockets are destroyed in an event of the core.
  ~Stream() override;
  Stream() = default;
  Stream& operator=(Stream&&) = delete;

  Connection* connection = nullptr;  ///< null before the connection is established and after its end
  Buffer received;
  Endpoint local, remote;
  bool established = false, peer_closed = false, sending_ended = false, ended = false;
  bool abandoned = false;  ///< closed before it was established
  int error = 0;           ///< of <errno.h>
};

class StreamHandler final : public ConnectionHandler {
 public:
  StreamHandler(Machine& machine, std::shared_ptr<Stream> stream) : machine_(machine), stream_(std::move(stream)) {}
  void received(Buffer data) override { stream_->received.append(std::move(data)); }
  void peer_closed() override { stream_->peer_closed = true; }
  void closed() override;

 private:
  Machine& machine_;
  std::shared_ptr<Stream> stream_;
};

class Listener final : public Socket {
 public:
  std::deque<std::shared_ptr<Stream>> waiting;
};

struct ReceivedDatagram {
  Endpoint from;
  Bytes data;
};

class DatagramSocket final : public Socket {
 public:
  std::uint16_t port = 0;
  std::deque<ReceivedDatagram> waiting;
};

/// Makes the socket of a new connection. MUST be called in the connection's acceptor, whose result the handler is.
[[nodiscard]] std::unique_ptr<ConnectionHandler> attach(Machine& machine, Connection& connection, const std::shared_ptr<Stream>& stream);

[[nodiscard]] int listen(Machine& machine, std::uint16_t port);
[[nodiscard]] int connect(Machine& machine, Endpoint remote);
[[nodiscard]] long send(Machine& machine, Stream& stream, std::span<const std::byte> bytes);
[[nodiscard]] long receive(Machine& machine, Stream& stream, std::span<std::byte> bytes);
[[nodiscard]] int open_datagrams(Machine& machine, std::uint16_t port);
[[nodiscard]] int error_number(ErrorCode code) noexcept;

}  // namespace neap::net::object
