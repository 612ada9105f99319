// SPDX-License-Identifier: BSL-1.0
// A fuzzer of sessions: several connections of one core. One input determines how their clients send, read, stall and disconnect.
//
// No client may block the core, or make it hold memory that no account counts. Every few steps the allocated memory is compared with the
// store's accounts. At the end of each case all memory must have been freed. A step that does not end is reported and ends the process.
//
// With clang the fuzzer is a libFuzzer target (-DNEAP_LIBFUZZER=ON). With any other compiler its `main` generates inputs:
// `fuzz_session [SECONDS] [SEED]`.
#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "apps/memcached/fuzz_peer.hpp"
#include "tests/host/allocated_bytes.hpp"

namespace neap::memcached {
namespace {

// An input is a sequence of steps: a byte for the kind of step and the connection, and two bytes for a number. In steps of the kinds `send`
// and `send_bytewise`, that number of bytes follows.
enum class Step : std::uint8_t { send, send_bytewise, window, read, read_all, end, vanish, wait };
constexpr unsigned steps = 8, connections_max = 8;
constexpr std::size_t memory_bytes = 4 << 20;
constexpr unsigned steps_per_check = 16;  // the sanitizer takes long to sum up the allocated memory
// Memory of each connection that no account includes: its objects, and a `Carry` (the buffer for a split command).
constexpr std::size_t connection_bytes = 8 << 10;
// Memory of each core that no account includes: spare chunks and headers, and replies below `ReplyAccount::unreported_bytes_max`.
constexpr std::size_t core_bytes = 1 << 20;

using fuzz::CardBuffer;
using fuzz::fail;
using fuzz::Peer;
using fuzz::statistic;
using host::allocated_bytes;

class Case {
 public:
  Case() : server_(options()) {
    before_bytes_ = allocated_bytes();
    for (auto& peer : peers_) peer = std::make_unique<Peer>(server_);
  }
  void run(std::string_view input) {
    while (input.size() >= 3) {
      const auto head = static_cast<std::uint8_t>(input[0]);
      const std::size_t number = static_cast<std::uint8_t>(input[1]) | std::size_t{static_cast<std::uint8_t>(input[2])} << 8;
      input.remove_prefix(3);
      const auto step = static_cast<Step>(head % steps);
      std::string_view text;
      if (step == Step::send || step == Step::send_bytewise) {
        text = input.substr(0, number);
        input.remove_prefix(text.size());
      }
      play(step, peers_[head / steps % connections_max], number, text);
      for (auto& peer : peers_) peer->settle();  // one connection's event may reset another connection
      if (++played_ % steps_per_check == 0) check_memory();
    }
    check_memory();
    check_service();
    finish();
  }

 private:
  static StoreOptions options() {
    test::clock_ns = 0;
    StoreOptions options = test::small_store();
    options.memory_bytes = memory_bytes;
    options.value_bytes_max = 1 << 17;
    return options;
  }

  void play(Step step, std::unique_ptr<Peer>& peer, std::size_t number, std::string_view text) {
    switch (step) {
      case Step::send:
        return peer->send(text);
      case Step::send_bytewise:
        for (const char letter : text) peer->send({&letter, 1});
        return;
      case Step::window:
        peer->connection.space = std::min(number * 64, net::Connection::send_queue_bytes_max);
        return;
      case Step::read:
        peer->read(number);
        return;
      case Step::read_all:
        while (peer->read(~std::size_t{0}) > 0) {
        }
        return;
      case Step::end:
        return peer->end();
      case Step::vanish:
        peer = std::make_unique<Peer>(server_);
        return;
      case Step::wait:
        test::advance_s(number);
        return;
    }
  }

  /// Checks that the accounts include the memory of every reply, item and header.
  void check_memory() {
    const std::size_t table_bytes = std::size_t{2} * server_.store.table().bucket_count() * sizeof(void*);
    const std::size_t allowed = server_.store.used_bytes() + server_.store.held_bytes() + server_.store.retired_bytes() + table_bytes +
                                connections_max * connection_bytes + core_bytes + CardBuffer::out_bytes;
    const std::size_t bytes = allocated_bytes();
    if (bytes > before_bytes_ + allowed) fail("more memory is allocated than the accounts say", bytes - before_bytes_, allowed);
  }

  /// Checks that a client that reads its replies is served, whatever the other clients do.
  void check_service() {
    Peer peer(server_);
    peer.send("set z 0 0 1\r\nx\r\nget z\r\n");
    const std::string answer = peer.connection.acknowledge();
    if (answer != "STORED\r\nVALUE z 0 1\r\nx\r\nEND\r\n") fail(("a bystander was answered: " + answer).c_str(), answer.size(), 33);
  }

