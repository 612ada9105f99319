// SPDX-License-Identifier: BSL-1.0
#include "apps/tpcc/session.hpp"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstring>
#include <new>
#include <span>
#include <utility>

#include "kernel/log.hpp"
#include "kernel/panic.hpp"

namespace neap::tpcc {
namespace {

using namespace std::chrono_literals;

/// How often a session looks whether a check of consistency has ended, and tries a transaction that was postponed.
constexpr std::chrono::nanoseconds pause_poll = 1ms;
/// A part of a refused send that is never sent (`request_room`).
constinit std::byte never_sent{};

class Refusal final : public Handler {
 public:
  void received(net::Buffer) override {}
  [[nodiscard]] Session* session() noexcept override { return nullptr; }
};

}  // namespace

/// A line of which a part has arrived. The bytes are copied, so that the card's buffers become free.
struct Session::Line {
  std::uint32_t bytes = 0;
  bool whole = false;
  char text[line_bytes_max + 2];
};

/// The replies of one event, in the core's memory.
class Session::Output {
 public:
  explicit Output(Session& session) noexcept : session_(session), bytes_(session.core_.output.get()) {}
  ~Output() { flush(); }
  Output& operator=(Output&&) = delete;

  /// Returns room for `bytes` bytes, up to `output_bytes`.
  [[nodiscard]] char* room(std::size_t bytes) noexcept {
    if (CoreState::output_bytes - used_ < bytes) flush();
    return bytes_ + used_;
  }
  void commit(std::size_t bytes) noexcept { used_ += bytes; }
  void put(std::string_view text) noexcept {
    if (text.empty()) return;
    std::memcpy(room(text.size()), text.data(), text.size());
    commit(text.size());
  }
  void put(std::uint64_t number) noexcept {
    char digits[20];
    put({digits, static_cast<std::size_t>(std::to_chars(digits, digits + sizeof digits, number).ptr - digits)});
  }
  [[nodiscard]] std::size_t bytes() const noexcept { return used_; }
  void flush() noexcept {
    if (used_ != 0) session_.send({bytes_, std::exchange(used_, 0)});
  }

