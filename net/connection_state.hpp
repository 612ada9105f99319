// SPDX-License-Identifier: BSL-1.0
// The implementation of a Connection: RFC 9293.
//
// A connection ends when both sides have closed, by a reset, by a time-out, or by a request that its handler makes inside a callback. In
// each case `closed` must be called once, and the handler destroyed once, both outside the handler's other callbacks. So a handler's
// requests are recorded here, and `settle` performs them at the end of the event. When the connection ends, it is only marked as gone. A
// separate event calls `closed` and destroys the handler. The ConnectionState itself exists until the application has released all pieces
// that it received.
//
// Nearly every segment of an open connection carries the next bytes, or acknowledges sent bytes, or both. `take_segment` recognises such a
// segment by a few comparisons ("header prediction", Jacobson 1988). Any other segment goes to `input`. Internal to net/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>

#include "kernel/intrusive_queue.hpp"
#include "kernel/panic.hpp"
#include "kernel/task.hpp"
#include "net/arrived_segment.hpp"
#include "net/buffer.hpp"
#include "net/connection_ipv6.hpp"
#include "net/connection_key.hpp"
#include "net/incoming_segment.hpp"
#include "net/network.hpp"
#include "net/outgoing_segment.hpp"
#include "net/segment_headers.hpp"
#include "net/stack_memory.hpp"
#include "net/tcp/acknowledgements.hpp"
#include "net/tcp/path_mtu.hpp"
#include "net/tcp/reassembly.hpp"
#include "net/tcp/receive_window.hpp"
#include "net/tcp/send_state.hpp"
#include "net/tcp/timer_heap.hpp"

namespace neap::net {

class Stack;
struct GatheredBlock;
struct GatheredPiece;
struct Listener;
struct ReceivedPiece;

/// The state of a `connect` in progress. It is a local variable of the task that waits for the connection.
struct ConnectAttempt {
  Acceptor acceptor;
  Completion<Result<void>> done;
  Timer limit;  ///< aborts the attempt when it fires
};

/// The link of a connection that waits for room or memory.
struct BlockedLink {
  BlockedLink* next = nullptr;
};

/// The states of RFC 9293, 3.3.2. A connection in TIME-WAIT is an entry of a table (tcp/time_wait.hpp).
enum class TcpState : std::uint8_t {
  syn_sent,
  syn_received,
  established,
  fin_wait_1,
  fin_wait_2,
  close_wait,
  closing,
  last_ack,
  closed,  ///< gone: no segment reaches the connection
};

/// A machine may have many thousands of idle connections. Nearly all memory of each is this object.
class ConnectionState final : public Connection, public QueueLink, public BlockedLink, public tcp::TimerNode {
 public:
  /// The options that a SYN and its answer have agreed on.
  struct Agreement {
    std::uint16_t peer_mss = 0;  ///< 0: none was announced
    std::uint8_t window_shift = 0;
    bool window_scale = false, sack = false, timestamps = false, ecn = false;
  };

  /// `key`: the addresses of segments that the connection receives. The connection is in no state yet.
  ConnectionState(Stack& stack, const SegmentAddresses& key) noexcept;
  /// The same over IPv6. `part` has the headers of the segments that the connection sends.
  ConnectionState(Stack& stack, std::unique_ptr<ConnectionIpv6> part) noexcept;
  ConnectionState& operator=(ConnectionState&&) = delete;

  static ConnectionState& of(Connection& connection) noexcept { return static_cast<ConnectionState&>(connection); }
  static const ConnectionState& of(const Connection& connection) noexcept { return static_cast<const ConnectionState&>(connection); }
  static ConnectionState& of(tcp::TimerNode& node) noexcept { return static_cast<ConnectionState&>(node); }

