// SPDX-License-Identifier: BSL-1.0
// Measures the cost of the kernel's own work, as instructions of each step that an application repeats. tools/bench/kernel.py counts them.
//
// Each region is the code between two marks, executed 10,000 times with warm caches. A step may begin in one event and end in another. Then
// each of the two events has one mark, and the event loop's work in between is counted. The marks themselves are not counted.
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>

#include "bench/known_sequences.hpp"
#include "bench/marks.hpp"
#include "kernel/application.hpp"
#include "kernel/core.hpp"
#include "kernel/ebb.hpp"
#include "kernel/event_loop.hpp"
#include "kernel/interrupts.hpp"
#include "kernel/machine.hpp"
#include "kernel/timer.hpp"
#include "kernel/x86/apic.hpp"

namespace {

using namespace neap;

// tools/bench/kernel.py uses these numbers.
enum Region : unsigned {
  known_sequence,
  string_instruction,
  spawn_and_run,
  remote_send,
  remote_receive,
  timer_add_cancel,
  timer_push_back,
  ebb_call,
  plain_call,
  rcu_read,
  plain_read,
  await_ready,
  await_task,
  interrupt_entry,
};

constexpr unsigned repetitions = 10'000, warm_up = 200;

template <Region region>
[[gnu::always_inline]] inline void begin() {
  bench::begin_counting<region>();
}
template <Region region>
[[gnu::always_inline]] inline void end() {
  bench::end_counting<region>();
}

void must(bool holds) {
  if (!holds) machine::exit(machine::ExitStatus::failure);
}

// --- Events on the calling core ----------------------------------------------------------------------------------------------------------
/// A chain of events. Counts from one event's call of `spawn` to the first instruction of the next event.
struct Chain {
  unsigned left = warm_up + repetitions;
  Completion<> done;

  void next() {
    end<spawn_and_run>();
    if (left-- == 0) {
      done.fulfil();
      return;
    }
    begin<spawn_and_run>();
    spawn([this] { next(); });
  }
};

task<void> count_spawns() {
  Chain chain;
  begin<spawn_and_run>();
  spawn([&chain] { chain.next(); });
  co_await chain.done;
}

// --- Events on another core --------------------------------------------------------------------------------------------------------------
/// Core 0 sends work while core 1 executes an event, so no wake-up is needed. When that event ends, core 1 executes the received work.
struct Remote {
  static constexpr unsigned batch = 1000;
  std::atomic<bool> hold{true}, held{false};
  std::atomic<unsigned> received{0};

