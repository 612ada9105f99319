// SPDX-License-Identifier: BSL-1.0
// Measures the calls of the log that the driver makes. tools/bench/instructions.py counts their instructions.
//
// Each region is the code between two marks, executed 10,000 times: the call, its arguments, and the function.
#include "bench/known_sequences.hpp"
#include "bench/marks.hpp"
#include "kernel/application.hpp"
#include "kernel/console.hpp"
#include "kernel/log.hpp"
#include "kernel/machine.hpp"

namespace {

using namespace neap;

// tools/bench/instructions.py uses these numbers.
enum Region : unsigned {
  known_sequence,
  string_instruction,
  interrupt_off,
  interrupt_on,
  interrupt_control,
  slept_on,
  poll_on,
  cycle_on,
  count_control
};

constexpr unsigned repetitions = 10'000;

log::Traffic traffic;

/// `before` runs before each call and is not counted.
template <Region region, class Call, class Before = void (*)()>
void repeat(Call call, Before before = [] {}) {
  for (unsigned i = 0; i < 100; ++i) call();  // warms up pages, QEMU's translations and the log's first chunks
  for (unsigned i = 0; i < repetitions; ++i) {
    traffic.rx_descriptors.add(3);
    traffic.rx_frames.add(3);
    traffic.rx_bytes.add(1'500);
    traffic.tx_descriptors.add(4);
    before();
    bench::begin_counting<region>();
    call();
    bench::end_counting<region>();
  }
}

}  // namespace

neap::task<int> neap::application(Arguments& arguments) {
  arguments.finish();
  bench::count_known_sequences<known_sequence, string_instruction>();
  log::watch(&traffic);
  repeat<interrupt_off>([] { log::interrupt(); });
  if (!co_await log::prepare({.entries_per_core = 256 * 1024, .sample_period_us = 0})) co_return 1;
  if (!co_await log::start({})) co_return 1;
  repeat<interrupt_on>([] { log::interrupt(); });
  repeat<poll_on>([] { log::poll(); });
  repeat<slept_on>([] { log::slept(IdleState::halt, IdleState::halt, 1'000, 2'000, {}); });
  repeat<cycle_on>([] {
    log::interrupt();
    log::before_sleep();
    log::slept(IdleState::halt, IdleState::halt, 1'000, 2'000, {});
  });
  constexpr log::ControlTraffic control{.rx_frames = 1, .rx_bytes = 100};
  repeat<count_control>([&] { log::count_control(control); });
  repeat<interrupt_control>([] { log::interrupt(); }, [&] { log::count_control(control); });
  if (!co_await log::stop()) co_return 1;
  const log::Extent extent = log::extent(0);
  print("bench_observe: ", extent.end, " lines, ", extent.unwritten, " unwritten");
  log::watch(nullptr);
  co_return extent.unwritten == 0 ? 0 : 1;
}
