// SPDX-License-Identifier: BSL-1.0
// Two machines in one process, connected by a wire, for the connection tests.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "kernel/policy.hpp"
#include "kernel/task.hpp"
#include "net/bring_up.hpp"
#include "net/testing/handlers.hpp"
#include "net/testing/wire.hpp"
#include "tests/host/host_machine.hpp"

namespace neap::net::testing {

using namespace std::chrono_literals;
using host::HostMachine;
constexpr Ipv4Address server_address{0x0A000001}, client_address{0x0A000002};
constexpr AddressSetting server_setting{.dhcp = false, .address = server_address, .netmask = {0xFFFFFF00}, .gateway = {}};
constexpr AddressSetting client_setting{.dhcp = false, .address = client_address, .netmask = {0xFFFFFF00}, .gateway = {}};

constexpr Endpoint service(std::uint16_t port) { return {.address = server_address, .port = port}; }
/// The link-local addresses of the two machines with their default MAC addresses.
constexpr Address server_address6{0xFE80'0000'0000'0000, 0x0000'00FF'FE00'0001},
    client_address6{0xFE80'0000'0000'0000, 0x0000'00FF'FE00'0002};

struct TwoMachinesOptions {
  CardOptions server{.mac = {0x02, 0, 0, 0, 0, 1}, .seed = 1};
  CardOptions client{.mac = {0x02, 0, 0, 0, 0, 2}, .seed = 2};
  bool ipv6 = false;  ///< the machines have IPv6 instead of IPv4
};

/// The server uses the first cores, and the client uses the next ones. Both machines have their addresses after construction. The MTU of
/// each is the one that its card permits.
class TwoMachines {
 public:
  explicit TwoMachines(TwoMachinesOptions options = {})
      : ipv6(options.ipv6),
        client_core((options.client.first_core = options.server.cores)),
        server_card(options.server),
        client_card(options.client),
        machine(options.server.cores + options.client.cores) {
    WireCard::join(server_card, client_card);
    const AddressSetting link_local{.dhcp = false, .ipv6 = {.mode = Ipv6Setting::Mode::automatic}, .ipv4 = false};
    server = bring_up(server_card, ipv6 ? link_local : server_setting, 0, options.server.cores);
    client = bring_up(client_card, ipv6 ? link_local : client_setting, client_core, options.client.cores);
  }
  TwoMachines& operator=(TwoMachines&&) = delete;
  ~TwoMachines() {
    server_card.cut();
    client_card.cut();
    machine.run(client_core, [this] { return client->take_down(); });
    machine.run(0, [this] { return server->take_down(); });
    EXPECT_EQ(server_card.buffers_out(), 0);
    EXPECT_EQ(client_card.buffers_out(), 0);
    EXPECT_EQ(server_card.bad_checksums(), 0U);
    EXPECT_EQ(client_card.bad_checksums(), 0U);
  }

  void listen(std::uint16_t port, std::function<std::unique_ptr<ConnectionHandler>(Connection&)> acceptor) {
    machine.run(0, [&]() -> task<void> {
      const Result<void> listening = co_await server->listen(port, acceptor);
      EXPECT_TRUE(listening.has_value());
    });
  }
  /// Connects from `core`, by default from the client's first core. Returns the error's code, if any.
  std::optional<ErrorCode> connect(Endpoint remote, std::function<std::unique_ptr<ConnectionHandler>(Connection&)> acceptor,
                                   int core = -1) {
    std::optional<ErrorCode> error;
    machine.run(core < 0 ? client_core : static_cast<unsigned>(core), [&]() -> task<void> {
      const Result<void> connected = co_await client->connect(remote, std::move(acceptor));
      if (!connected.has_value()) error = connected.error().code;
    });
    return error;
  }
  /// Sets `tso` for all cores, as control does. Returns the reason for a refusal, or an empty text.
  std::string set_tso(const char* form) {
    std::string why;
    machine.run(0, [&]() -> task<void> {
      const auto set = co_await policy::set(policy::Setting::segmentation, form, policy::all_cores);
      if (!set.has_value()) why = set.error().why;
    });
    return why;
  }
  Counters counters_of(unsigned core) {
    return machine.value_on(core, [&] { return counters(core); });  // read on that core, so its previous event has ended
  }

  [[nodiscard]] Endpoint service(std::uint16_t port) const {
    return {.address = ipv6 ? server_address6 : Address(server_address), .port = port};
  }

  const bool ipv6;
  const unsigned client_core;
  WireCard server_card, client_card;
  HostMachine machine;
  std::unique_ptr<NetworkControl> server, client;

 private:
  std::unique_ptr<NetworkControl> bring_up(WireCard& card, AddressSetting setting, unsigned first, unsigned cores) {
    constexpr unsigned ethernet_bytes = 14;
    setting.mtu = static_cast<std::uint16_t>(card.limits().frame_bytes_max - ethernet_bytes);
    std::unique_ptr<NetworkControl> network;
    machine.run(first, [&]() -> task<void> {
      auto result = co_await net::bring_up(card, setting, first, cores);
      if (!result.has_value()) {
        ADD_FAILURE() << result.error().message;
        std::abort();
      }
      network = std::move(*result);
    });
    return network;
  }
};

/// A well-behaved client of an echo service: sends `bytes` bytes, receives them back, and closes. Returns the time that this took.
inline std::chrono::milliseconds served(TwoMachines& world, std::uint16_t port, std::size_t bytes = 20'000) {
  const auto begin = std::chrono::steady_clock::now();
  const auto record = std::make_shared<Record>();
  const auto acceptor = recording(record, {.check_seed = 9, .send_seed = 9, .send_bytes = bytes, .expect_bytes = bytes});
  EXPECT_EQ(world.connect(world.service(port), acceptor), std::nullopt) << port;
  EXPECT_TRUE(HostMachine::wait_until([&] { return ended(*record); })) << port;
  EXPECT_EQ(record->received, bytes) << port;
  expect_ended_well(*record);
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begin);
}

}  // namespace neap::net::testing
