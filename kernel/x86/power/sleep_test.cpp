// SPDX-License-Identifier: BSL-1.0
#include "kernel/x86/power/sleep.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>

namespace neap::x86::power {
namespace {

using enum IdleState;

SleepWays all_ways() {
  SleepWays ways{.mwait_sleeps = true};
  ways.hints.fill(no_hint);
  ways.hints[static_cast<unsigned>(c1)] = 0x00;
  ways.hints[static_cast<unsigned>(c1e)] = 0x01;
  ways.hints[static_cast<unsigned>(c6)] = 0x20;
  return ways;
}

TEST(SleepWays, EachStateHasItsHintAndMissingStatesHalt) {
  const SleepWays ways = all_ways();
  const auto expect = [&](IdleState asked, bool watched, Way way, unsigned hint) {
    const SleepPlan plan = ways.plan(asked, watched);
    EXPECT_EQ(plan.way, way) << idle_state_names[static_cast<unsigned>(asked)];
    EXPECT_EQ(plan.hint, hint) << idle_state_names[static_cast<unsigned>(asked)];
  };
  expect(c1, false, Way::mwait, 0x00);
  expect(c1e, false, Way::mwait, 0x01);
  expect(c6, false, Way::mwait, 0x20);
  // A line of the caller's is watched in the C-state that the caller chose.
  expect(c1, true, Way::watch, 0x00);
  expect(c1e, true, Way::watch, 0x01);
  expect(c6, true, Way::watch, 0x20);
  expect(c7, false, Way::halt, 0);
  expect(halt, false, Way::halt, 0);
  EXPECT_EQ(ways.plans(c6)[0].way, Way::mwait);
  EXPECT_EQ(ways.plans(c6)[1].way, Way::watch);
  EXPECT_EQ(ways.plans(c7)[1].way, Way::halt) << "the kernel refuses to watch a line in a state without MWAIT";
}

TEST(SleepWays, APlainMwaitHasNoErratumAndNoLine) {
  for (const std::uint8_t hint : {0x00, 0x20, 0xff}) {
    EXPECT_TRUE((SleepPlan{.way = Way::mwait, .hint = hint}.is_plain_mwait()));
    EXPECT_FALSE((SleepPlan{.way = Way::watch, .hint = hint}.is_plain_mwait()));
    EXPECT_FALSE((SleepPlan{.way = Way::mwait, .hint = hint, .returns_at_once = true}.is_plain_mwait()));
    EXPECT_FALSE((SleepPlan{.way = Way::mwait, .hint = hint, .flush_line = true}.is_plain_mwait()));
    EXPECT_FALSE((SleepPlan{.way = Way::mwait, .hint = hint, .called_by_interrupt = true}.is_plain_mwait()));
  }
  EXPECT_FALSE(SleepPlan{}.is_plain_mwait());
}

TEST(SleepWays, WithoutMwaitEveryStateHalts) {
  SleepWays ways = all_ways();
  ways.mwait_sleeps = false;
  for (const IdleState asked : {halt, c1, c1e, c3, c6, c7}) EXPECT_EQ(ways.plan(asked, false).way, Way::halt);
}

TEST(SleepWays, AParkedCoreUsesTheDeepestState) {
  SleepWays ways = all_ways();
  ways.parked_hint = 0x30;
  EXPECT_EQ(ways.plan_parked().way, Way::mwait);
  EXPECT_EQ(ways.plan_parked().hint, 0x30);
  ways.mwait_returns_at_once = true;
  EXPECT_EQ(ways.plan_parked().way, Way::halt) << "nothing ends it, so it would spin";
  EXPECT_EQ(SleepWays{}.plan_parked().way, Way::halt);
}

TEST(SleepWays, AnMwaitThatReturnsAtOnceIsRepeated) {
  SleepWays ways = all_ways();
  ways.mwait_returns_at_once = true;
  EXPECT_TRUE(ways.plan(c6, false).returns_at_once && ways.plan(c6, true).returns_at_once);
  EXPECT_FALSE(ways.plan(halt, false).returns_at_once || all_ways().plan(c6, false).returns_at_once);
}

constexpr OwnVectors own{.alarm = 0xf0, .wake = 0xf1};

TEST(Judge, NamesTheFirstInterruptOtherwiseTheWakeUp) {
  EXPECT_EQ(judge(0xf0, true, own).cause, WakeCause::timer);
  EXPECT_EQ(judge(0xf1, true, own).cause, WakeCause::wake_up);
  EXPECT_EQ(judge(0x31, true, own).cause, WakeCause::interrupt);
  EXPECT_EQ(judge(0x31, false, own).vector, 0x31);
  EXPECT_EQ(judge(0, true, own).cause, WakeCause::memory);
  EXPECT_EQ(judge(0, false, own).cause, WakeCause::unknown);
}

/// A model of a core. If a wake-up is lost, it sleeps for ever: its sleep instructions return only for reasons that the CPU guarantees.
struct Model {
  WakeWord word;
  alignas(64) std::uint64_t card_line[8] = {};
  WatchedLine seen{card_line};  // as it was at the driver's last check
  bool work_queued = false, interrupt_pending = false, monitored_line_written = false;
  bool returns_at_once = false;  // the emulator's MWAIT
  bool misses_writes = false;    // an erratum's MONITOR
  const volatile void* monitored = nullptr;
  std::uint8_t taken = 0;
  std::string steps;
  std::function<void(const std::string&)> at = [](const std::string&) {};  // each step calls it; it acts for another core or the card

