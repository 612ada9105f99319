// SPDX-License-Identifier: BSL-1.0
#include "net/testing/dhcp_server.hpp"

#include <algorithm>

#include "net/testing/frames.hpp"

namespace neap::net::testing {

namespace {

// Offsets in an Ethernet frame with DHCP over UDP; the IPv4 header has no options.
constexpr std::size_t udp = 34, dhcp = 42, options = dhcp + 240;

MacAddress mac_at(const Bytes& frame, std::size_t at) {
  MacAddress mac;
  for (std::size_t i = 0; i < mac.size(); ++i) mac[i] = static_cast<std::uint8_t>(octet(frame, at + i));
  return mac;
}

void option(Bytes& message, unsigned code, std::uint32_t value) {
  append(message, code << 8 | 4, 2);
  append(message, value, 4);
}

unsigned message_type(const Bytes& frame) {
  for (std::size_t i = options; i + 2 < frame.size() && frame[i] != std::byte{255};) {
    if (frame[i] == std::byte{53}) return std::to_integer<unsigned>(frame[i + 2]);
    i += frame[i] == std::byte{0} ? 1 : 2 + std::to_integer<std::size_t>(frame[i + 1]);
  }
  return 0;
}

}  // namespace

DhcpServer::DhcpServer(WireCard& card, Ipv4Address offered, Ipv4Address own) : card_(card), offered_(offered), own_(own) {
  terms_.server = terms_.router = own;
  card.tap([this](const Bytes& frame) {
    take(frame);
    return true;
  });
}

void DhcpServer::set_terms(const DhcpTerms& terms) {
  const std::lock_guard lock(lock_);
  terms_ = terms;
}

DhcpTerms DhcpServer::terms() const {
  const std::lock_guard lock(lock_);
  return terms_;
}

void DhcpServer::answer_arp(const Bytes& frame) {
  constexpr std::size_t sender_mac = 22, sender = 28, target = 38;
  if (quad(frame, target) != own_.value) return;
  card_.arrive(arp_answer(own_, {quad(frame, sender)}, mac_at(frame, sender_mac)));
}

void DhcpServer::take(const Bytes& frame) {
  if (answers_arp && is_arp(frame, 1)) return answer_arp(frame);
  if (frame.size() < options || word(frame, 12) != 0x0800 || frame[23] != std::byte{17} || word(frame, udp + 2) != 67) return;
  if (ignore_first > 0) {
    --ignore_first;
    return;
  }
  constexpr unsigned discover = 1, offer = 2, request = 3, acknowledge = 5, refuse = 6;
  const unsigned type = message_type(frame);
  if (type != discover && type != request) return;
  ++(type == request ? requests_ : discovers_);
  const DhcpTerms terms = this->terms();
  const bool refused = type == request && terms.refuse;
  Ipv4Address address = terms.address.value_or(offered_);
  if (type == request) address = terms.acknowledged.value_or(address);

  Bytes answer;
  append(answer, 67 << 16 | 68, 4);  // ports
  append(answer, 0, 4);
  append(answer, 0x0201'0600, 4);            // an answer over Ethernet
  append(answer, quad(frame, dhcp + 4), 4);  // transaction
  append(answer, 0, 8);
  append(answer, refused ? 0 : address.value, 4);
  append(answer, 0, 8);
  append(answer, Bytes(frame.begin() + dhcp + 28, frame.begin() + dhcp + 44));
  answer.resize(options - udp - 4);
  append(answer, 0x63825363, 4);
  append(answer, 53 << 8 | 1, 2);
  append(answer, type == discover ? offer : refused ? refuse : acknowledge, 1);
  if (terms.unknown_option_bytes > 0) {
    append(answer, 224U << 8 | terms.unknown_option_bytes, 2);
    answer.resize(answer.size() + terms.unknown_option_bytes);
  }
  if (terms.server) option(answer, 54, terms.server->value);
  if (!refused) {
    if (terms.lease_s) option(answer, 51, *terms.lease_s);
    if (terms.renew_s) option(answer, 58, *terms.renew_s);
    if (terms.rebind_s) option(answer, 59, *terms.rebind_s);
    if (terms.mask) option(answer, 1, *terms.mask);
    if (terms.router) option(answer, 3, terms.router->value);
  }
  append(answer, 255, 1);
  put_word(answer, 4, answer.size());
  // The answer is a unicast frame to the client, which has no address yet.
  const Ipv4Header header{.from = own_, .to = offered_, .protocol = 17, .to_mac = mac_at(frame, 6)};
  const Bytes whole = with_checksums(ipv4_frame(header, answer));
  if (terms.fragment_bytes > 0) return send_fragments(whole, terms.fragment_bytes);
  card_.arrive(whole);
}

void DhcpServer::send_fragments(const Bytes& frame, std::size_t bytes) {
  ++identification_;
  for (std::size_t begin = udp; begin < frame.size(); begin += bytes) {
    const std::size_t end = std::min(begin + bytes, frame.size());
    Bytes fragment(frame.begin(), frame.begin() + udp);
    fragment.insert(fragment.end(), frame.begin() + static_cast<std::ptrdiff_t>(begin), frame.begin() + static_cast<std::ptrdiff_t>(end));
    put_word(fragment, 16, fragment.size() - 14);
    put_word(fragment, 18, identification_);
    put_word(fragment, 20, (end < frame.size() ? 0x2000U : 0U) | (begin - udp) / 8);
    fill_checksums(fragment);
    card_.arrive(fragment);
  }
}

}  // namespace neap::net::testing
