// SPDX-License-Identifier: BSL-1.0
// Hosted C++23: the library functions on which applications rely.
#include <algorithm>
#include <chrono>
#include <expected>
#include <format>
#include <functional>
#include <future>
#include <generator>
#include <iostream>
#include <map>
#include <memory_resource>
#include <mutex>
#include <numbers>
#include <numeric>
#include <print>
#include <ranges>
#include <regex>
#include <shared_mutex>
#include <sstream>
#include <string>
#include <typeinfo>
#include <unordered_map>
#include <vector>

#include "tests/target/check.hpp"

namespace {

using neap::test::check;

std::generator<int> squares(int count) {
  for (int i = 0; i < count; ++i) co_yield i* i;
}

struct Animal {
  virtual ~Animal() = default;
};
struct Cat : Animal {};

void check_text() {
  check(std::format("{:.3f} {:>6} {:#x}", std::numbers::pi, "hi", 255) == "3.142     hi 0xff", "format");
  check(std::format("{}", 0.1) == "0.1", "shortest form of a double");
  check(std::stod("2.5e3") == 2500.0, "stod");
  std::ostringstream stream;
  stream << 42 << ' ' << 1.25 << ' ' << std::boolalpha << true;
  check(stream.str() == "42 1.25 true", "ostringstream");
  std::istringstream input("7 seas");
  int number = 0;
  std::string word;
  input >> number >> word;
  check(number == 7 && word == "seas", "istringstream");
  check(std::regex_match("neap-0.1", std::regex("[a-z]+-[0-9.]+")), "regex");
  std::cout << "iostream speaks " << 3.5 << std::endl;
  std::println("println speaks {:.2f}", std::numbers::e);
}

void check_containers() {
  std::map<std::string, int> map{{"b", 2}, {"a", 1}};
  check(map.begin()->first == "a", "map");
  std::unordered_map<int, std::string> table;
  for (int i = 0; i < 1000; ++i) table[i] = std::to_string(i);
  check(table.at(777) == "777", "unordered_map");
  auto even = std::views::iota(1, 11) | std::views::filter([](int i) { return i % 2 == 0; });
  check(std::ranges::fold_left(even, 0, std::plus()) == 30, "ranges");
  int sum = 0;
  for (const int square : squares(5)) sum += square;
  check(sum == 30, "generator", static_cast<std::uint64_t>(sum));
  std::pmr::monotonic_buffer_resource pool;
  std::pmr::vector<int> numbers(100, 7, &pool);
  check(std::accumulate(numbers.begin(), numbers.end(), 0) == 700, "pmr");
  const std::unique_ptr<Animal> animal = std::make_unique<Cat>();
  check(dynamic_cast<Cat*>(animal.get()) != nullptr && typeid(*animal) == typeid(Cat), "run-time types");
  const std::expected<int, std::string> failed = std::unexpected("no");
  check(!failed && failed.error() == "no", "expected");
}

void check_concurrency() {
  std::mutex mutex;
  std::shared_mutex shared;
  std::recursive_mutex recursive;
  std::once_flag once;
  int calls = 0;
  for (int i = 0; i < 3; ++i) std::call_once(once, [&] { ++calls; });
  check(calls == 1, "call_once");
  {
    const std::scoped_lock both(mutex, recursive);
    const std::lock_guard again(recursive);
    const std::shared_lock reader(shared);
    check(!mutex.try_lock(), "a held mutex cannot be taken");
  }
  check(mutex.try_lock(), "a free one can");
  mutex.unlock();
  std::promise<int> promise;
  auto future = promise.get_future();
  check(future.wait_for(std::chrono::milliseconds(1)) == std::future_status::timeout, "a future times out");
  promise.set_value(9);
  check(future.get() == 9, "future");
  auto deferred = std::async(std::launch::deferred, [] { return 5; });
  check(deferred.get() == 5, "deferred async");
}

}  // namespace

neap::task<int> neap::application(Arguments& arguments) {
  arguments.finish();
  for (unsigned core = 0; core < core_count(); ++core) {
    co_await on_core(core, [] {
      check_text();
      check_containers();
      check_concurrency();
    });
  }
  // Tests a mutex between cores, and a static variable that is constructed at its first use.
  static std::mutex mutex;
  static int counter = 0;
  static std::atomic<unsigned> done{0};
  for (unsigned core = 0; core < core_count(); ++core) {
    check(spawn_on(core,
                   [] {
                     for (int i = 0; i < 1000; ++i) {
                       const std::lock_guard guard(mutex);
                       ++counter;
                     }
                     done.fetch_add(1);
                   })
              .has_value(),
          "spawned");
  }
  while (done.load() != core_count()) co_await sleep_for(std::chrono::milliseconds(1));
  check(counter == static_cast<int>(core_count()) * 1000, "a mutex excludes", static_cast<std::uint64_t>(counter));
  co_return 0;
}
