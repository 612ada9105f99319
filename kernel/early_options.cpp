// SPDX-License-Identifier: BSL-1.0
#include "kernel/early_options.hpp"

#include <algorithm>
#include <optional>
#include <string>

#include "kernel/numbers.hpp"

namespace neap {
namespace {

constexpr std::string_view blanks = " \t\r\n";
constexpr std::string_view from_table = "table";
constexpr std::uint32_t baud_max = 115200, divisor_max = 0xffff;

/// The value of the first word `key=value`; nothing if there is none.
std::optional<std::string_view> find(std::string_view line, std::string_view key) noexcept {
  for (;;) {
    const std::size_t begin = line.find_first_not_of(blanks);
    if (begin == line.npos) return std::nullopt;
    line.remove_prefix(begin);
    const std::string_view word = line.substr(0, line.find_first_of(blanks));
    line.remove_prefix(word.size());
    const std::size_t equals = word.find('=');
    if (equals != word.npos && word.substr(0, equals) == key) return word.substr(equals + 1);
  }
}

struct NamedPort {
  std::string_view name;
  std::uint16_t port;
};
// The usual ports of a PC (IBM PC AT Technical Reference, serial adapter; com3 and com4 by custom).
constexpr NamedPort named_ports[] = {{"com1", 0x3f8}, {"serial", 0x3f8}, {"com2", 0x2f8}, {"com3", 0x3e8}, {"com4", 0x2e8}};

std::optional<std::uint16_t> serial_port(std::string_view word) noexcept {
  for (const auto& [name, port] : named_ports) {
    if (word == name) return port;
  }
  constexpr std::uint64_t port_min = 0x100, port_max = 0xfff8;  // ports below 0x100 belong to the board; a UART has 8 ports
  if (!word.starts_with("0x")) return std::nullopt;
  const auto port = parse_number(word, port_max);
  if (!port || *port < port_min || *port % 8 != 0) return std::nullopt;
  return static_cast<std::uint16_t>(*port);
}

}  // namespace

const char* EarlyOptions::parse_console(std::string_view value) noexcept {
  constexpr const char* accepted = "is not com1 to com4 or 0xPORT (a multiple of 8), each with ,SPEED if wanted; vga; or none";
  std::array<SerialPort, serial_max> ports{};
  std::size_t count = 0;
  bool screen = false, nothing = false, speed_may_follow = false;
  for (bool more = true; more;) {
    const std::size_t comma = value.find(',');
    const std::string_view word = value.substr(0, comma);
    more = comma != value.npos;
    value.remove_prefix(more ? comma + 1 : value.size());
    if (nothing) return "names more than none";
    if (const auto port = serial_port(word)) {
      const auto same = [&](const SerialPort& other) { return other.port == *port; };
      if (std::any_of(ports.begin(), ports.begin() + count, same)) return "names one port twice";
      if (count == serial_max) return "names more than four ports";
      ports[count++] = {.port = *port};
      speed_may_follow = true;
      continue;
    }
    if (const auto baud = parse_digits(word); baud && speed_may_follow) {
      if (*baud == 0 || baud_max % *baud != 0 || baud_max / *baud > divisor_max) return "has a speed that does not divide 115200";
      ports[count - 1].baud = static_cast<std::uint32_t>(*baud);
    } else if (word == "vga" && !screen) {
      screen = true;
    } else if (word == "none" && count == 0 && !screen) {
      nothing = true;
    } else {
      return accepted;
    }
    speed_may_follow = false;
  }
  serial = ports;
  serial_count = count;
  vga = screen;
  return nullptr;
}

const char* EarlyOptions::parse_wake_up_times(std::string_view value) noexcept {
  constexpr const char* accepted = "is not table, or a list of c1 to c7 with times from 1us to 10000us, as in c1:2us,c6:104us";
  constexpr std::uint64_t longest_us = 10'000;
  constexpr std::string_view unit = "us";
  WakeTimes times{};
  if (value == from_table) {
    wake_up_us = times;
    return nullptr;
  }
  for (bool more = true; more;) {
    const std::size_t comma = value.find(',');
    std::string_view word = value.substr(0, comma);
    more = comma != value.npos;
    value.remove_prefix(more ? comma + 1 : value.size());
    const std::size_t colon = word.find(':');
    if (colon == word.npos || !word.ends_with(unit)) return accepted;
    const auto time = parse_digits(word.substr(colon + 1, word.size() - colon - 1 - unit.size()), longest_us);
    const auto name = std::find(idle_state_names.begin() + 1, idle_state_names.begin() + c_states, word.substr(0, colon));
    if (!time || *time == 0 || name == idle_state_names.begin() + c_states) return accepted;
    std::uint16_t& of_state = times[static_cast<std::size_t>(name - idle_state_names.begin())];
    if (of_state != 0) return "names one state twice";
    of_state = static_cast<std::uint16_t>(*time);
  }
  wake_up_us = times;
  return nullptr;
}

EarlyOptions EarlyOptions::from(std::string_view command_line) noexcept {
  EarlyOptions options;
  if (const auto console = find(command_line, "console")) static_cast<void>(options.parse_console(*console));
  options.reboot_after_panic = find(command_line, "panic") == "reboot";
  options.checked_heap = find(command_line, "heap") == "checked";
  options.assume_mwait = find(command_line, "mwait") == "assumed";
  options.keep_demotion = find(command_line, "demotion") == "kept";
  if (const auto times = find(command_line, "wake_up_times")) static_cast<void>(options.parse_wake_up_times(*times));
  return options;
}

void EarlyOptions::check(Arguments& arguments) {
  const std::string console =
      arguments.text("console", "com1", "console devices: com1 to com4 or 0xPORT, each with ,SPEED; vga; several; none");
  EarlyOptions options;
  if (const char* const why = options.parse_console(console)) arguments.reject("console", why);
  static_cast<void>(arguments.choice("panic", {"halt", "reboot"}, 0, "after a panic: halt (an emulator exits) or reboot"));
  static_cast<void>(arguments.choice("heap", {"plain", "checked"}, 0, "checked: find writes outside of objects and after free; slow"));
  static_cast<void>(arguments.choice("mwait", {"found", "assumed"}, 0, "assumed: MWAIT sleeps although CPUID lists no state for it"));
  static_cast<void>(arguments.choice("demotion", {"off", "kept"}, 0, "kept: the CPU may demote C-states as set by firmware"));
  const std::string times =
      arguments.text("wake_up_times", from_table, "wake-up times measured by apps/wakeup on this machine: c1:2us,c6:104us");
  if (const char* const why = options.parse_wake_up_times(times)) arguments.reject("wake_up_times", why);
}

}  // namespace neap
