// SPDX-License-Identifier: BSL-1.0
#include "kernel/console.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <stdexcept>
#include <string>

#include "kernel/exception_text.hpp"
#include "kernel/panic.hpp"
#include "tests/host/host_machine.hpp"
#include "tests/host/panics.hpp"

namespace neap {
namespace {

std::string printed(const auto&... parts) {
  static_cast<void>(host::take_console_text());
  print(parts...);
  return host::take_console_text();
}

TEST(Console, PrintsEveryKindOfPart) {
  EXPECT_EQ(printed("RXDCTL[", 3U, "] = ", hex(0xBEEF), ", ", -7, ' ', true, ' ', std::string_view("end")),
            "RXDCTL[3] = 0xbeef, -7 true end\n");
  EXPECT_EQ(printed(std::numeric_limits<std::uint64_t>::max(), ' ', std::numeric_limits<std::int64_t>::min()),
            "18446744073709551615 -9223372036854775808\n");
  EXPECT_EQ(printed(hex(0), ' ', hex(~std::uint64_t{0})), "0x0 0xffffffffffffffff\n");
  EXPECT_EQ(printed(), "\n");
}

TEST(Console, LongLinesAreCutWithAMarkAndANewline) {
  const std::string exact(Line::bytes_max, 'a');
  EXPECT_EQ(printed(exact), exact + "\n");
  for (const std::size_t more : {1U, 2U, 500U}) {
    const std::string text = printed(exact, std::string(more, 'b'), "c", hex(5));
    EXPECT_EQ(text, std::string(Line::bytes_max - 3, 'a') + "...\n");
  }
}

TEST(PanicDeathTest, PrintsMessageAndPlaceAndExits) {
  EXPECT_EXIT(panic("the tail passed the head", 0x2a), testing::ExitedWithCode(18),
              "panic on core 0: the tail passed the head\n  detail: 0x2a \\(42\\)\n  at .*console_test.cpp:[0-9]+ in ");
  EXPECT_EXIT(require(1 + 1 == 3, "sums"), testing::ExitedWithCode(18), "sums");
  require(true, "not evaluated as wrong");
}

void leave_noexcept(void (*call)()) noexcept { call(); }

TEST(PanicDeathTest, NamesAnUncaughtException) {
  host::expect_panic("an exception was not caught: std::logic_error: broken", [] {
    install_terminate_handler();
    leave_noexcept([] { throw std::logic_error("broken"); });
  });
  host::expect_panic("an exception was not caught: int", [] {
    install_terminate_handler();
    leave_noexcept([] { throw 5; });
  });
}

}  // namespace
}  // namespace neap
