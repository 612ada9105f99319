// SPDX-License-Identifier: BSL-1.0
// Property: every frame that reaches the driver is returned as requested and its buffer is freed. No frame is lost, doubled or reordered in
// its flow.
//
// There is no network stack: each core's queue pair has an `Echo` instead. The peer is ixgbe_echo_test.py, at the card's stream socket.
//   ARP request for 10.0.0.2      answered
//   ethertype 88B5 (experimental) sent back with the addresses swapped, from the buffers in which it was received
//   UDP or TCP over IPv4 or IPv6  sent back with all addresses and the ports swapped; the card computes the checksums. With
//                                 segment_bytes=N the card cuts TCP payload into segments of N bytes. Frames of IPv6 must arrive on the
//                                 core that `receiving_core_ipv6` names
//   ethertype 88B7                a setting as text, "rsc=on" or "steer=udp:7,1"; sent back with the answer that control would give;
//                                 "dma_error" makes the card read from an address without memory, "values" returns all settings of the
//                                 card, "timer,1" is answered after a timer of core 1 has fired, "send,17" after core 17 has sent a frame
//                                 of its own and the driver has released its memory
//   ethertype 88B6, "stop"        ends the run: counters are printed. The exit status is 16 if no buffer is missing and each core's
//                                 traffic equals the card's counts for its queues
// Settings on the command line (docs/policy.md) apply to all cores. With change_policy=on the image changes settings continuously.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "drivers/ixgbe/card.hpp"
#include "drivers/ixgbe/settings.hpp"
#include "kernel/application.hpp"
#include "kernel/console.hpp"
#include "kernel/events.hpp"
#include "kernel/policy.hpp"
#include "kernel/task.hpp"

namespace {

using namespace neap;

constexpr std::size_t mac_bytes = 6, ethernet_bytes = 14;
constexpr std::uint16_t ethertype_ipv4 = 0x0800, ethertype_arp = 0x0806, ethertype_ipv6 = 0x86DD, ethertype_echo = 0x88B5;
constexpr std::uint16_t ethertype_stop = 0x88B6, ethertype_set = 0x88B7;
constexpr std::size_t answer_bytes = 300;
constexpr std::array<std::uint8_t, 4> our_ip = {10, 0, 0, 2};
constexpr std::uint8_t protocol_tcp = 6, protocol_udp = 17;

std::uint16_t word_at(const std::byte* place) {
  return static_cast<std::uint16_t>(std::to_integer<unsigned>(place[0]) << 8 | std::to_integer<unsigned>(place[1]));
}

void put_word(std::byte* place, std::uint32_t value) {
  place[0] = static_cast<std::byte>(value >> 8);
  place[1] = static_cast<std::byte>(value);
}

void swap_fields(std::byte* one, std::byte* other, std::size_t bytes) { std::swap_ranges(one, one + bytes, other); }

struct Echo final : FrameReceiver {
  void receive(std::span<const ReceivedFrame> frames) noexcept override {
    received += frames.size();
    end_of_event->request();
    for (const ReceivedFrame& one : frames) take_in(one.frame, one.info);
  }

  void take_in(ReceiveBuffer* frame, ReceiveInfo info) {
    std::byte* const ethernet = frame->data;
    TransmitOffload reply;
    bool answered = false;
    if (frame->bytes >= ethernet_bytes) {
      const std::uint16_t ethertype = word_at(ethernet + 2 * mac_bytes);
      // Besides the type, the text "stop" is compared, so that a bit error in another frame's type does not end the run.
      if (ethertype == ethertype_stop && std::memcmp(ethernet + ethernet_bytes, "stop", 4) == 0) stop->fulfil();
      if (ethertype == ethertype_set) return start(set(frame));
      if (ethertype == ethertype_arp) answered = answer_arp(*frame);
      if (ethertype == ethertype_echo) answered = true;
      if (ethertype == ethertype_ipv4) answered = turn_around(*frame, info, ipv4_fields, reply);
      if (ethertype == ethertype_ipv6) answered = turn_around(*frame, info, ipv6_fields, reply);
    }
    if (!answered) return release(frame);
    swap_addresses(frame);
    send(frame, reply);
  }
  void swap_addresses(ReceiveBuffer* frame) const {
    const MacAddress mac = card->mac();
    std::memcpy(frame->data, frame->data + mac_bytes, mac_bytes);
    std::memcpy(frame->data + mac_bytes, mac.data(), mac_bytes);
  }

