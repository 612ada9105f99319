// SPDX-License-Identifier: BSL-1.0
// A fuzzer of segments in live connections, many thousand inputs a second.
//
// fuzz_stack and fuzz_segments start a machine for each input, which takes far longer than the segments of the input. Here a machine
// without a thread serves thousands of inputs. One input is a sequence of some segments, acts of the application and times for one of
// several connections, which the next inputs find in the state that this one has left. A connection that has ended is replaced.
//
// Checks: the machine acknowledges nothing that was never sent, and sends no byte that its application did not write. A well-behaved client
// is served between the inputs. When the machine ends, no connection, card buffer or memory is left. Sanitizers check each access.
//
// With clang the program is a libFuzzer target (-DNEAP_LIBFUZZER=ON). Usage with any other compiler: `fuzz_tcp_connection [SECONDS]
// [SEED]`.
#include <algorithm>
#include <array>
#include <bitset>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "net/bring_up.hpp"
#include "net/stack.hpp"
#include "net/testing/choices.hpp"
#include "net/testing/fuzzed_ends.hpp"
#include "net/testing/raw_peer.hpp"
#include "tests/host/fuzzing.hpp"
#include "tests/host/host_machine.hpp"
#include "tests/host/stepped_machine.hpp"

namespace neap::net::testing {
namespace {

constexpr Ipv4Address machine_address{0x0A000001}, client_address{0x0A000002};
constexpr std::uint16_t echo_port = 8;
constexpr unsigned remotes_max = 8;
constexpr unsigned inputs_of_machine = 4096, inputs_between_clients = 32;
constexpr std::uint32_t segment_bytes_max = 1460, write_bytes_max = 40'000;
constexpr std::uint64_t ms_ns = 1'000'000, second_ns = 1000 * ms_ns;
// A closed connection is reset after at most 600 s, and a half-open one ends after 20 s.
constexpr std::uint64_t end_ns = 700 * second_ns;
constexpr std::size_t machine_bytes = 8 << 10;
constexpr std::array served_habits{Habit::read, Habit::keep_half, Habit::echo, Habit::answer_more, Habit::keep, Habit::close};

/// The remote end of a connection. It acknowledges, repeats and invents as the input says.
struct Remote {
  Endpoint from{}, to{};
  std::uint32_t sequence = 0;      ///< of its next byte
  std::uint32_t furthest = 0;      ///< behind the last number that it has ever sent
  std::uint32_t acknowledged = 0;  ///< the machine's next byte in order
  std::uint32_t highest = 0;       ///< behind the machine's last byte
  std::uint32_t clock = 0;         ///< the machine's last timestamp
  std::uint16_t window = 0xFFFF;
  bool timestamps = false, answered = false, ended = true;
  bool any_numbers = false;  ///< a damaged frame had numbers that are not known
};

class World {
 public:
  explicit World(std::uint64_t seed) : core_(seed) {
    card_.tap([this](Bytes& frame) {
      frames_.push_back(std::move(frame));
      return false;
    });
    const bool up = core_.run([this]() -> task<void> {
      const AddressSetting setting{.dhcp = false, .address = machine_address, .netmask = {0xFFFF0000}, .gateway = {}};
      network_ = std::move(*co_await bring_up(card_, setting, 0, 1));
      static_cast<void>(co_await network_->listen(echo_port, [](Connection&) { return std::make_unique<Echo>(); }));
      for (const Habit habit : served_habits) {
        static_cast<void>(co_await network_->listen(
            port_of(habit), [this, habit](Connection&) { return std::make_unique<Application>(applications_, habit, sent_); }));
      }
    });
    if (!up) fail("the network did not start", 0);
    take_frames();
    serve_client();  // makes the allocations that are made once
    before_bytes_ = allocated();
  }
  World& operator=(World&&) = delete;
  ~World() {
    finish();
    card_.cut();
    bool down = core_.run([this]() -> task<void> { co_await network_->take_down(); });
    if (!down) core_.advance_to(core_.now_ns() + 10 * second_ns);
    if (card_.buffers_out() != 0) fail("buffers of the card are still held", static_cast<std::uint64_t>(card_.buffers_out()));
  }

