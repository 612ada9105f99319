// SPDX-License-Identifier: BSL-1.0
#include "kernel/events.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "kernel/event_loop.hpp"
#include "kernel/timer.hpp"
#include "tests/host/busy_core.hpp"
#include "tests/host/host_machine.hpp"
#include "tests/host/panics.hpp"

namespace neap {
namespace {

using host::HostMachine;

TEST(Events, SpawnedEventsRunInOrderAfterThePresentOne) {
  std::vector<int> order;
  std::atomic<bool> done{false};
  HostMachine machine{1};
  machine.on(0, [&] {
    for (int i = 1; i <= 100; ++i) spawn([&order, i] { order.push_back(i); });
    spawn([&done] { done = true; });
    order.push_back(0);
  });
  ASSERT_TRUE(HostMachine::wait_until([&] { return done.load(); }));
  ASSERT_EQ(order.size(), 101U);
  for (int i = 0; i <= 100; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
}

// If a wake-up is lost between the last check of the queue and the sleep, both cores sleep for ever.
TEST(Events, PingPongBetweenSleepingCoresLosesNoWakeUp) {
  constexpr int rounds = 200'000;
  std::atomic<int> received{0};
  std::function<void()> bounce = [&] {
    const int round = received.fetch_add(1) + 1;
    if (round < rounds) {
      EXPECT_TRUE(spawn_on(1 - this_core(), [&] { bounce(); }).has_value());
    }
  };
  HostMachine machine{2};
  machine.on(0, bounce);
  ASSERT_TRUE(HostMachine::wait_until([&] { return received.load() == rounds; }, std::chrono::seconds(50)));
  EXPECT_GT(event_counters(0).sleeps + event_counters(1).sleeps, 100U);
  EXPECT_EQ(event_counters(0).remote_refused + event_counters(1).remote_refused, 0U);
}

TEST(Events, FullRemoteQueueRefusesAndLosesNothing) {
  std::vector<std::atomic<int>> runs(remote_queue_capacity + 10);
  HostMachine machine{2};
  host::BusyCore busy(machine, 1);
  unsigned accepted = 0;
  machine.on(0, [&] {
    for (std::atomic<int>& run : runs) {
      const auto result = spawn_on(1, [&run] { ++run; });
      if (result.has_value()) {
        ++accepted;
      } else {
        EXPECT_EQ(result.error().code, ErrorCode::full);
      }
    }
  });
  EXPECT_EQ(accepted, remote_queue_capacity);
  EXPECT_EQ(event_counters(0).remote_refused, 10U);
  busy.release();
  const auto total = [&] {
    int sum = 0;
    for (const std::atomic<int>& run : runs) sum += run;
    return sum;
  };
  EXPECT_TRUE(HostMachine::wait_until([&] { return total() == static_cast<int>(remote_queue_capacity); }));
  machine.on(1, [] {});
  for (std::size_t i = 0; i < runs.size(); ++i) EXPECT_EQ(runs[i], i < remote_queue_capacity ? 1 : 0);
}

// Three cores fill one core's queue completely, again and again: each accepted event runs once, in its sender's order.
TEST(Events, ManySendersToOneFullQueueKeepCountAndOrder) {
  constexpr int each = 50'000;
  std::array<int, 4> next{};  // used by core 0 only
  std::atomic<int> received{0}, disorder{0};
  struct Sender {
    unsigned core;
    int sent = 0;
  };
  std::array<Sender, 3> senders{{{1}, {2}, {3}}};
  std::function<void(Sender&)> send = [&](Sender& sender) {
    while (sender.sent < each) {
      const auto result = spawn_on(0, [&, core = sender.core, number = sender.sent] {
        if (next[core]++ != number) ++disorder;
        ++received;
      });
      if (!result.has_value()) break;
      ++sender.sent;
    }
    if (sender.sent < each) spawn([&] { send(sender); });
  };
  HostMachine machine{4};
  for (Sender& sender : senders) machine.on(sender.core, [&] { spawn([&] { send(sender); }); });
  EXPECT_TRUE(HostMachine::wait_until([&] { return received == 3 * each; }, std::chrono::seconds(50)));
  EXPECT_EQ(disorder, 0);
  EXPECT_EQ(event_counters(0).remote_received, 3U * each);
}

TEST(Events, HandedOverNodesRunInOrder) {
  constexpr int count = 10'000;
  struct Numbered : RemoteNode {
    int number = 0;
    std::vector<int>* order = nullptr;
  };
  std::vector<Numbered> nodes(count);
  std::vector<int> order;
  HostMachine machine{2};
  machine.on(0, [&] {
    for (int i = 0; i < count; ++i) {
      Numbered& node = nodes[static_cast<std::size_t>(i)];
      node.number = i;
      node.order = &order;
      node.run = [](RemoteNode* arrived) noexcept {
        auto& self = *static_cast<Numbered*>(arrived);
        self.order->push_back(self.number);
      };
      hand_over(1, node);
    }
  });
  ASSERT_TRUE(HostMachine::wait_until([&] { return machine.value_on(1, [&] { return order.size(); }) == count; }));
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
}

// An event that always spawns the next one must not stop other kinds of work.
TEST(Events, FloodOfLocalEventsStarvesNothing) {
  std::atomic<bool> stop{false}, interrupt_ran{false}, remote_ran{false}, timer_ran{false}, handed_over{false};
  std::function<void()> flood = [&] {
    if (!stop) {
      spawn([&] { flood(); });
      spawn([] {});
    }
  };
  std::unique_ptr<Timer> timer;
  std::uint8_t vector = 0;
  HostMachine machine{2};
  machine.on(1, [&] {
    vector = allocate_vector(1, [&] { interrupt_ran = true; }).value();
    timer = std::make_unique<Timer>();
    timer->arm(std::chrono::milliseconds(1), [&] { timer_ran = true; });
    flood();
  });
  machine.interrupt(1, vector);
  machine.on(0, [&] { EXPECT_TRUE(spawn_on(1, [&] { remote_ran = true; }).has_value()); });
  EXPECT_TRUE(HostMachine::wait_until([&] { return interrupt_ran && remote_ran && timer_ran; }));
  machine.on(1, [&] { handed_over = true; });
  EXPECT_TRUE(handed_over);
  stop = true;
  machine.on(1, [&] { timer.reset(); });
}

TEST(EventEndHook, RunsOnceAtTheEndOfTheRequestingEventInOrder) {
  std::vector<std::string> order;
  HostMachine machine{1};
  machine.on(0, [&] {
    auto* const first = new EventEndHook([&] { order.push_back("first"); });
    static EventEndHook* third = nullptr;
    auto* const second = new EventEndHook([&order] {
      order.push_back("second");
      third->request();
    });
    third = new EventEndHook([&] { order.push_back("third"); });
    second->request();
    first->request();
    second->request();
    order.push_back("event");
    spawn([&, first, second] {
      order.push_back("next event");
      third->request();
      first->request();
      second->request();
      delete second;  // a destroyed hook is not run, but the hooks before and after it are
      spawn([&, first] {
        order.push_back("last event");
        delete first;
        const EventEndHook again([&] { order.push_back("again"); });  // takes the place of a hook that is gone
        third->request();
        delete third;
      });
    });
  });
  machine.on(0, [] {});
  machine.on(0, [] {});
  const std::vector<std::string> expected{"event", "first", "second", "third", "next event", "first", "third", "last event"};
  ASSERT_TRUE(HostMachine::wait_until([&] { return order.size() >= expected.size(); }));
  EXPECT_EQ(order, expected);
}

TEST(EventEndHook, ThereAreEnoughOfEachPlace) {
  HostMachine machine{1};
  machine.on(0, [&] {
    unsigned ran = 0;
    std::vector<std::unique_ptr<EventEndHook>> hooks;
    for (unsigned i = 0; i < 16; ++i) hooks.push_back(std::make_unique<EventEndHook>([&ran] { ++ran; }));
    for (unsigned i = 0; i < 8; ++i) hooks.push_back(std::make_unique<EventEndHook>([&ran] { ++ran; }, EventEndHook::Place::last));
    for (const auto& hook : hooks) hook->request();
    EventLoop::end_event();
    EXPECT_EQ(ran, 24U);
  });
}

TEST(EventEndHookDeathTest, TooManyAreAMistake) {
  host::expect_panic("a core has too many event-end hooks", [] {
    HostMachine machine{1};
    machine.on(0, [&] {
      std::vector<std::unique_ptr<EventEndHook>> hooks;
      for (unsigned i = 0; i < 17; ++i) hooks.push_back(std::make_unique<EventEndHook>([] {}));
    });
  });
}

// A driver's hook for the tail write has place `last`: it runs when no other hook is left, whatever the order of the requests.
TEST(EventEndHook, PlaceLastRunsAfterAllOthers) {
  std::vector<std::string> order;
  std::unique_ptr<EventEndHook> driver, server, gatherer, gone;
  HostMachine machine{1};
  machine.on(0, [&] {
    driver = std::make_unique<EventEndHook>([&] { order.push_back("driver"); }, EventEndHook::Place::last);
    gone = std::make_unique<EventEndHook>([&] { order.push_back("gone"); }, EventEndHook::Place::last);
    gatherer = std::make_unique<EventEndHook>([&] {
      order.push_back("gatherer");
      driver->request();
    });
    server = std::make_unique<EventEndHook>([&] {
      order.push_back("server");
      gatherer->request();
    });
    gone->request();
    driver->request();
    server->request();
    gone.reset();
  });
  machine.on(0, [&] {
    EXPECT_EQ(order, (std::vector<std::string>{"server", "gatherer", "driver"}));
    order.clear();
    gatherer = std::make_unique<EventEndHook>([&] { order.push_back("gatherer"); });
    driver = std::make_unique<EventEndHook>(
        [&] {
          order.push_back("driver");
          if (order.size() == 1) gatherer->request();
        },
        EventEndHook::Place::last);
    driver->request();
  });
  machine.on(0, [&] {
    EXPECT_EQ(order, (std::vector<std::string>{"driver", "gatherer"})) << "a request of the last hook runs in the same pass";
    driver.reset();
    server.reset();
    gatherer.reset();
  });
}

TEST(IdleHook, RunsBeforeEverySleepAndFoundWorkCountsAsAnEvent) {
  std::unique_ptr<IdleHook> hook, other;
  std::unique_ptr<EventEndHook> end;
  std::atomic<int> asked{0}, ends{0}, spawned{0};
  HostMachine machine{1};
  machine.on(0, [&] {
    end = std::make_unique<EventEndHook>([&] { ++ends; });
    hook = std::make_unique<IdleHook>([&] {
      const int now = ++asked;
      if (now == 3) spawn([&] { ++spawned; });  // the event must run before the sleep, even if the hook returns false
      if (now == 2) other.reset();              // a hook may remove another
      end->request();
      return now <= 2;
    });
    other = std::make_unique<IdleHook>([] { return false; });
  });
  EXPECT_TRUE(HostMachine::wait_until([&] { return spawned == 1; }));
  EXPECT_GE(asked, 4);
  EXPECT_GE(ends, 3);
  const int before = asked;
  machine.on(0, [] {});
  EXPECT_TRUE(HostMachine::wait_until([&] { return asked > before; }));
  machine.on(0, [&] {
    hook.reset();
    end.reset();
  });
}

TEST(Events, SleepIsCountedAndIdleCoresStayAsleep) {
  HostMachine machine{2};
  ASSERT_TRUE(HostMachine::wait_until([] { return event_counters(1).sleeps > 0; }));
  const EventCounters before = event_counters(1);
  machine.on(0, [] {
    for (int i = 0; i < 1'000; ++i) spawn([] {});
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const EventCounters during = event_counters(1);
  EXPECT_EQ(during.sleeps, before.sleeps) << "a core was woken without work";
  EXPECT_GE(during.asleep_ns - before.asleep_ns, 40'000'000U) << "the sleep in progress is not counted";
  machine.on(1, [] {});
  EXPECT_GE(event_counters(1).asleep_ns, during.asleep_ns);
  EXPECT_LE(event_counters(1).asleep_ns, machine::now_ns());
}

TEST(Events, QueuedEventsAreDestroyedWhenTheLoopStops) {
  const auto witness = std::make_shared<int>(0);
  {
    HostMachine machine{1};
    machine.on(0, [witness] {
      for (int i = 0; i < 100'000; ++i) spawn([witness] {});
    });
  }
  EXPECT_EQ(witness.use_count(), 1);
}

TEST(EventsDeathTest, ExceptionThatLeavesAnEventIsAPanicThatNamesIt) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  host::expect_panic("std::runtime_error: the reason", [] {
    HostMachine machine{1};
    machine.on(0, [] { spawn([] { throw std::runtime_error("the reason"); }); });
    std::this_thread::sleep_for(std::chrono::seconds(10));
  });
}

// A request that arrives during the call must cause a second call.
TEST(CoalescedCall, RunsOnceForManyRequestsAndAgainForARequestDuringTheRun) {
  HostMachine machine(2);
  struct Work {
    CoalescedCall call{[](void* work) noexcept { static_cast<Work*>(work)->run(); }, this};
    unsigned runs = 0, wrong_core = 0;
    void run() noexcept {
      if (this_core() != 1) ++wrong_core;
      if (++runs == 1) call.ask(1);
    }
  } work;
  machine.on(1, [&] {
    for (int i = 0; i < 3; ++i) work.call.ask(1);
    EXPECT_TRUE(work.call.asked());
    EXPECT_EQ(work.runs, 0U) << "in an event of its own";
  });
  const auto runs = [&] { return work.runs; };
  EXPECT_TRUE(HostMachine::wait_until([&] { return machine.value_on(1, runs) == 2; }));
  work.call.ask(1);
  EXPECT_TRUE(HostMachine::wait_until([&] { return machine.value_on(1, runs) == 3; }));
  machine.on(1, [&] { EXPECT_TRUE(work.runs == 3 && work.wrong_core == 0 && !work.call.asked()); });
}

// Corrected errors are counted when the core is awake; no alarm is armed for the check.
TEST(Events, ErrorBanksAreReadOnceAMinuteAndWakeNoCore) {
  constexpr std::uint64_t minute_ns = 60'000'000'000;
  static_cast<void>(host::take_error_looks(0));  // discards the count of earlier tests
  host::ManualClock clock(1'000'000'000);
  HostMachine machine(1);
  const auto asleep = [] { return HostMachine::wait_until([] { return host::asleep_in(0).has_value(); }); };
  const auto wake_up = [&] {
    machine.on(0, [] {});
    ASSERT_TRUE(asleep());
  };
  wake_up();
  wake_up();
  EXPECT_EQ(host::take_error_looks(0), 1U);
  wake_up();
  clock.advance(std::chrono::nanoseconds(minute_ns - 1));
  wake_up();
  EXPECT_EQ(host::take_error_looks(0), 0U);
  clock.advance(std::chrono::nanoseconds(1'000'000));
  EXPECT_EQ(host::alarm_of(0), machine::alarm_none);
  EXPECT_EQ(host::take_error_looks(0), 0U) << "nothing woke the core";
  wake_up();
  wake_up();
  EXPECT_EQ(host::take_error_looks(0), 1U);
}

}  // namespace
}  // namespace neap
