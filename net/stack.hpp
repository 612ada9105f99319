// SPDX-License-Identifier: BSL-1.0
// One core's stack: lwIP between a queue pair of the card and this core's connections.
//
// lwIP thinks of one machine with one interface; here there is one of it a core, and all of them are one machine to the outside. What has
// no ports (ARP, fragments) or belongs to the machine (DHCP) is the first core's: the others pass it on, and it publishes to them what it
// learns. Everything that connections ask for during an event is done once, at its end: so segments are full, acknowledgements ride on
// data, and no handler ever runs inside lwIP. Internal to net/.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "kernel/counter.hpp"
#include "kernel/events.hpp"
#include "kernel/net_device.hpp"
#include "kernel/timer.hpp"
#include "lwip/netif.h"
#include "lwip/pbuf.h"
#include "net/connection_state.hpp"
#include "net/groups.hpp"
#include "net/intrusive_list.hpp"
#include "net/lwip/lwip_hooks.h"
#include "net/network.hpp"
#include "net/segment_joiner.hpp"
#include "net/stack_memory.hpp"

struct memp_per_core;
struct stats_;
struct tcp_pcb;
struct udp_pcb;

namespace neap::net {

class Stack;

/// The stacks of one device, by core. They run on `cores` cores from `first` on, `first` being the one that owns DHCP, ARP and reassembly.
/// (A program has one, from core 0; a test may put two machines into one process.)
struct StackGroup {
  NetDevice& device;
  unsigned first = 0;
  unsigned cores = 0;
  std::atomic<std::uint32_t> address{0};          ///< host byte order; 0: none
  std::atomic<std::uint32_t> netmask{0};          ///< the same
  std::unique_ptr<std::atomic<Stack*>[]> stacks;  ///< by core - first
  Groups groups;

  [[nodiscard]] Stack* stack(unsigned core) const noexcept { return stacks[core - first].load(std::memory_order_acquire); }
};

struct Addresses {
  Ipv4Address address, netmask, gateway;
  friend bool operator==(const Addresses&, const Addresses&) = default;
};

/// Why and when a stack wakes its core (stack_timers.cpp). Milliseconds of the boot clock; `never` when nobody needs it.
struct StackTimes {
  static constexpr std::uint64_t never = ~std::uint64_t{0};
  std::uint64_t tcp = never;         ///< 50 ms while `tcp_ticking`; else when an idle connection or TIME-WAIT is next looked at
  std::uint64_t tcp_counted = 0;     ///< up to when lwIP's ticks have counted
  bool tcp_ticking = false;          ///< a connection has something pending
  std::uint64_t arp = never;         ///< 1 s while a request waits for its answer
  std::uint64_t arp_last = 0;        ///< up to when the table has aged
  std::uint64_t reassembly = never;  ///< 1 s for 16 s after a fragment
  std::uint64_t reassembly_until = 0;
  std::uint64_t groups = never;       ///< 100 ms while a report of a multicast group waits for its moment
  std::uint64_t dhcp_fine = never;    ///< 500 ms while a request waits for its answer
  std::uint64_t dhcp_coarse = never;  ///< when a lease is to be renewed, or is over
  std::uint64_t dhcp_counted = 0;     ///< up to when its seconds were counted
  std::uint8_t dhcp_state = 0;        ///< lwIP's, at the end of the last event
};

class Stack final : public FrameReceiver {
 public:
  /// Card buffers that may be held (by handlers, or out of order) before what is retained is copied: the card must never run dry because a
  /// peer or an application is slow. A connection that retains nothing so far gets up to `held_buffers_hard_max` all the same.
  static constexpr unsigned held_buffers_max = 128;
  static constexpr unsigned held_buffers_hard_max = 512;
  /// Pieces of a frame, whatever the card takes.
  static constexpr unsigned pieces_max = SegmentJoiner::pieces_max;

  /// On its own core.
  Stack(StackGroup& group, unsigned core);
  Stack(const Stack&) = delete;
  Stack& operator=(const Stack&) = delete;
  ~Stack() override;