  /// Sends the answer in the frame of the request.
  task<void> set(ReceiveBuffer* frame) {
    ++asked_for;
    char* const text = reinterpret_cast<char*>(frame->data + ethernet_bytes);
    const std::string asked(text, strnlen(text, frame->bytes - ethernet_bytes));
    const std::size_t equals = asked.find('=');
    const std::size_t comma = std::min(asked.find(','), asked.size());
    const unsigned core = comma == asked.size() ? policy::all_cores : static_cast<unsigned>(std::stoul(asked.substr(comma + 1)));
    std::string answer = "error: no such setting";
    if (asked == "dma_error") answer = send_from_nowhere();
    if (asked == "values") answer = values();
    if (asked.starts_with("timer,")) answer = co_await on_core(core, timer_goes_off);
    if (asked.starts_with("send,") && core < others->size()) answer = co_await (*others)[core]->send_own(core, *frame);
    if (const auto setting = policy::setting_by_name(asked.substr(0, equals)); setting && equals < comma) {
      const auto done = co_await policy::set(*setting, asked.substr(equals + 1, comma - equals - 1), core);
      answer = done ? "ok " + done->value + " lost=" + std::to_string(done->lost_frames.value_or(0)) : "error: " + done.error().why;
    }
    print("ixgbe_echo: answer: ", answer);
    answer.resize(answer_bytes);
    std::memcpy(text, answer.data(), answer.size());
    swap_addresses(frame);
    const TransmitPiece piece{.data = frame->data, .bytes = ethernet_bytes + answer_bytes};
    while (!sender->transmit({&piece, 1}, {}, frame)) {
      co_await sleep_for(std::chrono::milliseconds{1});
    }
    --asked_for;
  }
  void transmitted(std::span<void* const> tokens) noexcept override {
    for (void* const token : tokens) {
      if (token == this)
        own_frame_came_back = true;
      else
        release(static_cast<ReceiveBuffer*>(token));
    }
  }
  void link_changed(bool up) noexcept override { print("ixgbe_echo: core ", this_core(), up ? " has a link" : " has no link"); }

  static task<std::string> timer_goes_off() {
    co_await sleep_for(std::chrono::milliseconds{3});
    co_return "ok timer on core " + std::to_string(this_core());
  }

  /// Sends a frame from the queue of `core` to the sender of frame `to`. The caller waits on its own core. A core without a receive queue
  /// sleeps until the interrupt of the frame's completion. Another core has no such interrupt, so it is asked for the completion.
  task<std::string> send_own(unsigned core, const ReceiveBuffer& to) {
    const MacAddress mac = card->mac();
    std::memcpy(own_frame.data(), to.data + mac_bytes, mac_bytes);
    std::memcpy(&own_frame[mac_bytes], mac.data(), mac_bytes);
    put_word(&own_frame[2 * mac_bytes], ethertype_echo);
    own_frame[ethernet_bytes] = static_cast<std::byte>(core);
    own_frame_came_back = false;
    const bool taken = co_await on_core(core, [this] {
      const TransmitPiece piece{.data = own_frame.data(), .bytes = own_frame.size()};
      return sender->transmit({&piece, 1}, {}, this).has_value();
    });
    if (!taken) co_return "error: not sent";
    for (const auto deadline = BootClock::now() + std::chrono::seconds{10}; !own_frame_came_back;) {
      if (BootClock::now() > deadline) co_return "error: its memory did not come back";
      co_await sleep_for(std::chrono::milliseconds{1});
      if (card->pair(core).receives()) co_await on_core(core, [this] { sender->reap(); });
    }
    co_return "ok sent by core " + std::to_string(core);
  }

