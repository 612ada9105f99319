// SPDX-License-Identifier: BSL-1.0
// Property: datagrams to a multicast group reach the cores that joined it and no others, even after changes and resets of the card.
//
// The peer is net_groups_test.py, at UDP port 9000; the core that receives a datagram answers it. These are the datagrams and answers:
//   to a group                 "core N: " and its text
//   "join CORE A.B.C.D"        "ok" or "error: why"; the same for "leave CORE A.B.C.D"
//   "many CORE COUNT"          joins COUNT groups from 239.3.0.1 on
#include <charconv>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "drivers/any_card.hpp"
#include "kernel/application.hpp"
#include "kernel/console.hpp"
#include "kernel/events.hpp"
#include "kernel/task.hpp"
#include "net/network.hpp"

namespace {

using namespace neap;

constexpr std::uint16_t port = 9000;
constexpr std::uint32_t first_of_many = 0xEF030001;

struct Groups {
  net::Network* network = nullptr;

  void send(net::Endpoint to, const std::string& text) const {
    // A lost answer is harmless: the peer then repeats its request.
    (void)network->send_datagram(port, to, std::as_bytes(std::span(text)));
  }

  task<std::string> change(bool join, unsigned core, net::Ipv4Address group) const {
    const auto done = co_await on_core(core, [this, join, group] { return join ? network->join(group) : network->leave(group); });
    co_return done ? std::string("ok") : std::string("error: ") + done.error().message;
  }

  task<void> obey(std::string text, net::Endpoint from) const {
    const std::size_t core_at = text.find(' ') + 1;
    const std::size_t what_at = text.find(' ', core_at) + 1;
    unsigned core = ~0U;
    (void)std::from_chars(text.data() + core_at, text.data() + text.size(), core);
    std::string answer = "error: not understood";
    if (core < core_count() && what_at > core_at) {
      const std::string what = text.substr(what_at);
      if (const auto group = net::Ipv4Address::parse(what); group && (text.starts_with("join ") || text.starts_with("leave "))) {
        answer = co_await change(text.starts_with("join "), core, *group);
      } else if (text.starts_with("many ")) {
        unsigned count = 0;
        (void)std::from_chars(what.data(), what.data() + what.size(), count);
        answer = "ok";
        for (unsigned i = 0; i < count && answer == "ok"; ++i) answer = co_await change(true, core, {first_of_many + i});
      }
    }
    send(from, text + ": " + answer);
  }

  void received(const net::Datagram& datagram) const {
    std::string text(datagram.data.bytes(), '\0');
    (void)datagram.data.peek(std::as_writable_bytes(std::span(text)));
    if (datagram.to.address == network->address()) return start(obey(std::move(text), datagram.from));
    send(datagram.from, "core " + std::to_string(this_core()) + ": " + text);
  }
};

}  // namespace

neap::task<int> neap::application(Arguments& arguments) {
  const net::AddressSetting address = net::AddressSetting::from(arguments);
  const auto choice = any_card::Choice::from(arguments);
  arguments.finish();
  auto card = co_await any_card::open(choice, {.frame_bytes_max = address.frame_bytes_max()});
  if (!card) {
    print("net_groups: ", card.error().message);
    co_return 1;
  }
  auto network = co_await net::up(*card->device, address);
  if (!network) {
    print("net_groups: ", network.error().message);
    co_return 1;
  }
  const Groups groups{*network};
  const auto receiving =
      co_await (*network)->receive_datagrams(port, [&groups](const net::Datagram& datagram) { groups.received(datagram); });
  if (!receiving) {
    print("net_groups: ", receiving.error().message);
    co_return 1;
  }
  print("net_groups: ready");
  Completion<> never;
  co_await never;
  co_return 0;
}
