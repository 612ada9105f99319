// SPDX-License-Identifier: BSL-1.0
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <new>

#include "kernel/console.hpp"
#include "kernel/machine.hpp"
#include "kernel/panic.hpp"
#include "kernel/siphash.hpp"
#include "lwip/dhcp.h"
#include "net/bring_up.hpp"
#include "net/stack.hpp"

namespace neap::net {

namespace {

using std::chrono::milliseconds;
constexpr milliseconds wait_step{5}, wait_report{10'000};

constexpr std::uint32_t local_ports = 65536 - ephemeral_ports_first;

/// Prints an address without using the heap.
Line& operator<<(Line& line, Ipv4Address address) {
  for (int shift = 24; shift >= 0; shift -= 8) {
    line << (address.value >> shift & 0xFF);
    if (shift > 0) line << '.';
  }
  return line;
}

/// The core that handles the segments of a connection which this machine begins between these endpoints.
unsigned core_of_connection(const StackGroup& group, const Endpoint& local, const Endpoint& remote) noexcept {
  if (group.device_decides) return group.core_of_port(local.port, group.first);
  const NetDevice& device = group.device;
  if (remote.address.is_v4()) return device.receiving_core(remote.address.v4().value, local.address.v4().value, remote.port, local.port);
  std::array<std::byte, 32> addresses;
  remote.address.write(addresses.data());
  local.address.write(addresses.data() + 16);
  const auto octets = std::bit_cast<std::array<std::uint8_t, 32>>(addresses);
  const auto all = std::span(octets);
  return device.receiving_core_ipv6(all.first<16>(), all.last<16>(), remote.port, local.port);
}

/// Returns a local port that no connection to `remote` uses and whose answers this core handles; 0 if there is none. As in RFC
/// 6056, 3.3.3, the search starts at an unpredictable port that depends on the destination, and tries one port after the other. So a
/// port is reused only after all other ports were tried. The port's last connection may still be in TIME-WAIT at the peer.
std::uint16_t choose_port(Stack& stack, const StackGroup& group, const Address& local, const Endpoint& remote) noexcept {
  static const SipKey key{.low = machine::random_bits(), .high = machine::random_bits()};
  static constinit thread_local std::uint32_t ports_tried = 0;
  std::array<std::byte, 34> destination;
  local.write(destination.data());
  remote.address.write(destination.data() + 16);
  std::memcpy(destination.data() + 32, &remote.port, 2);
  const auto input = std::bit_cast<std::array<std::uint8_t, 34>>(destination);
  const auto start = static_cast<std::uint32_t>(siphash(key, input) + ports_tried);
  for (std::uint32_t i = 0; i < local_ports; ++i) {
    const auto port = static_cast<std::uint16_t>(ephemeral_ports_first + (start + i) % local_ports);
    const Endpoint own{.address = local, .port = port};
    if (core_of_connection(group, own, remote) != this_core()) continue;
    const auto in_use = [&](const auto& flow) { return stack.find(flow) != nullptr || stack.is_in_time_wait(flow); };
    if (stack.listens(port) || std::visit(in_use, key_of(remote, own))) continue;
    ports_tried += i + 1;
    return port;
  }
  return 0;
}

/// The address from which a connection to `remote` begins; nothing without an address or a route.
std::optional<Address> source_for(Stack& stack, const Address& remote) noexcept {
  if (!remote.is_v4()) return stack.ipv6().has_route(remote) ? stack.ipv6().source_for(remote) : std::nullopt;
  const Ipv4Address own = stack.addresses().address;
  if (own.value == 0 || !stack.has_route(remote.v4())) return std::nullopt;
  return own;
}

class NetworkOfStacks final : public NetworkControl {
 public:
  NetworkOfStacks(NetDevice& device, const AddressSetting& setting, unsigned first, unsigned cores)
      : group_{.device = device, .first = first, .cores = cores, .ipv6_setting = setting.ipv6, .mtu = setting.mtu} {
    group_.ipv6_shared = std::make_unique<ipv6::Shared>(SipKey{.low = machine::random_bits(), .high = machine::random_bits()},
                                                        std::max(setting.mtu, ipv6::mtu_min));
    group_.stacks = std::make_unique<std::atomic<Stack*>[]>(cores);
  }

  [[nodiscard]] Ipv4Address address() const noexcept override { return {group_.address.load(std::memory_order_acquire)}; }
  [[nodiscard]] Ipv4Address netmask() const noexcept override { return {group_.netmask.load(std::memory_order_acquire)}; }
  [[nodiscard]] unsigned cores() const noexcept override { return group_.cores; }
  [[nodiscard]] std::uint16_t mtu() const noexcept override { return group_.mtu; }
  [[nodiscard]] NetDevice& device() const noexcept override { return group_.device; }
  [[nodiscard]] task<Result<void>> listen(std::uint16_t port,
                                          std::function<std::unique_ptr<ConnectionHandler>(Connection&)> acceptor) override;
  [[nodiscard]] task<Result<void>> connect(Endpoint remote, Acceptor acceptor) override;
  [[nodiscard]] task<Result<void>> receive_datagrams(std::uint16_t port, DatagramReceiver receiver) override;
  [[nodiscard]] Result<void> send_datagram(std::uint16_t from_port, Endpoint to, std::span<const std::byte> bytes) override {
    if (!has_stack()) return failure(ErrorCode::unsupported, "this core has no network stack", this_core());
    return group_.stack(this_core())->send_datagram(from_port, to, bytes);
  }
  [[nodiscard]] task<Result<void>> join(Address group) override { return change_group(group, true); }
  [[nodiscard]] task<Result<void>> leave(Address group) override { return change_group(group, false); }
  [[nodiscard]] std::vector<Address> ipv6_addresses() const override;
  [[nodiscard]] task<void> take_down() override;

  [[nodiscard]] task<Result<void>> start(AddressSetting setting);

 private:
  [[nodiscard]] task<bool> make_stack(unsigned core);
  template <class Begin, class Undo>
  [[nodiscard]] task<Result<void>> on_all_or_none(Begin begin, Undo undo);
  [[nodiscard]] task<Result<void>> change_group(Address group, bool join);
  [[nodiscard]] unsigned end() const noexcept { return group_.first + group_.cores; }
  [[nodiscard]] bool has_stack() const noexcept { return this_core() >= group_.first && this_core() < end(); }

  StackGroup group_;
};

task<bool> NetworkOfStacks::make_stack(unsigned core) {
  co_return co_await on_core(core, [this, core] {
    Stack* const stack = new (std::nothrow) Stack(group_, core);
    if (stack == nullptr) return false;
    group_.stacks[core - group_.first].store(stack, std::memory_order_release);
    stack->send_by(group_.device.attach(*stack));
    return true;
  });
}

task<Result<void>> NetworkOfStacks::start(AddressSetting setting) {
  require(this_core() == group_.first, "a network starts on its first core", this_core());
  for (unsigned core = group_.first; core < end(); ++core) {
    if (!co_await make_stack(core)) co_return failure(ErrorCode::out_of_memory, "no memory for a network stack", core);
  }
  Stack& primary = *group_.stack(group_.first);
  bool asked = false;
  auto waited = milliseconds(0);
  while (true) {
    const bool link = group_.device.link_up();
    if (link && !asked) {
      netif_set_link_up(&primary.interface());
      primary.ipv6().begin();
      if (setting.ipv4 && !setting.dhcp) {
        primary.set_addresses({.address = setting.address, .netmask = setting.netmask, .gateway = setting.gateway});
      } else if (setting.ipv4 && !primary.start_dhcp()) {
        co_return failure(ErrorCode::out_of_memory, "no memory for a DHCP request");
      }
      asked = true;
    }
    if (link && (setting.ipv4 ? primary.addresses().address.value != 0 : primary.ipv6().ready())) break;
    co_await sleep_for(wait_step);
    waited += wait_step;
    if (waited % wait_report == milliseconds(0)) {
      print("net: ",
            !link          ? "no link"
            : setting.ipv4 ? "no answer to DHCP"
                           : "no IPv6 address",
            ", waiting for ", waited.count() / 1000, " s");
    }
  }
  if (!setting.ipv4) co_return Result<void>{};
  // The first core publishes the address in a separate event, which may run after this function. So the address is also set here, for cores
  // that answer packets before that event.
  const Addresses addresses = primary.addresses();
  group_.netmask.store(addresses.netmask.value, std::memory_order_release);
  group_.address.store(addresses.address.value, std::memory_order_release);
  for (unsigned core = group_.first + 1; core < end(); ++core) {
    co_await on_core(core, [this, core, addresses] { group_.stack(core)->set_addresses(addresses); });
  }
  Line line;
  line << "net: " << addresses.address << '/' << std::popcount(addresses.netmask.value);
  if (addresses.gateway.value != 0) line << " gateway " << addresses.gateway;
  line << (setting.dhcp ? " (DHCP)" : " (static)") << ", " << group_.cores << (group_.cores == 1 ? " core" : " cores");
  if (group_.mtu != AddressSetting::mtu_usual) line << ", MTU " << group_.mtu;
  line.print();
  co_return Result<void>{};
}

/// Calls `begin` with each stack, on the stack's core. If one of these calls fails, calls `undo` with each stack whose `begin` succeeded.
template <class Begin, class Undo>
task<Result<void>> NetworkOfStacks::on_all_or_none(Begin begin, Undo undo) {
  for (unsigned core = group_.first; core < end(); ++core) {
    Result<void> begun = co_await on_core(core, [&]() -> Result<void> {
      try {
        return begin(*group_.stack(core));
      } catch (const std::bad_alloc&) {
        return failure(ErrorCode::out_of_memory, "no memory for a port", core);
      }
    });
    if (begun.has_value()) continue;
    for (unsigned earlier = group_.first; earlier < core; ++earlier) {
      co_await on_core(earlier, [&] { undo(*group_.stack(earlier)); });
    }
    co_return begun;
  }
  co_return Result<void>{};
}

task<Result<void>> NetworkOfStacks::listen(std::uint16_t port, std::function<std::unique_ptr<ConnectionHandler>(Connection&)> acceptor) {
  if (port == 0 || acceptor == nullptr) co_return failure(ErrorCode::invalid, "a listener needs a port and an acceptor", port);
  co_return co_await on_all_or_none([&](Stack& stack) { return stack.listen(port, acceptor); },
                                    [port](Stack& stack) { stack.stop_listening(port); });
}

task<Result<void>> NetworkOfStacks::connect(Endpoint remote, Acceptor acceptor) {
  if (!has_stack()) co_return failure(ErrorCode::unsupported, "this core has no network stack", this_core());
  if (remote.port == 0 || remote.address.is_unspecified()) co_return failure(ErrorCode::invalid, "no such address", remote.port);
  require(acceptor != nullptr, "an outgoing connection has an acceptor", remote.port);
  Stack& stack = *group_.stack(this_core());
  const std::optional<Address> local = source_for(stack, remote.address);
  if (!local.has_value()) co_return failure(ErrorCode::invalid, "the machine has no address, or no route", remote.port);
  const std::uint16_t port = choose_port(stack, group_, *local, remote);
  if (port == 0) co_return failure(ErrorCode::full, "no local port is free", remote.port);
  ConnectionState* const connection = stack.make_connection(key_of(remote, {.address = *local, .port = port}), false);
  if (connection == nullptr) co_return failure(ErrorCode::full, "no room for another connection");
  ConnectAttempt attempt{.acceptor = std::move(acceptor), .done = {}, .limit = {}};
  connection->connect(attempt);
  co_return co_await attempt.done;
}

task<Result<void>> NetworkOfStacks::receive_datagrams(std::uint16_t port, DatagramReceiver receiver) {
  if (port == 0 || receiver == nullptr) co_return failure(ErrorCode::invalid, "datagrams need a port and a receiver", port);
  co_return co_await on_all_or_none([&](Stack& stack) { return stack.receive_datagrams(port, receiver); },
                                    [port](Stack& stack) { stack.end_datagrams(port); });
}

// One event of the first core changes the table of groups and IGMP's state, and copies the addresses for the card's filter. A later event
// sets the filter, so lwIP may send its first report of a group before the filter is set.
task<Result<void>> NetworkOfStacks::change_group(Address group, bool join) {
  if (!has_stack()) co_return failure(ErrorCode::unsupported, "this core has no network stack", this_core());
  const bool can_be_joined =
      group.is_v4() ? Groups::can_be_joined(group.v4()) : group.is_multicast() && group.scope() > 1 && group != ipv6::all_nodes;
  if (!can_be_joined) co_return failure(ErrorCode::invalid, "no group that can be joined (224.0.0.0/4, ff00::/8)", group.low());
  if (!group.is_v4() && group_.ipv6_setting.mode == Ipv6Setting::Mode::off) {
    co_return failure(ErrorCode::unsupported, "IPv6 is off (ip6=)", group.low());
  }
  const unsigned core = this_core();
  co_return co_await on_core(group_.first, [&]() -> task<Result<void>> {
    std::vector<MacAddress> addresses;
    try {
      addresses.reserve(Groups::groups_max + ipv6::Listener::groups_max + 2);
    } catch (const std::bad_alloc&) {
      co_return failure(ErrorCode::out_of_memory, "no memory for the card's filter", group.low());
    }
    require(this_core() == group_.first, "groups change on the first core", this_core());
    Stack& primary = *group_.stack(group_.first);
    Result<void> changed = !group.is_v4() ? primary.ipv6().change_group(group, core, join)
                           : join         ? primary.join(group.v4(), core)
                                          : primary.leave(group.v4(), core);
    if (!changed) co_return changed;
    put_filter_addresses(group_, *primary.ipv6().engine(), addresses);
    co_await group_.device.set_multicast(std::move(addresses));
    co_return Result<void>{};
  });
}

std::vector<Address> NetworkOfStacks::ipv6_addresses() const {
  std::vector<Address> addresses;
  for (unsigned i = 0; i < ipv6::PublishedAddresses::entries_max; ++i) {
    if (const auto entry = group_.ipv6_shared->addresses.entry(i); entry.bits != 0) addresses.push_back(entry.address);
  }
  return addresses;
}

task<void> NetworkOfStacks::take_down() {
  for (unsigned core = group_.first; core < end(); ++core) {
    co_await on_core(core, [&] { group_.stack(core)->abort_all(); });
    while (co_await on_core(core, [&] { return group_.stack(core)->connections() > 0; })) co_await sleep_for(milliseconds(1));
  }
  for (unsigned core = group_.first; core < end(); ++core) {
    co_await on_core(core, [&] { group_.stack(core)->stop_transmitting(); });
    while (co_await on_core(core, [&] { return group_.stack(core)->frames_in_flight() > 0; })) co_await sleep_for(milliseconds(1));
    co_await on_core(core, [&] { delete group_.stacks[core - group_.first].exchange(nullptr); });
  }
}

}  // namespace

task<Result<std::unique_ptr<NetworkControl>>> bring_up(NetDevice& device, AddressSetting setting, unsigned first, unsigned cores) {
  if (cores == 0 || first + cores > core_count()) co_return failure(ErrorCode::invalid, "no core for a network stack", cores);
  if (setting.frame_bytes_max() > device.limits().frame_bytes_max)
    co_return failure(ErrorCode::invalid, "the device was opened for shorter frames than the MTU needs", device.limits().frame_bytes_max);
  try {
    auto network = std::make_unique<NetworkOfStacks>(device, setting, first, cores);
    Result<void> started = co_await network->start(setting);
    if (!started.has_value()) {
      static_cast<void>(network.release());  // never freed, because the card may still refer to the network
      co_return std::unexpected(started.error());
    }
    co_return std::unique_ptr<NetworkControl>(std::move(network));
  } catch (const std::bad_alloc&) {
    co_return failure(ErrorCode::out_of_memory, "no memory for the network");
  }
}

task<Result<Network*>> up(NetDevice& device, AddressSetting setting) {
  auto network = co_await bring_up(device, setting, 0, std::min(device.limits().queue_pairs, core_count()));
  if (!network.has_value()) co_return std::unexpected(network.error());
  co_return network->release();  // never freed
}

}  // namespace neap::net
