// SPDX-License-Identifier: BSL-1.0
// One core's stack: TCP, and lwIP for all other protocols, between a queue pair of the card and the connections of the core.
//
// lwIP is written for one machine with one interface. Here each core has an instance of lwIP, and all instances act as one machine. The
// first core handles packets without ports (ARP, fragments) and packets for the whole machine (DHCP, IGMP). The other cores pass such
// packets on to the first core, which publishes addresses and neighbours to them. Handlers' requests are collected during an event and
// executed at its end. So segments are full, and data carries acknowledgements. Internal to net/.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "kernel/counter.hpp"
#include "kernel/events.hpp"
#include "kernel/intrusive_queue.hpp"
#include "kernel/net_device.hpp"
#include "kernel/panic.hpp"
#include "kernel/policy.hpp"
#include "kernel/timer.hpp"
#include "lwip/netif.h"
#include "lwip/pbuf.h"
#include "net/bare_segment.hpp"
#include "net/connection_key.hpp"
#include "net/connection_state.hpp"
#include "net/internet_checksum.hpp"
#include "net/listeners.hpp"
#include "net/lwip/lwip_hooks.h"
#include "net/network.hpp"
#include "net/segment_error.hpp"
#include "net/stack_group.hpp"
#include "net/stack_ipv6.hpp"
#include "net/stack_memory.hpp"
#include "net/stack_times.hpp"
#include "net/tcp/answer_limit.hpp"
#include "net/tcp/connection_table.hpp"
#include "net/tcp/path_mtu.hpp"
#include "net/tcp/time_wait.hpp"
#include "net/tcp/timer_heap.hpp"

struct memp_per_core;
struct stats_;
struct udp_pcb;

namespace neap::net {

class Stack;
struct FrameHeaders;
struct OutgoingSegment;

class Stack final : public FrameReceiver {
 public:
  /// The number of card buffers that handlers and out-of-order queues may hold. Above it, retained payload is copied, so that a slow peer
  /// or application cannot empty the card's ring. A connection that retains nothing yet may use buffers up to `held_buffers_hard_max`.
  static constexpr unsigned held_buffers_max = 128;
  static constexpr unsigned held_buffers_hard_max = 512;
  /// The maximum number of pieces in a frame; the card's own limit may be lower.
  static constexpr unsigned pieces_max = 40;

  /// MUST be called on `core`.
  Stack(StackGroup& group, unsigned core);
  Stack& operator=(Stack&&) = delete;
  ~Stack() override;

  /// Returns the stack of the calling core; null if the core has none.
  [[nodiscard]] static Stack* here() noexcept { return current_; }
  [[nodiscard]] bool primary() const noexcept { return core_ == group_.first; }
  [[nodiscard]] unsigned core() const noexcept { return core_; }
  [[nodiscard]] NetDevice& device() const noexcept { return group_.device; }
  [[nodiscard]] std::uint16_t mtu() const noexcept { return group_.mtu; }  ///< the interface's largest IP packet, in bytes
  [[nodiscard]] netif& interface() noexcept { return netif_; }
  [[nodiscard]] StackIpv6& ipv6() noexcept { return ipv6_; }
  [[nodiscard]] CountersOf<Counter>& counters() noexcept { return counters_; }
  [[nodiscard]] Waits waits() noexcept;
  /// MAY be called on any core, but MUST NOT be called while the network is taken down.
  [[nodiscard]] static Counters counters_of(unsigned core) noexcept;

  void set_addresses(const Addresses& addresses) noexcept;
  [[nodiscard]] Addresses addresses() const noexcept;
  /// MUST be called on the first core. Returns false if memory is short.
  [[nodiscard]] bool start_dhcp() noexcept;

  // FrameReceiver
  void receive(std::span<const ReceivedFrame> frames) noexcept override;
  void transmitted(std::span<void* const> tokens) noexcept override;
  void transmit_room() noexcept override;
  void link_changed(bool up) noexcept override;

