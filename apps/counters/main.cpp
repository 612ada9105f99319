// SPDX-License-Identifier: BSL-1.0
// Named counters over TCP: an example of what cores can share and what tasks can wait for.
//
// The program uses parts of the kernel that memcached does not use. service.hpp has an RCU table and an Ebb, a variable with a separate
// object on each core. session.cpp waits for several counters at once and cancels the wait by a time-out. This file has a repeating timer.
#include <chrono>
#include <cstdint>
#include <utility>

#include "apps/counters/service.hpp"
#include "apps/counters/session.hpp"
#include "drivers/any_card.hpp"
#include "kernel/application.hpp"
#include "kernel/console.hpp"
#include "kernel/task.hpp"
#include "kernel/timer.hpp"
#include "kernel/when_all.hpp"
#include "net/network.hpp"
#include "observe/control.hpp"

namespace {

using namespace neap;

int fail(const char* what, const Error& error) {
  print("counters: ", what, ": ", error.message, " (", hex(error.detail), ")");
  return 1;
}

}  // namespace

neap::task<int> neap::application(Arguments& arguments) {
  const net::AddressSetting address = net::AddressSetting::from(arguments);
  const auto choice = any_card::Choice::from(arguments);
  observe::Options observation = observe::Options::from(arguments, any_card::setting_rows());
  const auto port = static_cast<std::uint16_t>(arguments.number("port", 7008, {1, 65535}, "TCP port of the counters"));
  arguments.finish();

  auto card = co_await any_card::open(choice, {.reserved_core = observation.control_core,
                                               .reserved_port = observation.control_port.value_or(0),
                                               .frame_bytes_max = address.frame_bytes_max()});
  if (!card) co_return fail("no network card", card.error());
  auto network = co_await net::up(*card->device, address);
  if (!network) co_return fail("no network", network.error());
  auto control = co_await observe::start(std::move(observation), *card->settings, **network);
  if (!control) co_return fail("no control", control.error());

  counters::Service service;
  co_await on_each_core([] { static_cast<void>(*counters::statistics); });  // allocates each core's statistics before the first request
  Timer each_second;
  each_second.repeat(std::chrono::seconds(1), [&service, before = std::uint64_t{0}]() mutable {
    const std::uint64_t now = service.requests();
    service.requests_last_second = now - std::exchange(before, now);
  });
  const auto report = [&service](std::optional<unsigned> core, const Emit& emit) {
    if (!core) return emit("requests_last_second", service.requests_last_second);
    if (const auto* const own = counters::statistics.on(*core)) emit("requests", own->requests.value());
  };
  if (const auto added = (*control)->add_statistics("counters", report); !added) co_return fail("no statistics", added.error());

  const auto listening =
      co_await (*network)->listen(port, [&service](net::Connection& connection) { return counters::accept(service, connection); });
  if (!listening) co_return fail("cannot listen", listening.error());
  print("counters: listening on ", net::Endpoint{.address = (*network)->shown_address(), .port = port}.to_string());

  Completion<> never;  // keeps this task alive; all further work is done in events of connections
  co_await never;
  co_return 0;
}