  void play(Choices& choices) {
    Remote& remote = remotes_[choices.below(remotes_max)];
    if (remote.ended) open(remote, choices);
    while (!choices.empty()) step(remote, choices);
    flush();
    if (++inputs_ % inputs_between_clients == 0) serve_client();
  }
  [[nodiscard]] bool spent() const { return inputs_ >= inputs_of_machine; }

 private:
  static std::uint16_t port_of(Habit habit) { return static_cast<std::uint16_t>(first_port + static_cast<unsigned>(habit)); }
  [[nodiscard]] std::uint32_t clock_ms() const { return static_cast<std::uint32_t>(core_.now_ns() / ms_ns); }

  // --- The wire --------------------------------------------------------------------------------------------------------------------------
  void add(Remote& remote, std::uint32_t sequence, std::uint32_t acknowledged, unsigned flags, std::uint32_t bytes,
           std::span<const std::byte> options) {
    const std::uint32_t end = sequence + bytes + ((flags & (syn_flag | fin_flag)) != 0 ? 1 : 0);
    if (static_cast<std::int32_t>(end - remote.furthest) > 0) remote.furthest = end;
    pending_.push_back(frame_from({.from = remote.from,
                                   .to = remote.to,
                                   .sequence = sequence,
                                   .acknowledged = acknowledged,
                                   .flags = flags,
                                   .window = remote.window,
                                   .options = options,
                                   .payload = std::span(payload_).first(bytes)},
                                  card_.mac()));
  }
  /// The machine handles all waiting frames in one event.
  void flush() {
    if (pending_.empty()) return;
    card_.arrive_together(std::exchange(pending_, {}), 0);
    core_.settle();
    take_frames();
  }
  void take_frames() {
    while (!frames_.empty()) {
      std::swap(frames_, taken_);
      for (const Bytes& frame : taken_) process(frame);
      taken_.clear();
      core_.settle();
    }
  }
  void process(const Bytes& frame) {
    if (is_arp(frame, 1)) {
      const Ipv4Address asked{quad(frame, 38)};
      if (asked != machine_address) card_.arrive(arp_answer(asked, machine_address, card_.mac()), 0);
      return;
    }
    const SegmentView segment = view_of_segment(frame);
    if (segment.flags == 0) return;
    if (segment.to.port == client_.from.port) return client_.process(segment);
    for (Remote& remote : remotes_) {
      if (!remote.ended && remote.from.port == segment.to.port) return process(remote, segment);
    }
  }
  void process(Remote& remote, const SegmentView& segment) {
    if (segment.payload.size() > segment_bytes_max) fail("a segment longer than the link's limit", segment.payload.size());
    const bool acknowledges = (segment.flags & ack_flag) != 0;
    if (acknowledges && !remote.any_numbers && static_cast<std::int32_t>(segment.acknowledged - remote.furthest) > 0 &&
        (segment.flags & rst_flag) == 0)
      fail("an acknowledgement of numbers that were never sent", segment.acknowledged - remote.furthest);
    if ((segment.flags & rst_flag) != 0) {
      remote.ended = true;
      return;
    }
    const std::uint32_t end =
        segment.sequence + static_cast<std::uint32_t>(segment.payload.size()) + ((segment.flags & (syn_flag | fin_flag)) != 0 ? 1 : 0);
    if ((segment.flags & syn_flag) != 0) {
      remote.answered = true;
      remote.acknowledged = remote.highest = end;
    }
    if (static_cast<std::int32_t>(end - remote.highest) > 0) remote.highest = end;
    if (segment.options.size() >= 12 && octet(segment.options, 2) == 8) remote.clock = quad(segment.options, 4);
  }

