// SPDX-License-Identifier: BSL-1.0
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <random>

#include "kernel/boot_log.hpp"
#include "kernel/events.hpp"
#include "observe/testing.hpp"

namespace neap::observe::testing {
namespace {

struct ControlClient : ::testing::Test {
  World world;
  Peer& peer = world.peer();
};

// A client assigns answers to lines by their order. No answer may be missing, repeated or out of order, however the lines are segmented.
TEST_F(ControlClient, EveryLineGetsOneAnswerInOrder) {
  std::string lines;
  for (int i = 0; i < 200; ++i)
    lines += "no_such_" + std::to_string(i) + (i % 2 == 0 ? "\n" : "\r\n") + "itr, " + std::to_string(i * 2) + "\n";
  for (std::size_t at = 0, piece = 1; at < lines.size(); at += piece, piece = piece % 97 + 7) {
    peer.send(std::string_view(lines).substr(at, piece));
  }
  for (int i = 0; i < 200; ++i) {
    const std::string unknown = peer.line().value_or("");
    EXPECT_TRUE(unknown.starts_with("error: there is no command 'no_such_" + std::to_string(i) + "'")) << unknown;
    const std::string itr = peer.line().value_or("");
    EXPECT_TRUE(itr.starts_with("ok itr=" + std::to_string(i * 2) + "us generation=")) << itr;
  }
  EXPECT_EQ(world.device.itr_us(0), 398U);
}

TEST_F(ControlClient, SettingsReachTheCoresTheyName) {
  EXPECT_TRUE(peer.ask("itr,8us,all").ends_with(" cores=0-2"));
  const std::string answer = peer.ask("itr,101,1");
  EXPECT_TRUE(answer.starts_with("ok itr=100us generation=") && answer.ends_with(" cores=1")) << answer;
  EXPECT_EQ(world.device.itr_us(0), 8U);
  EXPECT_EQ(world.device.itr_us(1), 100U);
  EXPECT_EQ(policy::of(1).generation, policy::generation());
  EXPECT_NE(peer.ask("policy,1").find("; 1 idle="), std::string::npos);
  EXPECT_NE(peer.ask("policy").find("itr_us=100"), std::string::npos);
}

TEST_F(ControlClient, TheAncestorsNamesWork) {
  EXPECT_TRUE(peer.ask("rx_usecs,8").starts_with("ok itr=8us"));
  EXPECT_TRUE(peer.ask("print").starts_with("ok application=observed; "));
  EXPECT_EQ(peer.ask("dvfs,fast"), "error: dvfs takes what goes into PERF_CTL, decimal or 0x hexadecimal");
  EXPECT_EQ(peer.ask("dvfs,6144"), peer.ask("pstate,0x1800"));
  EXPECT_EQ(peer.ask("rapl,35"), peer.ask("power_limit,35"));
  EXPECT_TRUE(peer.ask("rdtsc").starts_with("ok tsc="));
  EXPECT_EQ(peer.ask("start"), "ok run=1");
  EXPECT_TRUE(peer.ask("stop").starts_with("ok run=1 lines="));
  EXPECT_EQ(peer.ask("clear"), "ok");
}

TEST_F(ControlClient, ARefusalNamesTheAcceptedWordsAndChangesNothing) {
  const std::string before = peer.ask("policy");
  for (const char* line : {"itr,1001",
                           "itr,-1",
                           "itr,8s",
                           "itr,",
                           "itr",
                           "itr,8,3",
                           "itr,8,-1",
                           "itr,8,1,1",
                           "itr,8,one",
                           "idle,c9",
                           "idle,C1",
                           "turbo,perhaps",
                           "poll_budget,ever",
                           "pstate,999999",
                           "power_limit,-5",
                           "ITR,8",
                           "itr 8",
                           ",itr,8",
                           "start,0",
                           "start,10x",
                           "start,-1",
                           "start,99999999999999999999",
                           "get,9",
                           "get,all",
                           "get,0",
                           "stream,now",
                           "help,nothing",
                           "stop",
                           "stop,now",
                           "reboot,now",
                           "poweroff,0",
                           "",
                           " ",
                           "\t,",
                           "token"}) {
    // `get` ends its connection in any case.
    const std::string answer = std::string_view(line).starts_with("get") ? world.peer().ask(line) : peer.ask(line);
    EXPECT_TRUE(answer.starts_with("error: ") && answer.size() > 12) << line << " -> " << answer;
  }
  EXPECT_NE(peer.ask("itr,1001").find("1000"), std::string::npos);
  EXPECT_NE(peer.ask("idle,c9").find("halt"), std::string::npos);
  EXPECT_EQ(peer.ask("itr,8,7"), "error: there is no core '7' (0 to 2, or all)");
  EXPECT_EQ(peer.ask("itr"), "error: usage: itr,TIME[,CORE]");
  EXPECT_EQ(peer.ask("policy"), before);
  EXPECT_GE(world.server.counters().refused.load(), 30U);
}

/// Makes nearly valid lines and random lines, but none that would change a setting or end the machine.
std::string random_line(std::minstd_rand& random) {
  static const char* const words[] = {"itr",
                                      "idle",
                                      "pstate",
                                      "power_limit",
                                      "turbo",
                                      "start",
                                      "get",
                                      "stream",
                                      "policy",
                                      "stats",
                                      "help",
                                      "token",
                                      "stop",
                                      "rapl",
                                      "dvfs",
                                      "-1",
                                      "1001",
                                      "4294967296",
                                      "18446744073709551616",
                                      "0x",
                                      "c9",
                                      "all",
                                      "run=x",
                                      "9=9",
                                      " ",
                                      "\t",
                                      "%s%n",
                                      "''",
                                      "\"",
                                      "5=",
                                      "reboot",
                                      "poweroff",
                                      "99us",
                                      "1e9"};
  std::string line = "!";                                                // no command begins with this character
  if (random() % 3 != 0) line = std::string(words[random() % 5]) + ',';  // settings with invalid values
  if (random() % 5 == 0) {
    line += std::string(random() % 300, '\0');
    for (char& letter : line) {
      if (letter == '\0') letter = static_cast<char>(random() % 255);
      if (letter == '\n') letter = ' ';
    }
    return line + "!";
  }
  line += "nothing";
  for (unsigned more = random() % 5; more > 0; --more) line += std::string(",") + words[random() % std::size(words)];
  return line;
}

TEST_F(ControlClient, TenThousandRandomLinesSetNothing) {
  const std::string before = peer.ask("policy");
  std::minstd_rand random(7);
  constexpr int lines = 10'000;
  int answers = 0, errors = 0;
  for (int sent = 0; sent < lines;) {
    std::string batch;
    for (int i = 0; i < 100; ++i, ++sent) batch += random_line(random) + '\n';
    peer.send(batch);
    for (int i = 0; i < 100; ++i) {
      const auto answer = peer.line();
      ASSERT_TRUE(answer.has_value()) << answers;
      ++answers;
      if (answer->starts_with("error: ")) ++errors;
    }
  }
  EXPECT_EQ(answers, lines);
  EXPECT_EQ(errors, lines);
  EXPECT_EQ(world.server.counters().refused.load(), static_cast<std::uint64_t>(lines));
  EXPECT_EQ(peer.ask("policy"), before);
}

TEST_F(ControlClient, AMegabyteWithoutALineFeedIsOneRefusal) {
  for (int i = 0; i < 16; ++i) {
    peer.send(std::string(65536, 'A'));
    EXPECT_TRUE(HostMachine::wait_until([&] { return world.server.clients().count() == 1; }));
  }
  peer.send(",8\n");
  EXPECT_EQ(peer.line(), "error: line too long (4096 bytes at most)");
  EXPECT_EQ(peer.ask(std::string(4096, ' ')), "error: an empty line (help lists the commands)");
  EXPECT_EQ(peer.ask(std::string(4097, ' ')), "error: line too long (4096 bytes at most)");
  EXPECT_EQ(world.server.counters().lines_too_long.load(), 2U);
  EXPECT_TRUE(peer.ask("status").starts_with("ok "));
}

// "power_limit,35" may be the beginning of "power_limit,350", so a line without its end is not executed.
TEST_F(ControlClient, HalfALineIsNotExecuted) {
  peer.send("itr,8\nitr,10");
  peer.end_sending();
  const std::string all = peer.rest();
  EXPECT_TRUE(all.starts_with("ok itr=8us ")) << all;
  EXPECT_TRUE(all.ends_with("\nerror: the last line has no end, so it was not carried out\n")) << all;
  EXPECT_EQ(world.device.itr_us(0), 8U);
  EXPECT_EQ(world.server.counters().lines_half.load(), 1U);
}

// Unread answers must not accumulate: no further line is parsed until there is room (back-pressure).
TEST(Control, AClientThatDoesNotReadIsNotReadFrom) {
  World world;
  Peer& peer = world.peer(false);
  constexpr unsigned lines = 4000;
  std::string text;
  for (unsigned i = 0; i < lines; ++i) text += "help\n";
  peer.send(text);
  EXPECT_LT(world.lines_at_rest(), lines / 2);
  EXPECT_TRUE(world.peer().ask("status").starts_with("ok "));
  peer.begin_reading();
  for (unsigned i = 0; i < lines; ++i) {
    const auto answer = peer.line();
    ASSERT_TRUE(answer.has_value() && answer->starts_with("ok start[,BOUND]; ")) << i;
  }
}

TEST(Control, WithoutTheTokenOnlyHelpWorks) {
  WorldOptions options = small_log();
  options.control.token = "correct-horse";
  World world(options);
  Peer& peer = world.peer();
  EXPECT_TRUE(peer.ask("help").starts_with("ok "));
  for (const char* line : {"itr,8", "status", "poweroff", "get,0", "nothing"}) {
    EXPECT_EQ(peer.ask(line), "error: token needed: send token,...");
  }
  EXPECT_EQ(peer.ask("token,correct-hors"), "error: wrong token");
  EXPECT_EQ(peer.ask("token,correct-horsecorrect-horse"), "error: wrong token");
  EXPECT_EQ(peer.ask("token,correct-horse"), "ok");
  EXPECT_TRUE(peer.ask("itr,8").starts_with("ok "));
  // Every connection needs the token, and is closed after the third wrong token.
  Peer& other = world.peer();
  EXPECT_TRUE(other.ask("itr,8").starts_with("error: token needed"));
  other.send("token,a\ntoken,b\ntoken,c\ntoken,correct-horse\nitr,10\n");
  EXPECT_EQ(other.rest(), "error: wrong token\nerror: wrong token\nerror: wrong token\n");
  EXPECT_EQ(world.device.itr_us(0), 8U);
  EXPECT_EQ(world.server.counters().tokens_wrong.load(), 5U);
  EXPECT_EQ(host::take_console_text().find("correct-horse"), std::string::npos);
  EXPECT_EQ(peer.ask("boot").find("correct-horse"), std::string::npos);
  EXPECT_EQ(peer.ask("status").find("correct-horse"), std::string::npos);
}

TEST(Control, AddressesThatAreNotAllowedGetOneLine) {
  WorldOptions options = small_log();
  options.control.allow = *AllowList::parse("10.0.0.3,192.168.0.0/16");
  World world(options);
  Peer& peer = world.peer();
  EXPECT_EQ(peer.rest(), "error: 10.0.0.2 may not use control here (control_allow=)\n");
  EXPECT_EQ(world.server.counters().refused_address.load(), 1U);
  EXPECT_EQ(world.server.clients().count(), 0U);
}

TEST_F(ControlClient, TheMachineEndsAfterTheAnswer) {
  EXPECT_EQ(power_offs.load(), 0);
  peer.send("poweroff\nitr,8\n");
  EXPECT_EQ(peer.rest(), "ok\n");
  EXPECT_TRUE(HostMachine::wait_until([] { return power_offs.load() == 1; }));
  // A client that never closes does not keep the machine on.
  Peer& other = world.peer(false);
  other.send("reboot\n");
  EXPECT_TRUE(HostMachine::wait_until([] { return reboots.load() == 1; }));
  power_offs = reboots = 0;
}

TEST(Control, ApplicationsAddCommandsAndStatistics) {
  World world;
  const auto blast = [](std::span<const std::string_view> words, std::optional<unsigned> core) -> task<std::string> {
    std::string text = "ok " + std::string(words[0]) + ' ' + std::to_string(words.size()) + ' ' + (core ? std::to_string(*core) : "all");
    co_await sleep_for(1ms);
    co_return text;
  };
  world.machines.machine.on(0, [&] {
    EXPECT_TRUE(world.server.add_command("blast,BYTES[,COUNT][,CORE]", "Sends BYTES bytes.", blast).has_value());
    EXPECT_EQ(world.server.add_command("itr", "Taken.", blast).error().code, ErrorCode::invalid);
    EXPECT_EQ(world.server.add_command("rapl,X", "Taken.", blast).error().code, ErrorCode::invalid);
    EXPECT_TRUE(
        world.server.add_statistics("own", [](std::optional<unsigned> core, const Emit& emit) { emit("answer", core ? *core : 42); })
            .has_value());
  });
  Peer& peer = world.peer();
  EXPECT_EQ(peer.ask("blast,7"), "ok 7 1 all");
  EXPECT_EQ(peer.ask("blast,7,9,1"), "ok 7 2 1");
  EXPECT_EQ(peer.ask("blast"), "error: usage: blast,BYTES[,COUNT][,CORE]");
  EXPECT_EQ(peer.ask("help,blast"), "ok blast,BYTES[,COUNT][,CORE]: Sends BYTES bytes.");
  EXPECT_EQ(peer.ask("help,itr").find("(also rx_usecs)") == std::string::npos, false);
  EXPECT_NE(peer.ask("stats").find("own.answer=42"), std::string::npos);
  EXPECT_NE(peer.ask("stats,1").find("own.answer=1"), std::string::npos);
  EXPECT_NE(peer.ask("stats").find("control.lines="), std::string::npos);
}

std::uint64_t number_of(std::string_view name, const std::string& answer) {
  const std::string field = ' ' + std::string(name) + '=';
  const std::size_t at = answer.find(field);
  EXPECT_NE(at, std::string::npos) << name << " in " << answer;
  return at == std::string::npos ? 0 : std::strtoull(answer.c_str() + at + field.size(), nullptr, 10);
}

// The driver's own drops must be visible in addition to the stack's counters.
TEST_F(ControlClient, TheDriversCountersAreReportedForOneCoreAndForAll) {
  const std::uint64_t before = number_of("wire.sent", peer.ask("stats"));
  const std::uint64_t ones = number_of("wire.sent", peer.ask("stats,0")) + number_of("wire.sent", peer.ask("stats,1"));
  const std::uint64_t after = number_of("wire.sent", peer.ask("stats"));
  EXPECT_GT(before, 0U);
  EXPECT_TRUE(before <= ones && ones <= after) << before << ' ' << ones << ' ' << after;
  EXPECT_EQ(number_of("wire.sent", peer.ask("stats,2")), 0U) << "a core without a queue";
  EXPECT_EQ(number_of("wire.found_full", peer.ask("stats")), 0U);
  EXPECT_EQ(peer.ask("stats,1").find("wire.found_full"), std::string::npos) << "a counter of the card, not of a core";
  EXPECT_EQ(peer.ask("stats,3"), "error: there is no core '3' (0 to 2, or all)");
}

TEST_F(ControlClient, TheCardsOwnCountersAreReadOnTheCardsCore) {
  EXPECT_EQ(peer.ask("card"), "ok wire.own.visited=0; wire.own.queue=2; wire.own.reads=1");
  EXPECT_EQ(peer.ask("card,1"), "ok wire.own.visited=0; wire.own.queue=1; wire.own.reads=2");
  EXPECT_EQ(peer.ask("card,3"), "error: there is no core '3' (0 to 2, or all)");
  world.machines.server_card.set_gone(true);
  EXPECT_EQ(peer.ask("card"), "error: the card is gone");
}

// Experiments observe sleeping cores, so a report must not wake cores.
TEST_F(ControlClient, ReportsVisitNoCore) {
  // Received frames also count as remote calls (visits) of the connection's core. The other core has none, unless the network publishes
  // something to all cores, such as a new neighbour. Each neighbour is published once, so in at least one of several rounds of reports one
  // core has no visit.
  const auto visits = [] { return std::array{event_counters(0).remote_received, event_counters(1).remote_received}; };
  std::string all, one;
  bool alone = false;
  for (int look = 0; look < 10 && !alone; ++look) {
    const auto before = visits();
    all = peer.ask("stats");
    one = peer.ask("stats,1");
    for (const char* line : {"cores", "status", "policy", "boot", "rdtsc", "dmesg"}) EXPECT_TRUE(peer.ask(line).starts_with("ok")) << line;
    const auto after = visits();
    alone = after[0] == before[0] || after[1] == before[1];
  }
  EXPECT_TRUE(alone);
  EXPECT_EQ(all.find("net.frames_received=0;"), std::string::npos) << "the other cores' counters are included: " << all;
  EXPECT_NE(one.find("net.control_frames_sent="), std::string::npos) << one;
}

TEST_F(ControlClient, CoresAndStatusHaveTheFieldsThatToolsRead) {
  const std::string cores = peer.ask("cores");
  for (const char* part : {"ok 0 idle=", "; 1 idle=", " itr_us=", " poll_budget_us=", " pstate=0x",
                           " power_limit_mw=", " turbo=", " generation=", " interrupts=", " records=", " unwritten=", " rx_frames=",
                           " rx_bytes=", " tx_frames=", " tx_bytes=", " sleeps=", " asleep_ns=", " now_ns="}) {
    EXPECT_NE(cores.find(part), std::string::npos) << part << " in " << cores;
  }
  const std::string status = peer.ask("status");
  for (const char* part : {"ok application=observed; version=0.0.0; cores=3; uptime_s=", "; boot_id=", "; run=0; logging=off;",
                           "; generation=", "; clients=1;", "; control_core=none"}) {
    EXPECT_NE(status.find(part), std::string::npos) << part << " in " << status;
  }
  EXPECT_EQ(peer.ask("start,1s"), "ok run=1 time_ns=1000000000");
  EXPECT_NE(peer.ask("status").find("; run=1; logging=on;"), std::string::npos);
  EXPECT_EQ(peer.ask("start"), "error: a run is on (stop ends it)");
  EXPECT_EQ(peer.ask("clear"), "error: a run is on (stop ends it)");
  EXPECT_TRUE(peer.ask("stop").starts_with("ok run=1 lines="));
  EXPECT_EQ(peer.ask("stop"), "error: no run is on");
}

/// Replaces numbers and ids, because they differ between runs.
std::string without_numbers(std::string_view text) {
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t id = text.substr(at).find_first_not_of("0123456789abcdef");
    const std::size_t digits = text.substr(at).find_first_not_of("0123456789");
    const std::size_t skip = id != std::string_view::npos && id >= 16 ? id : std::min(digits, text.size() - at);
    if (skip > 0) result += '#';
    at += skip;
    if (skip == 0) result += text[at++];
  }
  return result;
}

// Text with any characters is reported in one line, in pieces that a client can join without a gap.
TEST_F(ControlClient, TheBootLogIsCompleteInPieces) {
  const auto from = boot_log::extent().end;
  std::string said;
  for (int i = 0; i < 600; ++i) said += "line " + std::to_string(i) + " \\n; \x1b\xc3 text=x\n";
  machine::console_write(said);
  std::string seen;
  unsigned answers = 0;
  for (std::uint64_t next = from, end = from + 1; next < end; ++answers) {
    const std::string answer = peer.ask("dmesg," + std::to_string(next));
    unsigned long long first = 0, after = 0, last = 0;
    int text = 0;
    ASSERT_EQ(std::sscanf(answer.c_str(), "ok first=%llu; next=%llu; end=%llu; text=%n", &first, &after, &last, &text), 3) << answer;
    ASSERT_EQ(first, next);
    ASSERT_TRUE(answer.ends_with("\\n")) << answer;
    std::string piece = answer.substr(static_cast<std::size_t>(text));
    EXPECT_EQ(piece.find(';'), piece.npos);
    const std::pair<const char*, const char*> escapes[] = {
        {"\\\\n\\x3b", "\x01"}, {"\\n", "\n"}, {"\\x1b\\xc3", "\x1b\xc3"}, {"\x01", "\\n;"}};
    for (const auto& [escape, letters] : escapes) {
      for (auto at = piece.find(escape); at != piece.npos; at = piece.find(escape, at + 1)) piece.replace(at, std::strlen(escape), letters);
    }
    EXPECT_EQ(piece.size(), after - first);
    seen += piece;
    next = after;
    end = last;
  }
  EXPECT_EQ(seen.substr(0, said.size()), said);
  EXPECT_GE(answers, 2U);
  for (const char* line : {"dmesg,-1", "dmesg,x", "dmesg,", "dmesg,1,2", "last_panic,0"})
    EXPECT_TRUE(peer.ask(line).starts_with("error: ")) << line;
}

// The examples in docs/control.md show real answers, except for numbers.
TEST_F(ControlClient, TheDocumentsExamplesAreTrue) {
  std::ifstream file(NEAP_CONTROL_DOCUMENT);
  unsigned examples = 0;
  std::string asked;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("> ")) asked = line.substr(2);
    if (!line.starts_with("< ")) continue;
    Peer& asker = asked.starts_with("get") ? world.peer() : peer;
    EXPECT_EQ(without_numbers(asker.ask(asked)), without_numbers(line.substr(2))) << asked;
    ++examples;
  }
  EXPECT_GE(examples, built_in_commands().size() - 2);  // all except the commands that end the machine
}

}  // namespace
}  // namespace neap::observe::testing
