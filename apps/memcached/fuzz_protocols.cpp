// SPDX-License-Identifier: BSL-1.0
// A fuzzer of all commands of each protocol: classic text, meta, binary, and datagrams of UDP.
//
// One input is the stream of one client, in pieces of any size. Another client may watch it. After each input the replies MUST be
// well-formed, all accounts zero, and all memory freed.
//
// With clang the fuzzer is a libFuzzer target (-DNEAP_LIBFUZZER=ON). With any other compiler its `main` generates inputs:
// `fuzz_protocols [SECONDS|BYTESb] [SEED] [PROTOCOL]`. It counts only bytes that an open connection received.
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "apps/memcached/fuzz_peer.hpp"
#include "apps/memcached/fuzz_replies.hpp"
#include "apps/memcached/fuzz_requests.hpp"
#include "apps/memcached/udp.hpp"
#include "kernel/timer.hpp"
#include "tests/host/allocated_bytes.hpp"
#include "tests/host/host_machine.hpp"

namespace neap::memcached {
namespace {

using fuzz::fail;

enum class Kind : std::uint8_t { text, meta, binary, udp };
constexpr std::array<const char*, 4> kind_names = {"text", "meta", "binary", "udp"};

struct Played {
  std::uint64_t bytes = 0, commands = 0, streams = 0;
  double seconds = 0;
};
std::array<Played, kind_names.size()> played;

constexpr std::size_t datagram_bytes_max = 1400, datagram_header_bytes = 8;

/// Keeps the datagrams that are sent, and the receiver of those that arrive.
struct PlayedNetwork final : net::Network {
  net::DatagramReceiver receiver;
  std::vector<std::string> sent;
  [[nodiscard]] net::Ipv4Address address() const noexcept override { return {}; }
  [[nodiscard]] net::Ipv4Address netmask() const noexcept override { return {}; }
  [[nodiscard]] unsigned cores() const noexcept override { return 1; }
  [[nodiscard]] NetDevice& device() const noexcept override { std::abort(); }
  task<Result<void>> listen(std::uint16_t, std::function<std::unique_ptr<net::ConnectionHandler>(net::Connection&)>) override {
    std::abort();
  }
  task<Result<void>> connect(net::Endpoint, net::Acceptor) override { std::abort(); }
  task<Result<void>> receive_datagrams(std::uint16_t, net::DatagramReceiver wanted) override {
    receiver = std::move(wanted);
    co_return Result<void>{};
  }
  [[nodiscard]] Result<void> send_datagram(std::uint16_t, net::Endpoint, std::span<const std::byte> bytes) override {
    sent.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return {};
  }
  task<Result<void>> join(net::Address) override { std::abort(); }
  task<Result<void>> leave(net::Address) override { std::abort(); }
};

[[noreturn]] void show_malformed(std::string_view reply, std::size_t at) {
  const std::size_t from = at < 200 ? 0 : at - 200;
  std::fprintf(stderr, "a malformed reply of %zu bytes at %zu: %s|%s\n", reply.size(), at,
               neap::fuzzing::printable(reply.substr(from, at - from)).c_str(), neap::fuzzing::printable(reply.substr(at, 300)).c_str());
  std::abort();
}

void check_replies(std::string_view reply, bool binary) {
  const std::size_t at = binary ? fuzz::malformed_binary(reply) : fuzz::malformed_text(reply);
  if (at != reply.size()) show_malformed(reply, at);
}

/// The core on which all inputs are played. Its clock stands still except in `Case::settle`.
struct World {
  host::ManualClock clock{1'000'000'000};
  host::HostMachine machine{1};
};
World& world() {
  static World one;
  return one;
}

/// One input. The functions that are called on the core are `begin`, `step`, `read` and `end`.
class Case {
 public:
  Case(Kind kind, std::uint32_t choice, std::string_view stream) : kind_(kind), choice_(choice), stream_(stream) {}

