// SPDX-License-Identifier: BSL-1.0
#include "kernel/boot_log.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernel/console.hpp"

namespace neap {
namespace {

std::string read_from(std::uint64_t from, std::size_t room = boot_log::bytes_max) {
  std::vector<char> out(room);
  const auto part = boot_log::read(from, out);
  return {out.data(), part.bytes};
}

TEST(BootLog, KeepsPrintedLinesInOrder) {
  const auto before = boot_log::extent().end;
  print("first ", 1);
  print("second ", hex(2));
  EXPECT_EQ(read_from(before), "first 1\nsecond 0x2\n");
  EXPECT_EQ(boot_log::extent().end, before + 19);
  EXPECT_EQ(read_from(before + 8), "second 0x2\n");
  EXPECT_EQ(read_from(before + 19), "");
  // No byte has that position yet: the result holds the position from which to continue.
  char room[8];
  EXPECT_EQ(boot_log::read(before + 1000, room).first, before + 19);
}

TEST(BootLog, SmallBufferReceivesAllLinesWhole) {
  const auto before = boot_log::extent().end;
  std::string said;
  for (int i = 0; i < 50; ++i) said += "line " + std::to_string(i * i) + '\n';
  boot_log::append(said);
  std::string seen;
  char room[17];
  for (auto next = before; next != boot_log::extent().end;) {
    const auto part = boot_log::read(next, room);
    ASSERT_EQ(part.first, next);
    ASSERT_GT(part.bytes, 0U);
    EXPECT_EQ(room[part.bytes - 1], '\n');
    seen.append(room, part.bytes);
    next += part.bytes;
  }
  EXPECT_EQ(seen, said);
  const auto long_line = boot_log::extent().end;
  boot_log::append("0123456789012345678\n");
  EXPECT_EQ(read_from(long_line, 17), "01234567890123456");
  EXPECT_EQ(read_from(long_line + 17, 17), "78\n");
}

// Wherever the ring wraps, a reader gets the newest lines, and the text starts at the beginning of a line.
TEST(BootLog, OldestLinesAreOverwrittenAndCutOnesSkipped) {
  std::string all;
  const auto before = boot_log::extent().end;
  for (unsigned i = 0; all.size() < 3 * boot_log::bytes_max; ++i) {
    const std::string line = std::to_string(i) + ' ' + std::string(i % 97, 'x') + '\n';
    boot_log::append(line);
    all += line;
    const auto extent = boot_log::extent();
    ASSERT_EQ(extent.end, before + all.size());
    ASSERT_LE(extent.end - extent.first, boot_log::bytes_max);
    if (i % 500 != 0) continue;
    const std::string kept = read_from(before);
    ASSERT_TRUE(all.ends_with(kept));
    ASSERT_TRUE(kept.size() == all.size() || all[all.size() - kept.size() - 1] == '\n');
    ASSERT_GE(kept.size() + 200, std::min(all.size(), boot_log::bytes_max));
  }
  const std::string huge(boot_log::bytes_max + 5000, 'y');
  boot_log::append(huge);
  EXPECT_EQ(read_from(0).size(), boot_log::bytes_max);
  EXPECT_EQ(boot_log::extent().end, before + all.size() + huge.size());
}

}  // namespace
}  // namespace neap
