// SPDX-License-Identifier: BSL-1.0
// The network interface for applications.
//
// Every core has its own complete stack. A connection stays on the core that the card's RSS selected for its first frame. A server
// registers one acceptor for a port, and each core then serves its own connections without communication with other cores.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "kernel/arguments.hpp"
#include "kernel/net_device.hpp"
#include "kernel/task.hpp"
#include "net/address.hpp"
#include "net/buffer.hpp"

namespace neap::net {

/// How the machine gets its IPv6 addresses. Unless the mode is `off`, it has a link-local address.
struct Ipv6Setting {
  enum class Mode : std::uint8_t {
    off,
    automatic,  ///< by router advertisements (RFC 4862)
    fixed,      ///< router advertisements are ignored
  };
  Mode mode = Mode::off;
  Address address, gateway;  ///< of `fixed`; without a gateway, only the link's addresses are reached
  unsigned prefix_bits = 0;
};

/// How the machine gets its addresses (for IPv4 static, or by DHCP, RFC 2131), and the size of its packets.
struct AddressSetting {
  /// 576: RFC 791, 3.1, every host accepts such packets. 9710: Linux's limit for an 82599, whose frames then have 9,728 bytes.
  static constexpr std::uint16_t mtu_least = 576, mtu_usual = 1500, mtu_most = 9710;

  bool dhcp = true;
  Ipv4Address address, netmask, gateway;
  Ipv6Setting ipv6{};
  bool ipv4 = true;               ///< false: IPv6 only
  std::uint16_t mtu = mtu_usual;  ///< the largest IP packet of the interface, in bytes
  /// Reads `ip=dhcp`, `ip=A.B.C.D/LEN[,GATEWAY]` or `ip=off`, and `ip6=auto`, `ip6=off` or `ip6=ADDRESS/LEN[,GATEWAY]`, from the command
  /// line. Without `ip6=`, the mode is `automatic`. Also reads `mtu=BYTES`. IPv6 is off below 1280 bytes (RFC 8200, 5).
  static AddressSetting from(Arguments& arguments);
  /// The longest Ethernet frame of a packet, without FCS. The device MUST be opened with this length or a larger one.
  [[nodiscard]] std::uint32_t frame_bytes_max() const noexcept;
};

class Connection;

/// The callbacks of one connection. The `Acceptor` makes the handler; the stack destroys the handler when the connection is gone. All calls
/// are made on the connection's core, each inside an event.
///
/// A handler MAY call its own and other connections. A handler's requests take effect at the end of the event, so none of its callbacks
/// runs inside another. A `bad_alloc` that a callback throws resets the connection and is counted. Any other exception panics.
class ConnectionHandler {
 public:
  virtual ~ConnectionHandler() = default;
  /// Bytes arrived, in order. The handler owns the buffer. The receive window opens when buffers are released, so a handler that keeps
  /// buffers applies back-pressure to its peer.
  virtual void received(Buffer data) = 0;
  /// Called at the end of an event in which the peer acknowledged bytes, if there is room again after a `send` that returned `full`, or if
  /// all sent bytes are acknowledged then.
  virtual void writable() {}
  /// The peer has closed its side. By default, the handler closes this side when all bytes were sent.
  virtual void peer_closed();
  /// The last call: the connection has ended (in order, by a reset or by a time-out). `connection()` MUST NOT be used any more, except for
  /// `local()` and `remote()` in this call.
  virtual void closed() {}
  [[nodiscard]] Connection& connection() noexcept { return *connection_; }

 private:
  friend class Connection;
  Connection* connection_ = nullptr;
};

class Connection {
 public:
  /// The maximum sum of queued and unacknowledged bytes. For a transfer whose congestion window needs more, the maximum is twice the
  /// window, up to the setting `tcp_send`.
  static constexpr std::size_t send_queue_bytes_max = 2 * 1024 * 1024;
  /// Pieces up to this size are copied, which is cheaper than a reference. Larger pieces are sent without a copy, unless all queued bytes
  /// fit one frame: that frame has a copy of them.
  static constexpr std::size_t copy_bytes_max = 256;