  /// Sets the sender of frames. MUST be called once, before the first frame.
  void send_by(FrameSender& sender) noexcept {
    require(sender_ == nullptr, "a stack has one sender", core_);
    sender_ = &sender;
  }

  // Called by lwIP's callbacks.
  [[nodiscard]] err_t transmit(pbuf* frame) noexcept;
  void received_buffer_freed(ReceiveBuffer* buffer) noexcept;
  void neighbour_learned(std::uint32_t address, const MacAddress& mac, bool for_us, bool from_us) noexcept;
  /// Returns true if it has passed the datagram on to another core and freed it.
  bool pass_on_reassembled(pbuf* datagram) noexcept;
  /// Also requests the checks of `check_at_event_end`. MUST be called if a time-out, an address or memory may have changed.
  void want_checks() noexcept {
    checks_due_ = true;
    end_of_event_.request();
  }
  /// Brings the lease's time up to date. MUST be called before any function that may change the lease.
  void wake_lease_clock() noexcept;

  // Memory (stack_memory.hpp).
  /// Updates the core's count of held memory: a connection, or the core's received datagrams, hold `now` bytes instead of `before`.
  void charge(std::size_t before, std::size_t now) noexcept;
  /// True if the core is short of memory and the connection holds more than its share of the core's limit.
  [[nodiscard]] bool refuses(const ConnectionState& connection) const noexcept;
  [[nodiscard]] bool memory_short() const noexcept { return memory_short_; }
  /// False if neither memory nor card buffers are short, for payload in `more` buffers.
  [[nodiscard]] bool may_be_short(unsigned more) const noexcept { return memory_short() || held_buffers_ + more > held_buffers_max; }
  /// The number of buffers for which `may_be_short` is false.
  [[nodiscard]] unsigned spare_buffers() const noexcept {
    return memory_short() || held_buffers_ > held_buffers_max ? 0 : held_buffers_max - held_buffers_;
  }
  /// True if payload MUST be copied before it is retained. `retains` is true if the payload's connection already retains payload.
  /// `more`: the number of buffers of the payload that are not counted yet.
  [[nodiscard]] bool card_buffers_short(bool retains, unsigned more = 0) const noexcept {
    return held_buffers_ + more > (retains ? held_buffers_max : held_buffers_hard_max);
  }
  /// Returns a copy of `chain` as one pbuf on the heap, without unused room; null without memory. Does not free `chain`.
  [[nodiscard]] pbuf* copy_of(const pbuf& chain) noexcept;
  /// Returns a copy of `data` in a receive buffer on the heap, which counts as held; null without memory.
  [[nodiscard]] ReceiveBuffer* copy_of(const Buffer& data) noexcept;
  /// Releases a receive buffer that was allocated on the heap, not in the card's pool.
  static void free_heap_buffer(ReceiveBuffer* buffer) noexcept;
  /// Returns the number of bytes of memory that a receive buffer occupies.
  [[nodiscard]] static std::size_t memory_of(const ReceiveBuffer& buffer) noexcept {
    return buffer.return_to == &free_heap_buffer ? memory::heap_bytes(sizeof(ReceiveBuffer) + buffer.bytes) : memory::card_buffer_bytes;
  }
  void datagram_held(std::size_t bytes) noexcept { charge(datagram_bytes_, datagram_bytes_ + bytes), datagram_bytes_ += bytes; }
  void datagram_released(std::size_t bytes) noexcept {
    require(datagram_bytes_ >= bytes, "no more bytes of datagrams are released than are held", bytes);
    charge(datagram_bytes_, datagram_bytes_ - bytes), datagram_bytes_ -= bytes;
  }
  /// With false, `ConnectionState::input` handles all segments (for tests that compare it with the short path).
  void use_short_path(bool use) noexcept { short_path_ = use; }
  /// Sets the limit of the core's held memory, above which payload is refused (for tests).
  void set_memory_limit(std::size_t bytes) noexcept { memory_limit_bytes_ = bytes, checks_due_ = true; }

