// SPDX-License-Identifier: BSL-1.0
// Every core changes an RCU table, and readers on every core see only whole entries. In the end exactly the replaced and removed entries
// are freed.
#include <array>
#include <atomic>
#include <memory>
#include <vector>

#include "kernel/rcu_table.hpp"
#include "tests/target/stress.hpp"

namespace {

using namespace neap;
using test::check;
constexpr unsigned keys = 4096;
constexpr std::uint64_t steps_short = 20'000;

/// An entry whose words are all equal until it is destroyed.
struct Entry {
  static constexpr std::uint64_t gone = 0xDEADDEADDEADDEAD;
  std::array<std::uint64_t, 6> words{};
  explicit Entry(std::uint64_t value) {
    words.fill(value);
    live.fetch_add(1, std::memory_order_relaxed);
  }
  Entry& operator=(Entry&&) = delete;
  ~Entry() {
    for (std::uint64_t& word : words) std::atomic_ref(word).store(gone, std::memory_order_relaxed);
    live.fetch_sub(1, std::memory_order_relaxed);
  }
  static inline std::atomic<std::int64_t> live{0};
};

using Table = rcu::Table<unsigned, std::unique_ptr<Entry>>;

std::atomic<std::uint64_t> reads{0}, writes{0};

void step(Table& table, test::Chance& chance) {
  const unsigned key = chance.below(keys);
  const unsigned kind = chance.below(8);
  if (kind <= 1) {
    if (kind == 0) table.replace(key, std::make_unique<Entry>(key));
    if (kind == 1 && !table.erase(key)) table.insert(key, std::make_unique<Entry>(key));
    writes.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  const auto* const found = table.find(key);
  if (found == nullptr) return;
  for (const std::uint64_t word : (*found)->words) check(word == key, "an entry that is freed, or half there", word);
  reads.fetch_add(1, std::memory_order_relaxed);
}

task<void> run_core(Table& table, std::uint64_t seed, std::uint64_t until_ns) {
  constexpr unsigned piece = 50;
  test::Chance chance(seed);
  for (std::uint64_t done = 0; until_ns == 0 ? done < steps_short : machine::now_ns() < until_ns; done += piece) {
    for (unsigned i = 0; i < piece; ++i) step(table, chance);
    // The task sometimes sleeps, and otherwise only ends the event.
    if (chance.below(20) == 0) {
      co_await sleep_for(std::chrono::microseconds(200));
    } else {
      Completion<> next;
      spawn([&next] { next.fulfil(); });
      co_await next;
    }
  }
}

}  // namespace

neap::task<int> neap::application(Arguments& arguments) {
  test::Stress stress(arguments);
  arguments.finish();
  const std::uint64_t before = co_await test::settled_memory_bytes();
  {
    Table table(keys / 2);
    const std::uint64_t until_ns = stress.seconds == 0 ? 0 : machine::now_ns() + stress.seconds * 1'000'000'000;
    std::vector<task<void>> cores;
    for (unsigned core = 0; core < core_count(); ++core) {
      const auto run = [&table, core, until_ns] { return run_core(table, core + 1, until_ns); };
      cores.push_back(on_core(core, run));
    }
    co_await when_all(std::move(cores));
    co_await test::settled_memory_bytes();
    check(Entry::live.load() == static_cast<std::int64_t>(table.size()), "entries that are neither in the table nor freed",
          Entry::live.load());
  }
  const std::uint64_t after = co_await test::settled_memory_bytes();
  check(after <= before + 64 * 1024 * core_count(), "bytes more in use than before", after - before);
  check(Entry::live.load() == 0, "entries that outlive their table", Entry::live.load());
  print("table: ", reads.load(), " reads, ", writes.load(), " writes");
  check(reads.load() > 1000 && writes.load() > 100, "it did something", reads.load());
  co_return 0;
}
