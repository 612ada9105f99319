// SPDX-License-Identifier: BSL-1.0
#include "apps/tpcc/random.hpp"

#include <cstring>
#include <string_view>

#include "kernel/panic.hpp"

namespace neap::tpcc {
namespace {

constexpr std::string_view syllables[10] = {"BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING"};
constexpr std::string_view letters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
constexpr std::string_view digits = letters.substr(0, 10);

std::uint32_t random_text(Random& random, std::string_view alphabet, std::uint32_t shortest, std::uint32_t longest,
                          std::span<char> to) noexcept {
  require(shortest <= longest && longest <= to.size(), "a random text fits its column", longest);
  const std::uint32_t count = random.between(shortest, longest);
  // One random word gives four characters: the loader makes 1,000 characters for each customer.
  std::uint64_t bits = 0;
  for (std::uint32_t at = 0; at < count; ++at) {
    if (at % 4 == 0) bits = random.bits();
    to[at] = alphabet[(bits & 0xffff) * alphabet.size() >> 16];
    bits >>= 16;
  }
  std::memset(to.data() + count, 0, to.size() - count);
  return count;
}

/// Numbers of the sequences of constants, apart from those of the loader.
constexpr std::uint64_t load_part = 0x10ad, run_part = 0x4e0;

}  // namespace

NurandConstants NurandConstants::for_load(std::uint64_t seed) noexcept {
  Random random(seed, load_part);
  NurandConstants constants;
  constants.last_name = random.between(0, 255);
  constants.customer = random.between(0, 1023);
  constants.item = random.between(0, 8191);
  return constants;
}

NurandConstants NurandConstants::for_run(std::uint64_t seed) noexcept {
  const std::uint32_t loaded = for_load(seed).last_name;
  Random random(seed, run_part);
  NurandConstants constants;
  std::uint32_t distance;
  do {
    constants.last_name = random.between(0, 255);
    distance = constants.last_name > loaded ? constants.last_name - loaded : loaded - constants.last_name;
  } while (distance < 65 || distance > 119 || distance == 96 || distance == 112);
  constants.customer = random.between(0, 1023);
  constants.item = random.between(0, 8191);
  return constants;
}

Name last_name(std::uint32_t number) noexcept {
  require(number < last_names, "the number of a last name has three digits", number);
  Name name;
  std::size_t length = 0;
  for (const std::uint32_t digit : {number / 100, number / 10 % 10, number % 10}) {
    std::memcpy(name.bytes + length, syllables[digit].data(), syllables[digit].size());
    length += syllables[digit].size();
  }
  std::memset(name.bytes + length, 0, sizeof name.bytes - length);
  return name;
}

std::uint32_t random_letters(Random& random, std::uint32_t shortest, std::uint32_t longest, std::span<char> to) noexcept {
  return random_text(random, letters, shortest, longest, to);
}

std::uint32_t random_digits(Random& random, std::uint32_t shortest, std::uint32_t longest, std::span<char> to) noexcept {
  return random_text(random, digits, shortest, longest, to);
}

}  // namespace neap::tpcc
