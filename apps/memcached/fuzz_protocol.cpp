// SPDX-License-Identifier: BSL-1.0
// A fuzzer of both parsers and the store under them.
//
// One input is one client's stream and the way in which it is split into pieces. The stream is played twice, split and in one piece. Both
// runs must give the same reply, no access may be out of bounds (build the fuzzer with the sanitizers), and no memory may leak.
//
// With clang the fuzzer is a libFuzzer target (-DNEAP_LIBFUZZER=ON). With any other compiler its `main` generates inputs from the grammars
// of the two protocols: `fuzz_memcached [SECONDS] [SEED]`.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "apps/memcached/test_server.hpp"
#include "tests/host/fuzzing.hpp"

namespace neap::memcached {
namespace {

constexpr std::size_t answer_bytes_max = 64 << 20;  // an input may ask for a large value very often

struct Played {
  std::string answer;
  bool closing;
};

Played play(std::string_view stream, std::uint32_t cuts, std::size_t memory_bytes) {
  test::clock_ns = 0;
  StoreOptions options = test::small_store();
  options.memory_bytes = memory_bytes;
  options.value_bytes_max = 1 << 17;
  test::Server server(options);
  Played played;
  {
    test::Client client(server);
    fuzzing::Pieces pieces(cuts);
    while (!stream.empty() && played.answer.size() < answer_bytes_max) played.answer += client.talk(pieces.take(stream));
    played.closing = client.conversation.closing();
  }
  if (server.store.used_bytes() != server.store.counters().bytes || server.store.held_bytes() != 0) {
    std::fprintf(stderr, "memory is not accounted for\n");
    std::abort();
  }
  return played;
}

/// Returns some bytes around `at`, in printable form.
std::string show(std::string_view text, std::size_t at) {
  return fuzzing::printable(text.substr(at < 60 ? 0 : at - 60, 120)) + " (of " + std::to_string(text.size()) + " bytes)";
}

void check(std::string_view stream, std::uint32_t cuts) {
  // This run evicts items. Which items it evicts depends on the replies in flight, and these depend on the split. So it is not compared.
  (void)play(stream, cuts, 1 << 18);
  const Played whole = play(stream, 0, std::size_t{1} << 30);
  const Played in_pieces = play(stream, cuts | 1, std::size_t{1} << 30);
  if (whole.answer == in_pieces.answer && whole.closing == in_pieces.closing) return;
  if (whole.answer.size() >= answer_bytes_max || in_pieces.answer.size() >= answer_bytes_max) return;
  for (const char* depends : {"held_bytes", "total_malloced"}) {  // these two statistics depend on how the stream is split
    if (whole.answer.find(depends) != std::string::npos) return;
  }
  const auto differs = std::mismatch(whole.answer.begin(), whole.answer.end(), in_pieces.answer.begin(), in_pieces.answer.end());
  const auto at = static_cast<std::size_t>(differs.first - whole.answer.begin());
  std::fprintf(stderr, "the answer depends on how the request was cut: equal up to byte %zu, then\n  %s\nand\n  %s\n", at,
               show(whole.answer, at).c_str(), show(in_pieces.answer, at).c_str());
  std::abort();
}

}  // namespace
}  // namespace neap::memcached

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return neap::fuzzing::check_divided(data, size, &neap::memcached::check);
}

#ifndef NEAP_LIBFUZZER

namespace {

class InputGenerator : public neap::fuzzing::InputGenerator {
 public:
  using neap::fuzzing::InputGenerator::InputGenerator;

