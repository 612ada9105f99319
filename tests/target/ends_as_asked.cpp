// SPDX-License-Identifier: BSL-1.0
// The ways out: power-off by ACPI, restart, and halting in silence are told apart outside.
#include "kernel/panic.hpp"
#include "tests/target/check.hpp"

neap::task<int> neap::application(Arguments& arguments) {
  enum Way : std::size_t { off, restart, fail, stay };
  const auto way = arguments.choice("way", {"off", "restart", "fail", "stay"}, 0, "how to end");
  arguments.finish();
  print("random ", hex(machine::random_bits()));
  if (way == off) machine::power_off();
  if (way == restart) machine::reboot();
  if (way == stay) {
    print("staying");
    co_await sleep_for(std::chrono::seconds(60));
  }
  co_return 3;
}
