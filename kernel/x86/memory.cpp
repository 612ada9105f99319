// SPDX-License-Identifier: BSL-1.0
#include "kernel/x86/memory.hpp"

#include <algorithm>
#include <cstring>

#include "kernel/kept_panic.hpp"
#include "kernel/memory/page_allocator.hpp"
#include "kernel/panic.hpp"
#include "kernel/x86/boot_info.hpp"
#include "kernel/x86/cpu.hpp"
#include "kernel/x86/layout.hpp"

namespace neap::x86::memory {

namespace {

using machine::MemoryRange;
constexpr std::size_t ranges_max = 256;
constexpr std::uint64_t low_memory_end = 1 << 20, low_page_limit = 640 << 10;

// Candidate addresses of the area for a panic's text (kept_panic.hpp). They are above the images and loaders at the bottom of memory, and
// below the firmware's memory at the top of the first 4 GiB. The first of them that is RAM is used, so the machine uses the same address
// after a restart. Firmware may overwrite the area; the text then fails its checksum.
constexpr std::uint64_t kept_places[] = {96 << 20, 40 << 20, 256 << 20};

struct RangeList {
  MemoryRange items[ranges_max];
  std::size_t count;

  void add(std::uint64_t first, std::uint64_t end, std::uint32_t node = 0) {
    if (end <= first || count == ranges_max) return;  // a full list leaves RAM unused; no map with more than 256 ranges is known
    items[count++] = {.physical = first, .bytes = end - first, .node = node};
  }
  // Removes [first, end) from every item, which may split an item in two.
  void remove(std::uint64_t first, std::uint64_t end) {
    const auto old_count = count;
    for (std::size_t i = 0; i < old_count; ++i) {
      auto& item = items[i];
      const auto item_first = item.physical, item_end = item.physical + item.bytes;
      if (end <= item_first || item_end <= first) continue;
      item.bytes = first > item_first ? first - item_first : 0;
      if (item_end > end) add(end, item_end, item.node);
    }
    tidy();
  }
  void tidy() {
    const auto* const kept = std::remove_if(items, items + count, [](const MemoryRange& r) { return r.bytes == 0; });
    count = static_cast<std::size_t>(kept - items);
    std::sort(items, items + count, [](const MemoryRange& a, const MemoryRange& b) { return a.physical < b.physical; });
  }
  [[nodiscard]] std::span<const MemoryRange> all() const { return {items, count}; }
};

constinit RangeList ram{};     // covered by the direct map
constinit RangeList usable{};  // passed to the portable kernel
constinit std::uint64_t early_next = 0, early_first = 0, early_end = 0;
constinit bool handed_over = false;
constinit std::uint64_t kept_place = 0;
constinit machine::BootModule modules[machine::boot_modules_max]{};
constinit std::size_t module_count = 0;

}  // namespace

bool initialise() {
  require(ram.count == 0, "memory::initialise called twice");
  const auto& info = boot_info();
  const auto reachable = std::min(direct_map_bytes, std::uint64_t{1} << features().physical_bits);
  for (const auto& range : info.available) {
    const auto end = std::min(range.end, reachable);
    ram.add(round_up(std::max(range.first, low_memory_end), page_bytes), round_down(end, page_bytes));
  }
  ram.tidy();
  // Merges ranges that overlap, because they would be allocated twice.
  for (std::size_t i = 1; i < ram.count; ++i) {
    auto& previous = ram.items[i - 1];
    auto& item = ram.items[i];
    const auto previous_end = previous.physical + previous.bytes;
    if (item.physical >= previous_end) continue;
    const auto end = std::max(previous_end, item.physical + item.bytes);
    item = {.physical = previous.physical, .bytes = end - previous.physical, .node = 0};
    previous.bytes = 0;
  }
  ram.tidy();
  for (const auto& range : info.unavailable) ram.remove(round_down(range.first, page_bytes), round_up(range.end, page_bytes));

  usable = ram;
  const auto image_bytes = address_of(image_end) - image_base;
  usable.remove(info.image_physical, info.image_physical + image_bytes);

  // Modules stay where the loader put them. Their bytes are read through the direct map, so a module outside of RAM is left out.
  for (const auto& module : info.modules) {
    const auto first = round_down(module.range.first, page_bytes), end = round_up(module.range.end, page_bytes);
    const auto holds = [&](const MemoryRange& range) { return range.physical <= first && range.physical + range.bytes >= end; };
    if (module_count == std::size(modules) || !std::ranges::any_of(ram.all(), holds)) continue;
    usable.remove(first, end);
    const auto* bytes = static_cast<const std::byte*>(machine::direct_map(module.range.first));
    modules[module_count++] = {.bytes = {bytes, module.range.end - module.range.first}, .name = module.name};
  }

  for (const auto place : kept_places) {
    const auto end = place + neap::kept_panic::area_bytes;
    const auto whole = [&](const MemoryRange& range) { return range.physical <= place && range.physical + range.bytes >= end; };
    if (kept_place != 0 || !std::ranges::any_of(usable.all(), whole)) continue;
    kept_place = place;
    usable.remove(place, end);
  }

  // Early pages come from the largest range that the boot page tables map.
  for (const auto& range : usable.all()) {
    const auto end = std::min(range.physical + range.bytes, boot_mapped_bytes);
    if (range.physical >= end || end - range.physical <= early_end - early_first) continue;
    early_first = range.physical;
    early_end = end;
  }
  early_next = early_first;
  return early_end != 0;
}

std::span<const MemoryRange> installed() { return ram.all(); }

std::uint64_t allocate_early(std::uint64_t count) {
  require(early_next >= early_first && early_next <= early_end, "allocate_early: positions out of order", early_next);
  if (handed_over || early_end - early_next < count * page_bytes) return 0;
  const auto physical = early_next;
  early_next += count * page_bytes;
  std::memset(machine::direct_map(physical), 0, count * page_bytes);
  return physical;
}

std::uint64_t allocate_page() {
  if (!handed_over) return allocate_early(1);
  void* const page = neap::memory::allocate_run(1, 0);  // `allocate_pages` could return a cached page of another node
  if (page == nullptr) return 0;
  std::memset(page, 0, page_bytes);
  return machine::physical_address(page);
}

std::uint64_t low_page() {
  const auto& info = boot_info();
  for (const auto& range : info.available) {
    // The search goes from the top down, because the bottom holds the BIOS's own data, which a warm restart needs.
    for (auto page = round_down(std::min(range.end, low_page_limit), page_bytes); page >= range.first + page_bytes && page > page_bytes;) {
      page -= page_bytes;
      const auto taken =
          std::ranges::any_of(info.unavailable, [&](const PhysicalRange& r) { return r.first < page + page_bytes && page < r.end; });
      if (!taken && page >= page_bytes) return page;
    }
  }
  return 0;
}

void set_node(std::uint64_t first, std::uint64_t end, std::uint32_t node) {
  require(!handed_over && node < machine::nodes_max, "set_node: no such node, or too late", node);
  const auto old_count = usable.count;
  for (std::size_t i = 0; i < old_count; ++i) {
    auto& item = usable.items[i];
    const auto item_first = item.physical, item_end = item.physical + item.bytes;
    const auto from = std::max(first, item_first), to = std::min(end, item_end);
    if (from >= to || item.node == node) continue;
    if (usable.count + 2 > ranges_max) return;
    const auto old_node = item.node;
    item.bytes = from - item_first;
    usable.add(from, to, node);
    usable.add(to, item_end, old_node);
  }
  usable.tidy();
}

void hand_over() {
  require(!handed_over, "usable memory handed over twice");
  handed_over = true;
  usable.remove(early_first, early_next);
}

}  // namespace neap::x86::memory