  // Beginnings and ends (connection_begin.cpp, connection_end.cpp).
  /// Sends a SYN. `attempt` MUST exist until it is done.
  void connect(ConnectAttempt& attempt) noexcept;
  /// Answers the SYN `segment`, which arrived for `listener`, by a SYN-ACK. `initial_at_least`: see RFC 6191; 0: no limit.
  void answer_syn(Listener& listener, const IncomingSegment& segment, std::uint32_t initial_at_least) noexcept;
  /// Makes an open connection of the ACK `segment`, which returned a cookie.
  void accept_cookie(Listener& listener, const IncomingSegment& segment, const Agreement& agreement) noexcept;
  /// Takes the handler and returns true. A null handler resets the connection and returns false.
  bool adopt(std::unique_ptr<ConnectionHandler> handler) noexcept;
  /// Ends the connection without a segment.
  void drop(bool orderly, ErrorCode reason = ErrorCode::closed) noexcept;
  /// Calls `closed` and destroys the handler. May delete this object.
  void finish() noexcept;
  void request_abort() noexcept;
  /// Ends a connection in SYN-RECEIVED, and deletes it.
  void drop_half_open() noexcept;
  /// The connection's timer has fired (connection_timers.cpp).
  void on_timer(std::uint64_t now_us) noexcept;
  /// ICMP reports an error for the segment with the number `sequence` (RFC 5927; connection_timers.cpp).
  void unreachable(std::uint32_t sequence, bool hard) noexcept;
  /// Returns true if the connection sends shorter segments now.
  bool too_big(std::uint32_t sequence, std::uint16_t reported_mtu, std::uint16_t quoted_bytes) noexcept;

  // Segments.
  /// Handles a segment with `bytes` of payload that carries the next bytes, or acknowledges sent bytes, or both (connection_receiving.cpp).
  /// `options_bytes`: 0 or those of timestamps. Takes over `received.front()`, a frame in so many `buffers`, and perhaps frames behind it
  /// with further bytes. Returns the number of these frames; 0, with no change, if `input` has to handle the segment.
  [[nodiscard]] unsigned take_segment(ArrivedSegment segment, std::uint32_t options_bytes, std::uint32_t bytes, unsigned buffers,
                                      std::span<const ReceivedFrame> received) noexcept;
  /// Handles any segment (connection_input.cpp). May delete this object, in SYN-RECEIVED.
  void input(IncomingSegment& segment) noexcept;
  /// Runs at the end of an event (connection_sending.cpp): calls `writable` if due, performs all recorded requests, and sends.
  void settle() noexcept;

  // Received pieces (connection_payload.cpp).
  /// Called when the application has released a piece that counted as `bytes` of the window and as `memory_bytes` of memory. MUST be called
  /// on the connection's core. May delete this object.
  void piece_released(std::uint32_t bytes, std::size_t memory_bytes, std::uint32_t references = 1) noexcept;
  void gathered_released(GatheredPiece& piece) noexcept;
  /// Called when the application has released a piece of a received segment.
  void delivered_released(ReceivedPiece& piece) noexcept;
  /// Called when two gathered pieces (gathered_piece.hpp) were joined and the header of one was freed.
  void header_joined() noexcept;

  // Memory.
  /// Updates the core's count of held memory by the bytes that the connection holds now.
  void charge() noexcept {
    if (const std::size_t now = memory_held(); now != charged_bytes_) charge(now);
  }
  /// The bytes of payload that were sent and are not acknowledged.
  [[nodiscard]] std::size_t sent_bytes() const noexcept { return send_.nxt - send_.una - numbers_without_bytes(); }
  /// The bound of the bytes that are queued, or sent and not acknowledged.
  [[nodiscard]] std::size_t send_queue_limit() const noexcept;
  /// Bytes that wait to be sent.
  [[nodiscard]] std::size_t waiting_bytes() const noexcept { return queued_.bytes() + (ready_ != nullptr ? ready_->bytes : 0); }
  /// `Connection::held_bytes`.
  [[nodiscard]] std::size_t memory_held() const noexcept {
    return std::size_t{received_memory_} + out_of_order_.memory_bytes() + waiting_bytes() + queued_.pieces() * memory::piece_bytes +
           sent_memory_;
  }
  [[nodiscard]] std::size_t charged_bytes() const noexcept { return charged_bytes_; }
  [[nodiscard]] bool control() const noexcept { return control_; }

