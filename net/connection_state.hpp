// SPDX-License-Identifier: BSL-1.0
// What stands behind a Connection.
//
// A connection ends in many ways (both sides closed in either order, reset, time-out, by the handler in the middle of its own call), but
// the handler must hear of it once, and be destroyed once, outside its own calls. So handlers never reach into lwIP: they leave wishes
// here, and the stack fulfils them at the end of the event. lwIP's news of the end only marks the connection as gone; an event of its own
// says `closed` and destroys the handler. The object itself stays until the last received piece that counts against its window was
// released. Internal to net/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "kernel/task.hpp"
#include "lwip/err.h"
#include "lwip/ip_addr.h"
#include "net/buffer.hpp"
#include "net/intrusive_list.hpp"
#include "net/network.hpp"

struct pbuf;
struct tcp_pcb;

namespace neap::net {

class Stack;
struct GatheredBlock;
struct GatheredPiece;

/// A `connect` in progress; lives in its task.
struct ConnectAttempt {
  Acceptor acceptor;
  Completion<Result<void>> done;
  Timer limit;  ///< gives up
};

class ConnectionState final : public Connection {
 public:
  /// `pcb` is new or just accepted; its callbacks become this object's.
  ConnectionState(Stack& stack, tcp_pcb* pcb) noexcept;
  ConnectionState(const ConnectionState&) = delete;
  ConnectionState& operator=(const ConnectionState&) = delete;

  static ConnectionState& of(Connection& connection) noexcept { return static_cast<ConnectionState&>(connection); }
  static const ConnectionState& of(const Connection& connection) noexcept { return static_cast<const ConnectionState&>(connection); }

  /// Takes the handler; null: the connection is reset. Returns whether there is one.
  bool adopt(std::unique_ptr<ConnectionHandler> handler) noexcept;
  /// What a new handler's maker may throw: `bad_alloc` counts as a refusal.
  [[nodiscard]] std::unique_ptr<ConnectionHandler> make_handler(auto& acceptor) noexcept {
    try {
      return acceptor(*this);
    } catch (const std::bad_alloc&) {
      return nullptr;
    }
  }

  /// At the end of an event: calls `writable` if it is due, tells lwIP what was released, queued, closed or aborted, and sends.
  void settle() noexcept;
  /// Says `closed` and destroys the handler. The object may be gone when this returns.
  void finish() noexcept;
  /// A piece of `bytes` that the application held was released, and `memory_bytes` with it; on the connection's core. The object may be
  /// gone when this returns.
  void piece_released(std::uint32_t bytes, std::size_t memory_bytes, std::uint32_t references = 1) noexcept;
  void gathered_released(GatheredPiece& piece) noexcept;
  /// The header of a gathered piece went away by a join.
  void header_joined() noexcept;
  /// Tells the core's account what the connection holds now.
  void charge() noexcept;
  [[nodiscard]] std::size_t charged_bytes() const noexcept { return charged_bytes_; }
  [[nodiscard]] bool control() const noexcept { return control_; }
  /// lwIP is about to forget the connection, in order (TIME-WAIT).
  void detach() noexcept;

  [[nodiscard]] bool gone() const noexcept { return pcb_ == nullptr; }
  [[nodiscard]] unsigned core() const noexcept { return core_; }
  [[nodiscard]] tcp_pcb* pcb() const noexcept { return pcb_; }
  void begin_attempt(ConnectAttempt& attempt);
  void request_abort() noexcept;

  ListLink<ConnectionState> dirty_link, blocked_link, all_link;

 private:
  friend class Connection;
  ~ConnectionState() = default;

  static err_t on_received(void* argument, tcp_pcb* pcb, pbuf* data, err_t error) noexcept;
  static err_t on_sent(void* argument, tcp_pcb* pcb, std::uint16_t bytes) noexcept;
  static err_t on_poll(void* argument, tcp_pcb* pcb) noexcept;
  static void on_error(void* argument, err_t error) noexcept;
  friend err_t connection_established(void* argument, tcp_pcb* pcb, err_t error) noexcept;

  template <typename Call>
  void call_handler(Call call) noexcept;
  [[nodiscard]] Buffer take_received(pbuf* chain) noexcept;
  /// Copies `chain` into blocks and frees it. False: no memory, and `data` lacks bytes.
  [[nodiscard]] bool gather(pbuf* chain, Buffer& data) noexcept;
  /// Memory of lwIP's out-of-order queue. Copies its payload where card buffers are short, gives it up where memory is.
  void settle_out_of_order() noexcept;
  void clear_lwip() noexcept;
  void open_window() noexcept;
  /// Hands queued bytes to lwIP; false if it had no room or memory though the window is open.
  bool write_queued() noexcept;
  void remember_addresses() noexcept;
  void drop_references(std::uint32_t count) noexcept;

  Stack& stack_;
  tcp_pcb* pcb_;
  std::unique_ptr<ConnectionHandler> handler_;
  ConnectAttempt* attempt_ = nullptr;
  Buffer queued_;                      // sent by the handler, not yet lwIP's
  std::size_t written_bytes_ = 0;      // lwIP's, not yet acknowledged
  std::size_t wanted_bytes_ = 0;       // what the last refused `send` wanted; 0: none
  std::uint32_t released_bytes_ = 0;   // released by the application, not yet told to lwIP
  std::uint32_t held_bytes_ = 0;       // delivered and not released
  std::uint32_t references_ = 1;       // the connection's own, and one for each received piece
  std::size_t received_memory_ = 0;    // behind `held_bytes_`: buffers, blocks and headers in whole
  std::size_t reordered_memory_ = 0;   // lwIP's out-of-order queue
  std::size_t charged_bytes_ = 0;      // what the core's account knows
  GatheredBlock* block_ = nullptr;     // the one that is being filled
  std::uint32_t quiet_polls_ = 0;      // seconds without progress since `close`
  std::uint32_t closing_since_s_ = 0;  // of the boot clock
  Endpoint local_{}, remote_{};
  std::uint16_t core_;
  bool writable_due_ = false;
  bool end_wanted_ = false;    // our side's end, once all was sent
  bool close_wanted_ = false;  // and nothing more is to be received
  bool abort_wanted_ = false;
  bool end_sent_ = false;
  bool end_received_ = false;
  bool orderly_ = false;
  bool control_ = false;  // its memory is not refused
};

}  // namespace neap::net
