// SPDX-License-Identifier: BSL-1.0
#include "kernel/register_block.hpp"

#include <gtest/gtest.h>

#include <array>

namespace neap {
namespace {

struct RegisterBlockTest : testing::Test {
  alignas(8) std::array<std::byte, 24> memory{};
  RegisterBlock block{std::span<volatile std::byte>(memory.data(), 20)};
};

TEST_F(RegisterBlockTest, EachWidthChangesItsOwnBytesOnly) {
  block.write(1, 1, 0xAABB);
  block.write(2, 2, 0xCCDD'EEFF);
  block.write(4, 4, 0x1'0203'0405);
  block.write(8, 8, 0x1122'3344'5566'7788);
  EXPECT_EQ(block.read(0, 4), 0xEEFF'BB00U);
  EXPECT_EQ(block.read(1, 1), 0xBBU);
  EXPECT_EQ(block.read(2, 2), 0xEEFFU);
  EXPECT_EQ(block.read(4, 4), 0x0203'0405U);
  EXPECT_EQ(block.read(8, 4), 0x5566'7788U);
  EXPECT_EQ(block.read(12, 4), 0x1122'3344U);
}

TEST_F(RegisterBlockTest, ARegisterOutsideIsZeroAndIsNotWritten) {
  memory.fill(std::byte{0xFF});
  for (const std::uint64_t offset : {std::uint64_t{20}, std::uint64_t{24}, ~std::uint64_t{0}, ~std::uint64_t{3}}) {
    block.write(offset, 4, 0);
    EXPECT_EQ(block.read(offset, 4), 0U) << offset;
    EXPECT_EQ(block.at<std::uint16_t>(offset), nullptr);
  }
  block.write(16, 8, 0);  // half of it is outside
  EXPECT_EQ(block.read(16, 4), ~0U);
  EXPECT_EQ(block.read(18, 4), 0U) << "not aligned";
  EXPECT_NE(block.at<std::uint16_t>(18), nullptr);
  EXPECT_EQ(RegisterBlock().read(0, 1), 0U);
  for (const std::byte each : memory) EXPECT_EQ(each, std::byte{0xFF});
}

}  // namespace
}  // namespace neap
