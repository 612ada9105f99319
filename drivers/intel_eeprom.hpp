// SPDX-License-Identifier: BSL-1.0
// The checksum over the EEPROM of Intel's network cards.
//
// Several generations of cards compute the checksum in the same way, and Intel's own tools maintain it. The checked words are the first 64,
// and those of the sections to which words 3 to 14 point. Some cards leave out sections with checksums of their own. The sum of all checked
// words is BABAh.
#pragma once

#include <cstdint>

#include "kernel/task.hpp"

namespace neap {

constexpr std::uint16_t intel_eeprom_checksum = 0xBABA;

/// Returns the sum over the checked words, which is `intel_eeprom_checksum` if these words are intact. `read(address)` is a task that
/// returns a word or an error; an error is passed on. Bit i of `left_out`: the section to which word i points is not checked.
template <class Read>
[[nodiscard]] task<Result<std::uint16_t>> sum_intel_eeprom(Read read, std::uint16_t left_out = 0) {
  constexpr std::uint16_t checksum_word = 0x3F, first_pointer = 0x03, last_pointer = 0x0E;
  constexpr std::uint16_t no_section = 0xFFFF, section_words_max = 4096;
  std::uint16_t sum = 0;
  for (std::uint16_t address = 0; address <= checksum_word; ++address) {
    const Result<std::uint16_t> word = co_await read(address);
    if (!word) co_return word;
    sum = static_cast<std::uint16_t>(sum + *word);
    if (address < first_pointer || address > last_pointer || *word == 0 || *word == no_section) continue;
    if ((left_out >> address & 1) != 0) continue;
    // Each section starts with its length.
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
