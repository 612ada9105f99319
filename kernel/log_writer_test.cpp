// SPDX-License-Identifier: BSL-1.0
// Tests of one core's log entries, byte by byte.
#include "kernel/log_writer.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <random>
#include <span>
#include <sstream>
#include <utility>
#include <vector>

#include "kernel/log_writer_testing.hpp"

namespace neap::log {
namespace {

struct BigLogWriterTest : LogWriterTest {
  BigLogWriterTest() : LogWriterTest(1 << 16) {}
};

TEST_F(LogWriterTest, CountersAreSampledAtEveryNthRecord) {
  can_count(counter::instructions);
  subject.begin({.sample_records = 3});
  for (int i = 0; i < 10; ++i) {
    clock.advance(std::chrono::microseconds(1));
    subject.record(i % 4 == 1 ? Kind::poll : Kind::interrupt);
  }
  std::vector<bool> sampled;
  for (const Record& entry : ended()) {
    const auto kind = static_cast<Kind>(entry.kind);
    if (kind == Kind::interrupt || kind == Kind::poll) sampled.push_back(entry.flags != 0);
  }
  EXPECT_EQ(sampled, (std::vector{false, false, true, false, false, true, false, false, true, false}));
}

// A chunk's end lies between two records, and must not shift the samples.
TEST_F(BigLogWriterTest, ManyRecordsAreSampledInStep) {
  can_count(counter::instructions);
  subject.begin({.sample_records = 7});
  for (int i = 0; i < 700; ++i) subject.record(Kind::interrupt);
  unsigned number = 0, samples = 0;
  for (const Record& entry : ended()) {
    if (static_cast<Kind>(entry.kind) != Kind::interrupt) continue;
    ++number;
    samples += entry.flags != 0 ? 1 : 0;
    EXPECT_EQ(entry.flags != 0, number % 7 == 0) << number;
  }
  EXPECT_EQ(samples, 100U);
}

TEST_F(LogWriterTest, ChosenEventsHaveAnEntryOfTheirOwn) {
  host::set_power_abilities({.counters = counter::instructions | counter::event1 | counter::event2});
  host::set_counters(0, {.present = counter::instructions | counter::event1 | counter::event2, .instructions = 5, .events = {31, 32}});
  subject.begin({.sample_period_ticks = 1});
  clock.advance(std::chrono::microseconds(1));
  subject.record(Kind::interrupt);
  const std::vector<Record> entries = ended();
  const auto interrupt = std::ranges::find(entries, static_cast<std::uint8_t>(Kind::interrupt), &Record::kind);
  ASSERT_GE(entries.end() - interrupt, 3);
  EXPECT_EQ(interrupt[1].kind, static_cast<std::uint8_t>(Kind::sample));
  ASSERT_EQ(interrupt[2].kind, static_cast<std::uint8_t>(Kind::events));
  Events events;
  std::memcpy(&events, &interrupt[2], sizeof events);
  EXPECT_EQ(events.tsc, interrupt->tsc);
  EXPECT_EQ(events.flags, interrupt->flags);
  EXPECT_EQ(events.event1, 31U);
  EXPECT_EQ(events.event2, 32U);
  EXPECT_EQ(events.event3, 0U);
}

// docs/log-format.md shows these entries, and tools/log/ reads them in its own test. A change here changes the format.
TEST_F(LogWriterTest, TheWorkedExampleIsWrittenByteForByte) {
  can_count(counter::instructions | counter::cycles | counter::reference_cycles | counter::llc_misses | counter::package_energy |
            counter::dram_energy | counter::core_c6 | counter::package_c6);
  subject.policy_changed({.idle_state = 4, .changed = 1, .turbo = 1, .generation = 7, .itr_us = 8, .performance = 0x1800});
  const RunPlan plan{.run = 3, .idle_records = true, .sample_period_ticks = 1'000'000};
  subject.begin(plan);
  clock.advance(std::chrono::microseconds(20));
  subject.slept(IdleState::c6, IdleState::c6, boot_ns + 5'000, boot_ns + 20'000, {.cause = WakeCause::interrupt, .vector = 0x31});
  subject.record(Kind::interrupt);
  traffic.rx_descriptors.add(3);
  traffic.rx_frames.add(2);
  traffic.rx_bytes.add(1'660);
  traffic.tx_descriptors.add(5);
  traffic.tx_frames.add(2);
  traffic.tx_bytes.add(3'028);
  subject.count_control({.rx_frames = 1, .rx_bytes = 146});
  subject.count_control({.tx_frames = 1, .tx_bytes = 1'514});
  clock.advance(std::chrono::microseconds(16));
  subject.record(Kind::poll);
  clock.advance(std::chrono::microseconds(4));
  subject.policy_changed({.idle_state = 6, .changed = 0, .turbo = 1, .generation = 8, .itr_us = 8, .performance = 0x1800});
  clock.advance(std::chrono::milliseconds(1));
  subject.end(plan);

  std::ostringstream text;
  text << "# Lines of a log, made by kernel/log_writer_test.cpp: position, then the 64 bytes in hexadecimal.\n";
  std::uint64_t position = 0;
  for (const Record& entry : entries_of(ring)) {
    text << position++;
    std::array<unsigned char, entry_bytes> bytes;
    std::memcpy(bytes.data(), &entry, sizeof entry);
    for (const unsigned char byte : bytes) {
      char digits[4];
      std::snprintf(digits, sizeof digits, " %02x", byte);
      text << digits;
    }
    text << '\n';
  }
  std::ifstream file(NEAP_TESTDATA "/log_lines.hex");
  std::ostringstream expected;
  expected << file.rdbuf();
  EXPECT_EQ(text.str(), expected.str());
}

TEST_F(BigLogWriterTest, RandomTrafficIsInTheRecordsToTheByte) {
  std::mt19937_64 random(4);
  subject.begin({});
  Sums passed;
  const auto sometimes_huge = [&] { return random() % 1'000 == 0 ? random() % (std::uint64_t{5} << 32) : random() % 100'000; };
  const auto add = [&](Counter& counter, std::uint64_t& sum, std::uint64_t amount) {
    counter.add(amount);
    sum += amount;
  };
  for (int round = 0; round < 20'000; ++round) {
    switch (random() % 5) {
      case 0:
        add(traffic.rx_descriptors, passed.rx_descriptors, random() % 65);
        add(traffic.rx_frames, passed.rx_frames, random() % 65);
        add(traffic.rx_bytes, passed.rx_bytes, sometimes_huge());
        break;
      case 1:
        add(traffic.tx_descriptors, passed.tx_descriptors, sometimes_huge());
        add(traffic.tx_frames, passed.tx_frames, random() % 512);
        add(traffic.tx_bytes, passed.tx_bytes, sometimes_huge());
        break;
      case 2: {
        if (random() % 10 != 0) break;
        const std::uint64_t frames = random() % 200'000, bytes = sometimes_huge();
        subject.count_control({.rx_frames = frames, .rx_bytes = bytes, .tx_frames = frames / 3, .tx_bytes = bytes / 7});
        passed.control_rx_frames += frames;
        passed.control_tx_frames += frames / 3;
        passed.control_rx_bytes += bytes;
        passed.control_tx_bytes += bytes / 7;
        break;
      }
      case 3: {
        const std::uint64_t ticks = random() % 10'000'000'000;
        subject.slept(IdleState::c1, IdleState::c1, 5, 5 + ticks, {});
        ++passed.idle_entries;
        passed.idle_ticks += ticks;
        break;
      }
      default:
        subject.record(random() % 2 == 0 ? Kind::interrupt : Kind::poll);
    }
  }
  for (int i = 0; i < 100; ++i) subject.record(Kind::interrupt);  // records for counts that exceeded their fields
  subject.end({});
  EXPECT_EQ(ring.extent().unwritten, 0U);
  EXPECT_EQ(sums_of(entries_of(ring)), passed);
}

TEST_F(LogWriterTest, ACountThatExceedsItsFieldContinuesInTheNextRecord) {
  constexpr std::uint64_t full = 0xFFFF'FFFF;
  subject.begin({});
  traffic.rx_bytes.add(2 * full + 5);
  subject.count_control({.tx_frames = 65'535 + 7});
  for (int i = 0; i < 4; ++i) subject.record(Kind::interrupt);
  const auto entries = ended();
  ASSERT_EQ(entries.size(), 2U + 4 + 2);
  constexpr std::uint64_t rx_bytes[] = {full, full, 5, 0}, control_tx_frames[] = {65'535, 7, 0, 0};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(entries[2 + i].rx_bytes, rx_bytes[i]) << i;
    EXPECT_EQ(entries[2 + i].control_tx_frames, control_tx_frames[i]) << i;
  }
}

TEST_F(LogWriterTest, CountersAreSampledNoMoreOftenThanAsked) {
  can_count(counter::instructions | counter::core_c6);
  const RunPlan plan{.sample_period_ticks = 1'000};
  subject.begin(plan);
  std::vector<std::uint64_t> sampled;
  for (int i = 0; i < 50; ++i) {
    clock.advance(std::chrono::nanoseconds(170));
    subject.record(Kind::interrupt);
  }
  const auto entries = ended(plan);
  for (std::size_t i = 4; i < entries.size() - 4; ++i) {  // without the entries of the first and last record
    if (!is_ordinary(entries[i]) || entries[i].flags == 0) continue;
    EXPECT_EQ(entries[i].flags, counter::instructions | counter::core_c6);
    const auto sample = as<Sample>(entries[i + 1]);
    const auto residency = as<Residency>(entries[i + 2]);
    EXPECT_EQ(sample.kind, static_cast<std::uint8_t>(Kind::sample));
    EXPECT_EQ(residency.kind, static_cast<std::uint8_t>(Kind::residency));
    EXPECT_EQ(sample.tsc, entries[i].tsc);
    EXPECT_EQ(residency.tsc, entries[i].tsc);
    EXPECT_EQ(sample.instructions, 1'000'000U);
    EXPECT_EQ(residency.core_c6, 6U);
    EXPECT_EQ(residency.core_c7, 0U) << "this CPU has none";
    sampled.push_back(entries[i].tsc);
  }
  ASSERT_EQ(sampled.size(), 8U) << "every sixth record is the first after 1,000 ticks";
  for (std::size_t i = 1; i < sampled.size(); ++i) EXPECT_GE(sampled[i] - sampled[i - 1], 1'000U);
}

TEST_F(LogWriterTest, APeriodOfZeroSamplesInAnchorsAlone) {
  can_count(counter::package_energy);
  subject.begin({});
  for (int i = 0; i < 30; ++i) {
    clock.advance(std::chrono::seconds(1));
    subject.record(Kind::interrupt);
  }
  const auto entries = ended();
  ASSERT_EQ(entries.size(), 3U + 30 + 3);
  EXPECT_EQ(as<Sample>(entries[1]).package_energy, 0x01020304U);
  EXPECT_EQ(as<Sample>(entries[34]).package_energy, 0x01020304U);
  for (std::size_t i = 3; i < 33; ++i) EXPECT_EQ(entries[i].flags, 0U);
}

TEST_F(LogWriterTest, APolicyChangeClosesTheIntervalUnderTheOldOne) {
  subject.policy_changed({.idle_state = 1, .changed = 0, .generation = 4});
  subject.begin({});
  pass(5);
  subject.policy_changed({.idle_state = 3, .changed = 1, .generation = 5, .itr_us = 100});
  pass(6);
  subject.record(Kind::interrupt);
  const auto entries = ended();
  ASSERT_EQ(entries.size(), 3U + 2 + 1 + 2);
  const auto at_start = as<Settings>(entries[2]);
  EXPECT_EQ(at_start.kind, static_cast<std::uint8_t>(Kind::settings));
  EXPECT_EQ(at_start.changed, nothing_changed);
  EXPECT_EQ(at_start.generation, 4U);
  EXPECT_EQ(entries[3].kind, static_cast<std::uint8_t>(Kind::policy));
  EXPECT_EQ(entries[3].generation, 4U);
  EXPECT_EQ(entries[3].idle_state, 1U);
  EXPECT_EQ(entries[3].rx_frames, 5U);
  EXPECT_EQ(as<Settings>(entries[4]).itr_us, 100U);
  EXPECT_EQ(as<Settings>(entries[4]).tsc, entries[3].tsc);
  EXPECT_EQ(entries[5].generation, 5U);
  EXPECT_EQ(entries[5].idle_state, 3U);
  EXPECT_EQ(entries[5].rx_frames, 6U);
}

TEST_F(LogWriterTest, EachSleepIsARecordIfAskedForAndPollingIsNot) {
  for (const bool asked : {false, true}) {
    subject.begin({.idle_records = asked});
    subject.slept(IdleState::c3, IdleState::c3, 100, 350, {.cause = WakeCause::timer, .vector = 0xE0});
    subject.slept(IdleState::monitor, IdleState::c6, 360, 370, {.cause = WakeCause::memory});
    subject.slept(IdleState::poll, IdleState::poll, 400, 500, {});
    subject.record(Kind::interrupt);
    const auto entries = ended();
    ASSERT_EQ(entries.size(), asked ? 7U : 5U);
    if (asked) {
      const auto idle = as<Idle>(entries[2]);
      EXPECT_EQ(idle.kind, static_cast<std::uint8_t>(Kind::idle));
      EXPECT_EQ(idle.idle_state, static_cast<std::uint8_t>(IdleState::c3));
      EXPECT_EQ(idle.cause, static_cast<std::uint8_t>(WakeCause::timer));
      EXPECT_EQ(idle.vector, 0xE0U);
      EXPECT_EQ(idle.tsc_asleep, 100U);
      EXPECT_EQ(idle.tsc, 350U);
      EXPECT_EQ(idle.c_state, 1 + static_cast<unsigned>(IdleState::c3));
      const auto watched = as<Idle>(entries[3]);
      EXPECT_EQ(watched.idle_state, static_cast<std::uint8_t>(IdleState::monitor));
      EXPECT_EQ(watched.c_state, 1 + static_cast<unsigned>(IdleState::c6)) << "the request does not follow from idle_state";
    }
    EXPECT_EQ(entries[entries.size() - 3].idle_entries, 3U);
    EXPECT_EQ(entries[entries.size() - 3].idle_ticks, 360U);
  }
}

TEST_F(LogWriterTest, AGarbageCollectionOfARunIsARecord) {
  subject.collected(1, 2, 3);
  subject.begin({});
  subject.collected(100, 5'000, 700);
  const auto entries = ended();
  ASSERT_EQ(entries.size(), 5U) << "the collection before the run has no entry";
  const auto collection = as<Collection>(entries[2]);
  EXPECT_EQ(collection.kind, static_cast<std::uint8_t>(Kind::collection));
  EXPECT_EQ(collection.tsc_begin, 100U);
  EXPECT_GE(collection.tsc, 100U);
  EXPECT_EQ(collection.bytes_before, 5'000U);
  EXPECT_EQ(collection.bytes_after, 700U);
}

TEST_F(LogWriterTest, TransactionsAreSummedByTypeAndTheRestIsWrittenAtTheEnd) {
  subject.count_transaction(1, {.committed = true});
  subject.begin({});
  const std::uint64_t begin = machine::timestamp();
  subject.count_transaction(1, {.committed = true, .retries = 2, .begin_tsc = begin - 40});
  subject.count_transaction(0, {.rolled_back = true, .begin_tsc = begin});
  subject.count_transaction(1, {.failed = true, .begin_tsc = begin});
  const auto entries = ended();
  ASSERT_EQ(entries.size(), 6U) << "one entry for each of the two types";
  const auto first = as<Transactions>(entries[2]), second = as<Transactions>(entries[3]);
  EXPECT_EQ(first.kind, static_cast<std::uint8_t>(Kind::transactions));
  EXPECT_EQ(first.type, 0U);
  EXPECT_EQ(first.rolled_back, 1U);
  EXPECT_EQ(first.committed + first.failed + first.retries, 0U);
  EXPECT_EQ(second.type, 1U);
  EXPECT_EQ(second.committed, 1U);
  EXPECT_EQ(second.failed, 1U);
  EXPECT_EQ(second.retries, 2U);
  EXPECT_GE(second.ticks_max, 40U);
  EXPECT_GE(second.ticks, second.ticks_max);
  EXPECT_LE(second.tsc_begin, second.tsc);
}

// Energy and time are computed from the last anchor (the entry with clock and totals), so a full log must have room for it.
TEST_F(LogWriterTest, AFullLogCountsEntriesThatDoNotFitAndStillEnds) {
  can_count(counter::package_energy | counter::core_c6);
  subject.begin({});
  for (int i = 0; i < 1'000; ++i) {
    pass(1);
    subject.record(Kind::interrupt);
  }
  EXPECT_EQ(ring.extent().unwritten, 1'000U - (128 - 4 - 4));
  subject.slept(IdleState::c1, IdleState::c1, 0, 10, {});
  subject.policy_changed({.generation = 2});
  subject.collected(0, 1, 1);
  EXPECT_EQ(ring.extent().unwritten, 880U + 3);
  const auto entries = ended();
  ASSERT_EQ(entries.size(), 128U);
  EXPECT_EQ(entries[124].kind, static_cast<std::uint8_t>(Kind::stop));
  EXPECT_EQ(entries[127].kind, static_cast<std::uint8_t>(Kind::anchor));
  EXPECT_EQ(sums_of(entries).rx_frames, 1'000U) << "the last record closes the interval since the last one that was written";
}

// A measurement divides by the number of transactions, so it must be whole when the log is too short for the records.
TEST_F(LogWriterTest, AFullLogStillHasAllTransactionsOfTheTypesThatItKnows) {
  subject.begin({});
  std::uint64_t counted = 0;
  const auto count = [&](unsigned type) {
    subject.count_transaction(type, {.committed = true, .begin_tsc = machine::timestamp()});
    counted += type == 7 ? 0 : 1;
  };
  count(0);
  for (int i = 0; i < 1'000; ++i) {
    if (i >= 120) count(7);  // first seen in a full log
    if (i == 60) count(4);
    subject.record(Kind::interrupt);
    count(0);
  }
  const std::uint64_t unwritten = ring.extent().unwritten;
  const auto entries = ended();
  EXPECT_EQ(ring.extent().unwritten, unwritten + 1) << "type 7 had no room";
  std::uint64_t found = 0;
  for (const auto& entry : entries) {
    const auto sums = as<Transactions>(entry);
    if (sums.kind == static_cast<std::uint8_t>(Kind::transactions)) found += sums.committed;
  }
  EXPECT_EQ(found, counted);
  EXPECT_EQ(entries.back().kind, static_cast<std::uint8_t>(Kind::anchor));
}

TEST_F(LogWriterTest, OverwritingKeepsTheNewestEntriesAndNamesTheLostOnes) {
  const RunPlan plan{.overwrite = true};
  subject.begin(plan);
  for (std::uint64_t i = 1; i <= 1'000; ++i) {
    pass(i);
    subject.record(Kind::interrupt);
    if (i == 100) EXPECT_EQ(ring.extent().first, 0U);
  }
  subject.end(plan);
  const Extent extent = ring.extent();
  EXPECT_EQ(extent.end, 2U + 1'000 + 2);
  EXPECT_EQ(extent.unwritten, 0U);
  EXPECT_GE(extent.first, extent.end - 128);
  EXPECT_LT(extent.first, extent.end - 128 + Ring::chunk_entries);
  const auto entries = entries_of(ring);
  for (std::size_t i = 0; i + 2 < entries.size(); ++i)
    EXPECT_EQ(entries[i].rx_frames, extent.first + i - 1) << "position " << extent.first + i;
  Record one[1];
  EXPECT_EQ(ring.read(extent.first - 1, one), 0U);
  EXPECT_EQ(ring.read(extent.end, one), 0U);
}

TEST_F(LogWriterTest, EntriesBecomeReadableByChunksAndByPublish) {
  subject.begin({});
  EXPECT_EQ(ring.extent().end, 2U);
  for (int i = 0; i < 5; ++i) subject.record(Kind::interrupt);
  EXPECT_EQ(ring.extent().end, 2U) << "a fence for each record would be too expensive";
  subject.publish();
  EXPECT_EQ(ring.extent().end, 7U);
  for (int i = 0; i < 10; ++i) subject.record(Kind::interrupt);
  EXPECT_EQ(ring.extent().end, 16U);
  subject.end({});
  EXPECT_EQ(ring.extent().end, 19U);
}

TEST_F(LogWriterTest, ReplacedCountersLoseNoCountOfTheFirstCard) {
  Traffic second;
  second.rx_frames.add(1'000);
  subject.begin({});
  pass(5);
  subject.watch(&second);
  second.rx_frames.add(3);
  subject.record(Kind::interrupt);
  subject.watch(nullptr);
  second.rx_frames.add(7);
  subject.record(Kind::interrupt);
  const auto entries = ended();
  EXPECT_EQ(entries[2].rx_frames, 8U);
  EXPECT_EQ(entries[2].rx_bytes, 500U);
  EXPECT_EQ(entries[3].rx_frames, 0U);
}

}  // namespace
}  // namespace neap::log
