// SPDX-License-Identifier: BSL-1.0
// The checksum over the EEPROM of Intel's network cards.
//
// It is kept by Intel's own tools and has outlived several generations of cards: the sum of the first 64 words, and of the sections that
// words 3 to 14 point to, is BABAh.
#pragma once

#include <cstdint>

#include "kernel/task.hpp"

namespace neap {

constexpr std::uint16_t intel_eeprom_checksum = 0xBABA;

/// The sum over what the checksum covers: `intel_eeprom_checksum` if nothing in it has changed. `read(address)` is a task that gives a
/// word's value or an error, which is then ours.
template <class Read>
[[nodiscard]] task<Result<std::uint16_t>> sum_intel_eeprom(Read read) {
  constexpr std::uint16_t checksum_word = 0x3F;
  constexpr std::uint16_t first_pointer = 0x03;
  constexpr std::uint16_t last_pointer = 0x0E;
  constexpr std::uint16_t no_section = 0xFFFF;
  constexpr std::uint16_t section_words_max = 4096;
  std::uint16_t sum = 0;
  for (std::uint16_t address = 0; address <= checksum_word; ++address) {
    const Result<std::uint16_t> word = co_await read(address);
    if (!word) co_return word;
    sum = static_cast<std::uint16_t>(sum + *word);
    if (address < first_pointer || address > last_pointer || *word == 0 || *word == no_section) continue;
    // Each with its length in front.
    const Result<std::uint16_t> length = co_await read(*word);
    if (!length) co_return length;
    for (std::uint16_t i = 1; *length <= section_words_max && i <= *length; ++i) {
      const Result<std::uint16_t> part = co_await read(static_cast<std::uint16_t>(*word + i));
      if (!part) co_return part;
      sum = static_cast<std::uint16_t>(sum + *part);
    }
  }
  co_return sum;
}

}  // namespace neap