  /// Queues bytes, which are sent together at the end of the event. On an error, `data` is unchanged and no byte is queued. Errors: `full`
  /// (`data` is longer than `send_space_bytes()`; `writable` follows), `closed`. Bytes sent by reference are released when the peer has
  /// acknowledged them and the card no longer reads them.
  [[nodiscard]] Result<void> send(Buffer&& data);
  /// As `send`, for a copy of `bytes`, which MUST NOT be empty. If all queued bytes are those of one call, the copy is written into the
  /// frame that is sent. Returns false, with no byte queued, if there are more bytes than `send_copy_bytes_max`, no memory, or an error of
  /// `send`.
  [[nodiscard]] bool send_copy(std::span<const std::byte> bytes) noexcept;
  static constexpr std::size_t send_copy_bytes_max = 1460;  ///< the payload of a frame
  /// Returns room for `send_copy_bytes_max` bytes in a frame that `send_frame` sends, so that a reply is not copied. The caller MAY write
  /// there until its callback returns, or until it calls `frame` or `send_frame` of any connection. The room is empty if this connection
  /// has bytes that are queued or not acknowledged, in every case that is not ordinary, and without memory. Other functions work then.
  [[nodiscard]] std::span<std::byte> frame() noexcept;
  /// Sends the first `bytes` bytes of `frame()`, at least one, at the end of the event. MUST follow a call of `frame` of this connection
  /// whose result was not empty, with no other call of this connection in between.
  void send_frame(std::size_t bytes) noexcept;
  [[nodiscard]] std::size_t send_space_bytes() const noexcept;
  /// Returns the memory held for received bytes (not released, or out of order) and for sent bytes (queued, or not yet acknowledged). Each
  /// buffer counts with its whole size, including headers and rounding. Bytes sent without a copy count too.
  [[nodiscard]] std::size_t held_bytes() const noexcept;
  /// Returns the number of bytes queued or sent, and not yet acknowledged.
  [[nodiscard]] std::size_t unacknowledged_bytes() const noexcept;
  /// Closes this side when all queued bytes were sent. Receiving continues. `closed` follows when the peer has closed too.
  void end_sending();
  /// Closes in order when all queued bytes were sent; received bytes are discarded. `closed` follows when the peer has closed too. The
  /// connection is reset after 60 s without an acknowledgement from the peer, and in any case 10 min after this call.
  void close();
  /// Resets the connection; `closed` follows in a separate event.
  void abort();
  /// With Nagle's algorithm (RFC 9293, 3.7.4), a segment that is not full waits while earlier bytes are not acknowledged. Off by default.
  void set_nagle(bool on);
  /// Without delayed acknowledgements, each segment with payload is acknowledged at the end of its event. On by default.
  void set_delayed_acknowledgements(bool on);
  [[nodiscard]] Endpoint local() const noexcept;
  [[nodiscard]] Endpoint remote() const noexcept;
  /// Returns the time since the peer's last segment, of any kind, in steps of 100 ms. 0 if the connection has ended.
  [[nodiscard]] std::chrono::milliseconds silence() const noexcept;