  void count_half_open(int change) noexcept {
    require(change >= 0 || counters_.half_open.value() >= static_cast<std::uint64_t>(-std::int64_t{change}),
            "no more half-open connections end than exist");
    counters_.half_open.add(static_cast<std::uint64_t>(std::int64_t{change}));
  }

  // For connections (connection.cpp).
  /// Of the frames that connections make without lwIP.
  [[nodiscard]] const CommonHeaders& common_headers() const noexcept { return common_headers_; }
  // Time. A core's events are short, so each event has one time.
  /// The boot clock in microseconds, as read in this event.
  [[nodiscard]] std::uint64_t now_us() noexcept {
    if (now_us_ == 0) [[unlikely]]
      read_clock();
    return now_us_;
  }
  /// As `now_us`, while frames are received: `receive` has read the clock.
  [[nodiscard]] std::uint64_t receipt_us() const noexcept { return now_us_; }
  /// The clock of timestamps.
  [[nodiscard]] std::uint32_t now_ms() noexcept {
    if (now_us_ == 0) [[unlikely]]
      read_clock();
    return now_ms_;
  }
  [[nodiscard]] std::uint32_t now_s() noexcept { return static_cast<std::uint32_t>(now_us() / 1'000'000); }
  /// Calls `ConnectionState::on_timer` at `due_us` at the latest. 4 instructions if an earlier call is due already.
  void arm(ConnectionState& connection, std::uint64_t due_us) noexcept {
    const tcp::TimerNode& node = connection;
    if (node.due_us != 0 && node.due_us <= due_us) [[likely]]
      return;
    arm_earlier(connection, due_us);
  }

  // Segments (stack_segments.cpp).
  [[nodiscard]] ConnectionState* find(const SegmentAddresses& key) const noexcept { return table_.find(key); }
  [[nodiscard]] ConnectionState* find(const SegmentAddresses6& key) const noexcept { return table6_.find(key); }
  /// Enumerates the connections over both versions of IP: the first one of the chain at `position`, which MUST be below `chains()`.
  [[nodiscard]] ConnectionState* first_of(std::uint32_t position) const noexcept {
    return position < table_.chains() ? table_.first_of(position) : table6_.first_of(position - table_.chains());
  }
  [[nodiscard]] std::uint32_t chains() const noexcept { return table_.chains() + table6_.chains(); }
  [[nodiscard]] tcp::AnswerLimit& challenge_limit() noexcept { return challenge_limit_; }
  [[nodiscard]] tcp::PathMtuCache& path_mtu_cache() noexcept { return path_mtu_cache_; }
  [[nodiscard]] std::size_t time_waits() const noexcept { return time_wait_.count() + time_wait6_.count(); }
  template <class Key>
  [[nodiscard]] bool is_in_time_wait(const Key& key) noexcept {
    return time_wait_of(key).contains(key, now_us());
  }
  [[nodiscard]] bool listens(std::uint16_t port) const noexcept { return find_listener(port) != nullptr; }
  /// Makes a connection, which segments do not find yet. Returns null without memory, or if the core has as many as it may have.
  [[nodiscard]] ConnectionState* make_connection(const ConnectionKey& key, bool control) noexcept;
  void insert(ConnectionState& connection) noexcept;
  /// No segment finds the connection from now on, and no timer.
  void remove(ConnectionState& connection) noexcept;
  /// Schedules the end of connections in TIME-WAIT.
  void note_time_wait() noexcept;
  void enter_time_wait(const ConnectionKey& key, const tcp::TimeWaitNumbers& numbers) noexcept;
  void send_bare(const BareSegment& segment) noexcept;
  /// The headers of segments over IPv6 with these addresses and ports. The neighbour is not resolved.
  [[nodiscard]] ConnectionIpv6 headers_of(const SegmentAddresses6& sent) noexcept;
  /// RFC 9293, 3.10.7.1.
  void answer_by_reset(const IncomingSegment& segment) noexcept;
  /// Returns false if the next hop's address is not known. `remote`: as in a packet.
  [[nodiscard]] bool find_neighbour(std::uint32_t remote, std::uint8_t (&mac)[6]) noexcept;
  void ask_for_neighbour(std::uint32_t remote) noexcept;
  [[nodiscard]] bool has_route(Ipv4Address remote) const noexcept { return next_hop_of(std::byteswap(remote.value)) != 0; }
  [[nodiscard]] bool offloads_checksums() const noexcept { return offloads_checksums_; }
  /// True if the card fills in the checksums of TCP and UDP, and leaves the headers of IP to the stack.
  [[nodiscard]] bool completes_ip_headers() const noexcept { return completes_ip_headers_; }
  /// Fills in the checksums of a frame with complete headers in its first piece.
  void fill_in_checksums(TransmitPieces pieces) noexcept;
  /// Sends a copy of a segment, perhaps when the neighbour's address is known. Returns false without memory.
  [[nodiscard]] bool send_copy_of(OutgoingSegment& segment, bool resolved) noexcept;
  [[nodiscard]] bool send_copy_of_ipv6(OutgoingSegment& segment) noexcept;
  void count_long_segment(std::uint32_t frames) noexcept {
    counters_.joined_frames.add();
    counters_.joined_segments.add(frames);
  }
  /// Reports TX completions, before segments are sent again.
  void reap() noexcept {
    if (frames_in_flight_ != 0) sender_->reap();
  }

