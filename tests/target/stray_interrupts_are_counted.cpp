// SPDX-License-Identifier: BSL-1.0
// An interrupt whose vector has no handler is a device's mistake: the core counts it and continues.
#include <chrono>

#include "kernel/x86/apic.hpp"
#include "kernel/x86/cores.hpp"
#include "tests/target/check.hpp"

neap::task<int> neap::application(Arguments& arguments) {
  using test::check;
  arguments.finish();
  // Two vectors in the range of the legacy interrupt controllers, three unused vectors in the devices' range, and two above that range.
  constexpr std::uint8_t vectors[] = {0x20, 0x2f, machine::vector_first, 0x80, machine::vector_last, 0xe0, 0xef};
  for (unsigned core = 0; core < core_count(); ++core) {
    for (const std::uint8_t vector : vectors) {
      const auto before = event_counters(core).spurious;
      x86::apic::send(x86::apic_id_of(core), vector);
      for (unsigned tries = 0; event_counters(core).spurious == before; ++tries) {
        check(tries < 6000, "a stray interrupt is counted", vector);
        co_await sleep_for(std::chrono::milliseconds(5));
      }
      check(event_counters(core).spurious == before + 1, "and once", vector);
    }
    const auto there = co_await on_core(core, [] { return this_core(); });
    check(there == core, "the core works on", core);
  }
  co_return 0;
}
