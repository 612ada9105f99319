// SPDX-License-Identifier: BSL-1.0
// Layout: unused bytes up to the alignment, header, redzone, object, redzone. The quarantine is a list of freed objects' headers.
#include "kernel/memory/heap_checks.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <new>

#include "kernel/counter.hpp"
#include "kernel/machine.hpp"
#include "kernel/panic.hpp"

namespace neap::memory::checks {
namespace {

constexpr std::size_t redzone_bytes = 16;
// These patterns are neither valid addresses nor small numbers.
constexpr std::byte redzone_pattern{0xBD}, given_out_pattern{0xC5}, freed_pattern{0xDE};
constexpr std::uint64_t living_mark = 0x6C69'7669'6E67'4F62, freed_mark = 0x6672'6565'644F'626A;

/// Bounds of one core's quarantine. Above either bound, the oldest objects are freed.
constexpr std::uint64_t quarantine_objects_max = 256;
constexpr std::uint64_t quarantine_bytes_max = 1 << 20;

struct Header {
  std::uint64_t mark;  // one of the two marks, XORed with the header's address
  std::uint64_t bytes;
  Header* next;
  std::uint64_t front_bytes;  // distance from the start of the heap's object to the checked object
};
constexpr std::size_t front_bytes_min = sizeof(Header) + redzone_bytes;

struct Quarantine {
  Header* oldest = nullptr;
  Header* newest = nullptr;
  Counter objects;
  std::uint64_t bytes = 0;
};

constinit bool checking = false;
constinit std::array<Quarantine, machine::cores_max> quarantines;

std::byte* object_of(Header& header) noexcept { return reinterpret_cast<std::byte*>(&header) + front_bytes_min; }
std::uint64_t mark_at(const Header& header, std::uint64_t mark) noexcept { return mark ^ reinterpret_cast<std::uintptr_t>(&header); }

/// Number of bytes that are checked right behind an object: up to the next multiple of 16, then one redzone.
std::size_t tail_bytes(std::size_t bytes) noexcept { return (redzone_bytes - bytes % redzone_bytes) % redzone_bytes + redzone_bytes; }

bool is_filled(const std::byte* bytes, std::size_t count, std::byte pattern) noexcept {
  return std::all_of(bytes, bytes + count, [pattern](std::byte byte) { return byte == pattern; });
}

Header& living_header(const void* pointer) noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  Header& header = *reinterpret_cast<Header*>(address - front_bytes_min);
  require(header.mark != mark_at(header, freed_mark), "memory was freed twice", address);
  require(header.mark == mark_at(header, living_mark), "this memory is not from the heap, or its header was overwritten", address);
  return header;
}

void check_redzones(Header& header) noexcept {
  std::byte* const object = object_of(header);
  const auto address = reinterpret_cast<std::uintptr_t>(object);
  require(is_filled(object - redzone_bytes, redzone_bytes, redzone_pattern), "memory was written before its start", address);
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
  const std::size_t front = (front_bytes_min + alignment - 1) / alignment * alignment;
  const std::size_t around = front + tail_bytes(bytes);
  if (bytes > ~std::size_t{0} - around) return nullptr;
  auto* const begin = static_cast<std::byte*>(plain::allocate(bytes + around, alignment));
  if (begin == nullptr) return nullptr;
  std::byte* const object = begin + front;
  auto* const header = new (object - front_bytes_min) Header{.mark = 0, .bytes = bytes, .next = nullptr, .front_bytes = front};
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
  while (quarantine.objects.value() > quarantine_objects_max || quarantine.bytes > quarantine_bytes_max) release_oldest(quarantine);
}

std::size_t usable_bytes(const void* pointer) noexcept { return living_header(pointer).bytes; }

void release_quarantine() noexcept {
  Quarantine& quarantine = quarantines[machine::this_core()];
  while (quarantine.oldest != nullptr) release_oldest(quarantine);
}

bool quarantined(unsigned core) noexcept {
  require(core < quarantines.size(), "quarantined: no such core", core);
  return quarantines[core].objects.value() != 0;
}

}  // namespace neap::memory::checks