  // Identity.
  ConnectionState* chain_next = nullptr;  ///< of the table of connections
  // Each table has connections over one version of IP only.
  [[nodiscard]] bool has_addresses(const SegmentAddresses& key) const noexcept { return sent_ipv4() == key.reversed(); }
  [[nodiscard]] bool has_addresses(const SegmentAddresses6& key) const noexcept { return headers_.ipv6->headers.answers(key); }
  /// Of the segments that the connection receives.
  [[nodiscard]] ConnectionKey key() const noexcept { return reversed(sent_addresses()); }
  /// Of the segments that the connection sends.
  [[nodiscard]] ConnectionKey sent_addresses() const noexcept {
    if (over_ipv6_) return headers_.ipv6->headers.key();
    return sent_ipv4();
  }
  [[nodiscard]] SegmentAddresses sent_ipv4() const noexcept { return {.addresses = headers_.addresses, .ports = headers_.ports}; }
  [[nodiscard]] bool over_ipv6() const noexcept { return over_ipv6_; }
  [[nodiscard]] std::uint16_t local_port() const noexcept { return std::byteswap(static_cast<std::uint16_t>(headers_.ports)); }
  [[nodiscard]] bool gone() const noexcept { return state_ == TcpState::closed; }
  [[nodiscard]] TcpState state() const noexcept { return state_; }
  [[nodiscard]] unsigned core() const noexcept { return core_; }
  [[nodiscard]] const tcp::SendState& sender() const noexcept { return send_; }
  [[nodiscard]] const tcp::ReceiveWindow& receiver() const noexcept { return receive_; }
  /// True if something may become due within seconds, even if no frame arrives and the application does nothing.
  [[nodiscard]] bool has_work() const noexcept {
    const bool waits_long =
        state_ == TcpState::established || state_ == TcpState::close_wait || (state_ == TcpState::fin_wait_2 && !close_wanted_);
    return !waits_long || ack_delayed_ || waiting_bytes() != 0 || send_.nxt != send_.una;
  }
  /// Null while `connect` is in progress, and in SYN-RECEIVED.
  [[nodiscard]] ConnectionHandler* handler() const noexcept {
    return state_ == TcpState::syn_sent || state_ == TcpState::syn_received || connecting_ ? nullptr : handler_;
  }
  [[nodiscard]] Listener* listener() const noexcept { return state_ == TcpState::syn_received && !connecting_ ? listener_ : nullptr; }

 private:
  friend class Connection;
  friend class Stack;
  ~ConnectionState() {
    if (over_ipv6_) delete headers_.ipv6;
  }

  template <typename Call>
  [[gnu::always_inline]] void call_handler(Call call) noexcept {
    try {
      call(*handler_);
    } catch (const std::bad_alloc&) {
      handler_failed();
    }
  }
  void handler_failed() noexcept;
  void charge(std::size_t now) noexcept;
  void drop_references(std::uint32_t count) noexcept;
  [[nodiscard]] std::uint32_t numbers_without_bytes() const noexcept {
    if (send_.nxt == send_.una) [[likely]]
      return 0;
    return static_cast<std::uint32_t>(end_sent_ ? 1 : 0) + static_cast<std::uint32_t>(state_ <= TcpState::syn_received ? 1 : 0);
  }

