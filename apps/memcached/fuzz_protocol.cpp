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

#include "apps/memcached/fuzz_requests.hpp"
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
  // These two statistics, and the refusal of a long answer behind other requests, depend on how the stream is split.
  for (const char* depends : {"held_bytes", "total_malloced", "ERROR cannot pipeline"}) {
    if (whole.answer.find(depends) != std::string::npos || in_pieces.answer.find(depends) != std::string::npos) return;
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

class InputGenerator : public neap::fuzzing::RequestGenerator {
 public:
  using neap::fuzzing::RequestGenerator::RequestGenerator;

  std::string stream() {
    std::string text = any(4);
    const bool binary = below(2) == 0;
    for (unsigned requests = 1 + below(40); requests-- > 0;) {
      const unsigned kind = below(12);
      text += binary ? binary_request() : kind == 0 ? operation() : kind < 5 ? meta_request() : text_request();
    }
    return damaged(std::move(text));
  }
};

}  // namespace

int main(int count, char** words) { return neap::fuzzing::run<InputGenerator>("fuzz_memcached", count, words); }

#endif
