// SPDX-License-Identifier: BSL-1.0
// Requests that the parser accepts and refuses, each fed whole and byte by byte.
#include "apps/webserver/http/request_parser.hpp"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "apps/webserver/http/test_parsing.hpp"

namespace neap::webserver::http {
namespace {

using test::Outcome;
using test::parse_bytewise;
using test::parse_whole;
using test::Parsed;

Outcome parse_both(std::string_view input, const ParserLimits& limits = {}) {
  Outcome whole = parse_whole(input, limits);
  const Outcome bytewise = parse_bytewise(input, limits);
  EXPECT_EQ(whole.refusal, bytewise.refusal) << input;
  EXPECT_EQ(whole.complete(), bytewise.complete()) << input;
  for (std::size_t at = 0; at < std::min(whole.complete(), bytewise.complete()); ++at) {
    EXPECT_TRUE(whole.requests[at] == bytewise.requests[at]) << input;
  }
  return whole;
}
std::string get(std::string_view lines) { return "GET / HTTP/1.1\r\nHost: a\r\n" + std::string(lines) + "\r\n"; }
std::string chunked(std::string_view body) {
  return "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + std::string(body);
}

TEST(RequestParser, ReportsTheHead) {
  const Outcome outcome =
      parse_both("GET /a/b?c=d HTTP/1.1\r\nHost: example.org:80\r\nX-Empty:\r\nX-Empty-2: \t \r\nX:  two words \t\r\nx: 2\r\n\r\n");
  ASSERT_EQ(outcome.requests.size(), 1U);
  const Parsed& request = outcome.requests[0];
  EXPECT_TRUE(request.complete);
  EXPECT_EQ(request.method, "GET");
  EXPECT_EQ(request.target, "/a/b?c=d");
  EXPECT_EQ(request.minor, 1U);
  EXPECT_TRUE(request.keep_alive);
  EXPECT_FALSE(request.has_body);
  const test::Pairs expected = {{"Host", "example.org:80"}, {"X-Empty", ""}, {"X-Empty-2", ""}, {"X", "two words"}, {"x", "2"}};
  EXPECT_EQ(request.fields, expected);
}

TEST(RequestParser, StopsAtTheEndOfARequest) {
  const std::string first = get(""), second = "POST /2 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
                    third = chunked("2\r\nde\r\n0\r\n\r\n");
  const Outcome outcome = parse_both(first + second + "\r\n" + third + first);
  ASSERT_EQ(outcome.complete(), 4U);
  EXPECT_EQ(outcome.requests[1].body, "abc");
  EXPECT_EQ(outcome.requests[2].body, "de");

  RequestParser parser;
  const ParserLimits limits;
  parser.begin(limits);
  const std::string input = first + second;
  const auto step = parser.parse(std::as_bytes(std::span(input)));
  EXPECT_EQ(step.event, RequestParser::Event::head);
  EXPECT_EQ(step.consumed, first.size());
  EXPECT_EQ(parser.parse(std::as_bytes(std::span(input)).subspan(first.size())).event, RequestParser::Event::end);
  EXPECT_EQ(parser.parse({}).consumed, 0U);
}

TEST(RequestParser, KeepAliveFollowsVersionAndConnection) {
  const auto keeps = [](std::string_view version, std::string_view lines) {
    const Outcome outcome = parse_both("GET / HTTP/" + std::string(version) + "\r\nHost: a\r\n" + std::string(lines) + "\r\n");
    EXPECT_EQ(outcome.complete(), 1U) << lines;
    return outcome.complete() == 1 && outcome.requests[0].keep_alive;
  };
  EXPECT_TRUE(keeps("1.1", ""));
  EXPECT_FALSE(keeps("1.1", "Connection: close\r\n"));
  EXPECT_FALSE(keeps("1.1", "Connection: CLOSE\r\n"));
  EXPECT_FALSE(keeps("1.1", "Connection: x, close ,y\r\n"));
  EXPECT_FALSE(keeps("1.1", "Connection: x\r\nConnection: close\r\n"));
  EXPECT_FALSE(keeps("1.1", "Connection: close\t\r\n"));
  EXPECT_FALSE(keeps("1.1", "Connection: ,close,\r\n"));
  EXPECT_TRUE(keeps("1.1", "Connection: closed\r\n"));
  EXPECT_TRUE(keeps("1.1", "Connection: upgrade\r\nUpgrade: h2c\r\n"));
  EXPECT_FALSE(keeps("1.0", ""));
  EXPECT_TRUE(keeps("1.0", "Connection: Keep-Alive\r\n"));
  EXPECT_TRUE(keeps("1.0", "Connection: x,\tkeep-alive\t,y\r\n"));
  EXPECT_FALSE(keeps("1.0", "Connection: keep-alive, close\r\n"));
}

TEST(RequestParser, ChunkedBodies) {
  const auto body = [](std::string_view text) {
    const Outcome outcome = parse_both(chunked(text));
    return outcome.complete() == 1 ? "<" + outcome.requests[0].body + ">" : std::to_string(outcome.status());
  };
  EXPECT_EQ(body("0\r\n\r\n"), "<>");
  EXPECT_EQ(body("5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n"), "<hello world>");
  EXPECT_EQ(body("A\r\n0123456789\r\na\r\nabcdefghij\r\n000\r\n\r\n"), "<0123456789abcdefghij>");
  EXPECT_EQ(body("5;a=b;c;d=\"e;\\\"f\"\r\nhello\r\n0;z\r\n\r\n"), "<hello>");
  for (const std::string_view bad :
       {"5\nhello\r\n0\r\n\r\n", "5\r\nhello\n0\r\n\r\n", "5\r\nhello0\r\n\r\n", "5\r\nhello\r\n0\n\r\n", "5\r\nhello\r\n0\r\n\n",
        "5 \r\nhello\r\n0\r\n\r\n", " 5\r\nhello\r\n0\r\n\r\n", "-5\r\nhello\r\n0\r\n\r\n", "0x5\r\nhello\r\n0\r\n\r\n", "g\r\n\r\n",
        "\r\n", "5\r\rhello\r\n", "5;\r\nhello\r\n0\r\n\r\n", "5;a=\"b\r\nhello\r\n0\r\n\r\n", "5;a b\r\nhello\r\n0\r\n\r\n",
        "10000000000000000\r\n", "fffffffffffffffff\r\n", "5;a\x01\r\nhello\r\n0\r\n\r\n", "5\r\nhello!\r\n0\r\n\r\n"}) {
    EXPECT_EQ(body(bad), "400") << bad;
  }
}

TEST(RequestParser, Trailers) {
  const Outcome outcome = parse_both(chunked("1\r\na\r\n0\r\nX: 1 \r\nY:\r\nZ: two  words\r\n\r\n") + get("") + chunked("0\r\n\r\n"));
  ASSERT_EQ(outcome.complete(), 3U);
  const test::Pairs expected = {{"X", "1"}, {"Y", ""}, {"Z", "two  words"}};
  EXPECT_EQ(outcome.requests[0].trailers, expected);
  EXPECT_TRUE(outcome.requests[1].trailers.empty());
  EXPECT_TRUE(outcome.requests[2].trailers.empty());
  for (const std::string_view bad :
       {"0\r\nX 1\r\n\r\n", "0\r\nX: 1\n\r\n", "0\r\n X: 1\r\n\r\n", "0\r\nX: 1\r\n 2\r\n\r\n", "0\r\nX: \x01\r\n\r\n"}) {
    EXPECT_EQ(parse_both(chunked(bad)).status(), 400U) << bad;
  }
}

struct Row {
  std::string request;
  Refusal refusal;
};

TEST(RequestParser, RefusesWhatOtherParsersMightUnderstandInAnotherWay) {
  using enum Refusal;
  const std::string host_line = "Host: a\r\n";
  const auto post = [&](std::string_view lines) { return "POST / HTTP/1.1\r\n" + host_line + std::string(lines) + "\r\n"; };
  const Row rows[] = {
      // Line breaks
      {"GET / HTTP/1.1\nHost: a\r\n\r\n", line_break},
      {"GET / HTTP/1.1\r\nHost: a\n\r\n", line_break},
      {"GET / HTTP/1.1\r\nHost: a\r\n\n", syntax},
      {"GET / HTTP/1.1\rHost: a\r\n\r\n", line_break},
      {"\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", line_break},
      {"\r\n\rGET / HTTP/1.1\r\nHost: a\r\n\r\n", line_break},
      {"\r\rGET / HTTP/1.1\r\nHost: a\r\n\r\n", line_break},
      {get("X: a\rb\r\n"), line_break},
      {get("X: 1\r\n 2\r\n"), syntax},  // obs-fold
      {get("X: 1\r\n\t2\r\n"), syntax},
      {get("X:\r\n 2\r\n"), syntax},
      {"GET / HTTP/1.1\r\n Host: a\r\n\r\n", syntax},
      // Names and values
      {get("X : 1\r\n"), syntax},
      {get("X\t: 1\r\n"), syntax},
      {get(": 1\r\n"), syntax},
      {get("X\r\n"), syntax},
      {get("X(: 1\r\n"), syntax},
      {get("X\x80: 1\r\n"), syntax},
      {get(std::string_view("X\0: 1\r\n", 7)), syntax},
      {get(std::string_view("X: \0\r\n", 6)), syntax},
      {get("X: a\x01\r\n"), syntax},
      {get("X: a\x0B\r\n"), syntax},
      {get("X: a\x1F\r\n"), syntax},
      {get("X: a\x7F\r\n"), syntax},
      // Content-Length
      {post("Content-Length: 1\r\nContent-Length: 1\r\n"), content_length},
      {post("Content-Length: 1\r\nContent-Length: 2\r\n"), content_length},
      {post("Content-Length: 1, 1\r\n"), content_length},
      {post("Content-Length: +1\r\n"), content_length},
      {post("Content-Length: -1\r\n"), content_length},
      {post("Content-Length: 1 2\r\n"), content_length},
      {post("Content-Length: 0x1\r\n"), content_length},
      {post("Content-Length: 1.0\r\n"), content_length},
      {post("Content-Length:\r\n"), content_length},
      {post("Content-Length: 18446744073709551616\r\n"), content_length},
      {post("Content-Length: 99999999999999999999999\r\n"), content_length},
      {post("Content-Length: 1\r\nTransfer-Encoding: chunked\r\n"), transfer_encoding},
      {post("Transfer-Encoding: chunked\r\nContent-Length: 1\r\n"), content_length},
      {post("Transfer-Encoding: chunked\r\nContent-Length: 0\r\n"), content_length},
      // Transfer-Encoding
      {post("Transfer-Encoding: identity\r\n"), transfer_encoding},
      {post("Transfer-Encoding: gzip\r\n"), transfer_encoding},
      {post("Transfer-Encoding: chunked, gzip\r\n"), transfer_encoding},
      {post("Transfer-Encoding: chunked\r\nTransfer-Encoding: gzip\r\n"), transfer_encoding},
      {post("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"), transfer_encoding},
      {post("Transfer-Encoding: chunked, chunked\r\n"), transfer_encoding},
      {post("Transfer-Encoding: xchunked\r\n"), transfer_encoding},
      {post("Transfer-Encoding: chunkedx\r\n"), transfer_encoding},
      {post("Transfer-Encoding: chunked;q=1\r\n"), transfer_encoding},
      {post("Transfer-Encoding: \"chunked\"\r\n"), transfer_encoding},
      {post("Transfer-Encoding: \r\n"), transfer_encoding},
      {post("Transfer-Encoding: ,chunked\r\n"), transfer_encoding},
      {post("Transfer-Encoding: chunked,\r\n"), transfer_encoding},
      {post("Transfer-Encoding: gzip, chunked\r\n"), transfer_encoding_unknown},
      {post("Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n"), transfer_encoding_unknown},
      {"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", transfer_encoding_in_1_0},
      // Host
      {"GET / HTTP/1.1\r\n\r\n", Refusal::host},
      {"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", Refusal::host},
      {"GET / HTTP/1.1\r\nHost: a\r\nhOST: b\r\n\r\n", Refusal::host},
      {"GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n", Refusal::host},
      {"GET / HTTP/1.1\r\nHost: a, b\r\n\r\n", Refusal::host},
      {"GET / HTTP/1.1\r\nHost: a b\r\n\r\n", Refusal::host},
      {"GET / HTTP/1.1\r\nHost: u@a\r\n\r\n", Refusal::host},
      {"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", Refusal::host},
      {"GET / HTTP/1.1\r\nHost: a:b\r\n\r\n", Refusal::host},
      {"GET / HTTP/1.1\r\nHost: a:1:2\r\n\r\n", Refusal::host},
      {"GET / HTTP/1.1\r\nHost: [::1\r\n\r\n", Refusal::host},
      {"GET / HTTP/1.1\r\nHost: [::1]x\r\n\r\n", Refusal::host},
      {"GET / HTTP/1.1\r\nHost: \xC3\xA9\r\n\r\n", Refusal::host},
      // Request line
      {" GET / HTTP/1.1\r\n" + host_line + "\r\n", syntax},
      {"GET  / HTTP/1.1\r\n" + host_line + "\r\n", syntax},
      {"GET\t/ HTTP/1.1\r\n" + host_line + "\r\n", syntax},
      {"GET /  HTTP/1.1\r\n" + host_line + "\r\n", protocol},
      {"GET / HTTP/1.1 \r\n" + host_line + "\r\n", line_break},
      {"GET / HTTP/1.1x\r\n" + host_line + "\r\n", line_break},
      {"GET / http/1.1\r\n" + host_line + "\r\n", protocol},
      {"GET / FTP/1.1\r\n" + host_line + "\r\n", protocol},
      {"GET / RTSP/1.0\r\n" + host_line + "\r\n", protocol},
      {"OPTIONS * RTSP/1.0\r\n" + host_line + "\r\n", protocol},
      {"SOURCE / ICE/1.0\r\n" + host_line + "\r\n", protocol},
      {"GET / HTTP/1,1\r\n" + host_line + "\r\n", syntax},
      {"GET / HTTP/11\r\n" + host_line + "\r\n", syntax},
      {"GET / HTTP/1.12\r\n" + host_line + "\r\n", line_break},
      {"GET /\r\n\r\n", version},
      {"GET / HTTP/0.9\r\n" + host_line + "\r\n", version},
      {"GET / HTTP/1.2\r\n" + host_line + "\r\n", version},
      {"GET / HTTP/2.0\r\n" + host_line + "\r\n", version},
      {"GET / HTTP/3.0\r\n" + host_line + "\r\n", version},
      {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", version},
      // Methods
      {"FOO / HTTP/1.1\r\n" + host_line + "\r\n", method},
      {"GETX / HTTP/1.1\r\n" + host_line + "\r\n", method},
      {"GE / HTTP/1.1\r\n" + host_line + "\r\n", method},
      {"get / HTTP/1.1\r\n" + host_line + "\r\n", method},
      {"DESCRIBE / HTTP/1.1\r\n" + host_line + "\r\n", method},
      {"G\x01T / HTTP/1.1\r\n" + host_line + "\r\n", syntax},
      {"\x16\x03\x01\x02\x01", syntax},  // a client of TLS
      {"CONNECT a:80 HTTP/1.1\r\n" + host_line + "\r\n", Refusal::connect},
      // Targets
      {"GET * HTTP/1.1\r\n" + host_line + "\r\n", target},
      {"GET a HTTP/1.1\r\n" + host_line + "\r\n", target},
      {"GET /# HTTP/1.1\r\n" + host_line + "\r\n", target},
      {"GET /a#b HTTP/1.1\r\n" + host_line + "\r\n", target},
      {"GET /\xC3\xA9 HTTP/1.1\r\n" + host_line + "\r\n", target},
      {"GET /\x01 HTTP/1.1\r\n" + host_line + "\r\n", target},
      {"GET /\x7F HTTP/1.1\r\n" + host_line + "\r\n", target},
      {"GET /\t HTTP/1.1\r\n" + host_line + "\r\n", target},
      {"GET ftp://a/ HTTP/1.1\r\n" + host_line + "\r\n", target},
      {"GET http:// HTTP/1.1\r\n" + host_line + "\r\n", target},
      {"GET http:///a HTTP/1.1\r\n" + host_line + "\r\n", target},
      {"GET http://u@a/ HTTP/1.1\r\n" + host_line + "\r\n", target},
      {"GET http://a:b/ HTTP/1.1\r\n" + host_line + "\r\n", target},
      {"GET a:80 HTTP/1.1\r\n" + host_line + "\r\n", target},
      {"OPTIONS ** HTTP/1.1\r\n" + host_line + "\r\n", target},
      // Expectations
      {post("Expect: 200-ok\r\nContent-Length: 1\r\n"), expectation},
      {post("Expect: 100-continue, x\r\nContent-Length: 1\r\n"), expectation},
      {post("Expect: \r\nContent-Length: 1\r\n"), expectation},
  };
  for (const Row& row : rows) {
    const Outcome outcome = parse_both(row.request);
    EXPECT_EQ(outcome.complete(), 0U) << row.request;
    EXPECT_EQ(static_cast<int>(outcome.refusal), static_cast<int>(row.refusal)) << row.request;
  }
}

TEST(RequestParser, AcceptsUnusualButValidRequests) {
  for (const std::string& request : {
           std::string("GET / HTTP/1.0\r\n\r\n"),
           std::string("GET / HTTP/1.1\r\nHost:\r\n\r\n"),
           std::string("\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"),
           std::string("GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n"),
           std::string("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n"),
           std::string("GET http://a/ HTTP/1.1\r\nHost: b\r\n\r\n"),
           std::string("GET HTTP://a.b:80?x HTTP/1.1\r\nHost: b\r\n\r\n"),
           std::string("M-SEARCH / HTTP/1.1\r\nHost: b\r\n\r\n"),
           std::string("QUERY / HTTP/1.1\r\nHost: b\r\n\r\n"),
           std::string("GET /?a={b}|\"c\" HTTP/1.1\r\nHost: b\r\n\r\n"),
           get("!#$%&'*+-.^_`|~09azAZ: \x80\xFF\t!~\r\n"),
           get("X:1\r\n"),
           get("Content-Length: 0\r\n"),
           get("Content-Length:   0  \r\n"),
           get("Expect: 100-Continue\r\n"),
           get("Connection: Upgrade\r\nUpgrade: websocket\r\n"),
           get("Upgrade: h2c\r\n"),
       }) {
    const Outcome outcome = parse_both(request);
    EXPECT_EQ(outcome.complete(), 1U) << request << static_cast<int>(outcome.refusal);
    EXPECT_EQ(outcome.refusal, Refusal::none) << request;
  }
  const Outcome outcome = parse_both("POST / HTTP/1.1\r\nHost: a\r\ntransfer-ENCODING:  Chunked \r\nExpect: 100-continue\r\n\r\n0\r\n\r\n");
  ASSERT_EQ(outcome.complete(), 1U);
  EXPECT_TRUE(outcome.requests[0].expects_continue);
  EXPECT_TRUE(outcome.requests[0].has_body);
}

// An upgrade that is not supported is ignored, also for a request with a body, and the connection stays in HTTP/1.1.
TEST(RequestParser, UpgradesAreOrdinaryRequests) {
  const std::string lines = "Host: a\r\nConnection: upgrade\r\nUpgrade: x\r\n";
  const Outcome outcome =
      parse_both("POST / HTTP/1.1\r\n" + lines + "Content-Length: 2\r\n\r\nab" + "POST / HTTP/1.1\r\n" + lines +
                 "Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n" + "GET / HTTP/1.1\r\n" + lines + "\r\n" + get(""));
  EXPECT_EQ(outcome.complete(), 4U);
  EXPECT_EQ(outcome.refusal, Refusal::none);
}

TEST(RequestParser, Limits) {
  ParserLimits limits;
  limits.head_bytes_max = 200;
  limits.target_bytes_max = 50;
  limits.fields_max = 4;
  limits.body_bytes_max = 10;
  limits.extension_bytes_max = 20;
  const auto refusal = [&](std::string_view input) { return static_cast<int>(parse_both(input, limits).refusal); };
  const auto code = [](Refusal expected) { return static_cast<int>(expected); };
  const auto head_of = [](std::size_t bytes) {
    const std::string empty = get("X: \r\n");
    return get("X: " + std::string(bytes - empty.size(), 'x') + "\r\n");
  };
  EXPECT_EQ(refusal(head_of(199)), 0);
  EXPECT_EQ(refusal(head_of(200)), 0);
  EXPECT_EQ(refusal(head_of(201)), code(Refusal::head_too_large));
  EXPECT_EQ(refusal(head_of(5000)), code(Refusal::head_too_large));
  EXPECT_EQ(refusal("GET /" + std::string(49, 'a') + " HTTP/1.1\r\nHost: a\r\n\r\n"), 0);
  EXPECT_EQ(refusal("GET /" + std::string(50, 'a') + " HTTP/1.1\r\nHost: a\r\n\r\n"), code(Refusal::target_too_long));
  EXPECT_EQ(refusal(get("A: 1\r\nB: 2\r\nC: 3\r\n")), 0);
  EXPECT_EQ(refusal(get("A: 1\r\nB: 2\r\nC: 3\r\nD: 4\r\n")), code(Refusal::too_many_fields));
  EXPECT_EQ(refusal("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n0123456789"), 0);
  EXPECT_EQ(refusal("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\n0123456789"), code(Refusal::body_too_large));
  EXPECT_EQ(refusal(chunked("6\r\n012345\r\n4\r\n0123\r\n0\r\n\r\n")), 0);
  EXPECT_EQ(refusal(chunked("6\r\n012345\r\n5\r\n01234\r\n0\r\n\r\n")), code(Refusal::body_too_large));
  EXPECT_EQ(refusal(chunked("1;" + std::string(10, 'x') + "\r\na\r\n1;" + std::string(10, 'x') + "\r\na\r\n0\r\n\r\n")), 0);
  EXPECT_EQ(refusal(chunked("1;" + std::string(10, 'x') + "\r\na\r\n1;" + std::string(11, 'x') + "\r\na\r\n0\r\n\r\n")),
            code(Refusal::extensions_too_large));
  EXPECT_EQ(refusal(chunked(std::string(5000, '0') + "1\r\na\r\n0\r\n\r\n")), code(Refusal::extensions_too_large));
  EXPECT_EQ(refusal(chunked("0\r\nA: 1\r\nB: 2\r\nC: 3\r\nD: 4\r\n\r\n")), 0);
  EXPECT_EQ(refusal(chunked("0\r\nA: 1\r\nB: 2\r\nC: 3\r\nD: 4\r\nE: 5\r\n\r\n")), code(Refusal::too_many_fields));
  EXPECT_EQ(refusal(chunked("0\r\nA: " + std::string(199, 'a') + "\r\n\r\n")), 0);
  EXPECT_EQ(refusal(chunked("0\r\nA: " + std::string(200, 'a') + "\r\n\r\n")), code(Refusal::head_too_large));
  std::string empty_lines;
  for (int line = 0; line < 101; ++line) empty_lines += "\r\n";
  EXPECT_EQ(refusal(empty_lines + get("")), code(Refusal::head_too_large));
}

// Heads beyond the memory inside the parser move to the heap, and the next request begins inside again.
TEST(RequestParser, LongHeads) {
  std::string lines;
  test::Pairs expected = {{"Host", "a"}};
  for (int line = 0; line < 380; ++line) {
    expected.emplace_back("Name-" + std::to_string(line), std::string(1 + line % 40, 'v'));
    lines += expected.back().first + ": " + expected.back().second + "\r\n";
  }
  const std::string target = "/" + std::string(3000, 't');
  const std::string input = "GET " + target + " HTTP/1.1\r\nHost: a\r\n" + lines + "\r\n";
  ASSERT_GT(input.size(), 14'500U);
  const Outcome outcome = parse_both(input + get("") + input + get(""), {.head_bytes_max = 60'000});
  ASSERT_EQ(outcome.complete(), 4U);
  EXPECT_EQ(outcome.requests[2].fields, expected);
  EXPECT_EQ(outcome.requests[2].target, target);
  EXPECT_EQ(outcome.requests[3].fields.size(), 1U);
  EXPECT_EQ(parse_both(input).complete(), 1U);
  EXPECT_EQ(parse_both(input + std::string(2000, 'a')).complete(), 1U);
  std::string many;
  for (int line = 0; line < 1999; ++line) many += "a:\r\n";
  EXPECT_EQ(parse_both(get(many)).complete(), 1U);
  EXPECT_EQ(parse_both(get(many + "a:\r\n")).refusal, Refusal::too_many_fields);
}

TEST(RequestParser, RefusalsHaveStatusCodeAndText) {
  for (int refusal = 1; refusal <= static_cast<int>(Refusal::incomplete); ++refusal) {
    const ParseError error = ParseError::of(static_cast<Refusal>(refusal));
    EXPECT_EQ(static_cast<int>(error.refusal), refusal);
    EXPECT_GE(error.status, 400U);
    EXPECT_FALSE(error.code.empty());
    EXPECT_NE(error.code, "HPE_INTERNAL");
    EXPECT_FALSE(error.text.empty());
  }
}

}  // namespace
}  // namespace neap::webserver::http