  // Beginnings and ends.
  void begin(std::uint32_t initial_at_least) noexcept;
  [[nodiscard]] Agreement agree(const IncomingSegment& segment) const noexcept;
  void use(const Agreement& agreement) noexcept;
  void send_syn() noexcept;
  [[nodiscard]] std::uint32_t mss_of_path() const noexcept;
  /// The headers of IP and TCP, without options.
  [[nodiscard]] std::uint32_t headers_bytes() const noexcept {
    constexpr std::uint32_t ipv4 = SegmentHeaders::ip_header_bytes + SegmentHeaders::tcp_header_bytes;
    return over_ipv6_ ? ipv4 + (SegmentHeaders6::ip_header_bytes - SegmentHeaders::ip_header_bytes) : ipv4;
  }
  /// The payload of a full segment without options on this machine's link.
  [[nodiscard]] std::uint16_t link_mss() const noexcept;
  void remember_path_mtu(std::uint32_t now_s) noexcept;
  void establish() noexcept;
  /// Makes the handler of a connection that is now open.
  void open() noexcept;
  [[nodiscard]] ConnectAttempt& take_attempt() noexcept;
  void enter_time_wait() noexcept;
  void abort_now() noexcept;

  // The general path of segments.
  void input_syn_sent(IncomingSegment& segment) noexcept;
  [[nodiscard]] bool check_sequence(IncomingSegment& segment) noexcept;
  [[nodiscard]] bool check_flags(const IncomingSegment& segment) noexcept;
  [[nodiscard]] bool take_ack(const IncomingSegment& segment) noexcept;
  void take_payload(IncomingSegment& segment) noexcept;
  void take_in_order(IncomingSegment& segment, std::uint32_t skip, std::uint32_t bytes) noexcept;
  void keep_out_of_order(IncomingSegment& segment, std::uint32_t bytes, bool fin) noexcept;
  void take_from_out_of_order() noexcept;
  void take_fin() noexcept;
  void take_timestamps(const IncomingSegment& segment) noexcept;
  void take_congestion_mark(const IncomingSegment& segment) noexcept;
  void challenge() noexcept;
  [[nodiscard]] bool receives() const noexcept {
    return state_ == TcpState::established || state_ == TcpState::fin_wait_1 || state_ == TcpState::fin_wait_2;
  }
  [[nodiscard]] bool discards() const noexcept { return close_wanted_ || abort_wanted_ || handler_ == nullptr; }

  // Payload.
  /// Makes pieces of `bytes` bytes of the frame's payload, behind the first `skip` bytes. Buffers without such bytes are released.
  [[nodiscard]] Buffer pieces_of(IncomingSegment& segment, std::uint32_t skip, std::uint32_t bytes, Buffer::Release release,
                                 std::uint32_t& memory_bytes) noexcept;
  /// Copies the bytes into blocks. The result is shorter if memory is short.
  [[nodiscard]] Buffer gather(const ReceiveBuffer* frame, std::uint32_t at, std::uint32_t bytes) noexcept;
  /// Counts the pieces as held by the application, and passes them to the handler.
  void hand_to_handler(Buffer data) noexcept;
  void count_held(Buffer& data) noexcept;
  void settle_out_of_order() noexcept;

  // The fast path.
  void update_ordinary() noexcept;
  void deliver(const std::byte* payload, std::uint32_t bytes, ReceiveBuffer& buffer) noexcept;
  [[nodiscard, gnu::noinline]] unsigned deliver_joined(ArrivedSegment segment, std::uint32_t options_bytes, std::uint32_t bytes,
                                                       unsigned buffers, std::span<const ReceivedFrame> received) noexcept;
  void retain(ReceivedPiece& piece) noexcept;
  void take_plain_ack(std::uint32_t sequence, std::uint32_t acknowledgement, std::uint32_t window, std::uint32_t bytes,
                      std::uint32_t echo) noexcept;
  void tune(std::uint32_t echo) noexcept;

