// SPDX-License-Identifier: BSL-1.0
// Logs name the configuration of their run: the settings at its start, the load's phases, the card at both ends.
#include <algorithm>
#include <bit>
#include <cstring>
#include <map>

#include "observe/testing.hpp"

namespace neap::observe::testing {
namespace {

struct RunLog : ::testing::Test {
  World world;

  std::string ask(std::string_view line) { return world.ask(line); }
  std::string file_of(unsigned core) {
    Peer& peer = world.peer();
    peer.send("get," + std::to_string(core) + "\n");
    return peer.rest();
  }
  static std::string text_of(const std::string& file) {
    std::uint32_t bytes = 0;
    if (file.size() < header_bytes) return file;
    std::memcpy(&bytes, file.data() + 56, sizeof bytes);
    return file.substr(64, bytes);
  }
  static std::vector<log::Record> entries_of(const std::string& file) {
    std::vector<log::Record> entries((file.size() - header_bytes) / log::entry_bytes);
    std::memcpy(entries.data(), file.data() + header_bytes, entries.size() * log::entry_bytes);
    return entries;
  }
  /// The value of `wire.own.reads`, which grows with each read, in the object `member` of a header's text.
  static std::optional<std::string> reads(const std::string& text, const std::string& member) {
    const std::size_t at = text.find('"' + member + R"(":{"wire.own.visited":0,"wire.own.queue":2,"wire.own.reads":)");
    if (at == text.npos) return std::nullopt;
    const std::size_t value = text.find("reads\":", at) + 7;
    return text.substr(value, text.find('}', value) - value);
  }
};

TEST_F(RunLog, HasTheCardsCountersAtBothEnds) {
  ASSERT_EQ(ask("start"), "ok run=1");
  std::string text = text_of(file_of(0));
  EXPECT_NE(text.find(R"("card":{"name":"wire","id":"0x10fb","revision":1,"queues":2},"link":{"up":true,"mbps":10000})"), text.npos)
      << text;
  EXPECT_EQ(reads(text, "card_counters_start"), "1");
  EXPECT_EQ(reads(text, "card_counters_stop"), std::nullopt) << "the run is on";
  ASSERT_TRUE(ask("stop").starts_with("ok run=1 "));
  const std::string file = file_of(1);
  text = text_of(file);
  EXPECT_EQ(reads(text, "card_counters_start"), "1");
  EXPECT_EQ(reads(text, "card_counters_stop"), "2");
  EXPECT_EQ(file_of(1), file) << "the counters were read once";
  EXPECT_EQ(reads(text_of(file_of(0)), "card_counters_stop"), "2") << "all cores have the same";

  ASSERT_EQ(ask("start"), "ok run=2");
  ASSERT_TRUE(ask("stop").starts_with("ok run=2 "));
  text = text_of(file_of(0));
  EXPECT_EQ(reads(text, "card_counters_start"), "3");
  EXPECT_EQ(reads(text, "card_counters_stop"), "4");
  ASSERT_EQ(ask("clear"), "ok");
  EXPECT_EQ(file_of(0), "error: there is no run (start begins one)\n");
}

// A run may end at a bound, when no client waits for an answer.
TEST_F(RunLog, HasTheCountersAtTheEndOfARunThatABoundEnds) {
  for (int run = 1; run <= 5; ++run) {
    ASSERT_TRUE(ask("start,2ms").starts_with("ok run=" + std::to_string(run)));
    ASSERT_TRUE(HostMachine::wait_until([] { return !log::state().running; }));
    const std::string file = file_of(0);  // as early as possible
    const std::string text = text_of(file);
    EXPECT_EQ(reads(text, "card_counters_start"), std::to_string(2 * run - 1));
    EXPECT_EQ(reads(text, "card_counters_stop"), std::to_string(2 * run));
    EXPECT_EQ(file_of(0), file);
  }
}

TEST_F(RunLog, OfACardThatIsGoneHasNoCounters) {
  world.machines.server_card.set_gone(true);
  ASSERT_EQ(ask("start"), "ok run=1");
  ASSERT_TRUE(ask("stop").starts_with("ok run=1 "));
  std::string text = text_of(file_of(0));
  EXPECT_NE(text.find(R"("card":{"name":"wire")"), text.npos) << text;
  EXPECT_EQ(text.find("card_counters"), text.npos);
  world.machines.server_card.set_gone(false);
  ASSERT_EQ(ask("start"), "ok run=2");
  world.machines.server_card.set_gone(true);
  ASSERT_TRUE(ask("stop").starts_with("ok run=2 "));
  text = text_of(file_of(0));
  EXPECT_EQ(reads(text, "card_counters_start"), "1");
  EXPECT_EQ(text.find("card_counters_stop"), text.npos);
}

TEST_F(RunLog, ARefusedStartReadsNoCard) {
  ASSERT_EQ(ask("start"), "ok run=1");
  EXPECT_EQ(ask("start"), "error: a run is on (stop ends it)");
  ASSERT_TRUE(ask("stop").starts_with("ok run=1 "));
  EXPECT_EQ(reads(text_of(file_of(0)), "card_counters_stop"), "2");
}

TEST_F(RunLog, HasEverySettingAtItsStart) {
  ASSERT_TRUE(ask("itr,24us,0").starts_with("ok "));
  ASSERT_TRUE(ask("poll_budget,30us").starts_with("ok "));
  ASSERT_EQ(ask("start"), "ok run=1");
  ASSERT_TRUE(ask("itr,8us").starts_with("ok "));
  ASSERT_TRUE(ask("stop").starts_with("ok "));
  for (unsigned core = 0; core < 2; ++core) {
    std::map<unsigned, std::uint32_t> configured;
    for (const log::Record& entry : entries_of(file_of(core))) {
      if (entry.kind != static_cast<std::uint8_t>(log::Kind::configured)) continue;
      const auto setting = std::bit_cast<log::Settings>(entry);
      EXPECT_TRUE(configured.emplace(setting.changed, setting.card_value).second);
    }
    EXPECT_EQ(configured.at(static_cast<unsigned>(policy::Setting::itr)), core == 0 ? 24U : 0U);
    EXPECT_EQ(configured.at(static_cast<unsigned>(policy::Setting::poll_budget)), 30U);
    for (const policy::Row& row : ixgbe::setting_rows()) {
      const bool has_value = !row.preset && row.scope == policy::Scope::card;
      EXPECT_EQ(configured.contains(static_cast<unsigned>(row.setting)), has_value) << row.name;
    }
  }
}

TEST_F(RunLog, HasTheLoadsPhasesOnCoreZero) {
  EXPECT_EQ(ask("mark,preload"), "ok no run");
  ASSERT_EQ(ask("start"), "ok run=1");
  for (const char* const phase : log::load_phase_names) EXPECT_EQ(ask("mark," + std::string(phase)), "ok");
  EXPECT_EQ(ask("mark,tea"), "error: 'tea' is no phase of a load; accepted here: preload warm_up window drain end");
  EXPECT_EQ(ask("mark"), "error: usage: mark,WHAT");
  ASSERT_TRUE(ask("stop").starts_with("ok "));
  std::vector<unsigned> marks;
  std::uint64_t tsc = 0;
  for (const log::Record& entry : entries_of(file_of(0))) {
    if (entry.kind != static_cast<std::uint8_t>(log::Kind::mark)) continue;
    EXPECT_GT(entry.tsc, tsc);
    tsc = entry.tsc;
    marks.push_back(std::bit_cast<log::Mark>(entry).what);
  }
  EXPECT_EQ(marks, (std::vector<unsigned>{0, 1, 2, 3, 4}));
  const auto of_core_1 = entries_of(file_of(1));
  EXPECT_TRUE(std::ranges::none_of(of_core_1, [](const log::Record& entry) { return entry.kind == 33; }));
}

TEST(RunLogOfASmallLog, SaysThatAMarkHadNoRoom) {
  World world(small_log(log::WhenFull::stop, 64));
  Peer& peer = world.peer();
  ASSERT_EQ(peer.ask("start"), "ok run=1");
  world.record(100);
  EXPECT_EQ(peer.ask("mark,window"), "ok no room");
}

}  // namespace
}  // namespace neap::observe::testing