  void run() {
    host::HostMachine& machine = world().machine;
    machine.on(0, [this] { begin(); });
    if (kind_ == Kind::udp) {
      machine.run(0, [this]() -> task<void> { (void)co_await serve_datagrams(network_, server_->service, 11211); });
      machine.on(0, [this] { play_datagrams(); });
    } else {
      while (machine.value_on(0, [this] { return step(); })) settle();
      settle();
      machine.on(0, [this] {
        if (!client_.peer->gone) client_.peer->end();
      });
      settle();
    }
    machine.on(0, [this] { end(); });
  }

 private:
  static StoreOptions options() {
    test::clock_ns = 0;
    StoreOptions options = test::small_store();
    options.memory_bytes = 4 << 20;
    options.value_bytes_max = 1 << 17;
    return options;
  }
  static Settings settings(Kind kind, std::uint32_t choice) {
    Settings settings = test::test_settings();
    settings.binding = kind == Kind::binary ? Binding::binary : Binding::automatic;
    settings.requests_per_event = (choice >> 8 & 3) == 0 ? 3 : 1000;
    settings.detail_enabled = (choice >> 10 & 7) == 0;
    settings.shutdown_enabled = (choice >> 13 & 31) == 0;
    settings.watcher_buffer_bytes = 8 << 10;
    return settings;
  }

  void begin() {
    net::Buffer::trim_free_list();
    before_bytes_ = host::allocated_bytes();
    server_.emplace(options(), 1, settings(kind_, choice_));
    if (kind_ == Kind::udp) return;
    if ((choice_ >> 18 & 7) == 0) {
      watcher_.peer = std::make_unique<fuzz::Peer>(*server_);
      watcher_.peer->send("watch fetchers mutations evictions connevents deletions\r\n");
    }
    client_.peer = std::make_unique<fuzz::Peer>(*server_);
  }

  /// Sends pieces until a timer is pending. Returns false at the end of the stream or of the connection.
  bool step() {
    const bool is_slow = (choice_ >> 21 & 3) == 0;  // reads only now and then, so that requests wait
    fuzz::Peer& peer = *client_.peer;
    do {
      if (stream_.empty() || peer.gone || peer.connection.closed) return false;
      const std::string_view piece = pieces_.take(stream_);
      played[static_cast<std::size_t>(kind_)].bytes += piece.size();
      peer.send(piece);
      if (++sent_ % 64 == 0) test::advance_s(1);
      if (!is_slow || sent_ % 8 == 0) read();
    } while (is_slow || pending_timers().count == 0);
    return true;
  }

  void read() {
    for (Side* const side : {&client_, &watcher_}) {
      if (side->peer == nullptr) continue;
      fuzz::Peer& peer = *side->peer;
      for (;;) {
        const std::string more = peer.connection.acknowledge();
        if (more.empty()) break;
        side->reply += more;
        if (!peer.gone && peer.connection.writable_due()) peer.session->writable();
        peer.settle();
      }
      peer.settle();  // a timer's event may have ended the connection
    }
  }