  /// Returns the card's settings: "rx_ring=512 tx_ring=512 ...".
  [[nodiscard]] std::string values() const {
    std::string text;
    for (const ixgbe::CardSetting& setting : ixgbe::card_settings()) {
      if (setting.option == nullptr) continue;
      text += std::string(setting.row.name) + '=' + std::to_string(card->value_of(setting.row.setting)) + ' ';
    }
    return text;
  }

  /// Sends a frame from an address without memory.
  [[nodiscard]] std::string send_from_nowhere() const {
    constexpr std::uint64_t nowhere = std::uint64_t{1} << 40;
    const TransmitPiece piece{.data = static_cast<const std::byte*>(machine::direct_map(nowhere)), .bytes = 60};
    return sender->transmit({&piece, 1}, {}, nullptr) ? "ok" : "error: not sent";
  }

  bool answer_arp(ReceiveBuffer& frame) const {
    // RFC 826: operation at 6, sender at 8 (hardware) and 14 (protocol), target at 18 and 24.
    constexpr std::size_t arp_bytes = 28;
    std::byte* const arp = frame.data + ethernet_bytes;
    if (frame.bytes < ethernet_bytes + arp_bytes || word_at(arp + 6) != 1 || std::memcmp(arp + 24, our_ip.data(), our_ip.size()) != 0)
      return false;
    put_word(arp + 6, 2);
    swap_fields(arp + 8, arp + 18, 10);
    const MacAddress mac = card->mac();
    std::memcpy(arp + 8, mac.data(), mac_bytes);
    return true;
  }

  /// Offsets in the IP header. The addresses are its last fields.
  struct IpFields {
    std::size_t bytes, length, protocol, addresses, address_bytes;
  };
  static constexpr IpFields ipv4_fields{.bytes = 20, .length = 2, .protocol = 9, .addresses = 12, .address_bytes = 4};
  static constexpr IpFields ipv6_fields{.bytes = 40, .length = 4, .protocol = 6, .addresses = 8, .address_bytes = 16};

  bool turn_around(ReceiveBuffer& frame, ReceiveInfo info, const IpFields& fields, TransmitOffload& reply) {
    std::byte* const ip = frame.data + ethernet_bytes;
    std::byte* const ports = ip + fields.bytes;
    if (frame.bytes < ethernet_bytes + fields.bytes) return false;
    const bool ipv6 = &fields == &ipv6_fields;
    const std::byte protocol = ip[fields.protocol];
    const bool tcp = protocol == std::byte{protocol_tcp};
    const std::size_t l4_bytes = tcp ? 20 : 8;
    const std::size_t checksum_at = tcp ? 16 : 6;
    if (!tcp && protocol != std::byte{protocol_udp}) return false;
    if (frame.bytes < ethernet_bytes + fields.bytes + l4_bytes) return false;
    if (!(ipv6 ? info.ipv6_checksum_good() : info.checksums_good())) {
      ++bad_checksums;
      return false;
    }
    if (ipv6) wrong_core += core_of_ipv6(ip, ports) != this_core() ? 1 : 0;
    swap_fields(ip + fields.addresses, ip + fields.addresses + fields.address_bytes, fields.address_bytes);
    swap_fields(ports, ports + 2, 2);
    reply.l3_bytes = static_cast<std::uint8_t>(fields.bytes);
    reply.l4_bytes = static_cast<std::uint8_t>(l4_bytes);
    reply.checksums = tcp ? (ipv6 ? Checksums::tcp_ipv6 : Checksums::tcp_ipv4) : (ipv6 ? Checksums::udp_ipv6 : Checksums::udp_ipv4);
    std::uint32_t length = word_at(ip + fields.length) - (ipv6 ? 0U : static_cast<std::uint32_t>(fields.bytes));
    if (tcp && segment_bytes != 0 && length > l4_bytes) {
      reply.segment_bytes = segment_bytes;
      put_word(ip + fields.length, 0);
      length = 0;
    }
    if (!ipv6) put_word(ip + 10, 0);
    // The card needs the folded sum of the pseudo header (7.2.5): addresses, protocol, and without TSO the length.
    std::uint32_t sum = std::to_integer<std::uint32_t>(protocol) + length;
    for (std::size_t i = fields.addresses; i < fields.bytes; i += 2) sum += word_at(ip + i);
    while (sum > 0xFFFF) sum = (sum & 0xFFFF) + (sum >> 16);
    put_word(ports + checksum_at, sum);
    return true;
  }

