// SPDX-License-Identifier: BSL-1.0
// A session with a simulated connection: the order of requests and responses, bodies, and refused requests.
#include "apps/webserver/session.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apps/webserver/test_session.hpp"

namespace neap::webserver {
namespace {

using namespace test;
using Written = Exchange::Written;

// --- Requests and responses ---
TEST_F(SessionTest, AnswersAndKeepsTheConnection) {
  EXPECT_EQ(peer.ask(get), hello);
  EXPECT_EQ(peer.ask(get), hello);
  EXPECT_FALSE(peer.closed());
  EXPECT_EQ(server.application.logged(), "request /; closed; request /; closed");
  EXPECT_EQ(count().requests_completed.value(), 2U);
  EXPECT_EQ(count().exchanges.value(), 0U);
  EXPECT_EQ(count().bytes_sent.value(), 2 * hello.size());
  EXPECT_EQ(count().bytes_received.value(), 2 * get.size());
  EXPECT_EQ(peer.connection.frames, 2U);  // written into the frame
}

TEST_F(SessionTest, RequestsInPiecesOfAnySizeAreAnswered) {
  for (std::size_t bytes = 1; bytes < get.size(); ++bytes) {
    for (std::size_t at = 0; at < get.size(); at += bytes) peer.send(std::string_view(get).substr(at, bytes));
    EXPECT_EQ(peer.read_all(), hello);
  }
  const std::string twice = get + get;
  EXPECT_EQ(peer.ask(twice.substr(0, get.size() + 5)), hello);
  EXPECT_EQ(peer.ask(twice.substr(get.size() + 5)), hello);
}

TEST_F(SessionTest, PipelinedRequestsAreAnsweredInOrder) {
  server.application.on_request = [](Exchange& exchange) { (void)exchange.respond({}, bytes_of(exchange.target())); };
  std::string requests, expected;
  for (int number = 0; number < 200; ++number) {
    const std::string target = "/" + std::to_string(number);
    requests += get_of(target);
    expected += head("200 OK", "Content-Length: " + std::to_string(target.size()) + "\r\n") + target;
  }
  EXPECT_EQ(peer.ask(requests), expected);
  EXPECT_GT(count().yields.value(), 4U);
}

TEST_F(SessionTest, PipelinedRequestsWaitForALateResponse) {
  std::optional<ExchangeReference> first;
  server.application.on_request = [&](Exchange& exchange) {
    if (!first) {
      first.emplace(exchange);
    } else {
      (void)exchange.respond({}, bytes_of("second"));
    }
  };
  EXPECT_EQ(peer.ask(get_of("/1") + get_of("/2")), "");
  EXPECT_EQ(server.application.logged(), "request /1");
  EXPECT_EQ((*first)->respond({}, bytes_of("first")), Written::accepted);
  EXPECT_FALSE((*first)->connected());
  const std::string both = peer.read_all();
  EXPECT_LT(both.find("first"), both.find("second"));
  EXPECT_EQ(server.application.logged(), "request /1; closed; request /2; closed");
  EXPECT_EQ((*first)->respond({}, bytes_of("again")), Written::refused);
  EXPECT_EQ((*first)->target(), "/1");
}

TEST_F(SessionTest, ConnectionCloseIsAnsweredAndClosed) {
  EXPECT_EQ(peer.ask(get_close + get), hello_close);
  EXPECT_TRUE(peer.connection.closed);
  EXPECT_EQ(count().requests.value(), 1U);
}

TEST_F(SessionTest, Http10) {
  EXPECT_EQ(peer.ask("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"), hello);
  EXPECT_EQ(peer.ask("GET / HTTP/1.0\r\n\r\n"), hello_close);
  EXPECT_TRUE(peer.connection.closed);

  Peer other(server);
  server.application.on_request = [](Exchange& exchange) {  // the end of the connection ends a body of unknown length
    EXPECT_EQ(exchange.minor_version(), 0U);
    (void)exchange.start({});
    (void)exchange.write(bytes_of("abc"));
    (void)exchange.end();
  };
  EXPECT_EQ(other.ask("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"), head("200 OK", "", false) + "abc");
  EXPECT_TRUE(other.connection.closed);
}

TEST_F(SessionTest, ApplicationClosesTheConnection) {
  server.application.on_request = [](Exchange& exchange) {
    exchange.set_close();
    (void)exchange.respond({}, bytes_of("hello"));
  };
  EXPECT_EQ(peer.ask(get), hello_close);
  EXPECT_TRUE(peer.connection.closed);
  Peer other(server);
  server.application.on_request = [](Exchange& exchange) {
    (void)exchange.respond({.lines = "Connection: close\r\n", .contained = {.connection = true, .connection_close = true}},
                           bytes_of("hello"));
  };
  EXPECT_EQ(other.ask(get), "HTTP/1.1 200 OK\r\nConnection: close\r\n" + std::string(test::date_line) + "Content-Length: 5\r\n\r\nhello");
  EXPECT_TRUE(other.connection.closed);
}

TEST_F(SessionTest, HeadsHaveTheFieldsThatTheApplicationLeavesOut) {
  const auto answer = [&](const http::ResponseHead& response, std::string_view body) {
    server.application.on_request = [&](Exchange& exchange) { (void)exchange.respond(response, bytes_of(body)); };
    return peer.ask(get);
  };
  EXPECT_EQ(answer({.status = 404, .lines = "A: b\r\n"}, "x"),
            "HTTP/1.1 404 Not Found\r\nA: b\r\n" + head("", "Content-Length: 1\r\n").substr(11) + "x");
  EXPECT_EQ(answer({.status = 299}, ""), "HTTP/1.1 299 unknown\r\n" + head("", "Content-Length: 0\r\n").substr(11));
  EXPECT_EQ(answer({.status = 200, .reason = "Fine"}, ""), "HTTP/1.1 200 Fine\r\n" + head("", "Content-Length: 0\r\n").substr(11));
  EXPECT_EQ(answer({.date = false}, ""), "HTTP/1.1 200 OK\r\n" + std::string(test::kept_lines) + "Content-Length: 0\r\n\r\n");
  EXPECT_EQ(answer({.lines = "Date: x\r\n", .contained = {.date = true}}, ""),
            "HTTP/1.1 200 OK\r\nDate: x\r\n" + std::string(test::kept_lines) + "Content-Length: 0\r\n\r\n");
  EXPECT_EQ(answer({.lines = "Keep-Alive: x\r\n", .contained = {.keep_alive = true}}, ""),
            "HTTP/1.1 200 OK\r\nKeep-Alive: x\r\n" + std::string(test::date_line) + "Connection: keep-alive\r\nContent-Length: 0\r\n\r\n");
  EXPECT_EQ(answer({.lines = "Content-Length: 2\r\n", .contained = {.content_length = true}, .length = 2}, "ab"),
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n" + head("", "").substr(11) + "ab");
  EXPECT_EQ(answer({.status = 204}, "dropped"), head("204 No Content", ""));
  EXPECT_EQ(answer({.status = 304}, "dropped"), head("304 Not Modified", ""));
  EXPECT_FALSE(peer.closed());
}

TEST_F(SessionTest, NoDateWithoutAClock) {
  const std::int64_t before = std::exchange(test::unix_s, -1);
  server.core.tick();
  EXPECT_EQ(peer.ask(get), "HTTP/1.1 200 OK\r\n" + std::string(test::kept_lines) + "Content-Length: 5\r\n\r\nhello");
  test::unix_s = before;
  server.core.tick();
  EXPECT_EQ(peer.ask(get), hello);
}

TEST_F(SessionTest, HeadRequestsHaveNoBody) {
  const std::string request = "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n";
  EXPECT_EQ(peer.ask(request), head("200 OK", "Content-Length: 5\r\n"));
  server.application.on_request = [](Exchange& exchange) {
    (void)exchange.start({});
    EXPECT_TRUE(exchange.without_body());
    EXPECT_EQ(exchange.write(bytes_of("abc")), Written::accepted);
    EXPECT_EQ(exchange.end(bytes_of("def")), Written::accepted);
  };
  EXPECT_EQ(peer.ask(request + request), head("200 OK", "") + head("200 OK", ""));
  server.application.on_request = [](Exchange& exchange) { (void)exchange.respond({}); };
  EXPECT_EQ(peer.ask(request), head("200 OK", ""));
}

TEST_F(SessionTest, ResponsesOfUnknownLengthAreChunked) {
  server.application.on_request = [](Exchange& exchange) {
    (void)exchange.start({});
    (void)exchange.write(bytes_of("abc"));
    (void)exchange.write(std::span<const std::byte>());
    (void)exchange.write(bytes_of(std::string(16, 'x')));
    (void)exchange.end(bytes_of("end"));
  };
  const std::string expected =
      head("200 OK", "Transfer-Encoding: chunked\r\n") + "3\r\nabc\r\n10\r\nxxxxxxxxxxxxxxxx\r\n3\r\nend\r\n0\r\n\r\n";
  peer.send(get);
  EXPECT_EQ(peer.connection.sent.bytes() + peer.connection.written.bytes(), expected.size());
  EXPECT_EQ(peer.connection.written.pieces() + peer.connection.sent.pieces(), 1U);  // one send
  EXPECT_EQ(peer.read_all(), expected);
  server.application.on_request = [](Exchange& exchange) {
    (void)exchange.start({.lines = "Transfer-Encoding: chunked\r\n", .contained = {.transfer_encoding = true, .chunked = true}});
    (void)exchange.write(net::Buffer::copy(bytes_of(std::string(3000, 'y'))));
    (void)exchange.write(bytes_of(std::string(3000, 'z')));
    (void)exchange.end_with_trailers("A: b\r\n");
  };
  EXPECT_EQ(peer.ask(get), "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n" + head("", "").substr(11) + "bb8\r\n" +
                               std::string(3000, 'y') + "\r\nbb8\r\n" + std::string(3000, 'z') + "\r\n0\r\nA: b\r\n\r\n");
}

TEST_F(SessionTest, LongResponses) {
  for (const std::size_t bytes : {1000U, 1400U, 5000U, 60'000U, 70'000U, 1'000'000U, 5'000'000U}) {
    const std::string body(bytes, 'b');
    const std::string expected = head("200 OK", "Content-Length: " + std::to_string(bytes) + "\r\n") + body;
    server.application.on_request = [&](Exchange& exchange) { (void)exchange.respond({}, bytes_of(body)); };
    EXPECT_EQ(peer.ask(get), expected);
    server.application.on_request = [&](Exchange& exchange) { (void)exchange.respond({}, net::Buffer::copy(bytes_of(body))); };
    EXPECT_EQ(peer.ask(get + get), expected + expected);
    EXPECT_FALSE(peer.closed());
  }
  EXPECT_EQ(server.core.output_bytes(), 0U);
}

TEST_F(SessionTest, LateResponsesInPieces) {
  std::optional<ExchangeReference> kept;
  server.application.on_request = [&](Exchange& exchange) {
    exchange.report_sent();
    kept.emplace(exchange);
  };
  EXPECT_EQ(peer.ask(get), "");
  EXPECT_EQ((*kept)->start({.length = 6}), Written::accepted);
  EXPECT_TRUE((*kept)->head_sent());
  EXPECT_EQ((*kept)->start({}), Written::refused);
  server.run();
  EXPECT_EQ(peer.read_all(), head("200 OK", "Content-Length: 6\r\n"));
  EXPECT_EQ((*kept)->write(bytes_of("abc")), Written::accepted);
  EXPECT_EQ((*kept)->end(bytes_of("def")), Written::accepted);
  server.run();
  EXPECT_EQ(peer.read_all(), "abcdef");
  EXPECT_EQ((*kept)->end(), Written::refused);
  EXPECT_EQ((*kept)->write(bytes_of("x")), Written::refused);
  EXPECT_EQ(count().writes_refused.value(), 3U);
  EXPECT_EQ(server.application.logged(), "request /; sent; closed");
  server.application.on_request = [](Exchange& exchange) { (void)exchange.respond({}, bytes_of("hello")); };
  EXPECT_EQ(peer.ask(get), hello);
}

TEST_F(SessionTest, WritesBeforeStartAreRefused) {
  server.application.on_request = [](Exchange& exchange) {
    EXPECT_EQ(exchange.write(bytes_of("x")), Written::refused);
    EXPECT_EQ(exchange.end(), Written::refused);
    (void)exchange.respond({}, bytes_of("hello"));
  };
  EXPECT_EQ(peer.ask(get), hello);
}

TEST_F(SessionTest, BodiesOfAWrongLengthResetTheConnection) {
  server.application.on_request = [](Exchange& exchange) {
    (void)exchange.start({.length = 3});
    EXPECT_EQ(exchange.write(bytes_of("abcd")), Written::refused);
    EXPECT_FALSE(exchange.connected());
  };
  peer.send(get);
  EXPECT_TRUE(peer.connection.aborted);
  EXPECT_EQ(count().responses_too_long.value(), 1U);
  Peer other(server);
  server.application.on_request = [](Exchange& exchange) {
    (void)exchange.start({.length = 3});
    EXPECT_EQ(exchange.end(bytes_of("ab")), Written::refused);
  };
  other.send(get);
  EXPECT_TRUE(other.connection.aborted);
  EXPECT_EQ(count().responses_too_short.value(), 1U);
  EXPECT_EQ(server.application.logged(), "request /; aborted; request /; aborted");
  EXPECT_EQ(count().exchanges.value(), 0U);
}

TEST_F(SessionTest, InformationalResponses) {
  server.application.on_request = [](Exchange& exchange) {
    EXPECT_EQ(exchange.inform(103, "Link: </a>\r\n"), Written::accepted);
    (void)exchange.respond({}, bytes_of("hello"));
    EXPECT_EQ(exchange.inform(103, ""), Written::refused);
  };
  EXPECT_EQ(peer.ask(get), "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + hello);
  server.application.on_request = [](Exchange& exchange) {
    EXPECT_EQ(exchange.inform(103, ""), Written::refused);
    (void)exchange.respond({}, bytes_of("hello"));
  };
  EXPECT_EQ(peer.ask("GET / HTTP/1.0\r\n\r\n"), hello_close);
}

// --- Bodies of requests ---
TEST_F(SessionTest, BodiesArePassedOn) {
  server.application.on_request = [](Exchange& exchange) { exchange.read_body(); };
  server.application.on_body_end = [](Exchange& exchange) {
    EXPECT_TRUE(exchange.body_complete());
    (void)exchange.respond({}, bytes_of("hello"));
  };
  EXPECT_EQ(peer.ask(post("abc") + post("de")), hello + hello);
  EXPECT_EQ(server.application.logged(), "request /p; body abc; body_end; closed; request /p; body de; body_end; closed");
  server.application.log.clear();
  EXPECT_EQ(peer.ask(post_chunked("3\r\nabc\r\n1\r\nd\r\n0\r\nX: y\r\n\r\n")), hello);
  EXPECT_EQ(server.application.logged(), "request /p; body abc; body d; body_end; closed");
  server.application.log.clear();
  peer.send_bytewise(post("ab") + post_chunked("2\r\nab\r\n0\r\n\r\n"));
  EXPECT_EQ(peer.read_all(), hello + hello);
  EXPECT_EQ(server.application.logged(), "request /p; body a; body b; body_end; closed; request /p; body a; body b; body_end; closed");
}

TEST_F(SessionTest, PausedBodiesStayInTheirBuffers) {
  std::optional<ExchangeReference> kept;
  server.application.on_request = [&](Exchange& exchange) { kept.emplace(exchange); };
  server.application.on_body = [](Exchange& exchange, const std::string&) { exchange.pause_body(); };
  server.application.on_body_end = [](Exchange& exchange) { (void)exchange.respond({}, bytes_of("hello")); };
  peer.send(post_chunked("3\r\nabc\r\n3\r\ndef\r\n0\r\n\r\n") + get);
  EXPECT_EQ(server.application.logged(), "request /p");
  (*kept)->read_body();
  EXPECT_EQ(server.application.logged(), "request /p");  // not within the call
  server.run();
  EXPECT_EQ(server.application.logged(), "request /p; body abc");
  (*kept)->read_body();
  server.run();
  EXPECT_EQ(server.application.logged(), "request /p; body abc; body def");
  (*kept)->read_body();
  server.run();
  EXPECT_EQ(peer.read_all(), hello);
  EXPECT_EQ(server.application.logged(), "request /p; body abc; body def; body_end; closed; request /");
  kept.reset();
}

TEST_F(SessionTest, UnreadBodiesAreDiscarded) {
  EXPECT_EQ(peer.ask(post("abc") + get), hello + hello);
  EXPECT_EQ(server.application.logged(), "request /p; closed; request /; closed");
  EXPECT_EQ(count().bodies_discarded.value(), 1U);
  peer.send(post("abcdef").substr(0, post("abcdef").size() - 4));
  EXPECT_EQ(peer.read_all(), hello);
  EXPECT_EQ(peer.ask("cdef" + get), hello);
  EXPECT_EQ(count().bodies_discarded.value(), 2U);
  EXPECT_FALSE(peer.closed());
}

// The client has closed its side within the body, so the body's rest never comes.
TEST_F(SessionTest, AnAnswerToAHalfClosedClientEndsTheConnection) {
  std::optional<ExchangeReference> kept;
  server.application.on_request = [&](Exchange& exchange) { kept.emplace(exchange); };
  peer.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n");
  peer.end();
  EXPECT_EQ((*kept)->respond({}, bytes_of("hello")), Written::accepted);
  server.run();
  EXPECT_EQ(peer.read_all(), hello);
  EXPECT_TRUE(peer.closed());
  EXPECT_FALSE((*kept)->connected());
}

TEST_F(SessionTest, LongUnreadBodiesEndTheConnection) {
  EXPECT_EQ(peer.ask("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2000000\r\n\r\nabc"), hello);
  EXPECT_TRUE(peer.connection.closed);
  EXPECT_EQ(count().bodies_too_long_to_discard.value(), 1U);
  Peer other(server);
  EXPECT_EQ(other.ask(post_chunked("")), hello);
  for (int chunk = 0; chunk < 20; ++chunk) other.send("10000\r\n" + std::string(65536, 'x') + "\r\n");
  EXPECT_TRUE(other.connection.closed);
  EXPECT_EQ(count().bodies_too_long_to_discard.value(), 2U);
  EXPECT_EQ(server.application.logged(), "request /; closed; request /p; closed");
}

TEST_F(SessionTest, ResponseBeforeTheBodysEnd) {
  server.application.on_request = [](Exchange& exchange) { exchange.read_body(); };
  server.application.on_body = [](Exchange& exchange, const std::string&) { (void)exchange.respond({}, bytes_of("hello")); };
  peer.send(post("abcdef").substr(0, post("abcdef").size() - 3));
  EXPECT_EQ(peer.read_all(), hello);
  EXPECT_EQ(peer.ask("def" + get), "");
  EXPECT_EQ(server.application.logged(), "request /p; body abc; closed; request /");
}

TEST_F(SessionTest, Expect100Continue) {
  const std::string lines = "Expect: 100-continue\r\n", request = post("abc", lines), request_head = request.substr(0, request.size() - 3);
  server.application.on_request = [](Exchange& exchange) {
    EXPECT_TRUE(exchange.expects_continue());
    exchange.read_body();
  };
  server.application.on_body_end = [](Exchange& exchange) { (void)exchange.respond({}, bytes_of("hello")); };
  EXPECT_EQ(peer.ask(request_head), "HTTP/1.1 100 Continue\r\n\r\n");
  EXPECT_EQ(peer.ask("abc"), hello);
  EXPECT_EQ(count().continues_sent.value(), 1U);

  // The application decides by itself.
  std::optional<ExchangeReference> kept;
  server.application.on_request = [&](Exchange& exchange) {
    exchange.take_continue();
    exchange.read_body();
    kept.emplace(exchange);
  };
  EXPECT_EQ(peer.ask(request_head), "");
  (*kept)->send_continue();
  (*kept)->send_continue();
  EXPECT_EQ(peer.read_all(), "HTTP/1.1 100 Continue\r\n\r\n");
  EXPECT_EQ(peer.ask("abc"), hello);

  // Without it, the client may send the body or not, so the connection ends.
  server.application.on_request = [](Exchange& exchange) { (void)exchange.respond({}, bytes_of("hello")); };
  EXPECT_EQ(peer.ask(request_head), hello_close);
  EXPECT_TRUE(peer.connection.closed);
}

// --- Refused requests ---
TEST_F(SessionTest, RefusedRequestsAreAnsweredAndClosed) {
  EXPECT_EQ(peer.ask(get + "GET / HTTP/1.1\r\n\r\n" + get),
            hello + "HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
  EXPECT_TRUE(peer.connection.closed);
  EXPECT_EQ(count().refused_400.value(), 1U);
  EXPECT_EQ(server.application.logged(), "request /; closed; error 400");
  for (const auto& [request, status] : {std::pair<std::string, std::string>{"FOO / HTTP/1.1\r\n\r\n", "501 Not Implemented"},
                                        {"GET / HTTP/2.0\r\n\r\n", "505 HTTP Version Not Supported"},
                                        {"GET /" + std::string(9000, 'a') + " HTTP/1.1\r\n", "414 URI Too Long"},
                                        {"GET / HTTP/1.1\r\nA: " + std::string(17'000, 'a'), "431 Request Header Fields Too Large"},
                                        {"POST / HTTP/1.1\r\nHost: a\r\nExpect: x\r\n\r\n", "417 Expectation Failed"}}) {
    Peer other(server);
    EXPECT_EQ(other.ask(request), "HTTP/1.1 " + status + "\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
    EXPECT_TRUE(other.connection.closed);
  }
  EXPECT_EQ(count().requests_refused.value(), 6U);
}

TEST_F(SessionTest, ApplicationAnswersARefusedRequest) {
  server.application.on_error = [](Session& session, const http::ParseError& error) {
    EXPECT_EQ(error.code, "HPE_INVALID_METHOD");
    session.send_error_response(bytes_of("HTTP/1.1 400 No\r\n\r\n"));
    return true;
  };
  EXPECT_EQ(peer.ask("FOO / HTTP/1.1\r\n\r\n"), "HTTP/1.1 400 No\r\n\r\n");
  EXPECT_TRUE(peer.connection.closed);
}

TEST_F(SessionTest, MalformedBodies) {
  server.application.on_request = [](Exchange& exchange) { exchange.read_body(); };
  EXPECT_EQ(peer.ask(post_chunked("3\r\nabcd\r\n")), "HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
  EXPECT_EQ(server.application.logged(), "request /p; body abc; aborted; error 400");
  EXPECT_TRUE(peer.connection.closed);
  server.application.on_request = [](Exchange& exchange) {
    exchange.read_body();
    (void)exchange.start({});
  };
  Peer other(server);  // after the head of a response, only a reset tells the client
  other.send(post_chunked("3\r\nabcd\r\n"));
  EXPECT_TRUE(other.connection.aborted);
  EXPECT_EQ(count().exchanges.value(), 0U);
}

TEST(Statistics, EachCounterIsReportedOnce) {
  TestServer server;
  {
    Peer peer(server);
    (void)peer.ask(get);
  }
  std::vector<std::string> names;
  std::uint64_t requests = 0;
  report_statistics(server.core.statistics, [&](std::string_view name, std::uint64_t value) {
    EXPECT_EQ(std::count(names.begin(), names.end(), name), 0) << name;
    names.emplace_back(name);
    if (name == "requests.total") requests = value;
  });
  EXPECT_EQ(requests, 1U);
  EXPECT_EQ(names.size(), (sizeof(Statistics) / sizeof(Counter)) - 10 + 6);
}

}  // namespace
}  // namespace neap::webserver
