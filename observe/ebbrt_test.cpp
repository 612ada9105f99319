// SPDX-License-Identifier: BSL-1.0
// The dialect of EbbRT's control protocol: its lines, its log records, and a whole conversation of a published script.
#include <gtest/gtest.h>

#include <cstring>
#include <sstream>

#include "observe/ebbrt_lines.hpp"
#include "observe/ebbrt_records.hpp"
#include "observe/testing.hpp"

namespace neap::observe::testing {
namespace {

using ebbrt::Action;

std::optional<ebbrt::Parsed> parse(std::string_view line) {
  const auto words = split_words(line);
  EXPECT_TRUE(words.has_value()) << line;
  return ebbrt::parse_line(*words);
}

// --- Lines -------------------------------------------------------------------------------------------------------------------------------
TEST(EbbrtLine, NamesThatNeapSharesNeedOneNumber) {
  for (const char* name : {"start", "stop", "clear", "rdtsc", "get", "print"}) {
    const std::string text(name);
    const auto line = parse(text + ",0");
    EXPECT_TRUE(line && *line && (*line)->number == 0) << name;
    for (const char* neaps : {"", ",all", ",10s", ",0,0", ",-1", ",0x1"}) EXPECT_FALSE(parse(text + neaps)) << name << neaps;
  }
  EXPECT_FALSE(parse("itr,8"));
  EXPECT_FALSE(parse("stream,live"));
}

TEST(EbbrtLine, ARefusalStatesTheUnit) {
  EXPECT_EQ((*parse("rx_usecs,511"))->number, 511U);
  EXPECT_EQ(parse("rx_usecs,512")->error(), "rx_usecs takes one number: units of 2 us, 0 to 511 (dialect=ebbrt), not '512'");
  EXPECT_EQ((*parse("dvfs,7424"))->number, 0x1d00U);
  EXPECT_EQ((*parse("dvfs,0x1d00"))->number, 0x1d00U);
  for (const char* bad :
       {"rx_usecs,8us", "rx_usecs", "rx_usecs,8,1", "rx_usecs,0x8", "dvfs,65536", "dvfs,fast", "rapl,-1", "rapl,35W", "sleep_state,2",
        "sleep_state,c6", "sleep_state,256", "getcounters", "getcounters,all", "ixgbe_switch_send,0", "ixgbe_switch_send,3"}) {
    const auto line = parse(bad);
    EXPECT_TRUE(line && !line->has_value()) << bad;
  }
  EXPECT_EQ(ebbrt::idle_state_of_hint((*parse("sleep_state,16"))->number), "c3");
}

// --- Log records -------------------------------------------------------------------------------------------------------------------------
log::Record entry(log::Kind kind, std::uint64_t tsc) { return {.tsc = tsc, .kind = static_cast<std::uint8_t>(kind)}; }

TEST(EbbrtRecords, LieAsThePublishedParserReadsThem) {
  EXPECT_EQ(offsetof(ebbrt::Record, instructions), 8U);
  EXPECT_EQ(offsetof(ebbrt::Record, joules), 40U);
  EXPECT_EQ(offsetof(ebbrt::Record, c7), 64U);
  EXPECT_EQ(offsetof(ebbrt::Record, rx_descriptors), 72U);
  EXPECT_EQ(offsetof(ebbrt::Record, rx_bytes), 76U);
  EXPECT_EQ(offsetof(ebbrt::Record, tx_descriptors), 80U);
  EXPECT_EQ(offsetof(ebbrt::Record, tx_bytes), 84U);
}

TEST(EbbrtRecords, PollsAndSamplesGoIntoTheNextInterrupt) {
  ebbrt::Folder folder;
  std::vector<ebbrt::Record> records;
  const auto take = [&](const log::Record& one) {
    if (const auto record = folder.take(one)) records.push_back(*record);
  };
  take(entry(log::Kind::sample, 1));  // its record was overwritten
  take(entry(log::Kind::start, 10));
  log::Record poll = entry(log::Kind::poll, 20);
  poll.rx_descriptors = 3;
  poll.rx_bytes = 300;
  poll.idle_entries = 1000;  // checks of the ring
  take(poll);
  log::Record interrupt = entry(log::Kind::interrupt, 30);
  interrupt.rx_descriptors = 2;
  interrupt.rx_bytes = 200;
  interrupt.tx_bytes = 0xFFFFFFFF;
  interrupt.idle_entries = 4;
  take(interrupt);
  const log::Sample counted{.tsc = 30,
                            .kind = static_cast<std::uint8_t>(log::Kind::sample),
                            .package_energy = 5,
                            .instructions = 6,
                            .cycles = 7,
                            .reference_cycles = 8,
                            .llc_misses = 9};
  log::Record sample;
  std::memcpy(&sample, &counted, sizeof sample);
  take(sample);
  take(entry(log::Kind::residency, 30));
  take(entry(log::Kind::stop, 40));
  take(entry(log::Kind::anchor, 40));
  if (const auto last = folder.finish()) records.push_back(*last);
  EXPECT_FALSE(folder.finish());
  ASSERT_EQ(records.size(), 3U);
  EXPECT_EQ(records[0].tsc, 10U);
  EXPECT_EQ(records[1].tsc, 30U);
  EXPECT_EQ(records[1].rx_descriptors, 5U);
  EXPECT_EQ(records[1].rx_bytes, 500U);
  EXPECT_EQ(records[1].tx_bytes, 0x7FFFFFFFU) << "the published parser reads signed numbers";
  EXPECT_EQ(records[1].instructions, 6U);
  EXPECT_EQ(records[1].joules, 5U);
  EXPECT_EQ(records[1].c7, 4U);
  EXPECT_EQ(records[2].tsc, 40U);
  EXPECT_EQ(records[2].instructions, 0U);
}

// --- Conversations -----------------------------------------------------------------------------------------------------------------------
WorldOptions with_dialect() {
  WorldOptions options = small_log();
  options.control.dialect = Dialect::ebbrt;
  return options;
}

struct EbbrtClient : ::testing::Test {
  World world{with_dialect()};

