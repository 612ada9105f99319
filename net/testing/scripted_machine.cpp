// SPDX-License-Identifier: BSL-1.0
#include "net/testing/scripted_machine.hpp"

#include <algorithm>
#include <cstring>
#include <new>

#include "kernel/policy.hpp"
#include "lwip/priv/tcp_priv.h"

namespace neap::net::testing {

using namespace std::chrono_literals;

namespace {

constexpr std::size_t answered_bytes = 64;  ///< with the habit `answer`, one answer for so many bytes
constexpr std::size_t held_bytes_max = 200'000;

Ipv4Address address_of(unsigned peer) { return {0x0A000010 + peer}; }

std::int64_t relative(std::uint32_t number, std::uint32_t first) { return static_cast<std::int32_t>(number - first); }

}  // namespace

// --- The application ---------------------------------------------------------------------------------------------------------------------
class ScriptedMachine::Handler final : public ConnectionHandler {
 public:
  Handler(ScriptedMachine& script, unsigned peer) : script_(script), peer_(peer), number_(script.connections_++) {
    script_.peers_[peer_].handler = this;
    record(HandlerCall::Kind::accepted);
  }
  ~Handler() override {
    if (script_.peers_[peer_].handler == this) script_.peers_[peer_].handler = nullptr;
  }

  void received(Buffer data) override {
    Bytes bytes;
    for (const Buffer::Piece* piece = data.first(); piece != nullptr; piece = piece->next) {
      bytes.insert(bytes.end(), piece->data, piece->data + piece->bytes);
    }
    const std::size_t before = received_bytes_;
    received_bytes_ += bytes.size();
    record(HandlerCall::Kind::received, bytes);
    if (throws) throw std::bad_alloc();
    switch (habit) {
      case Habit::release:
        return;
      case Habit::hold:
        return hold(std::move(data));
      case Habit::hold_half: {
        hold(std::move(data));
        return kept_.drop_front(kept_.bytes() / 2);
      }
      case Habit::echo:
        if (!script_.options_.echo_by_reference) {
          if (bytes.size() <= connection().send_space_bytes()) static_cast<void>(connection().send(Buffer::copy(bytes)));
          return;
        }
        hold(std::move(data));
        if (kept_.bytes() <= connection().send_space_bytes()) static_cast<void>(connection().send(std::exchange(kept_, Buffer{})));
        return;
      case Habit::answer:
        for (std::size_t i = before / answered_bytes; i < received_bytes_ / answered_bytes; ++i) send(answer_bytes);
        return;
      case Habit::close:
        return connection().close();
    }
  }
  void writable() override { record(HandlerCall::Kind::writable); }
  void peer_closed() override {
    record(HandlerCall::Kind::peer_closed);
    if (answers_close) connection().close();
  }
  void closed() override { record(HandlerCall::Kind::closed); }

  void send(std::size_t bytes) {
    Buffer data;
    for (std::size_t left = std::min(bytes, connection().send_space_bytes()); left > 0;) {
      const std::size_t now = std::min(left, piece_bytes);
      auto* const block = new Bytes(now);
      for (std::size_t i = 0; i < now; ++i) (*block)[i] = pattern(sent_bytes_ + i, 80 + peer_);
      if (by_reference) {
        // The release overwrites the bytes, so a later read of them shows as wrong bytes or a sanitizer's report.
        data.append(Buffer::reference(
            *block,
            [](void* owner) noexcept {
              auto* const own = static_cast<Bytes*>(owner);
              std::memset(own->data(), 0xEE, own->size());
              delete own;
            },
            block));
      } else {
        data.append(Buffer::copy(*block));
        delete block;
      }
      sent_bytes_ += now;
      left -= now;
    }
    if (!data.empty()) static_cast<void>(connection().send(std::move(data)));
  }
  void release(std::size_t bytes) { kept_.drop_front(std::min(kept_.bytes(), bytes)); }
  [[nodiscard]] std::size_t kept_bytes() const { return kept_.bytes(); }
  [[nodiscard]] ConnectionState& state() { return ConnectionState::of(connection()); }

  Habit habit = Habit::release;
  std::size_t answer_bytes = 100, piece_bytes = 16384;
  bool by_reference = false, answers_close = true, throws = false;

