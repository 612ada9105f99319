// SPDX-License-Identifier: BSL-1.0
#include "tests/host/progress_watchdog.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "kernel/events.hpp"
#include "tests/host/host_machine.hpp"

namespace neap::host {
namespace {

[[gnu::noinline]] void loop_for_ever() {
  for (std::atomic<bool> on{true}; on.load();) {
  }
}

TEST(ProgressWatchdog, AnEventThatDoesNotReturnEndsTheTestWithItsBacktrace) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        set_progress_limit(2);
        HostMachine machine(2);
        machine.on(1, [] { loop_for_ever(); });
      },
      "host machine: an event of core 1 has lasted for 2 s; it is at:(.|\n)*"
#ifdef __SANITIZE_ADDRESS__
      "loop_for_ever"
#endif
  );
}

TEST(ProgressWatchdog, AnInputThatDoesNotReturnEndsTheFuzzer) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        set_progress_limit(1);
        WatchedWork work("stream 7");
        work.begin_piece();
        loop_for_ever();
      },
      "host machine: stream 7 has lasted for 1 s");
}

// A sleeping core, a core that always has another event and a thread between two pieces all make progress.
TEST(ProgressWatchdog, ProgressIsNoFault) {
  set_progress_limit(2);
  {
    WatchedWork work("nothing");
    work.begin_piece();
    work.end_piece();
    HostMachine machine(2);
    static std::atomic<bool> on{true};
    struct Again {
      static void run() {
        if (on) spawn([] { run(); });
      }
    };
    machine.on(1, [] { Again::run(); });
    std::this_thread::sleep_for(std::chrono::seconds(4));
    on = false;
  }
  set_progress_limit(progress_limit);
}

}  // namespace
}  // namespace neap::host