 protected:
  Connection() = default;
  ~Connection() = default;
  void bind(ConnectionHandler& handler) noexcept { handler.connection_ = this; }
};

/// Makes the handler of a new connection. If the result is null, the connection is reset and counted as refused. The acceptor of a listener
/// MAY send a short text by `send_copy` and close the connection.
using Acceptor = std::move_only_function<std::unique_ptr<ConnectionHandler>(Connection&)>;

/// The counters of one core's stack since it started. Frames and bytes are counted as on the wire, without FCS. `Count` is an integer, or a
/// counter that any core may read while it changes (counter.hpp).
template <class Count>
struct CountersOf {
  Count frames_received{}, bytes_received{};
  Count frames_sent{}, bytes_sent{};
  Count dropped_malformed{};  ///< too short, or not IPv4 or ARP
  Count dropped_checksum{};   ///< wrong checksum, found by the card or by lwIP
  Count dropped_protocol{};   ///< unknown address, protocol or port
  Count dropped_memory{};     ///< no memory: refused by a limit or by the allocator
  Count receive_copied{};     ///< payloads copied because too many of the card's buffers were held
  Count receive_held_max{};   ///< the largest number of card buffers held at once
  Count transmit_full{};      ///< frames refused by a full ring; they are retried
  Count transmit_failed{};    ///< frames refused by the card, or because there was no link
  Count transmit_copied{};    ///< frames copied because they had more pieces than the card accepts
  // TSO. `frames_sent` and `bytes_sent` count every segment as a frame.
  Count joined_frames{};         ///< frames that the card segments
  Count joined_segments{};       ///< segments in `joined_frames`
  Count joined_copied_bytes{};   ///< bytes copied by `tso=copy`
  Count joined_no_memory{};      ///< segments sent alone because no memory was free
  Count passed_on{};             ///< frames handed over to the core that serves them
  Count pass_on_refused{};       ///< frames not handed over because that core's queue was full
  Count neighbours_published{};  ///< ARP entries published to other cores
  Count neighbours_withheld{};   ///< ARP entries not published: known already, or over the rate limit
  Count neighbours_recycled{};   ///< ARP entries replaced by others
  Count neighbours_refused{};    ///< ARP announcements for which no entry was free
  Count unresolved_dropped{};    ///< packets dropped while waiting for a neighbour's address
  Count address_conflicts{};     ///< ARP packets of another machine with this machine's address
  // IPv6 (ipv6/engine.hpp). All but the last one belong to the first core.
  Count ipv6_malformed{};            ///< packets or extension headers that RFC 8200 refuses
  Count ipv6_discovery_refused{};    ///< neighbour discovery messages that RFC 4861 refuses, such as from another network
  Count ipv6_conflicts{};            ///< messages of another machine with this machine's address
  Count ipv6_neighbours_refused{};   ///< neighbours for which a limit left no entry
  Count ipv6_neighbours_recycled{};  ///< neighbours replaced by others
  Count ipv6_waiting_dropped{};      ///< packets dropped while they waited for a neighbour's address
  Count ipv6_routers_refused{};      ///< announced routers and prefixes beyond the lists' sizes, and announcements over the rate limit
  Count ipv6_redirects_ignored{};
  Count ipv6_fragments_refused{};  ///< fragments beyond a bound, malformed, or overlapping
  Count ipv6_fragments_expired{};  ///< datagrams that did not become whole
  Count ipv6_mtu_reduced{};        ///< reports of a smaller path MTU that were believed
  Count ipv6_mtu_refused{};        ///< the same, not believed
  Count ipv6_errors_sent{};        ///< ICMPv6 errors
  Count ipv6_errors_limited{};     ///< ICMPv6 errors and echo replies to groups that the rate limit held back
  Count ipv6_no_route{};
  Count ipv6_received{};  ///< frames of IPv6
  Count segments_received{}, segments_sent{}, retransmissions{};
  Count connections_open{}, connections_accepted{}, connections_made{};
  Count connections_refused{};     ///< refused by the acceptor, or for lack of memory
  Count connections_reset{};       ///< connections ended by a reset or a time-out
  Count segments_refused{};        ///< segments of open connections with an unacceptable number, or an unexpected reset or SYN
  Count options_malformed{};       ///< segments whose options have an illegal length
  Count icmp_errors{};             ///< ICMP errors that quote a segment of a connection
  Count icmp_errors_limited{};     ///< ICMP errors whose connection's core a limit kept the stack from searching
  Count challenge_acks{};          ///< answers to refused segments (RFC 5961), at most two a second for each connection
  Count challenge_acks_limited{};  ///< such answers that a limit has suppressed
  Count resets_limited{};          ///< resets to segments without a connection that a limit has suppressed
  Count time_waits_replaced{};     ///< connections whose TIME-WAIT ended early because there were too many
  Count dhcp_renewals{};           ///< leases that the server extended
  Count dhcp_naks{};               ///< NAKs: a server refused or withdrew an address
  Count dhcp_refused{};            ///< invalid DHCP offers and acknowledgements, dropped
  // Memory that connections hold (stack_memory.hpp).
  Count held_bytes{};            ///< held now
  Count held_bytes_max{};        ///< the largest amount held at once
  Count payload_refused{};       ///< segments whose payload was dropped because their connection held more than its share
  Count out_of_order_dropped{};  ///< connections whose out-of-order segments were dropped to free memory
  Count connections_evicted{};   ///< connections reset because they held the most memory
  // Floods of SYNs (listeners.cpp).
  Count half_open{};              ///< connections in SYN-RECEIVED now
  Count syns_refused{};           ///< SYNs, or ACKs with a valid cookie, refused because no connection was free
  Count cookies_sent{};           ///< SYNs answered by a cookie because the backlog was full
  Count cookies_accepted{};       ///< connections made from a cookie
  Count cookies_rejected{};       ///< ACKs without a valid cookie while cookies were in use
  Count handler_out_of_memory{};  ///< connections reset because their handler threw `bad_alloc`
  // The part of `frames_…` and `bytes_…` that belongs to control's ports.
  Count control_frames_received{}, control_bytes_received{};
  Count control_frames_sent{}, control_bytes_sent{};
  Count discarded_bytes{};  ///< bytes received after this side was closed
};
using Counters = CountersOf<std::uint64_t>;

/// Returns the counters of `core`, all zero if it has no stack. MAY be called on any core, and wakes no core.
[[nodiscard]] Counters counters(unsigned core) noexcept;

/// The time until this core's stack wakes for each purpose, in milliseconds, rounded up; 0: it does not wake, or there is no stack.
struct Waits {
  std::uint64_t tcp_ms = 0;          ///< a connection has work pending
  std::uint64_t connections_ms = 0;  ///< idle connections: keep-alive, TIME-WAIT
  std::uint64_t neighbours_ms = 0;   ///< an unanswered ARP request
  std::uint64_t reassembly_ms = 0;   ///< a datagram with missing fragments
  std::uint64_t groups_ms = 0;       ///< a delayed report of a multicast group
  std::uint64_t dhcp_ms = 0;         ///< an unanswered DHCP request, or the back-off after a refusal
  std::uint64_t lease_ms = 0;        ///< renewal of the address
  std::uint64_t ipv6_ms = 0;         ///< IPv6: a neighbour or router asked, an address checked, a report delayed, a lifetime's end
};
[[nodiscard]] Waits waits() noexcept;

/// A datagram received at a UDP port.
struct Datagram {
  Endpoint from;
  Endpoint to;  ///< the machine's address, a group's, or the network's broadcast address
  Buffer data;  ///< may be empty
};
/// Called on the core to which the card delivered the datagram, or on each core that joined the datagram's group. A `bad_alloc` that the
/// receiver throws is counted. Any other exception panics.
using DatagramReceiver = std::function<void(Datagram)>;

class Network {
 public:
  virtual ~Network() = default;
  /// Returns 0.0.0.0 if the machine has no address, for example after the lease expired.
  [[nodiscard]] virtual Ipv4Address address() const noexcept = 0;
  [[nodiscard]] virtual Ipv4Address netmask() const noexcept = 0;
  /// Returns the IPv6 addresses that the machine can use now. MAY be called on any core.
  [[nodiscard]] virtual std::vector<Address> ipv6_addresses() const { return {}; }
  /// The address that an application shows to its operator: that of IPv4, or without one the last of IPv6, which is not link-local if the
  /// machine has another one.
  [[nodiscard]] Address shown_address() const {
    const std::vector<Address> ipv6 = address().value == 0 ? ipv6_addresses() : std::vector<Address>();
    return ipv6.empty() ? Address(address()) : ipv6.back();
  }
  /// The largest IP packet of the interface, in bytes.
  [[nodiscard]] virtual std::uint16_t mtu() const noexcept { return AddressSetting::mtu_usual; }
  /// Returns the number of cores with a stack. These are the cores 0 to `cores() - 1`.
  [[nodiscard]] virtual unsigned cores() const noexcept = 0;
  [[nodiscard]] virtual NetDevice& device() const noexcept = 0;
  /// Serves `port` on every core with a receive queue. `acceptor` is called on each connection's core and MUST be safe for concurrent
  /// calls. Errors: `invalid` (the port is in use), `out_of_memory`.
  [[nodiscard]] virtual task<Result<void>> listen(std::uint16_t port,
                                                  std::function<std::unique_ptr<ConnectionHandler>(Connection&)> acceptor) = 0;
  /// Opens a connection from this core, which MUST have a stack. Errors: `invalid` (no address or route), `timeout` (no answer within 10
  /// s), `closed` (refused), `full` (no free port or connection), `unsupported` (no stack on this core), `out_of_memory`.
  [[nodiscard]] virtual task<Result<void>> connect(Endpoint remote, Acceptor acceptor) = 0;