  // Sending.
  enum class Sent : std::uint8_t {
    done,     ///< the card took the segment, or it is on its way otherwise
    refused,  ///< the card had no room, or there was no memory: try again later
  };
  void settle_slowly() noexcept;
  void report_acknowledged() noexcept;
  [[nodiscard]] bool has_frame() const noexcept;
  void make_ready(OutgoingSegment& made) noexcept;
  [[nodiscard]] bool send_copy_behind(std::span<const std::byte> bytes) noexcept;
  /// Moves the bytes of `ready_` to the front of `queued_`.
  void queue_ready() noexcept;
  [[nodiscard]] Sent resend_lost(std::uint64_t now_us) noexcept;
  [[nodiscard]] Sent send_new(std::uint64_t now_us) noexcept;
  /// Makes a segment of the first bytes of the queue, at most `bytes`; null without memory.
  [[nodiscard]] OutgoingSegment* make_segment(std::uint32_t bytes) noexcept;
  [[nodiscard]] OutgoingSegment* copy_front(std::uint32_t bytes) noexcept;
  /// Sends `made`, which has the next bytes, and gives it to the sender. If the card has no room, it becomes `ready_`.
  [[nodiscard]] Sent pass_new(OutgoingSegment& made, std::uint64_t now_us) noexcept;
  [[nodiscard]] Sent send_fin(std::uint64_t now_us) noexcept;
  [[nodiscard]] Sent transmit_in_frames(OutgoingSegment& segment) noexcept;
  [[nodiscard]] Sent resend(OutgoingSegment& segment, std::uint64_t now_us) noexcept;
  /// Sends an acknowledgement alone, with the number `sequence`.
  [[nodiscard]] Sent acknowledge(std::uint32_t sequence) noexcept;
  [[nodiscard]] Sent acknowledge() noexcept { return acknowledge(send_.nxt); }
  [[nodiscard]] Sent settle_acknowledgement(std::uint64_t now_us) noexcept;
  void retry_later() noexcept;

  // Frames (connection_frames.cpp).
  /// Writes headers in front of the payload of `segment`, and passes it to the card.
  [[nodiscard]] Sent transmit(OutgoingSegment& segment, std::uint32_t sequence, unsigned flags) noexcept;
  [[nodiscard]] Sent transmit_next(OutgoingSegment& segment) noexcept;
  [[nodiscard]] Sent transmit_whole(OutgoingSegment& segment, std::uint32_t sequence, unsigned flags, bool control) noexcept;
  [[nodiscard]] std::size_t write_options(OutgoingSegment& segment, bool syn) noexcept;
  [[nodiscard]] std::size_t write_options_of_syn(std::byte* at, const tcp::Timestamps& timestamps) const noexcept;
  [[nodiscard]] std::size_t write_options_with_sack(const OutgoingSegment& segment, std::byte* at,
                                                    const tcp::Timestamps& timestamps) noexcept;
  [[nodiscard]] Sent transmit_slowly(OutgoingSegment& segment, std::uint32_t sequence, unsigned flags) noexcept;
  void fill_in_headers(OutgoingSegment& segment, std::size_t options_bytes, std::uint32_t sequence, unsigned flags, std::uint16_t window,
                       bool cut_up) noexcept;
  /// True if `headers_` has the neighbour's address.
  [[nodiscard]] bool resolve() noexcept;
  [[nodiscard]] bool resolve_anew() noexcept;
  // The same over IPv6 (connection_ipv6.cpp).
  [[nodiscard, gnu::noinline]] Sent transmit_ipv6(OutgoingSegment& segment, std::uint32_t sequence, unsigned flags) noexcept;
  void fill_in_headers_ipv6(OutgoingSegment& segment, std::size_t options_bytes, std::uint32_t sequence, unsigned flags,
                            std::uint16_t window, bool cut_up) noexcept;
  [[nodiscard]] bool resolve_ipv6() noexcept;
  [[nodiscard]] unsigned flags_of(const OutgoingSegment& segment) const noexcept;
  /// The memory that a segment occupies until it is acknowledged.
  [[nodiscard]] static std::uint32_t memory_of(OutgoingSegment& segment) noexcept;
  void release_acknowledged(tcp::SentSegment* segments) noexcept;

