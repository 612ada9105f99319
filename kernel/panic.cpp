// SPDX-License-Identifier: BSL-1.0
#include "kernel/panic.hpp"

#include <atomic>

#include "kernel/console.hpp"
#include "kernel/machine.hpp"
#include "kernel/spin_lock.hpp"

namespace neap {
namespace {

constexpr unsigned nobody = ~0U;
constinit std::atomic<unsigned> first_core{nobody};

}  // namespace

void panic(std::string_view message, std::uint64_t detail, std::source_location where) noexcept {
  const unsigned core = machine::this_core();
  unsigned expected = nobody;
  if (!first_core.compare_exchange_strong(expected, core)) {
    if (expected == core) {  // what we print with is broken as well; say the little that needs nothing
      machine::console_write("panic inside a panic\n");
      machine::exit(machine::ExitStatus::panic);
    }
    // Another core was first and is about to stop this one. If it cannot, it ends the machine all the same.
    const std::uint64_t until_ns = machine::now_ns() + 10'000'000'000;
    while (machine::now_ns() < until_ns) relax_cpu();
    machine::exit(machine::ExitStatus::panic);
  }
  machine::stop_other_cores();
  print("panic on core ", core, ": ", message);
  if (detail != 0) print("  detail: ", hex(detail), " (", detail, ")");
  print("  at ", where.file_name(), ":", where.line(), " in ", where.function_name());
  machine::print_backtrace(1);
  machine::exit(machine::ExitStatus::panic);
}

}  // namespace neap