  /// Reads all replies, so that every request is answered. After that no bytes may be in flight or held.
  void finish() {
    for (auto& peer : peers_) {
      peer->connection.space = net::Connection::send_queue_bytes_max;
      while (peer->read(~std::size_t{0}) > 0) {
      }
      if (!peer->gone && !peer->connection.closed && CardBuffer::out_bytes > 0) peer->session->writable();
    }
    while (std::any_of(peers_.begin(), peers_.end(), [](auto& peer) { return peer->read(~std::size_t{0}) > 0; })) {
    }
    for (const char* counter : {"no_progress", "protocol_overrun"}) {
      if (const std::uint64_t count = statistic(server_, counter); count > 0) fail(counter, count, 0);
    }
    for (auto& peer : peers_) peer.reset();
    if (server_.store.held_bytes() != 0) fail("bytes held when all is read", server_.store.held_bytes(), 0);
    if (server_.store.used_bytes() != server_.store.counters().bytes) {
      fail("bytes of items", server_.store.used_bytes(), server_.store.counters().bytes);
    }
    if (CardBuffer::out_bytes != 0) fail("received bytes that are still held", CardBuffer::out_bytes, 0);
  }

  test::Server server_;
  std::size_t before_bytes_ = 0;
  unsigned played_ = 0;
  std::array<std::unique_ptr<Peer>, connections_max> peers_;
};

}  // namespace
}  // namespace neap::memcached

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace neap::memcached;
  neap::net::Buffer::trim_free_list();
  const std::size_t before = allocated_bytes();
  std::make_unique<Case>()->run({reinterpret_cast<const char*>(data), size});
  neap::net::Buffer::trim_free_list();
  const std::size_t after = allocated_bytes();
  if (after > before) fail("allocated after the case", after, before);
  return 0;
}

#ifndef NEAP_LIBFUZZER

#include "tests/host/fuzzing.hpp"

namespace {

using neap::memcached::connections_max;
using neap::memcached::Step;

class InputGenerator : public neap::fuzzing::InputGenerator {
 public:
  using neap::fuzzing::InputGenerator::InputGenerator;

  std::string stream() {
    static constexpr unsigned piece_bytes_max[] = {3, 8, 60, 3000, 65535};
    piece_max_ = piece_bytes_max[below(5)];
    stall_ = below(3);
    std::string script = step(Step::send, 0, setup());
    std::array<std::string, connections_max> left;
    const unsigned connections = 1 + below(connections_max);
    for (unsigned at = 0; at < connections; ++at) left[at] = requests();
    for (unsigned turns = 0, at = 0; turns < 4000 && script.size() < (1 << 20); ++turns) {
      at = below(8) == 0 ? below(connections) : (at + 1) % connections;
      if (left[at].empty() && below(40) == 0) left[at] = requests();
      script += below(30) == 0 ? event(at) : piece(at, left[at]);
    }
    return damaged(std::move(script));
  }

 private:
  std::string step(Step kind, unsigned connection, std::string_view text) {
    return step(kind, connection, static_cast<unsigned>(text.size())).append(text);
  }
  std::string step(Step kind, unsigned connection, unsigned number) {
    const unsigned head = static_cast<unsigned>(kind) + connection * neap::memcached::steps;
    return {static_cast<char>(head), static_cast<char>(number), static_cast<char>(number >> 8)};
  }
  /// Splits the first part off `left`, sometimes just before a byte with a special meaning for the parsers.
  std::string piece(unsigned connection, std::string& left) {
    if (left.empty()) return "";
    std::size_t bytes = std::min<std::size_t>(left.size(), 1 + below(piece_max_));
    if (below(4) == 0) bytes = std::min<std::size_t>(left.size(), 1 + left.substr(1).find_first_of(std::string_view(" \0\r\n\x80", 5)));
    const std::string text = left.substr(0, bytes);
    left.erase(0, bytes);
    return step(bytes < 100 && below(10) == 0 ? Step::send_bytewise : Step::send, connection, text);
  }
  std::string event(unsigned connection) {
    const unsigned kind = below(stall_ == 0 ? 12 : 8);
    if (kind == 0) return step(Step::window, connection, below(3) == 0 ? 0 : below(20));
    if (kind == 1) return step(Step::window, connection, 65535);
    if (kind == 2) return step(Step::read, connection, below(3000));
    if (kind == 3) return stall_ == 2 ? "" : step(Step::read, connection, below(65536));
    if (kind == 4) return stall_ == 2 ? "" : step(Step::read_all, connection, 0U);
    if (kind == 5) return below(8) == 0 ? step(Step::end, connection, 0U) : "";
    if (kind == 6) return below(8) == 0 ? step(Step::vanish, connection, 0U) : "";
    if (kind == 7) return below(20) == 0 ? step(Step::wait, connection, below(100)) : "";
    return step(Step::read_all, connection, 0U);
  }

