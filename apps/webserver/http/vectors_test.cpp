// SPDX-License-Identifier: BSL-1.0
// llhttp's own test vectors of requests. Each vector of the strict mode is accepted or refused as by llhttp, except for those listed here,
// which our rules refuse. Each vector of a lenient mode is refused, except for those listed here, which are valid.
//
// The vectors are Markdown files: headings, a comment with the mode, a block with the request, and a block with llhttp's log. Nearly all
// lack Host, so the test adds it to each request line of HTTP/1.1.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "apps/webserver/http/test_parsing.hpp"

namespace neap::webserver::http {
namespace {

struct Vector {
  std::string name;  ///< "file: heading"
  std::string mode, input, log;
  bool paused = false;  ///< llhttp's program pauses, or skips the body
};

/// The vectors that llhttp accepts and we refuse, with the rule.
const std::map<std::string, Refusal, std::less<>> stricter = {
    // Not supported
    {"method: CONNECT request", Refusal::connect},
    {"method: CONNECT request with CAPS", Refusal::connect},
    {"method: CONNECT with body", Refusal::connect},
    {"uri: Underscore in hostname", Refusal::connect},
    {"sample: No HTTP version", Refusal::version},  // HTTP/0.9
    // Not HTTP
    {"method: ANNOUNCE request with RTSP", Refusal::protocol},
    {"method: OPTIONS request with RTSP", Refusal::protocol},
    {"method: SOURCE request with ICE", Refusal::protocol},
    // The asterisk-form is only for OPTIONS (RFC 9112, 3.2.4).
    {"method: M-SEARCH request", Refusal::target},
    // A request-target has no fragment (RFC 9112, 3.2), and an authority no user information (RFC 9110, 4.2.4).
    {"uri: Fragment in URI", Refusal::target},
    {"transfer-encoding: POST with `chunked` as last transfer-encoding", Refusal::target},
    {"transfer-encoding: POST with `chunked` as last transfer-encoding (multiple headers)", Refusal::target},
    {"uri: `host:port` and basic auth", Refusal::target},
    // The vectors are those of a later llhttp, which accepts a tab behind the number.
    {"content-length: Tabs in `Content-Length` (surrounding)", Refusal::content_length},
};
/// The vectors of lenient modes that are valid in strict mode, too.
const std::set<std::string, std::less<>> valid_in_strict_mode = {};

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) text.replace(at, from.size(), to);
}

/// Undoes the escapes of the vectors' files.
std::string unescaped(std::string text) {
  if (!text.empty() && text.back() == '\n') text.pop_back();
  replace_all(text, "\\\n", "");
  replace_all(text, "\n", "\r\n");
  std::string result;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '$' && text.compare(at, 2, "${") == 0) {  // ${'a'.repeat(5)}
      const std::size_t end = text.find('}', at);
      const std::string code = text.substr(at, end - at);
      const std::size_t quote = code.find('\''), count = code.find("repeat(");
      if (quote != std::string::npos && count != std::string::npos) {
        const std::string unit = code.substr(quote + 1, code.find('\'', quote + 1) - quote - 1);
        for (int left = std::atoi(code.c_str() + count + 7); left > 0; --left) result += unit;
      }
      at = end;
      continue;
    }
    if (text[at] != '\\' || at + 1 == text.size()) {
      result += text[at];
      continue;
    }
    const char mark = text[at + 1];
    const auto digits = [&](std::size_t from, int base, std::size_t most) {
      std::size_t end = from;
      const auto is_digit = [&](char letter) {
        return base == 16 ? std::isxdigit(static_cast<unsigned char>(letter)) != 0 : letter >= '0' && letter < '8';
      };
      while (end < text.size() && end < from + most && is_digit(text[end])) ++end;
      result += static_cast<char>(std::strtol(text.substr(from, end - from).c_str(), nullptr, base));
      return end - 1;
    };
    if (mark == 'r' || mark == 'n' || mark == 't' || mark == 'f') {
      result += mark == 'r' ? '\r' : mark == 'n' ? '\n' : mark == 't' ? '\t' : '\f';
      ++at;
    } else if (mark == 'x') {
      at = digits(at + 2, 16, 2);
    } else if (mark >= '0' && mark < '8') {
      at = digits(at + 1, 8, 3);
    } else {
      result += '\\';
    }
  }
  return result;
}

std::vector<Vector> read_vectors() {
  std::vector<Vector> vectors;
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(NEAP_LLHTTP_VECTORS)) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  for (const auto& path : paths) {
    std::ifstream file(path);
    std::string heading, line;
    Vector vector;
    std::string* block = nullptr;
    while (std::getline(file, line)) {
      if (block != nullptr) {
        if (line != "```") {
          *block += line + "\n";
          continue;
        }
        if (block == &vector.log) {
          vector.name = path.stem().string() + ": " + heading;
          vector.input = unescaped(vector.input);
          vectors.push_back(vector);
        }
        block = nullptr;
      } else if (line.starts_with("#")) {
        heading = line.substr(line.find_first_not_of("# "));
      } else if (line.starts_with("<!-- meta=")) {
        vector = {};
        const std::size_t key = line.find("\"type\""), begin = line.find('"', line.find(':', key)) + 1;
        vector.mode = line.substr(begin, line.find('"', begin) - begin);
        vector.paused = line.find("\"pause\"") != std::string::npos || line.find("\"skipBody\"") != std::string::npos;
      } else if (line == "```http") {
        block = &vector.input;
      } else if (line == "```log") {
        block = &vector.log;
      }
    }
  }
  return vectors;
}