  /// Passes datagrams at UDP port `port` to `receiver`, on every core. `receiver` MUST be safe for concurrent calls. Errors: `invalid` (the
  /// port is in use), `out_of_memory`.
  [[nodiscard]] virtual task<Result<void>> receive_datagrams(std::uint16_t port, DatagramReceiver receiver) = 0;
  /// Sends a copy of `bytes` from this core, at the end of the event, in fragments if the datagram is longer than a frame. UDP does not
  /// confirm delivery. A datagram to a group stays on the local network. `to` MAY be an IPv4 or IPv6 address. Errors: `invalid` (no
  /// receiver at `from_port`; invalid address or size), `full`, `closed` (no link, no address), `unsupported` (no stack on this core),
  /// `out_of_memory`.
  [[nodiscard]] virtual Result<void> send_datagram(std::uint16_t from_port, Endpoint to, std::span<const std::byte> bytes) = 0;
  /// Adds this core to the group (224.0.0.0/4, or ff00::/8 with a scope beyond the interface). The core then receives the group's datagrams
  /// at its UDP ports. The machine is a member of all groups that its cores have joined, at most 256 groups of IPv4 and 64 of IPv6. After
  /// an error nothing has changed. Errors: `invalid` (not a group's address, joined already), `full`, `unsupported` (no stack on this
  /// core), `out_of_memory`.
  [[nodiscard]] virtual task<Result<void>> join(Address group) = 0;
  /// Removes this core from the group. Errors: `invalid` (not joined), `unsupported`, `out_of_memory`.
  [[nodiscard]] virtual task<Result<void>> leave(Address group) = 0;
};

/// Calls `visit` for this core's open connections at the local port `port`, in steps: a call visits the connections of some chains of the
/// hash table, at least one chain, until it has visited about `budget` of them. A pass begins with `position` 0, and each call returns the
/// position of the next one, 0 at the end of the pass. A connection that is open during the whole pass is visited exactly once. `visit` MAY
/// use the handler's connection.
[[nodiscard]] std::uint32_t visit_connections(std::uint16_t port, std::uint32_t position, unsigned budget,
                                              const std::function<void(ConnectionHandler&)>& visit);

/// From now on, frames of TCP connections with this local port count as control traffic in their core's log (log.hpp). At most two ports
/// can be set. Errors: `invalid` (0), `full`.
[[nodiscard]] Result<void> count_as_control(std::uint16_t port);

/// Starts a stack on every core that has a queue pair, then waits for the link and an address, without a time limit. The console shows the
/// wait every 10 s, and other events run meanwhile. MUST be called on core 0, once for a device. Errors: `out_of_memory`, `invalid`.
[[nodiscard]] task<Result<Network*>> up(NetDevice& device, AddressSetting setting);

}  // namespace neap::net
