// SPDX-License-Identifier: BSL-1.0
// The transfer of logs: `get` and `stream` must send the same bytes, complete and once, whatever the wire and the collector do.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "observe/stream_block.hpp"
#include "observe/testing.hpp"

namespace neap::observe::testing {
namespace {

/// The part of a run that a collector (a client of `stream`) has received: each core's log entries, and later the core's header.
struct Collected {
  struct Core {
    std::uint64_t position = 0;  ///< position of the next entry
    std::string lines, header;
    std::uint64_t lost = 0;
    std::optional<std::uint64_t> total;
  };
  std::map<unsigned, Core> cores;
  std::uint32_t run = 0;
  std::uint64_t blocks = 0, alive = 0;
  bool ended = false;

  /// Removes complete blocks from the front of `text`. `number` is the number of the next block on its connection.
  void take(std::string& text, std::uint64_t& number) {
    while (text.size() >= sizeof(BlockHeader)) {
      BlockHeader header;
      std::memcpy(&header, text.data(), sizeof header);
      ASSERT_EQ(header.magic, 0x4B4C424EU);
      if (text.size() < sizeof header + header.payload_bytes) return;
      const std::string payload = text.substr(sizeof header, header.payload_bytes);
      text.erase(0, sizeof header + header.payload_bytes);
      BlockHeader again = header;
      again.seal(std::as_bytes(std::span(payload)));
      ASSERT_EQ(again.header_crc32c, header.header_crc32c);
      ASSERT_EQ(again.payload_crc32c, header.payload_crc32c);
      ASSERT_EQ(header.number, number++);
      run = header.run;
      ++blocks;
      Core& core = cores[header.core];
      switch (header.type) {
        case BlockType::header:
          ASSERT_EQ(payload.size(), header_bytes);
          core.header = payload;
          break;
        case BlockType::entries:
          ASSERT_EQ(header.position, core.position);
          ASSERT_EQ(header.count * log::entry_bytes, payload.size());
          core.lines += payload;
          core.position += header.count;
          break;
        case BlockType::gap:
          ASSERT_EQ(header.position, core.position);
          core.lost += header.count;
          core.position += header.count;
          break;
        case BlockType::end_of_core:
          ASSERT_EQ(header.count, core.position);
          core.total = header.count;
          break;
        case BlockType::end:
          ended = true;
          break;
        case BlockType::alive:
          ++alive;
          break;
      }
    }
  }
  [[nodiscard]] std::string resume(const char* mode) const {
    std::string line = std::string("stream,") + mode;
    if (run != 0) line += ",run=" + std::to_string(run);
    for (const auto& [core, state] : cores) line += ',' + std::to_string(core) + '=' + std::to_string(state.position);
    return line;
  }
};

/// Runs one connection of a collector, which aborts it after `bytes_max` bytes. Returns true if the run ended.
bool collect(World& world, Collected& collected, const char* mode, std::size_t bytes_max = ~std::size_t{0}) {
  Peer& peer = world.peer();
  EXPECT_EQ(peer.ask(collected.resume(mode)), "ok");
  std::string text;
  std::uint64_t number = 0;
  std::size_t bytes = 0;
  EXPECT_TRUE(HostMachine::wait_until(
      [&] {
        const std::string more = peer.take();
        bytes += more.size();
        text += more;
        collected.take(text, number);
        return collected.ended || bytes >= bytes_max || peer.gone() || ::testing::Test::HasFatalFailure();
      },
      60s));
  if (!collected.ended) {
    text += peer.take();  // bytes that arrived before the end
    collected.take(text, number);
  }
  if (!collected.ended) peer.abort();
  return collected.ended;
}

std::string fetch(World& world, unsigned core) {
  Peer& peer = world.peer();
  peer.send("get," + std::to_string(core) + "\n");
  return peer.rest();
}

std::string file_of(const Collected::Core& core) { return core.header + core.lines; }

std::uint64_t number_at(const std::string& file, std::size_t offset) {
  std::uint64_t value = 0;
  std::memcpy(&value, file.data() + offset, sizeof value);
  return value;
}

TEST(LogFile, GetGivesHeaderAndLinesAndTheSameEachTime) {
  World world;
  EXPECT_EQ(fetch(world, 0), "error: there is no run (start begins one)\n");
  world.make_run(3000);
  const std::string file = fetch(world, 0);
  ASSERT_GT(file.size(), header_bytes + 3000 * 64);
  EXPECT_TRUE(file.starts_with("NEAPLOG\n"));
  const std::uint64_t lines = number_at(file, 24);
  EXPECT_EQ(file.size(), header_bytes + lines * 64);
  EXPECT_EQ(file[header_bytes - 1], '\n');
  std::vector<log::Record> wanted(lines);
  std::size_t read = 0;
  while (read < lines) {
    const std::size_t more = log::read(0, read, std::span(wanted).subspan(read));
    ASSERT_GT(more, 0U);
    read += more;
  }
  EXPECT_EQ(std::memcmp(wanted.data(), file.data() + header_bytes, lines * 64), 0);
  EXPECT_EQ(wanted.front().kind, static_cast<std::uint8_t>(log::Kind::start));
  EXPECT_EQ(fetch(world, 0), file);
  EXPECT_NE(fetch(world, 1), file);
}

// A log is sent in small pieces, so that other events of the sending core run between them.
TEST(LogFile, ALongLogDoesNotBlockTheCore) {
  World world(small_log(log::WhenFull::stop, 65536));
  world.make_run(60'000);
  const auto core_of = [](Peer& peer) { return peer.ask("rdtsc").back(); };
  Peer& fetcher = world.peer();
  const char core = core_of(fetcher);
  Peer* other = &world.peer();
  while (core_of(*other) != core) other = &world.peer();
  fetcher.send("get,0\n");
  unsigned answers = 0;
  while (!fetcher.ended() && other->ask("rdtsc").starts_with("ok ")) ++answers;
  EXPECT_GE(answers, 5U);
  EXPECT_GT(fetcher.rest().size(), 60'000U * 64);
}

TEST(LogStream, AfterARunItGivesWhatGetGives) {
  World world;
  world.make_run(5000);
  Collected collected;
  ASSERT_TRUE(collect(world, collected, "after"));
  ASSERT_EQ(collected.cores.size(), machine::core_count());
  for (const auto& [core, state] : collected.cores) EXPECT_TRUE(file_of(state) == fetch(world, core)) << core;
  EXPECT_EQ(world.server.counters().stream_lines.load(), world.server.counters().get_lines.load());
  EXPECT_EQ(world.server.counters().stream_blocks.load(), collected.blocks);
  EXPECT_EQ(world.server.counters().stream_gaps.load(), 0U);
}

TEST(LogStream, AfterWaitsForTheEndAndSendsAliveBlocks) {
  World world;
  Peer& peer = world.peer();
  EXPECT_EQ(peer.ask("stream,after"), "error: there is no run (start begins one)");
  EXPECT_EQ(peer.ask("start"), "ok run=1");
  Peer& collector = world.peer();
  EXPECT_EQ(collector.ask("stream,after"), "ok");
  world.record(500);
  EXPECT_TRUE(HostMachine::wait_until([&] { return collector.received_bytes() >= sizeof(BlockHeader); }));
  EXPECT_EQ(collector.received_bytes() % sizeof(BlockHeader), 0U);  // only whole `alive` blocks have arrived
  EXPECT_LT(collector.received_bytes(), 10 * sizeof(BlockHeader));
  EXPECT_TRUE(peer.ask("stop").starts_with("ok "));
  std::string text = collector.rest();
  Collected collected;
  std::uint64_t number = 0;
  collected.take(text, number);
  EXPECT_TRUE(collected.ended);
  EXPECT_GE(collected.alive, 1U);
  EXPECT_TRUE(file_of(collected.cores[0]) == fetch(world, 0));
}

// A collector is killed repeatedly, on a wire that loses frames. It must finally have every entry once.
TEST(LogStream, ResumesWithoutGapsOrRepetitions) {
  WorldOptions options = small_log(log::WhenFull::stop, 65536);
  World world(options);
  world.machines.server_card.set_faults(0.01, 0.01, 0.01);
  Peer& peer = world.peer();
  EXPECT_EQ(peer.ask("start"), "ok run=1");
  Collected collected;
  std::minstd_rand random(3);
  for (unsigned round = 0; round < 12; ++round) {
    world.record(1500);
    EXPECT_FALSE(collect(world, collected, "live", 1 + random() % 150'000));
  }
  EXPECT_TRUE(peer.ask("stop").starts_with("ok "));
  world.machines.server_card.set_faults(0, 0, 0);
  while (!collected.ended && !::testing::Test::HasFatalFailure()) (void)collect(world, collected, "live", 100'000 + random() % 300'000);
  for (const auto& [core, state] : collected.cores) {
    EXPECT_TRUE(file_of(state) == fetch(world, core)) << core;
    EXPECT_EQ(state.lost, 0U);
    EXPECT_EQ(state.total, state.position);
  }
  EXPECT_GE(collected.cores[0].position, 12U * 1500);
}

TEST(LogStream, LiveLinesArriveDuringTheRun) {
  World world;
  Peer& peer = world.peer();
  EXPECT_EQ(peer.ask("start"), "ok run=1");
  Collected collected;
  EXPECT_FALSE(collect(world, collected, "live", 1));  // ends after the first received bytes
  world.record(300);
  EXPECT_FALSE(collect(world, collected, "live", 250 * 64));
  EXPECT_GE(collected.cores[0].position + collected.cores[1].position, 250U);
}

TEST(LogStream, OverwrittenLinesAreAGapWithItsLength) {
  World world(small_log(log::WhenFull::overwrite, 1024));
  world.make_run(5000);
  Collected collected;
  ASSERT_TRUE(collect(world, collected, "after"));
  EXPECT_GE(collected.cores[0].lost, 3900U);
  EXPECT_EQ(collected.cores[0].lost, number_at(collected.cores[0].header, 32));
  EXPECT_EQ(world.server.counters().stream_lines_lost.load(), collected.cores[0].lost + collected.cores[1].lost + collected.cores[2].lost);
  EXPECT_TRUE(file_of(collected.cores[0]) == fetch(world, 0));
}

TEST(LogStream, AnOverwrittenRunIsNotMixedWithTheNext) {
  World world(small_log(log::WhenFull::stop, 65536));
  world.make_run(60'000);
  Peer& slow = world.peer(false);
  slow.send("get,0\n");
  Peer& slow_stream = world.peer(false);
  slow_stream.send("stream,after\n");
  EXPECT_TRUE(HostMachine::wait_until([&] { return slow.received_bytes() > 10'000 && slow_stream.received_bytes() > 10'000; }));
  EXPECT_TRUE(HostMachine::settled([&] { return slow.received_bytes() + slow_stream.received_bytes(); }, 100ms).has_value());
  Peer& peer = world.peer();
  EXPECT_EQ(peer.ask("start"), "ok run=2");
  slow.begin_reading();
  slow_stream.begin_reading();
  EXPECT_TRUE(HostMachine::wait_until([&] { return slow.gone() && slow_stream.gone(); }));
  EXPECT_TRUE(slow.reset());
  EXPECT_TRUE(slow_stream.reset());
  EXPECT_EQ(world.server.counters().gets_overtaken.load(), 1U);
  EXPECT_EQ(world.server.counters().streams_overtaken.load(), 1U);
  EXPECT_EQ(peer.ask("stream,after,run=1"), "error: run 1 is not there: the last one is 2");
  EXPECT_TRUE(peer.ask("stream,after,0=99999999").starts_with("error: core 0 has "));
}

}  // namespace
}  // namespace neap::observe::testing
