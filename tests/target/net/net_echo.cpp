// SPDX-License-Identifier: BSL-1.0
// Property: what a foreign TCP sends comes back, from every core, whatever the number of connections; and an idle machine stays asleep.
//
//   port 7 (RFC 862)   sends back what it receives, from where it lies
//   port 8             the line `counters`: one line of each core's counters; the line `quit`: ends the run
#include <memory>
#include <string>
#include <utility>

#include "drivers/ixgbe/card.hpp"
#include "kernel/application.hpp"
#include "kernel/console.hpp"
#include "kernel/events.hpp"
#include "kernel/task.hpp"
#include "net/network.hpp"

namespace {

using namespace neap;

class Echo final : public net::ConnectionHandler {
 public:
  void received(net::Buffer data) override {
    waiting_.append(std::move(data));
    forward();
  }
  void writable() override { forward(); }
  void peer_closed() override {
    ending_ = true;
    forward();
  }

 private:
  void forward() {
    while (!waiting_.empty()) {
      if (waiting_.bytes() > connection().send_space_bytes() || !connection().send(std::exchange(waiting_, net::Buffer{}))) return;
    }
    if (ending_) connection().close();
  }
  net::Buffer waiting_;
  bool ending_ = false;
};

class Control final : public net::ConnectionHandler {
 public:
  Control(net::Network& network, unsigned home, Completion<void>& quit) : network_(network), home_(home), quit_(quit) {}
  void received(net::Buffer data) override {
    std::string text(data.bytes(), ' ');
    data.peek(std::as_writable_bytes(std::span(text)));
    line_ += text;
    if (line_.starts_with("quit\n") && !std::exchange(quitting_, true)) {
      if (!spawn_on(home_, [&quit = quit_] { quit.fulfil(); })) quitting_ = false;
    }
    if (line_.starts_with("counters\n")) {
      line_.clear();
      for (unsigned core = 0; core < network_.cores(); ++core) print_counters(core);
    }
  }

 private:
  static void print_counters(unsigned core) {
    const net::Counters all = net::counters(core);
    print("net_echo: core ", core, " received=", all.frames_received, " sent=", all.frames_sent, " malformed=", all.dropped_malformed,
          " bad_checksums=", all.dropped_checksum, " memory=", all.dropped_memory, " retransmissions=", all.retransmissions,
          " accepted=", all.connections_accepted, " open=", all.connections_open, " reset=", all.connections_reset,
          " passed_on=", all.passed_on, " published=", all.neighbours_published, " sleeps=", event_counters(core).sleeps);
  }

  net::Network& network_;
  unsigned home_;
  Completion<void>& quit_;
  std::string line_;
  bool quitting_ = false;
};

int fail(const Error& error) {
  print("net_echo: ", error.message, " (", hex(error.detail), ")");
  return 1;
}

}  // namespace

neap::task<int> neap::application(Arguments& arguments) {
  const net::AddressSetting address = net::AddressSetting::from(arguments);
  arguments.finish();
  auto card = co_await ixgbe::open({}, {});
  if (!card) co_return fail(card.error());
  auto network = co_await net::up(**card, address);
  if (!network) co_return fail(network.error());

  Completion<void> quit;
  const unsigned home = this_core();
  const Result<void> echo = co_await (*network)->listen(7, [](net::Connection&) { return std::make_unique<Echo>(); });
  if (!echo) co_return fail(echo.error());
  const Result<void> control = co_await (*network)->listen(
      8, [&network, home, &quit](net::Connection&) { return std::make_unique<Control>(**network, home, quit); });
  if (!control) co_return fail(control.error());
  print("net_echo: listening");
  co_await quit;
  static_cast<void>(card->release());  // the machine ends; the card is not taken from under the stacks
  co_return 0;
}
