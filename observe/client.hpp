// SPDX-License-Identifier: BSL-1.0
// One client's conversation: line by line, each answered before the next is looked at.
//
// A command may have to visit every core, so the conversation is a task; the network's calls only leave word for it and ring its bell. A
// client that sends more than it reads is stopped by its own window: while an answer waits for room, received buffers are kept and nothing
// is parsed. So a client holds at most one line, a receive window, what the connection queues and one piece of a log.
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
#include "net/network.hpp"
#include "observe/bell.hpp"
#include "observe/line.hpp"

namespace neap::observe {

class Server;

class Client {
 public:
  /// Answers that wait to be acknowledged; with more of them, no further line is looked at.
  static constexpr std::size_t answers_bytes_max = 64 * 1024;
  static constexpr unsigned wrong_tokens_max = 3;

  Client(Server& server, net::Connection& connection);
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  /// Everything, from the first line to the end. Keeps `client` until then. Started once.
  static task<void> converse(std::shared_ptr<Client> client);

  // From the network.
  void received(net::Buffer data);
  void writable() noexcept { bell_.ring(); }
  void peer_closed() noexcept;
  void connection_gone() noexcept;

  // For commands.
  /// Waits until the connection takes it. False: the client is gone.
  [[nodiscard]] task<bool> send(net::Buffer data);
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
  [[nodiscard]] bool over() const noexcept { return connection_ == nullptr || displaced_ || finished_; }
  [[nodiscard]] bool all_acknowledged() const noexcept { return connection_ != nullptr && connection_->unacknowledged_bytes() == 0; }
  [[nodiscard]] Bell& bell() noexcept { return bell_; }
  [[nodiscard]] unsigned core() const noexcept { return core_; }

  bool authorised = false;  ///< has sent the token
  unsigned wrong_tokens = 0;

  // For Clients.
  /// Somebody else needs the place; on the client's core.
  void displace() noexcept;
  /// When something of this client's last went through; `busy` while a command works for it. Any core.
  static constexpr std::uint64_t busy = ~std::uint64_t{0};
  [[nodiscard]] std::uint64_t active_ns() const noexcept { return active_ns_.load(std::memory_order_relaxed); }
  void set_active(std::uint64_t now_ns) noexcept { active_ns_.store(now_ns, std::memory_order_relaxed); }
  void touch() noexcept;

 private:
  enum class Got : std::uint8_t { nothing, line, too_long, half };
  [[nodiscard]] task<Got> next_line();
  [[nodiscard]] task<void> serve();
  [[nodiscard]] task<void> end_machine();

  Server& server_;
  net::Connection* connection_;  // null: gone
  unsigned core_ = this_core();
  std::atomic<std::uint64_t> active_ns_;
  Bell bell_;
  net::Buffer input_;
  LineReader lines_;
  void (*act_)() noexcept = nullptr;
  bool peer_closed_ = false;
  bool displaced_ = false;
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
