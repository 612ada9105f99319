// SPDX-License-Identifier: BSL-1.0
#include "observe/client.hpp"

#include <algorithm>
#include <new>
#include <span>
#include <utility>

#include "kernel/machine.hpp"
#include "observe/server.hpp"

namespace neap::observe {
namespace {

using std::chrono::milliseconds;

/// What the last answer has to reach its reader before the machine goes, and for the peer's close to be acknowledged.
constexpr milliseconds last_answer_limit{200};
constexpr milliseconds last_acknowledgement{5};

}  // namespace

Client::Client(Server& server, net::Connection& connection) : server_(server), connection_(&connection), active_ns_(machine::now_ns()) {}

// --- From the network --------------------------------------------------------------------------------------------------------------------

void Client::received(net::Buffer data) {
  if (over()) return;
  input_.append(std::move(data));
  if (active_ns() != busy) touch();
  bell_.ring();
}

void Client::peer_closed() noexcept {
  peer_closed_ = true;
  bell_.ring();
}

void Client::connection_gone() noexcept {
  connection_ = nullptr;
  input_.clear();
  bell_.ring();
}

void Client::displace() noexcept {
  displaced_ = true;
  bell_.ring();
}

void Client::touch() noexcept { set_active(machine::now_ns()); }

void Client::cut() noexcept {
  finished_ = true;
  if (connection_ != nullptr) connection_->abort();
}

// --- The conversation --------------------------------------------------------------------------------------------------------------------

task<void> Client::converse(std::shared_ptr<Client> client) {
  try {
    co_await client->serve();
  } catch (const std::bad_alloc&) {
    count(client->server_.counters().out_of_memory);
    client->cut();
  }
  client->input_.clear();
  client->server_.clients().leave(*client);
}

task<Client::Got> Client::next_line() {
  for (;;) {
    if (over()) co_return Got::nothing;
    while (!input_.empty()) {
      const std::span<const std::byte> front = input_.front();
      std::string_view bytes(reinterpret_cast<const char*>(front.data()), front.size());
      const LineReader::Outcome outcome = lines_.take(bytes);
      input_.drop_front(front.size() - bytes.size());
      if (outcome == LineReader::Outcome::line) co_return Got::line;
      if (outcome == LineReader::Outcome::too_long) co_return Got::too_long;
    }
    if (peer_closed_) co_return lines_.halfway() ? Got::half : Got::nothing;
    co_await bell_.wait();
  }
}

task<void> Client::serve() {
  for (;;) {
    const Got got = co_await next_line();
    if (got == Got::nothing) break;
    std::string answer;
    if (got == Got::line) {
      set_active(busy);
      answer = co_await server_.answer(*this, lines_.text());
      touch();
    } else if (got == Got::too_long) {
      count(server_.counters().lines_too_long);
      answer = server_.refuse("line too long (" + std::to_string(line_bytes_max) + " bytes at most)");
    } else {
      count(server_.counters().lines_half);
      answer = server_.refuse("the last line has no end, so it was not carried out");
      finish();
    }
    bool said = true;
    if (!answer.empty()) {
      const bool finished = std::exchange(finished_, false);  // this much is still to be said
      said = co_await say(std::move(answer));
      finished_ = finished;
    }
    if (act_ != nullptr) co_await end_machine();  // also if nobody waits for the answer any more
    if (!said || over() || last_line_) break;
    co_await next_event();
  }
  if (connection_ == nullptr) co_return;
  if (displaced_) {
    // A client that does not even read would keep the close waiting, too.
    if (!all_acknowledged()) {
      connection_->abort();
      co_return;
    }
    constexpr std::string_view why = "error: closed after a long silence, since others need the place\n";
    static_cast<void>(connection_->send(net::Buffer::copy(std::as_bytes(std::span(why)))));
  }
  connection_->close();
}

task<void> Client::end_machine() {
  if (connection_ != nullptr) connection_->end_sending();
  const std::uint64_t until_ns = machine::now_ns() + std::chrono::nanoseconds(last_answer_limit).count();
  for (std::uint64_t now = machine::now_ns(); connection_ != nullptr && now < until_ns; now = machine::now_ns()) {
    co_await bell_.wait_for(std::chrono::nanoseconds(until_ns - now));
  }
  co_await sleep_for(last_acknowledgement);
  act_();
}

task<bool> Client::send(net::Buffer data) {
  for (;;) {
    if (over()) co_return false;
    const Result<void> sent = connection_->send(std::move(data));
    if (sent) {
      touch();
      co_return true;
    }
    if (sent.error().code != ErrorCode::full) co_return false;
    co_await bell_.wait();
  }
}

task<bool> Client::say(std::string text) {
  std::replace_if(text.begin(), text.end(), [](char letter) { return letter < ' ' || letter > '~'; }, '?');
  text += '\n';
  // `writable` comes when all of it is acknowledged.
  while (!over() && connection_->unacknowledged_bytes() > answers_bytes_max) co_await bell_.wait();
  net::Buffer line = net::Buffer::copy(std::as_bytes(std::span(text)));
  if (line.empty()) throw std::bad_alloc();
  co_return co_await send(std::move(line));
}

}  // namespace neap::observe
