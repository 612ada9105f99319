// SPDX-License-Identifier: BSL-1.0
// What an application sees of the network.
//
// Every core has its own whole stack; a connection lives and dies on the core to which the card's RSS sent its first frame. So a server
// says once what to do with a connection, and from then on each core serves its own, without a word to the others.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "kernel/arguments.hpp"
#include "kernel/net_device.hpp"
#include "kernel/task.hpp"
#include "net/buffer.hpp"

namespace neap::net {

/// IPv4, host byte order.
struct Ipv4Address {
  std::uint32_t value = 0;
  /// "A.B.C.D", all of the text.
  [[nodiscard]] static std::optional<Ipv4Address> parse(std::string_view text);
  [[nodiscard]] std::string to_string() const;
  friend bool operator==(Ipv4Address, Ipv4Address) = default;
};

struct Endpoint {
  Ipv4Address address;
  std::uint16_t port = 0;
  /// "A.B.C.D:PORT", neither of them zero.
  [[nodiscard]] static std::optional<Endpoint> parse(std::string_view text);
};

/// Static address, or none for DHCP (RFC 2131).
struct AddressSetting {
  bool dhcp = true;
  Ipv4Address address, netmask, gateway;
  /// Asks the command line for `ip=dhcp` or `ip=A.B.C.D/LEN[,GATEWAY]`.
  static AddressSetting from(Arguments& arguments);
};

class Connection;

/// What a server does with one connection; made by its `Acceptor`, destroyed when the connection is gone. All calls on the connection's
/// core, each inside an event.
///
/// A handler may call its connection, others and itself be called again, but never inside one of its own calls: what it asks for happens at
/// the end of the event. `bad_alloc` that leaves a call resets the connection and is counted; any other exception is our own mistake and
/// panics.
class ConnectionHandler {
 public:
  virtual ~ConnectionHandler() = default;
  /// Bytes arrived, in order; the handler owns the buffer. Receive window opens again as buffers are released, so a handler that keeps them
  /// slows its peer down.
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
  /// What `send` queues at most before the peer acknowledges.
  static constexpr std::size_t send_queue_bytes_max = 2 * 1024 * 1024;
  /// Pieces up to this size are copied (cheaper than keeping them), larger ones are sent from where they lie.
  static constexpr std::size_t copy_bytes_max = 256;

  /// Queues bytes; they leave together with all else of this event at its end. Takes all or nothing: on an error `data` is as it was.
  /// Errors: `full` (more than `send_space_bytes()`; `writable` follows), `closed`. Referenced bytes stay the buffer's until the peer
  /// acknowledged them and the card no longer reads them.
  [[nodiscard]] Result<void> send(Buffer&& data);
  [[nodiscard]] std::size_t send_space_bytes() const noexcept;
  /// Bytes queued or sent, and not yet acknowledged.
  [[nodiscard]] std::size_t unacknowledged_bytes() const noexcept;
  /// Says that nothing more will be sent, after all that was; receiving goes on. `closed` follows when the peer has closed too.
  void end_sending();
  /// Orderly end after all that was sent; nothing more is received. `closed` follows when the peer has closed too, or after 60 s in which
  /// it did not answer.
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

/// What one core's stack has done since it started. Frames and bytes are the wire's, without FCS.
struct Counters {
  std::uint64_t frames_received, bytes_received;
  std::uint64_t frames_sent, bytes_sent;
  std::uint64_t dropped_malformed;     ///< too short, or not IPv4 or ARP
  std::uint64_t dropped_checksum;      ///< by the card's or our check
  std::uint64_t dropped_protocol;      ///< nobody here wants it (addresses, protocols, ports)
  std::uint64_t dropped_memory;        ///< a bound or the allocator refused
  std::uint64_t receive_copied;        ///< frames copied because too many of the card's buffers were held
  std::uint64_t receive_held_max;      ///< most of the card's buffers held at once
  std::uint64_t transmit_full;         ///< frames that found the card's ring full (sent again later)
  std::uint64_t transmit_failed;       ///< no link, or the card refused
  std::uint64_t transmit_copied;       ///< frames of more pieces than the card takes
  std::uint64_t passed_on;             ///< frames given to the core they belong to
  std::uint64_t pass_on_refused;       ///< its queue was full
  std::uint64_t neighbours_published;  ///< ARP entries told to other cores
  std::uint64_t address_conflicts;     ///< another machine claims our address
  std::uint64_t segments_received, segments_sent, retransmissions;
  std::uint64_t connections_open, connections_accepted, connections_made;
  std::uint64_t connections_refused;    ///< the acceptor said no, or no memory
  std::uint64_t connections_reset;      ///< ended by a reset or a time-out
  std::uint64_t handler_out_of_memory;  ///< connections reset because their handler threw `bad_alloc`
  std::uint64_t discarded_bytes;        ///< received after our side was closed
};
/// Of the core that asks; `co_await on_core(n, net::counters)` for another's. All zero on a core without a stack.
[[nodiscard]] Counters counters() noexcept;

class Network {
 public:
  virtual ~Network() = default;
  /// 0.0.0.0 while there is none (a lease ran out).
  [[nodiscard]] virtual Ipv4Address address() const noexcept = 0;
  /// Of the network that the address is in.
  [[nodiscard]] virtual Ipv4Address netmask() const noexcept = 0;
  /// Cores with a stack: 0 to `cores() - 1`.
  [[nodiscard]] virtual unsigned cores() const noexcept = 0;
  /// Serves `port` on every core with a receive queue; `acceptor` is called on the connection's core and must be safe to share. Errors:
  /// `invalid` (port taken), `out_of_memory`.
  [[nodiscard]] virtual task<Result<void>> listen(std::uint16_t port,
                                                  std::function<std::unique_ptr<ConnectionHandler>(Connection&)> acceptor) = 0;
  /// Opens a connection from this core, which must have a stack. Errors: `timeout` (no answer in 10 s), `closed` (refused),
  /// `full` (no port, no room for another connection), `unsupported` (no stack here), `out_of_memory`.
  [[nodiscard]] virtual task<Result<void>> connect(Endpoint remote, Acceptor acceptor) = 0;
};

/// Frames of TCP connections with this local port are counted as control traffic in the log of their core (log.hpp) from now on. Up to two
/// ports. Errors: `invalid` (0), `full`.
[[nodiscard]] Result<void> count_as_control(std::uint16_t port);

/// Starts a stack on every core that has a queue pair, waits for link and address. Both are waited for as long as it takes, said on the
/// console every 10 s; other events run meanwhile. Called on core 0, once for a device. Errors: `out_of_memory`, `invalid`.
[[nodiscard]] task<Result<Network*>> up(NetDevice& device, AddressSetting setting);

}  // namespace neap::net
