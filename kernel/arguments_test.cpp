// SPDX-License-Identifier: BSL-1.0
#include "kernel/arguments.hpp"

#include <gtest/gtest.h>

#include <string>

#include "tests/host/host_machine.hpp"

namespace neap {
namespace {

using namespace std::chrono_literals;
using testing::ExitedWithCode;

TEST(Arguments, MissingKeysHaveTheirDefaults) {
  Arguments arguments("");
  EXPECT_EQ(arguments.number("cores", 4, {}, "cores"), 4U);
  EXPECT_EQ(arguments.bytes("memory", 64 << 20, {}, "limit"), 64U << 20);
  EXPECT_EQ(arguments.duration("wait", 5ms, "how long"), 5ms);
  EXPECT_TRUE(arguments.flag("fast", true, "speed"));
  EXPECT_EQ(arguments.text("ip", "dhcp", "address"), "dhcp");
  EXPECT_EQ(arguments.choice("idle", {"halt", "poll"}, 1, "idle"), 1U);
  EXPECT_EQ(arguments.complaints(), "");
  arguments.finish();
}

TEST(Arguments, ValuesOfEveryKind) {
  Arguments arguments(
      "  cores=0x10\tmemory=64M small=1K big=3G plain=17 wait=250us long=2s fast=off idle=poll "
      "ip=10.0.0.2/24,10.0.0.1 empty= eq=a=b\r\n");
  EXPECT_EQ(arguments.number("cores", 4, {.min = 1, .max = 256}, ""), 16U);
  EXPECT_EQ(arguments.bytes("memory", 0, {}, ""), 64U << 20);
  EXPECT_EQ(arguments.bytes("small", 0, {}, ""), 1024U);
  EXPECT_EQ(arguments.bytes("big", 0, {}, ""), 3ULL << 30);
  EXPECT_EQ(arguments.bytes("plain", 0, {}, ""), 17U);
  EXPECT_EQ(arguments.duration("wait", 0ns, ""), 250us);
  EXPECT_EQ(arguments.duration("long", 0ns, ""), 2s);
  EXPECT_FALSE(arguments.flag("fast", true, ""));
  EXPECT_EQ(arguments.choice("idle", {"halt", "poll"}, 0, ""), 1U);
  EXPECT_EQ(arguments.text("ip", "", ""), "10.0.0.2/24,10.0.0.1");
  EXPECT_EQ(arguments.text("empty", "x", ""), "");
  EXPECT_EQ(arguments.text("eq", "", ""), "a=b");
  EXPECT_EQ(arguments.complaints(), "");
  EXPECT_TRUE(arguments.has("cores"));
  EXPECT_FALSE(arguments.has("core"));
}

/// Queries one key of the command line `line` and returns the complaints.
template <typename Ask>
std::string complaint(std::string_view line, Ask ask) {
  Arguments arguments(line);
  ask(arguments);
  return arguments.complaints();
}

TEST(Arguments, EveryTypingErrorIsNamed) {
  const auto number = [](Arguments& a) { EXPECT_EQ(a.number("n", 7, {.min = 2, .max = 9}, ""), 7U); };
  EXPECT_EQ(complaint("n=1", number), "n=1 is out of range (2 to 9)\n");
  EXPECT_EQ(complaint("n=10", number), "n=10 is out of range (2 to 9)\n");
  for (const std::string bad : {"", "-3", "3x", "x3", "3.5", "0x", "99999999999999999999", "+3", "3K", "0xg"}) {
    EXPECT_EQ(complaint("n=" + bad, number), "n=" + bad + " is not a number\n");
  }
  const auto bytes = [](Arguments& a) { EXPECT_EQ(a.bytes("m", 5, {.min = 5, .max = 1 << 20}, ""), 5U); };
  for (const std::string bad : {"", "K", "3k", "3KB", "3T", "99999999999G"}) {
    EXPECT_EQ(complaint("m=" + bad, bytes), "m=" + bad + " is not a number of bytes (digits, then nothing, K, M or G)\n");
  }
  EXPECT_EQ(complaint("m=2M", bytes), "m=2M is out of range (5 to 1M)\n");
  const auto duration = [](Arguments& a) { EXPECT_EQ(a.duration("d", 1s, ""), 1s); };
  for (const std::string bad : {"", "5", "5m", "5 ms", "ms", "99999999999s", "-1ms"}) {
    EXPECT_NE(complaint("d=" + bad, duration).find("is not a duration"), std::string::npos) << bad;
  }
  const auto flag = [](Arguments& a) { EXPECT_TRUE(a.flag("f", true, "")); };
  EXPECT_EQ(complaint("f=yes", flag), "f=yes is not one of: off | on\n");
  EXPECT_EQ(complaint("f", flag), "f has no value (words are key=value)\n");
  EXPECT_EQ(complaint("f=on f=on", flag), "f=on comes a second time\n");
  EXPECT_EQ(complaint("g=on", flag), "g= is not known\n");
  EXPECT_EQ(complaint("=on", flag), "= is not known\n");
  EXPECT_EQ(complaint("f=o\x1b\xffn", flag), "f=o??n is not one of: off | on\n");
}

TEST(Arguments, RejectedValueIsOneComplaint) {
  Arguments arguments("ip=1.2.3");
  EXPECT_EQ(arguments.text("ip", "", ""), "1.2.3");
  arguments.reject("ip", "is not an address");
  arguments.reject("ip", "is not an address");
  EXPECT_EQ(arguments.complaints(), "ip=1.2.3 is not an address\n");
}

TEST(Arguments, ARefusedKeyGivesItsReasonWithAndWithoutAValue) {
  for (const char* const line : {"daemon=1", "daemon"}) {
    Arguments arguments(line);
    arguments.refuse("daemon", "is refused: there is no shell");
    EXPECT_EQ(arguments.complaints(), std::string("daemon=") + (line[6] != '\0' ? "1" : "") + " is refused: there is no shell\n");
    EXPECT_EQ(arguments.accepted(), "");
  }
  Arguments other("port=1");
  other.refuse("daemon", "is refused");
  (void)other.number("port", 2, {}, "");
  EXPECT_EQ(other.complaints(), "");
}

TEST(Arguments, SecretsAreNeverShown) {
  Arguments arguments("token=hunter2 tokne=hunter2 level=hunter2");
  arguments.mark_secret("token");
  EXPECT_EQ(arguments.number("token", 123456, {}, "the token"), 123456U);
  const std::string everything = arguments.complaints() + arguments.accepted();
  EXPECT_EQ(everything.find("hunter2"), std::string::npos) << everything;
  EXPECT_EQ(everything.find("123456"), std::string::npos) << everything;
  EXPECT_NE(everything.find("token=*** is not a number"), std::string::npos) << everything;
  EXPECT_EQ(arguments.shown(), "token=*** tokne=hunter2 level=hunter2");
}

TEST(Arguments, AcceptedListsEveryKeyThatWasAskedFor) {
  Arguments arguments("");
  static_cast<void>(arguments.number("cores", 2, {.min = 1, .max = 8}, "how many cores to start"));
  static_cast<void>(arguments.bytes("memory", 64 << 20, {.min = 1 << 20}, "limit of the store"));
  static_cast<void>(arguments.duration("wait", 1500us, "pause"));
  static_cast<void>(arguments.choice("idle", {"halt", "poll"}, 0, "what an idle core does"));
  static_cast<void>(arguments.number("cores", 2, {.min = 1, .max = 8}, "asked twice"));
  EXPECT_EQ(arguments.accepted(),
            "cores=  how many cores to start (number, 1 to 8; default 2)\n"
            "memory=  limit of the store (bytes, K, M or G, at least 1M; default 64M)\n"
            "wait=  pause (number with ns, us, ms or s; default 1500us)\n"
            "idle=  what an idle core does (halt | poll; default halt)\n");
}

TEST(ArgumentsDeathTest, FinishStopsTheBootWithTheListOfAcceptedKeys) {
  Arguments arguments("cores=many");
  static_cast<void>(arguments.number("cores", 2, {.min = 1, .max = 8}, "how many cores to start"));
  EXPECT_EXIT(arguments.finish(), ExitedWithCode(19), "bad command line:\ncores=many is not a number\naccepted:\ncores=  how many");
}

}  // namespace
}  // namespace neap
