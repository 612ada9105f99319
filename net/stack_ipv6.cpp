// SPDX-License-Identifier: BSL-1.0
#include "net/stack_ipv6.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstring>
#include <new>
#include <utility>

#include "kernel/console.hpp"
#include "kernel/events.hpp"
#include "kernel/machine.hpp"
#include "kernel/panic.hpp"
#include "lwip/pbuf.h"
#include "net/owner_search.hpp"
#include "net/stack.hpp"

namespace neap::net {

using ipv6::ethernet_bytes;
using ipv6::Header;
using ipv6::Octets;

namespace {

constexpr std::size_t quote_bytes_max = ipv6::mtu_min;  // of a packet that an ICMPv6 error quotes

std::array<std::uint8_t, 16> octets_of(const Address& address) noexcept {
  std::array<std::byte, 16> bytes;
  address.write(bytes.data());
  return std::bit_cast<std::array<std::uint8_t, 16>>(bytes);
}

/// The core that handles packets with the ports at `transport`.
unsigned core_of_flow(const StackGroup& group, const Address& source, const Address& destination, Octets transport,
                      bool reversed) noexcept {
  const std::uint16_t first = ipv6::read_16(transport, 0), second = ipv6::read_16(transport, 2);
  if (group.device_decides) return group.core_of_port(second, group.first);  // `icmp_error` searches for the core of a reversed flow
  const auto source_octets = octets_of(source), destination_octets = octets_of(destination);
  const unsigned core =
      group.device.receiving_core_ipv6(source_octets, destination_octets, reversed ? second : first, reversed ? first : second);
  return core - group.first < group.cores ? core : group.first;
}

}  // namespace

StackIpv6::StackIpv6(Stack& stack, StackGroup& group) : stack_(stack), group_(group), shared_(*group.ipv6_shared) {
  if (!stack.primary()) return;
  ipv6::Link& link = *this;
  ipv6::Upper& upper = *this;
  engine_ = std::make_unique<ipv6::Engine>(link, upper, shared_, group.device.mac(), group.ipv6_setting);
}

StackIpv6::~StackIpv6() = default;

template <typename Call>
bool StackIpv6::on_engine(Call call) noexcept {
  if (engine_ != nullptr) {
    call(*engine_);
    update_timer();
    return true;
  }
  try {
    return spawn_on(group_.first,
                    [call = std::move(call)]() mutable noexcept {
                      Stack* const first = Stack::here();
                      if (first == nullptr) return;
                      call(*first->ipv6().engine_);
                      first->ipv6().update_timer();
                    })
        .has_value();
  } catch (const std::bad_alloc&) {
    return false;
  }
}

// --- Time --------------------------------------------------------------------------------------------------------------------------------
std::uint64_t StackIpv6::now_ms() const noexcept {
  return static_cast<std::uint64_t>(BootClock::now().time_since_epoch() / std::chrono::milliseconds(1));
}

std::uint64_t StackIpv6::random_bits() noexcept { return machine::random_bits(); }

void StackIpv6::update_timer() noexcept {
  const std::uint64_t due = engine_->due_ms();
  if (std::exchange(due_ms_, due) != due) stack_.want_checks();
}

void StackIpv6::run_timers() noexcept {
  engine_->run_timers();
  update_timer();
}

void StackIpv6::begin() noexcept {
  engine_->begin();
  update_timer();
}

void StackIpv6::end() noexcept {
  engine_->end();
  update_timer();
}

// --- Sending -----------------------------------------------------------------------------------------------------------------------------
bool StackIpv6::frame_out(const MacAddress& to, Octets head, Octets body) noexcept {
  const std::size_t bytes = ethernet_bytes + head.size() + body.size();
  pbuf* const frame = pbuf_alloc(PBUF_RAW, static_cast<u16_t>(bytes), PBUF_RAM);
  if (frame == nullptr) {
    stack_.counters().dropped_memory.add();
    return false;
  }
  require(frame->len == bytes, "a new frame is one piece of memory", frame->len);
  auto* const out = static_cast<std::byte*>(frame->payload);
  const MacAddress from = group_.device.mac();
  std::memcpy(out, to.data(), to.size());
  std::memcpy(out + 6, from.data(), from.size());
  ipv6::write_16(out + 12, ipv6::ethertype);
  std::ranges::copy(body, std::ranges::copy(head, out + ethernet_bytes).out);
  const bool taken = stack_.transmit(frame) == ERR_OK;
  pbuf_free(frame);
  return taken;
}

void StackIpv6::transmit(const MacAddress& to, Octets head, Octets body) noexcept { static_cast<void>(frame_out(to, head, body)); }

std::optional<MacAddress> StackIpv6::resolve(const Address& destination) noexcept {
  if (engine_ != nullptr) {
    const auto mac = engine_->resolve(destination);
    update_timer();
    return mac;
  }
  if (destination.is_multicast()) return ipv6::mac_of_group(destination);
  const std::uint64_t now = now_ms();
  const auto hop = shared_.routes.load().next_hop(destination, now);
  if (!hop) return std::nullopt;
  const auto found = shared_.neighbours.find(*hop, now);
  // The first core asks for the neighbour, or checks whether it is still there.
  if ((!found || !found->fresh) && asks_.take(now)) {
    static_cast<void>(on_engine([destination](ipv6::Engine& engine) noexcept { static_cast<void>(engine.resolve(destination)); }));
  }
  return found ? std::optional(found->mac) : std::nullopt;
}

Result<void> StackIpv6::send(const Address& from, const Address& to, std::uint8_t protocol, Octets head, Octets body,
                             std::uint32_t flow) noexcept {
  const std::size_t bytes = head.size() + body.size();
  const auto no_route = [] { return failure(ErrorCode::closed, "no route to the address"); };
  if (engine_ != nullptr) {
    const bool sent = engine_->send(from, to, protocol, head, body, 0, flow);
    update_timer();
    if (!sent) return no_route();
    return {};
  }
  Header header{.payload_bytes = static_cast<std::uint16_t>(bytes), .next = protocol, .hops = hops(), .from = from, .to = to, .flow = flow};
  if (to.is_multicast()) header.hops = 1;
  if (ipv6::header_bytes + bytes <= (to.is_multicast() ? shared_.mtus.link_mtu() : mtu(to))) {
    if (const auto mac = resolve(to)) {
      std::array<std::byte, ipv6::header_bytes + 64> front{};
      require(head.size() <= 64, "a transport header fits", head.size());
      header.write(front.data());
      std::ranges::copy(head, front.begin() + ipv6::header_bytes);
      if (frame_out(*mac, std::span(front).first(ipv6::header_bytes + head.size()), body)) return {};
      return failure(ErrorCode::full, "no room for a datagram in the card's ring");
    }
  }
  if (!to.is_multicast() && !shared_.routes.load().next_hop(to, now_ms())) return no_route();
  try {
    std::vector<std::byte> data;
    data.reserve(bytes);
    data.insert(data.end(), head.begin(), head.end());
    data.insert(data.end(), body.begin(), body.end());
    const bool passed = on_engine([from, to, protocol, flow, data = std::move(data)](ipv6::Engine& engine) noexcept {
      static_cast<void>(engine.send(from, to, protocol, {}, data, 0, flow));
    });
    if (!passed) return failure(ErrorCode::full, "the first core's queue is full");
    return {};
  } catch (const std::bad_alloc&) {
    return failure(ErrorCode::out_of_memory, "no memory for a packet", bytes);
  }
}

void StackIpv6::confirm(const Address& destination) noexcept {
  if (!confirms_.take(now_ms())) return;
  static_cast<void>(on_engine([destination](ipv6::Engine& engine) noexcept { engine.confirm(destination); }));
}

void StackIpv6::report_closed_port(Octets packet) noexcept {
  if (engine_ == nullptr && !asks_.take(now_ms())) return;
  try {
    const Octets quoted = packet.first(std::min(packet.size(), quote_bytes_max));
    static_cast<void>(on_engine([copy = std::vector<std::byte>(quoted.begin(), quoted.end())](ipv6::Engine& engine) noexcept {
      engine.send_error(copy, ipv6::icmp::unreachable, ipv6::icmp::code_port_unreachable, 0);
    }));
  } catch (const std::bad_alloc&) {
    stack_.counters().dropped_memory.add();
  }
}

// --- Receiving ---------------------------------------------------------------------------------------------------------------------------
void StackIpv6::receive(ReceiveBuffer* frame, std::size_t bytes, ReceiveInfo info) noexcept {
  const Octets first(frame->data, frame->bytes);
  if (first.size() < ethernet_bytes + ipv6::header_bytes) {
    stack_.counters().dropped_malformed.add();
    return Stack::release_chain(frame);
  }
  const Octets packet = first.subspan(ethernet_bytes);
  const Header header = Header::read(packet);
  const std::size_t transport_at = ethernet_bytes + ipv6::header_bytes;
  const bool plain = ipv6::octet(packet, 0) >> 4 == 6 && bytes >= transport_at + header.payload_bytes && ipv6::valid_source(header.from) &&
                     shared_.addresses.contains(header.to) && !shared_.addresses.contains(header.from);
  if (plain && header.next == ipv6::next_header::tcp) return stack_.input_tcp6(frame, transport_at, info);
  if (plain && header.next == ipv6::next_header::udp) return stack_.input_udp6(frame, transport_at, info);
  if (engine_ == nullptr) {
    ReceiveBuffer* const copy = Stack::copy_to_heap(frame, bytes);
    Stack::release_chain(frame);
    return stack_.pass_on(group_.first, copy, ReceiveInfo());
  }
  if (frame->next == nullptr) {
    engine_->input(packet, ipv6::read_mac(first, 6));
    Stack::release_chain(frame);
  } else {
    ReceiveBuffer* const copy = Stack::copy_to_heap(frame, bytes);
    Stack::release_chain(frame);
    if (copy == nullptr) return stack_.counters().dropped_memory.add();
    engine_->input(Octets(copy->data, copy->bytes).subspan(ethernet_bytes), ipv6::read_mac(Octets(copy->data, copy->bytes), 6));
    copy->release();
  }
  update_timer();
}

// A frame for another core than the first is a segment, or a datagram of a group that the core has joined. The first core has checked it.
void StackIpv6::receive_passed_on(ReceiveBuffer* frame, ReceiveInfo info) noexcept {
  if (engine_ != nullptr) return receive(frame, frame->bytes, info);
  const std::size_t transport_at = ethernet_bytes + ipv6::header_bytes;
  require(frame->bytes >= transport_at && frame->next == nullptr, "the first core passes whole packets on", frame->bytes);
  if (ipv6::octet({frame->data, frame->bytes}, ethernet_bytes + 6) == ipv6::next_header::tcp)
    return stack_.input_tcp6(frame, transport_at, info);
  stack_.input_udp6(frame, transport_at, info);
}

// The packet had extension headers, was in fragments, or goes to a group. It continues as a frame without extension headers.
void StackIpv6::transport(Octets packet, std::size_t offset, std::uint8_t protocol) noexcept {
  const Octets data = packet.subspan(offset);
  Header header = Header::read(packet);
  header.next = protocol;
  header.payload_bytes = static_cast<std::uint16_t>(data.size());
  const std::size_t transport_at = ethernet_bytes + ipv6::header_bytes;
  const auto frame = [&]() -> ReceiveBuffer* {
    ReceiveBuffer* const copy = Stack::allocate_heap_buffer(transport_at + data.size());
    if (copy == nullptr) return nullptr;
    std::memset(copy->data, 0, ethernet_bytes);
    ipv6::write_16(copy->data + 12, ipv6::ethertype);
    header.write(copy->data + ethernet_bytes);
    std::ranges::copy(data, copy->data + transport_at);
    return copy;
  };
  machine::CoreSet cores;
  if (header.to.is_multicast()) {
    cores = engine_->listener().cores_of(header.to);
    if (cores.none()) return stack_.counters().dropped_protocol.add();
  } else if (protocol == ipv6::next_header::tcp && data.size() >= 4) {
    cores.set(core_of_flow(group_, header.from, header.to, data, false));
  } else {
    cores.set(group_.first);
  }
  for (unsigned core = group_.first; core < group_.first + group_.cores; ++core) {
    if (!cores[core]) continue;
    ReceiveBuffer* const copy = frame();
    if (core != group_.first) {
      stack_.pass_on(core, copy, ReceiveInfo());
    } else if (copy == nullptr) {
      stack_.counters().dropped_memory.add();
    } else if (protocol == ipv6::next_header::tcp) {
      stack_.input_tcp6(copy, transport_at, ReceiveInfo());
    } else {
      stack_.input_udp6(copy, transport_at, ReceiveInfo());
    }
  }
}

// --- Errors, addresses and groups --------------------------------------------------------------------------------------------------------
std::optional<bool> StackIpv6::icmp_error(const ipv6::IcmpError& error) noexcept {
  if (error.protocol != ipv6::next_header::tcp) return stack_.on_icmpv6_error(error).value_or(false);
  OwnerSearch search = group_.device_decides
                           ? group_.owners_of_port(ipv6::read_16(error.transport, 0), group_.first)
                           : OwnerSearch{.core = core_of_flow(group_, error.to, error.from, error.transport, true), .cores = 1};
  if (search.core == group_.first) {
    const std::optional<bool> believed = stack_.on_icmpv6_error(error);
    if (believed.has_value() || search.cores == 1) return believed.value_or(false);
    search = group_.after(search);
    if (!stack_.search_limit_.take(stack_.now_us())) {
      stack_.counters().icmp_errors_limited.add();
      return false;
    }
  }
  // The core of the connection says later whether it believes the error.
  std::array<std::byte, 20> transport{};
  const std::size_t bytes = std::min(error.transport.size(), transport.size());
  std::ranges::copy(error.transport.first(bytes), transport.begin());
  stack_.ask_owners(search, [error, transport, bytes](Stack& stack, bool last) noexcept {
    ipv6::IcmpError own = error;
    own.transport = Octets(transport).first(bytes);
    const std::optional<bool> believed = stack.on_icmpv6_error(own);
    if (!believed.has_value() && !last) return false;
    if (own.type != ipv6::icmp::too_big) return true;
    static_cast<void>(stack.ipv6().on_engine([believed, to = own.to, mtu = own.parameter](ipv6::Engine& engine) noexcept {
      believed.value_or(false) ? engine.believe_mtu(to, mtu) : engine.refuse_mtu();
    }));
    return true;
  });
  return std::nullopt;
}

void StackIpv6::address_removed(const Address& address) noexcept {
  report("address removed", address);
  for (unsigned core = group_.first; core < group_.first + group_.cores; ++core) {
    try {
      const auto told = spawn_on(core, [address]() noexcept {
        if (Stack* const stack = Stack::here(); stack != nullptr) stack->on_address_removed(address);
      });
      if (!told.has_value()) stack_.counters().pass_on_refused.add();
    } catch (const std::bad_alloc&) {
      stack_.counters().dropped_memory.add();
    }
  }
}

namespace {

task<void> set_filter(StackGroup& group, std::vector<MacAddress> addresses) { co_await group.device.set_multicast(std::move(addresses)); }

}  // namespace

void StackIpv6::groups_changed() noexcept {
  if (engine_ == nullptr) return;  // the engine is being made
  try {
    std::vector<MacAddress> addresses;
    put_filter_addresses(group_, *engine_, addresses);
    start(set_filter(group_, std::move(addresses)));
  } catch (const std::bad_alloc&) {
    stack_.counters().dropped_memory.add();
  }
}

Result<void> StackIpv6::change_group(const Address& group, unsigned core, bool join) noexcept {
  require(engine_ != nullptr, "groups change on the first core", core);
  Result<void> changed = join ? engine_->listener().join(group, core) : engine_->listener().leave(group, core);
  update_timer();
  return changed;
}

void StackIpv6::report(const char* text, const Address& address) noexcept {
  std::array<char, Address::text_bytes_max> digits;
  print("net: ", text, ": ", address.put_text(digits));
}

}  // namespace neap::net
