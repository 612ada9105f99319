// SPDX-License-Identifier: BSL-1.0
// Power-off by ACPI, restart, and a silent halt can be distinguished from outside.
#include "tests/target/check.hpp"

neap::task<int> neap::application(Arguments& arguments) {
  enum Way : std::size_t { off, restart, fail, stay };
  const auto way = arguments.choice("way", {"off", "restart", "fail", "stay"}, 0, "how to end");
  const auto core = arguments.number("core", 0, {.min = 0, .max = core_count() - 1}, "which core ends it");
  arguments.finish();
  print("random ", hex(machine::random_bits()));
  co_await on_core(static_cast<unsigned>(core), [way] {
    if (way == off) machine::power_off();
    if (way == restart) machine::reboot();
    if (way == fail) machine::exit(machine::ExitStatus::failure);
  });
  if (way == stay) {
    print("staying");
    co_await sleep_for(std::chrono::seconds(60));
  }
  co_return 3;
}
