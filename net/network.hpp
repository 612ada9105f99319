// SPDX-License-Identifier: BSL-1.0
// What an application sees of the network.
//
// Every core has its own whole stack; a connection lives and dies on the core to which the card's RSS sent its first frame. So a server says once
// what to do with a connection, and from then on each core serves its own, without a word to the others.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "kernel/arguments.hpp"
#include "kernel/net_device.hpp"
#include "kernel/task.hpp"
#include "net/buffer.hpp"

namespace neap::net {

/// IPv4, host byte order.
struct Ipv4Address {
  std::uint32_t value = 0;
  [[nodiscard]] std::string to_string() const;
  friend bool operator==(Ipv4Address, Ipv4Address) = default;
};

struct Endpoint {
  Ipv4Address address;
  std::uint16_t port = 0;
};

/// Static address, or none for DHCP (RFC 2131).
struct AddressSetting {
  bool dhcp = true;
  Ipv4Address address, netmask, gateway;
  /// Asks the command line for `ip=dhcp` or `ip=A.B.C.D/LEN[,GATEWAY]`.
  static AddressSetting from(Arguments& arguments);
};

class Connection;

/// What a server does with one connection; made by its `Acceptor`, destroyed when the connection is gone. All calls on the connection's core, each
/// inside an event.
class ConnectionHandler {
 public:
  virtual ~ConnectionHandler() = default;
  /// Bytes arrived, in order; the handler owns the buffer. Receive window opens again as buffers are released, so a handler that keeps them slows
  /// its peer down.
  virtual void received(Buffer data) = 0;
  /// Room appeared after a `send` that said `full`, or all was acknowledged.
  virtual void writable() {}
  /// The peer will send no more. The default closes our side once all was sent.
  virtual void peer_closed();
  /// The last call: the connection is gone (orderly, reset, or timed out); `connection()` may not be used any more.
  virtual void closed() {}
  [[nodiscard]] Connection& connection() noexcept { return *connection_; }

 private:
  friend class Connection;
  Connection* connection_ = nullptr;
};

class Connection {
 public:
  /// Queues bytes; they leave together with all else of this event at its end. Takes all or nothing. Errors: `full` (more than
  /// `send_space_bytes()`; `writable` follows), `closed`. Referenced bytes stay the buffer's until the peer acknowledged them.
  [[nodiscard]] Result<void> send(Buffer data);
  [[nodiscard]] std::size_t send_space_bytes() const noexcept;
  /// Bytes sent and not yet acknowledged.
  [[nodiscard]] std::size_t unacknowledged_bytes() const noexcept;
  /// Orderly end after all that was sent; `closed` follows.
  void close();
  /// Reset; `closed` follows in an event of its own.
  void abort();
  [[nodiscard]] Endpoint local() const noexcept;
  [[nodiscard]] Endpoint remote() const noexcept;

 protected:
  Connection() = default;
  ~Connection() = default;
  void bind(ConnectionHandler& handler) noexcept { handler.connection_ = this; }
};

/// Makes the handler of a new connection; null refuses it (reset, counted).
using Acceptor = std::move_only_function<std::unique_ptr<ConnectionHandler>(Connection&)>;

class Network {
 public:
  virtual ~Network() = default;
  [[nodiscard]] virtual Ipv4Address address() const noexcept = 0;
  /// Serves `port` on every core with a receive queue; `acceptor` is called on the connection's core and must be safe to share. Errors: `invalid`
  /// (port taken), `out_of_memory`.
  [[nodiscard]] virtual task<Result<void>> listen(std::uint16_t port, std::function<std::unique_ptr<ConnectionHandler>(Connection&)> acceptor) = 0;
  /// Opens a connection from this core. Errors: `timeout`, `closed` (refused), `full` (no port).
  [[nodiscard]] virtual task<Result<void>> connect(Endpoint remote, Acceptor acceptor) = 0;
};

/// Starts a stack on every core that has a queue pair, waits for link and address. DHCP is tried for ever, said on the console every 10 s.
[[nodiscard]] task<Result<Network*>> up(NetDevice& device, AddressSetting setting);

}  // namespace neap::net
