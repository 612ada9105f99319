// SPDX-License-Identifier: BSL-1.0
// The log's way out: one core's as a file (`get`), all cores' in blocks (`stream`).
//
// Both read other cores' logs where they lie, without a word to those cores, and do so in pieces of 8 KiB: one an event, so that the core
// goes on with its other work however long the log is. What a piece is copied into belongs to the connection until the client has
// acknowledged it; when the connection holds as much as it may, the task waits for the client.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "kernel/log.hpp"
#include "kernel/machine.hpp"
#include "observe/built_in.hpp"
#include "observe/server.hpp"
#include "observe/stream_block.hpp"

namespace neap::observe {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds alive_period{1000};  ///< a stream is not silent for longer
constexpr milliseconds live_period{50};     ///< lines of a live stream wait at most so long for company

/// Memory for a block: room for its header, then for so many lines. No more than that, since a client that does not read keeps it: a live
/// stream of an idle machine sends a line or two at a time.
class LinesBlock {
 public:
  explicit LinesBlock(std::size_t lines)
      : lines_(lines), memory_(std::make_unique_for_overwrite<std::byte[]>(sizeof(BlockHeader) + lines * log::record_bytes)) {}

  [[nodiscard]] std::span<log::Record> lines() noexcept {
    return {reinterpret_cast<log::Record*>(memory_.get() + sizeof(BlockHeader)), lines_};
  }
  /// The lines alone, as a buffer that owns the memory.
  [[nodiscard]] static net::Buffer without_header(LinesBlock block, std::size_t lines) {
    return hand_over(std::move(block), sizeof(BlockHeader), lines * log::record_bytes);
  }
  /// The same with `header` in front.
  [[nodiscard]] static net::Buffer with_header(LinesBlock block, const BlockHeader& header, std::size_t lines) {
    std::memcpy(block.memory_.get(), &header, sizeof header);
    return hand_over(std::move(block), 0, sizeof header + lines * log::record_bytes);
  }

 private:
  static net::Buffer hand_over(LinesBlock block, std::size_t first_byte, std::size_t bytes) {
    std::byte* const memory = block.memory_.release();
    net::Buffer buffer =
        net::Buffer::reference({memory + first_byte, bytes}, [](void* owner) noexcept { delete[] static_cast<std::byte*>(owner); }, memory);
    if (buffer.empty()) throw std::bad_alloc();
    return buffer;
  }

  std::size_t lines_;
  std::unique_ptr<std::byte[]> memory_;
};

net::Buffer copy_or_throw(std::span<const std::byte> bytes) {
  net::Buffer buffer = net::Buffer::copy(bytes);
  if (buffer.empty()) throw std::bad_alloc();
  return buffer;
}

/// Whether the logs are still this run's: to be asked after reading.
bool still(std::uint32_t run) noexcept { return log::state().run == run; }

/// Rings a bell whenever a run begins, ends or is forgotten.
class NewsOfRuns {
 public:
  explicit NewsOfRuns(Bell& bell) : id_(log::on_news([&bell] { bell.ring(); })) {}
  NewsOfRuns(const NewsOfRuns&) = delete;
  NewsOfRuns& operator=(const NewsOfRuns&) = delete;
  ~NewsOfRuns() { log::forget_news(id_); }

 private:
  unsigned id_;
};

/// One `stream`.
class Stream {
 public:
  Stream(Server& server, Client& client, std::uint32_t run, bool live, std::vector<std::uint64_t> positions)
      : server_(server), client_(client), run_(run), live_(live), positions_(std::move(positions)), news_(client.bell()) {}

  /// To the run's end, or the client's.
  [[nodiscard]] task<void> send_all();

 private:
  [[nodiscard]] bool run_is_on() const noexcept {
    const log::State state = log::state();
    return state.running && state.run == run_;
  }
  [[nodiscard]] task<bool> send_present_lines(unsigned core, std::uint64_t end, bool in_whole_blocks);
  [[nodiscard]] task<bool> send_gap(unsigned core, std::uint64_t until);
  [[nodiscard]] task<bool> send_end_of_core(unsigned core);
  [[nodiscard]] task<bool> send_block(BlockHeader header, std::span<const std::byte> payload);
  [[nodiscard]] task<bool> send_sealed(net::Buffer block);
  [[nodiscard]] task<bool> wait(std::chrono::nanoseconds at_most);
  [[nodiscard]] BlockHeader header_of(BlockType type, unsigned core) noexcept {
    return {.type = type,
            .core = static_cast<std::uint16_t>(core),
            .number = number_++,
            .position = positions_[core],
            .run = run_,
            .boot_id = server_.boot_id()};
  }
  /// Another run has begun, and the lines that are missing are gone.
  void overtaken() noexcept {
    count(server_.counters().streams_overtaken);
    client_.cut();
  }