 private:
  Session& session_;
  char* bytes_;
  std::size_t used_ = 0;
};

std::unique_ptr<net::ConnectionHandler> accept(Service& service, net::Connection& connection, unsigned core) {
  CoreState& state = service.core(core);
  if (!service.admit()) {
    state.statistics.connections_refused.add();
    constexpr std::string_view refusal = "ERROR Too many open connections\r\n";
    (void)connection.send_copy(std::as_bytes(std::span(refusal)));
    connection.close();
    return std::make_unique<Refusal>();
  }
  std::unique_ptr<Session> session(new (std::nothrow) Session(state));
  if (session == nullptr) service.release();
  return session;
}

Session::Session(CoreState& core) noexcept : core_(core) { core_.statistics.connections_accepted.add(); }

Session::~Session() {
  core_.statistics.connections_closed.add();
  core_.service->release();
}

void Session::closed() {
  ended_ = true;
  later_.cancel();
  input_.clear();
}

void Session::abort() noexcept {
  if (std::exchange(ended_, true)) return;
  core_.statistics.connections_aborted.add();
  connection().abort();
}

void Session::end_idle() noexcept {
  if (std::exchange(ended_, true)) return;
  core_.statistics.connections_idle_closed.add();
  connection().abort();  // an orderly close would keep the connection's memory until the silent client answers
}

void Session::received(net::Buffer data) {
  if (ended_ || quit_) return;
  core_.statistics.bytes_received.add(data.bytes());
  input_.append(std::move(data));
  work();
}

void Session::writable() {
  if (ended_ || !output_waits_) return;
  if (connection().unacknowledged_bytes() > in_flight_bytes_max / 2) return request_room();
  output_waits_ = false;
  work();
}

void Session::peer_closed() {
  peer_closed_ = true;
  if (!ended_) work();
}

void Session::work_later(std::chrono::nanoseconds delay) noexcept {
  if (!later_.pending()) later_.arm(delay, [this] { work(); });
}

void Session::work() noexcept {
  if (ended_ || output_waits_) return;
  if (later_.pending()) return;  // further input is handled after that of the earlier events
  bool all_done = true;
  {
    Output output(*this);
    const std::uint64_t requests_before = core_.statistics.requests.value();
    while (!ended_ && !quit_ && step(output) == Step::done) {
      if (connection().unacknowledged_bytes() + output.bytes() > in_flight_bytes_max) {
        output_waits_ = true;
        break;
      }
      if (core_.statistics.requests.value() - requests_before >= core_.service->settings.requests_per_event) {
        core_.statistics.yields.add();
        work_later(0ns);
        break;
      }
    }
    log::count_requests(core_.statistics.requests.value() - requests_before);
    all_done = !output_waits_ && !later_.pending();
  }
  if (ended_) return;
  if (output_waits_) {
    core_.statistics.output_waits.add();
    return request_room();
  }
  if (quit_ || (peer_closed_ && all_done)) {
    ended_ = true;
    input_.clear();
    connection().close();
  }
}

// --- Input -------------------------------------------------------------------------------------------------------------------------------
Session::Step Session::step(Output& output) noexcept {
  if (value_left_ != 0) {
    if (input_.empty()) return Step::waits;
    skip_value(output);
    return Step::done;
  }
  std::string_view line;
  if (!take_line(line, output)) return Step::waits;
  return handle(line, output);
}

/// Finds the next line. It is whole in one piece, or it is copied into `line_`. Returns false if its end has not arrived.
bool Session::take_line(std::string_view& line, Output& output) noexcept {
  const auto without_end = [](std::string_view whole) {
    whole.remove_suffix(1);
    if (whole.ends_with('\r')) whole.remove_suffix(1);
    return whole;
  };
  if (line_bytes_ != 0) {
    line = without_end({reinterpret_cast<const char*>(input_.front().data()), line_bytes_});
    return true;
  }
  while (line_ == nullptr || !line_->whole) {
    if (input_.empty()) return false;
    const std::string_view front(reinterpret_cast<const char*>(input_.front().data()), input_.front().size());
    const std::size_t held = line_ == nullptr ? 0 : line_->bytes;
    const std::string_view looked_at = front.substr(0, line_bytes_max + 2 - held);
    const std::size_t end = looked_at.find('\n');
    if (end == looked_at.npos && held + looked_at.size() == line_bytes_max + 2) {
      // The rest of such a line cannot be told from commands, so the connection ends, as memcached's does.
      core_.statistics.errors.add();
      output.put("CLIENT_ERROR line too long\r\n");
      quit_ = true;
      return false;
    }
    const std::size_t bytes = end == looked_at.npos ? looked_at.size() : end + 1;
    if (held == 0 && end != looked_at.npos) {
      line_bytes_ = static_cast<std::uint32_t>(bytes);
      line = without_end(front.substr(0, bytes));
      return true;
    }
    if (line_ == nullptr) {
      line_.reset(new (std::nothrow) Line);
      if (line_ == nullptr) {
        abort();
        return false;
      }
    }
    std::memcpy(line_->text + held, looked_at.data(), bytes);
    line_->bytes += static_cast<std::uint32_t>(bytes);
    line_->whole = end != looked_at.npos;
    input_.drop_front(bytes);
  }
  line = without_end({line_->text, line_->bytes});
  return true;
}

void Session::drop_line() noexcept {
  if (line_bytes_ != 0) {
    input_.drop_front(std::exchange(line_bytes_, 0));
  } else {
    line_.reset();
  }
  keys_at_ = 0;
}

/// Drops bytes of a value. The last two MUST be a line end.
void Session::skip_value(Output& output) noexcept {
  while (value_left_ != 0 && !input_.empty()) {
    const std::size_t bytes = std::min<std::size_t>(input_.front().size(), value_left_);
    for (std::size_t i = value_left_ > 2 ? std::min<std::size_t>(value_left_ - 2, bytes) : 0; i < bytes; ++i) {
      const char wanted = value_left_ - i == 2 ? '\r' : '\n';
      if (static_cast<char>(input_.front()[i]) != wanted && !value_answer_.empty()) value_answer_ = "CLIENT_ERROR bad data chunk\r\n";
    }
    value_left_ -= static_cast<std::uint32_t>(bytes);
    input_.drop_front(bytes);
  }
  if (value_left_ == 0) output.put(std::exchange(value_answer_, {}));
}

// --- Commands ----------------------------------------------------------------------------------------------------------------------------
Session::Step Session::handle(std::string_view line, Output& output) noexcept {
  if (keys_at_ == 0) {
    const Command command = parse_line(line);
    switch (command.kind) {
      case Command::Kind::get:
        with_unique_ = command.with_unique;
        keys_at_ = static_cast<std::uint32_t>(command.keys.data() - line.data());
        break;
      case Command::Kind::set:
        core_.statistics.sets.add();
        value_left_ = command.value_bytes + 2;
        value_answer_ = command.no_reply ? std::string_view() : command.answer;
        drop_line();
        return Step::done;
      case Command::Kind::statistics:
        report_statistics(output);
        break;
      case Command::Kind::quit:
        quit_ = true;
        break;
      case Command::Kind::refused:
        core_.statistics.errors.add();
        [[fallthrough]];
      case Command::Kind::answer:
        if (!command.no_reply) output.put(command.answer);
        break;
    }
    if (keys_at_ == 0) {
      drop_line();
      return Step::done;
    }
  }
  if (core_.paused.load(std::memory_order_relaxed)) {
    work_later(pause_poll);
    return Step::waits;
  }
  std::string_view keys = line.substr(keys_at_);
  const std::string_view key = take_word(keys);
  char* const to = output.room(reply_bytes_max);
  const Answer answer = core_.terminal->run(std::span<char, answer_bytes_max>(to + key_bytes_max + 48, answer_bytes_max));
  if (answer.ending == Ending::postponed) {
    core_.statistics.postponements.add();
    work_later(pause_poll);
    return Step::waits;
  }
  core_.statistics.requests.add();
  count_ending(core_.statistics.transactions[static_cast<std::size_t>(answer.type)], answer.ending, answer.attempts);
  if (answer.ending == Ending::conflict || answer.ending == Ending::no_memory) {
    // An error takes the place of all values that follow, as memcached's does.
    output.put(answer.ending == Ending::conflict ? "SERVER_ERROR conflict\r\n" : "SERVER_ERROR out of memory\r\n");
    drop_line();
    return Step::done;
  }
  char* at = to;
  const auto put = [&at](std::string_view text) { at = static_cast<char*>(std::memcpy(at, text.data(), text.size())) + text.size(); };
  put("VALUE ");
  put(key);
  put(" 0 ");
  at = std::to_chars(at, at + 20, answer.bytes).ptr;
  if (with_unique_) put(" 0");
  put("\r\n");
  std::memmove(at, to + key_bytes_max + 48, answer.bytes);
  at += answer.bytes;
  put("\r\n");
  output.commit(static_cast<std::size_t>(at - to));
  keys_at_ = static_cast<std::uint32_t>(line.size() - keys.size());
  if (take_word(keys).empty()) {
    output.put("END\r\n");
    drop_line();
  }
  return Step::done;
}

void Session::report_statistics(Output& output) noexcept {
  const auto line = [&output](std::string_view name, std::uint64_t value) {
    output.put("STAT ");
    output.put(name);
    output.put(" ");
    output.put(value);
    output.put("\r\n");
  };
  // An allocation may fail, because the names are put together. The client then gets an answer without END, so it is told by a reset.
  try {
    line("pid", 1);
    line("threads", core_.service->core_count);
    line("curr_connections", core_.service->connections());
    std::uint64_t transactions = 0, sets = 0;
    for (unsigned index = 0; index < core_.service->core_count; ++index) {
      const Statistics& statistics = core_.service->core(index).statistics;
      transactions += statistics.requests.value();
      sets += statistics.sets.value();
    }
    line("cmd_get", transactions);
    line("cmd_set", sets);
    core_.service->report(std::nullopt, line);
    output.put("END\r\n");
  } catch (const std::bad_alloc&) {
    abort();
  }
}

// --- Output ------------------------------------------------------------------------------------------------------------------------------
void Session::send(std::string_view bytes) noexcept {
  if (ended_) return;
  core_.statistics.bytes_sent.add(bytes.size());
  const auto span = std::as_bytes(std::span(bytes));
  if (bytes.size() <= net::Connection::send_copy_bytes_max && connection().send_copy(span)) return;
  // The connection has room for `in_flight_bytes_max` bytes and those of one event, so a refusal means that there is no memory.
  net::Buffer copy = net::Buffer::copy(span);
  if (copy.empty() || !connection().send(std::move(copy))) abort();
}

/// The connection calls `writable` when there is room for the last refused `send`, or when all bytes are acknowledged. A client may delay
/// its last acknowledgement by 40 ms. So a send that is certain to be refused asks for the room that half of the limit leaves.
void Session::request_room() noexcept {
  constexpr std::size_t wanted = net::Connection::send_queue_bytes_max - in_flight_bytes_max / 2;
  if (connection().send_space_bytes() >= wanted) {
    output_waits_ = false;
    return work_later(0ns);
  }
  net::Buffer never = net::Buffer::reference({&never_sent, wanted}, nullptr, nullptr);
  if (never.empty()) return;  // `writable` follows when all is acknowledged
  require(!connection().send(std::move(never)), "tpcc: a send beyond the room is refused", wanted);
}

}  // namespace neap::tpcc