  std::string key() {
    const unsigned kind = below(20);
    if (kind == 0) return std::string(250 + below(3), 'k');
    if (kind == 1) return any(1 + below(20));
    return kind == 2 ? "" : std::string(1, static_cast<char>('a' + below(6)));
  }
  std::string number() {
    static const char* const numbers[] = {"0", "1",  "5",  "-1", "2592001", "4294967296", "18446744073709551615", "18446744073709551616",
                                          "x", "1x", "+3", ""};
    return below(2) == 0 ? std::to_string(below(3000)) : numbers[below(12)];
  }
  std::string value() {
    const unsigned kind = below(12);
    if (kind == 0) return std::string(below(200'000), 'v');
    if (kind == 1) return std::string(1000 + below(60), 'v');
    if (kind == 2) return any(below(300));
    return kind == 3 ? number() : std::string(below(40), 'v');
  }

  std::string text_request() {
    static const char* const stores[] = {"set", "add", "replace", "append", "prepend", "cas"};
    static const char* const others[] = {"delete", "incr", "decr", "touch", "flush_all", "verbosity", "stats", "version",
                                         "get",    "gets", "gat",  "gats",  "bget",      "GET",       "mn",    "quit"};
    std::string line;
    if (below(3) == 0) return meta_request();
    if (below(2) == 0) {
      const std::string value = this->value();
      line = std::string(stores[below(6)]) + blank() + key() + blank() + number() + blank() + (below(3) == 0 ? number() : "0") + blank() +
             (below(20) == 0 ? number() : std::to_string(value.size()));
      if (below(6) == 0) line += blank() + number();
      if (below(6) == 0) line += " noreply";
      return line + end() + value + (below(30) == 0 ? any(2) : "\r\n");
    }
    const unsigned verb = below(30);
    line = verb < 16 ? others[verb] : "get";
    if (verb == 15 && below(8) != 0) line = "stats items";
    for (unsigned words = below(below(30) == 0 ? 400 : 5); words-- > 0;) line += blank() + (below(3) == 0 ? number() : key());
    if (below(8) == 0) line += " noreply";
    if (below(300) == 0) line += std::string(below(5000), 'z');
    return line + end();
  }

  std::string flag() {
    static const char* const tokens[] = {"", "", "0", "1", "30", "-1", "7", "E", "A", "MA", "18446744073709551615"};
    static constexpr std::string_view plain = "bcfhkqstuvvkIx", with_token = "ENRTCFOMJDPL";
    const unsigned kind = below(40);
    if (kind == 0) return any(1 + below(3));
    if (kind == 1) return "O" + std::string(28 + below(6), 'o');
    if (kind < 24) return std::string(1, plain[below(plain.size())]);
    const std::string letter(1, with_token[below(with_token.size())]);
    return letter + (letter == "M" ? std::string(1, "EAPRSID+-X"[below(10)]) : tokens[below(11)]);
  }
  std::string meta_request() {
    static const char* const commands[] = {"mg", "mg", "mg", "ms", "ms", "ms", "md", "ma", "me", "mn"};
    const std::string command = commands[below(10)];
    static const char* const binary_keys[] = {"Zg==", "Zm9v", "AGEgCg==", "/w=="};
    const bool is_binary = below(6) == 0;
    std::string line = command + blank() + (is_binary ? binary_keys[below(4)] : key());
    const std::string value = below(3) == 0 ? number() : this->value();
    if (command == "ms") line += blank() + (below(20) == 0 ? number() : std::to_string(value.size()));
    if (is_binary) line += " b";
    for (unsigned flags = below(below(20) == 0 ? 22 : 6); flags-- > 0;) line += blank() + flag();
    line += end();
    return command == "ms" ? line + value + (below(30) == 0 ? any(2) : "\r\n") : line;
  }

  std::string binary_request() {
    const auto opcode = static_cast<char>(below(40));
    std::string extras, key = this->key(), value = below(2) == 0 ? this->value() : "";
    static constexpr unsigned usual_bytes[] = {4, 20, 0, 8};
    extras = below(5) == 0 ? any(below(24)) : std::string(usual_bytes[below(4)], '\0');
    if (below(3) == 0) value.clear();
    std::size_t body = extras.size() + key.size() + value.size();
    if (below(40) == 0) body = below(100'000);
    std::string header = "\x80";
    header += opcode;
    header += static_cast<char>(key.size() >> 8);
    header += static_cast<char>(key.size());
    header += static_cast<char>(extras.size());
    header += '\0';
    header += any(2);
    for (int shift = 24; shift >= 0; shift -= 8) header += static_cast<char>(body >> shift);
    header += any(4);
    header += below(4) == 0 ? std::string(7, '\0') + static_cast<char>(below(30)) : std::string(8, '\0');
    return header + extras + key + value;
  }

  std::string stream() {
    std::string text = any(4);
    const bool binary = below(2) == 0;
    for (unsigned requests = 1 + below(40); requests-- > 0;) text += binary ? binary_request() : text_request();
    return damaged(std::move(text));
  }

 private:
  std::string blank() { return below(20) == 0 ? "  " : " "; }
  std::string end() { return below(20) == 0 ? "\n" : below(40) == 0 ? std::string("\0\r\n", 3) : "\r\n"; }
};

}  // namespace

int main(int count, char** words) { return neap::fuzzing::run<InputGenerator>("fuzz_memcached", count, words); }

#endif
