// SPDX-License-Identifier: BSL-1.0
// NetPIPE on bare metal: measures how fast messages of every size pass between this machine and another, which runs Debian's NPtcp or Neap.
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "apps/netpipe/commands.hpp"
#include "apps/netpipe/options.hpp"
#include "apps/netpipe/service.hpp"
#include "drivers/any_card.hpp"
#include "kernel/application.hpp"
#include "kernel/console.hpp"
#include "kernel/events.hpp"
#include "kernel/task.hpp"
#include "net/network.hpp"
#include "observe/control.hpp"

namespace {

using namespace neap;

enum Mode : std::size_t { server, client };

struct Words {
  net::AddressSetting address;
  any_card::Choice card;
  observe::Options observation;
  unsigned core = 0;  ///< a core that receives frames; it measures by default
  std::size_t mode = server;
  std::uint16_t port = 0;
  netpipe::ClientOptions client;  ///< a server uses only `measured`
};

Words read_words(Arguments& arguments) {
  Words words;
  words.address = net::AddressSetting::from(arguments);
  words.card = any_card::Choice::from(arguments);
  words.observation = observe::Options::from(arguments, any_card::setting_rows());
  words.core = words.observation.control_core == 0U ? 1 : 0;
  words.mode = arguments.choice("mode", {"server", "client"}, server, "serve peers that measure, or measure once and end");
  if (words.mode == client) {
    words.client = netpipe::client_options(arguments, {}, core_count(), words.core);
  } else {
    // The peer chooses the sizes, up to `to`.
    words.client.measured = netpipe::Options::from_words(arguments, {.to = netpipe::Options::bytes_max});
    words.port = static_cast<std::uint16_t>(arguments.number("port", 5003, {1, 65535}, "TCP port on which peers begin measurements"));
  }
  arguments.finish();
  return words;
}

int fail(const char* what, const Error& error) {
  print("netpipe: ", what, ": ", error.message, " (", hex(error.detail), ")");
  return 1;
}

}  // namespace

neap::task<int> neap::application(Arguments& arguments) {
  Words words = read_words(arguments);

  auto card = co_await any_card::open(words.card, {.reserved_core = words.observation.control_core,
                                                   .reserved_port = words.observation.control_port.value_or(0),
                                                   .frame_bytes_max = words.address.frame_bytes_max()});
  if (!card) co_return fail("no network card", card.error());
  auto network = co_await net::up(*card->device, words.address);
  if (!network) co_return fail("no network", network.error());
  auto control = co_await observe::start(std::move(words.observation), *card->settings, **network);
  if (!control) co_return fail("no control", control.error());

  netpipe::Service service(**network, words.client.measured, words.core);
  if (const auto added = (*control)->add_command(
          netpipe::command_usage, netpipe::command_help,
          [&service](std::span<const std::string_view> said, std::optional<unsigned>) { return netpipe::command(service, said); });
      !added) {
    co_return fail("no command", added.error());
  }
  if (const auto added = (*control)->add_statistics("netpipe",
                                                    [&service](std::optional<unsigned> core, const Emit& emit) {
                                                      if (!core) service.report_counters(emit);  // there are no counters for single cores
                                                    });
      !added) {
    co_return fail("no statistics", added.error());
  }
  if (words.mode == client) {
    const auto run = co_await service.measure(words.client);
    if (!run) co_return fail("not measured", run.error());
    co_return run->state == netpipe::Session::State::finished ? 0 : 1;
  }

  if (const auto listening = co_await service.serve(words.port); !listening) co_return fail("cannot listen", listening.error());
  print("netpipe: listening on ", net::Endpoint{.address = (*network)->shown_address(), .port = words.port}.to_string());

  Completion<> never;  // keeps this task alive; all further work is done in events of connections
  co_await never;
  co_return 0;
}
