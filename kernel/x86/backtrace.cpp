// SPDX-License-Identifier: BSL-1.0
#include "kernel/x86/backtrace.hpp"

#include <unwind.h>

#include <algorithm>

#include "kernel/console.hpp"
#include "kernel/machine.hpp"
#include "kernel/x86/cpu.hpp"
#include "kernel/x86/exceptions.hpp"
#include "kernel/x86/layout.hpp"
#include "kernel/x86/symbols.hpp"

namespace neap::x86 {

namespace {

extern "C" {
// Defined in vectors.S. Runs `_Unwind_Backtrace` from the state in `frame`. The first frame that `visit` sees is this function's own.
void neap_walk_interrupted(const ExceptionFrame* frame, _Unwind_Trace_Fn visit, void* argument);
}

constexpr unsigned handler_frames_max = 13;
constexpr unsigned steps_max = 1'000'000;  // the frames of a damaged stack may form a cycle

// Per core, because several cores may fault at once.
constinit thread_local bool walking = false;
constinit thread_local void* way_out[5]{};

// Walks this core's stack, or the stack that `from` interrupted. False: the stack led to unmapped memory; the frames visited before that
// are valid.
[[gnu::noinline]] bool walk(const ExceptionFrame* from, _Unwind_Trace_Fn visit, void* argument) noexcept {
  if (__builtin_setjmp(way_out) != 0) {
    walking = false;
    return false;
  }
  walking = true;
  if (from != nullptr) {
    neap_walk_interrupted(from, visit, argument);
  } else {
    _Unwind_Backtrace(visit, argument);
  }
  walking = false;
  return true;
}

struct Frame {
  std::uint64_t address = 0;
  bool interrupted = false;
  // A return address may be the first byte of the next function, if the call never returns. So the byte before it is looked up, except for
  // the address of an interrupted instruction.
  [[nodiscard]] std::uint64_t look_up() const { return interrupted ? address : address - 1; }
};

// The outermost frames of a walk of any length.
struct Outermost {
  static constexpr unsigned kept = 12;
  Frame frames[kept];
  unsigned count = 0;
  void add(Frame frame) { frames[count++ % kept] = frame; }
  [[nodiscard]] unsigned size() const { return std::min(count, kept); }
  [[nodiscard]] const Frame& from_outside(unsigned i) const { return frames[(count - 1 - i) % kept]; }
};

// Prints a walk: the innermost frames in at most `lines_max` lines, then the outermost ones. Frames between them are only counted. Equal
// consecutive frames (a recursion) become one line with a count.
struct Printer {
  unsigned skip;
  unsigned lines_max;
  unsigned lines = 0;
  Frame last;
  unsigned repeated = 0;
  unsigned steps = 0;
  Outermost beyond;

  void flush() {
    if (repeated != 0) print("     the same ", repeated, " more times");
    repeated = 0;
  }
  void finish(bool whole);
};

void print_frame(unsigned number, Frame frame) {
  char buffer[200];
  const auto symbol = find_symbol(frame.look_up(), buffer);
  if (symbol.name.empty()) {
    print("  #", number, ' ', hex(frame.address));
  } else {
    print("  #", number, ' ', hex(frame.address), ' ', symbol.name, " + ", hex(symbol.offset + (frame.address - frame.look_up())));
  }
}

void Printer::finish(bool whole) {
  flush();
  if (const unsigned left_out = beyond.count - beyond.size(); left_out != 0) print("     ", left_out, " frames left out");
  for (unsigned i = beyond.size(); i-- > 0;) print_frame(lines + beyond.count - 1 - i, beyond.from_outside(i));
  if (!whole) print("     the stack is damaged beyond this");
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
  const Frame frame{.address = address, .interrupted = interrupted != 0};
  if (address == printer.last.address) {
    ++printer.repeated;
    return _URC_NO_REASON;
  }
  printer.last = frame;
  if (printer.lines == printer.lines_max) {
    printer.beyond.add(frame);
    return _URC_NO_REASON;
  }
  printer.flush();
  print_frame(printer.lines++, frame);
  return _URC_NO_REASON;
}

_Unwind_Reason_Code keep_outermost(_Unwind_Context* context, void* argument) {
  auto& outermost = *static_cast<Outermost*>(argument);
  int interrupted = 0;
  const std::uint64_t address = _Unwind_GetIPInfo(context, &interrupted);
  if (!is_code(address) || outermost.count == steps_max) return _URC_END_OF_STACK;
  outermost.add({.address = address, .interrupted = interrupted != 0});
  return _URC_NO_REASON;
}

// Finds how many of the innermost frames belong to the exception handler. They are skipped, because only the interrupted code is of
// interest.
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

// True for the event loop's own functions. Their frames are between the bottom of a stack and the code of an event.
bool is_the_loops(std::string_view name) {
  constexpr std::string_view ours[] = {
      "core_entry_high",
      "neap_core_entered",
      "neap::EventLoop::",
      "neap::TimerWheel::",
      "neap::detail::",
      "neap::run_due_timers",
      "neap::run_event_loop",
      "neap::run_kernel",
      "neap::run_marked_interrupts",
      "neap::Callback::",
      "neap::(anonymous namespace)::run_vector",
      "neap::machine::",
      "neap::x86::",
  };
  return std::ranges::any_of(ours, [name](std::string_view start) { return name.starts_with(start); });
}

// If `name` is a function of a wrapper class, returns the name of the wrapped callable: the class's first template argument.
std::string_view callable_of(std::string_view name) {
  constexpr std::string_view wrappers[] = {"neap::Callback::set<", "neap::detail::SpawnedEvent<"};
  for (const std::string_view wrapper : wrappers) {
    if (!name.starts_with(wrapper)) continue;
    const std::string_view inner = name.substr(wrapper.size());
    unsigned depth = 1;
    for (std::size_t i = 0; i < inner.size(); ++i) {
      if (inner[i] == '<') ++depth;
      if (inner[i] == '>' && --depth == 0) return inner.substr(0, i);
    }
    return inner;  // the name was cut
  }
  return name;
}

// True if the next instruction is right after a HLT (F4) or MWAIT (0F 01 C9), which means that the core was asleep.
bool was_asleep(const ExceptionFrame& frame) {
  constexpr std::uint64_t longest = 3;
  if (!is_code(frame.rip - longest) || !is_code(frame.rip - 1)) return false;
  const auto* const behind = reinterpret_cast<const std::uint8_t*>(frame.rip);
  return behind[-1] == 0xf4 || (behind[-3] == 0x0f && behind[-2] == 0x01 && behind[-1] == 0xc9);
}

// Prints "cores 1, 3 to 7 were asleep", in as many lines as needed.
class CoreList {
 public:
  void add(unsigned core) {
    if (count_ != 0 && core == last_ + 1) {
      last_ = core;
      return;
    }
    end_range();
    first_ = last_ = core;
    ++count_;
  }
  void finish() {
    end_range();
    if (count_ != 0) print(several_ ? "cores " : "core ", text_.text(), several_ ? " were asleep" : " was asleep");
  }

