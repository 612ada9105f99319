// SPDX-License-Identifier: BSL-1.0
// One connection: takes commands from the received bytes, runs their transactions and sends the replies.
//
// The commands of one event are answered together. A transaction takes tens of thousands of instructions, so after `requests_per_event` of
// them the session continues in a later event. A client that sends more than it reads is stopped by back-pressure: beyond
// `in_flight_bytes_max` bytes of replies the session takes no further command. It then keeps the received buffers, so the receive window
// closes. A connection holds at most a receive window, these replies and one event's, a line, and this object.
//
// A connection that ends between two commands leaves nothing: each transaction is finished within the call that runs it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "apps/tpcc/service.hpp"
#include "apps/tpcc/text_protocol.hpp"
#include "kernel/timer.hpp"
#include "net/network.hpp"

namespace neap::tpcc {

class Session;

/// The handler of any connection at the service's port.
class Handler : public net::ConnectionHandler {
 public:
  /// Null for a connection that was refused.
  [[nodiscard]] virtual Session* session() noexcept = 0;
};

class Session final : public Handler {
 public:
  /// Replies that the client has not acknowledged. With more, no further command is taken until it has read half of them.
  static constexpr std::size_t in_flight_bytes_max = 64 * 1024;
  /// The longest reply to one step: a VALUE line, a transaction's text and END.
  static constexpr std::size_t reply_bytes_max = key_bytes_max + answer_bytes_max + 64;

  explicit Session(CoreState& core) noexcept;
  ~Session() override;
  void received(net::Buffer data) override;
  void writable() override;
  void peer_closed() override;
  void closed() override;
  [[nodiscard]] Session* session() noexcept override { return this; }
  /// Resets the connection because its client was silent for too long.
  void end_idle() noexcept;

 private:
  class Output;
  struct Line;
  enum class Step : std::uint8_t {
    done,   ///< another step may follow
    waits,  ///< for bytes, for a time, or for the end
  };

  void work() noexcept;
  [[nodiscard]] Step step(Output& output) noexcept;
  [[nodiscard]] Step handle(std::string_view line, Output& output) noexcept;
  void skip_value(Output& output) noexcept;
  void report_statistics(Output& output) noexcept;
  [[nodiscard]] bool take_line(std::string_view& line, Output& output) noexcept;
  void drop_line() noexcept;
  void send(std::string_view bytes) noexcept;
  void request_room() noexcept;
  void work_later(std::chrono::nanoseconds delay) noexcept;
  void abort() noexcept;

  CoreState& core_;
  net::Buffer input_;              // received, not handled yet
  std::unique_ptr<Line> line_;     // a line that arrived in several pieces
  Timer later_;                    // calls `work`
  std::uint32_t value_left_ = 0;   // bytes of a value that are to be skipped, with its line end
  std::uint32_t line_bytes_ = 0;   // of the line in progress at the front of `input_`, with its line end; 0: it is in `line_`, or none
  std::uint32_t keys_at_ = 0;      // of a get in progress: where its next key is in the line; 0: no get is in progress
  std::string_view value_answer_;  // sent after the value; empty: none
  bool with_unique_ = false;
  bool output_waits_ = false;  // until the client has read replies
  bool quit_ = false;          // close when all replies are sent
  bool peer_closed_ = false;
  bool ended_ = false;  // closed or aborted by this session; later input is dropped
};

/// Makes the handler of a new connection on its core. A connection over `connections=` gets an error and is closed.
[[nodiscard]] std::unique_ptr<net::ConnectionHandler> accept(Service& service, net::Connection& connection, unsigned core);

}  // namespace neap::tpcc
