// SPDX-License-Identifier: BSL-1.0
// Boot modules keep their bytes while all other memory is in use. target_test.py compares the printed names, sizes and checksums.
#include <cstring>

#include "kernel/crc32c.hpp"
#include "kernel/memory/page_allocator.hpp"
#include "tests/target/check.hpp"

neap::task<int> neap::application(Arguments& arguments) {
  const auto memory_bytes = arguments.bytes("expected_memory", 0, {}, "memory that the machine has");
  arguments.finish();
  std::uint64_t filled_bytes = 0;
  for (unsigned order = memory::order_max + 1; order-- > 0;) {
    const std::size_t bytes = memory::page_bytes << order;
    while (void* const pages = memory::allocate_pages(order)) {
      std::memset(pages, 0xA5, bytes);
      filled_bytes += bytes;
    }
  }
  constexpr std::uint64_t kept_bytes = 32 << 20;  // image, page tables, stacks, heap, modules
  test::check(filled_bytes + kept_bytes >= memory_bytes, "memory filled", filled_bytes);
  for (const machine::BootModule& module : machine::boot_modules()) {
    print("module ", module.name, " ", module.bytes.size(), " ", hex(crc32c(module.bytes)));
  }
  co_return 0;
}
