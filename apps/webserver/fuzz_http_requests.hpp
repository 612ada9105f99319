// SPDX-License-Identifier: BSL-1.0
// Generates requests for fuzzers: valid ones, with and without structured damage.
#pragma once

#include <string>
#include <string_view>

#include "tests/host/fuzzing.hpp"

namespace neap::webserver::fuzz {

class RequestGenerator : public fuzzing::InputGenerator {
 public:
  using InputGenerator::InputGenerator;

 protected:
  template <std::size_t count>
  std::string_view one_of(const std::string_view (&list)[count]) {
    return list[below(count)];
  }

  /// A request, sometimes with an unusual part.
  std::string request() {
    static constexpr std::string_view methods[] = {"GET", "GET", "GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "M-SEARCH"};
    static constexpr std::string_view bad_methods[] = {"CONNECT", "get", "FOO", "GETT", "", "DESCRIBE", "PRI", "G T"};
    static constexpr std::string_view targets[] = {"/", "/a", "/a/b?c=d&e=%20", "/index.html", "/?", "*", "http://a/b", "HTTP://a.b:80"};
    static constexpr std::string_view bad_targets[] = {"", "a", "#", "/#", "ftp://a", "http://", "/\x80", "a:80", "/ ", "//\t"};
    static constexpr std::string_view versions[] = {"HTTP/1.1", "HTTP/1.1", "HTTP/1.1", "HTTP/1.1", "HTTP/1.0"};
    static constexpr std::string_view bad_versions[] = {"HTTP/2.0", "HTTP/0.9", "RTSP/1.0", "HTTP/1.2",
                                                        "HTTP/11",  "http/1.1", "",         "HTTP/1.1 "};
    std::string text(rarely() ? one_of(bad_methods) : one_of(methods));
    text += rarely() ? "  " : " ";
    text += rarely() ? std::string(one_of(bad_targets)) : often() ? std::string(one_of(targets)) : "/" + std::string(below(300), 't');
    if (below(400) == 0) text += std::string(9000, 'u');
    text += " ";
    text += rarely() ? one_of(bad_versions) : one_of(versions);
    text += line_end();
    if (!rarely()) text += "Host: example.org" + line_end();
    if (rarely()) text += "hOST: a" + line_end();
    const unsigned lines = below(often() ? 4 : 40);
    for (unsigned line = 0; line < lines; ++line) text += field() + line_end();
    if (below(400) == 0) text += "Long: " + std::string(17'000, 'l') + line_end();
    const unsigned kind = below(8);
    if (kind == 0) return text + with_length();
    if (kind == 1) return text + chunked();
    if (kind == 2 && rarely()) return text + "Transfer-Encoding: gzip, chunked" + line_end() + line_end();
    return text + line_end();
  }

 private:
  bool rarely() { return below(60) == 0; }
  bool often() { return below(4) != 0; }
  std::string line_end() {
    static constexpr std::string_view bad[] = {"\n", "\r", "\r\r\n", "\n\r", "\r\n ", "\r\n\r\n", " \r\n", "\t\r\n"};
    return std::string(below(300) == 0 ? one_of(bad) : std::string_view("\r\n"));
  }
  std::string field() {
    static constexpr std::string_view names[] = {"Accept", "X", "Connection", "Connection",       "Expect",       "Upgrade",
                                                 "Cookie", "a", "Via",        "Proxy-Connection", "Content-Type", "TE"};
    static constexpr std::string_view bad_names[] = {"", "A B", "A ", "A\t", "Content-Length", "Transfer-Encoding", "(", "\xC3"};
    static constexpr std::string_view values[] = {"*/*",
                                                  "",
                                                  "close",
                                                  "keep-alive",
                                                  "100-continue",
                                                  "upgrade",
                                                  "close\t",
                                                  "1",
                                                  "chunked",
                                                  "a\xFF"
                                                  "b",
                                                  "x, close",
                                                  "keep-alive, close",
                                                  "\"q\"",
                                                  "  s  "};
    static constexpr std::string_view bad_values[] = {"\x01", "a\x7F", "a\rb", "1, 1", "-1", "+1", "0x1", "18446744073709551616"};
    std::string text(rarely() ? one_of(bad_names) : one_of(names));
    text += rarely() ? " :" : ":";
    if (often()) text += " ";
    return text + std::string(rarely() ? one_of(bad_values) : one_of(values));
  }
  std::string with_length() {
    const unsigned bytes = below(often() ? 40 : 5000);
    const std::string number = std::to_string(bytes);
    std::string text = "Content-Length: " + (rarely() ? "0" + number : rarely() ? number + "," + number : number) + line_end();
    if (rarely()) text += "Content-Length: " + number + line_end();
    if (rarely()) text += "Transfer-Encoding: chunked" + line_end();
    if (below(6) == 0) text += "Expect: 100-continue" + line_end();
    return text + line_end() + std::string(bytes, 'b');
  }
  std::string chunked() {
    static constexpr std::string_view extensions[] = {"", "", "", ";a", ";a=b", ";a=\"b\\\"c\";d", ";", " ", ";\x01", ";=\""};
    std::string text = "Transfer-Encoding: " + std::string(often() ? "chunked" : "Chunked") + line_end();
    if (below(6) == 0) text += "Expect: 100-continue" + line_end();
    text += line_end();
    for (unsigned chunk = below(6); chunk > 0; --chunk) {
      const unsigned bytes = 1 + below(often() ? 20 : 3000);
      char size[24];
      std::snprintf(size, sizeof size, often() ? "%x" : "00%X", rarely() ? bytes + 1 : bytes);
      text += size + std::string(often() ? std::string_view() : one_of(extensions)) + line_end() + std::string(bytes, 'c') + line_end();
    }
    text += "0" + line_end();
    if (below(4) == 0) text += field() + line_end();
    return text + line_end();
  }
};

}  // namespace neap::webserver::fuzz
