// SPDX-License-Identifier: BSL-1.0
// The address space.
//
//   0xffff800000000000  direct map: physical address p at direct_map_base + p, RAM only, no-execute     64 TiB
//   0xffffd00000000000  mappings made on request: device registers (uncached), firmware tables           16 TiB
//   0xffffe00000000000  stacks: a slot of 2 MiB a core, unmapped pages between its stacks                512 MiB
//   0xffffffff80000000  the image, as image.ld lays it out                                                1 GiB
// Nothing is mapped in the lower half, so an access through a null pointer faults, even with a small offset.
#pragma once

#include <cstddef>
#include <cstdint>

namespace neap::x86 {

constexpr std::uint64_t page_bytes = 4096;
constexpr std::uint64_t large_page_bytes = 2 << 20;
constexpr std::uint64_t huge_page_bytes = 1 << 30;
constexpr std::uint64_t direct_map_base = 0xffff800000000000;
constexpr std::uint64_t direct_map_bytes = std::uint64_t{64} << 40;
constexpr std::uint64_t mappings_base = 0xffffd00000000000;
constexpr std::uint64_t mappings_bytes = std::uint64_t{16} << 40;
constexpr std::uint64_t stacks_base = 0xffffe00000000000;
constexpr std::uint64_t image_base = 0xffffffff80000000;

/// The part of the direct map that the boot page tables cover, before the final page tables exist.
constexpr std::uint64_t boot_mapped_bytes = std::uint64_t{4} << 30;

/// A core's slot in the region of stacks. Each stack has unmapped pages on both sides.
constexpr std::uint64_t stack_slot_bytes = large_page_bytes;
struct StackPlace {
  std::uint64_t offset;  ///< offset of the stack's lowest byte in the slot
  std::uint64_t bytes;
};
constexpr StackPlace nmi_stack{.offset = 0x10000, .bytes = 0x4000};
constexpr StackPlace fault_stack{.offset = 0x20000, .bytes = 0x8000};  // double faults; large enough for a panic and its backtrace
constexpr StackPlace machine_check_stack{.offset = 0x30000, .bytes = 0x8000};
constexpr StackPlace main_stack{.offset = 0x100000, .bytes = 0x80000};  // the web server's scripts take most of it

constexpr std::uint64_t stack_slot(unsigned core) { return stacks_base + core * stack_slot_bytes; }
constexpr std::uint64_t stack_top(unsigned core, StackPlace place) { return stack_slot(core) + place.offset + place.bytes; }
constexpr std::uint64_t round_down(std::uint64_t value, std::uint64_t alignment) { return value & ~(alignment - 1); }
constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t alignment) { return round_down(value + alignment - 1, alignment); }

// Set by boot/image.ld. Only the addresses are meaningful.
extern "C" {
extern std::byte image_start[], text_start[], text_end[], rodata_start[], rodata_end[], data_start[], load_end[], image_end[];
extern std::byte tls_start[], tls_data_end[], first_core_tls[];
extern std::byte eh_frame_index[];
extern const char tls_bytes[], tls_alignment[];  // absolute symbols: the address is the value
}

inline std::uint64_t address_of(const volatile void* pointer) { return reinterpret_cast<std::uint64_t>(pointer); }

}  // namespace neap::x86
