// SPDX-License-Identifier: BSL-1.0
#include "kernel/x86/rtc.hpp"

#include <chrono>

#include "kernel/x86/acpi.hpp"
#include "kernel/x86/clock.hpp"
#include "kernel/x86/cpu.hpp"

namespace neap::x86::rtc {

namespace {

constexpr std::uint16_t index_port = 0x70, data_port = 0x71;
enum Cell : std::uint8_t { seconds = 0, minutes = 2, hours = 4, day = 7, month = 8, year = 9, status_a = 0x0a, status_b = 0x0b };
constexpr std::uint8_t update_in_progress = 0x80;       // of status A
constexpr std::uint8_t hours_24 = 0x02, binary = 0x04;  // of status B
constexpr std::uint8_t afternoon = 0x80;                // a bit of the hours in 12-hour form
constexpr std::uint64_t limit_ns = 20'000'000;

std::uint8_t read(std::uint8_t cell) {
  out8(index_port, cell);
  return in8(data_port);
}

struct Snapshot {
  std::uint8_t seconds, minutes, hours, day, month, year, century;
  bool operator==(const Snapshot&) const = default;
};

Snapshot read_all() {
  const auto century_cell = acpi::tables().century_register;
  return {.seconds = read(seconds),
          .minutes = read(minutes),
          .hours = read(hours),
          .day = read(day),
          .month = read(month),
          .year = read(year),
          .century = century_cell != 0 ? read(century_cell) : std::uint8_t{0}};
}

}  // namespace

std::uint64_t read_unix_seconds() {
  const WaitLimit limit(limit_ns);
  Snapshot snapshot{};
  for (bool steady = false; !steady;) {  // the clock may change between two bytes, so two readings must be equal
    if (limit.passed()) return 0;
    if (read(status_a) & update_in_progress) continue;
    snapshot = read_all();
    steady = !(read(status_a) & update_in_progress) && snapshot == read_all();
  }
  const auto form = read(status_b);
  const auto value = [&](std::uint8_t raw) { return form & binary ? raw : (raw >> 4) * 10 + (raw & 0xf); };
  auto hour = static_cast<unsigned>(value(snapshot.hours & ~afternoon & 0xff));
  if (form & hours_24) {
    hour = static_cast<unsigned>(value(snapshot.hours));
  } else {
    hour = hour % 12 + (snapshot.hours & afternoon ? 12 : 0);
  }
  const auto short_year = value(snapshot.year);
  const auto century = snapshot.century != 0 ? value(snapshot.century) : (short_year < 70 ? 20 : 19);
  using namespace std::chrono;
  const auto date = std::chrono::year(century * 100 + short_year) / static_cast<unsigned>(value(snapshot.month)) /
                    static_cast<unsigned>(value(snapshot.day));
  if (!date.ok() || date.year() < std::chrono::year(1970)) return 0;
  const auto days = sys_days(date).time_since_epoch().count();
  return static_cast<std::uint64_t>(days) * 86400 + hour * 3600 + static_cast<unsigned>(value(snapshot.minutes)) * 60 +
         static_cast<unsigned>(value(snapshot.seconds));
}

}  // namespace neap::x86::rtc
