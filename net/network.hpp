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
#include <span>
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
  /// Memory that this connection holds: received and not released, received out of order, queued, and not yet acknowledged. Buffers count
  /// in whole, headers and the rounding of the heap included; bytes that `send` got by reference count too.
  [[nodiscard]] std::size_t held_bytes() const noexcept;
  /// Bytes queued or sent, and not yet acknowledged.
  [[nodiscard]] std::size_t unacknowledged_bytes() const noexcept;
  /// Says that nothing more will be sent, after all that was; receiving goes on. `closed` follows when the peer has closed too.
  void end_sending();
  /// Orderly end after all that was sent; nothing more is received. `closed` follows when the peer has closed too. The connection is reset
  /// after 60 s in which the peer acknowledged nothing, and after 10 min in any case.
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
/// What a core's network counted since it came up. `Count`: a number, or what a core counts with (counter.hpp).
template <class Count>
struct CountersOf {
  Count frames_received{}, bytes_received{};
  Count frames_sent{}, bytes_sent{};
  Count dropped_malformed{};  ///< too short, or not IPv4 or ARP
  Count dropped_checksum{};   ///< by the card's or our check
  Count dropped_protocol{};   ///< nobody here wants it (addresses, protocols, ports)
  Count dropped_memory{};     ///< a bound or the allocator refused
  Count receive_copied{};     ///< frames whose payload was copied because too many of the card's buffers were held
  Count receive_held_max{};   ///< most of the card's buffers held at once
  Count transmit_full{};      ///< frames that found the card's ring full (sent again later)
  Count transmit_failed{};    ///< no link, or the card refused
  Count transmit_copied{};    ///< frames of more pieces than the card takes
  // TSO (segment_joiner.hpp). In `frames_sent` and `bytes_sent` every segment is a frame.
  Count joined_frames{};         ///< given to the card to be cut up
  Count joined_segments{};       ///< in them
  Count joined_copied_bytes{};   ///< of the form `copy`
  Count joined_no_memory{};      ///< segments that went alone as no buffer was left
  Count passed_on{};             ///< frames given to the core they belong to
  Count pass_on_refused{};       ///< its queue was full
  Count neighbours_published{};  ///< ARP entries told to other cores
  Count neighbours_withheld{};   ///< not told: known already, or too many a second
  Count neighbours_recycled{};   ///< ARP entries that gave way to others
  Count neighbours_refused{};    ///< announcements by ARP that found no entry
  Count unresolved_dropped{};    ///< packets dropped that waited for a neighbour's address
  Count address_conflicts{};     ///< another machine claims our address
  Count segments_received{}, segments_sent{}, retransmissions{};
  Count connections_open{}, connections_accepted{}, connections_made{};
  Count connections_refused{};  ///< the acceptor said no, or no memory
  Count connections_reset{};    ///< ended by a reset or a time-out
  Count segments_refused{};     ///< of open connections: sequence or acknowledgement number unacceptable, or a reset or SYN out of place
  Count challenge_acks{};       ///< answers to them (RFC 5961), at most two a second for each connection
  Count dhcp_renewals{};        ///< a lease was prolonged
  Count dhcp_naks{};            ///< a server refused an address or took it back
  Count dhcp_refused{};         ///< offers and acknowledgements of DHCP that make no sense, dropped
  // Memory that connections hold (stack_memory.hpp).
  Count held_bytes{};            ///< now
  Count held_bytes_max{};        ///< most at once
  Count payload_refused{};       ///< segments whose payload was dropped: their connection was over its share
  Count out_of_order_dropped{};  ///< connections whose out-of-order segments were given up for memory
  Count connections_evicted{};   ///< connections reset because they held most
  // Floods of SYNs (stack_cookies.cpp).
  Count half_open{};              ///< connections in SYN-RECEIVED now
  Count syns_refused{};           ///< SYNs, or ACKs with a valid cookie, that found no room for another connection
  Count cookies_sent{};           ///< SYNs answered by a cookie, as the backlog was full
  Count cookies_accepted{};       ///< connections made from a cookie
  Count cookies_rejected{};       ///< ACKs that brought no valid cookie, while cookies were in use
  Count handler_out_of_memory{};  ///< connections reset because their handler threw `bad_alloc`
  // Of frames and bytes, those of the ports that are counted as control.
  Count control_frames_received{}, control_bytes_received{};
  Count control_frames_sent{}, control_bytes_sent{};
  Count discarded_bytes{};  ///< received after our side was closed
};
using Counters = CountersOf<std::uint64_t>;

