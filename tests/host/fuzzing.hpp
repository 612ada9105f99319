// SPDX-License-Identifier: BSL-1.0
// The driver of a fuzzer where there is no libFuzzer: inputs made up from a grammar, for so long.
//
// Every input has a number and is made from it and the seed alone. Progress says the numbers, so that a crash lies within the next
// thousand, and the same seed meets it again.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>

#include "tests/host/progress_watchdog.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace neap::fuzzing {

/// What an inventor of inputs stands on. It has `std::string stream()`, which gives one input: four bytes that say how it is cut, then what
/// a client sends.
class Inventor {
 public:
  explicit Inventor(std::uint64_t seed) : random_(seed) {}

 protected:
  unsigned below(unsigned end) { return static_cast<unsigned>(random_() % end); }
  std::uint64_t bits() { return random_(); }
  std::string any(std::size_t bytes) {
    std::string text(bytes, '\0');
    for (char& letter : text) letter = static_cast<char>(random_());
    return text;
  }
  /// Now and then changes a byte behind the first four, or cuts the end off.
  std::string damaged(std::string text) {
    if (below(4) == 0) text[4 + below(static_cast<unsigned>(text.size() - 4))] = static_cast<char>(random_());
    if (below(4) == 0) text.resize(text.size() - below(static_cast<unsigned>(text.size() - 4)));
    return text;
  }

 private:
  std::mt19937_64 random_;
};

/// A `main`: `NAME [SECONDS] [SEED]`.
template <class Own>
int run(const char* name, int count, char** words) {
  const double seconds = count > 1 ? std::atof(words[1]) : 10;
  const unsigned long long seed = count > 2 ? std::strtoull(words[2], nullptr, 10) : 1;
  const auto start = std::chrono::steady_clock::now();
  const auto spent = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
  unsigned long long streams = 0, bytes = 0;
  host::WatchedWork work(std::string("a stream of ") + name);
  for (; spent() < seconds; ++streams) {
    if (streams % 1000 == 0) std::fprintf(stderr, "%s: from stream %llu of seed %llu\n", name, streams, seed);
    const std::string stream = Own(seed * 1'000'003 + streams).stream();
    work.begin_piece();
    LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(stream.data()), stream.size());
    work.rest();
    bytes += stream.size();
  }
  std::printf("%s: %llu streams, %llu bytes, in %.1f s\n", name, streams, bytes, spent());
  return 0;
}

}  // namespace neap::fuzzing