  void mark_dirty(ConnectionState& connection) noexcept {
    mark_dirty_at_receipt(connection);
    end_of_event_.request();
  }
  /// As `mark_dirty`, in an event whose end this stack has requested already: a reading of the clock requests it.
  [[gnu::always_inline]] void mark_dirty_at_receipt(ConnectionState& connection) noexcept {
    if (!is_queued<QueueLink>(connection)) dirty_.push_back(connection);
  }
  static void release_chain(ReceiveBuffer* frame) noexcept;
  /// Counts a receive buffer that is not released within this call.
  void hold_buffer(const ReceiveBuffer& buffer) noexcept {
    if (buffer.return_to == &free_heap_buffer) return;
    ++held_buffers_;
    const std::uint64_t held_max = counters_.receive_held_max.value();
    if (held_buffers_ > held_max) [[unlikely]]
      counters_.receive_held_max.add(held_buffers_ - held_max);
  }
  /// True if a segment may be longer than the MSS, because the card cuts it up (`tso`).
  [[nodiscard]] bool sends_long_segments() const noexcept {
    return segmentation_.load(std::memory_order_relaxed) != policy::Segmentation::off;
  }
  /// True if such a segment has its payload in one piece (`tso=copy`).
  [[nodiscard]] bool copies_long_segments() const noexcept {
    return segmentation_.load(std::memory_order_relaxed) == policy::Segmentation::copy;
  }
  /// The maximum number of pieces in a frame, its headers included.
  [[nodiscard]] unsigned pieces_limit() const noexcept { return std::min<unsigned>(pieces_max, limits_.transmit_pieces_max); }
  /// Passes a segment's frame to the card, which then has a reference to the segment. `control`: it belongs to control. Returns false if
  /// the card has no room. A frame that the card refuses for good counts as lost on the way.
  [[nodiscard]] bool send_frame(OutgoingSegment& segment, TransmitPieces pieces, std::uint32_t bytes, TransmitOffload offload,
                                bool control) noexcept {
    if (transmitting_stopped_) [[unlikely]]
      return true;
    if (completes_ip_headers_ && offload.ipv4()) [[unlikely]]
      write_ipv4_checksum(segment.frame_begin() + SegmentHeaders::ethernet_bytes);
    if (const auto taken = sender_->transmit(pieces, offload, token_of(segment)); !taken.has_value()) [[unlikely]]
      return count_refused(taken.error());
    ++segment.references;
    const FramesSent sent = frames_sent(bytes, offload);
    counters_.segments_sent.add(sent.frames);
    count_sent(sent, control);
    return true;
  }
  /// As `send_frame`, for a segment of one piece that the card does not cut up.
  [[nodiscard, gnu::always_inline]] bool send_whole_frame(OutgoingSegment& segment, TransmitOffload offload, bool control) noexcept {
    if (transmitting_stopped_) [[unlikely]]
      return true;
    const TransmitPiece piece{.data = segment.frame_begin(), .bytes = segment.headers_bytes + segment.bytes};
    if (completes_ip_headers_) [[unlikely]]
      write_ipv4_checksum(segment.frame_begin() + SegmentHeaders::ethernet_bytes);
    if (const auto taken = sender_->transmit({&piece, 1}, offload, token_of(segment)); !taken.has_value()) [[unlikely]]
      return count_refused(taken.error());
    ++segment.references;
    counters_.segments_sent.add();
    count_sent({.frames = 1, .bytes = piece.bytes}, control);
    return true;
  }
  /// `settle` is called when the card has room again, and in any case after a while.
  void mark_blocked(ConnectionState& connection) noexcept {
    if (!is_queued<BlockedLink>(connection)) blocked_.push_back(connection);
    arm(connection, now_us() + retry_us);
  }
  void mark_gone(ConnectionState& connection) noexcept;
  void add(const ConnectionState& connection) noexcept;
  void forget(const ConnectionState& connection) noexcept;

