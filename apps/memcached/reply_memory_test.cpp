// SPDX-License-Identifier: BSL-1.0
// Many clients at once that send requests and do not read: the memory of the replies is bounded and counted, and other clients are served.
#include "apps/memcached/reply_memory.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "apps/memcached/test_peer.hpp"
#include "tests/host/allocated_bytes.hpp"
#include "tests/host/progress_watchdog.hpp"

namespace neap::memcached {
namespace {

using host::allocated_bytes;
using test::Peer;
using test::Server;

std::string store(const std::string& key, std::size_t bytes) {
  return "set " + key + " 0 0 " + std::to_string(bytes) + "\r\n" + std::string(bytes, 'v') + "\r\n";
}

struct Level {
  std::size_t allocated = 0, held = 0, account = 0, spare = 0;
  explicit Level(Server& server) : held(server.store.held_bytes()), account(server.service.core(0).replies.account().bytes()) {
    net::Buffer::trim_free_list();
    allocated = allocated_bytes();
    spare = server.service.reply_spare_bytes();
  }
};

constexpr std::size_t core_spare_bytes = 1 << 20;  // spare chunks, and bytes that a core need not report

class StalledReaders : public testing::Test {
 protected:
  StalledReaders() { work.begin_piece(); }
  static StoreOptions options() {
    StoreOptions options = test::small_store();
    options.memory_bytes = std::size_t{16} << 20;
    return options;
  }
  void stall(unsigned clients, unsigned requests, const std::string& request) {
    for (unsigned i = 0; i < clients; ++i) stalled.push_back(std::make_unique<Peer>(server, true));
    for (unsigned round = 0; round < requests; ++round) {
      for (auto& peer : stalled) peer->send(request);
    }
  }
  /// Checks that a client that reads its replies is served at once.
  void expect_served() {
    for (int i = 0; i < 100; ++i) {
      ASSERT_EQ(bystander.ask(store("mine", 1000) + "get mine\r\n"),
                "STORED\r\nVALUE mine 0 1000\r\n" + std::string(1000, 'v') + "\r\nEND\r\n");
    }
    EXPECT_EQ(server.service.total(Count::store_no_memory), 0U);
  }
  void expect_level(const Level& before) {
    std::vector<std::unique_ptr<Peer>>().swap(stalled);
    const Level after(server);
    EXPECT_LE(after.spare, ReplyPool::free_chunks_max * sizeof(ReplyPool::Chunk));
    EXPECT_LE(after.allocated - after.spare, before.allocated - before.spare + 2 * sizeof(ReplyPool::Chunk));
    EXPECT_EQ(after.held, before.held);
    EXPECT_LE(after.account, before.account + sizeof(ReplyPool::Chunk));
  }
  host::WatchedWork work{"stalled readers"};
  Server server{options()};
  Peer bystander{server, true};
  std::vector<std::unique_ptr<Peer>> stalled;
};

// In an earlier version, 13 bytes from a client made the server keep a chunk of 4 KiB, so 650 KB of requests took 203 MB.
TEST_F(StalledReaders, TakeABoundedPartOfMemory) {
  bystander.ask(store("a", 1000) + store("mine", 1000));
  const Level before(server);
  stall(50, 1000, "get a a a a\r\n");
  const std::size_t requests_bytes = std::size_t{50} * 1000 * (13 + sizeof(net::Buffer::Piece));
  EXPECT_LT(allocated_bytes() - before.allocated, server.service.reply_memory.limit_bytes() + requests_bytes + core_spare_bytes);
  EXPECT_LE(server.service.reply_memory.bytes(), server.service.reply_memory.limit_bytes());
  EXPECT_EQ(server.service.total(Count::reply_waits), 50U);
  expect_served();
  expect_level(before);
}

// Enough clients stall to reach the limit of reply memory. Each may have one small reply in flight, which keeps no shared chunk in use.
TEST_F(StalledReaders, KeepOneSmallReplyEachWhenTheLimitIsReached) {
  bystander.ask(store("a", 900) + store("mine", 1000));
  const Level before(server);
  constexpr std::size_t clients = 3000;
  stall(clients, 12, "get a\r\n");
  EXPECT_TRUE(server.service.reply_memory.scarce());
  const std::size_t each = ReplyMemory::small_bytes + 2 * 1024 + sizeof(Session) + sizeof(Exchange) + sizeof(Peer) + 1024;
  EXPECT_LT(allocated_bytes() - before.allocated, server.service.reply_memory.limit_bytes() + clients * each);
  expect_served();
  expect_level(before);
}

// The memory of replies counts against the cache's limit: items are evicted, and no request is refused.
TEST_F(StalledReaders, ShrinkTheCache) {
  for (unsigned i = 0; i < 20'000; ++i) bystander.ask(store("k" + std::to_string(i), 1000));
  const std::size_t full = server.store.used_bytes();
  EXPECT_GT(full, std::size_t{15} << 20);
  const Level before(server);
  bystander.ask(store("a", 1000));
  stall(100, 300, "get a a a a\r\n");
  EXPECT_GT(server.service.reply_memory.bytes(), server.service.reply_memory.limit_bytes() / 2);
  expect_served();
  EXPECT_LE(server.store.used_bytes() + server.store.held_bytes(), server.store.memory_bytes());
  EXPECT_LT(server.store.used_bytes(), full);
  stalled.clear();
  EXPECT_EQ(server.store.held_bytes(), 0U);
  EXPECT_EQ(server.service.reply_memory.bytes(), 0U);
}

// The values of an unfinished get wait for the end of its line. Here each event adds a value of few bytes. No value may keep a whole chunk.
TEST_F(StalledReaders, HeldValuesKeepNoSharedChunks) {
  bystander.ask(store("a", 1) + store("mine", 1000));
  const Level before(server);
  stall(20, 1, "get");
  for (unsigned key = 0; key < 200; ++key) {
    for (auto& peer : stalled) {
      peer->send(" a");
      bystander.send("get mine mine mine\r\n");  // the reply fills most of a chunk
      bystander.read_all();
    }
  }
  EXPECT_LT(allocated_bytes() - before.allocated, std::size_t{20} * 200 * 300);  // a chunk for each value would be 16 MB
  expect_level(before);
}

// Each connection may have one large value in flight. Here 300 connections each hold a value that was replaced meanwhile.
TEST_F(StalledReaders, CannotHoldTheCacheByReplacedValues) {
  const Level before(server);
  constexpr unsigned clients = 300;
  constexpr std::size_t bytes = 100'000;  // all values together have 30 MB; the limit is 16 MB
  for (unsigned i = 0; i < clients; ++i) {
    ASSERT_EQ(bystander.ask(store("large", bytes)), "STORED\r\n") << "client " << i;
    stall(1, 0, "");
    stalled.back()->send("get large\r\n");
    std::erase_if(stalled, [](auto& peer) { return peer->connection.aborted; });  // the stack too destroys aborted sessions after an event
  }
  // Replies and values together leave room in the cache.
  const std::size_t replies = server.service.reply_memory.taken_bytes(), values = server.store.held_bytes() - replies;
  EXPECT_LE(values, (server.store.memory_bytes() - replies) / Holders::any_divisor + 2 * bytes);
  EXPECT_GT(server.service.total(Count::holders_reset), 0U);
  EXPECT_GT(stalled.size(), 50U);  // some connections still hold their values
  expect_served();
  bystander.ask("delete large\r\ndelete mine\r\n");
  expect_level(before);
}

// If replies hold over a quarter of the memory, only connections that made no progress for seconds are reset.
TEST_F(StalledReaders, AreResetBeforeClientsThatRead) {
  constexpr std::size_t bytes = 100'000;
  std::size_t asked = 0;
  for (unsigned i = 0; i < 60; ++i) {
    bystander.ask(store("large", bytes));
    stall(1, 0, "");
    stalled.back()->send("get large\r\n");
    ++asked;
  }
  Peer& slow = *stalled.front();
  EXPECT_EQ(server.service.total(Count::holders_reset), 0U);
  for (unsigned second = 0; second < 6; ++second) {
    test::advance_s(1);
    (void)slow.connection.acknowledge(10'000);
    for (unsigned i = 0; i < 100; ++i) bystander.ask("version\r\n");
    std::erase_if(stalled, [](auto& peer) { return peer->connection.aborted; });
  }
  EXPECT_GT(server.service.total(Count::holders_reset), 0U);
  EXPECT_LE(server.store.held_bytes() - server.service.reply_memory.taken_bytes(), server.store.memory_bytes() / Holders::stalled_divisor);
  EXPECT_LT(stalled.size(), asked);
  EXPECT_EQ(stalled.front().get(), &slow);
}

// When the stalled clients are gone, a client that reads may have nearly as many bytes in flight as the stack can queue.
TEST_F(StalledReaders, LeaveAReaderItsWholeShareWhenTheyAreGone) {
  bystander.ask(store("a", 1000));
  stall(200, 100, "get a a a a\r\n");
  stalled.clear();
  for (int i = 0; i < 1000; ++i) bystander.send("get a a a a\r\n");
  EXPECT_GT(bystander.connection.unacknowledged_bytes(), ReplyMemory::share_bytes_max / 2);
  bystander.read_all();
  EXPECT_EQ(server.service.total(Count::cmd_get) % 4, 0U);
}

TEST(ReplyMemory, FollowsTheLimitOfTheStore) {
  constexpr std::size_t mebibyte = 1 << 20;
  StoreOptions options = test::small_store();
  options.memory_bytes = 64 * mebibyte;
  Server server(options);
  ReplyMemory& memory = server.service.reply_memory;
  memory.charge(7 * mebibyte);
  EXPECT_EQ(memory.limit_bytes(), 8 * mebibyte);
  EXPECT_TRUE(memory.careful() && memory.scarce());
  EXPECT_EQ(server.store.held_bytes(), 7 * mebibyte);

  test::Client client(server);
  ASSERT_EQ(client.talk("cache_memlimit 8\r\n"), "OK\r\n");
  EXPECT_EQ(memory.limit_bytes(), mebibyte);
  EXPECT_EQ(memory.share_bytes(), 0U);
  EXPECT_EQ(memory.taken_bytes(), 4 * mebibyte);  // half of the cache
  EXPECT_EQ(server.store.held_bytes(), 4 * mebibyte);
  ASSERT_EQ(client.talk("cache_memlimit 256\r\n"), "OK\r\n");
  EXPECT_EQ(memory.limit_bytes(), 32 * mebibyte);
  EXPECT_FALSE(memory.careful() || memory.scarce());
  EXPECT_EQ(server.store.held_bytes(), 7 * mebibyte);
  memory.discharge(7 * mebibyte);
  EXPECT_EQ(server.store.held_bytes(), 0U);
}

TEST(ReplyAccount, ReportsWhatIsOverItsFreePartAndTakesItBack) {
  Server server;
  ReplyMemory memory(server.store);
  ReplyAccount account;
  account.report_to(memory);
  account.charge(ReplyAccount::unreported_bytes_max);
  EXPECT_EQ(memory.bytes(), 0U);
  std::size_t maximum = 0;
  for (int i = 0; i < 5000; ++i) {
    account.charge(333);
    ASSERT_GE(memory.bytes() + ReplyAccount::unreported_bytes_max, account.bytes());
    maximum = std::max(maximum, memory.bytes());
  }
  EXPECT_EQ(server.store.held_bytes(), maximum);
  for (int i = 0; i < 5000; ++i) {
    account.discharge(333);
    ASSERT_GE(memory.bytes() + ReplyAccount::unreported_bytes_max, account.bytes());
  }
  account.discharge(ReplyAccount::unreported_bytes_max);
  EXPECT_EQ(memory.bytes(), 0U);
  EXPECT_EQ(server.store.held_bytes(), 0U);
}

}  // namespace
}  // namespace neap::memcached
