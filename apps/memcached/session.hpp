// SPDX-License-Identifier: BSL-1.0
// One connection: passes data between the network and the conversation.
//
// All input of one event is handled before any reply is sent, so that pipelined requests are answered together. A client that sends more
// than it reads is stopped by back-pressure. Parsing stops when the client's replies in flight exceed its share of the memory for replies
// (reply_memory.hpp), or when the connection accepts no more bytes. Received buffers are then kept, so the receive window closes. So one
// connection uses at most the memory of a receive window, of its share, and of one reply (reply.hpp).
//
// A piece of a reply in flight takes memory for its bytes and for headers in the session, the connection and lwIP. The session charges an
// upper bound of this memory (`cost`) to the core's account of replies. Acknowledgements are reported as a number of bytes, not by piece.
// So the session keeps two sums of costs, for the older and for the newer pieces. It discharges a sum once all its pieces are acknowledged.
//
// One short reply of each connection is not charged while nothing else of the connection is in flight. This is the ordinary case, and the
// memory is that of one frame, which the stack's account includes (net/stack_memory.hpp). If this reply is still in flight when the next
// request arrives, it is charged then.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "apps/memcached/conversation.hpp"
#include "kernel/timer.hpp"
#include "net/network.hpp"

namespace neap::memcached {

class Exchange;

class Session;

/// The handler of any connection at memcached's port.
class Handler : public net::ConnectionHandler {
 public:
  /// Null for a connection that was refused.
  [[nodiscard]] virtual Session* session() noexcept = 0;
};

/// The part that an idle connection keeps. A machine may have many thousands of idle connections.
class Session final : public Handler {
 public:
  Session(Service& service, CoreState& core) noexcept;
  ~Session() override;
  void received(net::Buffer data) override;
  void writable() override;
  void peer_closed() override;
  void closed() override;
  [[nodiscard]] Session* session() noexcept override { return this; }

  /// Reports the new connection, which `Admission` has admitted. MUST be called once the connection has this handler, or before.
  void begin(net::Connection& connection) noexcept;
  /// Ends the connection because its client was silent for too long, unless it is a watcher. Returns false for a watcher.
  [[nodiscard]] bool end_idle() noexcept;
  /// Identifies this connection among those that are open; without the address that it is made from.
  [[nodiscard]] std::uint32_t id() const noexcept;
  [[nodiscard]] std::string_view state() const noexcept;

 private:
  friend class Exchange;

  void check_core() const noexcept;
  /// Returns the exchange that serves this session; null, after the connection was aborted, if there is no memory for it.
  [[nodiscard]] Exchange* open() noexcept;
  [[nodiscard]] bool make_exchange() noexcept;
  /// Answers the requests in `data`, if the exchange is not needed longer than for this call. Otherwise returns false, and `data` has the
  /// requests that are not handled yet.
  [[nodiscard]] bool answer_at_once(net::Buffer& data);
  /// Gives `exchange` back to the core if no request and no reply is in progress.
  void release_if_idle(Exchange& exchange) noexcept;

  [[nodiscard]] CoreState& core() const noexcept { return *reinterpret_cast<CoreState*>(core_granule_ * alignof(CoreState)); }

  std::unique_ptr<Exchange> exchange_;  ///< set while a request or a reply is in progress at the end of an event
  // One word: a CoreState's address is a multiple of 128, so seven bits are free.
  Conversation::Protocol protocol_ : 2 = Conversation::Protocol::unknown;
  bool peer_closed_ : 1 = false;
  bool ended_ : 1 = false;  ///< closed or aborted by this session; later input is dropped
  bool admitted_ : 1 = false;
  bool idle_ : 1 = false;  ///< ended because its client was silent
  bool quit_ : 1 = false;  ///< ended by the client's command
  std::uintptr_t core_granule_ : 57;
};
static_assert(alignof(CoreState) == 128 && sizeof(Session) == 32, "the memory of an idle connection: see request.connection_bytes.idle");

/// The requests and replies of a session that are in progress. Nearly every request is answered in the event in which it arrives, and its
/// acknowledgement arrives with the next request. So each core has one exchange, which serves one session after the other. A session whose
/// requests or replies are still in progress at the end of an event takes the exchange with it, and the core makes another one.
class Exchange final : public Holder, public Upload, public Sleeper {
 public:
  explicit Exchange(CoreState& core) noexcept;
  ~Exchange() override;