  // --- Steps of an input -----------------------------------------------------------------------------------------------------------------
  void open(Remote& remote, Choices& choices) {
    const Habit habit = served_habits[choices.below(served_habits.size())];
    do {
      next_port_ = next_port_ == 0xFFFF ? 2000 : static_cast<std::uint16_t>(next_port_ + 1);
    } while (invented_ports_[next_port_]);
    remote = {.from = {.address = client_address, .port = next_port_},
              .to = {.address = machine_address, .port = port_of(habit)},
              .sequence = choices.bits(1) << 24 | 0xFFF000,
              .ended = false};
    remote.furthest = remote.sequence;
    options_.clear();
    const std::uint32_t wanted = choices.bits(1);
    if ((wanted & 1) != 0) append(options_, 0x0204'0000 | 100 * choices.below(16), 4);
    if ((wanted & 2) != 0) append(options_, 0x0303'0001 | choices.below(16) << 8, 4);
    if ((wanted & 4) != 0) append(options_, 0x0402'0101, 4);
    if ((wanted & 8) != 0) append_timestamps(0);
    remote.timestamps = (wanted & 8) != 0;
    add(remote, remote.sequence++, 0, syn_flag, 0, options_);
    flush();
    if (!remote.answered) {  // too many half-open or waiting connections
      remote.ended = true;
      return;
    }
    if ((wanted & 0xF0) == 0) return;  // stays half open
    add(remote, remote.sequence, remote.acknowledged, ack_flag, 0, options_of(remote, choices, false));
  }
  void append_timestamps(std::uint32_t echo) {
    append(options_, 0x0101'080A, 4);
    append(options_, clock_ms(), 4);
    append(options_, echo, 4);
  }
  /// The result is valid until the next call.
  [[nodiscard]] std::span<const std::byte> options_of(const Remote& remote, Choices& choices, bool may_sack) {
    options_.clear();
    const std::uint32_t kind = choices.bits(1);
    if (remote.timestamps && kind != 0xFF) append_timestamps(remote.clock + (kind == 0xFE ? choices.bits(4) : 0));
    if (may_sack && kind % 4 == 1) {
      const std::uint32_t blocks = 1 + choices.below(remote.timestamps ? 3 : 4);
      append(options_, 0x0101'0502 + 8 * blocks - (kind == 0xF1 ? 1 : 0), 4);
      std::uint32_t at = remote.acknowledged - (kind % 16 == 5 ? 3000 : 0);
      for (std::uint32_t i = 0; i < blocks; ++i) {
        at += choices.bits(1) * 64;
        append(options_, at, 4);
        at += choices.bits(1) * 64;
        append(options_, at, 4);
      }
    } else if (kind % 32 == 3) {
      append(options_, choices.bits(4), 4);
    }
    return options_;
  }
  static std::uint32_t length(Choices& choices) {
    const std::uint32_t kind = choices.bits(1);
    return kind < 64 ? 1 + kind % 8 : kind < 128 ? segment_bytes_max : kind * 5;
  }

  void step(Remote& remote, Choices& choices) {
    const std::uint32_t what = choices.bits(1);
    if (what >= 128) flush();  // otherwise several segments arrive together
    if (remote.ended && what % 16 > 12) return;
    switch (what % 16) {
      case 0:
      case 1:
      case 2: {  // in order
        const std::uint32_t bytes = length(choices);
        add(remote, remote.sequence, remote.acknowledged, ack_flag | psh_flag, bytes, options_of(remote, choices, false));
        remote.sequence += bytes;
        return;
      }
      case 3:
      case 4: {  // acknowledges all that the machine has sent, or a part, and more than it has sent
        const std::uint32_t left = remote.highest - remote.acknowledged, part = choices.bits(1);
        remote.acknowledged += part >= 128 ? left : left * part / 128;
        const std::uint32_t too_much = part == 1 ? choices.bits(2) : 0;
        return add(remote, remote.sequence, remote.acknowledged + too_much, ack_flag, 0, options_of(remote, choices, true));
      }
      case 5:
      case 6:  // duplicate acknowledgements
        for (std::uint32_t count = 1 + choices.below(5); count > 0; --count)
          add(remote, remote.sequence, remote.acknowledged, ack_flag, 0, options_of(remote, choices, true));
        return;
      case 7:
      case 8:  // behind a gap
        return add(remote, remote.sequence + 1 + choices.bits(1) * 50, remote.acknowledged, ack_flag, length(choices),
                   options_of(remote, choices, false));
      case 9: {  // overlaps what was sent before
        const std::uint32_t back = choices.bits(1) * 20;
        return add(remote, remote.sequence - back, remote.acknowledged - choices.below(3), ack_flag, length(choices),
                   options_of(remote, choices, false));
      }
      case 10:  // any numbers and flags
        return add(remote, remote.sequence + choices.bits(2) - 0x8000, remote.acknowledged + choices.bits(2) - 0x8000, choices.bits(1),
                   choices.bits(1) * 5, options_of(remote, choices, true));
      case 11:
        remote.window = static_cast<std::uint16_t>(choices.bits(2) >> choices.below(17));
        return add(remote, remote.sequence, remote.acknowledged, ack_flag, 0, options_of(remote, choices, false));
      case 12:
        return wait(choices);
      case 13:
        return act(choices);
      case 14:
        return damage(choices);
      default:
        if (const std::uint32_t kind = choices.bits(1); kind >= 240) {
          add(remote, remote.sequence, remote.acknowledged, rst_flag | ack_flag, 0, {});
          flush();
          remote.ended = true;
        } else if (kind >= 160) {
          add(remote, remote.sequence++, remote.acknowledged, fin_flag | ack_flag, 0, options_of(remote, choices, false));
        } else if (kind >= 150) {
          add(remote, remote.sequence - 1, remote.acknowledged, syn_flag | (kind & ack_flag), 0, options_of(remote, choices, false));
        }
    }
  }
  void wait(Choices& choices) {
    flush();
    constexpr std::array times_ns{ms_ns, 10 * ms_ns, 45 * ms_ns, 250 * ms_ns, 2 * second_ns, 70 * second_ns};
    const std::uint32_t which = choices.bits(1);
    core_.advance_to(core_.now_ns() + times_ns[which < 250 ? which % 5 : 5]);
    take_frames();
  }
  void act(Choices& choices) {
    flush();
    const unsigned which = choices.bits(1), kind = choices.bits(1);
    const unsigned what = kind < 200 ? kind % 3 : kind % 6;
    const std::size_t bytes = choices.below(write_bytes_max);
    core_.call([&] {
      if (!applications_.empty()) applications_[which % applications_.size()]->act(what, bytes);
    });
    take_frames();
  }
  /// Changes bytes of the last waiting frame, or its length. Its checksums stay right in half of the cases.
  void damage(Choices& choices) {
    constexpr std::uint32_t headers_begin = 12, source_port_at = 34, headers_bytes = 54;
    if (pending_.empty() || pending_.back().size() < headers_bytes) return;
    Bytes& frame = pending_.back();
    const unsigned port_before = word(frame, source_port_at);
    for (std::uint32_t count = 1 + choices.below(3); count > 0; --count) {
      const auto reach = std::min<std::uint32_t>(static_cast<std::uint32_t>(frame.size()) - headers_begin, 70);
      frame[headers_begin + choices.below(reach)] = static_cast<std::byte>(choices.bits(1));
    }
    const unsigned port_after = word(frame, source_port_at);
    if (port_after != port_before) invented_ports_[port_after] = true;
    for (Remote& remote : remotes_) remote.any_numbers |= remote.from.port == port_before || remote.from.port == port_after;
    if (choices.below(4) == 0) frame.resize(frame.size() - choices.below(40));
    if (choices.below(2) == 0) fill_checksums(frame);
  }

  // --- Checks ----------------------------------------------------------------------------------------------------------------------------
  /// A client on a new connection, whose bytes are sent back at once.
  void serve_client() {
    do {
      next_client_ = next_client_ == 1999 ? 1000 : static_cast<std::uint16_t>(next_client_ + 1);
    } while (invented_ports_[next_client_]);
    client_ = {.from = {.address = client_address, .port = next_client_},
               .to = {.address = machine_address, .port = echo_port},
               .sequence = std::uint32_t{7} * next_client_};
    tell_client(client_.sequence++, syn_flag, {});
    if (!client_.answered) fail("no answer to a client's SYN", inputs_);
    Bytes request(1 + inputs_ % segment_bytes_max);
    for (std::size_t i = 0; i < request.size(); ++i) request[i] = static_cast<std::byte>(i * 7 + inputs_);
    tell_client(client_.sequence, ack_flag, {});
    tell_client(client_.sequence, ack_flag | psh_flag, request);
    client_.sequence += static_cast<std::uint32_t>(request.size());
    if (client_.received != request) fail("a client was not served at once", inputs_);
    tell_client(client_.sequence, rst_flag | ack_flag, {});
  }
  void tell_client(std::uint32_t sequence, unsigned flags, const Bytes& payload) {
    card_.arrive(frame_from({.from = client_.from,
                             .to = client_.to,
                             .sequence = sequence,
                             .acknowledged = (flags & ack_flag) != 0 ? client_.acknowledged : 0,
                             .flags = flags,
                             .payload = payload},
                            card_.mac()),
                 0);
    core_.settle();
    take_frames();
  }
  std::size_t allocated() {
    std::size_t bytes = 0;
    core_.call([&] { bytes = allocated_without_spares(); });
    return bytes;
  }
  void finish() {
    core_.call([&] {
      for (Application* one : Applications(applications_)) one->act(0, 0);
      for (Application* one : Applications(applications_)) one->act(5, 0);
    });
    for (Remote& remote : remotes_) remote.ended = true;
    frames_.clear();
    core_.advance_to(core_.now_ns() + end_ns);
    take_frames();
    Counters now;
    core_.call([&] { now = net::counters(0); });
    if (now.connections_open != 0) fail("connections remain after resets", now.connections_open);
    if (now.half_open != 0) fail("half-open connections remain", now.half_open);
    if (now.held_bytes != 0) fail("the account is not empty when all connections have ended", now.held_bytes);
    // Without their capacity, which an assignment of {} leaves.
    for (std::vector<Bytes>* frames : {&pending_, &frames_, &taken_}) std::vector<Bytes>().swap(*frames);
    static_cast<void>(host::take_console_text());
    if (const std::size_t bytes = allocated(); bytes > before_bytes_ + machine_bytes)
      fail("memory is allocated when all connections have ended", bytes - before_bytes_);
  }

  std::uint64_t inputs_ = 0;
  std::size_t before_bytes_ = 0;
  std::uint16_t next_port_ = 2000, next_client_ = 1000;
  std::bitset<0x10000> invented_ports_;  ///< sources of damaged frames, which may have connections of their own
  bool sent_ = false;
  std::vector<Bytes> frames_, taken_, pending_;
  Bytes options_;
  const Bytes payload_ = Bytes(segment_bytes_max, std::byte{0x55});
  std::array<Remote, remotes_max> remotes_{};
  Peer client_;
  Applications applications_;
  host::SteppedMachine core_;
  WireCard card_{{.mac = {2, 0, 0, 0, 0, 1}, .exact_buffers = true}};
  std::unique_ptr<NetworkControl> network_;
};

std::unique_ptr<World>& world() {
  static std::unique_ptr<World> world;
  return world;
}

}  // namespace
}  // namespace neap::net::testing

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace neap::net::testing;
  static std::uint64_t machines = 0;
  if (world() == nullptr) world() = std::make_unique<World>(++machines);
  Choices choices(data, size);
  world()->play(choices);
  if (world()->spent()) world().reset();
  return 0;
}

// The history of allocations costs time, and fresh memory costs page faults. A finding can be repeated with longer ones, by ASAN_OPTIONS.
extern "C" const char* __asan_default_options() { return "malloc_context_size=1:quarantine_size_mb=64"; }

#ifndef NEAP_LIBFUZZER
int main(int count, char** words) {
  const int status = neap::fuzzing::run<neap::fuzzing::AnyBytes<8, 24, 120>>("fuzz_tcp_connection", count, words);
  neap::net::testing::world().reset();
  return status;
}
#endif
