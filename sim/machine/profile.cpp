// SPDX-License-Identifier: BSL-1.0
#include "sim/machine/profile.hpp"

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstddef>
#include <cstdio>
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "sim/machine/qemu.hpp"

// QEMU's plugin interface, version 7 (plugin.cpp says why it is declared here).
extern "C" {
struct qemu_plugin_tb;
struct qemu_plugin_insn;
void qemu_plugin_register_vcpu_tb_trans_cb(std::uint64_t plugin, void (*callback)(qemu_plugin_tb* block, void* data), void* data);
std::size_t qemu_plugin_tb_n_insns(const qemu_plugin_tb* block);
qemu_plugin_insn* qemu_plugin_tb_get_insn(const qemu_plugin_tb* block, std::size_t index);
std::size_t qemu_plugin_insn_data(const qemu_plugin_insn* instruction, void* to, std::size_t bytes);
std::uint64_t qemu_plugin_insn_vaddr(const qemu_plugin_insn* instruction);
/// Flags: 0, the callback accesses no registers.
void qemu_plugin_register_vcpu_insn_exec_cb(qemu_plugin_insn* instruction, void (*callback)(unsigned cpu, void* data), int flags,
                                            void* data);
/// Kinds: 3, reads and writes.
void qemu_plugin_register_vcpu_mem_cb(qemu_plugin_insn* instruction,
                                      void (*callback)(unsigned cpu, std::uint32_t access, std::uint64_t address, void* data), int flags,
                                      int kinds, void* data);
bool qemu_plugin_mem_is_store(std::uint32_t access);
struct qemu_plugin_hwaddr;
/// Null for an access that has no physical address any more.
qemu_plugin_hwaddr* qemu_plugin_get_hwaddr(std::uint32_t access, std::uint64_t address);
bool qemu_plugin_hwaddr_is_io(const qemu_plugin_hwaddr* address);
std::uint64_t qemu_plugin_hwaddr_phys_addr(const qemu_plugin_hwaddr* address);
}