  Server& server_;
  Client& client_;
  const std::uint32_t run_;
  const bool live_;
  std::vector<std::uint64_t> positions_;  // of the next line, by core
  NewsOfRuns news_;
  std::uint64_t number_ = 0;
  std::uint64_t sent_ns_ = machine::now_ns();
};

task<bool> Stream::send_sealed(net::Buffer block) {
  const bool sent = co_await client_.send(std::move(block));
  if (!sent) co_return false;
  count(server_.counters().stream_blocks);
  sent_ns_ = machine::now_ns();
  co_await next_event();
  co_return true;
}

task<bool> Stream::send_block(BlockHeader header, std::span<const std::byte> payload) {
  const bool room = co_await client_.log_room();
  if (!room) co_return false;
  header.seal(payload);
  net::Buffer block = copy_or_throw(std::as_bytes(std::span(&header, 1)));
  if (!payload.empty()) block.append(copy_or_throw(payload));
  co_return co_await send_sealed(std::move(block));
}

task<bool> Stream::send_gap(unsigned core, std::uint64_t until) {
  BlockHeader gap = header_of(BlockType::gap, core);
  gap.count = until - positions_[core];
  count(server_.counters().stream_gaps);
  count(server_.counters().stream_lines_lost, gap.count);
  positions_[core] = until;
  co_return co_await send_block(gap, {});
}

/// Sends what `core` has up to `end`; false: the stream is over.
task<bool> Stream::send_present_lines(unsigned core, std::uint64_t end, bool in_whole_blocks) {
  std::uint64_t& position = positions_[core];
  while (position < end) {
    if (in_whole_blocks && end - position < block_lines_max) break;
    const bool room = co_await client_.log_room();
    if (!room) co_return false;
    LinesBlock block(std::min<std::uint64_t>(block_lines_max, end - position));
    const std::size_t lines = log::read(core, position, block.lines());
    const std::uint64_t first = log::extent(core).first;
    if (!still(run_)) {
      overtaken();
      co_return false;
    }
    if (lines == 0) {
      if (first <= position) break;  // not there after all: it will be next time
      const bool told = co_await send_gap(core, std::min(first, end));
      if (!told) co_return false;
      continue;
    }
    BlockHeader header = header_of(BlockType::lines, core);
    header.count = lines;
    header.seal(std::as_bytes(block.lines().first(lines)));
    position += lines;
    const bool sent = co_await send_sealed(LinesBlock::with_header(std::move(block), header, lines));
    if (!sent) co_return false;
    count(server_.counters().stream_lines, lines);
  }
  co_return true;
}

task<bool> Stream::send_end_of_core(unsigned core) {
  const log::Extent extent = log::extent(core);
  if (!still(run_) || positions_[core] != extent.end) {
    overtaken();
    co_return false;
  }
  const Header file_header = make_header(server_.boot(), {.run = run_, .core = core, .extent = extent});
  BlockHeader header = header_of(BlockType::header, core);
  header.position = extent.first;
  header.count = extent.end - extent.first;
  const bool sent = co_await send_block(header, file_header);
  if (!sent) co_return false;
  BlockHeader end = header_of(BlockType::end_of_core, core);
  end.count = extent.end;
  co_return co_await send_block(end, {});
}

/// Until the bell rings, a time is over, or it is time to say that we are alive. False: the client is gone.
task<bool> Stream::wait(std::chrono::nanoseconds at_most) {
  const std::uint64_t silent_ns = machine::now_ns() - sent_ns_;
  const auto until_alive =
      std::max(std::chrono::nanoseconds(alive_period) - std::chrono::nanoseconds(silent_ns), std::chrono::nanoseconds(0));
  co_await client_.bell().wait_for(std::min(at_most, until_alive));
  if (client_.over()) co_return false;
  if (machine::now_ns() - sent_ns_ < static_cast<std::uint64_t>(std::chrono::nanoseconds(alive_period).count())) co_return true;
  if (!client_.all_acknowledged()) {  // somebody who does not listen needs no sign of life
    sent_ns_ = machine::now_ns();
    co_return true;
  }
  BlockHeader alive = header_of(BlockType::alive, 0);
  alive.position = 0;
  co_return co_await send_block(alive, {});
}

task<void> Stream::send_all() {
  const unsigned cores = static_cast<unsigned>(positions_.size());
  std::uint64_t gathered_ns = machine::now_ns();  // when lines last left however few they were
  while (run_is_on()) {
    bool go_on = true;
    if (live_) {
      const std::uint64_t now_ns = machine::now_ns();
      const bool in_whole_blocks = now_ns - gathered_ns < static_cast<std::uint64_t>(std::chrono::nanoseconds(live_period).count());
      if (!in_whole_blocks) gathered_ns = now_ns;
      for (unsigned core = 0; core < cores && go_on; ++core) {
        go_on = co_await send_present_lines(core, log::extent(core).end, in_whole_blocks);
      }
    }
    if (go_on && run_is_on()) go_on = co_await wait(live_ ? live_period : alive_period);
    if (!go_on) co_return;
  }
  if (!still(run_)) {
    overtaken();
    co_return;
  }
  std::uint64_t total = 0;
  for (unsigned core = 0; core < cores; ++core) {
    const std::uint64_t end = log::extent(core).end;
    const bool lines_sent = co_await send_present_lines(core, end, false);
    if (!lines_sent) co_return;
    const bool ended = co_await send_end_of_core(core);
    if (!ended) co_return;
    total += end;
  }
  BlockHeader end = header_of(BlockType::end, 0);
  end.position = 0;
  end.count = total;
  const bool told = co_await send_block(end, {});
  if (told) client_.finish();
}

/// With `overwrite`, the oldest lines of a run that is on go while they are being sent: those that would are left out.
std::uint64_t first_to_keep(const log::Extent& extent, bool running) noexcept {
  if (!running || extent.first == 0) return extent.first;
  return extent.first + (extent.end - extent.first) / 8;
}

}  // namespace

