// SPDX-License-Identifier: BSL-1.0
#include "kernel/x86/symbols.hpp"

#include <algorithm>
#include <cstddef>

#include "kernel/x86/layout.hpp"

namespace neap::x86 {

extern "C" const std::byte symbol_table_start[], symbol_table_end[];

namespace {

struct Table {
  std::span<const std::uint32_t> offsets, bytes, names, pieces;
  std::string_view text;
};

Table read_table() {
  const auto total = static_cast<std::size_t>(symbol_table_end - symbol_table_start);
  const auto* const words = reinterpret_cast<const std::uint32_t*>(symbol_table_start);
  constexpr std::size_t header_words = 4;
  if (total < header_words * 4) return {};
  const std::size_t functions = words[0], pieces = words[1], text_bytes = words[2];
  const auto text_at = (header_words + functions * 3 + pieces) * 4;
  if (text_at + text_bytes > total) return {};
  const auto* next = words + header_words;
  const auto take = [&](std::size_t count) {
    const std::span<const std::uint32_t> part(next, count);
    next += count;
    return part;
  };
  Table table;
  table.offsets = take(functions);
  table.bytes = take(functions);
  table.names = take(functions);
  table.pieces = take(pieces);
  table.text = {reinterpret_cast<const char*>(next), text_bytes};
  return table;
}

std::string_view string_at(const Table& table, std::uint32_t offset) {
  const auto rest = table.text.substr(std::min<std::size_t>(offset, table.text.size()));
  return rest.substr(0, rest.find('\0'));
}

}  // namespace

Symbol find_symbol(std::uint64_t address, std::span<char> buffer) noexcept {
  if (address < image_base) return {};
  const auto table = read_table();
  const auto offset = address - image_base;
  const auto after = std::ranges::upper_bound(table.offsets, offset);
  if (after == table.offsets.begin()) return {};
  const auto index = static_cast<std::size_t>(after - table.offsets.begin()) - 1;
  if (offset - table.offsets[index] >= std::max<std::uint32_t>(table.bytes[index], 1)) return {};
  std::size_t used = 0;
  const auto append = [&](std::string_view piece) {
    const auto count = std::min(piece.size(), buffer.size() - used);
    std::copy_n(piece.data(), count, buffer.data() + used);
    used += count;
  };
  constexpr unsigned first_piece = 0x80;
  for (const char letter : string_at(table, table.names[index])) {
    const unsigned code = static_cast<unsigned char>(letter);
    if (code < first_piece) {
      append({&letter, 1});
    } else if (code - first_piece < table.pieces.size()) {
      append(string_at(table, table.pieces[code - first_piece]));
    }
  }
  return {.name = {buffer.data(), used}, .offset = offset - table.offsets[index]};
}

}  // namespace neap::x86
