// SPDX-License-Identifier: BSL-1.0
// Measures wake-up latency: the time from a doorbell to the first instructions of the core that it wakes, for each idle state of the CPU.
//
// Results are the minimum, the median, the 99th percentile and the maximum for each idle state and doorbell: an interrupt from another
// core, a write by another core, and the core's own timer. A frame is no doorbell here: no clock of the machine has the time at which a
// frame arrives (docs/experiments.md). Without a network card the machine ends after the table. With one it goes on to serve control, so
// that the log can be fetched, and a measurement repeated with other settings.
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "apps/wakeup/service.hpp"
#include "drivers/any_card.hpp"
#include "kernel/application.hpp"
#include "kernel/console.hpp"
#include "kernel/events.hpp"
#include "kernel/interrupts.hpp"
#include "kernel/task.hpp"
#include "net/network.hpp"
#include "observe/control.hpp"

namespace {

using namespace neap;

int fail(const char* what, const Error& error) {
  print("wakeup: ", what, ": ", error.message, " (", hex(error.detail), ")");
  return 1;
}

}  // namespace

neap::task<int> neap::application(Arguments& arguments) {
  if (core_count() < 2) {
    print("wakeup: needs two cores, one that sleeps and one that rings (./neap run wakeup --cores 2)");
    co_return 1;
  }
  const net::AddressSetting address = net::AddressSetting::from(arguments);
  const auto choice = any_card::Choice::from(arguments);
  observe::Options observation = observe::Options::from(arguments, any_card::setting_rows());
  const wakeup::Options options = wakeup::Options::from_words(arguments);
  arguments.finish();
  if (wakeup::core_apart() == 0) print("wakeup: all cores are threads of one physical core, so its state is the less deep one's");

  const auto vector = allocate_vector(options.sleeper, [] {});
  if (!vector) co_return fail("no interrupt vector", vector.error());
  wakeup::Service service(options, *vector);

  auto card = co_await any_card::open(choice, {.reserved_core = observation.control_core,
                                               .reserved_port = observation.control_port.value_or(0),
                                               .frame_bytes_max = address.frame_bytes_max()});
  if (!card) {
    print("wakeup: no network card, so there is neither control nor a log: ", card.error().message);
    if (const auto applied = co_await policy::apply(observation.boot_settings); !applied) {
      print("wakeup: ", applied.error().why);
      co_return 1;
    }
    const auto measured = co_await service.measure();
    co_return measured ? 0 : fail("not measured", measured.error());
  }
  auto network = co_await net::up(*card->device, address);
  if (!network) co_return fail("no network", network.error());
  auto control = co_await observe::start(std::move(observation), *card->settings, **network);
  if (!control) co_return fail("no control", control.error());
  if (const auto added = (*control)->add_command(
          wakeup::command_usage, wakeup::command_help,
          [&service](std::span<const std::string_view> words, std::optional<unsigned>) { return service.command(words); });
      !added) {
    co_return fail("no command", added.error());
  }
  if (const auto measured = co_await service.measure(); !measured) co_return fail("not measured", measured.error());

  Completion<> never;  // keeps this task alive; all further work is done in events of connections
  co_await never;
  co_return 0;
}