  /// This core's; null if it has none.
  [[nodiscard]] static Stack* here() noexcept { return this_cores_; }

  [[nodiscard]] bool primary() const noexcept { return core_ == group_.first; }
  [[nodiscard]] unsigned core() const noexcept { return core_; }
  [[nodiscard]] NetDevice& device() const noexcept { return group_.device; }
  [[nodiscard]] netif& interface() noexcept { return netif_; }
  [[nodiscard]] CountersOf<Counter>& counters() noexcept { return counters_; }
  [[nodiscard]] Waits waits() const noexcept;
  /// Any core. Not while the network is taken down.
  [[nodiscard]] static Counters counters_of(unsigned core) noexcept;

  void set_addresses(const Addresses& addresses) noexcept;
  [[nodiscard]] Addresses addresses() const noexcept;
  /// Primary only. False: no memory.
  [[nodiscard]] bool start_dhcp() noexcept;

  // FrameReceiver
  void receive(std::span<const ReceivedFrame> frames) noexcept override;
  void transmitted(std::span<void* const> tokens) noexcept override;
  void transmit_room() noexcept override;
  void link_changed(bool up) noexcept override;

  /// Where frames go; before the first one.
  void send_by(FrameSender& sender) noexcept { sender_ = &sender; }

  // For lwIP's side.
  [[nodiscard]] err_t transmit(pbuf* frame) noexcept;
  void received_buffer_freed(ReceiveBuffer* buffer) noexcept;
  void neighbour_learned(std::uint32_t address, const MacAddress& mac, bool for_us, bool from_us) noexcept;
  /// True if it was passed on (and freed).
  bool pass_on_reassembled(pbuf* datagram) noexcept;
  void want_event_end() noexcept { end_of_event_.request(); }
  void arp_used() noexcept { arp_dirty_ = true; }
  /// To be called before lwIP is asked for anything that looks at its time: it stands still while no connection needs it. `for_tcp`: and it
  /// is to run again, since something may be pending after this event.
  void wake_clock(bool for_tcp) noexcept {
    if (!times_.tcp_ticking) end_pause(for_tcp);
  }
  /// The same for a lease, before anything that may change it.
  void wake_lease_clock() noexcept;

  // Memory (stack_memory.hpp).
  /// A connection, or the datagrams of this core, hold `now` bytes instead of `before`.
  void charge(std::size_t before, std::size_t now) noexcept;
  /// True if the core is short of memory and the connection is over its share.
  [[nodiscard]] bool refuses(const ConnectionState& connection) const noexcept;
  [[nodiscard]] bool memory_short() const noexcept { return neap_lwip_memory_short != 0; }
  /// What is to be retained is to be copied. `retains`: its connection retains more already.
  [[nodiscard]] bool card_buffers_short(bool retains) const noexcept {
    return held_buffers_ > (retains ? held_buffers_max : held_buffers_hard_max);
  }
  /// `chain` with the `header_bytes` in front of its payload, in memory of its size and as one pbuf; null without memory. `chain` stays.
  [[nodiscard]] pbuf* copy_of(const pbuf& chain, const void* header = nullptr, std::uint16_t header_bytes = 0) noexcept;
  /// What gives back a received buffer that lies in memory of its own, not in the card's pool.
  static void free_heap_buffer(ReceiveBuffer* buffer) noexcept;
  /// Of a received buffer in whole.
  [[nodiscard]] static std::size_t memory_of(const ReceiveBuffer& buffer) noexcept {
    return buffer.return_to == &free_heap_buffer ? memory::heap_bytes(sizeof(ReceiveBuffer) + buffer.bytes) : memory::card_buffer_bytes;
  }
  void datagram_held(std::size_t bytes) noexcept { charge(datagram_bytes_, datagram_bytes_ + bytes), datagram_bytes_ += bytes; }
  void datagram_released(std::size_t bytes) noexcept { charge(datagram_bytes_, datagram_bytes_ - bytes), datagram_bytes_ -= bytes; }
  /// Another first limit than the core's memory gives (tests).
  void set_memory_limit(std::size_t bytes) noexcept { memory_limit_bytes_ = bytes; }

