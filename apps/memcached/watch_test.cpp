// SPDX-License-Identifier: BSL-1.0
// Watchers, on a simulated core, because each line wakes its watcher by an event.
#include "apps/memcached/watch.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <regex>
#include <string>

#include "apps/memcached/test_server.hpp"
#include "tests/host/host_machine.hpp"

namespace neap::memcached {
namespace {

using test::Client;
using test::Server;

struct WatchTest : testing::Test {
  /// Runs `call` as an event of the core, with a server and a client.
  void run(const std::function<void(Server&, Client&)>& call, std::uint32_t buffer_bytes = 8 << 10, std::size_t memory_bytes = 64 << 20) {
    host::HostMachine machine{1};
    std::unique_ptr<Server> server;
    std::unique_ptr<Client> client;
    machine.on(0, [&] {
      StoreOptions options = test::small_store();
      options.memory_bytes = memory_bytes;
      Settings settings = test::test_settings();
      settings.watcher_buffer_bytes = buffer_bytes;
      server = std::make_unique<Server>(options, 1, settings);
      client = std::make_unique<Client>(*server);
      call(*server, *client);
    });
    machine.on(0, [] {});  // the events that wake watchers have run now
    machine.on(0, [&] {
      client.reset();
      server.reset();
    });
  }
};

/// What a watcher has to read, without an event.
std::string read(Client& watcher) {
  (void)watcher.conversation.consume("", watcher.reply);
  return test::take_all(watcher.reply);
}

void expect_line(const std::string& text, const std::string& pattern) {
  EXPECT_TRUE(std::regex_match(text, std::regex("ts=[0-9]+\\.[0-9]{6} gid=[0-9]+ " + pattern + "\n"))) << text;
}

TEST_F(WatchTest, AWatcherOfFetchersAndMutationsSeesEachRequest) {
  run([](Server& server, Client& client) {
    EXPECT_FALSE(server.service.observed());
    {
      Client watcher(server);
      EXPECT_EQ(watcher.talk("watch fetchers mutations\r\n"), "OK\r\n");
      EXPECT_TRUE(server.service.observed());
      client.talk("get a#\r\n");
      expect_line(read(watcher), "type=item_get key=a%23 status=not_found clsid=0 cfd=0 size=0");
      client.talk("set a 0 100 4\r\n1234\r\n");
      const std::string both = read(watcher);
      const std::size_t end = both.find('\n') + 1;
      expect_line(both.substr(0, end), "type=item_get key=a status=not_found clsid=0 cfd=0 size=0");
      expect_line(both.substr(end), "type=item_store key=a status=stored cmd=set ttl=100 clsid=1 cfd=0 size=4");
      client.talk("get a\r\n");
      expect_line(read(watcher), "type=item_get key=a status=found clsid=1 cfd=0 size=4");
      EXPECT_EQ(server.service.watchers.count(), 1U);
    }
    EXPECT_EQ(server.service.watchers.count(), 0U);
    EXPECT_FALSE(server.service.observed());
  });
}

TEST_F(WatchTest, AWatcherOfDeletionsSeesOnlyThoseThatDelete) {
  run([](Server& server, Client& client) {
    Client watcher(server);
    EXPECT_EQ(watcher.talk("watch deletions\r\n"), "OK\r\n");
    client.talk("set a 0 0 4\r\n1234\r\ndelete b\r\ndelete a\r\nget a\r\n");
    expect_line(read(watcher), "type=deleted key=a cmd=delete clsid=1 size=4");
  });
}

TEST_F(WatchTest, AWatcherOfEvictionsSeesTheEvictedKeys) {
  run(
      [](Server& server, Client& client) {
        Client watcher(server);
        EXPECT_EQ(watcher.talk("watch evictions\r\n"), "OK\r\n");
        EXPECT_FALSE(server.service.observed());  // requests keep their short way
        const std::string value(50'000, 'v');
        for (int i = 0; i < 40; ++i) client.talk("set k" + std::to_string(i) + " 0 0 50000\r\n" + value + "\r\n");
        const std::string text = read(watcher);
        expect_line(text.substr(0, text.find('\n') + 1), "type=eviction key=k[0-9]+ fetch=no ttl=-1 la=0 clsid=10 size=50000");
      },
      64 << 10, 1 << 20);
}

// A watcher that does not read costs no more memory than its buffer.
TEST_F(WatchTest, LinesWithoutRoomAreSkippedAndCounted) {
  run([](Server& server, Client& client) {
    Client watcher(server);
    EXPECT_EQ(watcher.talk("watch\r\n"), "OK\r\n");
    for (int i = 0; i < 1000; ++i) client.talk("get " + std::string(200, 'k') + "\r\n");
    EXPECT_LE(read(watcher).size(), 8U << 10);
    const std::uint64_t skipped = server.service.watchers.skipped();
    EXPECT_GT(skipped, 900U);
    client.talk("get a\r\n");
    const std::string text = read(watcher), first = "skipped=" + std::to_string(skipped) + "\n";
    ASSERT_TRUE(text.starts_with(first)) << text;
    expect_line(text.substr(first.size()), "type=item_get key=a status=not_found clsid=0 cfd=0 size=0");
    EXPECT_EQ(server.service.watchers.sent() + skipped, 1001U);
  });
}

TEST_F(WatchTest, ALongKeyOfUnusualBytesFitsALine) {
  run([](Server& server, Client& client) {
    Client watcher(server);
    EXPECT_EQ(watcher.talk("watch mutations\r\n"), "OK\r\n");
    client.talk("set " + std::string(250, '#') + " 0 0 1\r\nx\r\n");
    const std::string text = read(watcher);
    EXPECT_EQ(std::count(text.begin(), text.end(), '%'), 250);
    EXPECT_TRUE(text.ends_with(" size=1\n"));
  });
}

TEST_F(WatchTest, WatchersAreFew) {
  run([](Server& server, Client&) {
    std::vector<std::unique_ptr<Client>> watchers;
    for (unsigned i = 0; i < Watchers::watchers_max; ++i) {
      watchers.push_back(std::make_unique<Client>(server));
      EXPECT_EQ(watchers.back()->talk("watch\r\n"), "OK\r\n");
    }
    Client one_more(server);
    EXPECT_EQ(one_more.talk("watch\r\n"), "WATCHER_TOO_MANY log watcher limit reached\r\n");
    watchers.pop_back();
    EXPECT_EQ(one_more.talk("watch\r\n"), "OK\r\n");
  });
}

// What a watcher sends is dropped, so it cannot fill memory.
TEST_F(WatchTest, AWatchersInputIsDropped) {
  run([](Server& server, Client& client) {
    Client watcher(server);
    EXPECT_EQ(watcher.talk("watch\r\nversion\r\n"), "OK\r\n");
    EXPECT_EQ(watcher.conversation.consume("version\r\n", watcher.reply), 9U);
    EXPECT_TRUE(watcher.reply.empty());
    client.talk("get a\r\n");
    EXPECT_NE(read(watcher), "");
  });
}

}  // namespace
}  // namespace neap::memcached
