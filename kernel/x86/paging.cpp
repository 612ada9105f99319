// SPDX-License-Identifier: BSL-1.0
#include "kernel/x86/paging.hpp"

#include <algorithm>
#include <array>
#include <mutex>

#include "kernel/machine.hpp"
#include "kernel/panic.hpp"
#include "kernel/spin_lock.hpp"
#include "kernel/x86/boot_info.hpp"
#include "kernel/x86/cpu.hpp"
#include "kernel/x86/layout.hpp"
#include "kernel/x86/memory.hpp"

namespace neap::x86::paging {

namespace {

// Bits of an entry: SDM 3A, 4.5.
constexpr std::uint64_t present = 1 << 0;
constexpr std::uint64_t writable = 1 << 1;
constexpr std::uint64_t write_through = 1 << 3;
constexpr std::uint64_t cache_disable = 1 << 4;
constexpr std::uint64_t large = 1 << 7;
constexpr std::uint64_t global = 1 << 8;
constexpr std::uint64_t no_execute = std::uint64_t{1} << 63;
constexpr std::uint64_t address_mask = 0x000ffffffffff000;
constexpr unsigned levels = 4;
constinit std::uint64_t root_physical = 0;
constinit SpinLock lock;

struct Mapping {
  std::uint64_t physical, bytes, address;
  Access access;
  Cache cache;
};
constinit std::array<Mapping, 512> mappings{};
constinit std::size_t mapping_count = 0;
constinit std::uint64_t next_mapping = mappings_base;
using Table = std::uint64_t*;
Table table_at(std::uint64_t physical) { return static_cast<Table>(machine::direct_map(physical)); }

// Level 0 has entries of 4 KiB, level 1 of 2 MiB, level 2 of 1 GiB.
constexpr std::uint64_t entry_bytes(unsigned level) { return page_bytes << 9 * level; }
constexpr std::size_t entry_index(std::uint64_t address, unsigned level) { return address / entry_bytes(level) % 512; }

std::uint64_t flags_of(Access access, Cache cache) {
  auto flags = present | global;
  if (access == Access::read_write) flags |= writable;
  if (access != Access::read_execute) flags |= no_execute;
  if (cache == Cache::uncached) flags |= cache_disable | write_through;
  return flags;
}

bool map_range(std::uint64_t address, std::uint64_t physical, std::uint64_t bytes, std::uint64_t flags) {
  require((address | physical | bytes) % page_bytes == 0, "paging: a range that is not page aligned", address);
  while (bytes != 0) {
    unsigned level = 0;
    const unsigned largest = features().huge_pages ? 2 : 1;
    while (level < largest && bytes >= entry_bytes(level + 1) && (address | physical) % entry_bytes(level + 1) == 0) ++level;
    Table table = table_at(root_physical);
    for (unsigned above = levels - 1; above > level; --above) {
      auto& entry = table[entry_index(address, above)];
      if (!(entry & present)) {
        const auto page = memory::allocate_page();
        if (page == 0) return false;
        entry = page | present | writable;  // only the last level restricts access
      }
      require(!(entry & large), "paging: a page inside of a larger page", address);
      table = table_at(entry & address_mask);
    }
    // All entries of this table that the range needs. A larger page can only begin at a table's first entry.
    const std::uint64_t step = entry_bytes(level), entry_flags = flags | (level > 0 ? large : 0);
    for (std::size_t index = entry_index(address, level); index < 512 && bytes >= step; ++index) {
      require(!(table[index] & present), "page mapped twice", address);
      table[index] = physical | entry_flags;
      address += step;
      physical += step;
      bytes -= step;
    }
  }
  return true;
}

// A part of the image between symbols of image.ld. The part is also in the direct map, with the same permissions or fewer.
struct ImagePart {
  const std::byte *first, *end;
  Access image, direct;
};

bool map_image_and_ram() {
  const ImagePart parts[] = {
      {image_start, rodata_start, Access::read_execute, Access::read},
      {rodata_start, rodata_end, Access::read, Access::read},
      {data_start, image_end, Access::read_write, Access::read_write},
  };
  const auto image_physical = boot_info().image_physical;
  for (const auto& part : parts) {
    const auto first = address_of(part.first);
    if (!map_range(first, image_physical + (first - image_base), address_of(part.end) - first, flags_of(part.image, Cache::write_back)))
      return false;
  }
  const auto read_only_end = image_physical + (address_of(rodata_end) - image_base);
  for (const auto& range : memory::installed()) {
    auto at = range.physical;
    const auto end = range.physical + range.bytes;
    while (at < end) {
      const bool read_only = at >= image_physical && at < read_only_end;
      auto stop = end;
      if (read_only) {
        stop = std::min(stop, read_only_end);
      } else if (at < image_physical) {
        stop = std::min(stop, image_physical);
      }
      const auto flags = flags_of(read_only ? Access::read : Access::read_write, Cache::write_back);
      if (!map_range(direct_map_base + at, at, stop - at, flags)) return false;
      at = stop;
    }
  }
  return true;
}

}  // namespace

bool initialise() {
  require(root_physical == 0, "paging::initialise called twice");
  root_physical = memory::allocate_page();
  if (root_physical == 0 || !map_image_and_ram()) return false;
  // Entries with the global bit survive a load of CR3. The feature is off during the load, so that no TLB entry of the boot page tables
  // survives.
  write_cr4(read_cr4() & ~cr4_page_global);
  write_cr3(root_physical);
  write_cr4(read_cr4() | cr4_page_global);
  return true;
}

std::uint64_t root() {
  require(root_physical != 0, "paging::root before paging::initialise");
  return root_physical;
}

bool map_stacks(unsigned core) {
  require(core < machine::cores_max, "map_stacks: no such core", core);
  const std::lock_guard guard(lock);
  for (const auto& place : {nmi_stack, fault_stack, machine_check_stack, main_stack}) {
    for (std::uint64_t offset = 0; offset < place.bytes; offset += page_bytes) {
      const auto page = memory::allocate_page();
      if (page == 0) return false;
      if (!map_range(stack_slot(core) + place.offset + offset, page, page_bytes, flags_of(Access::read_write, Cache::write_back)))
        return false;
    }
  }
  return true;
}

bool is_stack_guard(std::uint64_t address, unsigned& core) {
  if (address < stacks_base || address >= stack_slot(machine::cores_max)) return false;
  core = static_cast<unsigned>((address - stacks_base) / stack_slot_bytes);
  const auto offset = (address - stacks_base) % stack_slot_bytes;
  return std::ranges::none_of(std::array{nmi_stack, fault_stack, machine_check_stack, main_stack},
                              [&](const StackPlace& place) { return offset >= place.offset && offset < place.offset + place.bytes; });
}

Result<volatile std::byte*> map(std::uint64_t physical, std::uint64_t bytes, Access access, Cache cache) {
  const std::uint64_t physical_end = std::uint64_t{1} << features().physical_bits;
  if (bytes == 0 || physical >= physical_end || bytes > physical_end - physical) {
    return failure(ErrorCode::invalid, "physical range cannot be mapped", physical);
  }
  const auto first = round_down(physical, page_bytes);
  const auto length = round_up(physical + bytes, page_bytes) - first;
  const std::lock_guard guard(lock);
  for (std::size_t i = 0; i < mapping_count; ++i) {
    const auto& known = mappings[i];
    if (known.access == access && known.cache == cache && first >= known.physical && first + length <= known.physical + known.bytes) {
      return reinterpret_cast<volatile std::byte*>(known.address + (physical - known.physical));
    }
  }
  if (mapping_count == mappings.size()) return failure(ErrorCode::full, "no room for another mapping", physical);
  // The virtual address is congruent to the physical address modulo `alignment`, so that large BARs get large pages.
  const auto alignment = length >= huge_page_bytes ? huge_page_bytes : length >= large_page_bytes ? large_page_bytes : page_bytes;
  const auto address = round_up(next_mapping, alignment) + first % alignment;
  if (length > mappings_base + mappings_bytes - address) return failure(ErrorCode::full, "no address space for another mapping", physical);
  next_mapping = address + length + page_bytes;  // one page between two mappings stays unmapped
  if (!map_range(address, first, length, flags_of(access, cache))) {
    return failure(ErrorCode::out_of_memory, "no page for page tables", physical);
  }
  require(address >= mappings_base && address + length <= mappings_base + mappings_bytes, "paging::map: outside of its region", address);
  mappings[mapping_count++] = {.physical = first, .bytes = length, .address = address, .access = access, .cache = cache};
  return reinterpret_cast<volatile std::byte*>(address + (physical - first));
}

bool is_mapped(std::uint64_t address, std::uint64_t bytes) {
  if (root_physical == 0) return address >= image_base && address + bytes <= address_of(image_end) && address + bytes > address;
  for (auto at = round_down(address, page_bytes); at < address + bytes; at += page_bytes) {
    const auto sign = static_cast<std::int64_t>(at) >> 47;
    if (sign != 0 && sign != -1) return false;
    Table table = table_at(root_physical);
    for (unsigned level = levels; level-- > 0;) {
      const auto entry = table[entry_index(at, level)];
      if (!(entry & present)) return false;
      if (level == 0 || (entry & large)) break;
      table = table_at(entry & address_mask);
    }
    if (at + page_bytes < at) break;
  }
  return true;
}

}  // namespace neap::x86::paging