  void step(const std::string& name) {
    steps += name + ' ';
    at(name);
  }
  // Wakes the model's core, as another core does.
  void call() {
    work_queued = true;
    const bool interrupt = word.request(WakeWord::remote_event);
    if (monitored == word.line() && !misses_writes) monitored_line_written = true;
    if (interrupt) interrupt_pending = true;
  }
  // Changes the watched line, as the card does.
  void write_line() {
    card_line[0] = 1;
    if (monitored == card_line) monitored_line_written = true;
  }
  // The sleeping core's instructions.
  void flush(const volatile void* line) {
    EXPECT_EQ(line, word.line());
    steps += "flush ";
  }
  void monitor(const volatile void* line) {
    step("before-monitor");
    monitored = line;
    monitored_line_written = false;
    step("after-monitor");
  }
  void halt() {
    step("before-sleep");
    taken = 0;
    EXPECT_TRUE(end_by_interrupt()) << "asleep for ever: " << steps;
  }
  void mwait(std::uint8_t) {
    step("before-sleep");
    taken = 0;
    if (returns_at_once && !interrupt_pending) return;
    EXPECT_TRUE(monitored_line_written | end_by_interrupt()) << "asleep for ever: " << steps;
  }
  bool end_by_interrupt() {
    if (!interrupt_pending) return false;
    interrupt_pending = false;
    taken = own.wake;
    return true;
  }
  [[nodiscard]] std::uint8_t first_vector_taken() const { return taken; }
};

constexpr const char* gaps[] = {"before-announcing", "before-monitor", "after-monitor", "before-sleep"};

Sleep sleep_once(Model& now, SleepPlan plan) {
  now.step("before-announcing");
  return sleep_until_woken(now, now.word, plan, plan.way == Way::watch ? &now.seen : nullptr, own);
}

// In whichever gap the wake-up occurs, the core does not stay asleep, and finds the work.
TEST(Sleep, NoWakeUpIsLostInAnyGap) {
  for (const SleepPlan plan : {SleepPlan{Way::halt, 0}, SleepPlan{Way::mwait, 0x20}, SleepPlan{Way::watch, 0}}) {
    for (const char* gap : gaps) {
      if (plan.way == Way::halt && std::string(gap).ends_with("monitor")) continue;
      Model now;
      bool called = false;
      now.at = [&](const std::string& step) {
        if (step == gap && !std::exchange(called, true)) now.call();
      };
      const Sleep how = sleep_once(now, plan);
      EXPECT_TRUE(called && now.work_queued) << gap;
      if (plan.way == Way::mwait) {
        EXPECT_FALSE(now.interrupt_pending) << "a write suffices, so no interrupt is sent: " << gap;
      }
      const bool slept = now.steps.find("before-sleep") != std::string::npos;
      const WakeCause expected = !slept ? WakeCause::not_asleep : plan.way == Way::mwait ? WakeCause::memory : WakeCause::wake_up;
      EXPECT_EQ(how.cause, expected) << gap;
      EXPECT_FALSE(now.word.asleep()) << gap;
      EXPECT_EQ(now.word.take(), WakeWord::remote_event) << "the request stays until the loop takes it: " << gap;
      EXPECT_TRUE(now.word.announce_sleep(WakeWord::Sleeps::until_write)) << "the next sleep starts afresh";
    }
  }
}

TEST(Sleep, NoWriteOfTheCardIsLostInAnyGap) {
  for (const char* gap : gaps) {
    Model now;
    now.at = [&](const std::string& step) {
      if (step == gap) now.write_line();
    };
    const Sleep how = sleep_once(now, {Way::watch, 0});
    EXPECT_TRUE(how.cause == WakeCause::not_asleep || how.cause == WakeCause::unknown) << "the loop compares the line: " << gap;
  }
}

TEST(Sleep, TheOrderIsMonitorSleep) {
  Model now;
  now.at = [&](const std::string& step) {
    if (step == "before-sleep") now.call();
  };
  static_cast<void>(sleep_once(now, {Way::mwait, 0}));
  EXPECT_EQ(now.steps, "before-announcing before-monitor after-monitor before-sleep ");
}

TEST(WakeWord, OneSenderSendsTheInterruptAndNoRequestIsLost) {
  WakeWord word;
  EXPECT_FALSE(word.request(WakeWord::handed_over)) << "the core is awake";
  EXPECT_FALSE(word.announce_sleep(WakeWord::Sleeps::until_interrupt)) << "there is a request";
  EXPECT_EQ(word.take(), WakeWord::handed_over);
  EXPECT_TRUE(word.announce_sleep(WakeWord::Sleeps::until_interrupt) && word.asleep());
  EXPECT_TRUE(word.request(WakeWord::call));
  EXPECT_FALSE(word.request(WakeWord::call)) << "the interrupt is sent already";
  EXPECT_FALSE(word.request(WakeWord::remote_event)) << "the interrupt is sent already";
  EXPECT_FALSE(word.undisturbed(WakeWord::Sleeps::until_interrupt));
  word.mark_awake();
  EXPECT_TRUE(word.any() && !word.asleep());
  EXPECT_EQ(word.take(), WakeWord::call | WakeWord::remote_event);
  EXPECT_TRUE(word.announce_sleep(WakeWord::Sleeps::until_write));
  EXPECT_FALSE(word.request(WakeWord::handed_over)) << "the change of the word is the wake-up";
}

// If MONITOR may miss a write, the sender's interrupt ends the sleep.
TEST(Sleep, NoWakeUpIsLostWhereMonitorMissesWrites) {
  for (const char* gap : gaps) {
    Model now;
    now.misses_writes = true;
    bool called = false;
    now.at = [&](const std::string& step) {
      if (step == gap && !std::exchange(called, true)) now.call();
    };
    const Sleep how = sleep_once(now, {.way = Way::mwait, .hint = 0x20, .called_by_interrupt = true});
    EXPECT_TRUE(called && now.work_queued) << gap;
    EXPECT_TRUE(how.cause == WakeCause::not_asleep || how.cause == WakeCause::wake_up) << gap;
  }
}

TEST(Sleep, TheLineIsFlushedBeforeMonitorWhereItMustBe) {
  Model now;
  now.interrupt_pending = true;
  static_cast<void>(sleep_once(now, {.way = Way::mwait, .hint = 0, .flush_line = true}));
  EXPECT_TRUE(now.steps.starts_with("before-announcing flush before-monitor ")) << now.steps;
}

// An MWAIT that returns at once is repeated until the watched line changes or an interrupt arrives.
TEST(Sleep, AnMwaitThatReturnsAtOnceEndsByTheLineOrAnInterruptAlone) {
  static constexpr unsigned rounds = 20;
  const auto slept_until = [](Way way, void (*end)(Model&)) {
    Model now;
    now.returns_at_once = true;
    unsigned mwaits = 0;
    now.at = [&](const std::string& step) {
      if (step != "before-sleep") return;
      if (++mwaits == rounds) end(now);
      EXPECT_LE(mwaits, rounds + 1) << "asleep for ever";
      if (mwaits > rounds) now.interrupt_pending = true;
    };
    const Sleep how = sleep_once(now, {.way = way, .hint = 0, .returns_at_once = true});
    EXPECT_EQ(mwaits, rounds);
    return how.cause;
  };
  EXPECT_EQ(slept_until(Way::watch, [](Model& now) { now.write_line(); }), WakeCause::unknown) << "the loop compares the line";
  EXPECT_EQ(slept_until(Way::watch, [](Model& now) { now.call(); }), WakeCause::wake_up);
  EXPECT_EQ(slept_until(Way::mwait, [](Model& now) { now.call(); }), WakeCause::memory);
  EXPECT_EQ(slept_until(Way::mwait, [](Model& now) { now.interrupt_pending = true; }), WakeCause::wake_up);
}

}  // namespace
}  // namespace neap::x86::power
