// SPDX-License-Identifier: BSL-1.0
#include "net/ipv6/engine.hpp"

#include <algorithm>
#include <new>

namespace neap::net::ipv6 {

namespace {

constexpr std::size_t fragment_header_bytes = 8;
constexpr std::size_t error_quote_bytes_max = mtu_min - header_bytes - icmp::header_bytes;  // RFC 4443, 2.4 (c)
constexpr Address link_local_prefix{0xFE80'0000'0000'0000, 0};

}  // namespace

// --- Start and end -----------------------------------------------------------------------------------------------------------------------
Engine::Engine(Link& link, Upper& upper, Shared& shared, const MacAddress& mac, const Ipv6Setting& setting) noexcept
    : link_(link),
      upper_(upper),
      shared_(shared),
      mac_(mac),
      setting_(setting),
      link_local_(link_local_prefix.high(), OwnAddresses::interface_identifier(mac)),
      listener_(link, *this),
      neighbours_(link, *this, shared.neighbours),
      addresses_(link, *this, shared.addresses),
      fragment_id_(static_cast<std::uint32_t>(link.random_bits())) {}

void Engine::begin() noexcept {
  if (up_ || disabled_ || setting_.mode == Ipv6Setting::Mode::off) return;
  up_ = true;
  upper_.groups_changed();
  static_cast<void>(addresses_.add(link_local_, 64, never, never, false));
  if (setting_.mode == Ipv6Setting::Mode::fixed) {
    const std::uint64_t now = link_.now_ms();
    if (!setting_.address.is_link_local()) {
      routes_.set_prefix(setting_.address.network(setting_.prefix_bits), setting_.prefix_bits, never, now);
      static_cast<void>(addresses_.add(setting_.address, setting_.prefix_bits, never, never, false));
    }
    if (!setting_.gateway.is_unspecified()) routes_.set_router(setting_.gateway, 0, never, now);
    publish_routes();
  }
}

void Engine::end() noexcept {
  if (!up_) return;
  up_ = false;
  router_solicitation_ms_ = never;
  router_solicitations_ = 0;
  neighbours_.clear();
  addresses_.remove_all();
  reassembly_.clear();
  routes_.clear();
  publish_routes();
}

bool Engine::ready() const noexcept {
  const bool fixed = setting_.mode == Ipv6Setting::Mode::fixed && !setting_.address.is_link_local();
  return shared_.addresses.contains(link_local_) && (!fixed || shared_.addresses.contains(setting_.address));
}

void Engine::publish_routes() noexcept {
  shared_.routes.store(routes_);
  shared_.note_change();
}

// --- Sending -----------------------------------------------------------------------------------------------------------------------------
bool Engine::route(const Address& to, Octets head, Octets body) noexcept {
  if (!up_) return false;
  if (to.is_multicast()) {
    link_.transmit(mac_of_group(to), head, body);
    return true;
  }
  const bool possible = !to.is_unspecified() && !to.is_v4() && !shared_.addresses.contains(to);
  const auto hop = possible ? routes_.next_hop(to, link_.now_ms()) : std::nullopt;
  if (!hop) {
    counters_.no_route.add();
    return false;
  }
  if (const auto mac = neighbours_.resolve_or_wait(*hop, head, body)) link_.transmit(*mac, head, body);
  return true;
}

bool Engine::send(const Address& from, const Address& to, std::uint8_t protocol, Octets head, Octets body, std::uint8_t hops,
                  std::uint32_t flow) noexcept {
  const std::size_t mtu = to.is_multicast() ? shared_.mtus.link_mtu() : shared_.mtus.of(to, link_.now_ms());
  const std::size_t bytes = head.size() + body.size();
  Header header{.payload_bytes = static_cast<std::uint16_t>(bytes), .next = protocol, .hops = hops, .from = from, .to = to, .flow = flow};
  if (hops == 0) header.hops = to.is_multicast() ? 1 : shared_.hops.load(std::memory_order_relaxed);
  std::array<std::byte, header_bytes + fragment_header_bytes + 64> front{};
  require(head.size() <= 64, "a transport header fits", head.size());
  if (header_bytes + bytes <= mtu) {
    header.write(front.data());
    std::ranges::copy(head, front.begin() + header_bytes);
    return route(to, std::span(front).first(header_bytes + head.size()), body);
  }
  if (bytes > 0xFFFF) return false;
  const std::size_t fragment_bytes = (mtu - header_bytes - fragment_header_bytes) / 8 * 8;
  const std::uint32_t id = ++fragment_id_;
  for (std::size_t from_byte = 0; from_byte < bytes; from_byte += fragment_bytes) {
    const std::size_t own = std::min(fragment_bytes, bytes - from_byte);
    const bool more = from_byte + own < bytes;
    const Octets own_head = from_byte == 0 ? head : Octets{};
    header.payload_bytes = static_cast<std::uint16_t>(fragment_header_bytes + own);
    header.next = next_header::fragment;
    header.write(front.data());
    std::byte* const fragment = front.data() + header_bytes;
    fragment[0] = static_cast<std::byte>(protocol);
    fragment[1] = std::byte{0};
    write_16(fragment + 2, static_cast<unsigned>(from_byte | (more ? 1 : 0)));
    write_32(fragment + 4, id);
    std::ranges::copy(own_head, fragment + fragment_header_bytes);
    const std::size_t body_from = from_byte == 0 ? 0 : from_byte - head.size();
    counters_.fragments_sent.add();
    const Octets own_front = std::span(front).first(header_bytes + fragment_header_bytes + own_head.size());
    if (!route(to, own_front, body.subspan(body_from, own - own_head.size()))) return false;
  }
  return true;
}

std::optional<MacAddress> Engine::resolve(const Address& destination) noexcept {
  if (destination.is_multicast()) return mac_of_group(destination);
  const bool possible = up_ && !destination.is_unspecified() && !destination.is_v4() && !shared_.addresses.contains(destination);
  const auto hop = possible ? routes_.next_hop(destination, link_.now_ms()) : std::nullopt;
  return hop ? neighbours_.resolve(*hop) : std::nullopt;
}

void Engine::confirm(const Address& destination) noexcept {
  if (const auto hop = routes_.next_hop(destination, link_.now_ms())) neighbours_.confirm(*hop);
}

void Engine::believe_mtu(const Address& destination, std::uint32_t mtu) noexcept {
  counters_.too_big_believed.add();
  if (shared_.mtus.reduce(destination, mtu, link_.now_ms())) shared_.note_change();
}

void Engine::send_icmp(const Address& from, const Address& to, std::uint8_t hops, std::span<std::byte> message, Octets body) noexcept {
  write_16(message.data() + 2, 0);
  write_16(message.data() + 2, static_cast<std::uint16_t>(~transport_sum(from, to, next_header::icmp, message, body)));
  static_cast<void>(send(from, to, next_header::icmp, message, body, hops));
}

void Engine::send_error(Octets packet, std::uint8_t type, std::uint8_t code, std::uint32_t parameter, bool even_to_groups) noexcept {
  if (packet.size() < header_bytes) return;
  const Header header = Header::read(packet);
  if (!valid_source(header.from) || (header.to.is_multicast() && !even_to_groups)) return;
  // RFC 4443, 2.4 (e): no error about an error or a redirect. A message behind extension headers counts as an error.
  const Extensions at = parse_extensions(packet);
  if (at.next == next_header::icmp &&
      (at.offset >= packet.size() || octet(packet, at.offset) < 128 || octet(packet, at.offset) == icmp::redirect))
    return;
  const auto from = header.to.is_multicast() || !shared_.addresses.contains(header.to)
                        ? shared_.addresses.source_for(header.from, link_.now_ms())
                        : std::optional(header.to);
  if (!from) return;
  if (!errors_.take(link_.now_ms())) return counters_.errors_limited.add();
  counters_.errors_sent.add();
  std::array<std::byte, icmp::header_bytes> message{};
  message[0] = static_cast<std::byte>(type);
  message[1] = static_cast<std::byte>(code);
  write_32(message.data() + 4, parameter);
  send_icmp(*from, header.from, 0, message, packet.first(std::min(packet.size(), error_quote_bytes_max)));
}

// --- Receiving ---------------------------------------------------------------------------------------------------------------------------
void Engine::input(Octets packet, const MacAddress& from_mac) noexcept {
  if (!up_) return;
  if (packet.size() < header_bytes || octet(packet, 0) >> 4 != 6) return counters_.malformed.add();
  const Header header = Header::read(packet);
  if (packet.size() - header_bytes < header.payload_bytes) return counters_.malformed.add();
  packet = packet.first(header_bytes + header.payload_bytes);
  // Our own frames may come back, as a card in promiscuous mode or a switch may return them.
  if (from_mac == mac_) return;
  if (!valid_source(header.from) && !(header.from == Address())) return counters_.malformed.add();
  if (shared_.addresses.contains(header.from)) return counters_.conflicts.add();
  if (header.to.is_loopback() || header.to.is_v4() || header.to.is_unspecified()) return counters_.malformed.add();
  input_checked(packet, header, from_mac);
}

void Engine::input_checked(Octets packet, const Header& header, const MacAddress& from_mac) noexcept {
  const Extensions at = parse_extensions(packet);
  const bool for_us = header.to.is_multicast() ? listener_.receives(header.to)
                                               : shared_.addresses.contains(header.to) || addresses_.is_tentative(header.to);
  if (!for_us) return counters_.not_for_us.add();
  counters_.packets.add();
  switch (at.result) {
    case Extensions::Result::drop:
      return counters_.malformed.add();
    case Extensions::Result::problem:
      counters_.malformed.add();
      return send_error(packet, icmp::parameter_problem, at.code, at.pointer, at.even_to_groups);
    case Extensions::Result::fragment:
      return input_fragment(packet, at, from_mac);
    case Extensions::Result::upper:
      return input_upper(packet, header, at, from_mac);
  }
}

void Engine::input_fragment(Octets packet, const Extensions& at, const MacAddress& from_mac) noexcept {
  try {
    const Reassembly::Result result = reassembly_.add(packet, at, link_.now_ms());
    if (result.problem) send_error(packet, icmp::parameter_problem, result.code, result.pointer);
    if (result.packet.empty()) return;
    Extensions whole = parse_extensions(result.packet);
    if (whole.result != Extensions::Result::upper) return counters_.malformed.add();
    whole.fragmented = true;
    input_upper(result.packet, Header::read(result.packet), whole, from_mac);
  } catch (const std::bad_alloc&) {
    counters_.malformed.add();
  }
}

void Engine::input_upper(Octets packet, const Header& header, const Extensions& at, const MacAddress& from_mac) noexcept {
  // RFC 4862, 5.4: a tentative address takes part in neighbour discovery only.
  if (!header.to.is_multicast() && !shared_.addresses.contains(header.to) && at.next != next_header::icmp)
    return counters_.not_for_us.add();
  switch (at.next) {
    case next_header::icmp:
      return input_icmp(packet, header, at, from_mac);
    case next_header::tcp:
    case next_header::udp:
      if (header.from.is_unspecified() || (at.next == next_header::tcp && header.to.is_multicast())) return counters_.malformed.add();
      return upper_.transport(packet, at.offset, at.next);
    case next_header::none:
      return;
    default:
      return send_error(packet, icmp::parameter_problem, icmp::code_next_header, at.next_field);
  }
}

void Engine::input_icmp(Octets packet, const Header& header, const Extensions& at, const MacAddress& from_mac) noexcept {
  const Octets message = packet.subspan(at.offset);
  if (message.size() < icmp::header_bytes) return counters_.malformed.add();
  if (transport_sum(header.from, header.to, next_header::icmp, message) != 0xFFFF) return counters_.bad_checksum.add();
  const unsigned type = octet(message, 0);
  switch (type) {
    case icmp::router_solicitation:
    case icmp::router_advertisement:
    case icmp::neighbour_solicitation:
    case icmp::neighbour_advertisement:
    case icmp::redirect:
      return input_discovery(header, at, message, from_mac);
    default:
      break;
  }
  if (!header.to.is_multicast() && !shared_.addresses.contains(header.to)) return counters_.not_for_us.add();
  switch (type) {
    case icmp::echo_request:
      return input_echo(header, message);
    case icmp::unreachable:
    case icmp::too_big:
    case icmp::time_exceeded:
    case icmp::parameter_problem:
      return input_error(header, message);
    case icmp::listener_query:
    case icmp::listener_report_1:
      // RFC 3810, 6.2: a router alert, hop limit 1, and a link-local source.
      if (header.hops != 1 || !header.from.is_link_local() || !at.router_alert || message.size() < 24) {
        return counters_.discovery_refused.add();
      }
      if (type == icmp::listener_query) return listener_.query(message);
      return listener_.other_reported(Address::read(message.data() + 8));
    default:
      return;
  }
}

void Engine::input_echo(const Header& header, Octets message) noexcept {
  if (!valid_source(header.from)) return counters_.malformed.add();
  std::optional<Address> from = header.to;
  if (header.to.is_multicast()) {
    if (!group_echoes_.take(link_.now_ms())) return counters_.errors_limited.add();
    from = shared_.addresses.source_for(header.from, link_.now_ms());
  }
  if (!from) return;
  counters_.echoes.add();
  std::array<std::byte, icmp::header_bytes> reply{};
  reply[0] = std::byte{icmp::echo_reply};
  std::ranges::copy(message.subspan(4, 4), reply.begin() + 4);
  send_icmp(*from, header.from, 0, reply, message.subspan(icmp::header_bytes));
}

// The message quotes a packet. It is believed only if this machine may have sent that packet.
void Engine::input_error(const Header& header, Octets message) noexcept {
  counters_.errors_received.add();
  if (!valid_source(header.from)) return counters_.malformed.add();
  const Octets quoted = message.subspan(icmp::header_bytes);
  if (quoted.size() < header_bytes || octet(quoted, 0) >> 4 != 6) return counters_.malformed.add();
  const Header own = Header::read(quoted);
  if (!shared_.addresses.contains(own.from) || own.to.is_multicast()) return counters_.not_for_us.add();
  Extensions at = parse_extensions(quoted);
  if (at.result == Extensions::Result::fragment) {
    constexpr unsigned offset_mask = 0xFFF8;
    if ((read_16(quoted, at.offset + 2) & offset_mask) != 0) return;  // no transport header, so no protocol to tell
    at.next = static_cast<std::uint8_t>(octet(quoted, at.offset));
    at.offset += fragment_header_bytes;
  } else if (at.result != Extensions::Result::upper) {
    return counters_.malformed.add();
  }
  if (at.offset + 8 > quoted.size()) return counters_.malformed.add();
  const IcmpError error{.type = static_cast<std::uint8_t>(octet(message, 0)),
                        .code = static_cast<std::uint8_t>(octet(message, 1)),
                        .protocol = at.next,
                        .parameter = read_32(message, 4),
                        .from = own.from,
                        .to = own.to,
                        .transport = quoted.subspan(at.offset)};
  const std::optional<bool> believed = upper_.icmp_error(error);
  if (error.type != icmp::too_big || !believed.has_value()) return;
  if (!*believed) return refuse_mtu();
  believe_mtu(error.to, error.parameter);
}

// --- Time --------------------------------------------------------------------------------------------------------------------------------
void Engine::run_timers() noexcept {
  if (!up_) return;
  const std::uint64_t now = link_.now_ms();
  neighbours_.run_timers();
  addresses_.run_timers();
  listener_.run_timers();
  if (router_solicitation_ms_ <= now) solicit_routers();
  while (const auto expired = reassembly_.expire(now)) {
    if (!expired->first.empty()) send_error(expired->first, icmp::time_exceeded, icmp::code_reassembly, 0);
  }
}

std::uint64_t Engine::due_ms() const noexcept {
  if (!up_) return never;
  return std::min({neighbours_.due_ms(), addresses_.due_ms(), listener_.due_ms(), reassembly_.due_ms(), router_solicitation_ms_});
}

}  // namespace neap::net::ipv6