task<std::string> send_log_file(const Request& request) {
  Server& server = request.server;
  Client& client = request.client;
  if (!request.core) co_return "error: get takes one core";
  const unsigned core = *request.core;
  const log::State state = log::state();
  log::Extent extent = log::extent(core);
  extent.first = first_to_keep(extent, state.running);
  if (state.run == 0 || !still(state.run)) co_return "error: there is no run (start begins one)";
  count(server.counters().gets);

  const Header header = make_header(server.boot(), {.run = state.run, .core = core, .extent = extent});
  bool sent = co_await client.send(copy_or_throw(header));
  for (std::uint64_t position = extent.first; sent && position < extent.end;) {
    const bool room = co_await client.log_room();
    if (!room) break;
    LinesBlock block(std::min<std::uint64_t>(block_lines_max, extent.end - position));
    const std::size_t lines = log::read(core, position, block.lines());
    if (lines == 0 || !still(state.run)) {  // the file cannot become what its header promised
      count(server.counters().gets_overtaken);
      client.cut();
      co_return std::string();
    }
    position += lines;
    count(server.counters().get_lines, lines);
    sent = co_await client.send(LinesBlock::without_header(std::move(block), lines));
    co_await next_event();
  }
  co_return std::string();
}

task<std::string> send_log_stream(const Request& request) {
  Server& server = request.server;
  auto wish = parse_stream_wish(request.words, core_count());
  if (!wish) co_return "error: " + wish.error();
  const log::State state = log::state();
  if (state.run == 0) co_return "error: there is no run (start begins one)";
  if (wish->run && *wish->run != state.run) {
    co_return "error: run " + std::to_string(*wish->run) + " is not there: the last one is " + std::to_string(state.run);
  }
  for (unsigned core = 0; core < core_count(); ++core) {
    const std::uint64_t end = log::extent(core).end;
    if (wish->positions[core] <= end) continue;
    co_return "error: core " + std::to_string(core) + " has " + std::to_string(end) + " lines, so none at " +
        std::to_string(wish->positions[core]);
  }
  count(server.counters().streams);
  Stream stream(server, request.client, state.run, wish->live, std::move(wish->positions));
  const bool begun = co_await request.client.say("ok");
  if (begun) co_await stream.send_all();
  request.client.finish();
  co_return std::string();
}

}  // namespace neap::observe