  // Timers (connection_timers.cpp).
  void arm_timer(std::uint64_t now_us) noexcept;
  [[nodiscard]] std::uint64_t next_due(std::uint64_t now_us) const noexcept;
  [[nodiscard]] bool check_limits(std::uint64_t now_us) noexcept;
  [[nodiscard]] bool keeps_alive() const noexcept;
  [[nodiscard]] bool run_sender_timer(std::uint64_t now_us) noexcept;

  Stack& stack_;
  union {
    ConnectionHandler* handler_ = nullptr;  // owned
    ConnectAttempt* attempt_;               // if `connecting_`
    Listener* listener_;                    // in SYN-RECEIVED, if not `connecting_`
  };
  OutgoingSegment* ready_ = nullptr;  // from `send_copy`, or refused by the card: its bytes are before those of `queued_`
  Buffer queued_;                     // sent by the handler, not yet a segment
  ConnectionHeaders headers_{};       // of this connection's segments (connection_frames.cpp)
  tcp::SendState send_;
  tcp::ReceiveWindow receive_;
  tcp::AckPolicy acknowledgements_;
  tcp::PathMtu path_mtu_;
  tcp::OutOfOrder out_of_order_;
  std::uint32_t timestamp_offset_ = 0;  // of this side's timestamps
  std::uint32_t timestamp_recent_ = 0;  // TS.Recent (RFC 7323)
  std::uint32_t acknowledged_to_ = 0;   // Last.ACK.sent
  std::uint32_t received_at_ = 0;       // when the peer's last segment arrived, in units of 1,024 us
  std::uint32_t challenge_ms_ = 0;      // see tcp::may_answer
  std::uint32_t ack_due_us_ = 0;        // when a delayed acknowledgement is due, if `ack_delayed_`
  std::uint32_t wanted_bytes_ = 0;      // size of the last refused `send`; 0: none
  std::uint32_t held_bytes_ = 0;        // delivered to the application and not released
  std::uint32_t references_ = 1;        // one for the connection, and one for each received piece
  std::uint32_t received_memory_ = 0;   // memory occupied by `held_bytes_`: whole buffers, blocks and headers
  std::uint32_t sent_memory_ = 0;       // memory of the segments that are not acknowledged
  std::uint32_t charged_bytes_ = 0;     // bytes last added to the core's count of held memory
  std::uint32_t since_s_ = 0;           // when the present state began: SYN-RECEIVED, `close`
  std::uint32_t progress_s_ = 0;        // after `close`: when the peer last acknowledged bytes
  std::uint16_t peer_mss_ = 536;
  std::uint16_t core_;
  TcpState state_ = TcpState::closed;
  std::uint8_t send_shift_ = 0;  // the peer's window scale
  std::uint8_t keep_alive_probes_ = 0;
  bool ordinary_ = false;      // see `update_ordinary`
  bool acknowledged_ = false;  // in this event the peer acknowledged bytes
  bool timestamps_ : 1 = false, sack_ : 1 = false, ecn_ : 1 = false;
  bool end_wanted_ : 1 = false;    // close this side after all data was sent
  bool close_wanted_ : 1 = false;  // as `end_wanted_`, and discard received bytes
  bool abort_wanted_ : 1 = false, end_sent_ : 1 = false, orderly_ : 1 = false;
  bool control_ : 1 = false;     // exempt from memory limits
  bool connecting_ : 1 = false;  // `connect` is in progress
  bool ack_delayed_ : 1 = false;
  bool nagle_ : 1 = false, soft_error_ : 1 = false, in_table_ : 1 = false, counted_ : 1 = false;
  bool over_ipv6_ : 1 = false;  // `headers_.ipv6` is valid, not `headers_.addresses`
  tcp::CongestionEcho congestion_echo_;
  GatheredBlock* block_ = nullptr;  // the block to which further gathered bytes are appended
};
static_assert(sizeof(ConnectionState) <= 384, "the memory of an idle connection: see request.connection_bytes.idle");

}  // namespace neap::net
