// SPDX-License-Identifier: BSL-1.0
#include "observe/client.hpp"

#include <algorithm>
#include <new>
#include <span>
#include <utility>
#include <vector>

#include "kernel/machine.hpp"
#include "kernel/panic.hpp"
#include "observe/server.hpp"

namespace neap::observe {
namespace {

using std::chrono::milliseconds;

/// Time limits before the machine ends: for the last answer to be read, and for the peer's FIN to be acknowledged.
constexpr milliseconds last_answer_limit{200};
constexpr milliseconds last_acknowledgement{5};

/// The time limit for an unproven client's output, and for a peer's close after all output was acknowledged.
constexpr milliseconds close_limit{1'000};
constexpr milliseconds close_look{100};
/// The interval at which `stream` checks if a slow client has room again. The connection reports room only when all output was
/// acknowledged.
constexpr milliseconds log_room_look{10};

}  // namespace

Client::Client(Server& server, net::Connection& connection)
    : server_(server), connection_(&connection), address_(connection.remote().address), progress_ns_(machine::now_ns()) {}

// --- From the network --------------------------------------------------------------------------------------------------------------------
void Client::received(net::Buffer data) {
  require(this_core() == core_, "a client receives on its own core", core_);
  if (over()) return;
  if (!keep_input(std::move(data))) {
    count(server_.counters().input_cut);
    abort();
    return;
  }
  if (activity() == Activity::idle) touch();
  note_held();
  wake_signal_.notify();
}

bool Client::keep_input(net::Buffer data) {
  const auto pieces_of = [](const net::Buffer& buffer) {
    std::size_t pieces = 0;
    for (const net::Buffer::Piece* piece = buffer.first(); piece != nullptr; piece = piece->next) ++pieces;
    return pieces;
  };
  input_pieces_ += pieces_of(data);
  input_.append(std::move(data));
  if (!proven && activity() != Activity::idle && input_.bytes() > unproven_input_bytes_max) return false;
  if (input_pieces_ <= input_pieces_max) return true;
  input_pieces_ = pieces_of(input_);  // pieces are counted again, because some may have been read
  if (input_pieces_ <= input_pieces_max || input_.bytes() / input_pieces_ >= net::Connection::copy_bytes_max) return true;
  if (input_.bytes() > input_copied_bytes_max) return false;
  std::vector<std::byte> joined(input_.bytes());
  const std::size_t copied = input_.peek(joined);
  require(copied == joined.size(), "a buffer holds the bytes that it counts", copied);
  input_ = net::Buffer::copy(joined);
  if (input_.empty()) throw std::bad_alloc();
  input_pieces_ = 1;
  return true;
}

void Client::writable() noexcept {
  note_held();
  wake_signal_.notify();
}

void Client::peer_closed() noexcept {
  peer_closed_ = true;
  wake_signal_.notify();
}

void Client::connection_gone() noexcept {
  connection_ = nullptr;
  input_.clear();
  note_held();
  wake_signal_.notify();
}

bool Client::displace() noexcept {
  require(this_core() == core_, "a client is displaced on its own core", core_);
  // A client that does not read delays an orderly close, so its connection is reset.
  const bool reads = connection_ != nullptr && connection_->unacknowledged_bytes() <= unproven_answers_bytes_max;
  const bool at_once = !proven || activity() == Activity::closing || !reads;
  if (at_once) {
    abort();
  } else {
    end("error: closed, since others need the place and this client was idle for longest");
  }
  return at_once;
}

void Client::end(std::string_view reason) noexcept {
  ended_ = true;
  end_reason_ = reason;
  wake_signal_.notify();
}

void Client::touch() noexcept { progress_ns_.store(machine::now_ns(), std::memory_order_relaxed); }

void Client::note_held() noexcept {
  const std::size_t output = connection_ == nullptr ? 0 : connection_->unacknowledged_bytes();
  held_bytes_.store(input_.bytes() + output, std::memory_order_relaxed);
}

void Client::abort() noexcept {
  finished_ = true;
  input_.clear();
  if (connection_ != nullptr) connection_->abort();
  wake_signal_.notify();
}

// --- The conversation --------------------------------------------------------------------------------------------------------------------
task<void> Client::converse(std::shared_ptr<Client> client) {
  try {
    client->proof_limit_.arm(client->server_.environment().proof_limit, [&self = *client] {
      if (self.proven || self.over()) return;
      count(self.server_.counters().unproven_expired);
      self.end(self.server_.options().token.empty() ? "error: closed, since no valid line came in time"
                                                    : "error: closed, since no token came in time");
    });
    co_await client->serve();
    client->proof_limit_.cancel();
    co_await client->close();
  } catch (const std::bad_alloc&) {
    count(client->server_.counters().out_of_memory);
    client->abort();
  }
  client->proof_limit_.cancel();
  client->input_.clear();
  client->server_.clients().leave(*client);
}

task<Client::Input> Client::next_line() {
  for (;;) {
    if (over()) co_return Input::nothing;
    while (!input_.empty()) {
      const std::span<const std::byte> front = input_.front();
      std::string_view bytes(reinterpret_cast<const char*>(front.data()), front.size());
      const LineReader::Outcome outcome = lines_.take(bytes);
      require(bytes.size() <= front.size(), "a line is read from the bytes that were given", bytes.size());
      input_.drop_front(front.size() - bytes.size());
      note_held();
      if (outcome == LineReader::Outcome::line) co_return Input::line;
      if (outcome == LineReader::Outcome::too_long) co_return Input::too_long;
    }
    if (peer_closed_) co_return rest_of_input();
    co_await wake_signal_.wait();
  }
}

/// The last line has no line feed if the client closed its side behind it. EbbRT's clients do so.
Client::Input Client::rest_of_input() {
  if (!lines_.halfway()) return Input::nothing;
  if (server_.options().dialect != Dialect::ebbrt) return Input::half;
  return lines_.end() == LineReader::Outcome::line ? Input::line : Input::too_long;
}

task<void> Client::serve() {
  for (;;) {
    const Input got = co_await next_line();
    if (got == Input::nothing) break;
    std::string answer;
    if (got == Input::line) {
      set_activity(Activity::busy);
      touch();
      answer = co_await server_.answer(*this, lines_.text());
    } else if (got == Input::too_long) {
      count(server_.counters().lines_too_long);
      answer = server_.refuse("line too long (" + std::to_string(line_bytes_max) + " bytes at most)");
    } else {
      count(server_.counters().lines_half);
      answer = server_.refuse("the last line has no end, so it was not carried out");
      finish();
    }
    answered_.store(true, std::memory_order_relaxed);
    bool sent = true;
    set_activity(Activity::busy);
    if (!answer.empty()) {
      const bool finished = std::exchange(finished_, false);  // so that `send_line` still sends the answer
      sent = co_await send_line(std::move(answer));
      finished_ = finished_ || finished;
    }
    if (machine_action_ != nullptr) co_await end_machine();  // the machine also ends if the client is gone
    if (!sent || over() || last_line_) break;
    set_activity(Activity::idle);
    touch();
    co_await next_event();
  }
}

/// Closes the connection after all output was sent, and counts as one of the server's clients until then. Otherwise a peer could have any
/// number of connections with output that it does not read.
task<void> Client::close() {
  set_activity(Activity::closing);
  input_.clear();
  if (connection_ == nullptr) co_return;
  if (!end_reason_.empty()) {
    const std::string line = std::string(end_reason_) + '\n';
    static_cast<void>(connection_->send(net::Buffer::copy(std::as_bytes(std::span(line)))));
  }
  connection_->close();
  std::size_t left = ~std::size_t{0};
  std::uint64_t since_ns = 0;
  while (connection_ != nullptr) {
    note_held();
    const std::uint64_t now_ns = machine::now_ns();
    const std::size_t unacknowledged = connection_->unacknowledged_bytes();
    if (unacknowledged < left) {
      left = unacknowledged;
      since_ns = now_ns;
      touch();
    }
    const std::chrono::nanoseconds limit = proven && !ended_ && left > 0 ? server_.environment().drain_limit : close_limit;
    if (now_ns - since_ns >= static_cast<std::uint64_t>(limit.count())) {
      count(server_.counters().closes_cut);
      abort();
      co_return;
    }
    co_await wake_signal_.wait_for(close_look);
  }
}

task<void> Client::end_machine() {
  if (connection_ != nullptr) connection_->end_sending();
  const std::uint64_t until_ns = machine::now_ns() + std::chrono::nanoseconds(last_answer_limit).count();
  for (std::uint64_t now = machine::now_ns(); connection_ != nullptr && now < until_ns; now = machine::now_ns()) {
    co_await wake_signal_.wait_for(std::chrono::nanoseconds(until_ns - now));
  }
  co_await sleep_for(last_acknowledgement);
  machine_action_();
}

task<bool> Client::send(net::Buffer data) {
  require(this_core() == core_, "a client's output is sent on its own core", core_);
  for (;;) {
    if (over()) co_return false;
    const Result<void> sent = connection_->send(std::move(data));
    if (sent) {
      touch();
      note_held();
      co_return true;
    }
    if (sent.error().code != ErrorCode::full) co_return false;
    co_await wake_signal_.wait();
  }
}

task<bool> Client::log_room() {
  while (!over() && connection_->unacknowledged_bytes() >= log_bytes_max) co_await wake_signal_.wait_for(log_room_look);
  co_return !over();
}

task<bool> Client::send_line(std::string text) {
  std::replace_if(text.begin(), text.end(), [](char letter) { return letter < ' ' || letter > '~'; }, '?');
  text += '\n';
  co_return co_await send_text(std::move(text));
}

task<bool> Client::send_bytes(std::span<const std::byte> bytes) {
  net::Buffer copy = net::Buffer::copy(bytes);
  if (copy.empty()) throw std::bad_alloc();
  co_return co_await send(std::move(copy));
}

task<bool> Client::send_text(std::string text) {
  // `writable` is called when all output is acknowledged.
  const auto room = [this] {
    if (all_acknowledged()) answers_bytes_ = 0;
    return answers_bytes_ <= (proven ? answers_bytes_max : unproven_answers_bytes_max);
  };
  while (!over() && !room()) co_await wake_signal_.wait();
  answers_bytes_ += text.size() + answer_overhead_bytes;
  co_return co_await send_bytes(std::as_bytes(std::span(text)));
}

}  // namespace neap::observe