/// That core's; any core asks, and none is woken for it. All zero on a core without a stack.
[[nodiscard]] Counters counters(unsigned core) noexcept;

/// What this core's stack will be woken for, in milliseconds from now, rounded up; 0: not for this. All zero on a core without a stack.
struct Waits {
  std::uint64_t tcp_ms = 0;          ///< a connection has something on its way
  std::uint64_t connections_ms = 0;  ///< connections that say nothing: keep-alive, TIME-WAIT
  std::uint64_t neighbours_ms = 0;   ///< an ARP request is unanswered
  std::uint64_t reassembly_ms = 0;   ///< a datagram's other fragments
  std::uint64_t groups_ms = 0;       ///< a report of a multicast group
  std::uint64_t dhcp_ms = 0;         ///< a DHCP request is unanswered, or discovery waits after a refusal
  std::uint64_t lease_ms = 0;        ///< the address is to be renewed
};
[[nodiscard]] Waits waits() noexcept;

/// What came to a UDP port.
struct Datagram {
  Endpoint from;
  Endpoint to;  ///< the machine's address, a group's, or the network's broadcast address
  Buffer data;  ///< may be empty
};
/// Called on the core to which the card sent the datagram, or that joined its group. A `bad_alloc` that leaves it is counted; any other
/// exception panics.
using DatagramReceiver = std::function<void(Datagram)>;

class Network {
 public:
  virtual ~Network() = default;
  /// 0.0.0.0 while there is none (a lease ran out).
  [[nodiscard]] virtual Ipv4Address address() const noexcept = 0;
  /// Of the network that the address is in.
  [[nodiscard]] virtual Ipv4Address netmask() const noexcept = 0;
  /// Cores with a stack: 0 to `cores() - 1`.
  [[nodiscard]] virtual unsigned cores() const noexcept = 0;
  /// The card below.
  [[nodiscard]] virtual NetDevice& device() const noexcept = 0;
  /// Serves `port` on every core with a receive queue; `acceptor` is called on the connection's core and must be safe to share. Errors:
  /// `invalid` (port taken), `out_of_memory`.
  [[nodiscard]] virtual task<Result<void>> listen(std::uint16_t port,
                                                  std::function<std::unique_ptr<ConnectionHandler>(Connection&)> acceptor) = 0;
  /// Opens a connection from this core, which must have a stack. Errors: `timeout` (no answer in 10 s), `closed` (refused),
  /// `full` (no port, no room for another connection), `unsupported` (no stack here), `out_of_memory`.
  [[nodiscard]] virtual task<Result<void>> connect(Endpoint remote, Acceptor acceptor) = 0;

  /// Hands what comes to UDP port `port` to `receiver`, on every core; it must be safe to share. Errors: `invalid` (port taken),
  /// `out_of_memory`.
  [[nodiscard]] virtual task<Result<void>> receive_datagrams(std::uint16_t port, DatagramReceiver receiver) = 0;
  /// Sends a copy of `bytes` from this core, at the end of the event. What is longer than a frame goes in fragments. UDP: nobody says
  /// whether it arrived. To a group, it goes no further than the own network. Errors: `invalid` (nobody receives at `from_port`; address;
  /// size), `full`, `closed` (no link, no address), `unsupported` (no stack here), `out_of_memory`.
  [[nodiscard]] virtual Result<void> send_datagram(std::uint16_t from_port, Endpoint to, std::span<const std::byte> bytes) = 0;
  /// This core gets datagrams to the group (224.0.0.0/4) from now on, if it receives at their port; the machine is in the groups of all
  /// its cores, up to 256. Errors: `invalid` (not such an address; joined already), `full`, `unsupported` (no stack here),
  /// `out_of_memory`; then nothing has changed.
  [[nodiscard]] virtual task<Result<void>> join(Ipv4Address group) = 0;
  /// And no longer. Errors: `invalid` (not joined), `unsupported`, `out_of_memory`.
  [[nodiscard]] virtual task<Result<void>> leave(Ipv4Address group) = 0;
};

/// Frames of TCP connections with this local port are counted as control traffic in the log of their core (log.hpp) from now on. Up to two
/// ports. Errors: `invalid` (0), `full`.
[[nodiscard]] Result<void> count_as_control(std::uint16_t port);

/// Starts a stack on every core that has a queue pair, waits for link and address. Both are waited for as long as it takes, said on the
/// console every 10 s; other events run meanwhile. Called on core 0, once for a device. Errors: `out_of_memory`, `invalid`.
[[nodiscard]] task<Result<Network*>> up(NetDevice& device, AddressSetting setting);

}  // namespace neap::net