  void wait_there() {
    held = true;
    while (hold) machine::pause();
  }
  void receive() {
    const unsigned before = received.fetch_add(1);
    if (before % batch != 0) bench::end_counting<remote_receive>();
    if (before % batch != batch - 1) bench::begin_counting<remote_receive>();
  }
};

task<void> count_remote_spawns() {
  Remote remote;
  for (unsigned sent = 0; sent < repetitions; sent += Remote::batch) {
    remote.hold = true;
    remote.held = false;
    must(spawn_on(1, [&remote] { remote.wait_there(); }).has_value());
    while (!remote.held) machine::pause();
    for (unsigned i = 0; i < Remote::batch; ++i) {
      bench::begin_counting<remote_send>();
      const auto result = spawn_on(1, [&remote] { remote.receive(); });
      bench::end_counting<remote_send>();
      must(result.has_value());
    }
    remote.hold = false;
    while (remote.received != sent + Remote::batch) co_await sleep_for(std::chrono::milliseconds(1));
  }
}

// --- Timers ------------------------------------------------------------------------------------------------------------------------------
void count_timers() {
  static std::array<Timer, 1000> others;  // pending timers, so that the wheel is not empty
  for (std::size_t i = 0; i < others.size(); ++i) others[i].arm(std::chrono::seconds(100 + i), [] {});
  Timer timer;
  for (unsigned i = 0; i < warm_up + repetitions; ++i) {
    begin<timer_add_cancel>();
    timer.arm(std::chrono::milliseconds(200), [&timer] { timer.cancel(); });
    timer.cancel();
    end<timer_add_cancel>();
  }
  timer.arm(std::chrono::milliseconds(200), [] {});
  for (unsigned i = 0; i < warm_up + repetitions; ++i) {
    begin<timer_push_back>();
    timer.rearm(std::chrono::milliseconds(200));
    end<timer_push_back>();
  }
  for (Timer& other : others) other.cancel();
}

// --- Ebbs and RCU ------------------------------------------------------------------------------------------------------------------------
struct Requests {
  std::uint64_t served = 0;
};
constexpr Ebb<Requests> requests;

struct Settings {
  std::uint64_t value = 42;
};
Settings first_settings, other_settings;
Settings* plain_settings = &first_settings;
std::atomic<Settings*> shared_settings{&first_settings};

// Counts accesses to an object: directly, by an Ebb (a name for an object on each core), and by RCU. Each count includes the object's use.
void count_ebbs_and_rcu() {
  Requests plain;
  asm volatile("" ::"r"(&plain) : "memory");  // forces `plain` into memory
  for (unsigned i = 0; i < warm_up + repetitions; ++i) {
    begin<plain_call>();
    plain.served = i;
    asm volatile("" ::: "memory");
    end<plain_call>();
    begin<ebb_call>();
    requests->served = i;
    asm volatile("" ::: "memory");
    end<ebb_call>();
    std::uint64_t seen = 0;
    begin<plain_read>();
    seen = plain_settings->value;
    asm volatile("" ::"r"(seen) : "memory");
    end<plain_read>();
    // Other code may replace and retire `shared_settings` meanwhile. A reader only needs to be inside an event.
    begin<rcu_read>();
    seen = shared_settings.load(std::memory_order_acquire)->value;
    asm volatile("" ::"r"(seen) : "memory");
    end<rcu_read>();
    if (i % 100 == 99) {
      Settings* const next = shared_settings == &first_settings ? &other_settings : &first_settings;
      shared_settings = plain_settings = next;
    }
  }
}

// --- Coroutines --------------------------------------------------------------------------------------------------------------------------
[[gnu::noinline]] task<int> at_once(int value) { co_return value; }

task<void> count_awaits() {
  for (unsigned i = 0; i < warm_up + repetitions; ++i) {
    Completion<int> completion;
    completion.fulfil(1);
    begin<await_ready>();
    const int value = co_await completion;
    end<await_ready>();
    must(value == 1);
  }
  for (unsigned i = 0; i < warm_up + repetitions; ++i) {
    begin<await_task>();
    const int value = co_await at_once(2);
    end<await_task>();
    must(value == 2);
  }
}

// --- Interrupts --------------------------------------------------------------------------------------------------------------------------

// Counts from the CPU's acceptance of the interrupt to the first instruction of the vector's callback. This includes entry, marking the
// vector (kernel/interrupts.hpp), acknowledgement, return, and the loop's check for marked vectors.
void count_interrupts() {
  const auto vector = allocate_vector(0, [] { end<interrupt_entry>(); });
  must(vector.has_value());
  for (unsigned i = 0; i < warm_up + repetitions; ++i) {
    x86::apic::send(x86::apic::this_id(), *vector);
    begin<interrupt_entry>();
    machine::open_interrupt_window();
    run_marked_interrupts(*this_core_state());
  }
  free_vector(0, *vector);
}

}  // namespace

neap::task<int> neap::application(Arguments& arguments) {
  arguments.finish();
  must(core_count() >= 2);
  bench::count_known_sequences<known_sequence, string_instruction>();
  co_await count_spawns();
  co_await count_remote_spawns();
  count_timers();
  count_ebbs_and_rcu();
  co_await count_awaits();
  count_interrupts();
  co_return 0;
}
