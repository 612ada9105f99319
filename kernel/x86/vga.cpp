// SPDX-License-Identifier: BSL-1.0
#include "kernel/x86/vga.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "kernel/panic.hpp"
#include "kernel/x86/boot_info.hpp"
#include "kernel/x86/cpu.hpp"
#include "kernel/x86/layout.hpp"
#include "kernel/x86/paging.hpp"

namespace neap::x86::vga {

namespace {

constexpr std::uint64_t physical = 0xb8000;
constexpr std::size_t columns = 80, rows = 25, cells = columns * rows;
constexpr std::uint16_t light_grey_on_black = 0x0700;
constexpr std::uint16_t blank = light_grey_on_black | ' ';
using Cell = volatile std::uint16_t;
constinit Cell* screen = nullptr;
// Reads of video memory are slow, so a copy of the text is kept and scrolled here.
constinit std::array<std::uint16_t, cells> text_cells{};
constinit std::size_t place = 0;

// IBM VGA, CRT controller: index and data port in colour modes; the cursor's position in two registers.
constexpr std::uint16_t controller_index = 0x3d4, controller_data = 0x3d5;
constexpr std::uint8_t cursor_high = 0x0e, cursor_low = 0x0f;

void move_cursor() {
  out8(controller_index, cursor_high);
  out8(controller_data, static_cast<std::uint8_t>(place >> 8));
  out8(controller_index, cursor_low);
  out8(controller_data, static_cast<std::uint8_t>(place));
}

// True if there is a VGA controller. Without one, the screen's address may be ordinary memory.
bool controller_answers() {
  for (const std::uint8_t pattern : {std::uint8_t{0x05}, std::uint8_t{0x02}}) {
    out8(controller_index, cursor_high);
    out8(controller_data, pattern);
    if (in8(controller_data) != pattern) return false;
  }
  return true;
}

void show_from(std::size_t first) {
  for (std::size_t i = first; i < cells; ++i) screen[i] = text_cells[i];
}

void scroll() {
  require(place >= columns && place <= cells, "vga: the cursor is outside of the screen", place);
  std::copy(text_cells.begin() + columns, text_cells.end(), text_cells.begin());
  std::fill(text_cells.end() - columns, text_cells.end(), blank);
  place -= columns;
  show_from(0);
}

}  // namespace

bool open() {
  if (!boot_info().text_screen || !controller_answers()) return false;
  auto* const found = reinterpret_cast<Cell*>(direct_map_base + physical);
  for (const std::uint16_t pattern : {std::uint16_t{0x0755}, std::uint16_t{0x072a}}) {
    found[0] = pattern;
    if (found[0] != pattern) return false;
  }
  screen = found;
  text_cells.fill(blank);
  show_from(0);
  move_cursor();
  return true;
}

void use_new_tables() {
  if (screen == nullptr) return;
  screen = nullptr;
  const auto mapped = paging::map(physical, cells * sizeof(std::uint16_t), paging::Access::read_write, paging::Cache::uncached);
  if (mapped) screen = reinterpret_cast<Cell*>(*mapped);
}

void write(std::string_view text) {
  if (screen == nullptr) return;
  for (const char letter : text) {
    if (letter == '\r') continue;
    if (letter == '\n') {
      place += columns - place % columns;
    } else {
      const char shown = letter >= ' ' && letter <= '~' ? letter : '?';
      text_cells[place] = static_cast<std::uint16_t>(light_grey_on_black | static_cast<unsigned char>(shown));
      screen[place] = text_cells[place];
      ++place;
    }
    if (place == cells) scroll();
  }
  move_cursor();
}

}  // namespace neap::x86::vga
