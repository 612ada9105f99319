// SPDX-License-Identifier: BSL-1.0
#include "bench/transfer/protocol.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace neap::bench {
namespace {

std::pair<std::vector<std::byte>, std::uint64_t> sent(std::size_t bytes, std::uint64_t seed) {
  std::vector<std::byte> out(bytes);
  Sum sum;
  Words(seed).fill(out, sum);
  return {out, sum.value()};
}

// The value is that of transfer.c for a transfer of one word with seed 3. If either end changes, all transfers between the two would fail.
TEST(TransferSum, IsThatOfTheLinuxProgram) { EXPECT_EQ(sent(8, 3).second, 0x130F09122B9BB5C0U); }

TEST(TransferSum, DoesNotDependOnThePieces) {
  const auto [bytes, sum] = sent(8000, 7);
  for (const std::size_t size : {1U, 3U, 8U, 13U, 1460U, 8000U}) {
    ByteSum found;
    for (std::size_t at = 0; at < bytes.size(); at += size) found.add(std::span(bytes).subspan(at, std::min(size, bytes.size() - at)));
    EXPECT_EQ(found.value(), sum) << size;
  }
}

// A stack that repeats, drops or exchanges a segment, or delivers one of another transfer, must change the sum.
TEST(TransferSum, DependsOnOrderAndOnEachByte) {
  const auto [bytes, sum] = sent(4096, 7);
  const auto sum_of = [](const std::vector<std::byte>& all) {
    ByteSum found;
    found.add(all);
    return found.value();
  };
  auto exchanged = bytes;
  std::swap_ranges(exchanged.begin(), exchanged.begin() + 1024, exchanged.begin() + 1024);
  EXPECT_NE(sum_of(exchanged), sum);
  for (std::size_t at = 0; at < bytes.size(); at += 101) {
    auto wrong = bytes;
    wrong[at] ^= std::byte{1};
    EXPECT_NE(sum_of(wrong), sum) << at;
  }
  EXPECT_NE(sent(4096, 8).second, sum);
}

TEST(TransferRequest, IsChecked) {
  const Request good{.magic = Request::magic_value, .kind = 1, .bytes = 64, .seed = 1};
  EXPECT_TRUE(good.is_valid());
  for (Request bad : {Request{0, 1, 64, 1}, Request{good.magic, 0, 64, 1}, Request{good.magic, 4, 64, 1}, Request{good.magic, 1, 63, 1},
                      Request{good.magic, 2, Request::bytes_max + 8, 1}}) {
    EXPECT_FALSE(bad.is_valid());
  }
}

}  // namespace
}  // namespace neap::bench
