// SPDX-License-Identifier: BSL-1.0
// QEMU's monitor injects machine checks. A corrected error is counted, and the machine continues. target_test.py has the expected output
// for an uncorrected error. With `look=no` this image does not read the error banks, so errors remain there for the next start.
#include "tests/target/check.hpp"

neap::task<int> neap::application(Arguments& arguments) {
  const bool look = arguments.choice("look", {"no", "yes"}, 1, "count errors") != 0;
  arguments.finish();
  print("ready");
  std::uint64_t counted = 0;
  for (unsigned waited_ms = 0; waited_ms < 60'000; waited_ms += 20) {
    co_await sleep_for(std::chrono::milliseconds(20));
    if (!look) continue;
    for (unsigned core = 0; core < core_count(); ++core) co_await on_core(core, [] { machine::check_hardware_errors(); });
    const std::uint64_t now = machine::hardware_errors().corrected;
    if (now != counted) print("counted ", now);
    counted = now;
  }
  co_return 1;
}
