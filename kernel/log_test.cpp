// SPDX-License-Identifier: BSL-1.0
// Tests of runs over several cores, and of readers that run at the same time as the writers.
#include "kernel/log.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "kernel/events.hpp"
#include "kernel/memory/page_allocator.hpp"
#include "tests/host/host_machine.hpp"

namespace neap::log {
namespace {

using host::HostMachine;

/// A machine that releases its logs when it ends.
class Machine {
 public:
  static constexpr unsigned cores_max = 3;
  explicit Machine(unsigned cores) {
    host::prepare_pages();
    host_.emplace(cores);
  }
  Machine& operator=(Machine&&) = delete;
  ~Machine() {
    host_.reset();
    release();
    host::set_power_abilities({});
    host::set_cores_per_package(0);
    for (unsigned core = 0; core < cores_max; ++core) host::set_counters(core, {});
  }
  HostMachine* operator->() { return &*host_; }

  std::optional<ErrorCode> prepare(const Options& options) {
    return error_of(0, [&] { return log::prepare(options); });
  }
  Result<std::uint32_t> start(Bounds bounds = {}, unsigned core = 0) {
    Result<std::uint32_t> run = 0;
    host_->run(core, [&]() -> task<void> { run = co_await log::start(bounds); });
    return run;
  }
  std::optional<ErrorCode> stop(unsigned core = 0) {
    return error_of(core, [] { return log::stop(); });
  }
  std::optional<ErrorCode> clear(unsigned core = 0) {
    return error_of(core, [] { return log::clear(); });
  }

