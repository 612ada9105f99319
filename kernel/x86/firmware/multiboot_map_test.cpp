// SPDX-License-Identifier: BSL-1.0
#include "kernel/x86/firmware/multiboot_map.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <tuple>
#include <vector>

namespace neap::x86::multiboot {
namespace {

using Ranges = std::vector<std::tuple<std::uint64_t, std::uint64_t, std::uint32_t>>;

struct Map {
  std::vector<std::byte> bytes;
  void add32(std::uint32_t value) { add(&value, sizeof value); }
  void add64(std::uint64_t value) { add(&value, sizeof value); }
  void add(const void* from, std::size_t count) {
    const std::size_t at = bytes.size();
    bytes.resize(at + count);
    std::memcpy(bytes.data() + at, from, count);
  }
  void add_range(std::uint64_t first, std::uint64_t length, std::uint32_t type) {
    add64(first);
    add64(length);
    add32(type);
  }
  [[nodiscard]] acpi::Bytes all() const { return {bytes.data(), bytes.size()}; }
};

Ranges ranges_1(const acpi::Bytes& map) {
  Ranges found;
  for_each_range_1(map, [&](std::uint64_t first, std::uint64_t length, std::uint32_t type) { found.emplace_back(first, length, type); });
  return found;
}
Ranges ranges_2(const acpi::Bytes& body) {
  Ranges found;
  for_each_range_2(body, [&](std::uint64_t first, std::uint64_t length, std::uint32_t type) { found.emplace_back(first, length, type); });
  return found;
}

TEST(MultibootMap, EntriesOfBothFormatsAreRead) {
  Map first;
  first.add32(24);  // longer than the known fields
  first.add_range(0x100000, 0x7ee0000, 1);
  first.add32(0);
  first.add32(20);
  first.add_range(0xfffc0000, 0x40000, 2);
  EXPECT_EQ(ranges_1(first.all()), (Ranges{{0x100000, 0x7ee0000, 1}, {0xfffc0000, 0x40000, 2}}));

  Map second;
  second.add32(24);
  second.add32(0);
  for (const std::uint32_t type : {1U, 2U}) {
    second.add_range(type << 20, 0x1000, type);
    second.add32(0);
  }
  EXPECT_EQ(ranges_2(second.all()), (Ranges{{0x100000, 0x1000, 1}, {0x200000, 0x1000, 2}}));
}

// In 32 bits, an entry's size plus the 4 bytes of the size field would wrap to 0, and the list would never end.
TEST(MultibootMap, AnInvalidSizeEndsTheList) {
  for (const std::uint32_t size : {0xfffffffcU, 0xffffffffU, 0U, 19U}) {
    Map map;
    map.add32(size);
    map.add_range(0x100000, 0x1000, 1);
    map.add32(20);
    map.add_range(0x200000, 0x1000, 1);
    EXPECT_EQ(ranges_1(map.all()), (Ranges{{0x100000, 0x1000, 1}})) << size;
  }
  for (const std::uint32_t size : {0U, 19U, 0xffffffffU}) {
    Map map;
    map.add32(size);
    map.add32(0);
    map.add_range(0x100000, 0x1000, 1);
    EXPECT_EQ(ranges_2(map.all()), Ranges{}) << size;
  }
}

TEST(MultibootMap, AnyBytesAreReadWithinBounds) {
  std::minstd_rand random(11);
  for (int round = 0; round < 2000; ++round) {
    Map map;
    map.bytes.resize(random() % 100);
    for (std::byte& byte : map.bytes) byte = static_cast<std::byte>(random() % 3 == 0 ? random() : random() % 2 * 20);
    EXPECT_LE(ranges_1(map.all()).size(), 5U);
    EXPECT_LE(ranges_2(map.all()).size(), 5U);
  }
}

}  // namespace
}  // namespace neap::x86::multiboot
