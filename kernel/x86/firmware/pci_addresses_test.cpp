// SPDX-License-Identifier: BSL-1.0
#include "kernel/x86/firmware/pci_addresses.hpp"

#include <gtest/gtest.h>

#include <array>
#include <random>
#include <vector>

namespace neap::x86::pci_addresses {
namespace {

constexpr std::uint64_t kibibyte = 1 << 10, mebibyte = 1 << 20, gibibyte = 1 << 30;

TEST(PciAddresses, BeginBehindTheRamBelowFourGibibytes) {
  EXPECT_EQ(behind_ram({}), 0U);
  EXPECT_EQ(behind_ram(std::array{Range{0, 640 * kibibyte}, Range{mebibyte, 512 * mebibyte}}), 512 * mebibyte);
  EXPECT_EQ(behind_ram(std::array{Range{mebibyte, 512 * mebibyte - 4096}}), 512 * mebibyte);
  EXPECT_EQ(behind_ram(std::array{Range{mebibyte, 2 * gibibyte}, Range{4 * gibibyte, 8 * gibibyte}}), 2 * gibibyte);
}

// A machine of QEMU's type q35 with 512 MiB: the window of configuration space and the firmware's ROM are taken.
TEST(PciAddresses, AvoidConfigurationSpaceAndRom) {
  constexpr std::array taken{Range{0xb000'0000, 0xc000'0000}, Range{0xfffc'0000, 4 * gibibyte}};
  EXPECT_EQ(place(taken, 512 * mebibyte, 512 * kibibyte), 512 * mebibyte);
  EXPECT_EQ(place(taken, 512 * mebibyte + 1, 16 * kibibyte), 512 * mebibyte + 16 * kibibyte);
  EXPECT_EQ(place(taken, 0xaff0'0000, 2 * mebibyte), 0xc000'0000U);
  EXPECT_EQ(place(taken, 0xfe00'0000, 16 * mebibyte), 0U);
  EXPECT_EQ(place(taken, 512 * mebibyte, 0), 0U);
  EXPECT_EQ(place(taken, 512 * mebibyte, 3 * mebibyte), 0U);
  EXPECT_EQ(place(taken, 512 * mebibyte, std::uint64_t{1} << 63), 0U);
  EXPECT_EQ(place(std::array{Range{0, ~std::uint64_t{0}}}, mebibyte, mebibyte), 0U);
}

TEST(PciAddresses, OverlapNothingWhatIsTaken) {
  std::mt19937_64 random(1);
  for (unsigned round = 0; round < 20'000; ++round) {
    std::vector<Range> taken(random() % 6);
    for (Range& range : taken) {
      range.first = random() % (5 * gibibyte);
      range.end = range.first + random() % gibibyte;
    }
    const std::uint64_t from = random() % (5 * gibibyte), bytes = std::uint64_t{16} << random() % 26;
    const std::uint64_t at = place(taken, from, bytes);
    if (at == 0) continue;
    ASSERT_TRUE(at >= from && at % bytes == 0 && at + bytes <= limit);
    for (const Range& range : taken) ASSERT_TRUE(range.first == range.end || at >= range.end || at + bytes <= range.first);
  }
}

}  // namespace
}  // namespace neap::x86::pci_addresses