  // Shutdown, for tests only. The caller resets every connection, ends the listeners, and waits until no connection is left. Then it stops
  // transmitting, and waits until no frame is in flight.
  void abort_all() noexcept;
  void stop_transmitting() noexcept;
  [[nodiscard]] unsigned frames_in_flight() noexcept {
    sender_->reap();
    return frames_in_flight_;
  }
  [[nodiscard]] std::size_t connections() const noexcept { return counters_.connections_open.value(); }

  [[nodiscard]] Result<void> listen(std::uint16_t port, const std::function<std::unique_ptr<ConnectionHandler>(Connection&)>& acceptor);
  void stop_listening(std::uint16_t port) noexcept;

  // Datagrams (datagrams.cpp).
  [[nodiscard]] Result<void> receive_datagrams(std::uint16_t port, const DatagramReceiver& receiver);
  void end_datagrams(std::uint16_t port) noexcept;
  [[nodiscard]] Result<void> send_datagram(std::uint16_t from_port, Endpoint to, std::span<const std::byte> bytes) noexcept;
  // IPv6 (stack_ipv6.cpp, datagrams.cpp). `transport_at` is the offset of the transport header in `frame`, behind a fixed header without
  // extension headers. The stack owns `frame` from the call on. `info` tells whether the card has checked the transport's checksum.
  void input_tcp6(ReceiveBuffer* frame, std::size_t transport_at, ReceiveInfo info) noexcept;
  void input_udp6(ReceiveBuffer* frame, std::size_t transport_at, ReceiveInfo info) noexcept;
  /// An error arrived about a segment or datagram that this machine may have sent. Returns true if a connection or port of this core has
  /// sent it, false if its connection has not; nothing if this core has no such connection or port.
  [[nodiscard]] std::optional<bool> on_icmpv6_error(const IcmpV6Error& error) noexcept;
  /// The machine has lost an address. Called on each core.
  void on_address_removed(const Address& address) noexcept;
  // Groups (groups.cpp). `join` and `leave` MUST be called on the first core, for any core.
  [[nodiscard]] Result<void> join(Ipv4Address group, unsigned core) noexcept;
  [[nodiscard]] Result<void> leave(Ipv4Address group, unsigned core) noexcept;
  [[nodiscard]] bool wants_group(std::uint32_t group) const noexcept;

