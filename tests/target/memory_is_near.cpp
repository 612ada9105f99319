// SPDX-License-Identifier: BSL-1.0
// A core gets memory of its own node for any kind of allocation. When that node has no free memory, the core gets memory of the nearest
// node that has some. Freed memory returns to its own node.
#include <cstdlib>
#include <vector>

#include "kernel/memory/heap.hpp"
#include "kernel/memory/page_allocator.hpp"
#include "tests/target/check.hpp"

namespace {

using namespace neap;
using test::check;
constinit thread_local int of_this_core = 0;

void check_near(const void* pointer, std::string_view what) {
  check(memory::node_of(pointer) == machine::node_of(this_core()), what, memory::node_of(pointer));
}

void look_around() {
  int on_the_stack = 0;
  for (const std::size_t bytes : {16UL, 1'000UL, 8'000UL, 100'000UL, 3UL << 20}) {
    void* const object = std::malloc(bytes);
    check(object != nullptr, "malloc", bytes);
    check_near(object, "malloc gives near memory");
    std::free(object);
  }
  for (const unsigned order : {0U, 5U}) {
    void* const pages = memory::allocate_pages(order);
    check(pages != nullptr, "pages");
    check_near(pages, "pages are near");
    memory::free_pages(pages, order);
  }
  if (this_core() != 0) check_near(&of_this_core, "thread-local variables are near");  // core 0's variables are in the image
  (void)test::hidden(&on_the_stack);
}

/// Allocates all memory of this core's node, and checks that the next memory is from node `nearest`.
void exhaust(unsigned nearest) {
  constexpr std::size_t piece_bytes = 1 << 20;
  const unsigned own = machine::node_of(this_core());
  std::vector<void*> pieces;
  pieces.reserve(4096);
  for (unsigned node = own; node == own;) {
    pieces.push_back(std::malloc(piece_bytes));
    check(pieces.back() != nullptr, "there is more memory", pieces.size());
    node = memory::node_of(pieces.back());
    if (node != own) check(node == nearest, "the nearest node is next", node);
  }
  check(memory::page_counters().foreign != 0, "memory from elsewhere is counted");
  for (void* const piece : pieces) std::free(piece);
}

/// Allocates one contiguous object of gigabytes.
void take_huge(std::size_t bytes) {
  auto* const object = static_cast<std::uint8_t*>(std::malloc(bytes));
  check(object != nullptr, "a huge object", bytes);
  for (std::size_t at = 0; at < bytes; at += bytes / 8 - 1) {
    object[at] = static_cast<std::uint8_t>(at % 251);
    check(machine::physical_address(object + at) == machine::physical_address(object) + at, "in one piece", at);
  }
  for (std::size_t at = 0; at < bytes; at += bytes / 8 - 1) check(object[at] == at % 251, "keeps what is written", at);
  std::free(object);
}

}  // namespace

neap::task<int> neap::application(Arguments& arguments) {
  const auto nodes = arguments.number("expected_nodes", 1, {.min = 1, .max = machine::nodes_max}, "NUMA nodes of the machine");
  const auto nearest = arguments.number("nearest_to_first", 0, {.min = 0, .max = machine::nodes_max}, "node that is nearest to node 0");
  const auto huge_bytes = arguments.bytes("huge", 0, {}, "size of one object to ask for; 0: none");
  arguments.finish();
  if (huge_bytes != 0) take_huge(huge_bytes);
  std::vector<bool> seen(nodes);
  for (unsigned core = 0; core < core_count(); ++core) {
    seen.at(machine::node_of(core)) = true;
    co_await on_core(core, look_around);
  }
  for (unsigned node = 0; node < nodes; ++node) {
    check(seen[node], "each node has a core", node);
    check(machine::node_distance(node, node) == 10, "own memory is near");
    const auto counters = memory::node_counters(node);
    check(counters.free_bytes <= counters.total_bytes && counters.total_bytes != 0, "each node has memory", counters.total_bytes);
  }
  if (nodes > 1) exhaust(static_cast<unsigned>(nearest));
  co_return 0;
}
