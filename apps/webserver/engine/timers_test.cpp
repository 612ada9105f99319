// SPDX-License-Identifier: BSL-1.0
#include "apps/webserver/engine/timers.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "apps/webserver/engine/test_engine.hpp"
#include "tests/host/host_machine.hpp"

namespace neap::webserver {
namespace {

using host::HostMachine;
using host::ManualClock;
using namespace std::chrono_literals;

/// An engine on the only core of a machine whose time the test sets.
class TimedEngine {
 public:
  explicit TimedEngine(EngineOptions options = {}) {
    machine_.on(0, [&] { engine_ = std::make_unique<TestEngine>(std::vector<ArchiveFile>{}, "", std::move(options)); });
  }
  TimedEngine& operator=(TimedEngine&&) = delete;
  ~TimedEngine() {
    machine_.on(0, [&] { engine_.reset(); });
  }
  std::string run(std::string_view source) {
    return machine_.value_on(0, [&] { return engine_->run(source); });
  }
  /// Advances the clock until the script has printed `lines`; returns what it printed.
  std::string advance(std::chrono::milliseconds by, std::size_t lines) {
    clock_.advance(by);
    std::string printed;
    (void)HostMachine::wait_until(
        [&] {
          printed += machine_.value_on(0, [&] { return engine_->lines(); });
          return static_cast<std::size_t>(std::ranges::count(printed, '\n')) >= lines;
        },
        5s);
    return printed;
  }
  EngineStatistics statistics() {
    return machine_.value_on(0, [&] { return (*engine_)->statistics(); });
  }

 private:
  ManualClock clock_{1'000'000'000};
  HostMachine machine_{1};
  std::unique_ptr<TestEngine> engine_;
};

TEST(Timers, FireInTheOrderOfTheirDeadlinesAndAsTurnsOfTheirOwn) {
  TimedEngine engine;
  EXPECT_EQ(engine.run(R"(
    setTimeout((...values) => { console.log('30', ...values); process.nextTick(() => console.log('tick of 30')); }, 30, 'a', 2);
    setTimeout(() => console.log('10'), 10);
    setTimeout(() => console.log('10 again'), 10);
    setTimeout(() => { throw new Error('20'); }, 20);
    setTimeout(() => console.log('1 for NaN'), NaN);
    setTimeout(() => console.log('1 for a huge delay'), 2 ** 31);
    console.log('script');)"),
            "script\n");
  const std::string lines = engine.advance(40ms, 8);
  const std::size_t stack = lines.find("\n    at ");
  ASSERT_NE(stack, lines.npos) << lines;
  EXPECT_EQ(lines.substr(0, stack), "1 for NaN\n1 for a huge delay\n10\n10 again\nUncaught Error: 20") << lines;
  EXPECT_TRUE(lines.ends_with("30 a 2\ntick of 30\n")) << lines;
  EXPECT_EQ(engine.statistics().timers_pending, 0U);
  EXPECT_EQ(engine.statistics().timers_fired, 6U);
}

TEST(Timers, AreStoppedByObjectOrNumber) {
  TimedEngine engine;
  engine.run(R"(
    const first = setTimeout(() => console.log('first'), 5);
    const second = +setTimeout(() => console.log('second'), 5);
    const third = setInterval(() => console.log('third'), 5);
    setTimeout(() => console.log('last'), 6);
    clearTimeout(first); clearInterval(second); third.close();
    clearTimeout(first); clearTimeout(null); clearTimeout(); clearTimeout({}); clearTimeout(123456);
    clearImmediate(setImmediate(() => console.log('immediate')));)");
  EXPECT_EQ(engine.advance(20ms, 1), "last\n");
  EXPECT_EQ(engine.statistics().timers_pending, 0U);
}

TEST(Timers, IntervalsRepeatUntilTheyAreCleared) {
  TimedEngine engine;
  engine.run(R"(let count = 0; const timer = setInterval(() => { console.log(++count); if (count === 3) clearInterval(timer); }, 10);)");
  EXPECT_EQ(engine.advance(11ms, 1), "1\n");
  EXPECT_EQ(engine.advance(11ms, 1), "2\n");
  EXPECT_EQ(engine.advance(11ms, 1), "3\n");
  EXPECT_EQ(engine.statistics().timers_pending, 0U);
}

TEST(Timers, RefreshPostponesAndUnrefIsRemembered) {
  TimedEngine engine;
  EXPECT_EQ(engine.run(R"(
    const timer = setTimeout(() => console.log('late'), 20);
    setTimeout(() => { timer.refresh(); console.log('refreshed'); }, 10);
    console.log(timer.hasRef(), timer.unref() === timer, timer.hasRef(), timer.ref().hasRef());)"),
            "true true false true\n");
  EXPECT_EQ(engine.advance(11ms, 1), "refreshed\n");
  EXPECT_EQ(engine.advance(12ms, 0), "");
  EXPECT_EQ(engine.advance(10ms, 1), "late\n");
}

TEST(Timers, ImmediatesRunAfterTheTurnInOrder) {
  TimedEngine engine;
  engine.run(R"(
    setImmediate((value) => { console.log('first', value); setImmediate(() => console.log('third'));
    Promise.resolve().then(() => console.log('microtask')); }, 1);
    setImmediate(() => console.log('second'));)");
  EXPECT_EQ(engine.advance(0ms, 4), "first 1\nmicrotask\nsecond\nthird\n");
  EXPECT_EQ(engine.statistics().immediates, 3U);
}

TEST(Timers, TheirNumberIsBounded) {
  TimedEngine engine({.timers_max = 100});
  EXPECT_EQ(engine.run(R"(
    let count = 0;
    try { for (;;) { setTimeout(() => {}, 1000); count++; } } catch (error) { console.log(count, error.code); }
    try { setTimeout('text', 1); } catch (error) { console.log(error.code); })"),
            "100 ERR_TOO_MANY_TIMERS\nERR_INVALID_ARG_TYPE\n");
  EXPECT_EQ(engine.statistics().timers_refused, 1U);
}

TEST(Timers, AwaitedAtTheTopOfAModule) {
  TimedEngine engine;
  (void)engine;  // see modules_test.cpp for modules; here: promises that wait for timers
  engine.run("(async () => { for (let i = 0; i < 3; i++) { await new Promise((done) => setTimeout(done, 5)); console.log(i); } })();");
  EXPECT_EQ(engine.advance(6ms, 1), "0\n");
  EXPECT_EQ(engine.advance(6ms, 1), "1\n");
  EXPECT_EQ(engine.advance(6ms, 1), "2\n");
}

TEST(Timers, ManyFireInOrder) {
  TimedEngine engine({.console_bytes_per_s = 1 << 20});
  engine.run(R"(
    const order = []; let left = 2000;
    for (let i = 0; i < 2000; i++) {
      const delay = 1 + (i * 7919) % 97;
      setTimeout(() => { order.push(delay); if (--left === 0) console.log(order.every((d, n) => n === 0 || order[n - 1] <= d)); }, delay);
    }
    for (let i = 0; i < 500; i++) clearTimeout(setTimeout(() => console.log('stopped'), 1 + i % 50));)");
  EXPECT_EQ(engine.advance(200ms, 1), "true\n");
}

}  // namespace
}  // namespace neap::webserver
