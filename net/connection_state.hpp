// SPDX-License-Identifier: BSL-1.0
// The implementation of a Connection.
//
// A connection ends when both sides have closed, by a reset, by a time-out, or by a request that its handler makes inside a callback. In
// each case `closed` must be called once, and the handler destroyed once, both outside the handler's other callbacks. So a handler's
// requests are recorded here, and `settle` passes them to lwIP at the end of the event. When lwIP reports the end, the connection is only
// marked as gone. A separate event calls `closed` and destroys the handler. The ConnectionState itself exists until the application has
// released all pieces that it received. Internal to net/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>

#include "kernel/intrusive_queue.hpp"
#include "kernel/panic.hpp"
#include "kernel/task.hpp"
#include "lwip/err.h"
#include "lwip/ip_addr.h"
#include "lwip/prot/tcp.h"
#include "lwip/tcp.h"
#include "net/arrived_segment.hpp"
#include "net/buffer.hpp"
#include "net/network.hpp"
#include "net/outgoing_segment.hpp"
#include "net/segment_headers.hpp"
#include "net/stack_memory.hpp"

namespace neap::net {

class Stack;
struct GatheredBlock;
struct GatheredPiece;
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

/// A machine may have many thousands of idle connections. Nearly all memory of each is this object and lwIP's `tcp_pcb`.
class ConnectionState final : public Connection, public QueueLink, public BlockedLink {
 public:
  /// `pcb` is new or was just accepted. lwIP then reports its events to this connection.
  ConnectionState(Stack& stack, tcp_pcb* pcb) noexcept;
  ConnectionState& operator=(ConnectionState&&) = delete;

  static ConnectionState& of(Connection& connection) noexcept { return static_cast<ConnectionState&>(connection); }
  static const ConnectionState& of(const Connection& connection) noexcept { return static_cast<const ConnectionState&>(connection); }
  /// The connection of lwIP's `pcb`; null before the connection is accepted, and after its orderly end.
  static ConnectionState* of(const tcp_pcb& pcb) noexcept {
    return pcb.state == SYN_RCVD ? nullptr : static_cast<ConnectionState*>(pcb.callback_arg);
  }

  /// Takes the handler and returns true. A null handler resets the connection and returns false.
  bool adopt(std::unique_ptr<ConnectionHandler> handler) noexcept;
  /// Calls the acceptor. If it throws `bad_alloc`, the result is null, as for a refusal.
  [[nodiscard]] std::unique_ptr<ConnectionHandler> make_handler(auto& acceptor) noexcept {
    try {
      return acceptor(*this);
    } catch (const std::bad_alloc&) {
      return nullptr;
    }
  }

  /// Handles a segment with `bytes` of payload that carries the next bytes, or acknowledges sent bytes, or both (connection_receiving.cpp).
  /// Takes over `received.front()`, a frame in so many `buffers`, and perhaps frames behind it with further bytes. Returns the number of
  /// these frames; 0, with no change, if lwIP has to handle the segment.
  [[nodiscard]] unsigned take_segment(ArrivedSegment segment, std::uint32_t bytes, unsigned buffers,
                                      std::span<const ReceivedFrame> received) noexcept;
  /// Keeps the headers of `frame`, which lwIP has made for this connection, for later segments.
  void remember_headers(const pbuf& frame) noexcept;
  /// Runs at the end of an event (connection_sending.cpp): calls `writable` if due, passes all recorded requests to lwIP, and sends.
  void settle() noexcept;
  /// Calls `closed` and destroys the handler. May delete this object.
  void finish() noexcept;
  /// Called when the application has released a piece that counted as `bytes` of the window and as `memory_bytes` of memory. MUST be called
  /// on the connection's core. May delete this object.
  void piece_released(std::uint32_t bytes, std::size_t memory_bytes, std::uint32_t references = 1) noexcept;
  void gathered_released(GatheredPiece& piece) noexcept;
  /// Called when the application has released a piece of a segment that `take_segment` handled.
  void delivered_released(ReceivedPiece& piece) noexcept;
  /// Called when two gathered pieces (gathered_piece.hpp) were joined and the header of one was freed.
  void header_joined() noexcept;
  /// Updates the core's count of held memory by the bytes that the connection holds now.
  void charge() noexcept {
    if (const std::size_t now = memory_held(); now != charged_bytes_) charge(now);
  }
  /// Bytes that lwIP has, because they are not acknowledged. The connection MUST NOT be gone.
  [[nodiscard]] std::size_t lwip_bytes() const noexcept { return TCP_SND_BUF - std::size_t{pcb_->snd_buf}; }
  /// The memory that lwIP holds for these bytes. One of the segments may be a frame with few bytes in it.
  [[nodiscard]] std::size_t sent_memory() const noexcept {
    constexpr std::size_t frame_rest = memory::frame_bytes - memory::segment_bytes;
    return lwip_bytes() + pcb_->snd_queuelen * memory::segment_bytes + (pcb_->snd_queuelen != 0 ? frame_rest : 0);
  }
  /// Bytes that wait to be sent.
  [[nodiscard]] std::size_t waiting_bytes() const noexcept { return ready_ != nullptr ? ready_bytes() : queued_.bytes(); }
  /// `Connection::held_bytes`.
  [[nodiscard]] std::size_t memory_held() const noexcept {
    std::size_t bytes = std::size_t{received_memory_} + reordered_memory_ + waiting_bytes() + queued_.pieces() * memory::piece_bytes;
    return pcb_ != nullptr ? bytes + sent_memory() : bytes;
  }
  /// As `charge`, after a segment was sent and nothing waits.
  void charge_sent() noexcept {
    if (const std::size_t now = received_memory_ + sent_memory(); now != charged_bytes_) charge(now);
  }
  [[nodiscard]] std::size_t charged_bytes() const noexcept { return charged_bytes_; }
  [[nodiscard]] bool control() const noexcept { return control_; }
  /// Gives up lwIP's pcb, which is in TIME-WAIT after an orderly close.
  void detach() noexcept;

