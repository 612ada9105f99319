// SPDX-License-Identifier: BSL-1.0
// A fuzzer of one stack. Raw frames simulate many hostile peers, while applications run and well-behaved clients must be served.
//
// One input is a machine of one core, with IPv4 and IPv6 and a low memory limit (stack_memory.hpp). The hostile peers send everything that
// a peer can send: floods of SYNs and forged cookies, gaps, tiny segments, closed windows, FIN and RST in any state, fragments, ARP, ICMP
// of both versions, UDP. In every check well-behaved clients, one of them of control, exchange bytes, each on an open and on a new
// connection, while the clock does not advance. Each check also compares the stack's count of held memory with the allocated memory. The
// count falls by the bytes that a peer acknowledges, but memory is freed in whole blocks. So applications send small blocks, and the
// comparison allows one block for each connection. At the end all peers are reset, and then no memory may be held.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "lwip/memp.h"
#include "net/bring_up.hpp"
#include "net/stack.hpp"
#include "net/stack_memory.hpp"
#include "net/testing/choices.hpp"
#include "net/testing/fuzzed_ends.hpp"
#include "net/testing/ipv6_world.hpp"
#include "net/testing/raw_peer.hpp"
#include "tests/host/allocated_bytes.hpp"
#include "tests/host/fuzzing.hpp"
#include "tests/host/host_machine.hpp"

