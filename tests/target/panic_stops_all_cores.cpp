// SPDX-License-Identifier: BSL-1.0
// A panic on one core stops the others at any point, even within a printed line, and prints the other cores' backtraces as far as their
// stacks can be read.
#include <atomic>

#include "kernel/panic.hpp"
#include "tests/target/check.hpp"

namespace {

constinit std::atomic<unsigned> busy{0};

[[gnu::noinline]] void print_without_end() {
  ++busy;
  for (;;) neap::print("a long line that is very likely being written when the panic comes, over and over, without end");
}

[[gnu::noinline]] void spin_without_end() {
  ++busy;
  for (std::atomic<bool> go_on{true}; go_on.load();) {
  }
}

[[gnu::noinline]] void call_what_spins() {
  spin_without_end();
  asm volatile("");  // prevents a tail call
}

// Sets the stack pointer to an address without a mapping, then loops for ever.
[[gnu::noinline]] void spin_on_a_lost_stack() {
  ++busy;
  asm volatile("movq $0x1000, %%rsp; 1: jmp 1b" ::: "memory");
}

}  // namespace

neap::task<int> neap::application(Arguments& arguments) {
  arguments.finish();
  test::check(core_count() == 6, "six cores");
  test::check(spawn_on(1, print_without_end) && spawn_on(2, call_what_spins) && spawn_on(3, spin_on_a_lost_stack), "spawned");
  while (busy.load() != 3) co_await sleep_for(std::chrono::milliseconds(10));
  panic("this core wants to stop");
}
