// SPDX-License-Identifier: BSL-1.0
// The connection of a control client, and its conversation: each line is answered before the next one is parsed.
//
// A command may visit every core, so the conversation is a task. The network's callbacks only store data and notify the task. While an
// answer waits for room, no line is parsed and no received buffer is released. So if a client does not read, the full receive window stops
// it from sending (back-pressure). The constants below limit a client's memory. Unproven clients (admission.hpp) have lower limits.
//
// Everything runs on the connection's core, except the functions marked below.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "kernel/task.hpp"
#include "kernel/timer.hpp"
#include "net/network.hpp"
#include "observe/admission.hpp"
#include "observe/line.hpp"
#include "observe/wake_signal.hpp"

namespace neap::observe {

class Server;

class Client {
 public:
  /// Above this number of unacknowledged answer bytes, no further line is parsed. Each answer counts as its bytes plus
  /// `answer_overhead_bytes`, for the connection's overhead.
  static constexpr std::size_t answers_bytes_max = 64 * 1024;
  static constexpr std::size_t unproven_answers_bytes_max = 4 * 1024, answer_overhead_bytes = 128;
  /// Above this number of unacknowledged bytes of log blocks, the next block is not read from the log.
  static constexpr std::size_t log_bytes_max = 512 * 1024;
  /// The limit of an unproven client's unread input while a line is answered. A proven client's limit is the receive window.
  static constexpr std::size_t unproven_input_bytes_max = 16 * 1024;
  /// Unread input of more than `input_pieces_max` pieces is copied into one piece, because a piece of one byte holds a whole card buffer.
  /// The copy does not count against the window, so the copy has a separate limit.
  static constexpr std::size_t input_pieces_max = 64;
  static constexpr std::size_t input_copied_bytes_max = 64 * 1024;
  static constexpr unsigned wrong_tokens_max = 3;

  Client(Server& server, net::Connection& connection);
  Client& operator=(Client&&) = delete;

  /// Runs the conversation from the first line to the end, and keeps `client` alive until then. MUST be started once.
  static task<void> converse(std::shared_ptr<Client> client);

  // Called by the network.
  void received(net::Buffer data);
  void writable() noexcept;
  void peer_closed() noexcept;
  void connection_gone() noexcept;

  // Used by commands.
  /// Waits until the connection accepts `data`. Returns false if the client is gone.
  [[nodiscard]] task<bool> send(net::Buffer data);
  /// Waits until fewer than `log_bytes_max` bytes are unacknowledged. Returns false if the client is gone.
  [[nodiscard]] task<bool> log_room();
  /// Sends one line. Characters other than printable ASCII become question marks.
  [[nodiscard]] task<bool> send_line(std::string text);
  /// Sends an answer as it is, when fewer than `answers_bytes_max` bytes of answers are unacknowledged. Returns false if the client is
  /// gone.
  [[nodiscard]] task<bool> send_text(std::string text);
  /// Copies and sends bytes of a log. The caller MUST have awaited `log_room`.
  [[nodiscard]] task<bool> send_bytes(std::span<const std::byte> bytes);
  /// Ends the conversation: no further line is answered, and queued output is still sent.
  void finish() noexcept { finished_ = true; }
  /// Ends the conversation after the answer to the current line.
  void finish_after() noexcept { last_line_ = true; }
  /// Resets the connection, so that the client sees that the output is incomplete.
  void abort() noexcept;
  /// Sets the function that powers the machine off, or reboots it, after the answer was sent. That function does not return.
  void end_with(void (*act)() noexcept) noexcept { machine_action_ = act; }
  /// Ends the conversation; `reason` is its last line and MUST be a static text.
  void end(std::string_view reason) noexcept;
  [[nodiscard]] bool over() const noexcept { return connection_ == nullptr || ended_ || finished_; }
  [[nodiscard]] bool all_acknowledged() const noexcept { return connection_ != nullptr && connection_->unacknowledged_bytes() == 0; }
  [[nodiscard]] WakeSignal& wake_signal() noexcept { return wake_signal_; }
  [[nodiscard]] unsigned core() const noexcept { return core_; }

  bool authorised = false;  ///< has sent the token
  bool proven = false;      ///< has a place among the proven clients
  /// Called by Server::prove: ends the time limit for the proof.
  void set_proven() noexcept {
    proven = true;
    proof_limit_.cancel();
  }
  unsigned wrong_tokens = 0;

  /// Ends the client because another client needs its place. MUST be called on the client's core. Returns true if the connection is being
  /// reset; the place is then free.
  [[nodiscard]] bool displace() noexcept;
  // MAY be called on any core:
  [[nodiscard]] net::Address address() const noexcept { return address_; }
  /// True after the first line that was answered.
  [[nodiscard]] bool answered() const noexcept { return answered_.load(std::memory_order_relaxed); }
  [[nodiscard]] Activity activity() const noexcept { return activity_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t progress_ns() const noexcept { return progress_ns_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t held_bytes() const noexcept { return held_bytes_.load(std::memory_order_relaxed); }
  void set_activity(Activity activity) noexcept { activity_.store(activity, std::memory_order_relaxed); }
  /// Sets the time of the client's last progress to now.
  void touch() noexcept;

 private:
  enum class Input : std::uint8_t { nothing, line, too_long, half };
  [[nodiscard]] task<Input> next_line();
  [[nodiscard]] Input rest_of_input();
  [[nodiscard]] task<void> serve();
  [[nodiscard]] task<void> close();
  [[nodiscard]] task<void> end_machine();
  /// Appends `data`. Returns false if that exceeds the client's limit of unread input.
  [[nodiscard]] bool keep_input(net::Buffer data);
  void note_held() noexcept;

  Server& server_;
  net::Connection* connection_;  // null: the connection has ended
  const net::Address address_;
  unsigned core_ = this_core();
  std::atomic<std::uint64_t> progress_ns_, held_bytes_{0};
  std::atomic<Activity> activity_{Activity::idle};
  std::atomic<bool> answered_{false};
  WakeSignal wake_signal_;
  Timer proof_limit_;
  net::Buffer input_;
  std::size_t input_pieces_ = 0;   // number of pieces of `input_`, or a higher number
  std::size_t answers_bytes_ = 0;  // bytes of answers since all output was last acknowledged
  LineReader lines_;
  void (*machine_action_)() noexcept = nullptr;
  std::string_view end_reason_;
  bool peer_closed_ = false, ended_ = false, finished_ = false;
  bool last_line_ = false;  ///< the current line is the last one
};

class ClientHandler final : public net::ConnectionHandler {
 public:
  explicit ClientHandler(std::shared_ptr<Client> client) noexcept : client_(std::move(client)) {}
  void received(net::Buffer data) override { client_->received(std::move(data)); }
  void writable() override { client_->writable(); }
  void peer_closed() override { client_->peer_closed(); }
  void closed() override { client_->connection_gone(); }

 private:
  std::shared_ptr<Client> client_;
};

}  // namespace neap::observe