 private:
  friend class StackIpv6;
  friend struct DatagramCallbacks;
  struct DatagramPort {
    DatagramReceiver receiver;
    udp_pcb* pcb = nullptr;
    DatagramPort* next = nullptr;
  };
  /// An ARP entry that this core has published to the other cores (stack_neighbours.cpp).
  struct PublishedNeighbour {
    std::uint32_t address = 0;
    MacAddress mac{};
    std::uint64_t at_ms = 0;
  };

  [[nodiscard]] static ReceiveBuffer* allocate_heap_buffer(std::size_t bytes) noexcept;
  void evict() noexcept;
  void read_clock() noexcept;
  void arm_earlier(ConnectionState& connection, std::uint64_t due_us) noexcept;
  void arm_tcp_timer() noexcept;
  void tcp_timer_fired() noexcept;
  [[nodiscard]] bool count_refused(ErrorCode error) noexcept;
  /// The address to which packets for `remote` go on the link, as in a packet; 0: there is no route.
  [[nodiscard]] std::uint32_t next_hop_of(std::uint32_t remote) const noexcept;
  [[nodiscard]] Listener* find_listener(std::uint16_t port) const noexcept;
  /// Returns `frame`, or a copy if small buffers divide its headers; null without memory. The stack owns `frame` no longer if it is copied.
  [[nodiscard]] ReceiveBuffer* with_headers_in_one_buffer(ReceiveBuffer* frame, std::size_t frame_bytes) noexcept;
  /// Handles a TCP segment in a frame that is not a fragment.
  void input_tcp(ReceiveBuffer* frame, std::size_t bytes, ReceiveInfo info) noexcept;
  [[nodiscard]] tcp::TimeWaitTable<SegmentAddresses>& time_wait_of(const SegmentAddresses&) noexcept { return time_wait_; }
  [[nodiscard]] tcp::TimeWaitTable<SegmentAddresses6>& time_wait_of(const SegmentAddresses6&) noexcept { return time_wait6_; }
  /// Handles a segment whose headers have been checked. `connection`: the segment's; null: it has none.
  void input_segment(IncomingSegment& segment, ConnectionState* connection) noexcept;
  /// Handles a segment without a connection.
  void input_without_connection(IncomingSegment& segment) noexcept;
  void input_syn(Listener& listener, IncomingSegment& segment, std::uint32_t initial_at_least) noexcept;
  void send_cookie(Listener& listener, const IncomingSegment& segment) noexcept;
  /// Returns true if the segment has made a connection.
  bool take_cookie(Listener& listener, IncomingSegment& segment) noexcept;
  /// Handles an ICMP error that quotes a TCP segment. Any core MAY get it.
  void input_icmp(const ReceiveBuffer& frame, std::size_t bytes) noexcept;
  /// Returns false if this core has no such connection.
  bool on_icmp_error(const SegmentError& error) noexcept;
  [[nodiscard]] std::optional<bool> on_icmpv6_error_of_segment(const IcmpV6Error& error) noexcept;
  /// Calls `ask(stack, last)` on the search's cores in turn, in events of their own, until one returns true. `last`: no core is asked after
  /// this one. `ask` is copied. The first core MUST NOT be this one (owner_search.hpp).
  template <typename Ask>
  void ask_owners(OwnerSearch search, const Ask& ask) noexcept;
  void note_asked(const pbuf& arp) noexcept;
  /// Returns true if this core sent an ARP request for the address and no answer was published since then. MAY be called on any core.
  [[nodiscard]] bool take_asked(std::uint32_t address) noexcept;
  /// Returns false if the other cores know the entry, or if too many entries were published in this second.
  [[nodiscard]] bool should_publish(std::uint32_t address, const MacAddress& mac) noexcept;
  /// Counts the first frame's bytes. If it has an ordinary segment of an open connection, handles it, and perhaps frames behind it
  /// (connection_receiving.cpp). Returns the number of handled frames.
  [[nodiscard]] unsigned take_in_segments(std::span<const ReceivedFrame> received) noexcept;
  /// Handles the frame if it has an ordinary segment of an open connection over IPv6; returns false otherwise.
  [[nodiscard]] bool take_in_segment_ipv6(const ReceivedFrame& received) noexcept;
  void take_in(ReceiveBuffer* frame, std::size_t bytes, ReceiveInfo info) noexcept;
  void input(ReceiveBuffer* frame, ReceiveInfo info) noexcept;
  [[nodiscard]] pbuf* wrap(ReceiveBuffer* frame) noexcept;
  /// Passes to lwIP a frame that this core handles. `headers` are the frame's headers.
  void accept(ReceiveBuffer* frame, const FrameHeaders& headers, ReceiveInfo info) noexcept;
  /// Copies a frame of `bytes` bytes into a receive buffer on the heap; null without memory.
  [[nodiscard]] static ReceiveBuffer* copy_to_heap(const ReceiveBuffer* frame, std::size_t bytes) noexcept;
  /// Copies a reassembled datagram into one frame on the heap; null without memory.
  [[nodiscard]] ReceiveBuffer* frame_of(pbuf* datagram) const noexcept;
  /// Passes a segment of a connection that another core began to that core. Returns false, with no effect, if this core handles it.
  [[nodiscard]] bool pass_on_to_owner(IncomingSegment& segment) noexcept;
  void pass_on(unsigned core, ReceiveBuffer* copy, ReceiveInfo info) noexcept;
  /// Passes a multicast frame on to the other cores that joined the group. Returns true if this core joined too; otherwise releases the
  /// frame and returns false.
  [[nodiscard]] bool sort_multicast(ReceiveBuffer* frame, std::size_t bytes, std::uint32_t destination, ReceiveInfo info) noexcept;
  /// True if an IGMP report of a group is delayed.
  [[nodiscard]] bool reports_wait() noexcept;
  /// Passes a frame to the card. The pbuf `held` is freed when the card has read the frame. Returns ERR_MEM if there is no room, ERR_IF if
  /// the card refused the frame for good. Both errors are counted.
  [[nodiscard]] err_t give(TransmitPieces pieces, TransmitOffload offload, pbuf* held, std::uint32_t bytes) noexcept;
  static void* token_of(OutgoingSegment& segment) noexcept {
    return reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(&segment) | segment_token);
  }
  [[nodiscard]] unsigned drop_superseded(std::span<const ReceivedFrame> received) noexcept;
  void count_sent(FramesSent sent, bool control) noexcept {
    if (control) [[unlikely]]
      count_control_sent(sent);
    ++frames_in_flight_;
    counters_.frames_sent.add(sent.frames);
    counters_.bytes_sent.add(sent.bytes);
  }
  void count_control_sent(FramesSent sent) noexcept;
  void end_of_event() noexcept;
  void begin_checks() noexcept;
  [[nodiscard]] static const char* segmentation_unsupported(const NetDeviceLimits& limits) noexcept;
  /// Settles all connections with work for the end of this event (connection_sending.cpp).
  void settle_dirty() noexcept;
  void check_at_event_end() noexcept;
  /// Resets connections with another address than `connections_address_`.
  void reset_connections_of_others() noexcept;
  void finish_gone() noexcept;
  void publish_addresses() noexcept;
  void update_timers() noexcept;
  void timer_fired() noexcept;
  /// True if `age_neighbours` has something to do. `now`: of the boot clock, in ms.
  /// Call after a change of `times_.arp` or `times_.arp_last`.
  void note_neighbours_age() noexcept;
  void age_neighbours(std::uint64_t now) noexcept;
  void count_lease_seconds(std::uint64_t now) noexcept;