/// The verdict of llhttp's log.
struct Expected {
  bool refused = false, upgraded = false;
  std::size_t complete = 0, target_bytes = 0, body_bytes = 0, fields = 0;
};

Expected expected_of(const std::string& log) {
  Expected expected;
  std::istringstream lines(log);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t bytes = line.find("len=") == std::string::npos ? 0 : std::strtoul(line.c_str() + line.find("len=") + 4, nullptr, 10);
    if (line.find("error code=") != std::string::npos) {
      expected.upgraded = line.find("code=22 ") != std::string::npos;
      expected.refused = line.find("code=21 ") == std::string::npos && !expected.upgraded;
    }
    if (line.find("message complete") != std::string::npos) ++expected.complete;
    if (line.find("span[url]") != std::string::npos) expected.target_bytes += bytes;
    if (line.find("span[body]") != std::string::npos) expected.body_bytes += bytes;
    if (line.find("header_field complete") != std::string::npos) ++expected.fields;
  }
  return expected;
}

std::size_t heads_in(const std::string& log) {
  std::size_t count = 0;
  for (std::size_t at = 0; (at = log.find("message begin", at)) != std::string::npos; ++at) ++count;
  return count;
}

std::string with_host(std::string input) {
  std::string lower = input;
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char letter) { return std::tolower(letter); });
  if (lower.find("\nhost:") == std::string::npos) replace_all(input, " HTTP/1.1\r\n", " HTTP/1.1\r\nHost: a\r\n");
  return input;
}

/// True also for bytes after a request that closes the connection: they are dropped.
bool is_refused(std::string_view input, const test::Outcome& outcome) {
  const std::string_view left = input.substr(input.size() - outcome.left);
  return outcome.refusal != Refusal::none || left.find_first_not_of("\r\n") != std::string_view::npos;
}

void expect_as_llhttp(const Vector& vector, const std::string& input, const test::Outcome& outcome) {
  const Expected expected = expected_of(vector.log);
  const auto rule = stricter.find(vector.name);
  if (rule != stricter.end()) {
    EXPECT_FALSE(expected.refused) << vector.name;
    EXPECT_EQ(static_cast<int>(outcome.refusal), static_cast<int>(rule->second)) << vector.name;
    return;
  }
  if (expected.upgraded) {  // llhttp stops there, because the bytes behind the request are not HTTP
    EXPECT_GE(outcome.complete(), expected.complete) << vector.name;
    return;
  }
  const bool refused = is_refused(input, outcome);
  EXPECT_EQ(refused, expected.refused) << vector.name << ": " << ParseError::of(outcome.refusal).text << "\n"
                                       << vector.input << "\n"
                                       << vector.log;
  if (expected.refused) return;
  std::size_t target_bytes = 0, body_bytes = 0, fields = 0;
  for (const test::Parsed& request : outcome.requests) {
    target_bytes += request.target.size();
    body_bytes += request.body.size();
    fields += request.fields.size() + request.trailers.size();
  }
  if (outcome.complete() == outcome.requests.size() && outcome.complete() == expected.complete && vector.input != with_host(vector.input)) {
    fields -= static_cast<std::size_t>(
        std::count_if(outcome.requests.begin(), outcome.requests.end(), [](const test::Parsed& request) { return request.minor == 1; }));
  }
  EXPECT_EQ(outcome.complete(), expected.complete) << vector.name << "\n" << vector.input << "\n" << vector.log;
  EXPECT_EQ(body_bytes, expected.body_bytes) << vector.name;
  if (outcome.complete() != outcome.requests.size() || outcome.requests.empty()) return;
  if (outcome.complete() != heads_in(vector.log)) return;  // llhttp's log has the begin of an incomplete head, too
  EXPECT_EQ(target_bytes, expected.target_bytes) << vector.name;
  EXPECT_EQ(fields, expected.fields) << vector.name;
}

TEST(LlhttpVectors, StrictModeIsAsLlhttpOrStricter) {
  unsigned count = 0;
  std::set<std::string> seen;
  for (const Vector& vector : read_vectors()) {
    if (vector.mode != "request" && vector.mode != "request-finish") continue;
    ++count;
    seen.insert(vector.name);
    const std::string input = with_host(vector.input);
    const test::Outcome whole = test::parse_whole(input), bytewise = test::parse_bytewise(input);
    EXPECT_EQ(static_cast<int>(whole.refusal), static_cast<int>(bytewise.refusal)) << vector.name;
    if (vector.paused) {
      EXPECT_EQ(static_cast<int>(whole.refusal), 0) << vector.name;
      continue;
    }
    expect_as_llhttp(vector, input, whole);
    expect_as_llhttp(vector, input, bytewise);
  }
  EXPECT_GT(count, 120U);
  for (const auto& [name, rule] : stricter) EXPECT_TRUE(seen.contains(name)) << name;
}

TEST(LlhttpVectors, LenientModesAreRefused) {
  unsigned count = 0;
  for (const Vector& vector : read_vectors()) {
    if (!vector.mode.starts_with("request-lenient")) continue;
    ++count;
    const std::string input = with_host(vector.input);
    const bool refused = is_refused(input, test::parse_whole(input));
    EXPECT_EQ(refused, is_refused(input, test::parse_bytewise(input))) << vector.name;
    EXPECT_EQ(refused, !valid_in_strict_mode.contains(vector.name)) << vector.name << "\n" << vector.input << "\n" << vector.log;
  }
  EXPECT_GT(count, 20U);
}

}  // namespace
}  // namespace neap::webserver::http