namespace neap::machine {

std::span<const MemoryRange> usable_memory() noexcept { return x86::memory::usable.all(); }

std::span<std::byte> kept_memory() noexcept {
  if (x86::memory::kept_place == 0) return {};
  return {static_cast<std::byte*>(direct_map(x86::memory::kept_place)), kept_panic::area_bytes};
}

std::span<const BootModule> boot_modules() noexcept { return {x86::memory::modules, x86::memory::module_count}; }

void write_back_caches() noexcept { asm volatile("wbinvd" ::: "memory"); }
void* direct_map(std::uint64_t physical) noexcept { return reinterpret_cast<void*>(x86::direct_map_base + physical); }
bool in_direct_map(const void* pointer) noexcept { return x86::address_of(pointer) - x86::direct_map_base < x86::direct_map_bytes; }

namespace {

// Kept separate, so that the function below is small enough to be inlined.
[[gnu::noinline]] std::uint64_t physical_address_of_image(std::uint64_t address) noexcept {
  require(address >= x86::image_base, "physical_address: neither in the direct map nor in the image", address);
  return address - x86::image_base + x86::boot_info().image_physical;
}

}  // namespace

std::uint64_t physical_address(const void* pointer) noexcept {
  const std::uint64_t address = x86::address_of(pointer);
  return in_direct_map(pointer) ? address - x86::direct_map_base : physical_address_of_image(address);
}

}  // namespace neap::machine
