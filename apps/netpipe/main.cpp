// SPDX-License-Identifier: BSL-1.0
// NetPIPE on bare metal: how fast messages of every size go between this machine and another, which runs Debian's NPtcp, or Neap.
#include <string>

#include "apps/netpipe/options.hpp"
#include "apps/netpipe/service.hpp"
#include "drivers/ixgbe/card.hpp"
#include "kernel/application.hpp"
#include "kernel/console.hpp"
#include "kernel/events.hpp"
#include "kernel/task.hpp"
#include "net/network.hpp"

namespace {

using namespace neap;

enum Mode : std::size_t { server, client };

struct Words {
  net::AddressSetting address;
  std::size_t mode = server;
  std::uint16_t port = 0;
  netpipe::ClientOptions client;  ///< a server uses only `measured`
};

Words read_words(Arguments& arguments) {
  Words words;
  words.address = net::AddressSetting::from(arguments);
  words.mode = arguments.choice("mode", {"server", "client"}, server, "wait for others to measure, or measure once and end");
  if (words.mode == client) {
    words.client = netpipe::client_options(arguments, {}, core_count());
  } else {
    words.client.measured = netpipe::Options::from_words(arguments, {});
    words.port = static_cast<std::uint16_t>(arguments.number("port", 5003, {1, 65535}, "TCP port on which others begin measurements"));
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
  const Words words = read_words(arguments);

  auto card = co_await ixgbe::open();
  if (!card) co_return fail("no network card", card.error());
  auto network = co_await net::up(**card, words.address);
  if (!network) co_return fail("no network", network.error());

  netpipe::Service service(**network, words.client.measured);
  if (words.mode == client) {
    const auto run = co_await service.measure(words.client);
    if (!run) co_return fail("not measured", run.error());
    co_return run->state == netpipe::Session::State::finished ? 0 : 1;
  }

  if (const auto listening = co_await service.serve(words.port); !listening) co_return fail("cannot listen", listening.error());
  print("netpipe: listening on ", (*network)->address().to_string(), ":", words.port);

  Completion<> never;  // the connections' events do the rest
  co_await never;
  co_return 0;
}