namespace neap::model::profile {

namespace {

constexpr unsigned line_shift = 6;
constexpr std::size_t console_lines_max = 64;
static_assert(cores_max <= 64);

struct Place {
  std::uint64_t address = 0, executions = 0, moves = 0;
};

/// The cores that have a line. If one of them has written it, it is the only one.
struct Line {
  std::uint64_t readers = 0;
};

/// The places that were executed up to the end of a line of the console.
struct OfConsoleLine {
  std::uint64_t number = 0;
  std::vector<Place> places{};
};

struct State {
  std::string path;
  Span span = Span::window;
  bool counts = false;
  bool watches_memory = false;
  // The addresses of the places stay, because translated code has them.
  std::unordered_map<std::uint64_t, std::unique_ptr<Place>> places{};
  std::unordered_map<std::uint64_t, Line> lines{};
  const Place* repeating = nullptr;  // the instruction that was executed last, if it was a repeated one
  // The places that were executed since the line before. A machine has some 100,000 places, and most lines of a boot have few of them.
  std::vector<Place*> executed{};
  std::deque<OfConsoleLine> console_lines{};
};
State* state = nullptr;  // never destroyed, because QEMU calls the plugin until the process ends

void count(Place* place) {
  if (place->executions++ == 0 && state->span == Span::console_line) state->executed.push_back(place);
}

// The callbacks' argument `cpu` is not used: while all CPUs run in one thread, QEMU 11.1 passes the CPU that was translating.
void executed(unsigned, void* data) {
  if (!state->counts) return;
  count(static_cast<Place*>(data));
  state->repeating = nullptr;
}

void executed_repeated(unsigned, void* data) {
  auto* const place = static_cast<Place*>(data);
  if (!state->counts || state->repeating == place) return;
  count(place);
  state->repeating = place;
}

void accessed(unsigned, std::uint32_t access, std::uint64_t address, void* data) {
  // Each core has pages of its own at equal addresses.
  const qemu_plugin_hwaddr* const physical = qemu_plugin_get_hwaddr(access, address);
  if (physical == nullptr || qemu_plugin_hwaddr_is_io(physical)) return;
  Line& line = state->lines[qemu_plugin_hwaddr_phys_addr(physical) >> line_shift];
  const std::uint64_t self = std::uint64_t{1} << qemu::current_cpu();
  const bool writes = qemu_plugin_mem_is_store(access);
  const bool moves = line.readers != 0 && (writes ? line.readers != self : (line.readers & self) == 0);
  line.readers = writes ? self : line.readers | self;
  if (moves && state->counts) ++static_cast<Place*>(data)->moves;
}

/// INS, OUTS, MOVS, CMPS, STOS, LODS and SCAS with a prefix that repeats them (Intel SDM volume 2, 2.1.1 and "REP").
bool repeats(const qemu_plugin_insn* instruction) {
  std::array<std::uint8_t, 16> code{};
  const std::size_t bytes = std::min(qemu_plugin_insn_data(instruction, code.data(), code.size()), code.size());
  bool repeat = false;
  std::size_t at = 0;
  for (; at < bytes; ++at) {
    const std::uint8_t byte = code[at];
    if (byte == 0xF2 || byte == 0xF3) {
      repeat = true;
    } else if (byte != 0x66 && byte != 0x67) {
      break;
    }
  }
  if (at < bytes && (code[at] & 0xF0) == 0x40) ++at;
  if (!repeat || at >= bytes) return false;
  const std::uint8_t opcode = code[at];
  return (opcode >= 0x6C && opcode <= 0x6F) || (opcode >= 0xA4 && opcode <= 0xA7) || (opcode >= 0xAA && opcode <= 0xAF);
}

void translated(qemu_plugin_tb* block, void*) {
  const std::size_t count = qemu_plugin_tb_n_insns(block);
  for (std::size_t index = 0; index < count; ++index) {
    qemu_plugin_insn* const instruction = qemu_plugin_tb_get_insn(block, index);
    const std::uint64_t address = qemu_plugin_insn_vaddr(instruction);
    std::unique_ptr<Place>& place = state->places[address];
    if (place == nullptr) place = std::make_unique<Place>(Place{.address = address});
    qemu_plugin_register_vcpu_insn_exec_cb(instruction, repeats(instruction) ? executed_repeated : executed, 0, place.get());
    if (state->watches_memory) qemu_plugin_register_vcpu_mem_cb(instruction, accessed, 0, 3, place.get());
  }
}

/// Null if it cannot be opened. `number`: of the load, or of the console's line.
std::FILE* opened(std::uint64_t number) {
  std::string path = state->path;
  const std::size_t at = path.rfind('%'), folder_ends = path.rfind('/');
  if (at != std::string::npos && (folder_ends == std::string::npos || at > folder_ends)) path.replace(at, 1, std::to_string(number));
  return std::fopen(path.c_str(), "w");
}

void write(std::FILE* file, const Place& place) {
  if (place.executions == 0 && place.moves == 0) return;
  std::fprintf(file, "%" PRIx64 " %" PRIu64 " %" PRIu64 "\n", place.address, place.executions, place.moves);
}

bool write_window(std::uint64_t load) {
  std::FILE* const file = opened(load);
  if (file == nullptr) return false;
  for (const auto& [address, place] : state->places) write(file, *place);
  return std::fclose(file) == 0;
}

bool write_console_line(const OfConsoleLine& line) {
  std::FILE* const file = opened(line.number);
  if (file == nullptr) return false;
  for (const Place& place : line.places) write(file, place);
  return std::fclose(file) == 0;
}

}  // namespace

void begin(std::uint64_t plugin, const char* path, Span span, bool watches_moves) {
  state = new State{.path = path, .span = span, .counts = span == Span::console_line, .watches_memory = watches_moves};
  qemu_plugin_register_vcpu_tb_trans_cb(plugin, translated, nullptr);
}

bool phase_changed(bool in_window, std::uint64_t load) {
  if (state == nullptr || state->span == Span::console_line || in_window == state->counts) return true;
  state->counts = in_window;
  if (!in_window) return write_window(load);
  for (const auto& [address, place] : state->places) place->executions = place->moves = 0;
  state->repeating = nullptr;
  return true;
}

void console_line_ended(std::uint64_t line) {
  if (state == nullptr || state->span != Span::console_line) return;
  if (state->console_lines.size() == console_lines_max) state->console_lines.pop_front();
  std::vector<Place>& places = state->console_lines.emplace_back(OfConsoleLine{.number = line}).places;
  places.reserve(state->executed.size());
  for (Place* const place : state->executed) {
    places.push_back(*place);
    place->executions = place->moves = 0;
  }
  state->executed.clear();
  state->repeating = nullptr;
}

bool machine_ended() {
  if (state == nullptr) return true;
  const bool written = std::ranges::all_of(state->console_lines, write_console_line);
  state->console_lines.clear();
  return written;
}

}  // namespace neap::model::profile
