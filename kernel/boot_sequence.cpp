// SPDX-License-Identifier: BSL-1.0
#include "kernel/boot_sequence.hpp"

#include "kernel/application.hpp"
#include "kernel/arguments.hpp"
#include "kernel/console.hpp"
#include "kernel/core.hpp"
#include "kernel/core_choice.hpp"
#include "kernel/early_options.hpp"
#include "kernel/events.hpp"
#include "kernel/exception_text.hpp"
#include "kernel/machine.hpp"
#include "kernel/panic.hpp"
#include "kernel/slow_card.hpp"
#include "kernel/task.hpp"
#include "kernel/watchdog.hpp"

namespace neap {
namespace {

/// The object is never destroyed, because an application may keep a reference to it.
Arguments& arguments() {
  static Arguments instance(machine::command_line());
  return instance;
}

task<void> run_application() {
  const int result = co_await application(arguments());
  machine::exit(result == 0 ? machine::ExitStatus::success : machine::ExitStatus::failure);
}

/// A user who named the cores wants a measurement with these cores, and no other. Without `cores=`, a machine with a broken core serves.
void report_missing_cores(unsigned running, std::size_t wanted) {
  print("neap: ", running, " of ", wanted, " cores run: see above for the cores that did not start");
  if (!arguments().has("cores")) return;
  print("neap: cores= asks for ", wanted, " cores, so the machine stops here. cores= with a list of good cores starts it");
  machine::exit(machine::ExitStatus::failure);
}

}  // namespace

void run_kernel() noexcept {
  require(this_core() == 0, "the kernel starts on core 0", this_core());
  install_terminate_handler();
  const machine::CoreSet wanted = choose_cores(arguments());
  EarlyOptions::check(arguments());
  watchdog::configure(arguments());
  static_cast<void>(read_slow(arguments()));
  prepare_cores(static_cast<unsigned>(wanted.count()));
  const unsigned running = machine::start_cores(wanted, [] { run_event_loop(); });
  require(running >= 1 && running <= wanted.count(), "number of started cores out of range", running);
  print_cores();
  if (running < wanted.count()) report_missing_cores(running, wanted.count());
  print("neap: ", application_name, " (", neap_version, ", ", neap_commit, ", ", neap_build, ") on ", running,
        running == 1 ? " core" : " cores");
  start(run_application());
  run_event_loop();
  machine::exit(machine::ExitStatus::failure);  // not reached: the loop ends only in tests
}

}  // namespace neap
