// SPDX-License-Identifier: BSL-1.0
// TPC-C on bare metal: the card, the network, control and log, the tables, and a port on which every core runs its clients' transactions.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "apps/tpcc/idle.hpp"
#include "apps/tpcc/options.hpp"
#include "apps/tpcc/server_database.hpp"
#include "apps/tpcc/service.hpp"
#include "apps/tpcc/session.hpp"
#include "drivers/any_card.hpp"
#include "kernel/application.hpp"
#include "kernel/console.hpp"
#include "kernel/events.hpp"
#include "kernel/machine.hpp"
#include "kernel/memory/page_allocator.hpp"
#include "kernel/task.hpp"
#include "net/network.hpp"
#include "observe/control.hpp"

namespace {

using namespace neap;

int fail(const char* what, const Error& error) {
  print("tpcc: ", what, ": ", error.message, " (", hex(error.detail), ")");
  return 1;
}

/// `consistency`: checks the consistency conditions while no transaction runs.
observe::Run check_command(tpcc::Service& service) {
  return [&service](std::span<const std::string_view>, std::optional<unsigned>) -> task<std::string> {
    Completion<std::string> checked;
    if (!service.check_consistency([&checked](std::string_view violation) { checked.fulfil(std::string(violation)); })) {
      co_return "error: a check is in progress";
    }
    const std::string violation = co_await checked;
    co_return violation.empty() ? "ok consistent" : "error: " + violation;
  };
}

}  // namespace

neap::task<int> neap::application(Arguments& arguments) {
  const net::AddressSetting address = net::AddressSetting::from(arguments);
  const auto choice = any_card::Choice::from(arguments);
  observe::Options observation = observe::Options::from(arguments, any_card::setting_rows());
  const std::uint64_t log_bytes = observation.log.entries_per_core * log::entry_bytes * core_count();
  const std::uint64_t free_bytes = memory::page_counters().free_bytes;
  const tpcc::Options options = tpcc::read_options(arguments, free_bytes - std::min(free_bytes, log_bytes), core_count());
  arguments.finish();

  auto card = co_await any_card::open(choice, {.reserved_core = observation.control_core,
                                               .reserved_port = observation.control_port.value_or(0),
                                               .frame_bytes_max = address.frame_bytes_max()});
  if (!card) co_return fail("no network card", card.error());
  auto network = co_await net::up(*card->device, address);
  if (!network) co_return fail("no network", network.error());
  auto control = co_await observe::start(std::move(observation), *card->settings, **network);
  if (!control) co_return fail("no control", control.error());

  tpcc::Service service(options, core_count());
  tpcc::ServerDatabase database(service, {});
  print("tpcc: loading warehouses=", options.warehouses);  // on an emulated machine, it takes many seconds
  const std::uint64_t begin_ns = machine::now_ns(), begin_bytes = memory::free_page_bytes();
  if (const auto started = co_await database.start(); !started) {
    print("tpcc: ", started.error());
    co_return 1;
  }
  print("tpcc: warehouses=", options.warehouses, " loaded in ", (machine::now_ns() - begin_ns) / 1'000'000, " ms, ",
        (begin_bytes - memory::free_page_bytes()) >> 20, " MiB");

  (void)(*control)->add_statistics("tpcc", [&service](std::optional<unsigned> core, const Emit& emit) { service.report(core, emit); });
  if (const auto added = (*control)->add_command("consistency", "Checks TPC-C's consistency conditions.", check_command(service)); !added)
    co_return fail("no command", added.error());
  const auto listening =
      co_await (*network)->listen(options.port, [&service](net::Connection& connection) -> std::unique_ptr<net::ConnectionHandler> {
        auto handler = tpcc::accept(service, connection, this_core());
        tpcc::expect_idle(service, service.core(this_core()));
        return handler;
      });
  if (!listening) co_return fail("cannot listen", listening.error());
  print("tpcc: listening on ", net::Endpoint{.address = (*network)->shown_address(), .port = options.port}.to_string());

  Completion<> never;  // keeps this task alive; all further work is done in events of connections
  co_await never;
  co_return 0;
}