 private:
  friend class Session;

  /// The maximum of reply bytes that one call passes to the connection. A large value takes several calls.
  static constexpr std::size_t send_bytes_max = 256 * 1024;

  /// A client with more bytes in flight is slow: its reply moves from chunks that connections share to chunks of its own.
  static constexpr std::size_t shared_bytes_max = 4096;
  /// Overhead of a piece: its header, a reference to the payload, and in lwIP a segment with the frame's headers.
  static constexpr std::size_t piece_bytes = 384;
  /// The added quarter of the bytes is an upper bound of the allocator's rounding, and of lwIP's headers for each segment of a long piece.
  [[nodiscard]] static constexpr std::size_t cost(std::size_t bytes, bool is_item) noexcept {
    return piece_bytes + bytes / 4 + (is_item ? 0 : bytes);
  }

  [[nodiscard]] std::size_t held_in_flight() noexcept override { return in_flight_bytes(); }
  void reset_connection() noexcept override;
  void reset_upload() noexcept override;
  void wake() override;

  [[nodiscard]] net::Connection& connection() noexcept { return session_->connection(); }
  /// Serves `session` from now on.
  void begin(Session& session) noexcept;
  void received(net::Buffer&& data);
  /// Handles the whole requests at the front of `data` and sends the replies, for a session with nothing else in progress. Returns false if
  /// there is more to be done.
  [[nodiscard]] bool answer_at_once(Conversation::Protocol protocol, net::Connection& connection, net::Buffer& data);
  void writable();
  void closed() noexcept;
  /// True if the exchange may serve another session.
  [[nodiscard]] bool idle() const noexcept;
  void work();
  /// Lists the upload in progress, or removes it.
  void settle_upload() noexcept;
  void parse_and_send();
  std::size_t parse();
  /// Returns the number of bytes that were taken from the reply and that the peer has not acknowledged.
  [[nodiscard]] std::size_t in_flight_bytes() noexcept { return connection().unacknowledged_bytes() + unsent_.bytes(); }
  void charge(std::size_t bytes) noexcept;
  void charge_uncharged() noexcept;
  /// Discharges the costs of acknowledged pieces.
  void settle() noexcept {
    if ((older_cost_ | newer_cost_ | uncharged_bytes_) != 0) settle_acknowledged();
  }
  void settle_acknowledged() noexcept;
  void settle_all() noexcept;
  /// Returns false if the replies in flight use up this connection's share. The input then waits for the callback `writable`, which follows
  /// when bytes in flight are acknowledged.
  [[nodiscard]] bool may_parse() noexcept;
  [[nodiscard]] bool send_reply();
  /// Sends a reply that is one short text. Returns false, with no effect, for any other reply, and if the connection cannot take it.
  [[nodiscard]] bool send_short(std::size_t bytes);
  [[nodiscard]] bool send_pieces(std::size_t bytes);
  [[nodiscard]] std::string_view state() noexcept;
  void clear() noexcept;
  void abort_connection();
  /// Aborts the connection after a mistake of Neap, not of the peer. Counted as `no_progress`.
  void abort_without_progress();

  CoreState& core_;
  Session* session_ = nullptr;
  Conversation conversation_;
  Reply reply_;
  net::Buffer input_;                ///< received and not yet parsed
  Timer retry_;                      ///< pending while the input waits for other clients' events
  net::Buffer unsent_;               ///< taken from the reply, and not yet accepted by the connection
  std::size_t older_cost_ = 0;       ///< cost of the pieces up to `boundary_`
  std::size_t newer_cost_ = 0;       ///< cost of the pieces behind `boundary_`
  std::uint64_t boundary_ = 0;       ///< a position among all reply bytes, counted as in `Reply::taken`
  std::size_t uncharged_bytes_ = 0;  ///< bytes of the short reply that was sent without a charge
  bool waits_ = false;               ///< the input waits for the peer to read replies
};

/// The handler of a connection that was refused: it sends nothing more, and drops what arrives.
class RefusedConnection final : public Handler {
  void received(net::Buffer) override {}
  [[nodiscard]] Session* session() noexcept override { return nullptr; }
};

/// Makes the handler of a new connection of this core, or refuses it (limits.hpp).
[[nodiscard]] std::unique_ptr<net::ConnectionHandler> accept(Service& service, net::Connection& connection);

}  // namespace neap::memcached