  /// Runs all timers: those of long answers, and of input that waits for other clients' events.
  void settle() {
    const auto pending = [this] {
      read();
      return pending_timers().count;
    };
    for (unsigned rounds = 0; world().machine.value_on(0, pending) != 0; ++rounds) {
      if (rounds == 100'000) fail("timers that are pending after so many rounds", rounds, 0);
      world().clock.advance(2 * timer_tick);
    }
  }

  void play_datagrams() {
    // A datagram is its length in two bytes, and its bytes.
    while (stream_.size() >= 2) {
      const std::size_t bytes = static_cast<unsigned char>(stream_[0]) | std::size_t{static_cast<unsigned char>(stream_[1])} << 8;
      stream_.remove_prefix(2);
      const std::string_view text = stream_.substr(0, bytes);
      stream_.remove_prefix(text.size());
      played[static_cast<std::size_t>(kind_)].bytes += text.size();
      network_.sent.clear();
      net::Buffer data;
      neap::fuzzing::Pieces pieces((choice_ >> 23 & 3) == 0 ? choice_ | 1 : 0);
      for (std::string_view rest = text; !rest.empty();) data.append(fuzz::CardBuffer::make(pieces.take(rest)));
      network_.receiver({.from = {.address = net::Ipv4Address{0xC0000201}, .port = 9},
                         .to = {.address = net::Ipv4Address{0xC0000202}, .port = 11211},
                         .data = std::move(data)});
      check_datagrams(text);
      if (++sent_ % 64 == 0) test::advance_s(1);
    }
    network_.receiver = nullptr;
    std::vector<std::string>().swap(network_.sent);
  }

  void check_datagrams(std::string_view request) const {
    const std::vector<std::string>& sent = network_.sent;
    if (request.size() <= datagram_header_bytes && !sent.empty()) fail("replies to a datagram without a request", sent.size(), 0);
    std::string reply;
    for (std::size_t at = 0; at < sent.size(); ++at) {
      const std::string& one = sent[at];
      if (one.size() <= datagram_header_bytes || one.size() > datagram_bytes_max)
        fail("bytes of a datagram", one.size(), datagram_bytes_max);
      const auto number = [&one](std::size_t from) {
        return std::size_t{static_cast<unsigned char>(one[from])} << 8 | static_cast<unsigned char>(one[from + 1]);
      };
      if (std::string_view(one).substr(0, 2) != request.substr(0, 2)) fail("the number of another request", number(0), 0);
      if (number(2) != at || number(4) != sent.size() || number(6) != 0) fail("a datagram's number in its message", number(2), at);
      reply += one.substr(datagram_header_bytes);
    }
    check_replies(reply, reply.starts_with('\x81'));
  }

  void end() {
    const bool aborted = client_.peer != nullptr && client_.peer->connection.aborted;
    client_.peer.reset();
    watcher_.peer.reset();
    if (!aborted) check_replies(client_.reply, kind_ == Kind::binary);
    check_replies(watcher_.reply, false);
    check_accounts();
    server_.reset();
    for (Side* const side : {&client_, &watcher_}) std::string().swap(side->reply);  // an assignment would keep the memory
    net::Buffer::trim_free_list();
    const std::size_t after = host::allocated_bytes();
    if (after > before_bytes_) fail("allocated after the case", after, before_bytes_);
  }

  void check_accounts() {
    played[static_cast<std::size_t>(kind_)].commands += server_->service.core(0).statistics.value(Count::requests);
    Service& service = server_->service;
    const Store& store = server_->store;
    const auto expect = [](const char* what, std::size_t got, std::size_t wanted) {
      if (got != wanted) fail(what, got, wanted);
    };
    for (const Count never : {Count::no_progress, Count::protocol_overrun}) {
      expect("connections that a mistake of the server ended", service.core(0).statistics.value(never), 0);
    }
    expect("timers after all clients have left", pending_timers().count, 0);
    expect("bytes held when all clients have left", store.held_bytes(), 0);
    expect("bytes retired when all clients have left", store.retired_bytes(), 0);
    expect("bytes of replies", service.reply_memory.bytes(), 0);
    expect("bytes of unfinished uploads", service.upload_bytes(), 0);
    expect("open connections", service.connections(), 0);
    expect("watchers", service.watchers.count(), 0);
    expect("bytes of items", store.used_bytes(), store.counters().bytes);
    expect("received bytes that are still held", fuzz::CardBuffer::out_bytes, 0);
  }

  struct Side {
    std::unique_ptr<fuzz::Peer> peer;
    std::string reply;
  };

  const Kind kind_;
  const std::uint32_t choice_;
  std::string_view stream_;
  neap::fuzzing::Pieces pieces_{(choice_ >> 23 & 7) == 0 ? 0 : choice_ | 1};
  unsigned sent_ = 0;
  std::size_t before_bytes_ = 0;
  PlayedNetwork network_;
  std::optional<test::Server> server_;
  Side client_, watcher_;
};

}  // namespace
}  // namespace neap::memcached

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace neap::memcached;
  std::uint32_t choice = 0;
  if (size < 1 + sizeof choice) return 0;
  std::memcpy(&choice, data + 1, sizeof choice);
  const std::string_view stream(reinterpret_cast<const char*>(data) + 1 + sizeof choice, size - 1 - sizeof choice);
  Case(static_cast<Kind>(data[0] % kind_names.size()), choice, stream).run();
  return 0;
}

#ifndef NEAP_LIBFUZZER

namespace {

using neap::memcached::Kind;
using neap::memcached::kind_names;

class InputGenerator : public neap::fuzzing::RequestGenerator {
 public:
  using neap::fuzzing::RequestGenerator::RequestGenerator;

