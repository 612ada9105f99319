// SPDX-License-Identifier: BSL-1.0
// Sends one core's log as a file (`get`), or all cores' logs in blocks (`stream`).
//
// Both commands read other cores' logs in memory, without a remote call. They read 8 KiB an event, so that a long log does not delay the
// core's other work. The connection keeps the copied entries until the client has acknowledged them. When the connection holds its maximum
// of unacknowledged bytes, the task waits for the client (back-pressure).
#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "kernel/log.hpp"
#include "kernel/machine.hpp"
#include "kernel/panic.hpp"
#include "observe/built_in.hpp"
#include "observe/server.hpp"
#include "observe/stream_block.hpp"

namespace neap::observe {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds alive_period{1000};  ///< a stream without data sends a block at this interval
constexpr milliseconds live_period{50};     ///< a live stream waits at most this long to fill a block

/// A block's memory has exactly the size of the header and of `entries` entries. Memory of the maximum size would be wasted: a live stream
/// of an idle machine has one or two entries in a block, and the connection keeps each block until it is acknowledged.
class EntriesBlock {
 public:
  explicit EntriesBlock(std::size_t entries)
      : entries_(entries), memory_(std::make_unique_for_overwrite<std::byte[]>(sizeof(BlockHeader) + entries * log::entry_bytes)) {}

  [[nodiscard]] std::span<log::Record> entries() noexcept {
    return {reinterpret_cast<log::Record*>(memory_.get() + sizeof(BlockHeader)), entries_};
  }
  /// Returns the entries without the header, in a buffer that owns the memory.
  [[nodiscard]] static net::Buffer without_header(EntriesBlock block, std::size_t entries) {
    return make_buffer(std::move(block), sizeof(BlockHeader), entries * log::entry_bytes);
  }
  /// Returns the entries behind `header`, in a buffer that owns the memory.
  [[nodiscard]] static net::Buffer with_header(EntriesBlock block, const BlockHeader& header, std::size_t entries) {
    std::memcpy(block.memory_.get(), &header, sizeof header);
    return make_buffer(std::move(block), 0, sizeof header + entries * log::entry_bytes);
  }

 private:
  static net::Buffer make_buffer(EntriesBlock block, std::size_t first_byte, std::size_t bytes) {
    require(first_byte + bytes <= sizeof(BlockHeader) + block.entries_ * log::entry_bytes, "log: a block sends no more than its memory",
            bytes);
    std::byte* const memory = block.memory_.release();
    net::Buffer buffer =
        net::Buffer::reference({memory + first_byte, bytes}, [](void* owner) noexcept { delete[] static_cast<std::byte*>(owner); }, memory);
    if (buffer.empty()) throw std::bad_alloc();
    return buffer;
  }

  std::size_t entries_;
  std::unique_ptr<std::byte[]> memory_;
};

net::Buffer copy_or_throw(std::span<const std::byte> bytes) {
  net::Buffer buffer = net::Buffer::copy(bytes);
  if (buffer.empty()) throw std::bad_alloc();
  return buffer;
}

/// True if all logs still have the entries of `run`. A reader MUST check this after reading, because a new run overwrites the logs.
bool logs_are_of(std::uint32_t run) noexcept { return log::state().run == run; }

/// Notifies `signal` after each start, stop and clear of a run.
class RunObserver {
 public:
  explicit RunObserver(WakeSignal& signal) : id_(log::add_run_observer([&signal] { signal.notify(); })) {}
  RunObserver& operator=(RunObserver&&) = delete;
  ~RunObserver() { log::remove_run_observer(id_); }

 private:
  unsigned id_;
};

/// The state of one `stream` command.
class Stream {
 public:
  Stream(Server& server, Client& client, std::uint32_t run, bool live, std::vector<std::uint64_t> positions)
      : server_(server), client_(client), run_(run), live_(live), positions_(std::move(positions)), run_observer_(client.wake_signal()) {}

  /// Sends all blocks. Ends with the run or with the connection.
  [[nodiscard]] task<void> send_all();