namespace neap::net::testing {
namespace {

using namespace std::chrono_literals;

constexpr Ipv4Address machine_address{0x0A000001}, client_address{0x0A000002};
constexpr Address machine_address6{0xFE80'0000'0000'0000, 0x0000'00FF'FE00'0001}, client_address6{0xFE80'0000'0000'0000, 2};
constexpr std::uint16_t echo_port = 8, control_port = 9, datagram_port = 10;
constexpr unsigned peers_max = 48;
constexpr std::uint32_t frames_per_settling = 200;
// The stack's count of held memory excludes a connection's objects, and a half-open connection with its SYN-ACK.
constexpr std::size_t connection_bytes = 3072, half_open_bytes = 1024;
// The count also excludes incomplete datagrams, and frames that wait for a neighbour's address (lwipopts.h, ipv6/neighbours.hpp).
constexpr std::size_t reassembly_bytes = std::size_t{IP_REASS_MAX_PBUFS} * 2304,
                      unresolved_bytes = std::size_t{MEMP_NUM_ARP_QUEUE} * 2048 + std::size_t{ipv6::Neighbours::waiting_max} * 2048;
// Memory of the machine's threads, timers and queues.
constexpr std::size_t machine_bytes = 64 << 10;
// Up to `frames_per_settling` frames may share one event, and the stack checks its limit only at the event's end. Until then the frames may
// add this much held memory. Bytes that applications send in that event are not limited.
constexpr std::size_t event_bytes = frames_per_settling * memory::card_buffer_bytes;

constexpr MacAddress neighbour{2, 0, 0, 0, 0, 0xFE};

Bytes syn_options(Choices& choices) {
  Bytes options;
  if (choices.below(2) == 0) append(options, 0x0204'0000 | choices.below(0x600), 4);
  if (choices.below(2) == 0) append(options, 0x0303'0001 | choices.below(15) << 8, 4);
  if (choices.below(2) == 0) append(options, 0x0402'0101, 4);
  return options;
}

class Case {
 public:
  explicit Case(Choices& choices) : choices_(choices), limit_bytes_(std::size_t{256} << 10 << choices.below(3)) {
    card_.tap([this](const Bytes& frame) {
      const std::lock_guard lock(lock_);
      frames_.push_back(frame);
      return true;
    });
    machine_.run(0, [this]() -> task<void> {
      AddressSetting setting{.dhcp = false, .address = machine_address, .netmask = {0xFFFF0000}, .gateway = {}};
      setting.ipv6.mode = Ipv6Setting::Mode::automatic;
      network_ = std::move(*co_await bring_up(card_, setting, 0, 1));
      Stack::here()->set_memory_limit(limit_bytes_);
      if (!count_as_control(control_port).has_value()) fail("control's port is refused", control_port);
      for (const std::uint16_t port : {echo_port, control_port}) {
        static_cast<void>(co_await network_->listen(port, [](Connection&) { return std::make_unique<Echo>(); }));
      }
      for (unsigned habit = 0; habit < habits; ++habit) {
        static_cast<void>(co_await network_->listen(static_cast<std::uint16_t>(first_port + habit), [this, habit](Connection&) {
          return std::make_unique<Application>(applications_, static_cast<Habit>(habit), sent_);
        }));
      }
      static_cast<void>(co_await network_->receive_datagrams(datagram_port, [](const Datagram&) {}));
    });
    advance(3s);  // duplicate address detection
  }
  ~Case() {
    card_.cut();
    const host::ClockRunner runner(clock_);
    machine_.run(0, [this] { return network_->take_down(); });
    if (card_.buffers_out() != 0) fail("buffers of the card that are still held", static_cast<std::uint64_t>(card_.buffers_out()));
  }

  void run() {
    before_bytes_ = allocated();
    for (Peer& client : clients_) open_client(client);
    for (unsigned steps = 1; !choices_.empty(); ++steps) {
      step();
      settle();
      if (steps % 8 == 0) check();
    }
    check();
    finish();
  }

 private:
  // --- The wire --------------------------------------------------------------------------------------------------------------------------
  void arrive(Bytes frame) {
    card_.arrive(std::move(frame), 0);
    if (++arriving_ % frames_per_settling == 0) settle();
  }
  void arrive_ipv6(const Bytes& packet) {
    Bytes frame;
    append(frame, card_.mac());
    append(frame, neighbour_mac, 6);
    append(frame, ipv6::ethertype, 2);
    append(frame, packet);
    card_.arrive(std::move(frame), 0);
  }
  void send(const Peer& peer, std::uint32_t sequence, unsigned flags, Bytes payload = {}, Bytes options = {}) {
    arrive(frame_of({.from = peer.from,
                     .to = peer.to,
                     .sequence = sequence,
                     .acknowledged = (flags & ack_flag) != 0 ? peer.acknowledged : 0,
                     .flags = flags,
                     .window = peer.window,
                     .options = std::move(options),
                     .payload = std::move(payload)},
                    card_.mac()));
  }
  /// Waits until the machine has processed all frames.
  void settle() {
    std::uint64_t arrived = card_.frames_arrived();
    for (unsigned rounds = 0, quiet = 0; quiet < 3; ++rounds, ++quiet) {
      if (rounds == 20'000) fail("the machine does not become idle", rounds);
      machine_.on(0, [] {});
      std::vector<Bytes> frames;
      {
        const std::lock_guard lock(lock_);
        frames = std::exchange(frames_, {});
      }
      for (const Bytes& frame : frames) process(frame);
      if (!frames.empty() || std::exchange(arrived, card_.frames_arrived()) != arrived) quiet = 0;
    }
  }
  void process(const Bytes& frame) {
    if (is_arp(frame, 1)) {
      const std::uint32_t asked = quad(frame, 38);
      if ((asked & 0xFF00) == 0) card_.arrive(arp_answer({asked}, machine_address, card_.mac()), 0);  // other addresses do not exist
      return;
    }
    if (frame.size() >= 78 && word(frame, 12) == 0x86DD && octet(frame, 20) == ipv6::next_header::icmp &&
        octet(frame, 54) == ipv6::icmp::neighbour_solicitation) {
      const Address asked = Address::read(frame.data() + 62);
      if (asked.low() < 0x100) arrive_ipv6(ipv6::testing::advertisement(asked, machine_address6, &neighbour));
      return;
    }
    const SegmentView segment = view_of_segment(frame);
    for (Peer& client : clients_) hear(client, segment);
    for (Peer& client : fresh_) hear(client, segment);
    for (Peer& peer : peers_) {
      hear(peer, segment);
      peer.received = {};
    }
  }
  static void hear(Peer& peer, const SegmentView& segment) {
    if (segment.flags == 0 || segment.to.port != peer.from.port || segment.to.address != peer.from.address) return;
    if (segment.from.port == peer.to.port) peer.process(segment);
  }

  // --- Clients that must be served -------------------------------------------------------------------------------------------------------
  void open_client(Peer& client) {
    const Address from = client.to.address.is_v4() ? Address(client_address) : client_address6;
    client = {.from = {.address = from, .port = next_port_++}, .to = client.to, .sequence = choices_.bits(2)};
    send(client, client.sequence++, syn_flag);
    settle();
    if (!client.answered) fail("no answer to a client's SYN at port", client.to.port);
    send(client, client.sequence, ack_flag);
    serve(client);
  }
  void serve(Peer& client) {
    Bytes request(1 + choices_.below(1400));
    for (std::size_t i = 0; i < request.size(); ++i) request[i] = static_cast<std::byte>(i * 7 + client.sequence);
    client.received.clear();
    send(client, client.sequence, ack_flag | psh_flag, request);
    client.sequence += static_cast<std::uint32_t>(request.size());
    settle();
    if (client.reset) fail("a client that does no harm was reset, at port", client.to.port);
    if (client.received != request) fail("a client was not served at once, at port", client.to.port);
    send(client, client.sequence, ack_flag);
    settle();
  }

  // --- The attack ------------------------------------------------------------------------------------------------------------------------
  Peer& any_peer() {
    while (peers_.size() < peers_max && (peers_.empty() || choices_.below(8) == 0)) open_peer();
    return peers_[choices_.below(static_cast<std::uint32_t>(peers_.size()))];
  }
  std::uint16_t any_port() {
    const std::uint32_t choice = choices_.below(habits + 4);
    if (choice < habits) return static_cast<std::uint16_t>(first_port + choice);
    return choice == habits ? control_port : choice == habits + 1 ? 77 : echo_port;
  }
  void open_peer() {
    const bool ipv6 = choices_.below(2) == 0;
    const std::uint32_t number = 0x10 + choices_.below(8);
    Peer peer{.from = {.address = ipv6 ? Address(machine_address6.high(), number) : Ipv4Address{0x0A000000 + number}, .port = next_port_++},
              .to = {.address = ipv6 ? machine_address6 : Address(machine_address),
                     .port = static_cast<std::uint16_t>(first_port + choices_.below(habits))},
              .sequence = choices_.bits(4),
              .window = static_cast<std::uint16_t>(choices_.below(2) == 0 ? 0xFFFF : choices_.bits(2) >> choices_.below(17))};
    peers_.push_back(peer);
    send(peer, peer.sequence, syn_flag, {}, syn_options(choices_));
    settle();
    Peer& opened = peers_.back();
    ++opened.sequence;
    if (choices_.below(16) != 0) send(opened, opened.sequence, ack_flag);
    settle();
  }
  Bytes payload(std::uint32_t bytes_max) { return Bytes(1 + choices_.below(bytes_max), std::byte{0x55}); }

  void step() {
    Peer& peer = any_peer();
    switch (choices_.below(19)) {
      case 0:
      case 1: {  // in order
        const std::uint32_t bytes = choices_.below(2) == 0 ? 1460 : 1 + choices_.below(1460);
        for (std::uint32_t count = choices_.below(200); count > 0; --count) {
          send(peer, peer.sequence, ack_flag, Bytes(bytes));
          peer.sequence += bytes;
        }
        return;
      }
      case 2:  // segments of one byte
        for (std::uint32_t count = choices_.below(250); count > 0; --count) send(peer, peer.sequence++, ack_flag, Bytes(1));
        break;
      case 3:
      case 4: {  // segments with gaps, or overlapping
        const std::uint32_t apart = 1 + choices_.below(3000), bytes = 1 + choices_.below(1460);
        const std::uint32_t begin = peer.sequence + choices_.below(3000);
        for (std::uint32_t i = choices_.below(130); i > 0; --i) send(peer, begin + i * apart, ack_flag, Bytes(bytes));
        return;
      }
      case 5:
        return send(peer, peer.taken, ack_flag, payload(1460));  // fills the gap
      case 6:
        return send(peer, peer.sequence + choices_.below(3) - 1, choices_.bits(1), choices_.below(2) == 0 ? Bytes{} : payload(1460),
                    syn_options(choices_));
      case 7:
        peer.window = static_cast<std::uint16_t>(choices_.bits(2) >> choices_.below(17));
        return send(peer, peer.taken, ack_flag);
      case 8:
        return send(peer, peer.taken, choices_.below(2) == 0 ? fin_flag | ack_flag : rst_flag | ack_flag);
      case 9:
        return flood(syn_flag);
      case 10:
        return flood(ack_flag);
      case 11:
        return fragments();
      case 12:
        return arp();
      case 13:
        return datagram();
      case 14:
        return advance(choices_.below(4) == 0 ? 5s : std::chrono::milliseconds(choices_.below(20) * 50));
      case 15: {
        Bytes frame =
            frame_of({.from = peer.from, .to = peer.to, .sequence = peer.taken, .flags = ack_flag, .payload = payload(100)}, card_.mac());
        for (std::uint32_t count = choices_.below(4); count > 0; --count) {
          frame[12 + choices_.below(static_cast<std::uint32_t>(frame.size()) - 12)] = static_cast<std::byte>(choices_.bits(1));
        }
        frame.resize(frame.size() - choices_.below(40));
        if (choices_.below(2) == 0) fill_checksums(frame);
        return arrive(std::move(frame));
      }
      case 16:
        return icmpv6(peer);
      default:
        act();
    }
  }
  /// An error about a segment of the machine, perhaps with numbers in flight.
  void icmpv6(const Peer& peer) {
    const Address to = peer.from.address.is_v4() ? client_address6 : peer.from.address;
    Bytes quoted;
    append(quoted, peer.to.port, 2);
    append(quoted, peer.from.port, 2);
    append(quoted, peer.acknowledged + (choices_.below(2) == 0 ? 0 : choices_.bits(4)), 4);
    append(quoted, Bytes(choices_.below(40)));
    Bytes message;
    append(message, choices_.below(2) == 0 ? 0x0200'0000 : (1 + choices_.below(4)) << 24 | choices_.below(8) << 16, 4);
    append(message, choices_.below(2) == 0 ? choices_.bits(4) : choices_.below(1600), 4);
    append(message, ipv6::testing::packet_of({.next = ipv6::next_header::tcp, .from = machine_address6, .to = to}, quoted));
    arrive_ipv6(ipv6::testing::icmp_packet(client_address6, machine_address6, message, 64));
  }
  void act() {
    const unsigned what = choices_.below(6), which = choices_.bits(1);
    const std::size_t bytes = choices_.below(2'000'000);
    machine_.on(0, [&] {
      if (!applications_.empty()) applications_[which % applications_.size()]->act(what, bytes);
    });
  }
  /// Sends frames from addresses that do not exist, some of them on the machine's network.
  void flood(unsigned flags) {
    const std::uint16_t port = any_port();
    const bool near = choices_.below(2) == 0, ipv6 = choices_.below(2) == 0;
    if (near) unresolved_ = true;
    for (std::uint32_t count = choices_.below(8) == 0 ? 1500 : choices_.below(100); count > 0; --count) {
      const std::uint32_t number = flooded_++;
      const Ipv4Address ipv4{near ? 0x0A000100 + number % 4000 : 0xAC100000 + number};
      const Address from6(near ? machine_address6.high() : 0x2001'0DB8'0000'0000, 0x1000 + number);
      const Endpoint from{.address = ipv6 ? from6 : Address(ipv4), .port = static_cast<std::uint16_t>(number | 1)};
      arrive(frame_of({.from = from,
                       .to = {.address = ipv6 ? machine_address6 : Address(machine_address), .port = port},
                       .sequence = number * 7919,
                       .acknowledged = number * 40503,
                       .flags = flags},
                      card_.mac()));
    }
  }
  void fragments() {
    fragments_ = true;
    Bytes frame = frame_of({.from = {.address = Ipv4Address{0x0A000010 + choices_.below(8)}, .port = 1},
                            .to = {.address = machine_address, .port = any_port()},
                            .flags = ack_flag},
                           card_.mac());
    if (choices_.below(2) == 0) frame[23] = std::byte{17};
    const std::uint32_t identification = choices_.below(20);
    for (std::uint32_t count = 1 + choices_.below(40); count > 0; --count) {
      Bytes fragment = frame;
      append(fragment, payload(1400));
      const std::uint32_t offset = choices_.below(4) == 0 ? choices_.bits(2) & 0x1FFF : choices_.below(40) * 4;
      put_word(fragment, 16, fragment.size() - 14);
      put_word(fragment, 18, identification);
      put_word(fragment, 20, (choices_.below(8) != 0 ? 0x2000 : 0) | offset);
      arrive(with_checksums(std::move(fragment)));
    }
  }
  void arp() {
    for (std::uint32_t count = 1 + choices_.below(130); count > 0; --count) {
      const Ipv4Address from{choices_.below(4) == 0 ? choices_.bits(4) : 0x0A000000 + choices_.below(5000)};
      arrive(arp_answer(from, choices_.below(8) == 0 ? from : machine_address, card_.mac(),
                        choices_.below(8) == 0 ? choices_.bits(1) : 1 + choices_.below(2)));
    }
  }
  void datagram() {
    Bytes frame = frame_of({.from = {.address = Ipv4Address{0x0A000010 + choices_.below(300)}, .port = 9},
                            .to = {.address = machine_address, .port = datagram_port}},
                           card_.mac());
    frame[23] = choices_.below(2) == 0 ? std::byte{17} : std::byte{1};
    unresolved_ = true;
    for (std::size_t i = 34; i < frame.size(); ++i) {
      if (choices_.below(4) == 0) frame[i] = static_cast<std::byte>(choices_.bits(1));
    }
    if (frame[23] == std::byte{1} && choices_.below(2) == 0) frame[34] = std::byte{8}, frame[35] = std::byte{0};
    append(frame, Bytes(choices_.below(1400)));
    put_word(frame, 16, frame.size() - 14);
    fill_checksums(frame);
    for (std::uint32_t count = 1 + choices_.below(20); count > 0; --count) arrive(frame);
  }
  void advance(std::chrono::milliseconds by, std::chrono::milliseconds step = 50ms) {
    for (auto passed = 0ms; passed < by; passed += step) {
      clock_.advance(step);
      settle();
    }
  }

  // --- Checks ----------------------------------------------------------------------------------------------------------------------------
  std::size_t allocated() { return machine_.value_on(0, allocated_without_spares); }
  Counters counters() {
    return machine_.value_on(0, [] { return net::counters(0); });
  }
  void check() {
    for (Peer& client : clients_) serve(client);
    for (std::size_t i = 0; i < fresh_.size(); ++i) {
      fresh_[i].to = clients_[i].to;
      open_client(fresh_[i]);
      send(fresh_[i], fresh_[i].sequence, rst_flag | ack_flag);
      settle();
    }
    const Counters now = counters();
    const std::size_t limit = limit_bytes_ * memory::reset_factor + now.connections_open * memory::connection_guarantee_bytes;
    if (!sent_ && now.held_bytes_max > limit + event_bytes) fail("more was held than the limit and an event allow", now.held_bytes_max);
    if (now.held_bytes > limit) fail("more is held than the limit", now.held_bytes);
    // Frames may still be in flight, so only memory that stays allocated is an error.
    for (unsigned attempt = 0; attempt < 5; ++attempt) {
      const auto [bytes, allowed] = allocated_and_allowed();
      if (bytes <= before_bytes_ + allowed) return;
      if (attempt == 4) fail("more is allocated than the account shows", bytes - before_bytes_ - allowed);
      settle();
    }
  }
  std::pair<std::size_t, std::size_t> allocated_and_allowed() {
    const std::size_t bytes = allocated();
    const Counters now = counters();
    std::size_t allowed = machine_bytes + now.held_bytes + (now.connections_open + peers_.size()) * connection_bytes;
    allowed += now.connections_open * sent_block_bytes;  // one partly acknowledged block for each connection
    allowed += now.half_open * half_open_bytes + (fragments_ ? reassembly_bytes : 0) + (unresolved_ ? unresolved_bytes : 0);
    return {bytes, allowed};
  }
  void finish() {
    for (unsigned round = 0; round < 20; ++round) {
      for (Peer& peer : peers_) send(peer, peer.taken - 1, ack_flag);  // the machine's answer tells which sequence number the reset needs
      settle();
      for (Peer& client : clients_) send(client, client.sequence, rst_flag | ack_flag);
      for (Peer& peer : peers_) send(peer, peer.taken, rst_flag | ack_flag);
      settle();
      if (counters().connections_open == 0) break;
      advance(550ms);
    }
    const Counters now = counters();
    if (now.connections_open != 0) fail("connections remain after resets", now.connections_open);
    if (now.held_bytes != 0) fail("the account is not empty when all peers are reset", now.held_bytes);
    advance(40s, 1s);
    if (const std::uint64_t left = counters().half_open; left != 0) fail("half-open connections remain", left);
    if (card_.buffers_out() != 0) fail("buffers of the card are held after the case", static_cast<std::uint64_t>(card_.buffers_out()));
    const std::size_t bytes = allocated();
    if (bytes > before_bytes_ + machine_bytes) fail("memory is allocated after the case", bytes - before_bytes_);
  }

  Choices& choices_;
  const std::size_t limit_bytes_;
  std::size_t before_bytes_ = 0;
  std::uint64_t arriving_ = 0;
  std::uint32_t flooded_ = 0;
  std::uint16_t next_port_ = 2000;
  bool fragments_ = false, unresolved_ = false;
  bool sent_ = false;  ///< an application has sent bytes, so held memory may exceed the limit
  std::mutex lock_;
  std::vector<Bytes> frames_;
  std::vector<Peer> peers_;
  std::array<Peer, 3> clients_{Peer{.from = {}, .to = {.address = machine_address, .port = echo_port}},
                               Peer{.from = {}, .to = {.address = machine_address, .port = control_port}},
                               Peer{.from = {}, .to = {.address = machine_address6, .port = echo_port}}};
  std::array<Peer, 3> fresh_;
  Applications applications_;
  host::ManualClock clock_{1'000'000'000};
  WireCard card_{{.mac = {2, 0, 0, 0, 0, 1}}};
  host::HostMachine machine_{1};
  std::unique_ptr<NetworkControl> network_;
};

void play(const std::uint8_t* data, std::size_t size) {
  Choices choices(data, size);
  std::make_unique<Case>(choices)->run();
  static_cast<void>(host::take_console_text());  // frees the console's text
}

}  // namespace
}  // namespace neap::net::testing

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace neap::net::testing;
  GTEST_FLAG_SET(break_on_failure, true);
  static const bool warm = (play(data, 0), true);  // makes the allocations that a process makes once
  static_cast<void>(warm);
  const std::size_t before = neap::host::allocated_bytes();
  play(data, size);
  const std::size_t after = neap::host::allocated_bytes();
  if (after > before) fail("memory has grown after the case", after - before);
  return 0;
}

#ifndef NEAP_LIBFUZZER
int main(int count, char** words) { return neap::fuzzing::run<neap::fuzzing::AnyBytes<50, 600, 4000>>("fuzz_stack", count, words); }
#endif
