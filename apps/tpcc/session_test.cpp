// SPDX-License-Identifier: BSL-1.0
#include "apps/tpcc/session.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "apps/tpcc/test_peer.hpp"
#include "kernel/events.hpp"
#include "tests/host/host_machine.hpp"

namespace neap::tpcc {
namespace {

using test::Peer;
using test::Server;

constexpr unsigned unlimited = 1'000'000;

std::string value(unsigned number, std::string_view key = "k") {
  const std::string text = std::to_string(number);
  return "VALUE " + std::string(key) + " 0 " + std::to_string(text.size()) + "\r\n" + text + "\r\n";
}
std::string repeated(std::string_view text, unsigned count) {
  std::string all;
  for (unsigned i = 0; i < count; ++i) all += text;
  return all;
}

TEST(Session, AGetRunsOneTransactionForEachKey) {
  Server server;
  Peer peer(server);
  EXPECT_EQ(peer.ask("get k\r\n"), value(1) + "END\r\n");
  EXPECT_EQ(peer.ask("get a b\r\n"), value(2, "a") + value(3, "b") + "END\r\n");
  EXPECT_EQ(peer.ask("gets  k \r\n"), "VALUE k 0 1 0\r\n4\r\nEND\r\n");
  EXPECT_EQ(peer.ask("get k\n"), value(5) + "END\r\n");
  EXPECT_EQ(server.statistics().requests.value(), 5U);
  EXPECT_EQ(server.statistics().transactions[1].committed.value(), 1U);
}

TEST(Session, ALineMayArriveInAnyPieces) {
  Server server;
  Peer peer(server);
  const std::string requests = "get a bb ccc\r\nset k 0 0 5\r\nab\r\nc\r\nversion\r\nget d\r\n";
  const std::string replies =
      value(1, "a") + value(2, "bb") + value(3, "ccc") + "END\r\nSTORED\r\nVERSION 1.6.0-neap-tpcc\r\n" + value(4, "d") + "END\r\n";
  EXPECT_EQ(peer.ask(requests), replies);
  for (std::size_t cut = 1; cut < requests.size(); ++cut) {
    Server other;
    Peer split(other);
    std::string text = split.ask(requests.substr(0, cut));
    text += split.ask(requests.substr(cut));
    EXPECT_EQ(text, replies) << cut;
  }
  Server other;
  Peer slow(other);
  std::string text;
  for (const char letter : requests) text += slow.ask({&letter, 1});
  EXPECT_EQ(text, replies);
}

TEST(Session, MalformedCommandsAreRefusedWithoutATransaction) {
  const std::string long_key(key_bytes_max + 1, 'k');
  const std::pair<std::string, std::string_view> cases[] = {
      {"", "ERROR\r\n"},
      {"nonsense", "ERROR\r\n"},
      {"get", "ERROR\r\n"},
      {"get good " + long_key, "CLIENT_ERROR bad command line format\r\n"},
      {std::string("get a\tb"), "CLIENT_ERROR bad command line format\r\n"},
      {std::string("get \0", 5), "CLIENT_ERROR bad command line format\r\n"},
      {"GET k", "ERROR\r\n"},
      {"set k 0 0", "ERROR\r\n"},
      {"set k 0 0 -1", "CLIENT_ERROR bad data chunk\r\n"},
      {"set k 0 0 99999999999999999999", "CLIENT_ERROR bad command line format\r\n"},
      {"set k x 0 1", "CLIENT_ERROR bad command line format\r\n"},
      {"set k 0 0 1 noreply more", "ERROR\r\n"},
      {"verbosity", "ERROR\r\n"},
      {"verbosity x", "CLIENT_ERROR bad command line format\r\n"},
      {"stats nothing", "ERROR\r\n"},
      {"stats tpcc consistency", "ERROR\r\n"},  // stops all transactions, so it is a command of control only
      {"quit now", "ERROR\r\n"},
  };
  Server server;
  Peer peer(server);
  for (const auto& [line, answer] : cases) EXPECT_EQ(peer.ask(line + "\r\n"), answer) << line;
  EXPECT_EQ(server.terminal->runs, 0U);
  EXPECT_EQ(server.statistics().errors.value(), std::size(cases));
  EXPECT_EQ(peer.ask("verbosity 1\r\nverbosity 1 noreply\r\nget k\r\n"), "OK\r\n" + value(1) + "END\r\n");
}

// Without an end the line could be of any length, so its rest cannot be told from commands.
TEST(Session, ALineWithoutAnEndIsBounded) {
  for (const std::size_t piece : {std::size_t{100}, line_bytes_max + 2, 2 * line_bytes_max}) {
    Server server;
    Peer peer(server);
    std::string text;
    for (std::size_t sent = 0; sent < 2 * line_bytes_max && !peer.connection.closed; sent += piece)
      text += peer.ask(std::string(piece, 'x'));
    EXPECT_EQ(text, "CLIENT_ERROR line too long\r\n");
    EXPECT_TRUE(peer.connection.closed);
  }
  Server server;
  Peer peer(server);
  const std::string longest = "get " + repeated("k ", (line_bytes_max - 4) / 2);
  ASSERT_EQ(longest.size(), line_bytes_max);
  peer.send(longest + "\r\n");
  EXPECT_FALSE(peer.connection.closed);
}

TEST(Session, ASetIsIgnoredAndItsValueIsNoCommand) {
  Server server;
  Peer peer(server);
  EXPECT_EQ(peer.ask("set k 0 0 7\r\nget k\r\n\r\n"), "STORED\r\n");
  EXPECT_EQ(peer.ask("set k 0 0 0\r\n\r\n"), "STORED\r\n");
  EXPECT_EQ(peer.ask("set k 0 0 3 noreply\r\nabc\r\n"), "");
  EXPECT_EQ(peer.ask("set k 0 0 1\r\nabc\r\n"), "CLIENT_ERROR bad data chunk\r\nERROR\r\n");
  const std::string large = std::to_string(value_bytes_max + 1);
  EXPECT_EQ(peer.ask("set k 0 0 " + large + "\r\n"), "");
  for (unsigned i = 0; i < 1024; ++i) EXPECT_EQ(peer.ask(std::string(1024, 'v')), "");
  EXPECT_EQ(peer.ask("v\r\nversion\r\n"), "SERVER_ERROR object too large for cache\r\nVERSION 1.6.0-neap-tpcc\r\n");
  EXPECT_EQ(server.terminal->runs, 0U);
}

TEST(Session, AFailedTransactionEndsItsGetWithAnError) {
  for (const auto& [failure, answer] :
       {std::pair{Ending::conflict, "SERVER_ERROR conflict\r\n"}, std::pair{Ending::no_memory, "SERVER_ERROR out of memory\r\n"}}) {
    Server server;
    server.terminal->fails_at = 2;
    server.terminal->failure = failure;
    Peer peer(server);
    EXPECT_EQ(peer.ask("get a b c\r\nget d\r\n"), value(1, "a") + answer + value(3, "d") + "END\r\n");
  }
  Server server;
  server.terminal->fails_at = 1;
  server.terminal->failure = Ending::rolled_back;
  Peer peer(server);
  EXPECT_EQ(peer.ask("get a\r\n"), value(1, "a") + "END\r\n") << "a rolled-back new order is a normal answer";
  EXPECT_EQ(server.statistics().transactions[1].rolled_back.value(), 1U);
}

TEST(Session, PipelinedRequestsAreAnsweredTogether) {
  Server server({.requests_per_event = unlimited});
  Peer peer(server);
  peer.send(repeated("get k\r\n", 8));
  EXPECT_EQ(peer.connection.written.pieces(), 1U);
  std::string expected;
  for (unsigned i = 1; i <= 8; ++i) expected += value(i) + "END\r\n";
  EXPECT_EQ(peer.read_all(), expected);
}

TEST(Session, AClientThatDoesNotReadIsNotServedOn) {
  Server server({.requests_per_event = unlimited});
  server.terminal->text_bytes = answer_bytes_max;
  Peer peer(server);
  const std::string requests = repeated("get k\r\n", 1000);
  for (unsigned i = 0; i < 10; ++i) peer.send(requests);
  EXPECT_LE(peer.connection.unacknowledged(), Session::in_flight_bytes_max + CoreState::output_bytes);
  EXPECT_LT(server.terminal->runs, 100U);
  EXPECT_GT(server.statistics().output_waits.value(), 0U);
  std::string text = peer.read_all();
  EXPECT_EQ(server.terminal->runs, 10'000U);
  EXPECT_TRUE(text.ends_with("END\r\n"));
  EXPECT_FALSE(peer.connection.aborted);
}

TEST(Session, AQuitOrAnEndAfterRequestsClosesBehindTheReplies) {
  Server server;
  Peer quits(server);
  EXPECT_EQ(quits.ask("get k\r\nquit\r\nget k\r\n"), value(1) + "END\r\n");
  EXPECT_TRUE(quits.connection.closed);
  Peer ends(server);
  ends.send("get k\r\nget k");
  ends.handler->peer_closed();
  EXPECT_EQ(ends.read_all(), value(2) + "END\r\n");
  EXPECT_TRUE(ends.connection.closed);
  EXPECT_EQ(server.terminal->runs, 2U);
}

TEST(Session, AConnectionOverTheLimitIsRefused) {
  Server server({.connections_max = 1});
  {
    Peer first(server);
    Peer second(server);
    EXPECT_TRUE(second.connection.closed);
    EXPECT_EQ(second.connection.acknowledge(), "ERROR Too many open connections\r\n");
    EXPECT_EQ(first.ask("get k\r\n"), value(1) + "END\r\n");
    EXPECT_EQ(server.service.connections(), 1U);
  }
  EXPECT_EQ(server.service.connections(), 0U);
  EXPECT_EQ(server.statistics().connections_refused.value(), 1U);
  Peer third(server);
  EXPECT_FALSE(third.connection.closed);
}

TEST(Session, StatisticsHaveAllCountersOnce) {
  Server server;
  Peer peer(server);
  (void)peer.ask("get a b\r\n");
  const std::string text = peer.ask("stats\r\n");
  for (const std::string_view line : {"STAT cmd_get 2\r\n", "STAT payment.committed 1\r\n", "STAT order_status.committed 1\r\n",
                                      "STAT delivery.retries 0\r\n", "STAT connections.open 1\r\n"}) {
    EXPECT_NE(text.find(line), text.npos) << line << text;
  }
  EXPECT_TRUE(text.ends_with("END\r\n"));
}

struct OnCore {
  OnCore() {
    machine.on(0, [this] {
      server = std::make_unique<Server>();
      peer = std::make_unique<Peer>(*server);
    });
  }
  ~OnCore() {
    machine.on(0, [this] {
      peer.reset();
      server.reset();
    });
  }
  std::string ask(std::string_view request) {
    return machine.value_on(0, [&] { return peer->ask(request); });
  }
  std::string read(std::size_t bytes) {
    std::string text;
    EXPECT_TRUE(host::HostMachine::wait_until([&] {
      text += machine.value_on(0, [&] { return peer->read_all(); });
      return text.size() >= bytes;
    }));
    return text;
  }
  host::HostMachine machine{1};
  std::unique_ptr<Server> server;
  std::unique_ptr<Peer> peer;
};

// The core that is in the way may have no CPU for a while. This core MUST NOT wait for it within an event.
TEST(Session, APostponedTransactionIsTriedAgainInALaterEvent) {
  OnCore core;
  core.machine.on(0, [&] { core.server->terminal->postponed = 3; });
  EXPECT_EQ(core.ask("get a b\r\nget c\r\n"), "");
  const std::string expected = value(1, "a") + value(2, "b") + "END\r\n" + value(3, "c") + "END\r\n";
  EXPECT_EQ(core.read(expected.size()), expected);
  EXPECT_EQ(core.server->statistics().postponements.value(), 3U);
  EXPECT_EQ(core.server->statistics().requests.value(), 3U) << "an attempt is no request";
}

TEST(Session, AClientMayLeaveWhileItsTransactionIsPostponed) {
  OnCore core;
  core.machine.on(0, [&] { core.server->terminal->postponed = 1; });
  EXPECT_EQ(core.ask("get a\r\n"), "");
  core.machine.on(0, [&] {
    core.peer = std::make_unique<Peer>(*core.server);
    EXPECT_EQ(core.server->service.connections(), 1U);
  });
  EXPECT_EQ(core.ask("get b\r\n"), value(1, "b") + "END\r\n");
}

TEST(Session, NoTransactionRunsDuringACheckOfConsistency) {
  OnCore core;
  core.machine.on(0, [&] { core.server->service.core(0).paused = true; });
  EXPECT_EQ(core.ask("version\r\nget a\r\n"), "VERSION 1.6.0-neap-tpcc\r\n");
  EXPECT_EQ(core.server->terminal->runs, 0U);
  core.machine.on(0, [&] { core.server->service.core(0).paused = false; });
  const std::string expected = value(1, "a") + "END\r\n";
  EXPECT_EQ(core.read(expected.size()), expected);
}

TEST(Session, ASilentConnectionIsReset) {
  Server server;
  Peer peer(server);
  static_cast<Session&>(*peer.handler).end_idle();
  EXPECT_TRUE(peer.connection.aborted);
  EXPECT_EQ(server.statistics().connections_idle_closed.value(), 1U);
  peer.send("get k\r\n");
  EXPECT_EQ(server.terminal->runs, 0U);
}

}  // namespace
}  // namespace neap::tpcc