  // Half-open connections (stack_cookies.cpp).
  void count_half_open(int change) noexcept { counters_.half_open.add(static_cast<std::uint64_t>(std::int64_t{change})); }

  // For connections (connection.cpp).
  void mark_dirty(ConnectionState& connection) noexcept {
    dirty_.push_back(connection);
    end_of_event_.request();
  }
  void mark_blocked(ConnectionState& connection) noexcept { blocked_.push_back(connection); }
  void mark_gone(ConnectionState& connection) noexcept;
  void add(ConnectionState& connection) noexcept;
  void forget(ConnectionState& connection) noexcept;

  // The end, which only tests want: reset every connection and end the listeners, wait for the handlers' last calls; then silence, and wait
  // for the card to give back what it holds.
  void abort_all() noexcept;
  void fall_silent() noexcept;
  [[nodiscard]] unsigned frames_in_flight() const noexcept { return frames_in_flight_; }
  [[nodiscard]] std::size_t connections() const noexcept { return counters_.connections_open.value(); }

  [[nodiscard]] Result<void> listen(std::uint16_t port, const std::function<std::unique_ptr<ConnectionHandler>(Connection&)>& acceptor);
  void stop_listening(std::uint16_t port) noexcept;

  // Datagrams (datagrams.cpp).
  [[nodiscard]] Result<void> receive_datagrams(std::uint16_t port, const DatagramReceiver& receiver);
  void end_datagrams(std::uint16_t port) noexcept;
  [[nodiscard]] Result<void> send_datagram(std::uint16_t from_port, Endpoint to, std::span<const std::byte> bytes) noexcept;
  // Groups (groups.cpp). The first two on the primary, for any core.
  [[nodiscard]] Result<void> join(Ipv4Address group, unsigned core) noexcept;
  [[nodiscard]] Result<void> leave(Ipv4Address group, unsigned core) noexcept;
  [[nodiscard]] bool wants_group(std::uint32_t group) const noexcept;

 private:
  friend struct ListenerCallbacks;
  friend struct CookieCallbacks;
  friend struct DatagramCallbacks;
  struct DatagramPort {
    DatagramReceiver receiver;
    udp_pcb* pcb = nullptr;
    DatagramPort* next = nullptr;
  };
  struct Listener {
    std::function<std::unique_ptr<ConnectionHandler>(Connection&)> acceptor;
    tcp_pcb* pcb = nullptr;
    std::uint16_t port = 0;
    std::uint64_t cookie_sent_ms = 0;  ///< the last one; 0: none yet
    std::uint64_t overflow_ms = 0;     ///< when the backlog was full last; 0: never
    Listener* next = nullptr;
  };
  /// What was published of a neighbour (stack_neighbours.cpp).
  struct PublishedNeighbour {
    std::uint32_t address = 0;
    MacAddress mac{};
    std::uint64_t at_ms = 0;
  };

