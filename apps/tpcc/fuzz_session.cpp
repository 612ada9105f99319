// SPDX-License-Identifier: BSL-1.0
// A fuzzer of the session: random commands in random pieces, with clients that read late or not at all.
//
// Properties: each whole command has its reply, in order and of a known form; the bytes in flight stay below their bound; the replies do
// not depend on the pieces in which the requests arrive. Usage: `fuzz_tpcc_session [SECONDS] [SEED]`.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <string_view>

#include "apps/tpcc/test_peer.hpp"

namespace {

using namespace neap;
using namespace neap::tpcc;

[[noreturn]] void fail(std::string_view what, std::string_view input, std::string_view output) {
  std::fprintf(stderr, "fuzz_tpcc_session: %.*s\ninput: %.*s\noutput: %.*s\n", static_cast<int>(what.size()), what.data(),
               static_cast<int>(input.size()), input.data(), static_cast<int>(output.size()), output.data());
  std::abort();
}

class Requests {
 public:
  explicit Requests(std::mt19937_64& random) : random_(random) {}

  std::string make() {
    std::string text;
    for (std::size_t i = below(30); i != 0; --i) text += command();
    for (std::size_t i = below(4) == 0 ? below(8) : 0; i != 0 && !text.empty(); --i)
      text[below(text.size())] = static_cast<char>(random_());
    return text;
  }
  std::size_t below(std::size_t end) { return random_() % end; }

 private:
  std::string key() { return std::string(below(20) == 0 ? 245 + below(10) : 1 + below(12), static_cast<char>('a' + below(26))); }
  std::string command() {
    switch (below(12)) {
      case 0:
        return "version\r\n";
      case 1:
        return "stats\r\n";
      case 2:
        return "verbosity " + std::to_string(below(3)) + (below(2) != 0 ? " noreply\r\n" : "\r\n");
      case 3:
        return std::string(below(3) == 0 ? 2040 + below(20) : below(100), 'z') + "\r\n";
      case 4:
        return below(10) == 0 ? "quit\r\n" : "stats settings\r\n";
      case 5:
      case 6: {
        const std::size_t bytes = below(3000);
        return "set " + key() + " 0 0 " + std::to_string(bytes) + (below(3) == 0 ? " noreply" : "") + "\r\n" + std::string(bytes, 'v') +
               (below(8) == 0 ? "x" : "\r\n");
      }
      default: {
        std::string text = below(4) == 0 ? "gets" : "get";
        for (std::size_t i = 1 + below(6); i != 0; --i) text += ' ' + key();
        return text + (below(4) == 0 ? "\n" : "\r\n");
      }
    }
  }
  std::mt19937_64& random_;
};

/// Checks that the replies are whole and of known forms. The last one MAY be incomplete if `ended`.
void check_form(std::string_view input, std::string_view output) {
  std::string_view rest = output;
  while (!rest.empty()) {
    const std::size_t end = rest.find("\r\n");
    if (end == rest.npos) fail("a reply has no end", input, output);
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end + 2);
    if (line.starts_with("VALUE ")) {
      const std::size_t key_end = line.find(' ', 6);  // the key may be "0", too
      if (key_end == line.npos || line.substr(key_end, 3) != " 0 ") fail("a value without a size", input, output);
      const auto bytes = std::strtoul(std::string(line.substr(key_end + 3)).c_str(), nullptr, 10);
      if (rest.substr(bytes, 2) != "\r\n") fail("a value without an end", input, output);
      rest.remove_prefix(bytes + 2);
      continue;
    }
    constexpr std::string_view forms[] = {"END", "STORED", "OK", "VERSION ", "STAT ", "ERROR", "CLIENT_ERROR ", "SERVER_ERROR "};
    if (std::ranges::none_of(forms, [&](std::string_view form) { return line.starts_with(form); })) fail("an unknown reply", input, output);
  }
}

std::string play(const std::string& input, std::mt19937_64& random, bool in_pieces, bool reads, std::size_t text_bytes) {
  tpcc::Options options;
  options.requests_per_event = 1'000'000;
  test::Server server(options);
  server.terminal->text_bytes = text_bytes;
  test::Peer peer(server);
  std::string output;
  for (std::size_t at = 0; at < input.size() && !peer.connection.closed && !peer.connection.aborted;) {
    const std::size_t bytes = in_pieces ? std::min(input.size() - at, 1 + random() % (random() % 4 == 0 ? 3000 : 20)) : input.size() - at;
    peer.send(std::string_view(input).substr(at, bytes));
    at += bytes;
    if (peer.connection.unacknowledged() > Session::in_flight_bytes_max + CoreState::output_bytes) fail("too much in flight", input, {});
    if (reads && random() % 3 == 0) output += peer.read_all();
  }
  output += peer.read_all();
  if (peer.connection.aborted) fail("the connection was reset", input, output);
  return output;
}

/// The replies without the counters, which depend on the pieces.
std::string without_statistics(std::string_view text) {
  std::string kept;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, std::min(text.find('\n'), text.size() - 1) + 1);
    text.remove_prefix(line.size());
    if (!line.starts_with("STAT ")) kept += line;
  }
  return kept;
}

}  // namespace

int main(int count, char** words) {
  const double seconds = count > 1 ? std::atof(words[1]) : 10;
  const std::uint64_t seed = count > 2 ? std::strtoull(words[2], nullptr, 10) : std::random_device{}();
  std::printf("fuzz_tpcc_session: seed %llu\n", static_cast<unsigned long long>(seed));
  std::mt19937_64 random(seed);
  Requests requests(random);
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  unsigned long rounds = 0;
  for (; std::chrono::steady_clock::now() < end; ++rounds) {
    const std::string input = requests.make();
    const std::size_t text_bytes = requests.below(4) == 0 ? answer_bytes_max : requests.below(100);
    const std::string whole = play(input, random, false, true, text_bytes),
                      pieces = play(input, random, true, requests.below(2) != 0, text_bytes);
    check_form(input, whole);
    check_form(input, pieces);
    if (without_statistics(whole) != without_statistics(pieces)) fail("the replies depend on the pieces", input, pieces);
  }
  std::printf("fuzz_tpcc_session: %lu rounds\n", rounds);
  return 0;
}
