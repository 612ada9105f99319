// SPDX-License-Identifier: BSL-1.0
// A fuzzer of the request parser. One input is a client's bytes.
//
// Three properties are checked. The result does not depend on how the bytes are cut into pieces. An accepted request that is written again
// in the plainest form is accepted with the same meaning, so no part of it was understood in an unusual way. No accepted text has a
// character that could end a line.
//
// With clang the fuzzer is a libFuzzer target (-DNEAP_LIBFUZZER=ON). With any other compiler its `main` generates inputs:
// `fuzz_http_parser [SECONDS] [SEED]`.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "apps/webserver/fuzz_http_requests.hpp"
#include "apps/webserver/http/test_parsing.hpp"

namespace neap::webserver::http {
namespace {

using test::Outcome;
using test::Parsed;

[[noreturn]] void fail(const char* property, std::string_view input) {
  std::fprintf(stderr, "%s:\n%s\n", property, fuzzing::printable(input).c_str());
  std::abort();
}

/// With two reasons to refuse a request, the sizes of the pieces decide which one is found first.
unsigned same_status(Refusal refusal) { return refusal == Refusal::none ? 0 : 400; }

void compare(const Outcome& one, const Outcome& other, std::string_view input) {
  if (same_status(one.refusal) != same_status(other.refusal)) fail("accepted or refused by the pieces' sizes", input);
  if (one.complete() != other.complete() || one.requests.size() != other.requests.size()) fail("the number of requests", input);
  for (std::size_t at = 0; at < one.requests.size(); ++at) {
    const bool whole = at < one.complete() || one.refusal == Refusal::none;
    Parsed left = one.requests[at], right = other.requests[at];
    if (!whole) left.body = right.body = "";  // a body that is refused later is passed on in pieces of other sizes
    if (left != right) fail("a request's meaning", input);
  }
}

std::string plain(const Parsed& request) {
  std::string text = request.method + " " + request.target + " HTTP/1." + std::to_string(request.minor) + "\r\n";
  bool chunked = false;
  for (const auto& [name, value] : request.fields) {
    text += name + ": " + value + "\r\n";
    chunked = chunked || equal_ignoring_case(name, "transfer-encoding");
  }
  text += "\r\n";
  if (!chunked) return text + request.body;
  if (!request.body.empty()) {
    char size[24];
    std::snprintf(size, sizeof size, "%zx\r\n", request.body.size());
    text += size + request.body + "\r\n";
  }
  text += "0\r\n";
  for (const auto& [name, value] : request.trailers) text += name + ": " + value + "\r\n";
  return text + "\r\n";
}

void check_text(const Parsed& request, std::string_view input) {
  for (const test::Pairs* pairs : {&request.fields, &request.trailers}) {
    for (const auto& [name, value] : *pairs) {
      if (!valid_header_name(name) || !valid_header_value(value)) fail("a field's characters", input);
      if (value.starts_with(' ') || value.ends_with(' ') || value.ends_with('\t')) fail("white space around a value", input);
    }
  }
  for (const char letter : request.target) {
    if (letter <= ' ' || letter >= 0x7F || letter == '#') fail("a target's characters", input);
  }
}

void check(std::string_view input, std::uint32_t selection) {
  const Outcome whole = test::parse_whole(input);
  fuzzing::Pieces pieces(selection | 1);
  std::string_view left = input;
  compare(whole, test::parse_all(input, [&](std::size_t) { return pieces.take(left).size(); }), input);
  if (input.size() < 300) compare(whole, test::parse_bytewise(input), input);
  for (std::size_t at = 0; at < whole.complete(); ++at) {
    const Parsed& request = whole.requests[at];
    check_text(request, input);
    const Outcome again = test::parse_whole(plain(request), {.head_bytes_max = 65'535});
    if (again.complete() != 1 || again.refusal != Refusal::none || again.left != 0) fail("the plain form is refused", input);
    if (again.requests[0] != request) fail("the plain form has another meaning", input);
  }
}

}  // namespace
}  // namespace neap::webserver::http

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return neap::fuzzing::check_divided(data, size, neap::webserver::http::check);
}

#ifndef NEAP_LIBFUZZER

namespace {

struct InputGenerator : neap::webserver::fuzz::RequestGenerator {
  using RequestGenerator::RequestGenerator;
  std::string stream() {
    std::string text = any(4);
    for (unsigned requests = 1 + below(3); requests > 0; --requests) text += request();
    return below(3) == 0 ? damaged(std::move(text)) : text;
  }
};

}  // namespace

int main(int count, char** words) { return neap::fuzzing::run<InputGenerator>("fuzz_http_parser", count, words); }

#endif
