// SPDX-License-Identifier: BSL-1.0
// For the tests of sessions: a server with one client, usual requests, and the responses to them. Includes test_peer.hpp, so only one
// source of a program MAY include it.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "apps/webserver/test_peer.hpp"

namespace neap::webserver::test {

inline const std::string get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
inline const std::string get_close = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
inline std::string get_of(std::string_view target) { return "GET " + std::string(target) + " HTTP/1.1\r\nHost: a\r\n\r\n"; }
inline std::string post(std::string_view body, std::string_view lines = "") {
  return "POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: " + std::to_string(body.size()) + "\r\n" + std::string(lines) + "\r\n" +
         std::string(body);
}
inline std::string post_chunked(std::string_view chunks) {
  return "POST /p HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + std::string(chunks);
}
inline std::string head(std::string_view status, std::string_view lines, bool kept = true) {
  return "HTTP/1.1 " + std::string(status) + "\r\n" + std::string(date_line) + (kept ? std::string(kept_lines) : "Connection: close\r\n") +
         std::string(lines) + "\r\n";
}
inline const std::string hello = head("200 OK", "Content-Length: 5\r\n") + "hello";
inline const std::string hello_close = head("200 OK", "Content-Length: 5\r\n", false) + "hello";

struct SessionTest : testing::Test {
  TestServer server;
  Peer peer{server};
  [[nodiscard]] const Statistics& count() const { return server.core.statistics; }
};

}  // namespace neap::webserver::test
