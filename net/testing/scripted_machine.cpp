// SPDX-License-Identifier: BSL-1.0
#include "net/testing/scripted_machine.hpp"

#include <algorithm>
#include <chrono>

#include "kernel/policy.hpp"
#include "net/testing/scripted_handler.hpp"

namespace neap::net::testing {

using namespace std::chrono_literals;

namespace {

Ipv4Address address_of(unsigned peer) { return {0x0A000010 + peer}; }

}  // namespace

// --- Start and end -----------------------------------------------------------------------------------------------------------------------
ScriptedMachine::ScriptedMachine(const ScriptOptions& options) : options_(options), random_(options.seed), card_(options.card) {
  trace_.emplace_back();
  card_.tap([this](const Bytes& frame) {
    const std::lock_guard lock(lock_);
    frames_.push_back(frame);
    return true;
  });
  machine_.run(0, [this]() -> task<void> {
    const AddressSetting setting{.dhcp = false, .address = machine_address, .netmask = {0xFFFF0000}, .gateway = {}};
    network_ = std::move(*co_await bring_up(card_, setting, 0, 1));
    Stack::here()->use_short_path(options_.short_path);
    if (options_.memory_limit_bytes != 0) Stack::here()->set_memory_limit(options_.memory_limit_bytes);
    static_cast<void>(co_await policy::set(policy::Setting::segmentation, options_.tso, policy::all_cores));
    static_cast<void>(co_await network_->listen(service_port, [this](Connection& connection) {
      return std::make_unique<Handler>(*this, connection.remote().address.v4().value - address_of(0).value);
    }));
  });
  for (unsigned number = 0; number < peers_max; ++number) introduce(number);
}

ScriptedMachine::~ScriptedMachine() {
  machine_.on(0, [this] {
    for (const Peer& peer : peers_) {
      if (peer.handler != nullptr) peer.handler->release(held_bytes_max + tcp::settings.receive_bytes_max);
    }
  });
  card_.cut();
  const host::ClockRunner runner(clock_);
  machine_.run(0, [this] { return network_->take_down(); });
  EXPECT_EQ(card_.buffers_out(), 0);
}

std::vector<ScriptStep> ScriptedMachine::run() {
  for (unsigned i = 0; i < options_.steps; ++i) {
    step();
    flush(below(4) != 0);
    settle();
    record_fields();
    now().calls = std::exchange(calls_, {});
    trace_.emplace_back();
  }
  return std::move(trace_);
}

// --- The script --------------------------------------------------------------------------------------------------------------------------
void ScriptedMachine::step() {
  const unsigned number = below(3) != 0 ? 0 : below(peers_max);
  Peer& peer = peers_[number];
  note("peer", number);
  if (!peer.open) return open(number, peer);
  mangle_ = chance(options_.faults / 4);
  if (chance(options_.ends)) return ending_step(number, peer);
  if (chance(options_.faults)) return faulty_step(number, peer);
  return below(3) == 0 ? application_step(number, peer) : usual_step(number, peer);
}

ScriptedMachine::Habit ScriptedMachine::any_habit() {
  const auto habit = static_cast<Habit>(below(habits - 1));
  return habit == Habit::echo && !options_.echoes ? Habit::answer : habit;
}

void ScriptedMachine::open(unsigned number, Peer& peer) {
  const bool again = peer.port != 0 && chance(200);  // the same port, whose connection may be in TIME-WAIT
  const std::uint64_t mac = peer.mac;
  peer = {.port = again ? peer.port : next_port_++, .mac = mac, .first = static_cast<std::uint32_t>(random_()), .handler = peer.handler};
  if (chance(300)) peer.first = 0xFFFF'F000 + below(0x1000);  // numbers wrap soon
  peer.scale = below(2) * below(8);
  peer.window = below(3) == 0 ? 1 + below(0xFFFF) : 0xFFFF;
  Bytes options;
  if (chance(800)) append(options, 0x0204'0000 | (chance(700) ? 1460 : 88 + below(1400)), 4);
  if (peer.scale != 0 || chance(300)) append(options, 0x0303'0001 | peer.scale << 8, 4);
  const bool scaled = peer.scale != 0;
  if (chance(500)) append(options, 0x0402'0101, 4);
  peer.timestamps = chance(600);
  if (peer.timestamps) {
    append(options, 0x0101'080A, 4);
    append(options, peers_clock_, 4);
    append(options, 0, 4);
  }
  if (!link_) {
    link_ = true;
    note("link up");
    card_.set_link(true);
    settle();
    for (unsigned i = 0; i < peers_max; ++i) introduce(i);
  }
  note("opens", peer.port, "scale", peer.scale, "window", peer.window);
  send(peer, {.sequence = 0, .acknowledged = 0, .flags = syn_flag, .options = options});
  flush(false);
  settle();
  for (auto waited = std::chrono::milliseconds(0); !peer.answered && waited < options_.card.read_delay; waited += 50ms) advance(50ms);
  if (!peer.answered) return note("without success");
  if (scaled) peer.window = std::max<std::uint32_t>(peer.window >> peer.scale, 1);
  peer.sent = 1;
  peer.open = true;
  send(peer, {.sequence = 1, .acknowledged = peer.received});
  flush(false);
  settle();
  const Habit habit = any_habit();
  const std::size_t answer = chance(700) ? below(1400) : below(20'000);
  const bool by_reference = below(2) == 0, closes = below(3) != 0;
  const std::size_t piece = below(3) == 0 ? 1 + below(2000) : 16384;
  machine_.on(0, [&] {
    if (peer.handler == nullptr) return;
    peer.handler->habit = habit;
    peer.handler->answer_bytes = answer;
    peer.handler->by_reference = by_reference;
    peer.handler->answers_close = closes;
    peer.handler->piece_bytes = piece;
  });
  note("habit", static_cast<unsigned>(habit), "answer", answer, "number", number);
}

/// Steps of a peer that keeps to the protocol.
void ScriptedMachine::usual_step(unsigned, Peer& peer) {
  switch (below(8)) {
    case 0:
    case 1:
    case 2: {  // requests, each with the acknowledgement of all received bytes
      const unsigned rounds = 1 + below(5);
      const std::size_t bytes = 1 + below(chance(500) ? 200 : options_.segment_bytes_max);
      note("sends", rounds, "requests of", bytes);
      for (unsigned i = 0; i < rounds; ++i) {
        data(peer, bytes, ack_flag | psh_flag);
        flush(true);
        settle();
      }
      return;
    }
    case 3: {  // several segments at once
      const unsigned count = 1 + below(40);
      const std::size_t bytes = 1 + below(options_.segment_bytes_max);
      note("sends", count, "segments of", bytes, "at once");
      for (unsigned i = 0; i < count; ++i) data(peer, bytes, ack_flag | (below(2) == 0 ? psh_flag : 0));
      return;
    }
    case 4:
    case 5:
      note("acknowledges all:", peer.received);
      return send(peer, {.sequence = peer.sent, .acknowledged = peer.received});
    case 6: {  // reads and acknowledges until the machine has sent all
      note("reads all");
      for (unsigned i = 0; i < 30; ++i) {
        const std::uint32_t before = peer.received;
        send(peer, {.sequence = peer.sent, .acknowledged = peer.received});
        flush(true);
        settle();
        if (peer.received == before) return;
      }
      return;
    }
    default: {
      const std::chrono::milliseconds time(50 * (1 + below(chance(100) ? 60 : 6)));
      note("time passes:", time.count());
      return advance(time);
    }
  }
}

/// Steps of a peer or a wire with faults.
void ScriptedMachine::faulty_step(unsigned number, Peer& peer) {
  const std::uint32_t back = below(4000), bytes = 1 + below(1460);
  switch (below(16)) {
    case 0:
      note("repeats from", back, "before its end,", bytes, "bytes");
      return send(peer, {.sequence = peer.sent - std::min(back, peer.sent - 1), .acknowledged = peer.received, .bytes = bytes});
    case 1: {  // overlaps
      const std::uint32_t overlap = std::min(below(1000), peer.sent - 1);
      note("overlaps by", overlap);
      send(peer, {.sequence = peer.sent - overlap, .acknowledged = peer.received, .bytes = std::min(overlap + bytes, 1460U)});
      peer.sent += std::min(overlap + bytes, 1460U) - overlap;
      return;
    }
    case 2: {  // a gap, perhaps filled at once
      const std::uint32_t gap = 1 + below(3000);
      note("leaves a gap of", gap);
      for (std::uint32_t i = 0, at = peer.sent + gap; i < 1 + back % 5; ++i, at += bytes) {
        send(peer, {.sequence = at, .acknowledged = peer.received, .bytes = bytes});
      }
      return;
    }
    case 3:
    case 4: {  // sends again from the machine's last acknowledgement number on
      note("fills from", peer.taken);
      const std::uint32_t end = peer.sent + below(2) * below(6000);
      const std::uint32_t each = std::max(bytes, 300U);
      for (std::uint32_t at = peer.taken; at < end && at + 100'000 > end; at += each) {
        send(peer, {.sequence = at, .acknowledged = peer.received, .bytes = each});
        peer.sent = std::max(peer.sent, at + each);
      }
      return;
    }
    case 5: {
      note("duplicate acknowledgements");
      for (unsigned i = 0; i < 1 + back % 6; ++i) send(peer, {.sequence = peer.sent, .acknowledged = peer.received});
      return;
    }
    case 6: {
      const std::uint32_t part = below(peer.received) / (1 + back % 3);
      note("acknowledges up to", peer.received - std::min(part, 100'000U));
      return send(peer, {.sequence = peer.sent, .acknowledged = peer.received - std::min(part, 100'000U), .bytes = back % 2 * bytes});
    }
    case 7:
      peer.window = back % 3 == 0 ? 0 : below(2) == 0 ? below(3000) : below(0x10000);
      note("window", peer.window);
      return send(peer, {.sequence = peer.sent, .acknowledged = peer.received});
    case 8:
      note("opens its window, time passes");
      peer.window = 0xFFFF;
      send(peer, {.sequence = peer.sent, .acknowledged = peer.received});
      flush(true);
      settle();
      return advance(std::chrono::milliseconds(50 * below(20)));
    case 9:
      note("probes");
      return send(peer, {.sequence = peer.sent - 1, .acknowledged = peer.received, .bytes = back % 2});
    case 10:
      note("sends old or future numbers");
      return send(peer, {.sequence = peer.sent + (back % 3 == 0 ? 0 : below(600'000) - 300'000),
                         .acknowledged = peer.received + (back % 2 == 0 ? 0 : below(600'000) - 300'000),
                         .bytes = back % 2 * bytes});
    case 11:
      peer.lose = 1 + back % 6;
      note("loses the next", peer.lose, "frames");
      return;
    case 12:
      note("nothing for seconds");
      return advance(std::chrono::milliseconds(50 * (20 + below(60))));
    case 13: {
      link_ = !link_;
      note("link", link_ ? "up" : "down");
      card_.set_link(link_);
      settle();
      if (!link_) return;
      for (unsigned i = 0; i < peers_max; ++i) introduce(i);
      return;
    }
    case 14:
      note("has another MAC address");
      return introduce(number);
    default: {
      note("options and flags");
      send(peer, {.sequence = peer.sent,
                  .acknowledged = peer.received,
                  .flags = ack_flag | (below(0x100) & 0xE8U),
                  .bytes = bytes,
                  .options = Bytes(back % 4, std::byte{1})});
      peer.sent += bytes;
    }
  }
}

void ScriptedMachine::application_step(unsigned, Peer& peer) {
  const unsigned what = below(10);
  const std::size_t bytes = chance(600) ? 1 + below(1460) : chance(800) ? below(20'000) : below(100'000);
  const bool by_reference = below(2) == 0;
  const std::size_t piece = below(3) == 0 ? 1 + below(2000) : 16384;
  const Habit habit = any_habit();
  note("application", what, bytes, by_reference ? "by reference" : "by copy", "pieces of", piece);
  machine_.on(0, [&] {
    if (peer.handler == nullptr) return;
    Handler& handler = *peer.handler;
    handler.by_reference = by_reference;
    handler.piece_bytes = piece;
    if (what < 5) return handler.send(bytes);
    if (what < 7) return handler.release(handler.kept_bytes());
    if (what == 7) return handler.release(bytes);
    if (what == 8) {
      handler.habit = habit;
      handler.answer_bytes = bytes % 3000;
      return;
    }
    for (int i = 0; i < 3; ++i) handler.send(bytes % 100);
  });
}

void ScriptedMachine::ending_step(unsigned, Peer& peer) {
  const unsigned what = below(8);
  note("ends", what);
  switch (what) {
    case 0:
    case 1:
      peer.fin_sent = true;
      return send(peer, {.sequence = peer.sent++, .acknowledged = peer.received, .flags = ack_flag | fin_flag});
    case 2: {
      const std::uint32_t bytes = below(1460);
      send(peer, {.sequence = peer.sent, .acknowledged = peer.received, .flags = ack_flag | fin_flag, .bytes = bytes});
      peer.sent += bytes + 1;
      peer.fin_sent = true;
      return;
    }
    case 3:
      peer.open = false;
      return send(peer, {.sequence = peer.taken, .acknowledged = peer.received, .flags = ack_flag | rst_flag});
    default:
      machine_.on(0, [&] {
        if (peer.handler == nullptr) return;
        if (what == 4) return peer.handler->connection().end_sending();
        if (what == 5) return peer.handler->connection().close();
        if (what == 6) return peer.handler->connection().abort();
        peer.handler->habit = Habit::close;
      });
  }
}

// --- The wire ----------------------------------------------------------------------------------------------------------------------------
Bytes ScriptedMachine::frame_of(const Peer& peer, const Sent& segment) const {
  const auto number = static_cast<unsigned>(&peer - peers_.data());
  Bytes payload(segment.bytes);
  for (std::size_t i = 0; i < payload.size(); ++i) payload[i] = pattern(segment.sequence + i, 40 + number);
  Bytes options;
  if (peer.timestamps && (segment.flags & syn_flag) == 0) {
    append(options, 0x0101'080A, 4);
    append(options, peers_clock_, 4);
    append(options, peer.machine_clock, 4);
  }
  append(options, segment.options);
  const std::uint32_t window = (segment.flags & syn_flag) != 0 ? peer.window : std::min(peer.window, 0xFFFFU);
  return net::testing::frame_of({.from = {.address = address_of(number), .port = peer.port},
                                 .to = {.address = machine_address, .port = service_port},
                                 .sequence = peer.first + segment.sequence,
                                 .acknowledged = peer.machine_first + segment.acknowledged,
                                 .flags = segment.flags,
                                 .window = static_cast<std::uint16_t>(window),
                                 .options = std::move(options),
                                 .payload = std::move(payload)},
                                card_.mac());
}

/// Some frames have an unusual type of service, time to live or don't-fragment bit, bytes behind the packet, or a bad checksum.
void ScriptedMachine::send(const Peer& peer, const Sent& segment) {
  Bytes frame = frame_of(peer, segment);
  if (mangle_) {
    frame[15] = static_cast<std::byte>(below(2) * below(256));
    frame[20] = static_cast<std::byte>(below(2) << 6);
    frame[22] = static_cast<std::byte>(1 + below(255));
    fill_checksums(frame);
    if (below(8) == 0) frame[24 + below(static_cast<std::uint32_t>(frame.size()) - 24)] ^= std::byte{1};
  }
  if (frame.size() < 60 || mangle_) frame.resize(std::max<std::size_t>(60, frame.size() + below(2) * below(20)), std::byte{0xAA});
  batch_.push_back(std::move(frame));
}

void ScriptedMachine::data(Peer& peer, std::size_t bytes, unsigned flags) {
  if (peer.fin_sent || peer.sent + bytes > peer.edge) return;
  send(peer, {.sequence = peer.sent, .acknowledged = peer.received, .flags = flags, .bytes = bytes});
  peer.sent += static_cast<std::uint32_t>(bytes);
}

void ScriptedMachine::flush(bool together) {
  std::vector<std::vector<Bytes>> arrivals;
  if (together) {
    arrivals.push_back(std::exchange(batch_, {}));
  } else {
    for (Bytes& frame : std::exchange(batch_, {})) arrivals.push_back({std::move(frame)});
  }
  for (std::vector<Bytes>& frames : arrivals) {
    const std::uint64_t all = card_.frames_arrived() + frames.size();
    card_.arrive_together(std::move(frames), 0);
    while (card_.frames_arrived() < all) wait();
    wait();  // the card reads its ring before the next frame arrives, otherwise the order of the two depended on the host
  }
}

/// Waits for some events of the core.
void ScriptedMachine::wait() {
  for (unsigned i = 0; i < 4; ++i) machine_.on(0, [] {});
}

void ScriptedMachine::settle() {
  for (bool quiet = false; !quiet;) {
    wait();
    std::vector<Bytes> frames;
    {
      const std::lock_guard lock(lock_);
      frames = std::exchange(frames_, {});
    }
    quiet = frames.empty();
    for (const Bytes& frame : frames) process(frame);
  }
}

void ScriptedMachine::process(const Bytes& frame) {
  if (is_arp(frame, 1)) {
    const std::uint32_t asked = quad(frame, 38) - address_of(0).value;
    note("(ARP request)");
    if (asked < peers_max) card_.arrive(arp_answer(address_of(asked), machine_address, card_.mac(), 2, peers_[asked].mac), 0);
    return;
  }
  RawSegment segment = segment_in(frame);
  if (segment.flags == 0) return note("(another frame)");
  const std::uint32_t number = segment.to.address.v4().value - address_of(0).value;
  if (number >= peers_max || segment.to.port != peers_[number].port) return note("(another frame)");
  Peer& peer = peers_[number];
  if ((segment.flags & syn_flag) != 0 && !peer.answered) {
    peer.answered = true;
    peer.machine_first = segment.sequence;
    peer.received = 1;
  }
  take_timestamp(peer, segment.options);
  const std::uint32_t sequence = segment.sequence - peer.machine_first, acknowledged = segment.acknowledged - peer.first;
  Bytes others(frame.begin(), frame.begin() + 18);
  others.insert(others.end(), frame.begin() + 20, frame.begin() + 24);
  others.insert(others.end(), frame.begin() + 26, frame.begin() + 38);
  others.insert(others.end(), frame.begin() + 52, frame.begin() + 54);
  now().frames.push_back({.peer = number,
                          .sequence = sequence,
                          .acknowledged = acknowledged,
                          .flags = segment.flags,
                          .window = segment.window,
                          .identification = word(frame, 18),
                          .options = segment.options,
                          .payload = segment.payload,
                          .others = std::move(others)});
  if (peer.lose > 0) {
    --peer.lose;
    return;
  }
  if ((segment.flags & rst_flag) != 0) peer.open = false;
  peer.taken = acknowledged;
  const auto bytes = static_cast<std::uint32_t>(segment.payload.size());
  if (sequence <= peer.received && sequence + bytes > peer.received) peer.received = sequence + bytes;
  if ((segment.flags & fin_flag) != 0 && sequence + bytes == peer.received && !peer.fin_received) {
    peer.fin_received = true;
    ++peer.received;
  }
  if (peer.fin_received && peer.fin_sent && peer.taken == peer.sent) peer.open = chance(500);
}

void ScriptedMachine::take_timestamp(Peer& peer, Bytes& options) {
  for (std::size_t at = 0; at + 10 <= options.size();) {
    const unsigned kind = octet(options, at);
    if (kind == 0) return;
    if (kind == 8) {
      peer.machine_clock = quad(options, at + 2);
      if (peer.machine_clock_first == 0) peer.machine_clock_first = peer.machine_clock;
      const std::uint32_t relative = peer.machine_clock - peer.machine_clock_first;
      for (unsigned i = 0; i < 4; ++i) options[at + 2 + i] = static_cast<std::byte>(relative >> (24 - 8 * i));
      return;
    }
    at += kind == 1 ? 1 : std::max(octet(options, at + 1), 2U);
  }
}

void ScriptedMachine::advance(std::chrono::milliseconds by) {
  constexpr std::chrono::milliseconds tick(50);
  for (auto passed = std::chrono::milliseconds(0); passed < by; passed += tick) {
    clock_.advance(tick);
    peers_clock_ += static_cast<std::uint32_t>(tick.count());
    settle();
  }
}

/// Announces an address by ARP.
void ScriptedMachine::introduce(unsigned number) {
  peers_[number].mac = neighbour_mac + 1 + below(200);
  card_.arrive(arp_answer(address_of(number), machine_address, card_.mac(), 1, peers_[number].mac), 0);
  settle();
}

}  // namespace neap::net::testing
