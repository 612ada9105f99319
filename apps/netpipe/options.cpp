// SPDX-License-Identifier: BSL-1.0
#include "apps/netpipe/options.hpp"

namespace neap::netpipe {

Options Options::from_words(Arguments& arguments, const Options& otherwise) {
  const auto size = [&](std::string_view key, std::uint32_t value, std::uint64_t min, std::uint32_t max, std::string_view help) {
    return static_cast<std::uint32_t>(arguments.bytes(key, value, {min, max}, help));
  };
  Options options;
  options.stream = arguments.flag("stream", otherwise.stream, "messages go one way only, a new connection for each trial (NPtcp -s)");
  options.bidirectional = arguments.flag("bidirectional", otherwise.bidirectional, "both sides send at the same time (NPtcp -2)");
  options.integrity = arguments.flag("integrity", otherwise.integrity, "contents are checked, nothing is measured (NPtcp -i)");
  options.reset = arguments.flag("reset", otherwise.reset, "a new connection for each trial (NPtcp -r)");
  // With integrity checks, NetPIPE's smallest message is one 32-bit word and one byte.
  const bool checked_now = options.integrity && !otherwise.integrity;
  const std::uint32_t from_otherwise = checked_now && otherwise.from == 1 ? 5 : otherwise.from;
  const std::uint32_t perturbation_otherwise = checked_now ? 0 : otherwise.perturbation;
  options.from = size("from", from_otherwise, 1, bytes_max, "bytes of the smallest message (NPtcp -l)");
  options.to = size("to", otherwise.to, 1, bytes_max, "bytes of the largest message (NPtcp -u)");
  options.perturbation = size("perturbation", perturbation_otherwise, 0, perturbation_max,
                              "bytes below and above each size that are measured too, 0 for none (NPtcp -p)");
  options.repeats = static_cast<std::uint32_t>(
      arguments.number("repeats", otherwise.repeats, {0, repeats_max}, "messages a trial, 0 for as many as take 0.1 s (NPtcp -n)"));
  if (options.stream && options.bidirectional) arguments.reject("bidirectional", "not together with stream=on");
  if (options.from > options.to) arguments.reject("to", "less than from");
  return options;
}

ClientOptions client_options(Arguments& arguments, const Options& otherwise, unsigned cores, unsigned core_otherwise) {
  ClientOptions options;
  options.measured = Options::from_words(arguments, otherwise);
  const std::string peer = arguments.text("peer", "", "the peer of a client: A.B.C.D:PORT or [IPV6]:PORT");
  if (const auto parsed = net::Endpoint::parse(peer)) {
    options.peer = *parsed;
  } else {
    arguments.reject("peer", "not A.B.C.D:PORT or [IPV6]:PORT");
  }
  options.core = static_cast<unsigned>(arguments.number("core", core_otherwise, {0, cores - 1}, "the core that measures as a client"));
  options.wait = arguments.duration("wait", std::chrono::nanoseconds(0), "how long to retry while the peer does not listen yet");
  if (options.wait > std::chrono::hours(1)) arguments.reject("wait", "more than an hour");
  return options;
}

}  // namespace neap::netpipe
