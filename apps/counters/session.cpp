// SPDX-License-Identifier: BSL-1.0
#include "apps/counters/session.hpp"

#include <algorithm>
#include <chrono>
#include <exception>
#include <span>
#include <utility>

#include "kernel/timer.hpp"
#include "kernel/when_all.hpp"

namespace neap::counters {
namespace {

using namespace std::chrono_literals;

constexpr auto wait_max = 5s;
constexpr auto look_interval = 10ms;
constexpr std::string_view blanks = " \r";

/// The handler is destroyed with its connection. The task of a `wait` may keep the session for longer than the connection exists.
class Handler final : public net::ConnectionHandler {
 public:
  explicit Handler(std::shared_ptr<Session> session) : session_(std::move(session)) {}
  void received(net::Buffer data) override { session_->received(std::move(data)); }
  void closed() override { session_->closed(); }

 private:
  std::shared_ptr<Session> session_;
};

std::string_view take_word(std::string_view& line) {
  line.remove_prefix(std::min(line.find_first_not_of(blanks), line.size()));
  const std::string_view word = line.substr(0, line.find_first_of(blanks));
  line.remove_prefix(word.size());
  return word;
}

}  // namespace

std::unique_ptr<net::ConnectionHandler> accept(Service& service, net::Connection& connection) {
  return std::make_unique<Handler>(std::make_shared<Session>(service, connection));
}

void Session::received(net::Buffer data) {
  if (input_.size() + data.bytes() > input_bytes_max) return connection_->abort();
  const std::size_t before = input_.size();
  input_.resize(before + data.bytes());
  data.peek(std::as_writable_bytes(std::span(input_)).subspan(before));
  answer_lines();
}

void Session::closed() noexcept {
  connection_ = nullptr;
  if (wait_) wait_->request();
}

void Session::answer_lines() {
  while (!wait_ && connection_ != nullptr) {
    const std::size_t end = input_.find('\n');
    if (end == input_.npos) return;
    const std::string line = input_.substr(0, end);
    input_.erase(0, end + 1);
    statistics->requests.add();
    if (const std::string text = answer(line); !text.empty()) send(text);
  }
}

std::string Session::answer(std::string_view line) {
  const std::string_view command = take_word(line);
  if (command == "list") return service_.names() + '\n';
  std::vector<std::string> names;
  for (std::string_view name = take_word(line); !name.empty(); name = take_word(line)) names.emplace_back(name);
  if (names.empty() || names.size() > names_max) return "error: give 1 to 16 names\n";
  if (command == "wait") {
    wait_.emplace();
    start(answer_wait(shared_from_this(), std::move(names)));
    return {};
  }
  if (names.size() != 1) return "error: give one name\n";
  if (command == "add") {
    const auto value = service_.add(names[0]);
    return value ? std::to_string(*value) + '\n' : "error: too many counters\n";
  }
  if (command == "get") {
    const auto value = service_.value(names[0]);
    return value ? std::to_string(*value) + '\n' : "none\n";
  }
  if (command == "remove") return service_.remove(names[0]) ? "removed\n" : "none\n";
  return "error: add, get, remove, list or wait\n";
}

void Session::send(std::string_view text) {
  if (connection_ == nullptr) return;
  net::Buffer bytes = net::Buffer::copy(std::as_bytes(std::span(text)));
  // Aborts if there is no memory, or if the send queue is full because the client does not read its answers.
  if (bytes.empty() || !connection_->send(std::move(bytes))) connection_->abort();
}

// --- wait --------------------------------------------------------------------------------------------------------------------------------

// The time-out and the end of the connection cancel the wait by the same `Cancellation`.
task<void> Session::answer_wait(std::shared_ptr<Session> session, std::vector<std::string> names) {
  Cancellation& cancellation = *session->wait_;
  Timer timeout;
  timeout.arm(wait_max, [&cancellation] { cancellation.request(); });
  try {
    std::string text;
    try {
      text = co_await cancelled_by(cancellation, session->changes(std::move(names)));
    } catch (const Cancelled&) {
      text = "timeout\n";
    }
    session->wait_.reset();
    session->send(text);
    session->answer_lines();
  } catch (const std::exception&) {  // out of memory
    session->wait_.reset();
    if (session->connection_ != nullptr) session->connection_->abort();
  }
}

task<std::string> Session::changes(std::vector<std::string> names) {
  std::vector<task<std::uint64_t>> waits;
  for (std::string& name : names) waits.push_back(change_of(std::move(name)));
  const std::vector<std::uint64_t> values = co_await when_all(std::move(waits));
  std::string text;
  for (const std::uint64_t value : values) text += std::to_string(value) + ' ';
  text.back() = '\n';
  co_return text;
}

// Another core may change the counter, so this core polls it. Each poll is a separate event and looks the counter up again.
task<std::uint64_t> Session::change_of(std::string name) {
  const auto before = service_.value(name);
  for (;;) {
    co_await sleep_for(look_interval);
    if (const auto now = service_.value(name); now && now != before) co_return *now;
  }
}

}  // namespace neap::counters
