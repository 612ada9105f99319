// SPDX-License-Identifier: BSL-1.0
// For tests and fuzzers: parses a client's bytes, cut into pieces, and collects what the parser reports.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "apps/webserver/http/request_parser.hpp"

namespace neap::webserver::http::test {

using Pairs = std::vector<std::pair<std::string, std::string>>;

struct Parsed {
  std::string method, target;
  unsigned minor = 0;
  Pairs fields, trailers;
  std::string body;
  bool has_body = false, keep_alive = false, expects_continue = false, complete = false;
  friend bool operator==(const Parsed&, const Parsed&) = default;
};

struct Outcome {
  std::vector<Parsed> requests;  ///< the last one may be incomplete
  Refusal refusal = Refusal::none;
  std::size_t left = 0;  ///< bytes behind the last consumed one
  [[nodiscard]] unsigned status() const { return refusal == Refusal::none ? 200 : ParseError::of(refusal).status; }
  [[nodiscard]] std::size_t complete() const { return requests.size() - (!requests.empty() && !requests.back().complete ? 1 : 0); }
};

inline Pairs copied(std::span<const HeaderField> fields) {
  Pairs pairs;
  for (const HeaderField& field : fields) pairs.emplace_back(field.name, field.value);
  return pairs;
}

/// Parses all requests in `input`, up to one after which the connection would be closed. `cut(left)` returns the size of the next piece.
/// Each piece is a block of exactly its size, so that the address sanitizer sees each read behind it.
template <class Cut>
Outcome parse_all(std::string_view input, Cut cut, const ParserLimits& limits = {}) {
  Outcome outcome;
  const auto parser = std::make_unique<RequestParser>();
  parser->begin(limits);
  bool in_request = false;
  while (!input.empty()) {
    const std::size_t bytes = std::min(input.size(), std::max<std::size_t>(1, cut(input.size())));
    const std::unique_ptr<std::byte[]> piece(new std::byte[bytes]);
    std::memcpy(piece.get(), input.data(), bytes);
    std::size_t at = 0;
    for (bool more = true; more;) {
      const RequestParser::Step step = parser->parse(std::span<const std::byte>(piece.get() + at, bytes - at));
      at += step.consumed;
      switch (step.event) {
        case RequestParser::Event::more:
          more = at != bytes;
          if (more && step.consumed == 0) std::abort();
          break;
        case RequestParser::Event::head: {
          in_request = true;
          Parsed parsed;
          parsed.method = method_name(parser->method());
          parsed.target = parser->target();
          parsed.minor = parser->minor_version();
          parsed.fields = copied(parser->fields());
          parsed.has_body = parser->has_body();
          parsed.keep_alive = parser->keep_alive();
          parsed.expects_continue = parser->expects_continue();
          outcome.requests.push_back(std::move(parsed));
          break;
        }
        case RequestParser::Event::body:
          if (!in_request || parser->piece().empty()) std::abort();
          outcome.requests.back().body.append(reinterpret_cast<const char*>(parser->piece().data()), parser->piece().size());
          break;
        case RequestParser::Event::end:
          outcome.requests.back().complete = true;
          outcome.requests.back().trailers = copied(parser->trailers());
          in_request = false;
          if (!parser->keep_alive()) {
            outcome.left = input.size() - at;
            return outcome;
          }
          parser->begin(limits);
          more = at != bytes;
          break;
        case RequestParser::Event::error:
          outcome.refusal = parser->refusal();
          outcome.left = input.size() - at;
          return outcome;
      }
    }
    input.remove_prefix(bytes);
  }
  return outcome;
}

inline Outcome parse_whole(std::string_view input, const ParserLimits& limits = {}) {
  return parse_all(input, [](std::size_t left) { return left; }, limits);
}
inline Outcome parse_bytewise(std::string_view input, const ParserLimits& limits = {}) {
  return parse_all(input, [](std::size_t) { return 1; }, limits);
}

}  // namespace neap::webserver::http::test
