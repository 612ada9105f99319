// SPDX-License-Identifier: BSL-1.0
#include "net/testing/dhcp_server.hpp"

#include <algorithm>
#include <span>

namespace neap::net::testing {

namespace {

// Offsets in an Ethernet frame with DHCP over UDP; the IPv4 header has no options.
constexpr std::size_t udp = 34, dhcp = 42, options = dhcp + 240;

std::uint16_t word(const Bytes& frame, std::size_t index) {
  return static_cast<std::uint16_t>(std::to_integer<unsigned>(frame[index]) << 8 | std::to_integer<unsigned>(frame[index + 1]));
}

void put16(Bytes& frame, std::size_t index, std::size_t value) {
  frame[index] = static_cast<std::byte>(value >> 8);
  frame[index + 1] = static_cast<std::byte>(value);
}

void put32(Bytes& frame, std::size_t index, std::uint32_t value) {
  put16(frame, index, value >> 16);
  put16(frame, index + 2, value & 0xFFFF);
}

void option(Bytes& frame, unsigned code, std::initializer_list<std::uint32_t> words) {
  frame.push_back(static_cast<std::byte>(code));
  frame.push_back(static_cast<std::byte>(words.size() * 4));
  for (const std::uint32_t value : words) {
    frame.resize(frame.size() + 4);
    put32(frame, frame.size() - 4, value);
  }
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
  constexpr std::size_t arp = 14, operation = arp + 6, sender = arp + 8, target = arp + 18;
  Bytes wanted(4);
  put32(wanted, 0, own_.value);
  if (word(frame, operation) != 1 || !std::equal(wanted.begin(), wanted.end(), frame.begin() + target + 6)) return;
  Bytes answer = frame;
  std::copy_n(frame.begin() + sender, 10, answer.begin() + target);
  std::copy_n(frame.begin() + sender, 6, answer.begin());
  std::fill_n(answer.begin() + 6, 6, std::byte{0});
  answer[6] = std::byte{2};
  answer[11] = std::byte{0xfe};
  std::copy_n(answer.begin() + 6, 6, answer.begin() + sender);
  std::copy_n(wanted.begin(), 4, answer.begin() + sender + 6);
  put16(answer, operation, 2);
  card_.arrive(answer);
}

void DhcpServer::take(const Bytes& frame) {
  if (answers_arp && frame.size() >= 42 && word(frame, 12) == 0x0806) return answer_arp(frame);
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

  Bytes answer(options);
  std::fill_n(answer.begin(), 6, std::byte{0xff});
  std::copy_n(frame.begin() + 6, 6, answer.begin());  // unicast to the client, which has no address yet
  answer[6] = std::byte{2};
  answer[11] = std::byte{0xfe};
  put16(answer, 12, 0x0800);
  answer[14] = std::byte{0x45};
  answer[22] = std::byte{64};
  answer[23] = std::byte{17};
  put32(answer, 26, own_.value);
  put32(answer, 30, offered_.value);
  put16(answer, udp, 67);
  put16(answer, udp + 2, 68);
  answer[dhcp] = std::byte{2};
  answer[dhcp + 1] = std::byte{1};
  answer[dhcp + 2] = std::byte{6};
  std::copy_n(frame.begin() + dhcp + 4, 4, answer.begin() + dhcp + 4);  // transaction
  put32(answer, dhcp + 16, refused ? 0 : address.value);
  std::copy_n(frame.begin() + dhcp + 28, 16, answer.begin() + dhcp + 28);
  put32(answer, dhcp + 236, 0x63825363);
  answer.push_back(std::byte{53});
  answer.push_back(std::byte{1});
  answer.push_back(static_cast<std::byte>(type == discover ? offer : refused ? refuse : acknowledge));
  if (terms.unknown_option_bytes > 0) {
    answer.push_back(std::byte{224});
    answer.push_back(std::byte{terms.unknown_option_bytes});
    answer.resize(answer.size() + terms.unknown_option_bytes);
  }
  if (terms.server) option(answer, 54, {terms.server->value});
  if (!refused) {
    if (terms.lease_s) option(answer, 51, {*terms.lease_s});
    if (terms.renew_s) option(answer, 58, {*terms.renew_s});
    if (terms.rebind_s) option(answer, 59, {*terms.rebind_s});
    if (terms.mask) option(answer, 1, {*terms.mask});
    if (terms.router) option(answer, 3, {terms.router->value});
  }
  answer.push_back(std::byte{255});
  put16(answer, 16, answer.size() - 14);
  put16(answer, udp + 4, answer.size() - udp);
  fill_checksums(answer);
  if (terms.fragment_bytes > 0) return send_fragments(answer, terms.fragment_bytes);
  card_.arrive(answer);
}

void DhcpServer::send_fragments(const Bytes& frame, std::size_t bytes) {
  ++identification_;
  for (std::size_t begin = udp; begin < frame.size(); begin += bytes) {
    const std::size_t end = std::min(begin + bytes, frame.size());
    Bytes fragment(frame.begin(), frame.begin() + udp);
    fragment.insert(fragment.end(), frame.begin() + static_cast<std::ptrdiff_t>(begin), frame.begin() + static_cast<std::ptrdiff_t>(end));
    put16(fragment, 16, fragment.size() - 14);
    put16(fragment, 18, identification_);
    put16(fragment, 20, (end < frame.size() ? 0x2000U : 0U) | (begin - udp) / 8);
    fill_checksums(fragment);
    card_.arrive(fragment);
  }
}

}  // namespace neap::net::testing
