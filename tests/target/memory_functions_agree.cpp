// SPDX-License-Identifier: BSL-1.0
// The image's memory functions (kernel/libc/memory_functions.cpp) agree with newlib's, which they replace. newlib's are linked under other
// names (CMakeLists.txt). The calls are indirect, because the compiler replaces direct ones by code of its own.
#include <algorithm>
#include <array>
#include <cstring>
#include <random>

#include "kernel/libc/memory_functions.hpp"
#include "tests/target/check.hpp"

extern "C" {
void* newlib_memcpy(void* __restrict to, const void* __restrict from, std::size_t bytes);
void* newlib_memmove(void* to, const void* from, std::size_t bytes);
void* newlib_memset(void* to, int value, std::size_t bytes);
int newlib_memcmp(const void* one, const void* other, std::size_t bytes);
void* newlib_memchr(const void* from, int value, std::size_t bytes);
}

namespace {

using namespace neap;
using test::check;
using test::hidden;

constexpr std::size_t area_bytes = 12'288, short_bytes_max = 300, long_bytes_max = 5000;
constexpr unsigned short_rounds = 5000, long_rounds = 500, seed = 20261124;

using Area = std::array<unsigned char, area_bytes>;
alignas(64) Area ours, theirs;

using Search = void* (*)(const void*, int, std::size_t);

int sign(int number) { return (number > 0) - (number < 0); }

/// One call of each function at random places. `variety`: how many values a byte has; with few, long runs of bytes are equal.
void compare_once(std::mt19937& random, std::size_t bytes_max, unsigned variety) {
  const std::size_t bytes = random() % (bytes_max + 1);
  const std::size_t from = random() % (area_bytes - bytes_max), to = random() % (area_bytes - bytes_max);
  const int value = static_cast<int>(random() % (2 * variety)) - static_cast<int>(variety);
  const std::uint64_t which = from << 32 | to << 16 | bytes;

  check(sign(hidden(&std::memcmp)(&ours[from], &ours[to], bytes)) == sign(newlib_memcmp(&theirs[from], &theirs[to], bytes)), "memcmp",
        which);
  const auto* const found = static_cast<const unsigned char*>(hidden<Search>(&std::memchr)(&ours[from], value, bytes));
  const auto* const wanted = static_cast<const unsigned char*>(newlib_memchr(&theirs[from], value, bytes));
  check((found == nullptr) == (wanted == nullptr) && (found == nullptr || found - ours.data() == wanted - theirs.data()), "memchr", which);

  switch (random() % 3) {
    case 0:
      if (from + bytes <= to || to + bytes <= from) {
        check(hidden(&std::memcpy)(&ours[to], &ours[from], bytes) == &ours[to], "memcpy returns its first argument", which);
        newlib_memcpy(&theirs[to], &theirs[from], bytes);
      }
      break;
    case 1:
      check(hidden(&std::memmove)(&ours[to], &ours[from], bytes) == &ours[to], "memmove returns its first argument", which);
      newlib_memmove(&theirs[to], &theirs[from], bytes);
      break;
    default:
      check(hidden(&std::memset)(&ours[to], value, bytes) == &ours[to], "memset returns its first argument", which);
      newlib_memset(&theirs[to], value, bytes);
  }
  // All bytes, so that a byte written beside the area is seen, too. A plain loop, because these functions are what is tested.
  for (std::size_t at = 0; at<area_bytes; at += bytes_max> short_bytes_max ? 1 : 3) check(ours[at] == theirs[at], "the same bytes", which);
}

void compare_all(const char* name) {
  std::mt19937 random(seed);
  for (std::size_t at = 0; at < area_bytes; ++at) ours[at] = theirs[at] = static_cast<unsigned char>(random());
  for (const unsigned variety : {2U, 256U}) {
    for (unsigned round = 0; round < short_rounds; ++round) compare_once(random, short_bytes_max, variety);
    for (unsigned round = 0; round < long_rounds; ++round) compare_once(random, long_bytes_max, variety);
  }
  check(std::equal(ours.begin(), ours.end(), theirs.begin()), "the same bytes at the end");
  print("memory functions agree, ", name);
}

}  // namespace

neap::task<int> neap::application(Arguments& /*arguments*/) {
  const bool before = libc::fast_string_instructions;
  libc::fast_string_instructions = false;
  compare_all("vectors");
  libc::fast_string_instructions = true;  // any x86-64 CPU has REP; without ERMS it is only slow
  compare_all("string instructions");
  libc::fast_string_instructions = before;
  co_return 0;
}