 private:
  void hold(Buffer data) {
    kept_.append(std::move(data));
    if (kept_.bytes() > held_bytes_max) kept_.clear();
  }
  void record(HandlerCall::Kind kind, Bytes bytes = {}) {
    const std::lock_guard lock(script_.lock_);
    script_.calls_.push_back({.kind = kind, .connection = number_, .bytes = std::move(bytes)});
  }

  ScriptedMachine& script_;
  const unsigned peer_, number_;
  std::size_t received_bytes_ = 0, sent_bytes_ = 0;
  Buffer kept_;
};

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
      return std::make_unique<Handler>(*this, connection.remote().address.value - address_of(0).value);
    }));
  });
  for (unsigned number = 0; number < peers_max; ++number) introduce(number);
}

ScriptedMachine::~ScriptedMachine() {
  machine_.on(0, [this] {
    for (const Peer& peer : peers_) {
      if (peer.handler != nullptr) peer.handler->release(held_bytes_max + TCP_WND);
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
  const std::uint32_t window = (segment.flags & syn_flag) != 0 ? peer.window : std::min(peer.window, 0xFFFFU);
  return net::testing::frame_of({.from = {.address = address_of(number), .port = peer.port},
                                 .to = {.address = machine_address, .port = service_port},
                                 .sequence = peer.first + segment.sequence,
                                 .acknowledged = peer.machine_first + segment.acknowledged,
                                 .flags = segment.flags,
                                 .window = static_cast<std::uint16_t>(window),
                                 .options = segment.options,
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
  const RawSegment segment = segment_in(frame);
  const std::uint32_t number = segment.to.address.value - address_of(0).value;
  if (segment.flags == 0 || number >= peers_max || segment.to.port != peers_[number].port) return note("(another frame)");
  Peer& peer = peers_[number];
  if ((segment.flags & syn_flag) != 0 && !peer.answered) {
    peer.answered = true;
    peer.machine_first = segment.sequence;
    peer.received = 1;
  }
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

void ScriptedMachine::advance(std::chrono::milliseconds by) {
  constexpr std::chrono::milliseconds tick(50);
  for (auto passed = std::chrono::milliseconds(0); passed < by; passed += tick) {
    clock_.advance(tick);
    settle();
  }
}

/// Announces an address by ARP.
void ScriptedMachine::introduce(unsigned number) {
  peers_[number].mac = neighbour_mac + 1 + below(200);
  card_.arrive(arp_answer(address_of(number), machine_address, card_.mac(), 1, peers_[number].mac), 0);
  settle();
}

// --- The record --------------------------------------------------------------------------------------------------------------------------
namespace {

std::int64_t segments_in(const tcp_seg* list) {
  std::int64_t count = 0;
  for (; list != nullptr; list = list->next) ++count;
  return count;
}

std::int64_t bytes_in(const tcp_seg* list) {
  std::int64_t bytes = 0;
  for (; list != nullptr; list = list->next) bytes += list->len;
  return bytes;
}

}  // namespace

void ScriptedMachine::record_fields() {
  machine_.on(0, [this] {
    std::vector<Field>& fields = now().fields;
    for (unsigned number = 0; number < peers_max; ++number) {
      Peer& peer = peers_[number];
      if (peer.handler == nullptr) continue;
      const ConnectionState& state = peer.handler->state();
      const auto add = [&](const char* name, std::int64_t value) { fields.push_back({.name = name, .peer = number, .value = value}); };
      add("unacknowledged_bytes", static_cast<std::int64_t>(state.unacknowledged_bytes()));
      add("held_bytes", static_cast<std::int64_t>(state.held_bytes()));
      add("charged_bytes", static_cast<std::int64_t>(state.charged_bytes()));
      const tcp_pcb* const pcb = state.pcb();
      if (pcb == nullptr) continue;
      peer.edge = pcb->rcv_nxt + pcb->rcv_wnd - peer.first;
      peer.taken = pcb->rcv_nxt - peer.first;
      add("state", pcb->state);
      add("link", link_ ? 1 : 0);
      add("flags", pcb->flags);
      add("polltmr", pcb->polltmr);
      add("tmr", static_cast<std::int64_t>(tcp_ticks - pcb->tmr));
      add("rcv_nxt", relative(pcb->rcv_nxt, peer.first));
      add("rcv_wnd", pcb->rcv_wnd);
      add("rcv_ann_wnd", pcb->rcv_ann_wnd);
      add("rcv_ann_right_edge", relative(pcb->rcv_ann_right_edge, peer.first));
      add("rtime", pcb->rtime);
      add("mss", pcb->mss);
      add("rttest", pcb->rttest == 0 ? -1 : static_cast<std::int64_t>(tcp_ticks - pcb->rttest));
      add("rtseq", pcb->rttest == 0 ? 0 : relative(pcb->rtseq, peer.machine_first));
      add("sa", pcb->sa);
      add("sv", pcb->sv);
      add("rto", pcb->rto);
      add("nrtx", pcb->nrtx);
      add("dupacks", pcb->dupacks);
      add("lastack", relative(pcb->lastack, peer.machine_first));
      add("cwnd", pcb->cwnd);
      add("ssthresh", pcb->ssthresh);
      add("rto_end", (pcb->flags & TF_RTO) == 0 ? 0 : relative(pcb->rto_end, peer.machine_first));
      add("snd_nxt", relative(pcb->snd_nxt, peer.machine_first));
      add("snd_lbb", relative(pcb->snd_lbb, peer.machine_first));
      add("snd_wl1", relative(pcb->snd_wl1, peer.first));
      add("snd_wl2", relative(pcb->snd_wl2, peer.machine_first));
      add("snd_wnd", pcb->snd_wnd);
      add("snd_wnd_max", pcb->snd_wnd_max);
      add("snd_buf", pcb->snd_buf);
      add("snd_queuelen", pcb->snd_queuelen);
      add("unsent_oversize", pcb->unsent_oversize);
      add("bytes_acked", pcb->bytes_acked);
      add("unsent_segments", segments_in(pcb->unsent));
      add("unsent_bytes", bytes_in(pcb->unsent));
      add("unacked_segments", segments_in(pcb->unacked));
      add("unacked_bytes", bytes_in(pcb->unacked));
      add("ooseq_segments", segments_in(pcb->ooseq));
      add("ooseq_bytes", bytes_in(pcb->ooseq));
      add("persist_cnt", pcb->persist_cnt);
      add("persist_backoff", pcb->persist_backoff);
      add("persist_probe", pcb->persist_probe);
      add("keep_cnt_sent", pcb->keep_cnt_sent);
    }
    const auto add = [&](const char* name, std::uint64_t value) {
      fields.push_back({.name = name, .peer = peers_max, .value = static_cast<std::int64_t>(value)});
    };
    const Counters counters = net::counters(0);
    add("frames_received", counters.frames_received);
    add("frames_sent", counters.frames_sent);
    add("bytes_sent", counters.bytes_sent);
    add("segments_received", counters.segments_received);
    add("segments_sent", counters.segments_sent);
    add("retransmissions", counters.retransmissions);
    add("transmit_full", counters.transmit_full);
    add("transmit_failed", counters.transmit_failed);
    add("transmit_copied", counters.transmit_copied);
    add("receive_copied", counters.receive_copied);
    add("segments_refused", counters.segments_refused);
    add("challenge_acks", counters.challenge_acks);
    add("dropped_checksum", counters.dropped_checksum);
    add("dropped_protocol", counters.dropped_protocol);
    add("dropped_malformed", counters.dropped_malformed);
    add("dropped_memory", counters.dropped_memory);
    add("payload_refused", counters.payload_refused);
    add("discarded_bytes", counters.discarded_bytes);
    add("out_of_order_dropped", counters.out_of_order_dropped);
    add("connections_open", counters.connections_open);
    add("connections_reset", counters.connections_reset);
    add("connections_evicted", counters.connections_evicted);
    add("handler_out_of_memory", counters.handler_out_of_memory);
    add("held_bytes", counters.held_bytes);
    const Waits waits = net::waits();
    add("tcp_ms", waits.tcp_ms);
    add("connections_ms", waits.connections_ms);
  });
}

}  // namespace neap::net::testing
