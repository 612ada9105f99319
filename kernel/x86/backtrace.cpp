// SPDX-License-Identifier: BSL-1.0
#include "kernel/x86/backtrace.hpp"

#include <unwind.h>

#include <algorithm>

#include "kernel/console.hpp"
#include "kernel/machine.hpp"
#include "kernel/x86/exceptions.hpp"
#include "kernel/x86/layout.hpp"
#include "kernel/x86/symbols.hpp"

namespace neap::x86 {

namespace {

constexpr unsigned frames_max = 48;
constexpr unsigned handler_frames_max = 12;
constexpr unsigned steps_max = 1'000'000;  // a damaged stack may lead in a circle

// Prints a walk: equal frames in a row (a recursion) as one line with a count.
struct Printer {
  unsigned skip;
  unsigned lines = 0;
  std::uint64_t last = 0;
  unsigned repeated = 0;
  unsigned steps = 0;

  void flush() {
    if (repeated != 0) print("     the same ", repeated, " more times");
    repeated = 0;
  }
};

void print_frame(unsigned number, std::uint64_t address, std::uint64_t look_up) {
  char buffer[200];
  const auto symbol = find_symbol(look_up, buffer);
  if (symbol.name.empty()) {
    print("  #", number, ' ', hex(address));
  } else {
    print("  #", number, ' ', hex(address), ' ', symbol.name, " + ", hex(symbol.offset + (address - look_up)));
  }
}

_Unwind_Reason_Code print_one(_Unwind_Context* context, void* argument) {
  auto& printer = *static_cast<Printer*>(argument);
  int interrupted = 0;
  const std::uint64_t address = _Unwind_GetIPInfo(context, &interrupted);
  if (!is_code(address) || ++printer.steps == steps_max) return _URC_END_OF_STACK;
  if (printer.skip > 0) {
    --printer.skip;
    return _URC_NO_REASON;
  }
  if (address == printer.last) {
    ++printer.repeated;
    return _URC_NO_REASON;
  }
  printer.flush();
  printer.last = address;
  if (printer.lines == frames_max) {
    print("     more than ", frames_max, " frames");
    return _URC_END_OF_STACK;
  }
  // A return address may be the first byte of the next function if the call never returns: look one byte before. Not so where a fault hit.
  print_frame(printer.lines++, address, interrupted ? address : address - 1);
  return _URC_NO_REASON;
}

// How far in an exception's own frames reach: a reader wants what the exception interrupted.
struct HandlerSearch {
  unsigned frames = 0;
  bool found = false;
};

_Unwind_Reason_Code find_interrupted(_Unwind_Context* context, void* argument) {
  auto& search = *static_cast<HandlerSearch*>(argument);
  int interrupted = 0;
  (void)_Unwind_GetIPInfo(context, &interrupted);
  if (interrupted) {
    search.found = true;
    return _URC_END_OF_STACK;
  }
  return ++search.frames == handler_frames_max ? _URC_END_OF_STACK : _URC_NO_REASON;
}

}  // namespace

bool is_code(std::uint64_t address) { return address >= address_of(text_start) && address < address_of(text_end); }

}  // namespace neap::x86

namespace neap::machine {

using namespace x86;

[[gnu::noinline]] void print_backtrace(unsigned skip) noexcept {
  HandlerSearch search;
  _Unwind_Backtrace(find_interrupted, &search);
  Printer printer{.skip = search.found ? search.frames : skip + 1};
  print("backtrace of core ", this_core(), ':');
  _Unwind_Backtrace(print_one, &printer);
  printer.flush();
  constexpr unsigned others_max = 16;
  unsigned others = 0;
  for (unsigned core = 0; core < core_count() && others < others_max; ++core) {
    const auto address = core_stopped_at(core);
    if (address == 0) continue;
    char buffer[200];
    const auto symbol = find_symbol(address, buffer);
    print("core ", core, " was at ", hex(address), ' ', symbol.name, " + ", hex(symbol.offset));
    ++others;
  }
}

}  // namespace neap::machine