  [[nodiscard]] Counters snapshot() const noexcept;

  static constinit thread_local Stack* current_;
  static constexpr std::uintptr_t segment_token = 1;  ///< marks the card's token of an OutgoingSegment; others are pbufs
  static constexpr std::uint64_t retry_us = 50'000;

  StackGroup& group_;
  const unsigned core_;
  const NetDeviceLimits limits_;
  FrameSender* sender_ = nullptr;
  const std::atomic<policy::Segmentation>& segmentation_;
  netif netif_{};
  CommonHeaders common_headers_{};
  std::uint16_t checksum_base_ = 0;
  unsigned held_buffers_ = 0;
  unsigned frames_in_flight_ = 0;  ///< frames that the card holds
  bool transmitting_stopped_ = false;
  bool short_path_ = true, memory_short_ = false;
  const bool offloads_checksums_ = limits_.checksum_offload;
  const bool completes_ip_headers_ = limits_.checksum_offload && !limits_.ip_header_offload;
  std::size_t memory_limit_bytes_ = memory::core_limit_bytes();
  std::size_t datagram_bytes_ = 0;  ///< held by receivers of datagrams
  unsigned heavy_connections_ = 0;  ///< connections that hold more than the guaranteed amount
  std::array<PublishedNeighbour, 256> published_neighbours_{};
  std::array<std::atomic<std::uint32_t>, 32> asked_neighbours_{};  ///< addresses requested by ARP whose answer is not published yet
  unsigned asked_count_ = 0;
  std::uint64_t publishing_second_ = 0;
  unsigned published_in_second_ = 0;
  CountersOf<Counter> counters_;
  // lwIP's thread-local variables of this core. Other cores read them by pointer, because by name a core accesses its own variables.
  const stats_* const lwip_counters_;
  const struct ::memp_per_core* const lwip_pools_;
  EventEndHook end_of_event_;
  IntrusiveQueue<ConnectionState, QueueLink> dirty_;      ///< connections with work for the end of this event
  IntrusiveQueue<ConnectionState, BlockedLink> blocked_;  ///< connections that wait for room or memory; oldest first
  IntrusiveQueue<ConnectionState, QueueLink> gone_;       ///< connections whose `closed` is called in the next event
  std::uint32_t evict_from_ = 0;           ///< the chain of the table at which the next search for a connection to reset begins
  std::uint32_t connections_address_ = 0;  ///< the machine's address, as in a packet
  std::uint64_t now_us_ = 0;               ///< the time of this event; 0: not read yet
  std::uint32_t now_ms_ = 0;
  tcp::ConnectionTable<ConnectionState> table_;
  tcp::ConnectionTable<ConnectionState, SegmentAddresses6> table6_;
  tcp::TimeWaitTable<SegmentAddresses> time_wait_;
  tcp::TimeWaitTable<SegmentAddresses6> time_wait6_;
  tcp::TimerHeap timers_;
  Timer tcp_timer_;
  std::uint64_t tcp_timer_due_us_ = tcp::TimerHeap::never;
  tcp::AnswerLimit challenge_limit_{tcp::challenges_per_second}, reset_limit_{tcp::resets_per_second},
      search_limit_{tcp::searches_per_second};
  tcp::PathMtuCache path_mtu_cache_;
  bool retry_blocked_ = false;
  bool checks_due_ = true;  ///< an event may have changed more than the state of open connections without lwIP
  struct FinishNode : RemoteNode {
    Stack* stack = nullptr;
  } finish_;
  Listener* listeners_ = nullptr;
  DatagramPort* datagram_ports_ = nullptr;

  [[nodiscard]] Result<void> send_datagram6(std::uint16_t from_port, const Endpoint& to, std::span<const std::byte> bytes) noexcept;
  /// Passes a datagram to the receiver of its port.
  void deliver(DatagramPort& port, pbuf* data, const Endpoint& from, const Endpoint& to) noexcept;
  [[nodiscard]] DatagramPort* find_port(std::uint16_t port) const noexcept;

  Timer timer_;
  std::uint64_t timer_due_ms_ = StackTimes::never;
  StackTimes times_;
  bool arp_dirty_ = false, groups_dirty_ = false;
  Addresses published_{};
  StackIpv6 ipv6_{*this, group_};
};

}  // namespace neap::net
