// SPDX-License-Identifier: BSL-1.0
// Many clients at once against the whole server; see fuzz_clients.hpp.
#include "observe/fuzz_clients.hpp"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "observe/built_in.hpp"
#include "observe/testing.hpp"
#include "tests/host/allocated_bytes.hpp"

namespace neap::observe::testing {
namespace {

using host::allocated_bytes;
constexpr std::string_view token_line = "token,correct-horse\n";
constexpr auto proof_limit = 2s;
constexpr unsigned no_progress_s = 60;  ///< a case takes about a second; SIGALRM ends one that hangs
/// Memory may grow by this much, because the numbers of connections in TIME-WAIT and of allocators' spare objects differ between cases.
constexpr std::size_t memory_slack_bytes = 4 * 1024 * 1024;

class Case {
 public:
  Case(World& world, std::uint64_t seed, bool token_needed) : world_(world), seed_(seed), random_(seed), token_needed_(token_needed) {}

  void run() {
    ::alarm(no_progress_s);
    const unsigned clients = 1 + below(48);
    for (unsigned i = 0; i < clients; ++i) {
      auto peer = std::make_unique<Peer>(world_.machines, below(3) != 0);
      if (!peer->failed) peers_.push_back(std::move(peer));
    }
    for (unsigned steps = below(4 * clients); steps > 0 && !peers_.empty(); --steps) step(below(static_cast<unsigned>(peers_.size())));
    admit_owner();
    for (unsigned steps = below(clients); steps > 0 && !peers_.empty(); --steps) step(below(static_cast<unsigned>(peers_.size())));
    peers_.clear();
    check(HostMachine::wait_until([&] { return world_.server.clients().count() == 0; }), "clients remain");
    check(world_.server.clients().held_bytes() == 0, "bytes are held for closed clients");
    check(HostMachine::wait_until([&] { return world_.machines.server_card.buffers_out() == 0; }), "buffers of the card are held");
    ::alarm(0);
  }

 private:
  unsigned below(unsigned end) { return end == 0 ? 0 : static_cast<unsigned>(random_() % end); }

  void check(bool good, const char* what) {
    if (good) return;
    std::fprintf(stderr, "fuzz_control: clients, seed %llu: %s\n", static_cast<unsigned long long>(seed_), what);
    std::abort();
  }

  /// A client with the token must be served at its first attempt at any time. Three reasons for a refusal are allowed: the address sent
  /// wrong tokens, 16 proven clients are busy, or the host delayed the token beyond the limit.
  void admit_owner() {
    for (int tries = 0; tries < 200; ++tries) {
      const std::uint64_t delayed = world_.server.counters().refused_delayed.load();
      const auto began = std::chrono::steady_clock::now();
      Peer owner(world_.machines);
      if (!owner.failed) {
        owner.try_send(token_needed_ ? token_line : "rdtsc\n");
        const std::string answer = owner.line().value_or("");
        if (answer.starts_with("ok")) return;
        const bool late = answer.ends_with("in time") && std::chrono::steady_clock::now() - began >= proof_limit;
        const bool refused =
            late || answer == "error: " + std::string(places_taken) || world_.server.counters().refused_delayed.load() != delayed;
        check(refused, answer.empty() ? "the owner was not admitted and got no answer" : answer.c_str());
      }
      std::this_thread::sleep_for(10ms);
    }
  }

  std::string text() {
    static constexpr std::string_view lines[] = {"token,wrong-horse\n",
                                                 "help\n",
                                                 "status\n",
                                                 "stats\n",
                                                 "cores\n",
                                                 "start\n",
                                                 "start,5ms\n",
                                                 "stop\n",
                                                 "mark,window\n",
                                                 "clear\n",
                                                 "get,0\n",
                                                 "get,1\n",
                                                 "stream,live\n",
                                                 "stream,after,0=9223372036854775807\n",
                                                 "itr,8\n",
                                                 "itr,8,99999999999999999999\n",
                                                 "dmesg\n",
                                                 "dmesg,18446744073709551615\n",
                                                 "timers\n",
                                                 "start,0\n",
                                                 "stop,0\n",
                                                 "clear,0\n",
                                                 "rdtsc,0\n",
                                                 "getcounters,0\n",
                                                 "rx_usecs,8\n",
                                                 "rx_usecs,512\n",
                                                 "sleep_state,48\n",
                                                 "get,9\n",
                                                 "\n",
                                                 ",\n",
                                                 "half a li",
                                                 "\xff\xfe\n"};
    std::string all;
    for (unsigned count = 1 + below(below(8) == 0 ? 300 : 6); count > 0; --count) all += lines[below(std::size(lines))];
    if (token_needed_ && below(2) == 0) all.insert(0, token_line);
    if (below(20) == 0) all += std::string(below(100'000), 'A');
    return all;
  }

  void step(unsigned which) {
    Peer& peer = *peers_[which];
    const unsigned kind = below(10);
    if (kind == 0) return peer.end_sending();
    if (kind == 1) return peer.close();
    if (kind == 2) return void(peers_.erase(peers_.begin() + which));  // resets the connection
    if (kind == 3) return peer.begin_reading();
    if (kind == 4) return world_.record(below(2000));
    send(peer, text());
  }

  void send(Peer& peer, std::string_view text) {
    const unsigned longest = below(3) == 0 ? 3 : below(2) == 0 ? 60 : 65536;
    for (unsigned pieces = 0; !text.empty() && pieces < 200; ++pieces) {
      const std::size_t piece = std::min<std::size_t>(1 + below(longest), text.size());
      peer.try_send(text.substr(0, piece));
      text.remove_prefix(piece);
    }
    peer.try_send(text);
  }

  World& world_;
  const std::uint64_t seed_;
  std::mt19937_64 random_;
  const bool token_needed_;
  std::vector<std::unique_ptr<Peer>> peers_;
};

}  // namespace

void fuzz_clients(double seconds, std::uint64_t seed) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  unsigned cases = 0;
  for (unsigned worlds = 0; std::chrono::steady_clock::now() < end; ++worlds) {
    WorldOptions options = small_log(worlds % 4 < 2 ? log::WhenFull::stop : log::WhenFull::overwrite);
    const bool token_needed = worlds % 2 == 0;
    if (worlds % 3 == 1) options.control.dialect = Dialect::ebbrt;
    if (token_needed) options.control.token = "correct-horse";
    options.proof_limit = proof_limit;
    options.drain_limit = 200ms;
    options.wrong_token_delay = 5ms;
    World world(options);
    std::size_t level = 0;
    for (unsigned i = 0; i < 20 && std::chrono::steady_clock::now() < end; ++i, ++cases) {
      Case(world, seed * 1'000'003 + cases, token_needed).run();
      if (level == 0) level = allocated_bytes();
      if (allocated_bytes() > level + memory_slack_bytes) {
        std::fprintf(stderr, "fuzz_control: clients, case %u of seed %llu: memory grew from %zu to %zu bytes\n", cases,
                     static_cast<unsigned long long>(seed), level, allocated_bytes());
        std::abort();
      }
    }
  }
  if (::testing::UnitTest::GetInstance()->ad_hoc_test_result().Failed()) std::abort();
  std::printf("fuzz_control: %u cases of many clients\n", cases);
}

}  // namespace neap::observe::testing