 private:
  [[nodiscard]] bool run_is_on() const noexcept {
    const log::State state = log::state();
    return state.running && state.run == run_;
  }
  [[nodiscard]] task<bool> send_written_entries(unsigned core, std::uint64_t end, bool full_blocks_only);
  [[nodiscard]] task<bool> send_gap(unsigned core, std::uint64_t until);
  [[nodiscard]] task<bool> send_end_of_core(unsigned core);
  [[nodiscard]] task<bool> send_block(BlockHeader header, std::span<const std::byte> payload);
  [[nodiscard]] task<bool> send_sealed(net::Buffer block);
  [[nodiscard]] task<bool> wait(std::chrono::nanoseconds time_max);
  [[nodiscard]] BlockHeader header_of(BlockType type, unsigned core) noexcept {
    require(core < positions_.size(), "log: a block is of a core that this machine has", core);
    return {.type = type,
            .core = static_cast<std::uint16_t>(core),
            .number = number_++,
            .position = positions_[core],
            .run = run_,
            .boot_id = server_.boot_id()};
  }
  /// Called when another run has begun, so the entries that were not sent yet are gone.
  void overtaken() noexcept {
    count(server_.counters().streams_overtaken);
    client_.abort();
  }

  Server& server_;
  Client& client_;
  const std::uint32_t run_;
  const bool live_;
  std::vector<std::uint64_t> positions_;  // for each core, the position of the next entry
  RunObserver run_observer_;
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
  if (!co_await client_.log_room()) co_return false;
  header.seal(payload);
  net::Buffer block = copy_or_throw(std::as_bytes(std::span(&header, 1)));
  if (!payload.empty()) block.append(copy_or_throw(payload));
  co_return co_await send_sealed(std::move(block));
}

task<bool> Stream::send_gap(unsigned core, std::uint64_t until) {
  BlockHeader gap = header_of(BlockType::gap, core);
  require(until > positions_[core], "log: a gap has at least one entry", until);
  gap.count = until - positions_[core];
  count(server_.counters().stream_gaps);
  count(server_.counters().stream_lines_lost, gap.count);
  positions_[core] = until;
  co_return co_await send_block(gap, {});
}

/// Sends the entries of `core` up to `end`. Returns false if the stream has ended.
task<bool> Stream::send_written_entries(unsigned core, std::uint64_t end, bool full_blocks_only) {
  std::uint64_t& position = positions_[core];
  while (position < end) {
    if (full_blocks_only && end - position < block_entries_max) break;
    if (!co_await client_.log_room()) co_return false;
    EntriesBlock block(std::min<std::uint64_t>(block_entries_max, end - position));
    const std::size_t entries = log::read(core, position, block.entries());
    const std::uint64_t first = log::extent(core).first;
    if (!logs_are_of(run_)) {
      overtaken();
      co_return false;
    }
    if (entries == 0) {
      if (first <= position) break;  // the entry is not readable yet: the next call sends it
      if (!co_await send_gap(core, std::min(first, end))) co_return false;
      continue;
    }
    BlockHeader header = header_of(BlockType::entries, core);
    header.count = entries;
    header.seal(std::as_bytes(block.entries().first(entries)));
    position += entries;
    const bool sent = co_await send_sealed(EntriesBlock::with_header(std::move(block), header, entries));
    if (!sent) co_return false;
    count(server_.counters().stream_lines, entries);
  }
  co_return true;
}

task<bool> Stream::send_end_of_core(unsigned core) {
  const log::Extent extent = log::extent(core);
  if (!logs_are_of(run_) || positions_[core] != extent.end) {
    overtaken();
    co_return false;
  }
  const std::shared_ptr<const RunCard> card = server_.run_card().of(run_);
  const Header file_header = make_header(server_.boot(), {.run = run_, .core = core, .extent = extent, .card = card.get()});
  BlockHeader header = header_of(BlockType::header, core);
  header.position = extent.first;
  header.count = extent.end - extent.first;
  if (!co_await send_block(header, file_header)) co_return false;
  BlockHeader end = header_of(BlockType::end_of_core, core);
  end.count = extent.end;
  co_return co_await send_block(end, {});
}

/// Waits for the signal, at most `time_max`. Sends an `alive` block when one is due. Returns false if the client is gone.
task<bool> Stream::wait(std::chrono::nanoseconds time_max) {
  const std::uint64_t silent_ns = machine::now_ns() - sent_ns_;
  const auto until_alive =
      std::max(std::chrono::nanoseconds(alive_period) - std::chrono::nanoseconds(silent_ns), std::chrono::nanoseconds(0));
  co_await client_.wake_signal().wait_for(std::min(time_max, until_alive));
  if (client_.over()) co_return false;
  if (machine::now_ns() - sent_ns_ < static_cast<std::uint64_t>(std::chrono::nanoseconds(alive_period).count())) co_return true;
  if (!client_.all_acknowledged()) {  // a client that does not read needs no `alive`
    sent_ns_ = machine::now_ns();
    co_return true;
  }
  BlockHeader alive = header_of(BlockType::alive, 0);
  alive.position = 0;
  co_return co_await send_block(alive, {});
}

task<void> Stream::send_all() {
  const unsigned cores = static_cast<unsigned>(positions_.size());
  std::uint64_t flushed_ns = machine::now_ns();  // the time at which blocks that are not full were last sent
  while (run_is_on()) {
    bool go_on = true;
    if (live_) {
      const std::uint64_t now_ns = machine::now_ns();
      const bool full_blocks_only = now_ns - flushed_ns < static_cast<std::uint64_t>(std::chrono::nanoseconds(live_period).count());
      if (!full_blocks_only) flushed_ns = now_ns;
      for (unsigned core = 0; core < cores && go_on; ++core) {
        go_on = co_await send_written_entries(core, log::extent(core).end, full_blocks_only);
      }
    }
    if (go_on && run_is_on()) go_on = co_await wait(live_ ? live_period : alive_period);
    if (!go_on) co_return;
  }
  co_await server_.run_card().follow();
  if (!logs_are_of(run_)) {
    overtaken();
    co_return;
  }
  std::uint64_t total = 0;
  for (unsigned core = 0; core < cores; ++core) {
    const std::uint64_t end = log::extent(core).end;
    if (!co_await send_written_entries(core, end, false)) co_return;
    if (!co_await send_end_of_core(core)) co_return;
    total += end;
  }
  BlockHeader end = header_of(BlockType::end, 0);
  end.position = 0;
  end.count = total;
  const bool sent = co_await send_block(end, {});
  if (sent) client_.finish();
}

}  // namespace

