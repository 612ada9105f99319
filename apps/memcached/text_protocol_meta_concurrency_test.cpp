// SPDX-License-Identifier: BSL-1.0
// A win is given to one client only, whatever other cores do with the item meanwhile. The test is for runs under the thread sanitizer, too.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "apps/memcached/test_server.hpp"
#include "kernel/events.hpp"
#include "tests/host/host_machine.hpp"

namespace neap::memcached {
namespace {

using host::HostMachine;

StoreOptions options_of(unsigned cores, std::size_t memory_bytes) {
  StoreOptions options = test::small_store();
  options.retire = nullptr;
  options.cores = cores;
  options.memory_bytes = memory_bytes;
  return options;
}

/// The clients of all cores, one on each.
struct Clients {
  explicit Clients(unsigned cores, std::size_t memory_bytes) : server(options_of(cores, memory_bytes), cores) {
    for (unsigned core = 0; core < cores; ++core) {
      clients.push_back(std::make_unique<Client>(server.service.core(core).replies, server.service, server.service.core(core)));
    }
  }
  struct Client {
    Client(ReplyPool& replies, Service& service, CoreState& core) : reply(replies), conversation(service, core) {}
    std::string talk(const std::string& request) {
      std::string_view left = request;
      std::string answer;
      while (!left.empty()) {
        left.remove_prefix(conversation.consume(left, reply));
        answer += test::take_all(reply);
        if (conversation.waits()) break;  // memory is short: the rest would have to wait for another event
      }
      return answer;
    }
    Reply reply;
    Conversation conversation;
  };
  test::Server server;
  std::vector<std::unique_ptr<Client>> clients;
};

bool has_won(std::string_view answer) { return answer.find(" W\r\n") != std::string_view::npos; }

class MetaOnCores : public testing::TestWithParam<unsigned> {};

// All cores fetch an item that has just become stale, expired or deleted. One of them must win.
TEST_P(MetaOnCores, OneOfAllClientsWins) {
  const unsigned cores = GetParam();
  Clients all(cores, std::size_t{64} << 20);
  constexpr unsigned rounds = 120;
  std::atomic<unsigned> done{0}, wins{0};
  HostMachine machine{cores};
  const auto on_each = [&](unsigned first, unsigned count, auto run) {
    done = 0;
    for (unsigned core = first; core < first + count; ++core) {
      machine.on(core, [&, core, run] {
        run(core);
        ++done;
      });
    }
    ASSERT_TRUE(HostMachine::wait_until([&] { return done.load() == count; }, std::chrono::seconds(100)));
  };
  for (unsigned round = 0; round < rounds; ++round) {
    static const char* const changes[] = {"ms k 1\r\nx\r\nmd k I\r\n", "ms k 1\r\nx\r\nmd k I E7\r\n", "md k q\r\n", "ms k 1 T20\r\nx\r\n",
                                          "ms k 1 T-1\r\nx\r\n"};
    on_each(0, 1, [&](unsigned) { (void)all.clients[0]->talk(changes[round % 5]); });
    wins = 0;
    on_each(0, cores, [&](unsigned core) {
      for (unsigned time = 0; time < 3; ++time) wins += has_won(all.clients[core]->talk("mg k N30 R25 v\r\n")) ? 1 : 0;
    });
    ASSERT_EQ(wins.load(), 1U) << "round " << round;
  }
  on_each(0, cores, [&](unsigned core) { all.clients[core].reset(); });
  EXPECT_TRUE(HostMachine::wait_until([&] { return all.server.store.retired_bytes() == 0; }));
}

/// Sends random commands. Each answer to mg with W has the item's CAS id, which no other winner of the key may have.
struct Worker {
  Clients::Client* client;
  unsigned core;
  int events_left;
  std::mt19937 random;
  std::vector<std::string> wins;  // key and CAS id
  std::atomic<bool> done{false};

  std::string command(const std::string& key) {
    switch (random() % 12) {
      case 0:
        return "ms " + key + " 1 T" + (random() % 2 == 0 ? "20" : "0") + "\r\nx\r\n";
      case 1:
      case 2:
        return "md " + key + " I q\r\n";
      case 3:
        return "md " + key + " I E" + std::to_string(1'000'000'000'000 * (core + 1) + random()) + " q\r\n";
      case 4:
        return "md " + key + (random() % 4 == 0 ? " q\r\n" : " x q\r\n");
      case 5:
        return "ma " + key + " N0 J1000 q\r\n";
      case 6:
        return "ms " + key + " 1 MA N30 q\r\n1\r\n";
      case 7:
        return "ms filler" + std::to_string(random() % 200) + " 500 q\r\n" + std::string(500, 'f') + "\r\n";  // so that items are moved
      default:
        return "mg " + key + (random() % 2 == 0 ? " c N30\r\n" : " c R25\r\n");
    }
  }
  void one_event() {
    for (int step = 0; step < 20; ++step) {
      const std::string key = "k" + std::to_string(random() % 4);
      const std::string answer = client->talk(command(key));
      if (!has_won(answer)) continue;
      wins.push_back(key + " " + answer.substr(answer.find(" c"), answer.find(" ", answer.find(" c") + 1) - answer.find(" c")));
    }
    if (--events_left > 0) {
      spawn([this] { one_event(); });
    } else {
      done = true;
    }
  }
};

void play(unsigned cores, std::size_t memory_bytes) {
  Clients all(cores, memory_bytes);
  std::vector<Worker> workers(cores);
  {
    HostMachine machine{cores};
    for (unsigned core = 0; core < cores; ++core) {
      Worker& worker = workers[core];
      worker.client = all.clients[core].get();
      worker.core = core;
      worker.events_left = 1200;
      worker.random.seed(core + 1);
      machine.on(core, [&worker] { worker.one_event(); });
    }
    for (Worker& worker : workers) {
      ASSERT_TRUE(HostMachine::wait_until([&] { return worker.done.load(); }, std::chrono::seconds(100)));
    }
    std::atomic<unsigned> ended{0};
    for (unsigned core = 0; core < cores; ++core) {
      machine.on(core, [&, core] {
        all.clients[core].reset();
        ++ended;
      });
    }
    EXPECT_TRUE(HostMachine::wait_until([&] { return ended.load() == cores && all.server.store.retired_bytes() == 0; }));
  }
  std::vector<std::string> wins;
  for (const Worker& worker : workers) wins.insert(wins.end(), worker.wins.begin(), worker.wins.end());
  EXPECT_GT(wins.size(), 30U * cores);  // some hundred for each core, fewer on a busy host
  std::ranges::sort(wins);
  const auto twice = std::ranges::adjacent_find(wins);
  EXPECT_EQ(twice, wins.end()) << (twice == wins.end() ? "" : *twice);
  EXPECT_EQ(all.server.store.used_bytes(), all.server.store.counters().bytes);
}

TEST_P(MetaOnCores, NoWinIsGivenTwice) { play(GetParam(), std::size_t{64} << 20); }
TEST_P(MetaOnCores, NoWinIsGivenTwiceWhileItemsAreMoved) { play(GetParam(), std::size_t{96} << 10); }

INSTANTIATE_TEST_SUITE_P(Memcached, MetaOnCores, testing::Values(2, 4));

}  // namespace
}  // namespace neap::memcached
