// SPDX-License-Identifier: BSL-1.0
// A fuzzer of the engine of IPv6, in virtual time.
//
// One input is a link of hostile machines: forged and true messages of neighbour discovery, fragments, extension headers, groups, errors,
// and bytes without meaning, each sometimes damaged. After every step, all bounds hold, and a timer is armed only if something waits. At
// the end a well-behaved neighbour gets its answer, and when the time of everything is over, nothing is held.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "net/testing/choices.hpp"
#include "net/testing/ipv6_world.hpp"
#include "tests/host/allocated_bytes.hpp"
#include "tests/host/fuzzing.hpp"

namespace neap::net::ipv6::testing {
namespace {

using net::testing::Choices;
using net::testing::fail;

class Case {
 public:
  explicit Case(Choices& choices) : choices_(choices) {
    world_.engine.begin();
    world_.advance(choices.below(2) * 3'000);
  }

  void run() {
    while (!choices_.empty()) {
      step();
      check();
    }
    finish();
  }

 private:
  Address address() {
    switch (choices_.below(8)) {
      case 0:
        return World::own;
      case 1:
        return {0x2001'0DB8'0001'0000, World::own.low()};
      case 2:
        return all_nodes;
      case 3:
        return World::own.solicited_node();
      case 4:
        return {0x2001'0DB8'0001'0000U + choices_.below(4), choices_.below(400)};
      case 5:
        return {choices_.bits(4), choices_.bits(4)};
      case 6:
        return {0xFF05'0000'0000'0000, choices_.below(8)};
      default:
        return {0xFE80'0000'0000'0000, choices_.below(3'000)};
    }
  }
  Packet any(std::size_t bytes) { return choices_.any(bytes); }
  Packet message(unsigned type) {
    Packet bytes;
    append(bytes, std::uint64_t{type} << 24 | (choices_.below(8) == 0 ? choices_.bits(1) << 16 : 0), 4);
    append(bytes, choices_.bits(4), 4);
    return bytes;
  }
  Packet packet() {
    const MacAddress mac = mac_number(choices_.below(40));
    const auto hops = static_cast<std::uint8_t>(choices_.below(8) == 0 ? 64 : 255);
    switch (choices_.below(10)) {
      case 0:
        return solicitation(choices_.below(4) == 0 ? Address() : address(), address(), address(), choices_.below(3) == 0 ? nullptr : &mac,
                            hops);
      case 1:
        return advertisement(address(), address(), choices_.below(3) == 0 ? nullptr : &mac, choices_.bits(1) << 24, hops);
      case 2: {
        std::vector<Prefix> prefixes(choices_.below(5));
        for (Prefix& prefix : prefixes) {
          prefix = {.address = address(),
                    .bits = choices_.below(140),
                    .flags = choices_.bits(1),
                    .valid_s = choices_.bits(2),
                    .preferred_s = choices_.bits(2)};
        }
        return router_advertisement({0xFE80'0000'0000'0000, choices_.below(40)}, mac, prefixes, choices_.bits(2), choices_.below(2'000),
                                    hops);
      }
      case 3: {
        Packet fragment;
        append(fragment, choices_.below(4) == 0 ? choices_.bits(1) : next_header::udp, 1);
        append(fragment, 0, 1);
        append(fragment, (choices_.below(4) == 0 ? choices_.bits(2) : choices_.below(4) * 64) | choices_.below(2), 2);
        append(fragment, choices_.below(6), 4);
        const Packet data = any(choices_.below(3) == 0 ? choices_.below(200) : 64);
        fragment.insert(fragment.end(), data.begin(), data.end());
        return packet_of({.next = next_header::fragment, .from = address(), .to = address()}, fragment);
      }
      case 4: {
        Packet chain;
        std::uint8_t first = next_header::hop_by_hop;
        const unsigned headers = choices_.below(10);
        for (unsigned i = 0; i < headers; ++i) {
          constexpr std::array<std::uint8_t, 5> types{next_header::destination_options, next_header::routing, next_header::fragment,
                                                      next_header::udp, next_header::icmp};
          append(chain, i + 1 < headers ? types[choices_.below(3)] : types[choices_.below(5)], 1);
          append(chain, choices_.below(3) == 0 ? choices_.below(4) : 0, 1);
          const Packet options = any(6);
          chain.insert(chain.end(), options.begin(), options.end());
        }
        const Packet rest = any(choices_.below(32));
        chain.insert(chain.end(), rest.begin(), rest.end());
        if (choices_.below(2) == 0) first = next_header::destination_options;
        return packet_of({.next = first, .from = address(), .to = address()}, chain);
      }
      case 5: {
        Packet query = message(choices_.below(2) == 0 ? icmp::listener_query : icmp::listener_report_1);
        append(query, choices_.below(2) == 0 ? Address() : address());
        if (choices_.below(2) == 0) append(query, 0, 4);
        const Packet inner = icmp_packet({0xFE80'0000'0000'0000, choices_.below(4)}, all_nodes, query, 1);
        Packet payload;
        append(payload, 0x3A00'0502'0000'0100, 8);
        payload.insert(payload.end(), inner.begin() + header_bytes, inner.end());
        return packet_of({.next = next_header::hop_by_hop, .hops = 1, .from = Header::read(inner).from, .to = all_nodes}, payload);
      }
      case 6: {
        Packet error = message(1 + choices_.below(4));
        const Packet quoted = packet_of({.next = next_header::udp, .from = address(), .to = address()}, any(choices_.below(20)));
        error.insert(error.end(), quoted.begin(), quoted.end());
        return icmp_packet(address(), address(), error, 64);
      }
      case 7: {
        Packet echo = message(icmp::echo_request);
        echo.resize(8 + choices_.below(2'000));
        return icmp_packet(address(), address(), echo, 64);
      }
      case 8:
        return packet_of({.next = static_cast<std::uint8_t>(choices_.bits(1)), .from = address(), .to = address()},
                         any(choices_.below(64)));
      default:
        return any(choices_.below(100));
    }
  }
  void step() {
    switch (choices_.below(16)) {
      case 0:
        return world_.advance(choices_.below(100'000));
      case 1: {
        const Address group{0xFF05'0000'0000'0000, choices_.below(100)};
        static_cast<void>(choices_.below(2) == 0 ? world_.engine.listener().join(group, choices_.below(3))
                                                 : world_.engine.listener().leave(group, choices_.below(3)));
        return;
      }
      case 2:
        return static_cast<void>(world_.engine.resolve(address()));
      case 3:
        if (choices_.below(8) == 0) world_.engine.end();
        world_.engine.begin();
        return;
      case 4: {
        const std::array<std::byte, 8> head{};
        return static_cast<void>(world_.engine.send(World::own, address(), next_header::udp, head, any(choices_.below(3'000))));
      }
      default:
        break;
    }
    Packet one = packet();
    if (choices_.below(4) == 0 && !one.empty())
      one[choices_.below(static_cast<std::uint32_t>(one.size()))] = static_cast<std::byte>(choices_.bits(1));
    if (choices_.below(8) == 0) one.resize(choices_.below(static_cast<std::uint32_t>(one.size() + 1)));
    world_.believes = choices_.below(2) == 0;
    world_.input(one, mac_number(choices_.below(40)));
    world_.advance(choices_.below(20));
  }
  void check() {
    const Engine& engine = world_.engine;
    if (engine.neighbours().used() > Neighbours::entries_max) fail("neighbours", engine.neighbours().used());
    if (engine.neighbours().incomplete() > Neighbours::incomplete_max) fail("addresses asked for", engine.neighbours().incomplete());
    if (engine.neighbours().waiting() > Neighbours::waiting_max) fail("waiting packets", engine.neighbours().waiting());
    if (engine.reassembly().packets() > Reassembly::packets_max) fail("datagrams in reassembly", engine.reassembly().packets());
    if (engine.reassembly().bytes() > Reassembly::bytes_max + 64 * 1024) fail("bytes in reassembly", engine.reassembly().bytes());
    for (const Sent& one : world_.sent) {
      if (one.packet.size() > mtu_link) fail("a packet longer than the link's MTU", one.packet.size());
      const Header header = one.header();
      if (header_bytes + header.payload_bytes != one.packet.size()) fail("a packet with a wrong length", one.packet.size());
      if (header.to.is_unspecified() || header.from.is_multicast()) fail("a packet with an impossible address", header.next);
    }
    world_.sent.clear();
    world_.received.clear();
    world_.errors.clear();
    world_.removed.clear();
  }
  void finish() {
    world_.advance(200'000);
    check();
    if (world_.engine.reassembly().packets() != 0 || world_.engine.reassembly().bytes() != 0) fail("fragments are held for ever", 0);
    if (world_.engine.neighbours().waiting() != 0 || world_.engine.neighbours().incomplete() != 0) fail("packets wait for ever", 0);
    if (!world_.engine.ready()) return;  // the address was a duplicate, or the link is down
    const MacAddress mac = mac_number(5'000);
    world_.input(solicitation({0xFE80'0000'0000'0000, 0x7777'7777}, World::own.solicited_node(), World::own, &mac), mac);
    if (world_.take(icmp::neighbour_advertisement).size() != 1) fail("a neighbour got no answer", 0);
  }

  Choices& choices_;
  World world_;
};

void play(const std::uint8_t* data, std::size_t size) {
  Choices choices(data, size);
  std::make_unique<Case>(choices)->run();
}

}  // namespace
}  // namespace neap::net::ipv6::testing

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace neap::net;
  GTEST_FLAG_SET(break_on_failure, true);
  static const bool warm = (ipv6::testing::play(data, 0), true);  // makes the allocations that a process makes once
  static_cast<void>(warm);
  const std::size_t before = neap::host::allocated_bytes();
  ipv6::testing::play(data, size);
  const std::size_t after = neap::host::allocated_bytes();
  if (after > before) neap::net::testing::fail("memory has grown after the case", after - before);
  return 0;
}

#ifndef NEAP_LIBFUZZER
int main(int count, char** words) { return neap::fuzzing::run<neap::fuzzing::AnyBytes<50, 600, 4000>>("fuzz_ipv6", count, words); }
#endif
