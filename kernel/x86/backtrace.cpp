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

struct Walk {
  unsigned skip;
  unsigned printed = 0;
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

_Unwind_Reason_Code visit(_Unwind_Context* context, void* argument) {
  auto& walk = *static_cast<Walk*>(argument);
  int interrupted = 0;
  const std::uint64_t address = _Unwind_GetIPInfo(context, &interrupted);
  if (!is_code(address)) return _URC_END_OF_STACK;
  if (walk.skip > 0) {
    --walk.skip;
    return _URC_NO_REASON;
  }
  if (walk.printed == frames_max) {
    print("  ... more than ", frames_max, " frames");
    return _URC_END_OF_STACK;
  }
  // A return address may be the first byte of the next function if the call never returns: look one byte before. Not so where a fault hit.
  print_frame(walk.printed++, address, interrupted ? address : address - 1);
  return _URC_NO_REASON;
}

}  // namespace

bool is_code(std::uint64_t address) { return address >= address_of(text_start) && address < address_of(text_end); }

}  // namespace neap::x86

namespace neap::machine {

using namespace x86;

[[gnu::noinline]] void print_backtrace(unsigned skip) noexcept {
  Walk walk{.skip = skip + 1};
  print("backtrace of core ", this_core(), ':');
  _Unwind_Backtrace(visit, &walk);
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