  [[nodiscard]] unsigned core_of_ipv6(const std::byte* ip, const std::byte* ports) const {
    const auto* const addresses = reinterpret_cast<const std::uint8_t*>(ip + ipv6_fields.addresses);
    return card->receiving_core_ipv6(Ipv6Octets(addresses, 16), Ipv6Octets(addresses + 16, 16), word_at(ports), word_at(ports + 2));
  }

  /// Sends frames in order. A frame for which the ring has no room waits, as in a network stack.
  void send(ReceiveBuffer* frame, TransmitOffload reply) {
    if (!waiting.empty() || !try_send(frame, reply)) waiting.push_back({frame, reply});
  }
  void transmit_room() noexcept override {
    while (!waiting.empty() && try_send(waiting.front().frame, waiting.front().reply)) waiting.pop_front();
  }

  /// Sends the frame and returns true, or returns false if the transmit ring has no room.
  bool try_send(ReceiveBuffer* frame, TransmitOffload reply) {
    std::array<TransmitPiece, 8> pieces;
    std::size_t count = 0;
    for (ReceiveBuffer* piece = frame; piece != nullptr && count < pieces.size(); piece = piece->next) {
      pieces[count++] = {.data = piece->data, .bytes = piece->bytes};
    }
    const auto sent = sender->transmit({pieces.data(), count}, reply, frame);
    if (!sent && sent.error() == ErrorCode::full) return false;
    if (!sent) {
      ++refused;
      release(frame);
    }
    return true;
  }

  static void release(ReceiveBuffer* frame) {
    while (frame != nullptr) {
      ReceiveBuffer* const next = frame->next;
      frame->release();
      frame = next;
    }
  }

