// SPDX-License-Identifier: BSL-1.0
// An exception crosses twenty stack frames and runs their destructors: on every core, on all cores at once, and out of a coroutine on
// another core.
#include <atomic>
#include <stdexcept>
#include <string>

#include "tests/target/check.hpp"

namespace {

using neap::test::check;
constexpr int depth = 20, rounds = 300;

struct Counted {
  explicit Counted(int& counter) : destroyed(counter) {}
  ~Counted() { ++destroyed; }
  int& destroyed;
};

[[gnu::noinline]] int descend(int left, int& destroyed) {
  const Counted counted(destroyed);
  if (left == 0) throw std::runtime_error("from core " + std::to_string(neap::this_core()));
  return descend(left - 1, destroyed) + 1;
}

void throw_and_catch() {
  for (int round = 0; round < rounds; ++round) {
    int destroyed = 0;
    bool caught = false;
    try {
      (void)descend(depth, destroyed);
    } catch (const std::exception& error) {
      caught = error.what() == "from core " + std::to_string(neap::this_core());
    }
    check(caught, "caught with its message");
    check(destroyed == depth + 1, "destructors run", static_cast<std::uint64_t>(destroyed));
  }
}

neap::task<int> fails_later() {
  co_await neap::sleep_for(std::chrono::milliseconds(1));
  throw std::logic_error("out of a coroutine");
}

}  // namespace

neap::task<int> neap::application(Arguments& arguments) {
  arguments.finish();
  static std::atomic<unsigned> done{0}, ready{0};
  for (unsigned core = 0; core < core_count(); ++core) {
    check(spawn_on(core,
                   [] {
                     ready.fetch_add(1);
                     while (ready.load() != core_count()) {  // all cores throw at once; the machine's time-out bounds this loop
                     }
                     throw_and_catch();
                     done.fetch_add(1);
                   })
              .has_value(),
          "spawned");
  }
  while (done.load() != core_count()) co_await sleep_for(std::chrono::milliseconds(1));

  bool caught = false;
  try {
    (void)co_await fails_later();
  } catch (const std::logic_error&) {
    caught = true;
  }
  check(caught, "an exception of an awaited task reaches the awaiter");
  caught = false;
  try {
    co_await on_core(core_count() - 1, [] { throw std::out_of_range("there"); });
  } catch (const std::out_of_range& error) {
    caught = std::string_view(error.what()) == "there";
  }
  check(caught, "an exception on another core reaches the awaiter here");
  co_return 0;
}
