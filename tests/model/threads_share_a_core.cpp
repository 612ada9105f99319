// SPDX-License-Identifier: BSL-1.0
// Core 0 computes alone, then all cores compute at the same time. The model writes a snapshot before, between and after (CPUID). Each core
// prints the topology that CPUID states to it. The test compares these with the machine that it has asked for.
#include <array>

#include "kernel/policy.hpp"
#include "kernel/when_all.hpp"
#include "kernel/x86/cpu.hpp"
#include "tests/target/check.hpp"

namespace {

using namespace neap;

constexpr std::uint64_t loop_rounds = 2'000'000;

void compute() {
  for (std::uint64_t i = 0; i < loop_rounds; ++i) asm volatile("");
}

void mark(std::uint32_t number) { (void)x86::cpuid(x86::model_machine_leaf, number); }

/// The topology in CPUID leaves 1, 4 and 0Bh (SDM 2A, CPUID).
struct Place {
  std::uint32_t id = 0, threads_of_core = 0, thread_bits = 0, threads_of_package = 0, threads_of_first_cache = 0;
};

Place read_place() {
  const auto level = x86::cpuid(0x0b, 0);
  const auto features = x86::cpuid(1, 0);
  const bool several_threads = (features.edx >> 28 & 1) != 0;
  return {.id = level.edx,
          .threads_of_core = level.ebx & 0xffff,
          .thread_bits = level.eax & 31,
          .threads_of_package = several_threads ? features.ebx >> 16 & 0xff : 1,
          .threads_of_first_cache = (x86::cpuid(4, 0).eax >> 14 & 0xfff) + 1};
}

}  // namespace

neap::task<int> neap::application(Arguments& arguments) {
  arguments.finish();
  std::array<Place, machine::cores_max> places{};
  co_await on_each_core([&places] { places[this_core()] = read_place(); });
  for (unsigned core = 0; core < core_count(); ++core) {
    const Place& place = places[core];
    print("core ", core, " id ", place.id, " threads_of_core ", place.threads_of_core, " thread_bits ", place.thread_bits,
          " threads_of_package ", place.threads_of_package, " threads_of_first_cache ", place.threads_of_first_cache);
  }
  test::check((co_await policy::set(policy::Setting::idle, "c7", policy::all_cores)).has_value(), "idle=c7");
  co_await sleep_for(std::chrono::milliseconds(1));  // the other cores fall asleep
  mark(1);
  compute();
  mark(2);
  co_await on_each_core([] { compute(); });
  mark(3);
  co_return 0;
}
