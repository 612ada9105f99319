// SPDX-License-Identifier: BSL-1.0
// One client's conversation: line by line, each answered before the next is looked at.
//
// A command may have to visit every core, so the conversation is a task; the network's calls only leave word for it and ring its bell. A
// client that sends more than it reads is stopped by its own window: while an answer waits for room, received buffers are kept and nothing
// is parsed. The constants below bound all that a client holds. A client that has proven nothing may hold little.
//
// All of it lives on the connection's core, but for what Clients (clients.hpp) asks of it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "kernel/task.hpp"
#include "kernel/timer.hpp"
#include "net/network.hpp"
#include "observe/admission.hpp"
#include "observe/bell.hpp"
#include "observe/line.hpp"

namespace neap::observe {

class Server;

class Client {
 public:
  /// Answers that wait to be acknowledged, each with `answer_overhead_bytes` for what the connection keeps with it; with more of them, no
  /// further line is looked at.
  static constexpr std::size_t answers_bytes_max = 64 * 1024;
  static constexpr std::size_t unproven_answers_bytes_max = 4 * 1024;
  static constexpr std::size_t answer_overhead_bytes = 128;
  /// Log blocks that wait to be acknowledged, after which the next one is not read.
  static constexpr std::size_t log_bytes_max = 512 * 1024;
  /// Unread input of an unproven client while a line of it is answered. Of a proven one it is the receive window.
  static constexpr std::size_t unproven_input_bytes_max = 16 * 1024;
  /// Unread input in more pieces than this is copied together, since a piece of one byte keeps a whole buffer of the card. Such a copy no
  /// longer closes the window, so it has a bound of its own.
  static constexpr std::size_t input_pieces_max = 64;
  static constexpr std::size_t input_copied_bytes_max = 64 * 1024;
  static constexpr unsigned wrong_tokens_max = 3;

  Client(Server& server, net::Connection& connection);
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  /// Everything, from the first line to the end. Keeps `client` until then. Started once.
  static task<void> converse(std::shared_ptr<Client> client);

  // From the network.
  void received(net::Buffer data);
  void writable() noexcept;
  void peer_closed() noexcept;
  void connection_gone() noexcept;

  // For commands.
  /// Waits until the connection takes it. False: the client is gone.
  [[nodiscard]] task<bool> send(net::Buffer data);
  /// Waits until fewer than `log_bytes_max` bytes are unacknowledged. False: the client is gone.
  [[nodiscard]] task<bool> log_room();
  /// One line; what is no printable ASCII in it is shown as a question mark.
  [[nodiscard]] task<bool> say(std::string text);
  /// No further line is answered; what was sent still leaves.
  void finish() noexcept { finished_ = true; }
  /// The same, once the present line was answered.
  void finish_after() noexcept { last_line_ = true; }
  /// What was sent cannot be made whole: the client shall see that.
  void cut() noexcept;
  /// After the answer has left: what to do to the machine, which does not return.
  void end_with(void (*act)() noexcept) noexcept { act_ = act; }
  /// Ends the conversation with a last line, `why`: a static text.
  void end(std::string_view why) noexcept;
  [[nodiscard]] bool over() const noexcept { return connection_ == nullptr || ended_ || finished_; }
  [[nodiscard]] bool all_acknowledged() const noexcept { return connection_ != nullptr && connection_->unacknowledged_bytes() == 0; }
  [[nodiscard]] Bell& bell() noexcept { return bell_; }
  [[nodiscard]] unsigned core() const noexcept { return core_; }

  bool authorised = false;  ///< has sent the token
  bool proven = false;      ///< has a place among the proven clients (`set_proven`)
  /// Called by Server::prove: nothing waits for the proof any more.
  void set_proven() noexcept {
    proven = true;
    proof_limit_.cancel();
  }
  unsigned wrong_tokens = 0;

  // For Clients.
  /// Another client needs the place; on the client's core. True: the connection is being reset, so the place is free.
  [[nodiscard]] bool displace() noexcept;
  // Any core:
  [[nodiscard]] net::Ipv4Address address() const noexcept { return address_; }
  [[nodiscard]] Activity activity() const noexcept { return activity_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t progress_ns() const noexcept { return progress_ns_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t held_bytes() const noexcept { return held_bytes_.load(std::memory_order_relaxed); }

  void set_activity(Activity activity) noexcept { activity_.store(activity, std::memory_order_relaxed); }
  /// Something of this client went through.
  void touch() noexcept;

 private:
  enum class Got : std::uint8_t { nothing, line, too_long, half };
  [[nodiscard]] task<Got> next_line();
  [[nodiscard]] task<void> serve();
  [[nodiscard]] task<void> close();
  [[nodiscard]] task<void> end_machine();
  /// Appends `data`; false: that is more than this client may have unread.
  [[nodiscard]] bool keep_input(net::Buffer data);
  void note_held() noexcept;

  Server& server_;
  net::Connection* connection_;  // null: gone
  const net::Ipv4Address address_;
  unsigned core_ = this_core();
  std::atomic<std::uint64_t> progress_ns_;
  std::atomic<std::uint64_t> held_bytes_{0};
  std::atomic<Activity> activity_{Activity::idle};
  Bell bell_;
  Timer proof_limit_;
  net::Buffer input_;
  std::size_t input_pieces_ = 0;   // of `input_`, at most
  std::size_t answers_bytes_ = 0;  // since all was last acknowledged
  LineReader lines_;
  void (*act_)() noexcept = nullptr;
  std::string_view why_ended_;
  bool peer_closed_ = false;
  bool ended_ = false;
  bool finished_ = false;
  bool last_line_ = false;  ///< this one
};

/// What the network holds of a client.
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