std::uint64_t first_to_keep(const log::Extent& extent, bool running) noexcept {
  if (!running || extent.first == 0) return extent.first;
  return extent.first + (extent.end - extent.first) / 8;
}

task<std::string> send_log_file(const Request& request) {
  Server& server = request.server;
  Client& client = request.client;
  if (!request.core) co_return "error: get takes one core";
  const unsigned core = *request.core;
  co_await server.run_card().follow();  // the header of a run that is over has the card's counters at its stop
  const log::State state = log::state();
  log::Extent extent = log::extent(core);
  extent.first = first_to_keep(extent, state.running);
  if (state.run == 0 || !logs_are_of(state.run)) co_return "error: there is no run (start begins one)";
  count(server.counters().gets);

  const std::shared_ptr<const RunCard> card = server.run_card().of(state.run);
  const Header header = make_header(server.boot(), {.run = state.run, .core = core, .extent = extent, .card = card.get()});
  bool sent = co_await client.send(copy_or_throw(header));
  for (std::uint64_t position = extent.first; sent && position < extent.end;) {
    if (!co_await client.log_room()) break;
    EntriesBlock block(std::min<std::uint64_t>(block_entries_max, extent.end - position));
    const std::size_t entries = log::read(core, position, block.entries());
    if (entries == 0 || !logs_are_of(state.run)) {  // the entries that the header announces were overwritten
      count(server.counters().gets_overtaken);
      client.abort();
      co_return std::string();
    }
    position += entries;
    count(server.counters().get_lines, entries);
    sent = co_await client.send(EntriesBlock::without_header(std::move(block), entries));
    co_await next_event();
  }
  co_return std::string();
}

task<std::string> send_log_stream(const Request& request) {
  Server& server = request.server;
  auto wanted = parse_stream_request(request.words, core_count());
  if (!wanted) co_return "error: " + wanted.error();
  const log::State state = log::state();
  if (state.run == 0) co_return "error: there is no run (start begins one)";
  if (wanted->run && *wanted->run != state.run) {
    co_return "error: run " + std::to_string(*wanted->run) + " is not there: the last one is " + std::to_string(state.run);
  }
  for (unsigned core = 0; core < core_count(); ++core) {
    const std::uint64_t end = log::extent(core).end;
    if (wanted->positions[core] <= end) continue;
    co_return "error: core " + std::to_string(core) + " has " + std::to_string(end) + " entries, so none at " +
        std::to_string(wanted->positions[core]);
  }
  count(server.counters().streams);
  Stream stream(server, request.client, state.run, wanted->live, std::move(wanted->positions));
  const bool begun = co_await request.client.send_line("ok");
  if (begun) co_await stream.send_all();
  request.client.finish();
  co_return std::string();
}

}  // namespace neap::observe
