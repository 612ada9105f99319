// SPDX-License-Identifier: BSL-1.0
// Work of a fixed size, and idle time. tools/bench/model_speed.py compares the host's CPU time for them on the model machine and on QEMU
// without the model: it looks at the clock when a line "begin" or "end" arrives.
//
// Each core does the same rounds on data of its own. It waits for no other core and reads no clock, so the instructions are the same on
// both machines. The model machine counts them between two snapshots, which CPUID requests; elsewhere this CPUID does nothing.
#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <unordered_map>
#include <vector>

#include "kernel/application.hpp"
#include "kernel/console.hpp"
#include "kernel/timer.hpp"
#include "kernel/when_all.hpp"
#include "kernel/x86/cpu.hpp"

namespace {

using namespace neap;

constexpr std::size_t keys = 512, value_bytes = 200, lookups = 64;
constexpr std::uint32_t before_work = 1, after_work = 2;  // numbers of snapshots

std::array<std::uint64_t, machine::cores_max> sums{};

/// Keys are formatted, found in a hash table, and sorted; values are copied: what a server does with requests, without its network.
std::uint64_t work(std::uint64_t rounds) {
  std::unordered_map<std::string, std::string> table;
  for (std::size_t i = 0; i < keys; ++i)
    table.emplace("key-" + std::to_string(i), std::string(value_bytes, static_cast<char>('a' + i % 26)));
  std::array<char, value_bytes> copy{};
  std::vector<std::string> order;
  std::uint64_t sum = 0, next = 1;
  for (std::uint64_t round = 0; round < rounds; ++round) {
    order.clear();
    for (std::size_t i = 0; i < lookups; ++i) {
      next = next * 6364136223846793005U + 1442695040888963407U;
      const auto found = table.find("key-" + std::to_string((next >> 33) % keys));
      if (found == table.end()) return 0;
      std::memcpy(copy.data(), found->second.data(), copy.size());
      sum += static_cast<unsigned char>(copy[(next >> 40) % copy.size()]);
      order.push_back(found->first);
    }
    std::ranges::sort(order);
    sum = sum * 31 + order.front().size() + order.back().size();
  }
  return sum;
}

}  // namespace

neap::task<int> neap::application(Arguments& arguments) {
  const auto rounds = arguments.number("rounds", 1000, {.min = 1, .max = 1'000'000'000}, "rounds of work on each core");
  const auto idle = arguments.duration("idle_time", std::chrono::seconds(0), "time without work afterwards");
  arguments.finish();
  print("begin work");
  (void)x86::cpuid(x86::model_machine_leaf, before_work);
  co_await on_each_core([rounds] { sums[this_core()] = work(rounds); });
  (void)x86::cpuid(x86::model_machine_leaf, after_work);
  std::uint64_t sum = 0;
  for (unsigned core = 0; core < core_count(); ++core) sum = sum * 31 + sums[core];
  print("end work, sum ", sum);
  if (idle != std::chrono::nanoseconds(0)) {
    print("begin idle");
    co_await sleep_for(idle);
    print("end idle");
  }
  co_return 0;
}
