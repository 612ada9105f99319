// SPDX-License-Identifier: BSL-1.0
// Every core prints hello. Then all cores echo the data of TCP clients (RFC 862, on another port).
#include <cstdint>
#include <memory>
#include <utility>

#include "drivers/any_card.hpp"
#include "kernel/application.hpp"
#include "kernel/console.hpp"
#include "kernel/events.hpp"
#include "kernel/task.hpp"
#include "net/network.hpp"
#include "observe/control.hpp"

namespace {

using namespace neap;

// Each connection has one Echo, on the core that the card chose for the connection. Received data is sent back without a copy.
class Echo final : public net::ConnectionHandler {
 public:
  void received(net::Buffer data) override {
    waiting_.append(std::move(data));
    send_back();
  }
  void writable() override { send_back(); }
  void peer_closed() override {
    ending_ = true;
    send_back();
  }

 private:
  void send_back() {
    // Data that does not fit into the send buffer stays in `waiting_`. Meanwhile the receive window closes (back-pressure).
    if (!waiting_.empty() && waiting_.bytes() <= connection().send_space_bytes()) {
      net::Buffer now = std::exchange(waiting_, net::Buffer{});
      if (!connection().send(std::move(now))) waiting_ = std::move(now);
    }
    if (ending_ && waiting_.empty()) connection().close();
  }

  net::Buffer waiting_;
  bool ending_ = false;
};

int fail(const char* what, const Error& error) {
  print(application_name, ": ", what, ": ", error.message, " (", hex(error.detail), ")");
  return 1;
}

}  // namespace

neap::task<int> neap::application(Arguments& arguments) {
  // These calls read the words of the command line; finish() refuses unknown words.
  const net::AddressSetting address = net::AddressSetting::from(arguments);
  const auto choice = any_card::Choice::from(arguments);
  observe::Options observation = observe::Options::from(arguments, any_card::setting_rows());
  const auto port = static_cast<std::uint16_t>(arguments.number("port", 7007, {1, 65535}, "TCP port of the echo"));
  arguments.finish();

  for (unsigned core = 0; core < core_count(); ++core) {
    co_await on_core(core, [] { print("hello from core ", this_core()); });
  }

  auto card = co_await any_card::open(choice, {.reserved_core = observation.control_core,
                                               .reserved_port = observation.control_port.value_or(0),
                                               .frame_bytes_max = address.frame_bytes_max()});
  if (!card) co_return fail("no network card", card.error());
  auto network = co_await net::up(*card->device, address);
  if (!network) co_return fail("no network", network.error());
  auto control = co_await observe::start(std::move(observation), *card->settings, **network);
  if (!control) co_return fail("no control", control.error());

  const auto listening = co_await (*network)->listen(port, [](net::Connection&) { return std::make_unique<Echo>(); });
  if (!listening) co_return fail("cannot listen", listening.error());
  print(application_name, ": listening on ", (*network)->address().to_string(), ":", port);

  Completion<> never;  // never completes; the connections' events do the work
  co_await never;
  co_return 0;
}
