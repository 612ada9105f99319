// SPDX-License-Identifier: BSL-1.0
#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>

#include "kernel/machine.hpp"
#include "kernel/memory/page_allocator.hpp"
#include "tests/host/host_machine.hpp"

namespace neap {
namespace {

constexpr std::size_t alignment = std::size_t{1} << 30;  // as in the direct map, where runs of pages are aligned by their physical address
constinit machine::MemoryRange arena{};

}  // namespace

namespace host {

void set_memory_bytes(std::size_t bytes) {
  if (arena.bytes != 0) {
    std::fprintf(stderr, "host machine: the arena exists already\n");
    std::abort();
  }
  void* const mapping = mmap(nullptr, bytes + alignment, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) {
    std::perror("host machine: mmap");
    std::abort();
  }
  const auto begin = (reinterpret_cast<std::uint64_t>(mapping) + alignment - 1) / alignment * alignment;
  arena = {.physical = begin, .bytes = bytes, .node = 0};
}

void prepare_pages(std::size_t arena_bytes) {
  static const bool once = [&] {
    if (arena_bytes != 0) set_memory_bytes(arena_bytes);
    memory::initialise_pages(machine::usable_memory());
    return true;
  }();
  static_cast<void>(once);
}

}  // namespace host

unsigned machine::node_of(unsigned) noexcept { return 0; }
// The distances are those of a ring of four nodes. From each node, the node with the next number is nearest; node 0 follows node 3.
unsigned machine::node_distance(unsigned from, unsigned to) noexcept {
  if (from == to) return 10;
  return to == (from + 1) % 4 ? 20 : 30;
}

std::span<const machine::MemoryRange> machine::usable_memory() noexcept {
  if (arena.bytes == 0) host::set_memory_bytes(std::size_t{256} << 20);
  return {&arena, 1};
}

}  // namespace neap
