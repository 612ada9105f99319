// SPDX-License-Identifier: BSL-1.0
#include "kernel/kept_panic.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernel/panic.hpp"
#include "tests/host/host_machine.hpp"

namespace neap {
namespace {

using Area = std::array<std::byte, kept_panic::area_bytes>;

TEST(KeptPanic, ReadReturnsTheWrittenText) {
  Area area{};
  kept_panic::write(area, {.boot = 7, .panic_boot = 6, .text = "panic on core 3\n"});
  const auto kept = kept_panic::read(area);
  EXPECT_EQ(kept.boot, 7U);
  EXPECT_EQ(kept.panic_boot, 6U);
  EXPECT_EQ(kept.text, "panic on core 3\n");
  std::string lines;
  for (int i = 0; i < 2000; ++i) lines += "line " + std::to_string(i) + '\n';
  kept_panic::write(area, {.boot = 1, .panic_boot = 1, .text = lines});
  const auto last = kept_panic::read(area).text;
  EXPECT_TRUE(lines.ends_with(last) && last.starts_with("line "));
  EXPECT_GT(last.size() + 20, kept_panic::text_bytes_max);
}

// An area that was cleared or overwritten, or in which a bit changed, is not taken for a panic's text.
TEST(KeptPanic, DamagedMemoryIsNoPanic) {
  Area area{};
  EXPECT_EQ(kept_panic::read(area).boot, 0U);
  area.fill(std::byte{0xff});
  EXPECT_EQ(kept_panic::read(area).boot, 0U);
  kept_panic::write(area, {.boot = 2, .panic_boot = 2, .text = "the tail passed the head\n"});
  const Area good = area;
  ASSERT_EQ(kept_panic::read(good).boot, 2U);
  for (std::size_t bit = 0; bit < (kept_panic::header_bytes + 25) * 8; ++bit) {
    area = good;
    area[bit / 8] ^= std::byte{1} << bit % 8;
    EXPECT_EQ(kept_panic::read(area).boot, 0U) << bit;
    EXPECT_EQ(kept_panic::read(area).text, "") << bit;
  }
  for (std::size_t bytes = 0; bytes < kept_panic::header_bytes + 25; ++bytes) {
    EXPECT_EQ(kept_panic::read(std::span(good).first(bytes)).boot, 0U) << bytes;
  }
  std::minstd_rand random(4);
  for (int i = 0; i < 200; ++i) {
    for (auto& byte : area) byte = static_cast<std::byte>(random());
    std::memcpy(area.data(), good.data(), 12);  // a magic number and a version are not enough
    EXPECT_EQ(kept_panic::read(area).boot, 0U);
  }
}

TEST(KeptPanic, TooSmallAreaIsNotWritten) {
  std::vector<std::byte> area(kept_panic::header_bytes - 1, std::byte{5});
  kept_panic::write(area, {.boot = 1, .panic_boot = 1, .text = "x"});
  EXPECT_EQ(area, std::vector<std::byte>(kept_panic::header_bytes - 1, std::byte{5}));
}

// The other cores' backtraces are at the end of a report. They may be long, but must not displace the panic's message.
TEST(KeptPanic, MessageOfALongReportIsKept) {
  static Area area{};
  host::set_kept_memory(area);
  kept_panic::take_over();
  for (int i = 0; i < 400; ++i) machine::console_write("what was said before\n");
  machine::console_write("panic on core 0: the message\n");
  kept_panic::keep();
  for (int i = 0; i < 400; ++i) machine::console_write("where another core was, and who called that\n");
  machine::console_write("the end\n");
  kept_panic::keep();
  const std::string text(kept_panic::read(area).text);
  EXPECT_TRUE(text.starts_with("what was said before\n")) << text.substr(0, 80);
  EXPECT_NE(text.find("\npanic on core 0: the message\n"), std::string::npos);
  EXPECT_TRUE(text.ends_with("\nwhere another core was, and who called that\n")) << text.substr(text.size() - 80);
  EXPECT_GT(text.size(), kept_panic::text_bytes_max / 2);
  kept_panic::take_over();  // clears the area for the next tests
  host::set_kept_memory({});
}

// The test simulates several starts of a machine in one process. It calls `keep` itself, because a real panic would end the process.
TEST(KeptPanic, IsPrintedOnceAtTheNextStart) {
  static Area area{};
  host::set_kept_memory(area);
  kept_panic::take_over();
  EXPECT_EQ(kept_panic::boot_number(), 1U);
  EXPECT_EQ(kept_panic::text(), "");
  machine::console_write("panic on core 0: nobody looked\n");
  kept_panic::keep();
  EXPECT_EQ(kept_panic::read(area).panic_boot, 1U);

  static_cast<void>(host::take_console_text());
  kept_panic::take_over();
  const std::string said = host::take_console_text();
  EXPECT_TRUE(said.starts_with("neap: start 1 ended in a panic; its last lines:\n")) << said;
  EXPECT_NE(said.find("\n| panic on core 0: nobody looked\n"), std::string::npos) << said;
  EXPECT_TRUE(kept_panic::text().ends_with("panic on core 0: nobody looked\n"));
  EXPECT_EQ(kept_panic::boot_number(), 2U);

  // A panic of this start saves the lines of this start, without the printed text of the earlier panic.
  machine::console_write("panic on core 1: again\n");
  kept_panic::keep();
  EXPECT_EQ(kept_panic::read(area).text, "panic on core 1: again\n");

  kept_panic::take_over();
  kept_panic::take_over();
  EXPECT_EQ(kept_panic::boot_number(), 4U);
  EXPECT_EQ(kept_panic::text(), "");
  host::set_kept_memory({});
  EXPECT_EXIT(panic("without a place to keep it"), testing::ExitedWithCode(18), "without a place to keep it");
}

}  // namespace
}  // namespace neap