 private:
  void end_range() {
    if (count_ == 0) return;
    if (!text_.text().empty()) text_ << ", ";
    several_ = several_ || !text_.text().empty() || first_ != last_;
    text_ << first_;
    if (last_ != first_) text_ << " to " << last_;
  }
  Line text_;  // at most 511 characters: 128 numbers with separators, if every second of 256 cores was asleep
  unsigned first_ = 0, last_ = 0, count_ = 0;
  bool several_ = false;
};

}  // namespace

bool is_code(std::uint64_t address) { return address >= address_of(text_start) && address < address_of(text_end); }

std::string_view event_of(const ExceptionFrame& frame, std::span<char> buffer) noexcept {
  Outermost outermost;
  (void)walk(&frame, keep_outermost, &outermost);
  for (unsigned i = 0; i < outermost.size(); ++i) {
    const auto name = callable_of(find_symbol(outermost.from_outside(i).look_up(), buffer).name);
    const bool any_function = name.contains("(*)") || name.contains("(&)");  // a wrapper of any function; the next frame is that function
    const bool any_callback = name == "neap::Callback";                      // this is a wrapper, too
    if (!name.empty() && !any_function && !any_callback && !is_the_loops(name)) return name;
  }
  return {};
}

void leave_broken_walk() noexcept {
  if (walking) __builtin_longjmp(way_out, 1);
}

}  // namespace neap::x86

namespace neap::machine {

using namespace x86;

[[gnu::noinline]] void print_backtrace(unsigned skip) noexcept {
  constexpr unsigned lines_max = 40;
  HandlerSearch search;
  (void)walk(nullptr, find_interrupted, &search);
  Printer printer{.skip = search.found ? search.frames : skip + 2, .lines_max = lines_max};
  print("backtrace of core ", this_core(), ':');
  printer.finish(walk(nullptr, print_one, &printer));
}

void print_other_cores() noexcept {
  constexpr unsigned backtraces_max = 16, lines_max = 12;
  unsigned backtraces = 0;
  CoreList asleep;
  for (unsigned core = 0; core < core_count(); ++core) {
    if (core == this_core()) continue;
    const ExceptionFrame* const frame = stopped_core(core);
    if (frame == nullptr) {
      print("core ", core, " did not stop");
      continue;
    }
    if (was_asleep(*frame)) {
      asleep.add(core);
      continue;
    }
    char buffer[200];
    const auto symbol = find_symbol(frame->rip, buffer);
    print("core ", core, " was at ", hex(frame->rip), ' ', symbol.name, " + ", hex(symbol.offset));
    if (++backtraces > backtraces_max) continue;
    // A walk starts with the walking function itself, which is skipped.
    Printer printer{.skip = 1, .lines_max = lines_max};
    printer.finish(walk(frame, print_one, &printer));
  }
  asleep.finish();
}

std::string_view code_name(std::uintptr_t code, std::span<char> buffer) noexcept { return find_symbol(code, buffer).name; }

std::string_view event_on(unsigned core, std::span<char> buffer) noexcept {
  const std::uint64_t limit_ns = features().hypervisor ? 1'000'000'000 : 100'000'000;  // a virtual core may be descheduled by its host
  struct Asked {
    std::span<char> buffer;
    std::string_view name;
  } asked{buffer, {}};
  const auto look = [](const ExceptionFrame& frame, void* context) {
    auto& of = *static_cast<Asked*>(context);
    of.name = event_of(frame, of.buffer);
  };
  (void)inspect_core(core, limit_ns, look, &asked);
  return asked.name;
}

}  // namespace neap::machine
