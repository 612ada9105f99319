// SPDX-License-Identifier: BSL-1.0
// Runs a fuzz target without libFuzzer: generates inputs from a grammar for a given time.
//
// Each input depends only on its number and the seed, so a run with the same seed repeats a crash. Before every thousandth input, the run
// prints the input's number. An input that crashes is one of the thousand from the last printed number on.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "tests/host/progress_watchdog.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace neap::fuzzing {

/// The base of a generator. The derived class has `std::string stream()`, which returns one input. The first four bytes of an input select
/// how the other bytes are cut into pieces. The other bytes are a client's data.
class InputGenerator {
 public:
  explicit InputGenerator(std::uint64_t seed) : state_(mixed(seed)) {}

 protected:
  unsigned below(unsigned end) { return static_cast<unsigned>(bits() % end); }
  /// SplitMix64. A generator serves one short input, so the generators of the C++ library take longer to set up than to run.
  std::uint64_t bits() { return mixed(state_ += 0x9E3779B97F4A7C15); }
  std::string any(std::size_t bytes) {
    std::string text(bytes, '\0');
    for (std::size_t at = 0; at < bytes; at += sizeof(std::uint64_t)) {
      const std::uint64_t eight = bits();
      std::memcpy(text.data() + at, &eight, std::min(sizeof eight, bytes - at));
    }
    return text;
  }
  /// Returns the text, sometimes with a changed byte after the first four, and sometimes without its end.
  std::string damaged(std::string text) {
    if (below(4) == 0) text[4 + below(static_cast<unsigned>(text.size() - 4))] = static_cast<char>(bits());
    if (below(4) == 0) text.resize(text.size() - below(static_cast<unsigned>(text.size() - 4)));
    return text;
  }

 private:
  static std::uint64_t mixed(std::uint64_t value) {
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9;
    value = (value ^ value >> 27) * 0x94D049BB133111EB;
    return value ^ value >> 31;
  }
  std::uint64_t state_;
};

/// Generates at least `least` random bytes, mostly at most `least + usual`, sometimes up to `least + most`.
template <unsigned least, unsigned usual, unsigned most>
struct AnyBytes : InputGenerator {
  using InputGenerator::InputGenerator;
  std::string stream() { return any(least + below(below(4) == 0 ? most : usual)); }
};

/// Divides a stream into pieces. The first four bytes of an input select the sizes of the pieces.
class Pieces {
 public:
  /// `selection`: 0 for one piece.
  explicit Pieces(std::uint32_t selection) : state_(selection) {}
  /// Removes the next piece from the front of `stream`.
  std::string_view take(std::string_view& stream) {
    std::size_t bytes = stream.size();
    if (state_ != 0) {
      state_ = state_ * 1664525 + 1013904223;
      bytes = 1 + (state_ >> 8) % ((state_ & 3) == 0 ? 3 : (state_ & 3) == 1 ? 40 : 3000);
    }
    const std::string_view piece = stream.substr(0, bytes);
    stream.remove_prefix(piece.size());
    return piece;
  }

 private:
  std::uint32_t state_;
};

/// Splits an input into `selection` (its first four bytes) and `stream` (the others), and calls `check(stream, selection)`. `check` cuts
/// the stream into pieces, whose sizes depend on `selection`.
template <class Check>
int check_divided(const std::uint8_t* data, std::size_t size, Check check) {
  std::uint32_t selection = 0;
  if (size < sizeof selection) return 0;
  std::memcpy(&selection, data, sizeof selection);
  check({reinterpret_cast<const char*>(data) + sizeof selection, size - sizeof selection}, selection);
  return 0;
}

/// Returns `text` for a failure's message: bytes that are not printable ASCII become `\x..`.
inline std::string printable(std::string_view text) {
  std::string shown;
  for (const char letter : text) {
    char hex[8];
    std::snprintf(hex, sizeof hex, letter >= ' ' && letter <= '~' ? "%c" : "\\x%02x", static_cast<unsigned char>(letter));
    shown += hex;
  }
  return shown;
}

/// Seeds that follow each other share no input, however long a run is.
constexpr unsigned long long streams_of_seed = 1'000'000'000'039;

/// The `main` of a fuzzer: `NAME [SECONDS] [SEED]`.
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
    const std::string stream = Own(seed * streams_of_seed + streams).stream();
    work.begin_piece();
    LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(stream.data()), stream.size());
    work.end_piece();
    bytes += stream.size();
  }
  std::printf("%s: %llu streams, %llu bytes, in %.1f s\n", name, streams, bytes, spent());
  return 0;
}

}  // namespace neap::fuzzing