 private:
  template <class Make>
  std::optional<ErrorCode> error_of(unsigned core, Make make) {
    std::optional<ErrorCode> error;
    host_->run(core, [&]() -> task<void> {
      const Result<void> done = co_await make();
      if (!done.has_value()) error = done.error().code;
    });
    return error;
  }
  std::optional<HostMachine> host_;
};

std::vector<Record> entries_of(unsigned core) {
  const Extent there = extent(core);
  std::vector<Record> entries(static_cast<std::size_t>(there.end - there.first));
  EXPECT_EQ(read(core, there.first, entries), entries.size());
  return entries;
}

bool is(const Record& entry, Kind kind) { return entry.kind == static_cast<std::uint8_t>(kind); }

TEST(Log, EveryCoreBeginsAndEndsWithAnAnchorAndEveryCounter) {
  host::set_power_abilities({.counters = counter::package_energy | counter::package_c6});
  host::set_cores_per_package(2);
  for (unsigned core = 0; core < 3; ++core) {
    host::set_counters(core, {.present = counter::package_energy | counter::package_c6, .package_energy = 100 + core, .package_c6 = core});
  }
  Machine machine(3);
  ASSERT_EQ(machine.prepare({.entries_per_core = 100}), std::nullopt);
  EXPECT_EQ(options().entries_per_core, 128U) << "rounded up";
  machine->on(1, [] { count_requests(12); });
  ASSERT_EQ(machine.start().value(), 1U);
  EXPECT_TRUE(state().running);
  machine->on(1, [] { count_requests(30); });
  ASSERT_EQ(machine.stop(2), std::nullopt);
  EXPECT_FALSE(state().running);
  EXPECT_EQ(state().run, 1U);
  for (unsigned core = 0; core < 3; ++core) {
    const auto entries = entries_of(core);
    ASSERT_EQ(entries.size(), 8U);
    EXPECT_TRUE(is(entries[0], Kind::start) && is(entries[4], Kind::stop));
    for (const std::size_t first : {0U, 4U}) {
      EXPECT_EQ(entries[first].flags, counter::package_energy | counter::package_c6);
      EXPECT_EQ(std::bit_cast<Sample>(entries[first + 1]).package_energy, 100 + core);
      EXPECT_EQ(std::bit_cast<Residency>(entries[first + 2]).package_c6, core);
      const auto anchor = std::bit_cast<Anchor>(entries[first + 3]);
      EXPECT_EQ(anchor.kind, static_cast<std::uint8_t>(Kind::anchor));
      EXPECT_EQ(anchor.package, core / 2);
      EXPECT_EQ(anchor.run, 1U);
      EXPECT_EQ(anchor.requests, core == 1 ? (first == 0 ? 12U : 42U) : 0U);
      EXPECT_GT(anchor.wall_clock_ns, machine::wall_clock_at_boot_ns());
    }
  }
}

TEST(Log, ImpossibleCallsAreRefusedAndChangeNothing) {
  Machine machine(2);
  EXPECT_EQ(machine.start().error().code, ErrorCode::not_found) << "before prepare";
  EXPECT_EQ(machine.prepare({.entries_per_core = entries_per_core_max + 1}), ErrorCode::invalid);
  EXPECT_EQ(machine.prepare({.entries_per_core = 16 * 1024 * 1024}), ErrorCode::out_of_memory);
  const std::uint64_t free_bytes = memory::page_counters().free_bytes;
  EXPECT_EQ(machine.prepare({.entries_per_core = 2 * 1024 * 1024}), ErrorCode::out_of_memory) << "room for one core alone";
  EXPECT_EQ(memory::page_counters().free_bytes, free_bytes);
  EXPECT_EQ(machine.start().error().code, ErrorCode::not_found);
  ASSERT_EQ(machine.prepare({.entries_per_core = 64}), std::nullopt);
  EXPECT_EQ(machine.prepare({.entries_per_core = 64}), ErrorCode::invalid);
  EXPECT_EQ(machine.stop(), ErrorCode::closed);
  EXPECT_EQ(machine.start({.time = std::chrono::nanoseconds(-1)}).error().code, ErrorCode::invalid);
  ASSERT_TRUE(machine.start().has_value());
  EXPECT_EQ(machine.start({}, 1).error().code, ErrorCode::closed);
  EXPECT_EQ(machine.clear(1), ErrorCode::closed);
  ASSERT_EQ(machine.stop(1), std::nullopt);
  EXPECT_EQ(machine.stop(), ErrorCode::closed);
  EXPECT_GT(extent(1).end, 0U);
  ASSERT_EQ(machine.clear(1), std::nullopt);
  EXPECT_EQ(extent(0).end + extent(1).end, 0U);
  EXPECT_EQ(state().run, 0U);
  EXPECT_EQ(machine.start().value(), 2U) << "numbers are not used again";
  ASSERT_EQ(machine.stop(), std::nullopt);
}

// A machine that never records does not need the memory. A run that finds none leaves everything as it was.
TEST(Log, TheFirstRunAllocatesTheMemory) {
  constexpr std::uint64_t entries = 256 * 1024, bytes = entries * entry_bytes;
  Machine machine(2);
  const std::uint64_t free_bytes = memory::page_counters().free_bytes;
  ASSERT_EQ(machine.prepare({.entries_per_core = entries}), std::nullopt);
  EXPECT_EQ(memory::page_counters().free_bytes, free_bytes);
  std::vector<void*> taken;
  while (memory::page_counters().free_bytes > bytes * 3 / 2) taken.push_back(memory::allocate_run(256, 0));
  const std::uint64_t left_bytes = memory::page_counters().free_bytes;
  EXPECT_EQ(machine.start().error().code, ErrorCode::out_of_memory) << "room for one core alone";
  EXPECT_EQ(memory::page_counters().free_bytes, left_bytes);
  EXPECT_FALSE(state().running);
  for (void* const run : taken) memory::free_run(run);
  EXPECT_EQ(machine.start().value(), 1U);
  EXPECT_LE(memory::page_counters().free_bytes, free_bytes - 2 * bytes);
  ASSERT_EQ(machine.stop(), std::nullopt);
  const std::uint64_t after_run = memory::page_counters().free_bytes;
  EXPECT_EQ(machine.start().value(), 2U);
  ASSERT_EQ(machine.stop(), std::nullopt);
  EXPECT_EQ(memory::page_counters().free_bytes, after_run) << "the next run uses the same memory";
}

TEST(Log, WithoutMemoryThereIsNoLog) {
  Machine machine(1);
  ASSERT_EQ(machine.prepare({.entries_per_core = 0}), std::nullopt);
  EXPECT_EQ(machine.start().error().code, ErrorCode::not_found);
  EXPECT_EQ(machine.clear(), std::nullopt);
  EXPECT_EQ(extent(0).end, 0U);
  EXPECT_EQ(extent(200).end, 0U);
}

TEST(Log, NothingIsWrittenOutsideARun) {
  std::atomic<bool> over{false};
  const std::function<void()> write = [&] {
    interrupt();
    poll();
    slept(IdleState::c1, IdleState::c1, 1, 2, {});
    policy_changed({.generation = 1});
    before_sleep();
    if (!over) spawn(write);
  };
  Machine machine(2);
  ASSERT_EQ(machine.prepare({}), std::nullopt);
  machine->on(0, write);
  machine->on(1, write);
  EXPECT_EQ(extent(0).end + extent(1).end, 0U);
  for (int run = 0; run < 50; ++run) {
    ASSERT_TRUE(machine.start({}, 1).has_value());
    ASSERT_EQ(machine.stop(), std::nullopt);
    for (unsigned core = 0; core < 2; ++core) {
      const auto entries = entries_of(core);
      machine->on(core, [] {});
      ASSERT_EQ(extent(core).end, entries.size());
      ASSERT_TRUE(is(entries.front(), Kind::start));
      ASSERT_TRUE(is(entries.back(), Kind::anchor));
      ASSERT_TRUE(is(entries[entries.size() - 2], Kind::stop));
    }
  }
  over = true;
}

TEST(Log, ATimeBoundEndsTheRunOnEveryCoreAndLeavesNoAlarm) {
  host::ManualClock clock(1'000'000'000);
  Machine machine(2);
  ASSERT_EQ(machine.prepare({.entries_per_core = 64}), std::nullopt);
  ASSERT_TRUE(machine.start({.time = std::chrono::seconds(10)}, 1).has_value());
  clock.advance(std::chrono::milliseconds(9'999));
  machine->on(1, [] {});
  EXPECT_TRUE(state().running);
  clock.advance(std::chrono::milliseconds(2));
  ASSERT_TRUE(HostMachine::wait_until([] { return !state().running; }));
  const auto entries = entries_of(0);
  EXPECT_TRUE(is(entries[2], Kind::stop));
  EXPECT_GE(entries[2].tsc - entries[0].tsc, 10'000'000'000U);

  // The time bound of a run that was stopped early does not end the next run.
  ASSERT_TRUE(machine.start({.time = std::chrono::seconds(10)}, 1).has_value());
  ASSERT_EQ(machine.stop(0), std::nullopt);
  ASSERT_TRUE(machine.start({}, 0).has_value());
  clock.advance(std::chrono::seconds(20));
  machine->on(1, [] {});
  machine->on(1, [] {});
  EXPECT_TRUE(state().running);
  EXPECT_TRUE(HostMachine::wait_until([] { return host::alarm_of(1) == machine::alarm_none; }));
  ASSERT_EQ(machine.stop(), std::nullopt);
}

TEST(Log, ARequestBoundIsExceededByLittle) {
  constexpr unsigned cores = 3;
  constexpr std::uint64_t bound = 100'000;
  std::atomic<bool> over{false};
  std::array<std::uint64_t, cores> counted{};
  const std::function<void()> serve = [&] {
    if (state().running) {
      for (int i = 0; i < 10; ++i) count_requests(1);
      counted[this_core()] += 10;
    }
    if (!over) spawn(serve);
  };
  Machine machine(cores);
  ASSERT_EQ(machine.prepare({.entries_per_core = 64}), std::nullopt);
  ASSERT_TRUE(machine.start({.requests = bound}).has_value());
  for (unsigned core = 0; core < cores; ++core) machine->on(core, serve);
  ASSERT_TRUE(HostMachine::wait_until([] { return !state().running; }));
  over = true;
  std::uint64_t in_run = 0;
  for (unsigned core = 0; core < cores; ++core) {
    machine->on(core, [] {});
    const auto entries = entries_of(core);
    in_run += std::bit_cast<Anchor>(entries.back()).requests - std::bit_cast<Anchor>(entries[1]).requests;
    EXPECT_EQ(requests(core), counted[core]);
  }
  EXPECT_GE(in_run, bound);
}

// Each core adds its requests to the run's sum in batches. If clients send exactly as many requests as the bound, the last batches are not
// full. `before_sleep` adds them.
TEST(Log, ARequestBoundIsMetExactlyWhenTheCoresGoIdle) {
  Machine machine(2);
  ASSERT_EQ(machine.prepare({.entries_per_core = 64}), std::nullopt);
  ASSERT_TRUE(machine.start({.requests = 100'010}).has_value());
  machine->on(0, [] { count_requests(100'000); });
  machine->on(1, [] { count_requests(9); });
  machine->on(1, [] { before_sleep(); });
  EXPECT_TRUE(state().running);
  machine->on(0, [] { count_requests(1); });
  machine->on(0, [] { before_sleep(); });
  EXPECT_TRUE(HostMachine::wait_until([] { return !state().running; }));
}

TEST(Log, ObserversAreCalledOnTheirCoreUntilRemoved) {
  std::atomic<unsigned> heard{0}, once{0};
  std::atomic<bool> wrong_core{false};
  unsigned id = 0, once_id = 0;
  Machine machine(2);
  ASSERT_EQ(machine.prepare({.entries_per_core = 64}), std::nullopt);
  machine->on(1, [&] {
    id = add_run_observer([&] {
      ++heard;
      if (this_core() != 1) wrong_core = true;
    });
    once_id = add_run_observer([&] {
      ++once;
      remove_run_observer(once_id);
    });
  });
  const auto heard_of = [&](auto act, unsigned news) {
    act();
    return HostMachine::wait_until([&] { return heard == news; });
  };
  EXPECT_TRUE(heard_of([&] { EXPECT_TRUE(machine.start().has_value()); }, 1));
  EXPECT_TRUE(heard_of([&] { EXPECT_EQ(machine.stop(), std::nullopt); }, 2));
  EXPECT_TRUE(heard_of([&] { EXPECT_EQ(machine.clear(), std::nullopt); }, 3));
  EXPECT_TRUE(heard_of([&] { EXPECT_TRUE(machine.start({.requests = 1}).has_value()); }, 4));
  EXPECT_TRUE(heard_of([&] { machine->on(0, [] { count_requests(1); }); }, 5)) << "by a bound";
  machine->on(1, [&] { remove_run_observer(id); });
  ASSERT_TRUE(machine.start().has_value());
  ASSERT_EQ(machine.stop(), std::nullopt);
  machine->on(1, [] {});
  EXPECT_EQ(heard, 5U);
  EXPECT_EQ(once, 1U);
  EXPECT_FALSE(wrong_core);
}

/// Writes records with counts that show their number: number n has n descriptors and 3 n bytes.
class NumberedWriter {
 public:
  void write(unsigned records) {
    for (unsigned i = 0; i < records; ++i) {
      ++number_;
      traffic_.rx_descriptors.add(number_);
      traffic_.rx_bytes.add(3 * number_);
      interrupt();
    }
  }
  Traffic& traffic() { return traffic_; }
  void begin_again() { number_ = 0; }

 private:
  Traffic traffic_;
  std::uint64_t number_ = 0;
};

// The reader must never accept an entry that was being overwritten.
TEST(Log, AReaderBesideAnOverwritingWriterSeesWholeEntriesOrNone) {
  constexpr std::uint64_t entries_wanted = 300'000;
  NumberedWriter writer;
  std::atomic<bool> over{false};
  const std::function<void()> write = [&] {
    writer.write(100);
    if (!over) spawn(write);
  };
  Machine machine(1);
  ASSERT_EQ(machine.prepare({.entries_per_core = 256, .when_full = WhenFull::overwrite, .sample_period_us = 0}), std::nullopt);
  machine->on(0, [&] { watch(&writer.traffic()); });
  ASSERT_TRUE(machine.start().has_value());
  machine->on(0, write);
  std::mt19937 random(5);
  std::vector<Record> out(64);
  std::uint64_t seen = 0, overtaken = 0;
  while (seen < entries_wanted) {
    const Extent there = extent(0);
    ASSERT_LE(there.first, there.end);
    ASSERT_LE(there.end - there.first, 256U);
    if (there.end < 256) continue;
    // Reads mostly near the oldest entry, which the writer overwrites next.
    const std::uint64_t position = there.first + random() % (random() % 4 == 0 ? 240 : 8);
    const std::size_t count = read(0, position, std::span(out).first(1 + random() % out.size()));
    if (count == 0) ++overtaken;
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t number = position + i - 1;  // the start record's two entries come first
      ASSERT_EQ(out[i].rx_descriptors, static_cast<std::uint32_t>(number)) << "position " << position + i;
      ASSERT_EQ(out[i].rx_bytes, static_cast<std::uint32_t>(3 * number));
      ASSERT_TRUE(is(out[i], Kind::interrupt));
    }
    seen += count;
  }
  over = true;
  ASSERT_EQ(machine.stop(), std::nullopt);
  machine->on(0, [] { watch(nullptr); });
  EXPECT_GT(overtaken, 0U) << "the writer never overtook the reader: this run shows nothing";
}

// Entries that were read belong to the run that `state` names afterwards.
TEST(Log, AReaderBesideRunsThatComeAndGoNeverMixesThem) {
  Machine machine(2);
  ASSERT_EQ(machine.prepare({.entries_per_core = 64, .sample_period_us = 0}), std::nullopt);
  std::atomic<bool> over{false};
  std::atomic<std::uint64_t> good{0};
  std::atomic<unsigned> wrong{0};
  std::thread reader([&] {
    std::vector<Record> out(64);
    while (!over) {
      const std::uint32_t run = state().run;
      const std::size_t count = read(1, 0, out);
      if (count == 0 || run == 0 || state().run != run) continue;
      ++good;
      if (!is(out[0], Kind::start) || std::bit_cast<Anchor>(out[1]).run != run) ++wrong;
      for (std::size_t i = 2; i < count && !is(out[i], Kind::stop); ++i) {
        if (out[i].rx_descriptors != i - 1) ++wrong;
      }
    }
  });
  NumberedWriter writer;
  machine->on(1, [&] { watch(&writer.traffic()); });
  for (int round = 0; round < 500 || (good < 100 && round < 20'000); ++round) {
    ASSERT_TRUE(machine.start().has_value());
    machine->on(1, [&] {
      writer.begin_again();
      writer.write(static_cast<unsigned>(round) % 50);
    });
    ASSERT_EQ(machine.stop(), std::nullopt);
    if (round % 3 == 0) ASSERT_EQ(machine.clear(), std::nullopt);
  }
  over = true;
  reader.join();
  machine->on(1, [] { watch(nullptr); });
  EXPECT_GE(good, 100U);
  EXPECT_EQ(wrong, 0U);
}

// Concurrent starts and stops from several cores: one start and one stop succeed, all others are refused.
TEST(Log, ConcurrentStartsMakeOneRun) {
  constexpr unsigned cores = 3;
  std::atomic<unsigned> started{0}, stopped{0}, ended{0};
  Machine machine(cores);
  ASSERT_EQ(machine.prepare({.entries_per_core = 64}), std::nullopt);
  for (unsigned core = 0; core < cores; ++core) {
    machine->on(core, [&] {
      neap::start([](std::atomic<unsigned>& starts, std::atomic<unsigned>& stops, std::atomic<unsigned>& ends) -> task<void> {
        for (int i = 0; i < 300; ++i) {
          if (const auto run = co_await log::start({}); run.has_value()) ++starts;
          if (const auto stop = co_await log::stop(); stop.has_value()) ++stops;
        }
        ++ends;
      }(started, stopped, ended));
    });
  }
  ASSERT_TRUE(HostMachine::wait_until([&] { return ended == cores; }, std::chrono::seconds(50)));
  EXPECT_EQ(started, stopped);
  EXPECT_FALSE(state().running);
  EXPECT_EQ(state().run, started);
}

}  // namespace
}  // namespace neap::log
