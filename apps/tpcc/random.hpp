// SPDX-License-Identifier: BSL-1.0
// Random values of the specification (clauses 2.1.5, 2.1.6, 4.3.2).
//
// The contents of the database and the inputs of a run depend only on seeds, so that a test can repeat them. The generator has one word of
// state: it can be started anew for each row, which lets the cores load parts of one table independently.
#pragma once

#include <cstdint>
#include <span>

#include "apps/tpcc/text.hpp"

namespace neap::tpcc {

/// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
class Random {
 public:
  explicit Random(std::uint64_t seed) noexcept : state_(seed) {}
  /// A sequence of its own for each pair of numbers.
  Random(std::uint64_t seed, std::uint64_t part) noexcept : state_(mix(seed) ^ mix(part * increment + 1)) {}

  std::uint64_t bits() noexcept { return mix(state_ += increment); }
  /// Returns a number in [first, last]. The share of each number is right to within (last - first + 1) / 2^32.
  std::uint32_t between(std::uint32_t first, std::uint32_t last) noexcept {
    const std::uint64_t count = std::uint64_t{last} - first + 1;
    return first + static_cast<std::uint32_t>((bits() >> 32) * count >> 32);
  }
  bool percent(std::uint32_t share) noexcept { return between(1, 100) <= share; }

 private:
  static constexpr std::uint64_t increment = 0x9e37'79b9'7f4a'7c15;
  static constexpr std::uint64_t mix(std::uint64_t word) noexcept {
    word = (word ^ word >> 30) * 0xbf58'476d'1ce4'e5b9;
    word = (word ^ word >> 27) * 0x94d0'49bb'1331'11eb;
    return word ^ word >> 31;
  }

  std::uint64_t state_;
};

/// The constants C of NURand (clause 2.1.6.1). A database is loaded with one set and used with another one.
struct NurandConstants {
  std::uint32_t last_name;  ///< A = 255
  std::uint32_t customer;   ///< A = 1023
  std::uint32_t item;       ///< A = 8191

  [[nodiscard]] static NurandConstants for_load(std::uint64_t seed) noexcept;
  /// The constants of a run. They keep the prescribed distance from those of `for_load` with the same seed.
  [[nodiscard]] static NurandConstants for_run(std::uint64_t seed) noexcept;
};

/// Returns a non-uniform number in [first, last] (clause 2.1.6). `a` is 255, 1023 or 8191.
[[nodiscard]] inline std::uint32_t nurand(Random& random, std::uint32_t a, std::uint32_t constant, std::uint32_t first,
                                          std::uint32_t last) noexcept {
  const std::uint32_t either = random.between(0, a) | random.between(first, last);
  return first + static_cast<std::uint32_t>((std::uint64_t{either} + constant) % (std::uint64_t{last} - first + 1));
}

/// Last names are numbered from 0 to `last_names - 1`.
inline constexpr std::uint32_t last_names = 1'000;

/// Returns the last name of a number (clause 4.3.2.3): one syllable for each of its three decimal digits.
[[nodiscard]] Name last_name(std::uint32_t number) noexcept;

/// Returns the number of last names that occur in a district. Each of the first customers has the name of its own number.
[[nodiscard]] constexpr std::uint32_t names_in_use(std::uint32_t customers_per_district) noexcept {
  return customers_per_district < last_names ? customers_per_district : last_names;
}

/// Write a random length, in [shortest, longest], of letters and digits, and zero bytes behind it. Return the length.
/// `to` MUST have room for `longest` bytes.
std::uint32_t random_letters(Random& random, std::uint32_t shortest, std::uint32_t longest, std::span<char> to) noexcept;
std::uint32_t random_digits(Random& random, std::uint32_t shortest, std::uint32_t longest, std::span<char> to) noexcept;

}  // namespace neap::tpcc