  [[nodiscard]] bool gone() const noexcept { return pcb_ == nullptr; }
  [[nodiscard]] unsigned core() const noexcept { return core_; }
  [[nodiscard]] tcp_pcb* pcb() const noexcept { return pcb_; }
  /// Null while `connect` is in progress, and before the connection was accepted.
  [[nodiscard]] ConnectionHandler* handler() const noexcept { return connecting_ ? nullptr : handler_; }
  /// Of the segments that the connection sends.
  [[nodiscard]] SegmentAddresses sent_addresses() const noexcept { return {.addresses = headers_.addresses, .ports = headers_.ports}; }
  void begin_attempt(ConnectAttempt& attempt);
  void request_abort() noexcept;
  /// MUST be called when the count of `Stack::lwip_uses` begins again.
  void forget_ordinary() noexcept { ordinary_at_ = 0; }

 private:
  friend class Connection;
  ~ConnectionState() = default;

  // lwIP's events.
  friend err_t(::lwip_tcp_event)(void*, tcp_pcb*, lwip_event, pbuf*, u16_t, err_t);
  /// `data` is null if the peer has closed its side.
  void on_received(pbuf* data) noexcept;
  void on_sent() noexcept;
  void on_poll() noexcept;
  void on_error(err_t error) noexcept;
  void on_connected() noexcept;

  template <typename Call>
  void call_handler(Call call) noexcept {
    try {
      call(*handler_);
    } catch (const std::bad_alloc&) {
      handler_failed();
    }
  }
  void handler_failed() noexcept;
  [[nodiscard]] ConnectAttempt& take_attempt() noexcept;
  void charge(std::size_t now) noexcept;
  [[nodiscard]] Buffer take_received(pbuf* chain) noexcept;
  /// Copies `chain` into blocks and frees it. Returns false if memory is short; `data` is then incomplete.
  [[nodiscard]] bool gather(pbuf* chain, Buffer& data) noexcept;
  /// Counts the memory of lwIP's out-of-order queue. Copies its payload if card buffers are short; drops it if memory is short.
  void settle_out_of_order() noexcept;
  /// True if the core's open frame may become the connection's only segment (`Connection::frame`).
  [[nodiscard]] bool has_frame() const noexcept;
  /// `made` waits alone, and is sent at the end of the event.
  void make_ready(OutgoingSegment& made) noexcept;
  [[nodiscard]] bool send_copy_behind(std::span<const std::byte> bytes) noexcept;
  void clear_lwip() noexcept;
  void open_window() noexcept;
  /// Passes queued bytes to lwIP. Returns false if lwIP had no memory for them.
  bool write_queued() noexcept;
  // Sending without lwIP (connection_sending.cpp).
  enum class Sent : std::uint8_t {
    all,           ///< what the windows permit
    waits,         ///< lwIP has the last segment, which the card did not take
    not_possible,  ///< lwIP has to send the bytes that are still queued
  };
  [[nodiscard]] Sent send_queued() noexcept;
  [[nodiscard]] bool fits_now(std::uint32_t bytes) const noexcept;
  /// Moves the bytes of `ready_` to `queued_`.
  void queue_ready() noexcept;
  /// Sends `bytes` of the queue, at most the MSS.
  [[nodiscard]] Sent send_frame(std::uint32_t bytes) noexcept;
  /// Sends up to `bytes` of the queue as one segment that the card cuts up.
  [[nodiscard]] Sent send_long(std::uint32_t bytes) noexcept;
  /// Sends a segment that the card did not take before.
  [[nodiscard]] Sent send_waiting() noexcept;
  /// Makes `made` the connection's last segment, and sends it. `control` MUST be `control_`, which is false for an ordinary connection.
  [[nodiscard]] Sent pass(OutgoingSegment& made, unsigned flags, bool is_long, bool control) noexcept;
  [[nodiscard]] bool pass_to_card(OutgoingSegment& made, std::uint32_t sequence, unsigned flags, bool is_long, bool control) noexcept;
  /// PSH marks the last bytes of the queue.
  [[nodiscard]] unsigned flags_for_rest() const noexcept { return queued_.empty() ? TCP_ACK | TCP_PSH : TCP_ACK; }
  void fill_in_headers(SegmentHeaders& headers, std::uint32_t payload_bytes, bool cut_up, unsigned flags) noexcept;
  /// Sends an acknowledgement alone. Returns false, with no change, if lwIP has to send it.
  [[nodiscard]] bool acknowledge() noexcept;
  /// Sends what lwIP has to send. Returns false if it could not.
  [[nodiscard]] bool output() noexcept;
  [[nodiscard]] bool is_ordinary() noexcept;
  void acknowledged() noexcept { acknowledged_ = true; }
  /// Passes the payload of a whole frame to the handler.
  void deliver(const std::byte* payload, std::uint32_t bytes, ReceiveBuffer& buffer) noexcept;
  /// As `deliver`, for a frame in several buffers, and for further frames. Returns the number of frames.
  [[nodiscard, gnu::noinline]] unsigned deliver_joined(ArrivedSegment segment, std::uint32_t bytes, unsigned buffers,
                                                       std::span<const ReceivedFrame> received) noexcept;
  void retain(ReceivedPiece& piece) noexcept;
  /// `settle`, if lwIP has to do a part (connection.cpp).
  void settle_with_lwip() noexcept;
  /// Calls `writable` if it is due, in an event in which the peer acknowledged bytes.
  void report_acknowledged() noexcept;
  void remember_addresses() noexcept;
  [[nodiscard]] std::uint32_t ready_bytes() const noexcept { return ready_->segment.len; }
  void drop_references(std::uint32_t count) noexcept;