  ixgbe::Card* card = nullptr;
  FrameSender* sender = nullptr;
  Completion<void>* stop = nullptr;
  const std::vector<std::unique_ptr<Echo>>* others = nullptr;  // indexed by core
  std::array<std::byte, 60> own_frame{};
  std::atomic<bool> own_frame_came_back = false;
  unsigned asked_for = 0;  // number of requested changes of settings that have not ended
  struct Waiting {
    ReceiveBuffer* frame;
    TransmitOffload reply;
  };
  std::deque<Waiting> waiting;
  std::optional<EventEndHook> end_of_event;  // made and destroyed on the core
  std::uint16_t segment_bytes = 0;
  std::uint64_t received = 0, batches = 0, refused = 0, bad_checksums = 0, wrong_core = 0;
};

/// Prints the core's counters. Returns true if every buffer of the core's pool is free or on the ring.
bool report(ixgbe::Card& card, const Echo& echo, unsigned core) {
  ixgbe::QueuePair& pair = card.pair(core);
  pair.reap();
  const auto& receive = pair.receive_queue();
  const auto& transmit = pair.transmit_queue();
  print("ixgbe_echo: core ", core, " frames=", echo.received, " batches=", echo.batches, " refused=", echo.refused,
        " bad_checksums=", echo.bad_checksums, " wrong_core=", echo.wrong_core, " sent=", pair.traffic().tx_frames.value(),
        " contexts=", transmit.counters().contexts.value(), " receive_tails=", receive.counters().tail_writes.value(),
        " transmit_tails=", transmit.counters().tail_writes.value(), " interrupts=", pair.counters().interrupts.value(),
        " empty=", pair.counters().empty_interrupts.value(), " budget_exits=", pair.counters().budget_exits.value(),
        " idle_finds=", pair.counters().idle_finds.value(), " pool_empty=", receive.counters().pool_empty.value(),
        " dropped=", receive.counters().dropped_errors.value() + receive.counters().dropped_overlong.value(),
        " untagged=", receive.counters().dropped_untagged.value(), " hangs=", transmit.counters().hangs.value(),
        " wrong_heads=", transmit.counters().wrong_heads.value());
  const std::uint32_t accounted = receive.pool().available() + receive.posted();
  if (accounted == receive.pool().size()) return true;
  print("ixgbe_echo: core ", core, " misses ", receive.pool().size() - accounted, " of ", receive.pool().size(), " buffers");
  return false;
}

struct Sums {
  std::uint64_t rx_frames = 0, rx_bytes = 0, tx_frames = 0, tx_bytes = 0, lost = 0;
};

/// The queues of several cores may share one counter of the card. Returns the driver's sums over all cores that share a counter with
/// `core`.
Sums sums_of(ixgbe::Card& card, unsigned core) {
  Sums sums;
  for (; core < card.limits().transmit_queues; core += card.limits().queue_pairs) {
    const log::Traffic& traffic = card.pair(core).traffic();
    sums.rx_frames += traffic.rx_frames.value();
    sums.rx_bytes += traffic.rx_bytes.value();
    sums.tx_frames += traffic.tx_frames.value();
    sums.tx_bytes += traffic.tx_bytes.value();
    sums.lost += card.pair(core).transmit_queue().counters().lost.value();
  }
  return sums;
}

/// Returns true if the driver's counters equal the card's. The driver's `lost` frames were dropped before the card sent and counted them.
bool agree(const Sums& ours, const ixgbe::QueueStatistics& cards, unsigned core) {
  print("ixgbe_echo: queue ", core, " received=", cards.received, " received_bytes=", cards.received_bytes, " transmitted=", cards.sent,
        " transmitted_bytes=", cards.sent_bytes, " no_descriptor=", cards.no_descriptor);
  const bool bytes = ours.lost != 0 || ours.tx_bytes == cards.sent_bytes;
  if (ours.rx_frames == cards.received && ours.rx_bytes == cards.received_bytes && ours.tx_frames == cards.sent + ours.lost && bytes)
    return true;
  print("ixgbe_echo: core ", core, " counted ", ours.rx_frames, " and ", ours.rx_bytes, " bytes in, ", ours.tx_frames, " and ",
        ours.tx_bytes, " bytes out");
  return false;
}

task<void> close(ixgbe::Card& card, const std::vector<std::unique_ptr<Echo>>& echoes) {
  co_await card.close();
  for (unsigned core = 0; core < echoes.size(); ++core) co_await on_core(core, [&, core] { echoes[core]->end_of_event.reset(); });
}

struct Changes {
  bool go_on = true;
  unsigned made = 0;
  Completion<void> over;
};

/// Applies a series of settings, each on all cores, until stopped.
task<void> change_policy(Changes& changes) {
  using policy::Setting;
  struct Step {
    Setting setting;
    const char* value;
  };
  static constexpr std::array steps{Step{Setting::idle, "poll"},       Step{Setting::itr, "0"},     Step{Setting::idle, "halt"},
                                    Step{Setting::itr, "200us"},       Step{Setting::idle, "poll"}, Step{Setting::idle, "deepest"},
                                    Step{Setting::poll_budget, "1ms"}, Step{Setting::itr, "8us"},   Step{Setting::poll_budget, "0"}};
  while (changes.go_on) {
    for (const Step& step : steps) {
      const auto done = co_await policy::set(step.setting, step.value, policy::all_cores);
      if (!done) {
        print("ixgbe_echo: ", done.error().why);
        machine::exit(machine::ExitStatus::failure);
      }
      ++changes.made;
      co_await sleep_for(std::chrono::milliseconds{2});
    }
  }
  changes.over.fulfil();
}

}  // namespace

