// SPDX-License-Identifier: BSL-1.0
// Time does not go back from core to core: the receiver of a message never reads an earlier time than the sender read.
#include "tests/target/check.hpp"

neap::task<int> neap::application(Arguments& arguments) {
  using test::check;
  arguments.finish();
  check(machine::timestamp_hz() > 100'000'000, "rate of the counter in Hz", machine::timestamp_hz());
  for (unsigned round = 0; round < 200; ++round) {
    for (unsigned core = 0; core < core_count(); ++core) {
      const auto before_ns = machine::now_ns();
      const auto before = machine::timestamp();
      const auto there_ns = co_await on_core(core, [] { return machine::now_ns(); });
      const auto there = co_await on_core(core, [] { return machine::timestamp(); });
      check(there_ns >= before_ns, "nanoseconds went back by", before_ns - there_ns);
      check(there >= before, "the counter went back by", before - there);
      check(machine::now_ns() >= there_ns, "nanoseconds went back by", there_ns - machine::now_ns());
    }
  }
  co_return 0;
}