  std::string stream(Kind kind) {
    const std::string head = static_cast<char>(kind) + any(4);
    std::string text;
    for (unsigned count = 1 + below(below(4) == 0 ? 1000 : 80); count-- > 0 && text.size() < (1 << 20);) {
      text += kind == Kind::udp ? datagram() : request(kind);
    }
    // A damaged byte of a length ends a binary stream early, so most streams are whole.
    return below(4) == 0 ? damaged(head + text) : head + text;
  }

 private:
  std::string request(Kind kind) {
    if (kind == Kind::binary) return binary_request();
    if (kind == Kind::meta) return meta_request();
    return below(4) == 0 ? operation() : text_request();
  }
  std::string datagram() {
    std::string text = below(50) == 0 ? any(below(9)) : datagram_header();
    static constexpr Kind kinds[] = {Kind::text, Kind::meta, Kind::binary};
    const Kind kind = kinds[below(3)];
    for (unsigned count = below(4) == 0 ? below(20) : 1; count-- > 0;) text += request(kind);
    if (below(10) == 0) text += any(below(20));
    text.resize(std::min<std::size_t>(text.size(), 65'507));
    return std::string{static_cast<char>(text.size()), static_cast<char>(text.size() >> 8)} + text;
  }
};

}  // namespace

int main(int count, char** words) {
  using Clock = std::chrono::steady_clock;
  const std::string_view goal = count > 1 ? words[1] : "10";
  const double seconds = goal.ends_with('b') ? 1e9 : std::atof(goal.data());
  const std::uint64_t bytes = goal.ends_with('b') ? std::strtoull(goal.data(), nullptr, 10) : ~std::uint64_t{0};
  const unsigned long long seed = count > 2 ? std::strtoull(words[2], nullptr, 10) : 1;
  const auto start = Clock::now();
  const auto since = [](Clock::time_point from) { return std::chrono::duration<double>(Clock::now() - from).count(); };
  const auto total = [] {
    std::uint64_t sum = 0;
    for (const auto& one : neap::memcached::played) sum += one.bytes;
    return sum;
  };
  unsigned long long streams = 0;
  neap::host::WatchedWork work("a stream of fuzz_protocols");
  for (; since(start) < seconds && total() < bytes; ++streams) {
    if (streams % 1000 == 0) std::fprintf(stderr, "fuzz_protocols: from stream %llu of seed %llu\n", streams, seed);
    std::size_t kind = streams % kind_names.size();
    for (std::size_t at = 0; count > 3 && at < kind_names.size(); ++at) {
      if (kind_names[at] == std::string_view(words[3])) kind = at;
    }
    const auto from = Clock::now();
    const std::string stream = InputGenerator(seed * 1'000'003 + streams).stream(static_cast<Kind>(kind));
    work.begin_piece();
    LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(stream.data()), stream.size());
    work.end_piece();
    ++neap::memcached::played[kind].streams;
    neap::memcached::played[kind].seconds += since(from);
  }
  for (std::size_t at = 0; at < kind_names.size(); ++at) {
    const auto& one = neap::memcached::played[at];
    if (one.streams == 0) continue;
    std::printf("fuzz_protocols %s: %llu bytes, %llu commands, %llu streams, %.1f s\n", kind_names[at],
                static_cast<unsigned long long>(one.bytes), static_cast<unsigned long long>(one.commands),
                static_cast<unsigned long long>(one.streams), one.seconds);
  }
  std::printf("fuzz_protocols: %llu streams, %llu bytes, in %.1f s\n", streams, static_cast<unsigned long long>(total()), since(start));
  return 0;
}

#endif