neap::task<int> neap::application(Arguments& arguments) {
  ixgbe::Options options;
  options.rss_cores = static_cast<unsigned>(arguments.number("rss_cores", 0, {0, 16}, "cores that get flows; 0: all"));
  const auto reserved_core = static_cast<unsigned>(arguments.number("reserved_core", 16, {0, 16}, "core for reserved_port; 16: none"));
  if (reserved_core < ixgbe::receive_queues_max) options.reserved_core = reserved_core;
  options.reserved_port = static_cast<std::uint16_t>(arguments.number("reserved_port", 5002, {0, 65535}, "TCP port for reserved_core"));
  options.itr_us = static_cast<std::uint32_t>(arguments.number("itr_us", options.itr_us, {0, 1024}, "interrupt moderation"));
  options.queues.coalescing = 0;  // most tests compare frames one by one
  options.queues.frame_bytes_max =
      static_cast<std::uint32_t>(arguments.number("frame_bytes", 1514, {60, 15500}, "largest frame, without FCS"));
  options.queues.receive_descriptors = static_cast<std::uint32_t>(arguments.number("receive_descriptors", 512, {64, 4096}, "ring size"));
  options.queues.transmit_descriptors = static_cast<std::uint32_t>(arguments.number("transmit_descriptors", 512, {64, 4096}, "ring size"));
  options.queues.receive_buffers =
      static_cast<std::uint32_t>(arguments.number("receive_buffers", 2048, {64, 65536}, "2 KiB each, per core"));
  const auto segment_bytes = static_cast<std::uint16_t>(
      arguments.number("segment_bytes", 0, {0, 9000}, "TCP payload of the segments that the card cuts; 0: none"));
  const auto boot_settings = policy::BootSettings::from(arguments, ixgbe::setting_rows());
  const bool change = arguments.flag("change_policy", false, "change idle, itr and poll_budget all the while");
  const bool compare = arguments.flag("compare", true, "the driver's counts with the card's; not for joined segments, which both count");
  arguments.finish();

  auto opened = co_await ixgbe::open({}, options);
  if (!opened) {
    print("ixgbe_echo: ", opened.error().message, " (", hex(opened.error().detail), ")");
    co_return 1;
  }
  ixgbe::Card& card = **opened;
  // Frames that RSS does not hash go to queue 0, so the stop frame arrives on this core.
  Completion<void> stop;
  std::vector<std::unique_ptr<Echo>> echoes;
  for (unsigned core = 0; core < card.limits().transmit_queues; ++core) {
    echoes.push_back(std::make_unique<Echo>());
    echoes.back()->card = &card;
    echoes.back()->others = &echoes;
    echoes.back()->segment_bytes = segment_bytes;
    echoes.back()->stop = &stop;
    co_await on_core(core, [&card, echo = echoes.back().get()] {
      echo->end_of_event.emplace([echo] { ++echo->batches; });
      echo->sender = &card.attach(*echo);
    });
  }
  policy::use(&card);
  if (const auto applied = co_await policy::apply(boot_settings); !applied) {
    print("ixgbe_echo: ", applied.error().why);
    co_await close(card, echoes);
    co_return 1;
  }
  Changes changes;
  if (change) start(change_policy(changes));
  print("ixgbe_echo: ready on ", card.limits().queue_pairs, " cores");
  co_await stop;
  if (change) {
    changes.go_on = false;
    co_await changes.over;
    print("ixgbe_echo: ", changes.made, " changes of policy");
  }
  // Waits for the requests that arrived before the stop frame. A request holds its frame's buffer until its setting has changed.
  for (unsigned core = 0; core < card.limits().queue_pairs; ++core) {
    const auto deadline = BootClock::now() + std::chrono::seconds{30};
    while (co_await on_core(core, [echo = echoes[core].get()] { return echo->asked_for != 0 || !echo->waiting.empty(); })) {
      if (BootClock::now() > deadline) break;
      co_await sleep_for(std::chrono::milliseconds{1});
    }
  }
  co_await sleep_for(std::chrono::milliseconds{100});  // until the card has sent the last replies
  bool complete = true;
  for (unsigned core = 0; core < card.limits().transmit_queues; ++core) {
    complete &= co_await on_core(core, [&, core] { return report(card, *echoes[core], core); });
  }
  const auto statistics = card.collect_statistics();
  if (!statistics) {
    print(statistics.error().message);
    co_await close(card, echoes);
    co_return 1;
  }
  print("ixgbe_echo: card received=", statistics->port.received, " transmitted=", statistics->port.sent,
        " missed=", statistics->port.missed);
  for (unsigned core = 0; core < card.limits().queue_pairs; ++core) {
    const bool agrees = agree(sums_of(card, core), statistics->queues[core], core);
    complete &= agrees || !compare;
  }
  co_await close(card, echoes);
  co_return complete ? 0 : 1;
}
