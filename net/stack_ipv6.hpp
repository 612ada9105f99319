// SPDX-License-Identifier: BSL-1.0
// A core's part of IPv6: between the stack's frames and ports, and the machine's engine.
//
// The engine (ipv6/engine.hpp) runs on the first core. This core's part sends packets and receives datagrams and segments by what the
// engine publishes, so no other core is involved in an ordinary packet. A packet that needs the engine (a neighbour that is not known,
// ICMPv6, extension headers, fragments, groups) is passed on to the first core. Internal to net/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "kernel/net_device.hpp"
#include "net/ipv6/engine.hpp"

namespace neap::net {

class Stack;
struct StackGroup;
using IcmpV6Error = ipv6::IcmpError;

class StackIpv6 final : ipv6::Link, ipv6::Upper {
 public:
  StackIpv6(Stack& stack, StackGroup& group);
  StackIpv6& operator=(StackIpv6&&) = delete;
  ~StackIpv6() override;

  // For transport protocols, on this core.
  /// Returns the MAC address for packets to `destination`: a neighbour's, a router's or a group's. Without one, begins to ask for it, if
  /// rate limits allow, and returns nothing; `generation` changes when it is known.
  [[nodiscard]] std::optional<MacAddress> resolve(const Address& destination) noexcept;
  /// Changes when a MAC address, a route, an own address or a path MTU changes, so a caller MAY keep results while it is the same. It MUST
  /// ask `resolve` again every few seconds at least, so that neighbours that have gone are noticed.
  [[nodiscard]] std::uint32_t generation() const noexcept { return shared_.generation.load(std::memory_order_acquire); }
  [[nodiscard]] std::optional<Address> source_for(const Address& destination) const noexcept {
    return shared_.addresses.source_for(destination, now_ms());
  }
  [[nodiscard]] bool is_own(const Address& address) const noexcept { return shared_.addresses.contains(address); }
  /// The path MTU in bytes, with the fixed header.
  [[nodiscard]] std::uint16_t mtu(const Address& destination) const noexcept { return shared_.mtus.of(destination, now_ms()); }
  [[nodiscard]] std::uint16_t link_mtu() const noexcept { return shared_.mtus.link_mtu(); }
  [[nodiscard]] bool has_route(const Address& destination) const noexcept {
    return !destination.is_multicast() && !is_own(destination) && shared_.routes.load().next_hop(destination, now_ms()).has_value();
  }
  [[nodiscard]] std::uint8_t hops() const noexcept { return shared_.hops.load(std::memory_order_relaxed); }
  /// Sends a packet whose data are `head` (at most 64 bytes) and `body` put together, with its checksum. It is copied. The packet waits if
  /// the neighbour is not known, within limits. It is sent in fragments if it is longer than the path MTU, from the first core. Errors:
  /// `closed` (no route), `full`, `out_of_memory`.
  /// `flow`: traffic class and flow label.
  [[nodiscard]] Result<void> send(const Address& from, const Address& to, std::uint8_t protocol, ipv6::Octets head, ipv6::Octets body,
                                  std::uint32_t flow = 0) noexcept;
  /// The peer has answered, so its neighbour is reachable (RFC 4861, 7.3.1). Cheap to call for each acknowledgement.
  void confirm(const Address& destination) noexcept;

  // For the stack.
  /// The link came up, on the first core.
  void begin() noexcept;
  void end() noexcept;
  /// Takes a frame with this EtherType, of `bytes` bytes.
  void receive(ReceiveBuffer* frame, std::size_t bytes, ReceiveInfo info) noexcept;
  /// Takes a frame that another core has passed on to this one.
  void receive_passed_on(ReceiveBuffer* frame, ReceiveInfo info) noexcept;
  /// Reports that no receiver is at the port of a datagram (RFC 4443, 3.1).
  void report_closed_port(ipv6::Octets packet) noexcept;
  [[nodiscard]] bool ready() const noexcept { return engine_ != nullptr && engine_->ready(); }
  /// The time at which `run_timers` MUST be called, in milliseconds of the boot clock. When it changes, the stack checks its time-outs at
  /// the end of the event.
  [[nodiscard]] std::uint64_t due_ms() const noexcept { return due_ms_; }
  void run_timers() noexcept;
  /// Null except on the first core.
  [[nodiscard]] ipv6::Engine* engine() noexcept { return engine_.get(); }
  [[nodiscard]] const ipv6::Engine* engine() const noexcept { return engine_.get(); }
  /// MUST be called on the first core. Errors: as `Network::join`.
  [[nodiscard]] Result<void> change_group(const Address& group, unsigned core, bool join) noexcept;

 private:
  // ipv6::Link
  void transmit(const MacAddress& to, ipv6::Octets head, ipv6::Octets body) noexcept override;
  [[nodiscard]] std::uint64_t now_ms() const noexcept override;
  [[nodiscard]] std::uint64_t random_bits() noexcept override;
  // ipv6::Upper
  void transport(ipv6::Octets packet, std::size_t offset, std::uint8_t protocol) noexcept override;
  [[nodiscard]] std::optional<bool> icmp_error(const ipv6::IcmpError& error) noexcept override;
  void address_removed(const Address& address) noexcept override;
  void addresses_changed() noexcept override {}
  void groups_changed() noexcept override;
  void report(const char* text, const Address& address) noexcept override;

  [[nodiscard]] bool frame_out(const MacAddress& to, ipv6::Octets head, ipv6::Octets body) noexcept;
  /// Runs `call(engine)` on the first core, in an event of its own. Returns false if that core's queue is full.
  template <typename Call>
  bool on_engine(Call call) noexcept;
  /// MUST be called after each use of the engine.
  void update_timer() noexcept;

  Stack& stack_;
  StackGroup& group_;
  ipv6::Shared& shared_;
  std::unique_ptr<ipv6::Engine> engine_;
  std::uint64_t due_ms_ = ipv6::never;
  ipv6::RateLimit asks_{16, 20};  // requests to the first core
  ipv6::RateLimit confirms_{4, 250};
};

}  // namespace neap::net