  /// What `printf LINE | socat - TCP4:...` prints: sends, closes its side, and reads up to the end.
  std::string socat(std::string_view text) {
    Peer& peer = world.peer();
    peer.send(text);
    peer.end_sending();
    return peer.rest();
  }
};

// The lines of the studies' mutilate_bench.py and run_mcd.sh, byte by byte: Python sends without a line feed, `echo` with one.
TEST_F(EbbrtClient, AScriptsLinesAreAnsweredAsByEbbrt) {
  EXPECT_EQ(socat("rx_usecs,50"), "");
  EXPECT_EQ(world.device.itr_us(0), 100U) << "a unit is 2 us";
  EXPECT_EQ(world.device.itr_us(1), 100U);
  EXPECT_EQ(socat("rdtsc,0\n"), "0 0");
  EXPECT_EQ(socat("get,0\n"), "");
  EXPECT_EQ(socat("start,0"), "");
  EXPECT_TRUE(log::state().running);
  EXPECT_EQ(socat("start,0\n"), "");
  EXPECT_EQ(log::state().run, 1U) << "a second start changes nothing";
  world.record(10);
  EXPECT_TRUE(socat("rdtsc,0\n").ends_with(" 0")) << "the run has no end yet";
  EXPECT_EQ(socat("stop,0"), "");
  EXPECT_FALSE(log::state().running);
  EXPECT_EQ(socat("stop,0"), "");

  unsigned long long start = 0, stop = 0;
  const std::string bounds = socat("rdtsc,0\n");
  ASSERT_EQ(std::sscanf(bounds.c_str(), "%llu %llu", &start, &stop), 2) << bounds;
  EXPECT_EQ(bounds, std::to_string(start) + ' ' + std::to_string(stop)) << "no line feed";
  EXPECT_GT(start, 0U);
  EXPECT_GT(stop, start);

  for (unsigned core = 0; core < 2; ++core) {
    const std::string bytes = socat("get," + std::to_string(core) + "\n");
    ASSERT_EQ(bytes.size() % sizeof(ebbrt::Record), 0U) << bytes.size();
    std::vector<ebbrt::Record> records(bytes.size() / sizeof(ebbrt::Record));
    std::memcpy(records.data(), bytes.data(), bytes.size());
    EXPECT_GE(records.size(), 12U);  // the start, ten interrupts and those of the test's wire, the stop
    std::uint64_t before = 0;
    for (const ebbrt::Record& record : records) {
      EXPECT_GE(record.tsc, before) << "the published parser ends at a step back";
      before = record.tsc;
    }
    EXPECT_LE(records.front().tsc, start);
    EXPECT_GE(records.back().tsc, stop);
  }

  // mutilate_bench.py adds up 72 numbers a line, and reads joules and the time from words 10 and 11.
  std::istringstream counters(socat("getcounters,0"));
  unsigned core = 0;
  for (std::string line; std::getline(counters, line); ++core) {
    std::istringstream words(line);
    std::vector<double> numbers;
    for (double number = 0; words >> number;) numbers.push_back(number);
    ASSERT_EQ(numbers.size(), 72U) << line;
    EXPECT_EQ(numbers[0], core);
    EXPECT_GT(numbers[11], 0.0);
  }
  EXPECT_EQ(core, machine::core_count());
  EXPECT_EQ(socat("clear,0"), "");
  EXPECT_EQ(socat("rdtsc,0"), "0 0");
}

// A script that was interrupted leaves a run on. Its next try must not get the old run's records.
TEST_F(EbbrtClient, ClearBeginsARunThatIsOnAnew) {
  EXPECT_EQ(socat("start,0"), "");
  world.record(100);
  EXPECT_EQ(socat("clear,0"), "");
  EXPECT_TRUE(log::state().running);
  EXPECT_EQ(log::state().run, 2U);
  EXPECT_EQ(socat("start,0\nstop,0"), "");
  EXPECT_LT(socat("get,1").size(), 60 * sizeof(ebbrt::Record));
}

TEST_F(EbbrtClient, RefusalsAreAnsweredAndPrinted) {
  (void)host::take_console_text();
  EXPECT_TRUE(socat("sleep_state,48").starts_with("error: idle: "));
  EXPECT_TRUE(socat("dvfs,7424").starts_with("error: pstate: "));
  EXPECT_TRUE(socat("rapl,135").starts_with("error: power_limit: "));
  EXPECT_TRUE(socat("rx_usecs,512").starts_with("error: rx_usecs takes one number: units of 2 us"));
  EXPECT_EQ(socat("get,3"), "error: there is no core '3' (0 to 2)\n");
  EXPECT_TRUE(socat("reta,32").starts_with("error: there is no command 'reta'"));
  EXPECT_EQ(world.server.counters().refused.load(), 6U);
  const std::string console = host::take_console_text();
  EXPECT_NE(console.find("control: dialect=ebbrt: 'rapl' was refused: error: power_limit: "), std::string::npos) << console;
}

// Only a client that closes its side has ended its line. A reset connection may have lost the line's end.
TEST_F(EbbrtClient, AResetInTheMiddleOfALineSetsNothing) {
  Peer& peer = world.peer();
  peer.send("rx_usecs,77");
  EXPECT_TRUE(HostMachine::wait_until([&] { return world.server.clients().held_bytes() == 0; }));
  peer.abort();
  EXPECT_TRUE(HostMachine::wait_until([&] { return world.server.clients().count() == 0; }));
  EXPECT_EQ(world.server.counters().lines.load(), 0U);
  EXPECT_NE(world.device.itr_us(0), 154U);
}

TEST_F(EbbrtClient, NeapsOwnLinesAreAnsweredAsAlways) {
  Peer& peer = world.peer();
  EXPECT_NE(peer.ask("status").find("; dialect=ebbrt"), std::string::npos);
  EXPECT_TRUE(peer.ask("itr,8").starts_with("ok itr=8us "));
  EXPECT_EQ(peer.ask("start"), "ok run=1");
  EXPECT_TRUE(peer.ask("rdtsc").starts_with("ok tsc="));
  EXPECT_TRUE(peer.ask("stop").starts_with("ok run=1 lines="));
  EXPECT_EQ(peer.ask("clear"), "ok");
  EXPECT_EQ(peer.ask("start,10s"), "ok run=2 time_ns=10000000000");
}

TEST(EbbrtDialect, NeedsTheTokenAndItsBounds) {
  WorldOptions options = with_dialect();
  options.control.token = "correct-horse";
  World world(options);
  Peer& peer = world.peer();
  peer.send("rx_usecs,50");
  peer.end_sending();
  EXPECT_EQ(peer.rest(), "error: token needed: send token,...\n");
  EXPECT_NE(world.device.itr_us(0), 100U);
  Peer& owner = world.peer();
  owner.send("token,correct-horse\nrx_usecs,50");
  owner.end_sending();
  EXPECT_EQ(owner.rest(), "ok\n");
  EXPECT_EQ(world.device.itr_us(0), 100U);
  Peer& flood = world.peer();
  flood.send("token,correct-horse\n" + std::string(5000, 'x'));
  flood.end_sending();
  EXPECT_EQ(flood.rest(), "ok\nerror: line too long (4096 bytes at most)\n");
}

// Unread answers must not accumulate in the dialect either (back-pressure).
TEST_F(EbbrtClient, AClientThatDoesNotReadIsNotReadFrom) {
  Peer& peer = world.peer(false);
  constexpr unsigned lines = 4000;
  std::string text = "start,0\n";
  for (unsigned i = 0; i < lines; ++i) text += "getcounters,0\n";
  peer.send(text);
  EXPECT_LT(world.lines_at_rest(), lines / 2);
  EXPECT_TRUE(world.peer().ask("status").starts_with("ok "));
}

// Outside of the dialect, a script's lines are refused, or their answer shows the unit.
TEST(Control, EbbrtsLinesAreNotTakenSilentlyOutsideOfTheDialect) {
  World world;
  Peer& peer = world.peer();
  EXPECT_TRUE(peer.ask("rx_usecs,8").starts_with("ok itr=8us "));
  for (const char* line : {"start,0", "stop,0", "clear,0", "rdtsc,0", "getcounters,0"}) {
    EXPECT_TRUE(peer.ask(line).starts_with("error: ")) << line;
  }
  EXPECT_EQ(peer.ask("sleep_state,48"), "error: there is no command 'sleep_state' (it is EbbRT's: dialect=ebbrt on the command line)");
}

}  // namespace
}  // namespace neap::observe::testing
