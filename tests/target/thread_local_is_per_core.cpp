// SPDX-License-Identifier: BSL-1.0
// Thread-local variables: each core has its own, with its initial value, a constructor that runs there once, and its alignment.
#include <array>
#include <atomic>
#include <cstdint>
#include <set>

#include "tests/target/check.hpp"

namespace {

using neap::test::check;

std::atomic<unsigned> constructed{0};
bool static_constructor_ran = [] {
  constructed.fetch_add(0);
  return neap::machine::this_core() == 0;
}();

struct Counter {
  Counter() : core(neap::this_core()), number(constructed.fetch_add(1) + 1) {}
  unsigned core, number;
};

constinit thread_local std::uint64_t initialised = 0x1234567890abcdef, zeroed = 0;
constinit thread_local char odd[3] = {'a', 'b', 'c'};
struct alignas(64) Line {
  std::uint64_t first;
};
constinit thread_local Line aligned{77};
thread_local Counter counter;

std::array<const void*, neap::machine::cores_max> places{};

void look() {
  const auto core = neap::this_core();
  check(initialised == 0x1234567890abcdef, "first value", initialised);
  check(zeroed == 0, "zero", zeroed);
  check(odd[0] == 'a' && odd[2] == 'c', "odd-sized variable");
  check(aligned.first == 77, "aligned variable's value", aligned.first);
  check(reinterpret_cast<std::uintptr_t>(&aligned) % 64 == 0, "alignment", reinterpret_cast<std::uintptr_t>(&aligned));
  check(counter.core == core, "constructed on its own core", counter.core);
  const auto number = counter.number;
  check(counter.number == number, "constructed once");
  initialised = core;
  zeroed = core + 1;
  places[core] = &zeroed;
}

void look_again() {
  check(initialised == neap::this_core(), "kept value", initialised);
  check(zeroed == neap::this_core() + 1, "kept value", zeroed);
}

}  // namespace

neap::task<int> neap::application(Arguments& arguments) {
  arguments.finish();
  check(static_constructor_ran, "static constructors ran on core 0");
  for (unsigned core = 0; core < core_count(); ++core) co_await on_core(core, look);
  for (unsigned core = 0; core < core_count(); ++core) co_await on_core(core, look_again);
  check(constructed.load() == core_count(), "one construction a core", constructed.load());
  check(std::set<const void*>(places.begin(), places.begin() + core_count()).size() == core_count(), "addresses differ");
  // A pointer to another core's variable is an ordinary pointer.
  for (unsigned core = 0; core < core_count(); ++core) {
    check(*static_cast<const std::uint64_t*>(places[core]) == core + 1, "readable from core 0", core);
  }
  co_return 0;
}
