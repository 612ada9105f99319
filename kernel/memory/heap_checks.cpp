// SPDX-License-Identifier: BSL-1.0
// In memory: unused bytes up to the alignment, header, redzone, the object, redzone. The header of a freed object links the quarantine.
#include "kernel/memory/heap_checks.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <new>
#include <span>

#include "kernel/counter.hpp"
#include "kernel/machine.hpp"
#include "kernel/panic.hpp"

namespace neap::memory::checks {
namespace {

constexpr std::size_t redzone_bytes = 16;
// Patterns that make no valid address and no small number.
constexpr std::byte redzone_pattern{0xBD};
constexpr std::byte given_out_pattern{0xC5};
constexpr std::byte freed_pattern{0xDE};
constexpr std::uint64_t living_mark = 0x6C69'7669'6E67'4F62;
constexpr std::uint64_t freed_mark = 0x6672'6565'644F'626A;

/// A core's quarantine: the oldest go when there are more objects or bytes than this.
constexpr std::uint64_t quarantine_objects = 256;
constexpr std::uint64_t quarantine_bytes = 1 << 20;

struct Header {
  std::uint64_t mark;  // one of the two, mixed with the header's address
  std::uint64_t bytes;
  Header* next;
  std::uint64_t front_bytes;  // from the plain object's begin to the checked one's
};
constexpr std::size_t front_least = sizeof(Header) + redzone_bytes;

struct Quarantine {
  Header* oldest = nullptr;
  Header* newest = nullptr;
  Counter objects;
  std::uint64_t bytes = 0;
};

constinit bool checking = false;
constinit std::array<Quarantine, machine::cores_max> quarantines;

std::byte* object_of(Header& header) noexcept { return reinterpret_cast<std::byte*>(&header) + front_least; }
std::uint64_t mark_at(const Header& header, std::uint64_t mark) noexcept { return mark ^ reinterpret_cast<std::uintptr_t>(&header); }

/// To the next 16 bytes and a redzone more, so that the object's very end is watched, too.
std::size_t tail_bytes(std::size_t bytes) noexcept { return (redzone_bytes - bytes % redzone_bytes) % redzone_bytes + redzone_bytes; }

bool is_filled(const std::byte* bytes, std::size_t count, std::byte pattern) noexcept {
  return std::all_of(bytes, bytes + count, [pattern](std::byte byte) { return byte == pattern; });
}

Header& living_header(const void* pointer) noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  Header& header = *reinterpret_cast<Header*>(address - front_least);
  require(header.mark != mark_at(header, freed_mark), "memory was freed twice", address);
  require(header.mark == mark_at(header, living_mark), "memory that no heap knows, or that was overwritten from before its begin", address);
  return header;
}

void check_redzones(Header& header) noexcept {
  std::byte* const object = object_of(header);
  const auto address = reinterpret_cast<std::uintptr_t>(object);
  require(is_filled(object - redzone_bytes, redzone_bytes, redzone_pattern), "memory was written before its begin", address);
  require(is_filled(object + header.bytes, tail_bytes(header.bytes), redzone_pattern), "memory was written beyond its end", address);
}

void release_oldest(Quarantine& quarantine) noexcept {
  Header& header = *quarantine.oldest;
  std::byte* const object = object_of(header);
  require(is_filled(object, header.bytes, freed_pattern), "memory was written after it was freed",
          reinterpret_cast<std::uintptr_t>(object));
  check_redzones(header);
  quarantine.oldest = header.next;
  if (quarantine.oldest == nullptr) quarantine.newest = nullptr;
  quarantine.objects.subtract(1);
  quarantine.bytes -= header.bytes;
  header.mark = 0;
  plain::deallocate(object - header.front_bytes);
}

}  // namespace

void turn_on() noexcept { checking = true; }
bool on() noexcept { return checking; }

void* allocate(std::size_t bytes, std::size_t alignment) noexcept {
  const std::size_t front = (front_least + alignment - 1) / alignment * alignment;
  const std::size_t around = front + tail_bytes(bytes);
  if (bytes > ~std::size_t{0} - around) return nullptr;
  auto* const begin = static_cast<std::byte*>(plain::allocate(bytes + around, alignment));
  if (begin == nullptr) return nullptr;
  std::byte* const object = begin + front;
  auto* const header = new (object - front_least) Header{.mark = 0, .bytes = bytes, .next = nullptr, .front_bytes = front};
  header->mark = mark_at(*header, living_mark);
  std::fill_n(object - redzone_bytes, redzone_bytes, redzone_pattern);
  std::fill_n(object, bytes, given_out_pattern);
  std::fill_n(object + bytes, tail_bytes(bytes), redzone_pattern);
  return object;
}

void deallocate(void* pointer) noexcept {
  Header& header = living_header(pointer);
  check_redzones(header);
  header.mark = mark_at(header, freed_mark);
  header.next = nullptr;
  std::fill_n(object_of(header), header.bytes, freed_pattern);
  Quarantine& quarantine = quarantines[machine::this_core()];
  (quarantine.oldest == nullptr ? quarantine.oldest : quarantine.newest->next) = &header;
  quarantine.newest = &header;
  quarantine.objects.add();
  quarantine.bytes += header.bytes;
  while (quarantine.objects.value() > quarantine_objects || quarantine.bytes > quarantine_bytes) release_oldest(quarantine);
}

std::size_t usable_bytes(const void* pointer) noexcept { return living_header(pointer).bytes; }

void release_quarantine() noexcept {
  Quarantine& quarantine = quarantines[machine::this_core()];
  while (quarantine.oldest != nullptr) release_oldest(quarantine);
}

bool quarantined(unsigned core) noexcept { return quarantines[core].objects.value() != 0; }

}  // namespace neap::memory::checks
