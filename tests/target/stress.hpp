// SPDX-License-Identifier: BSL-1.0
// Functions that the stress images share: duration, random numbers, and the memory in use at the end.
//
// Without the word `seconds=` an image does a fixed amount of work, for the tests. With `seconds=N`, the image runs for N seconds.
#pragma once

#include <chrono>
#include <cstdint>

#include "kernel/memory/heap.hpp"
#include "kernel/rcu.hpp"
#include "kernel/when_all.hpp"
#include "tests/target/check.hpp"

namespace neap::test {

struct Stress {
  explicit Stress(Arguments& arguments)
      : seconds(arguments.number("seconds", 0, {.max = 24 * 3600}, "how long to go on; 0: one short round")) {}

  /// Returns true if another round is due. The first call returns true.
  [[nodiscard]] bool goes_on() noexcept {
    if (round++ == 0) {
      end_ns = machine::now_ns() + seconds * 1'000'000'000;
      return true;
    }
    return machine::now_ns() < end_ns;
  }
  std::uint64_t seconds, round = 0, end_ns = 0;
};

/// A generator of random numbers. Each small group of a number's bits is random, too (Steele, Lea and Flood, "Fast splittable pseudorandom
/// number generators", 2014).
class Chance {
 public:
  explicit Chance(std::uint64_t seed) : state_(seed) {}
  std::uint64_t bits() {
    std::uint64_t mixed = state_ += 0x9E3779B97F4A7C15;
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9;
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB;
    return mixed ^ mixed >> 31;
  }
  unsigned below(unsigned end) { return static_cast<unsigned>(bits() % end); }

 private:
  std::uint64_t state_;
};

/// Polls until `holds()` is true. After a minute the test fails, because work was lost.
template <typename Condition>
task<void> wait_for(Condition holds, std::string_view what) {
  constexpr unsigned tries = 6000;
  for (unsigned i = 0; !holds(); ++i) {
    check(i < tries, what);
    co_await sleep_for(std::chrono::milliseconds(10));
  }
}

/// Returns the memory in use after all retired objects are reclaimed and all remote frees have arrived.
inline task<std::uint64_t> settled_memory_bytes() {
  for (unsigned i = 0; i < 50; ++i) {
    co_await on_each_core([] { spawn([] {}); });
    co_await sleep_for(std::chrono::milliseconds(2));
  }
  for (unsigned core = 0; core < core_count(); ++core) {
    const auto pending = [] { return rcu::pending(); };
    for (unsigned i = 0; co_await on_core(core, pending) != 0; ++i) {
      check(i < 3000, "what was retired is never reclaimed, on core", core);
      co_await sleep_for(std::chrono::milliseconds(10));
    }
  }
  co_return memory::heap_counters().used_bytes;
}

}  // namespace neap::test
