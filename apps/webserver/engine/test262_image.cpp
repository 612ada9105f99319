// SPDX-License-Identifier: BSL-1.0
// Runs an archive of test262 (test262.hpp), the first boot module, on core 0. Prints a line for each run.
#include <chrono>

#include "apps/webserver/engine/test262.hpp"
#include "kernel/application.hpp"
#include "kernel/console.hpp"
#include "kernel/events.hpp"
#include "kernel/machine.hpp"
#include "kernel/task.hpp"

neap::task<int> neap::application(Arguments& arguments) {
  using namespace webserver;
  using namespace std::chrono_literals;
  const auto watchdog = arguments.duration("limit", 60s, "time after which a test is ended");
  arguments.finish();
  if (machine::boot_modules().empty()) {
    print("test262: there is no boot module");
    co_return 1;
  }
  const auto archive = Archive::open(machine::boot_modules().front().bytes);
  if (!archive) {
    print("test262: the boot module is no archive");
    co_return 1;
  }
  const auto watchdog_ms = std::chrono::duration_cast<std::chrono::milliseconds>(watchdog).count();
  auto runner = test262::Runner::make(*archive, static_cast<std::uint32_t>(watchdog_ms));
  if (!runner) {
    print("test262: the archive has no valid list of tests");
    co_return 1;
  }
  for (std::size_t number = 0; number < runner->size(); ++number) {
    print(runner->run(number));
    co_await on_core(this_core(), [] {});  // each run in an event of its own
  }
  print("262 end");
  co_return 0;
}
