// SPDX-License-Identifier: BSL-1.0
// Every requested core runs and has its number. Nearly all memory is usable.
#include <set>

#include "kernel/memory/page_allocator.hpp"
#include "tests/target/check.hpp"

neap::task<int> neap::application(Arguments& arguments) {
  using test::check;
  const auto cores = arguments.number("expected_cores", 1, {.min = 1, .max = machine::cores_max}, "cores that should run");
  const auto memory_bytes = arguments.bytes("expected_memory", 0, {}, "memory that the machine has");
  const auto nodes = arguments.number("expected_nodes", 1, {.min = 1, .max = 64}, "NUMA nodes that memory should lie on");
  arguments.finish();
  check(core_count() == cores, "number of cores", core_count());
  check(machine::cores_present() >= cores, "number of cores present", machine::cores_present());
  for (unsigned core = 0; core < core_count(); ++core) {
    const unsigned there = co_await on_core(core, [] { return this_core(); });
    check(there == core, "core number", there);
  }
  // Limit of the memory that image, page tables, stacks and firmware take on a machine with a few cores.
  constexpr std::uint64_t kept_bytes = 16 << 20;
  std::uint64_t usable_bytes = 0, end = 0;
  std::set<std::uint32_t> nodes_seen;
  for (const auto& range : machine::usable_memory()) {
    check(range.physical >= end && range.bytes > 0, "usable ranges ascend without overlap", range.physical);
    check(range.physical % 4096 == 0 && range.bytes % 4096 == 0, "usable ranges are whole pages", range.physical);
    end = range.physical + range.bytes;
    usable_bytes += range.bytes;
    nodes_seen.insert(range.node);
    // Reads the first and the last word of the range.
    for (const auto at : {range.physical, end - 8}) (void)*static_cast<volatile std::uint64_t*>(machine::direct_map(at));
  }
  check(nodes_seen.size() == nodes, "NUMA nodes of memory", nodes_seen.size());
  check(usable_bytes + kept_bytes >= memory_bytes, "usable memory", usable_bytes);
  check(memory_bytes == 0 || usable_bytes <= memory_bytes, "no more memory than there is", usable_bytes);
  check(memory::page_counters().total_bytes + kept_bytes >= memory_bytes, "memory in the page allocator",
        memory::page_counters().total_bytes);
  print("usable ", usable_bytes, " bytes in ", machine::usable_memory().size(), " ranges");
  co_return 0;
}