  std::string key() { return below(12) == 0 ? std::string(245 + below(10), 'k') : std::string(1, static_cast<char>('a' + below(8))); }
  std::string store(const std::string& key, std::size_t bytes) {
    return "set " + key + " 0 0 " + std::to_string(bytes) + "\r\n" + std::string(bytes, 'v') + "\r\n";
  }
  std::size_t value_bytes() {
    const unsigned kind = below(8);
    return kind == 0 ? below(100'000) : kind == 1 ? 1000 + below(60) : kind == 2 ? 200 + below(800) : below(20);
  }
  std::string setup() {
    std::string text;
    for (char letter = 'a'; letter < 'h' && text.size() < 40'000; ++letter) {
      text += store(std::string(1, letter), std::min<std::size_t>(value_bytes(), 5000));
    }
    return text;
  }
  std::string get() {
    static const char* const verbs[] = {"get", "get", "gets", "gat 0", "gats 0"};
    std::string line = verbs[below(5)];
    const unsigned keys = below(3) == 0 ? below(1000) : below(6);
    const std::string one = key();
    const bool same = below(2) == 0;
    for (unsigned at = 0; at < keys; ++at) line += " " + (same ? one : key());
    if (below(8) == 0) line += " " + std::string(1 + below(3), '\0') + (below(2) == 0 ? std::string(below(5000), 'z') : "");
    return line + "\r\n";
  }
  std::string binary() {
    static constexpr unsigned opcodes[] = {0x00, 0x09, 0x0c, 0x0d, 0x01, 0x10, 0x0a};
    const unsigned opcode = opcodes[below(7)];
    const std::string name = opcode == 0x10 || opcode == 0x0a ? "" : key();
    const std::string extras = opcode == 0x01 ? std::string(8, '\0') : "", value = opcode == 0x01 ? std::string(value_bytes(), 'b') : "";
    const std::size_t body = extras.size() + name.size() + value.size();
    std::string header = "\x80";
    header += static_cast<char>(opcode);
    header += static_cast<char>(name.size() >> 8);
    header += static_cast<char>(name.size());
    header += static_cast<char>(extras.size());
    header += std::string(3, '\0');
    for (int shift = 24; shift >= 0; shift -= 8) header += static_cast<char>(body >> shift);
    return header + std::string(12, '\0') + extras + name + value;
  }
  std::string text() {
    static const char* const others[] = {"version", "stats", "delete a", "incr b 1", "touch c 0", "flush_all", "verbosity 1", "nonsense"};
    const unsigned kind = below(11);
    if (kind >= 8) return meta();
    if (kind == 0) return store(key(), value_bytes());
    if (kind == 1) return std::string(others[below(8)]) + "\r\n";
    return kind == 2 && below(20) == 0 ? std::string(below(5000), 'y') + "\r\n" : get();
  }
  std::string meta() {
    static const char* const others[] = {" v q", " N30 v c", " R30 T60 k s t h l", " I q", " I E5", " x", " N0 J5 v", " E7 MD", " b k"};
    const unsigned kind = below(8);
    if (kind == 0) return "mn\r\n";
    if (kind < 4) return "mg " + key() + (below(2) == 0 ? " v k O1\r\n" : " v\r\n");
    if (kind == 4) {
      static const char* const modes[] = {"", " k O1", " MA", " MP N0", " E9", " q"};
      const std::size_t bytes = value_bytes();
      return "ms " + key() + " " + std::to_string(bytes) + modes[below(6)] + "\r\n" + std::string(bytes, 'm') + "\r\n";
    }
    static const char* const commands[] = {"mg ", "md ", "ma ", "me "};
    return commands[below(4)] + key() + others[below(9)] + "\r\n";
  }
  std::string requests() {
    const bool in_binary = below(4) == 0;
    std::string all;
    for (unsigned count = 1 + below(30); count-- > 0;) all += in_binary ? binary() : text();
    return all;
  }

  unsigned piece_max_ = 0;
  unsigned stall_ = 0;  ///< 0: clients read; 2: clients rarely read
};

}  // namespace

int main(int count, char** words) { return neap::fuzzing::run<InputGenerator>("fuzz_session", count, words); }

#endif
