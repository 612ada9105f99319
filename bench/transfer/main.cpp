// SPDX-License-Identifier: BSL-1.0
// A server that sends and receives sums of bytes, for transfers over bad links (`./neap bench network`). Its client is
// tests/linux_guest/transfer.c.
#include <memory>
#include <utility>

#include "bench/transfer/session.hpp"
#include "drivers/any_card.hpp"
#include "kernel/application.hpp"
#include "kernel/console.hpp"
#include "kernel/task.hpp"
#include "net/network.hpp"
#include "observe/control.hpp"

namespace {

using namespace neap;

int fail(const char* what, const Error& error) {
  print("bench_transfer: ", what, ": ", error.message, " (", hex(error.detail), ")");
  return 1;
}

}  // namespace

neap::task<int> neap::application(Arguments& arguments) {
  const auto address = net::AddressSetting::from(arguments);
  const auto choice = any_card::Choice::from(arguments);
  auto observation = observe::Options::from(arguments, any_card::setting_rows());
  const auto port = static_cast<std::uint16_t>(arguments.number("port", 5005, {1, 65535}, "TCP port of the transfers"));
  arguments.finish();

  auto card = co_await any_card::open(choice, {.reserved_core = observation.control_core,
                                               .reserved_port = observation.control_port.value_or(0),
                                               .frame_bytes_max = address.frame_bytes_max()});
  if (!card) co_return fail("no network card", card.error());
  auto network = co_await net::up(*card->device, address);
  if (!network) co_return fail("no network", network.error());
  auto control = co_await observe::start(std::move(observation), *card->settings, **network);
  if (!control) co_return fail("no control", control.error());

  const auto listening = co_await (*network)->listen(port, [](net::Connection&) { return std::make_unique<bench::Session>(); });
  if (!listening) co_return fail("cannot listen", listening.error());
  print("bench_transfer: listening on ", (*network)->address().to_string(), ":", port);

  Completion<> never;  // keeps this task alive; all further work is done in events of connections
  co_await never;
  co_return 0;
}
