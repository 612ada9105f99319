// SPDX-License-Identifier: BSL-1.0
// The console of scripts. A serial line takes 87 us a byte, and the core waits for it. So the amount of text is bounded: a burst, and then
// so many bytes a second. The default, 2 KiB a second, takes at most 18 % of a core.
#include "kernel/console.hpp"

#include <algorithm>

#include "apps/webserver/engine/engine_state.hpp"
#include "kernel/machine.hpp"

namespace neap::webserver {

namespace {

constexpr std::uint64_t second_ns = 1'000'000'000;
constexpr std::uint64_t burst_s = 8;

}  // namespace

void Engine::write_console(ConsoleLevel level, std::string_view text) noexcept {
  const std::uint64_t now_ns = machine::now_ns(), full_bytes = options_.console_bytes_per_s * burst_s;
  State& state = *state_;
  if (state.console_credit_ns == 0) {
    state.console_credit_bytes = full_bytes;
  } else {
    const std::uint64_t elapsed_ns = std::min(now_ns - state.console_credit_ns, burst_s * second_ns);
    state.console_credit_bytes = std::min(full_bytes, state.console_credit_bytes + options_.console_bytes_per_s * elapsed_ns / second_ns);
  }
  state.console_credit_ns = std::max<std::uint64_t>(now_ns, 1);
  const auto emit = [&](ConsoleLevel of, std::string_view line) {
    if (options_.console) {
      options_.console(of, line);
      return;
    }
    // A line of the kernel's console has a maximum length.
    do {
      print(line.substr(0, Line::bytes_max));
      line.remove_prefix(std::min(line.size(), Line::bytes_max));
    } while (!line.empty());
  };
  if (text.ends_with('\n')) text.remove_suffix(1);
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    begin = end + 1;
    if (line.size() + 1 > state.console_credit_bytes) {
      statistics_.console_bytes_dropped += line.size() + 1;
      ++state.console_dropped_lines;
      continue;
    }
    if (state.console_dropped_lines != 0) {
      Line note;
      note << "(" << state.console_dropped_lines << " lines were dropped: too much text a second)";
      emit(ConsoleLevel::warning, note.text());
      state.console_dropped_lines = 0;
    }
    state.console_credit_bytes -= line.size() + 1;
    statistics_.console_bytes += line.size() + 1;
    emit(level, line);
  }
}

}  // namespace neap::webserver
