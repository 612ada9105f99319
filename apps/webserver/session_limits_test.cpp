// SPDX-License-Identifier: BSL-1.0
// A session with a simulated connection: ends in every state, back-pressure, limits, and time-outs.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apps/webserver/session.hpp"
#include "apps/webserver/test_session.hpp"

namespace neap::webserver {
namespace {

using namespace test;
using Written = Exchange::Written;

// --- Ends ---
TEST_F(SessionTest, ClientClosesItsSide) {
  peer.end();
  EXPECT_TRUE(peer.connection.closed);
  std::optional<ExchangeReference> kept;
  server.application.on_request = [&](Exchange& exchange) { kept.emplace(exchange); };
  Peer other(server);
  other.send(get + get);
  other.end();
  EXPECT_FALSE(other.closed());
  (void)(*kept)->respond({}, bytes_of("hello"));
  EXPECT_EQ(other.read_all(), hello);
  (void)(*kept)->respond({}, bytes_of("hello"));
  EXPECT_EQ(other.read_all(), hello);
  EXPECT_TRUE(other.connection.closed);
  EXPECT_EQ(count().requests_completed.value(), 2U);
}

TEST_F(SessionTest, ClientClosesItsSideWithinARequest) {
  peer.send("GET / HT");
  peer.end();
  EXPECT_EQ(peer.read_all(), "HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
  server.application.on_request = [](Exchange& exchange) { exchange.read_body(); };
  Peer other(server);
  other.send(post("abcdef").substr(0, post("abcdef").size() - 3));
  other.end();
  EXPECT_EQ(server.application.logged(), "error 400; request /p; body abc; aborted; error 400");
  EXPECT_TRUE(other.connection.closed);
  Peer third(server);
  third.send("\r\n");
  third.end();
  EXPECT_EQ(third.read_all(), "");
  EXPECT_TRUE(third.connection.closed);
}

TEST_F(SessionTest, ExchangesOutliveTheirConnection) {
  std::optional<ExchangeReference> kept;
  server.application.on_request = [&](Exchange& exchange) { kept.emplace(exchange); };
  peer.send(get_of("/kept"));
  EXPECT_EQ((*kept)->remote().port, 1);
  EXPECT_EQ((*kept)->local().port, 80);
  peer.leave();
  EXPECT_EQ(server.application.logged(), "request /kept; aborted");
  EXPECT_FALSE((*kept)->connected());
  EXPECT_EQ((*kept)->target(), "/kept");
  EXPECT_EQ((*kept)->respond({}), Written::refused);
  EXPECT_EQ((*kept)->respond({}, net::Buffer()), Written::refused);
  EXPECT_EQ((*kept)->start({}), Written::refused);
  EXPECT_EQ((*kept)->write(bytes_of("x")), Written::refused);
  EXPECT_EQ((*kept)->end(), Written::refused);
  EXPECT_EQ((*kept)->end_with_trailers(""), Written::refused);
  EXPECT_EQ((*kept)->inform(103, ""), Written::refused);
  EXPECT_EQ((*kept)->bytes_in_flight(), 0U);
  (*kept)->send_continue();
  (*kept)->read_body();
  (*kept)->pause_body();
  (*kept)->destroy();
  EXPECT_EQ(count().exchanges.value(), 1U);
  kept.reset();
  EXPECT_EQ(count().exchanges.value(), 0U);
}

TEST_F(SessionTest, DestroyInEachCall) {
  const auto destroy = [](Exchange& exchange) { exchange.destroy(); };
  server.application.on_request = destroy;
  peer.send(get + get);
  EXPECT_TRUE(peer.connection.aborted);
  EXPECT_EQ(server.application.logged(), "request /; aborted");

  server.application.on_request = [](Exchange& exchange) { exchange.read_body(); };
  server.application.on_body = [](Exchange& exchange, const std::string&) { exchange.destroy(); };
  Peer body(server);
  body.send(post("abc") + get);
  EXPECT_TRUE(body.connection.aborted);

  server.application.on_body = nullptr;
  server.application.on_body_end = destroy;
  Peer body_end(server);
  body_end.send(post("abc") + get);
  EXPECT_TRUE(body_end.connection.aborted);

  server.application.on_request = [](Exchange& exchange) {
    exchange.report_sent();
    (void)exchange.respond({}, bytes_of("hello"));
  };
  server.application.on_sent = destroy;  // too late: nothing happens
  server.application.on_closed = [](Exchange& exchange, bool) {
    exchange.destroy();
    EXPECT_EQ(exchange.respond({}), Written::refused);
  };
  Peer complete(server);
  EXPECT_EQ(complete.ask(get), hello);
  EXPECT_FALSE(complete.closed());
  EXPECT_EQ(count().exchanges.value(), 0U);
  EXPECT_EQ(count().connections_aborted.value(), 3U);
}

// --- Back-pressure ---
TEST_F(SessionTest, SlowReadersAreStopped) {
  const std::string body(50'000, 'b');
  server.application.on_request = [&](Exchange& exchange) { (void)exchange.respond({}, bytes_of(body)); };
  std::string requests;
  for (int number = 0; number < 30; ++number) requests += get;
  peer.send(requests);
  EXPECT_LT(server.core.output_bytes(), 200'000U);
  EXPECT_LT(count().requests.value(), 5U);
  const std::string answers = peer.read_all();
  EXPECT_EQ(count().requests.value(), 30U);
  EXPECT_EQ(answers.size(), 30 * (head("200 OK", "Content-Length: 50000\r\n").size() + body.size()));
  EXPECT_EQ(server.core.output_bytes(), 0U);
}

TEST_F(SessionTest, ShortResponsesToASlowReaderAreBounded) {
  for (int number = 0; number < 5000; ++number) peer.send(get);
  EXPECT_LT(count().requests.value(), 1000U);
  EXPECT_LT(peer.connection.unacknowledged(), 100'000U);
  std::string answers = peer.read_all();
  EXPECT_EQ(count().requests.value(), 5000U);
  EXPECT_EQ(answers.size(), 5000 * hello.size());
}

TEST_F(SessionTest, WritersWaitAndAreToldAboutRoom) {
  std::size_t written = 0;
  std::optional<ExchangeReference> kept;
  const std::string piece(10'000, 'p');
  const auto write = [&](Exchange& exchange) {
    while (written < 1'000'000) {
      written += piece.size();
      const Written result = exchange.write(bytes_of(piece));
      ASSERT_NE(result, Written::refused);
      if (result == Written::wait) return;
    }
    (void)exchange.end();
  };
  server.application.on_request = [&](Exchange& exchange) {
    (void)exchange.start({.length = 1'000'000});
    write(exchange);
  };
  server.application.on_writable = write;
  peer.send(get);
  EXPECT_LT(written, 100'000U);
  EXPECT_EQ(peer.read(20'000).size(), 20'000U);
  EXPECT_LT(written, 100'000U);
  EXPECT_EQ(peer.read(30'000).size(), 30'000U);  // below the low watermark, before all is acknowledged
  EXPECT_GT(written, 100'000U);
  EXPECT_LT(written, 180'000U);
  EXPECT_EQ(50'000 + peer.read_all().size(), head("200 OK", "Content-Length: 1000000\r\n").size() + 1'000'000U);
  EXPECT_EQ(count().requests_completed.value(), 1U);
  EXPECT_EQ(server.core.output_bytes(), 0U);
}

TEST_F(SessionTest, TinySendSpaceStillDeliversEverything) {
  peer.connection.space = 140'000;
  const std::string body(700'000, 'b');
  server.application.on_request = [&](Exchange& exchange) { (void)exchange.respond({}, bytes_of(body)); };
  const std::string expected = head("200 OK", "Content-Length: 700000\r\n", false) + body;
  EXPECT_EQ(peer.ask(get_close), expected);
  EXPECT_TRUE(peer.connection.closed);
  Peer other(server);
  other.connection.space = 140'000;
  server.application.on_request = [&](Exchange& exchange) { (void)exchange.respond({}, net::Buffer::copy(bytes_of(body))); };
  EXPECT_EQ(other.ask(get_close), expected);
}

TEST(Session, OutputOfAllClientsIsBounded) {
  TestServer server({}, {.output_bytes_max = 100'000});
  const std::string piece(60'000, 'p');
  std::vector<ExchangeReference> kept;
  server.application.on_request = [&](Exchange& exchange) {
    (void)exchange.start({});
    kept.emplace_back(exchange);
  };
  {
    Peer one(server), two(server);
    one.send(get);
    two.send(get);
    EXPECT_EQ(kept[0]->write(bytes_of(piece)), Written::accepted);
    EXPECT_EQ(kept[1]->write(bytes_of(piece)), Written::wait);
    EXPECT_EQ(server.core.statistics.output_waits.value(), 1U);
    EXPECT_EQ(kept[0]->write(bytes_of(piece)), Written::wait);
    EXPECT_EQ(kept[1]->write(bytes_of(piece)), Written::refused);  // this application ignores that it should wait
    EXPECT_TRUE(two.connection.aborted);
    EXPECT_FALSE(one.closed());
    EXPECT_EQ(server.core.statistics.output_refused.value(), 1U);
    two.settle();
    EXPECT_GT(one.read_all().size(), 120'000U);
    EXPECT_EQ(server.core.output_bytes(), 0U);
  }
  kept.clear();
}

// The scratch memory is shared by all sessions of a core. A session that loses it sends at once.
TEST(Session, GatheredOutputIsSentWhenAnotherSessionGathers) {
  TestServer server;
  std::vector<ExchangeReference> kept;
  server.application.on_request = [&](Exchange& exchange) { kept.emplace_back(exchange); };
  {
    Peer one(server), two(server);
    one.send(get);
    two.send(get);
    const std::string piece(1000, 'p');
    (void)kept[0]->start({});
    (void)kept[0]->write(bytes_of(piece));
    (void)kept[0]->write(bytes_of(piece));
    EXPECT_EQ(one.connection.unacknowledged(), 0U);
    (void)kept[1]->start({});
    EXPECT_GT(one.connection.unacknowledged(), 2000U);
    EXPECT_EQ(two.connection.unacknowledged(), 0U);
    server.end_event();
    EXPECT_GT(two.connection.unacknowledged(), 0U);
  }
  kept.clear();
}

// --- Limits ---
TEST(Session, ConnectionsAreLimited) {
  TestServer server({.connections_max = 2});
  Peer one(server), two(server);
  {
    Peer three(server);
    EXPECT_EQ(three.read_all(), "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
    EXPECT_TRUE(three.connection.closed);
    three.gone = true;
  }
  EXPECT_EQ(server.server.connections(), 2U);
  two.leave();
  Peer four(server);
  EXPECT_EQ(four.ask(get), hello);
  EXPECT_EQ(server.core.statistics.connections_refused.value(), 1U);
}

TEST(Session, ConnectionsOfAPeerAreLimited) {
  TestServer server({.peer_connections_max = 1});
  Peer one(server);
  Peer two(server);
  EXPECT_NE(two.read_all().find("503"), std::string::npos);
  one.leave();
  Peer three(server);
  EXPECT_EQ(three.ask(get), hello);
  EXPECT_EQ(server.core.statistics.peer_connections_refused.value(), 1U);
}

TEST(Session, RequestsOfAConnectionAreLimited) {
  TestServer server({.requests_per_connection_max = 2});
  Peer peer(server);
  EXPECT_NE(peer.ask(get).find("Keep-Alive: timeout=5, max=2\r\n"), std::string::npos);
  EXPECT_EQ(peer.ask(get + get), hello_close);
  EXPECT_TRUE(peer.connection.closed);
}

TEST(Session, ManyPipelinedRequestsYieldToOthers) {
  TestServer server({.requests_per_event = 4});
  Peer one(server), two(server);
  std::string many;
  for (int number = 0; number < 10; ++number) many += get;
  one.handler->received(net::Buffer::copy(bytes_of(many)));
  EXPECT_EQ(server.core.statistics.requests.value(), 4U);
  two.handler->received(net::Buffer::copy(bytes_of(get)));
  EXPECT_EQ(two.connection.acknowledge(), hello);
  EXPECT_EQ(one.read_all().size(), 10 * hello.size());
}

TEST(Session, DrainingServersCloseTheirConnections) {
  TestServer server;
  std::optional<ExchangeReference> kept;
  Peer idle(server), busy(server), late(server);
  server.application.on_request = [&](Exchange& exchange) { kept.emplace(exchange); };
  busy.send(get);
  server.server.drain();
  EXPECT_TRUE(idle.connection.closed);
  EXPECT_TRUE(late.connection.closed);
  EXPECT_FALSE(busy.closed());
  (void)(*kept)->respond({}, bytes_of("hello"));
  EXPECT_EQ(busy.read_all(), hello_close);
  EXPECT_TRUE(busy.connection.closed);
  Peer other(server);
  other.send(get);
  server.server.close_connections(true);
  EXPECT_TRUE(other.connection.aborted);
  EXPECT_EQ(server.application.log.back(), "aborted");
  kept.reset();
}

// --- Time-outs ---
TEST_F(SessionTest, IdleConnectionsAreClosed) {
  server.wait_s(60);
  EXPECT_FALSE(peer.closed());
  server.wait_s(2);
  EXPECT_TRUE(peer.connection.closed);
  EXPECT_EQ(count().connections_idle_closed.value(), 1U);
  Peer kept(server);
  EXPECT_EQ(kept.ask(get), hello);
  server.wait_s(5);
  EXPECT_FALSE(kept.closed());
  EXPECT_EQ(kept.ask(get), hello);
  server.wait_s(5);
  kept.send("\r\n");  // an empty line is no request
  server.wait_s(5);
  EXPECT_FALSE(kept.closed());
  server.wait_s(1);
  EXPECT_TRUE(kept.connection.closed);
}

TEST_F(SessionTest, SlowHeadsGet408) {
  peer.send("GET / HTTP/1.1\r\n");
  for (int second = 0; second < 60; ++second) {
    server.wait_s(1);
    peer.send("A: b\r\n");
  }
  EXPECT_FALSE(peer.closed());
  server.wait_s(2);
  EXPECT_EQ(peer.read_all(), "HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
  EXPECT_TRUE(peer.connection.closed);
  EXPECT_EQ(count().head_timeouts.value(), 1U);
  EXPECT_EQ(count().refused_408.value(), 1U);
}

TEST_F(SessionTest, SlowBodiesGet408) {
  server.application.on_request = [](Exchange& exchange) { exchange.read_body(); };
  peer.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nabc");
  server.wait_s(300);
  EXPECT_FALSE(peer.closed());
  server.wait_s(2);
  EXPECT_EQ(peer.read_all(), "HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
  EXPECT_EQ(count().request_timeouts.value(), 1U);
  EXPECT_EQ(server.application.logged(), "request /; body abc; aborted; error 408");
}

TEST_F(SessionTest, LateResponsesHaveNoTimeout) {
  std::optional<ExchangeReference> kept;
  server.application.on_request = [&](Exchange& exchange) { kept.emplace(exchange); };
  peer.send(get);
  server.wait_s(1000);
  EXPECT_FALSE(peer.closed());
  (void)(*kept)->respond({}, bytes_of("hello"));
  EXPECT_EQ(peer.read_all(), hello);
}

TEST_F(SessionTest, ClientsThatReadNothingAreReset) {
  const std::string body(100'000, 'b');
  server.application.on_request = [&](Exchange& exchange) { (void)exchange.respond({}, bytes_of(body)); };
  peer.send(get);
  for (int round = 0; round < 5; ++round) {
    server.wait_s(100);
    EXPECT_FALSE(peer.closed());
    (void)peer.read(1000);
  }
  server.wait_s(123);
  EXPECT_TRUE(peer.connection.aborted);
  EXPECT_EQ(count().write_timeouts.value(), 1U);
}

// A connection that begins long after the machine, and whose first response is in flight at the first check.
TEST_F(SessionTest, ANewConnectionsTimeForReadingBeginsWithIt) {
  server.wait_s(1000);
  Peer late(server);
  late.send(get);
  server.wait_s(119);
  EXPECT_FALSE(late.closed());
  EXPECT_EQ(late.read_all(), hello);
  EXPECT_EQ(count().write_timeouts.value(), 0U);
}

TEST_F(SessionTest, TimeoutsCanBeChangedAndTurnedOff) {
  server.server.limits.keep_alive_timeout_ms = 0;
  server.server.limits.first_byte_timeout_ms = 0;
  server.server.limits_changed();
  server.wait_s(1000);
  EXPECT_EQ(peer.ask(get),
            "HTTP/1.1 200 OK\r\n" + std::string(test::date_line) + "Connection: keep-alive\r\nContent-Length: 5\r\n\r\nhello");
  server.wait_s(1000);
  EXPECT_FALSE(peer.closed());
  server.server.limits.keep_alive_timeout_ms = 1500;
  server.server.limits_changed();
  EXPECT_NE(peer.ask(get).find("Keep-Alive: timeout=1\r\n"), std::string::npos);
  server.wait_s(3);
  EXPECT_TRUE(peer.connection.closed);
}

}  // namespace
}  // namespace neap::webserver