  [[nodiscard]] static ReceiveBuffer* allocate_heap_buffer(std::size_t bytes) noexcept;
  void evict() noexcept;
  void note_asked(const pbuf& arp) noexcept;
  /// True if this core sent an ARP request for the address, and no answer was published since. Any core.
  [[nodiscard]] bool take_asked(std::uint32_t address) noexcept;
  /// False: the other cores know it, or have been told of too many in this second.
  [[nodiscard]] bool worth_publishing(std::uint32_t address, const MacAddress& mac) noexcept;
  void take_in(ReceiveBuffer* frame, ReceiveInfo info) noexcept;
  void input(ReceiveBuffer* frame, ReceiveInfo info) noexcept;
  static void release_chain(ReceiveBuffer* frame) noexcept;
  [[nodiscard]] pbuf* wrap(ReceiveBuffer* frame) noexcept;
  /// A copy of a frame in memory of its own, in the shape of a card's buffer; null at the bound or without memory.
  [[nodiscard]] static ReceiveBuffer* copy_to_heap(const ReceiveBuffer* frame, std::size_t bytes) noexcept;
  /// A reassembled datagram as one frame in memory of its own; null without memory.
  [[nodiscard]] ReceiveBuffer* frame_of(pbuf* datagram) const noexcept;
  void pass_on(unsigned core, ReceiveBuffer* copy, ReceiveInfo info) noexcept;
  /// Passes a frame to a group on to the cores that joined it; returns whether this one has (otherwise the frame is released).
  [[nodiscard]] bool sort_multicast(ReceiveBuffer* frame, std::size_t bytes, std::uint32_t destination, ReceiveInfo info) noexcept;
  /// A report waits for its moment.
  [[nodiscard]] bool reports_wait() noexcept;
  /// To the card, which holds `held` then. ERR_MEM: no room; ERR_IF: never. Counted.
  [[nodiscard]] err_t give(TransmitPieces pieces, TransmitOffload offload, pbuf* held, std::uint32_t bytes) noexcept;
  /// Gives what `joiner_` holds to the card. False: there was no room, and it still waits.
  bool send_held() noexcept;
  void end_of_event() noexcept;
  void finish_gone() noexcept;
  void publish_addresses() noexcept;
  void update_timers() noexcept;
  void timer_fired() noexcept;
  void make_up_ticks(std::uint64_t now) noexcept;
  void end_pause(bool for_tcp) noexcept;
  void tcp_tick(std::uint64_t now) noexcept;
  void age_neighbours(std::uint64_t now) noexcept;
  void count_lease_seconds(std::uint64_t now) noexcept;

  [[nodiscard]] Counters snapshot() const noexcept;

  static constinit thread_local Stack* this_cores_;

  StackGroup& group_;
  const unsigned core_;
  const NetDeviceLimits limits_;
  FrameSender* sender_ = nullptr;
  SegmentJoiner joiner_{limits_};
  const std::atomic<policy::Segmentation>& segmentation_;
  netif netif_{};
  std::uint16_t checksum_base_ = 0;
  unsigned held_buffers_ = 0;
  unsigned frames_in_flight_ = 0;  ///< the card holds them
  bool silent_ = false;
  std::size_t memory_limit_bytes_ = memory::core_limit_bytes();
  std::size_t datagram_bytes_ = 0;  ///< held by receivers of datagrams
  unsigned heavy_connections_ = 0;  ///< those above what each is guaranteed
  std::array<PublishedNeighbour, 256> published_neighbours_{};
  std::array<std::atomic<std::uint32_t>, 32> asked_neighbours_{};  ///< addresses in ARP requests of this core, until they are published
  unsigned asked_count_ = 0;
  std::uint64_t publishing_second_ = 0;
  unsigned published_in_second_ = 0;
  CountersOf<Counter> counters_;
  // lwIP's, of this core. Kept because other cores cannot name them.
  const stats_* const lwip_counters_;
  const struct ::memp_per_core* const lwip_pools_;
  EventEndHook end_of_event_;
  IntrusiveList<ConnectionState, &ConnectionState::dirty_link> dirty_;      ///< something to do at the end of this event
  IntrusiveList<ConnectionState, &ConnectionState::blocked_link> blocked_;  ///< the card or the allocator had no room; oldest first
  IntrusiveList<ConnectionState, &ConnectionState::dirty_link> gone_;       ///< to hear `closed` in the next event
  IntrusiveList<ConnectionState, &ConnectionState::all_link> all_;
  bool retry_blocked_ = false;
  struct FinishNode : RemoteNode {
    Stack* stack = nullptr;
    bool queued = false;
  } finish_;
  Listener* listeners_ = nullptr;
  DatagramPort* datagram_ports_ = nullptr;

  Timer timer_;
  std::uint64_t timer_due_ms_ = StackTimes::never;
  StackTimes times_;
  bool arp_dirty_ = false;
  bool groups_dirty_ = false;
  Addresses published_{};
};

}  // namespace neap::net
