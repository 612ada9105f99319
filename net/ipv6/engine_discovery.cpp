// SPDX-License-Identifier: BSL-1.0
// Neighbour discovery messages (RFC 4861) and address configuration (RFC 4862).
#include <algorithm>
#include <utility>

#include "net/ipv6/engine.hpp"

namespace neap::net::ipv6 {

namespace {

constexpr std::uint8_t discovery_hops = 255;  // a smaller hop limit shows that a router has forwarded the message
constexpr unsigned option_source = 1, option_target = 2, option_prefix = 3, option_mtu = 5;
constexpr std::size_t solicitation_bytes = 24, link_option_bytes = 8, options_read_max = 32;
constexpr std::uint32_t flag_router = 0x8000'0000, flag_solicited = 0x4000'0000, flag_override = 0x2000'0000;
constexpr unsigned router_solicitations_max = 3;                  // MAX_RTR_SOLICITATIONS
constexpr std::uint64_t router_solicitation_interval_ms = 4'000;  // RTR_SOLICITATION_INTERVAL
constexpr std::uint64_t two_hours_ms = 7'200'000;                 // RFC 4862, 5.5.3 (e)
constexpr std::uint32_t infinite_s = 0xFFFF'FFFF;

/// Calls `visit(type, option)` for each option. Returns false if the options are malformed (RFC 4861, 6.1 and 7.1). Options beyond a bound
/// are ignored.
template <typename Visit>
bool each_option(Octets options, Visit visit) noexcept {
  for (std::size_t read = 0; !options.empty(); ++read) {
    if (options.size() < 8) return false;
    const std::size_t bytes = octet(options, 1) * std::size_t{8};
    if (bytes == 0 || bytes > options.size()) return false;
    if (read < options_read_max) visit(octet(options, 0), options.first(bytes));
    options = options.subspan(bytes);
  }
  return true;
}

/// Returns the MAC address in the option `wanted`, if there is one. `options` MUST be well-formed.
std::optional<MacAddress> link_address(Octets options, unsigned wanted) noexcept {
  std::optional<MacAddress> found;
  static_cast<void>(each_option(options, [&](unsigned type, Octets option) {
    if (type == wanted && !found) found = read_mac(option, 2);
  }));
  return found;
}

std::uint64_t end_of(std::uint64_t now_ms, std::uint32_t lifetime_s) noexcept {
  return lifetime_s == infinite_s ? never : now_ms + std::uint64_t{lifetime_s} * 1'000;
}

}  // namespace

// --- Receiving ---------------------------------------------------------------------------------------------------------------------------
void Engine::input_discovery(const Header& header, const Extensions& at, Octets message, const MacAddress& from_mac) noexcept {
  const unsigned type = octet(message, 0);
  // RFC 4861, 7.1.1 and the like; RFC 6980: a fragmented message is refused.
  const std::size_t fixed_bytes = type == icmp::router_advertisement ? 16 : type == icmp::redirect ? 40 : solicitation_bytes;
  const bool malformed = header.hops != discovery_hops || octet(message, 1) != 0 || at.fragmented ||
                         (type != icmp::router_solicitation &&
                          (message.size() < fixed_bytes || !each_option(message.subspan(fixed_bytes), [](unsigned, Octets) {})));
  if (malformed) return counters_.discovery_refused.add();
  switch (type) {
    case icmp::neighbour_solicitation:
      return input_solicitation(header, message, from_mac);
    case icmp::neighbour_advertisement:
      if (header.to.is_multicast() && (read_32(message, 4) & flag_solicited) != 0) return counters_.discovery_refused.add();
      return input_advertisement(message, from_mac);
    case icmp::router_advertisement:
      return input_router(header, message);
    case icmp::redirect:
      return counters_.redirects_ignored.add();
    default:
      return;  // a router's business
  }
}

void Engine::input_solicitation(const Header& header, Octets message, const MacAddress& from_mac) noexcept {
  const Address target = Address::read(message.data() + 8);
  const auto source_mac = link_address(message.subspan(solicitation_bytes), option_source);
  const bool checks_for_duplicates = header.from.is_unspecified();
  if (target.is_multicast() || (checks_for_duplicates && (!header.to.is_solicited_node() || source_mac))) {
    return counters_.discovery_refused.add();
  }
  if (addresses_.is_tentative(target)) {
    // RFC 4862, 5.4.3: another machine that checks the same address has it too; a solicitation for another purpose is ignored.
    if (checks_for_duplicates) static_cast<void>(addresses_.note_duplicate(target));
    return;
  }
  if (!shared_.addresses.contains(target)) return counters_.not_for_us.add();
  if (source_mac) neighbours_.learn(header.from, *source_mac, false);

  std::array<std::byte, solicitation_bytes + link_option_bytes> answer{};
  answer[0] = std::byte{icmp::neighbour_advertisement};
  write_32(answer.data() + 4, flag_override | (checks_for_duplicates ? 0 : flag_solicited));
  target.write(answer.data() + 8);
  answer[solicitation_bytes] = std::byte{option_target};
  answer[solicitation_bytes + 1] = std::byte{1};
  std::memcpy(answer.data() + solicitation_bytes + 2, mac_.data(), mac_.size());
  if (checks_for_duplicates) return send_icmp(target, all_nodes, discovery_hops, answer);
  // The answer goes where the solicitation came from. So it neither depends on room in the cache, nor counts as a use of an entry.
  write_16(answer.data() + 2, static_cast<std::uint16_t>(~transport_sum(target, header.from, next_header::icmp, answer)));
  std::array<std::byte, header_bytes> front{};
  Header{.payload_bytes = static_cast<std::uint16_t>(answer.size()),
         .next = next_header::icmp,
         .hops = discovery_hops,
         .from = target,
         .to = header.from}
      .write(front.data());
  link_.transmit(source_mac.value_or(from_mac), front, answer);
}

void Engine::input_advertisement(Octets message, const MacAddress& from_mac) noexcept {
  const Address target = Address::read(message.data() + 8);
  if (target.is_multicast() || from_mac == mac_) return counters_.discovery_refused.add();
  if (addresses_.note_duplicate(target)) return;
  if (shared_.addresses.contains(target)) {
    counters_.conflicts.add();
    return;
  }
  const std::uint32_t flags = read_32(message, 4);
  const auto mac = link_address(message.subspan(solicitation_bytes), option_target);
  const bool solicited = (flags & flag_solicited) != 0;
  if (neighbours_.advertised(target, mac ? &*mac : nullptr, (flags & flag_router) != 0, solicited, (flags & flag_override) != 0)) {
    routes_.set_router(target, 0, 0, link_.now_ms());  // RFC 4861, 7.2.5: it is no router any more
    publish_routes();
  } else if (solicited && routes_.has_router(target, link_.now_ms())) {
    routes_.set_reachable(target, true);
    publish_routes();
  }
}

void Engine::input_router(const Header& header, Octets message) noexcept {
  if (!header.from.is_link_local()) return counters_.discovery_refused.add();
  if (setting_.mode != Ipv6Setting::Mode::automatic) return;
  if (!advertisements_.take(link_.now_ms())) return counters_.advertisements_limited.add();
  counters_.advertisements.add();
  router_solicitation_ms_ = never;
  const std::uint64_t now = link_.now_ms();
  const unsigned flags = octet(message, 5);
  if (const unsigned hops = octet(message, 4); hops != 0) shared_.hops.store(static_cast<std::uint8_t>(hops), std::memory_order_relaxed);
  // RFC 4191, 2.2: 1 is high, 3 is low; 2 is reserved and counts as medium.
  const unsigned code = flags >> 3 & 3;
  const std::uint64_t lifetime_ms = read_16(message, 6) * std::uint64_t{1'000};
  if (!routes_.set_router(header.from, code == 1 ? 1 : code == 3 ? -1 : 0, lifetime_ms == 0 ? 0 : now + lifetime_ms, now)) {
    counters_.routers_refused.add();
  }
  constexpr std::uint32_t reachable_max_ms = 3'600'000, retransmit_min_ms = 100, retransmit_max_ms = 60'000;
  if (const std::uint32_t ms = read_32(message, 8); ms != 0 && ms <= reachable_max_ms) neighbours_.set_reachable_ms(ms);
  if (const std::uint32_t ms = read_32(message, 12); ms != 0) {
    neighbours_.set_retransmit_ms(std::clamp(ms, retransmit_min_ms, retransmit_max_ms));
  }
  static_cast<void>(each_option(message.subspan(16), [&](unsigned type, Octets option) {
    if (type == option_source) {
      neighbours_.learn(header.from, read_mac(option, 2), true);
    } else if (type == option_mtu && option.size() == 8) {
      shared_.mtus.set_link_mtu(read_32(option, 4));
    } else if (type == option_prefix && option.size() == 32) {
      take_prefix(option);
    }
  }));
  publish_routes();
}

void Engine::take_prefix(Octets option) noexcept {
  constexpr unsigned flag_on_link = 0x80, flag_autonomous = 0x40;
  const std::uint64_t now = link_.now_ms();
  const unsigned bits = octet(option, 2), flags = octet(option, 3);
  const std::uint32_t valid_s = read_32(option, 4), preferred_s = read_32(option, 8);
  if (bits > 128) return counters_.discovery_refused.add();
  const Address prefix = Address::read(option.data() + 16).network(bits);
  if (prefix.is_link_local() || prefix.is_multicast() || bits == 0) return;
  if ((flags & flag_on_link) != 0 && !routes_.set_prefix(prefix, bits, valid_s == 0 ? 0 : end_of(now, valid_s), now)) {
    counters_.routers_refused.add();
  }
  // RFC 4862, 5.5.3. An identifier of 64 bits needs a prefix of 64 bits.
  if ((flags & flag_autonomous) == 0 || preferred_s > valid_s || bits != 64) return;
  const Address address{prefix.high(), link_local_.low()};
  const std::uint64_t preferred_ms = end_of(now, preferred_s), valid_ms = end_of(now, valid_s);
  const auto known = addresses_.valid_until_ms(address);
  if (!known) {
    if (valid_s != 0) static_cast<void>(addresses_.add(address, bits, preferred_ms, valid_ms, true));
    return;
  }
  // A forged message with a short lifetime must not end an address at once: two hours are always left, if they were left before.
  const std::uint64_t left_ms = *known > now ? *known - now : 0;
  const bool longer = valid_ms > *known || valid_s > two_hours_ms / 1'000;
  const std::uint64_t until_ms = longer ? valid_ms : left_ms <= two_hours_ms ? *known : now + two_hours_ms;
  static_cast<void>(addresses_.renew(address, preferred_ms, until_ms));
  upper_.addresses_changed();
}

// --- Sending -----------------------------------------------------------------------------------------------------------------------------
void Engine::solicit(const Address& target, const MacAddress* mac) noexcept {
  const Address from = shared_.addresses.source_for(target, link_.now_ms()).value_or(link_local_);
  if (!shared_.addresses.contains(from)) return;
  std::array<std::byte, solicitation_bytes + link_option_bytes> message{};
  message[0] = std::byte{icmp::neighbour_solicitation};
  target.write(message.data() + 8);
  message[solicitation_bytes] = std::byte{option_source};
  message[solicitation_bytes + 1] = std::byte{1};
  std::memcpy(message.data() + solicitation_bytes + 2, mac_.data(), mac_.size());
  const Address to = mac == nullptr ? target.solicited_node() : target;
  // The packet is sent here and not by `send_icmp`, which would ask the neighbour cache again.
  write_16(message.data() + 2, static_cast<std::uint16_t>(~transport_sum(from, to, next_header::icmp, message)));
  std::array<std::byte, header_bytes> front{};
  Header{.payload_bytes = static_cast<std::uint16_t>(message.size()),
         .next = next_header::icmp,
         .hops = discovery_hops,
         .from = from,
         .to = to}
      .write(front.data());
  link_.transmit(mac == nullptr ? mac_of_group(to) : *mac, front, message);
}

void Engine::probe(const Address& tentative) noexcept {
  std::array<std::byte, solicitation_bytes> message{};
  message[0] = std::byte{icmp::neighbour_solicitation};
  tentative.write(message.data() + 8);
  send_icmp(Address(), tentative.solicited_node(), discovery_hops, message);
}

void Engine::solicit_routers() noexcept {
  if (router_solicitations_ == router_solicitations_max) {
    router_solicitation_ms_ = never;
    return;
  }
  ++router_solicitations_;
  router_solicitation_ms_ = link_.now_ms() + router_solicitation_interval_ms;
  std::array<std::byte, icmp::header_bytes + link_option_bytes> message{};
  message[0] = std::byte{icmp::router_solicitation};
  message[icmp::header_bytes] = std::byte{option_source};
  message[icmp::header_bytes + 1] = std::byte{1};
  std::memcpy(message.data() + icmp::header_bytes + 2, mac_.data(), mac_.size());
  send_icmp(link_local_, all_routers, discovery_hops, message);
}

void Engine::send_report(const Address& to, std::span<std::byte> report) noexcept {
  if (!up_) return;
  // RFC 3590: without a link-local address, reports come from the unspecified address.
  const Address from = shared_.addresses.contains(link_local_) ? link_local_ : Address();
  std::array<std::byte, header_bytes + 8> front{};
  Header{.payload_bytes = static_cast<std::uint16_t>(8 + report.size()), .next = next_header::hop_by_hop, .hops = 1, .from = from, .to = to}
      .write(front.data());
  constexpr std::array<unsigned, 8> router_alert{next_header::icmp, 0, 5, 2, 0, 0, 1, 0};  // RFC 2711, and a PadN option
  std::ranges::transform(router_alert, front.begin() + header_bytes, [](unsigned value) { return static_cast<std::byte>(value); });
  write_16(report.data() + 2, 0);
  write_16(report.data() + 2, static_cast<std::uint16_t>(~transport_sum(from, to, next_header::icmp, report)));
  link_.transmit(mac_of_group(to), front, report);
}

// --- Changes -----------------------------------------------------------------------------------------------------------------------------
void Engine::resolved(const Address&) noexcept { shared_.note_change(); }

void Engine::unreachable(const Address& address, Octets) noexcept {
  routes_.set_reachable(address, false);
  publish_routes();
}

void Engine::use_group(const Address& solicited_node, bool use) noexcept {
  if (use) {
    static_cast<void>(listener_.use(solicited_node));
  } else {
    listener_.end_use(solicited_node);
  }
}

void Engine::confirmed(const Address& address) noexcept {
  if (address == link_local_) {
    listener_.report_all();  // RFC 3590: reports from the unspecified address may have been ignored
    if (setting_.mode == Ipv6Setting::Mode::automatic) solicit_routers();
  }
  upper_.report("address", address);
  shared_.note_change();
  upper_.addresses_changed();
}

void Engine::removed(const Address& address, bool was_usable, bool duplicate) noexcept {
  shared_.note_change();
  if (duplicate) upper_.report("another machine has this machine's IPv6 address", address);
  if (was_usable) upper_.address_removed(address);
  // RFC 4862, 5.4.5: an identifier made from a MAC address that is not unique. No other address can be right.
  if (duplicate && address == link_local_) {
    disabled_ = true;
    end();
  }
  upper_.addresses_changed();
}

}  // namespace neap::net::ipv6
