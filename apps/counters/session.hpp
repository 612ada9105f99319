// SPDX-License-Identifier: BSL-1.0
// One client's requests: lines of text, answered in order.
//
//   add NAME          adds one; answers the new value
//   get NAME          answers the value, or "none"
//   remove NAME       answers "removed" or "none"
//   list              answers all names
//   wait NAME...      answers the new values when all these counters have changed, or "timeout" after 5 s
//
// `wait` is a task that may outlive its connection, so it shares the session with the connection's handler.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apps/counters/service.hpp"
#include "kernel/cancellation.hpp"
#include "kernel/task.hpp"
#include "net/network.hpp"

namespace neap::counters {

class Session : public std::enable_shared_from_this<Session> {
 public:
  static constexpr std::size_t input_bytes_max = 4096;  ///< bytes of lines that are not answered yet
  static constexpr std::size_t names_max = 16;

  Session(Service& service, net::Connection& connection) : service_(service), connection_(&connection) {}

  void received(net::Buffer data);
  /// Called when the connection is gone. Cancels a `wait` in progress.
  void closed() noexcept;

 private:
  void answer_lines();
  /// Returns the answer to one line. It is empty if a task will send the answer later.
  [[nodiscard]] std::string answer(std::string_view line);
  void send(std::string_view text);

  static task<void> answer_wait(std::shared_ptr<Session> session, std::vector<std::string> names);
  [[nodiscard]] task<std::string> changes(std::vector<std::string> names);
  [[nodiscard]] task<std::uint64_t> change_of(std::string name);

  Service& service_;
  net::Connection* connection_;       // null once the connection is gone
  std::optional<Cancellation> wait_;  // cancels the `wait` in progress
  std::string input_;                 // input that is not answered yet
};

/// Makes the session of a connection, on the connection's core.
[[nodiscard]] std::unique_ptr<net::ConnectionHandler> accept(Service& service, net::Connection& connection);

}  // namespace neap::counters