  // A connection holds less than 4 GiB: at most the receive window and the queue of `send`, in pieces of one byte, each with an overhead.
  static_assert(TCP_WND * (memory::card_buffer_bytes + memory::piece_bytes) < std::uint64_t{1} << 31);
  static_assert(send_queue_bytes_max * memory::piece_bytes + TCP_SND_QUEUELEN * memory::segment_bytes + memory::frame_bytes <
                std::uint64_t{1} << 31);
  static_assert(memory::frame_bytes == memory::heap_bytes(OutgoingSegment::frame_object_bytes));

  Stack& stack_;
  tcp_pcb* pcb_;
  union {
    ConnectionHandler* handler_ = nullptr;  // owned
    ConnectAttempt* attempt_;               // if `connecting_`
  };
  OutgoingSegment* ready_ = nullptr;    // from `send_copy`; then `queued_` is empty
  Buffer queued_;                       // sent by the handler, not yet passed to lwIP
  ConnectionHeaders headers_{};         // of this connection's segments (connection_sending.cpp)
  std::uint32_t ordinary_at_ = 0;       // the connection was ordinary (`is_ordinary`) when lwIP had been used so often; 0: it is not known
  std::uint32_t wanted_bytes_ = 0;      // size of the last refused `send`; 0: none
  std::uint32_t released_bytes_ = 0;    // released by the application, not yet reported to lwIP
  std::uint32_t held_bytes_ = 0;        // delivered to the application and not released
  std::uint32_t references_ = 1;        // one for the connection, and one for each received piece
  std::uint32_t received_memory_ = 0;   // memory occupied by `held_bytes_`: whole buffers, blocks and headers
  std::uint32_t reordered_memory_ = 0;  // memory of lwIP's out-of-order queue
  std::uint32_t charged_bytes_ = 0;     // bytes last added to the core's count of held memory
  std::uint16_t core_;
  bool acknowledged_ = false;      // in this event the peer acknowledged bytes
  bool end_wanted_ : 1 = false;    // close this side after all data was sent
  bool close_wanted_ : 1 = false;  // as `end_wanted_`, and discard received bytes
  bool abort_wanted_ : 1 = false, end_sent_ : 1 = false, orderly_ : 1 = false;
  bool control_ : 1 = false;           // exempt from memory limits
  bool connecting_ : 1 = false;        // `connect` is in progress
  std::uint8_t quiet_polls_ = 0;       // seconds without an acknowledgement since `close`
  std::uint16_t closing_since_s_ = 0;  // time of `close`, in seconds of the boot clock, modulo 2^16
  GatheredBlock* block_ = nullptr;     // the block to which further gathered bytes are appended
};
static_assert(sizeof(ConnectionState) == 144 && sizeof(tcp_pcb) == 192,
              "the memory of an idle connection: see request.connection_bytes.idle");

}  // namespace neap::net
