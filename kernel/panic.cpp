// SPDX-License-Identifier: BSL-1.0
#include "kernel/panic.hpp"

#include <algorithm>
#include <atomic>

#include "kernel/console.hpp"
#include "kernel/kept_panic.hpp"
#include "kernel/log.hpp"
#include "kernel/machine.hpp"
#include "kernel/spin_lock.hpp"

namespace neap {
namespace {

constexpr unsigned nobody = ~0U;
constinit std::atomic<unsigned> first_core{nobody};

/// Prints the newest log records of `core`, if there are any.
void print_last_records(unsigned core) noexcept {
  constexpr std::size_t records_max = 8;
  const log::Extent extent = log::extent(core);
  log::Record records[records_max];
  const std::uint64_t first = extent.end - std::min<std::uint64_t>(extent.end - extent.first, records_max);
  const std::size_t count = log::read(core, first, records);
  if (count == 0) return;
  print("last log entries of core ", core, ", ", first, " to ", first + count - 1, ':');
  for (std::size_t i = 0; i < count; ++i) {
    const log::Record& record = records[i];
    Line line;
    line << "  tsc " << record.tsc << " kind " << unsigned{record.kind};
    if (record.kind <= static_cast<std::uint8_t>(log::Kind::stop)) {
      line << " generation " << record.generation << " rx " << record.rx_frames << " frames " << record.rx_bytes << " bytes, tx "
           << record.tx_frames << " frames " << record.tx_bytes << " bytes, sleeps " << record.idle_entries;
    }
    line.print();
  }
}

}  // namespace

void panic(std::string_view message, std::uint64_t detail, std::source_location where) noexcept {
  const unsigned core = machine::this_core();
  unsigned expected = nobody;
  if (!first_core.compare_exchange_strong(expected, core)) {
    if (expected == core) {  // the panic itself has failed: write a fixed text only
      machine::console_write("panic inside a panic\n");
      machine::exit(machine::ExitStatus::panic);
    }
    // Another core panicked first and will stop this core. If that takes over a minute, this core ends the machine.
    const std::uint64_t until_ns = machine::now_ns() + 60'000'000'000;
    while (machine::now_ns() < until_ns) relax_cpu();
    machine::exit(machine::ExitStatus::panic);
  }
  machine::stop_other_cores();
  print("panic on core ", core, ": ", message);
  if (detail != 0) print("  detail: ", hex(detail), " (", detail, ")");
  print("  at ", where.file_name(), ":", where.line(), " in ", where.function_name());
  kept_panic::keep();  // already here, in case a later step fails
  machine::print_backtrace(1);
  print_last_records(core);
  kept_panic::keep();
  machine::print_other_cores();
  kept_panic::keep();
  machine::exit(machine::ExitStatus::panic);
}

}  // namespace neap
