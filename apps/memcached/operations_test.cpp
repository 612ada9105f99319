// SPDX-License-Identifier: BSL-1.0
// The commands of an administrator, with the answers of memcached.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "apps/memcached/test_server.hpp"

namespace neap::memcached {
namespace {

using test::Client;
using test::Server;

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n') + 1, text.size());
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return lines;
}

struct Operations : testing::Test {
  Server server;
  Client client{server};
  void store(const std::string& key, const std::string& value, int expires = 0) {
    ASSERT_EQ(client.talk("set " + key + " 5 " + std::to_string(expires) + " " + std::to_string(value.size()) + "\r\n" + value + "\r\n"),
              "STORED\r\n");
  }
  std::string statistic(std::string_view topic, std::string_view name) {
    std::string found = "missing";
    show_statistics(server.service, topic, [&](std::string_view shown, std::string_view value) {
      if (shown == name) found = value;
    });
    return found;
  }
};

struct RestrictedOperations : testing::Test {
  static Settings settings() {
    Settings made = test::test_settings();
    made.flush_enabled = made.dump_enabled = made.watch_enabled = false;
    return made;
  }
  Server server{test::small_store(), 1, settings()};
  Client client{server};
};

TEST_F(Operations, ForMechanismsThatAreMissingAreRefusedAsIfTheyWereOff) {
  EXPECT_EQ(client.talk("slabs reassign 1 2\r\n"), "CLIENT_ERROR slab reassignment disabled\r\n");
  EXPECT_EQ(client.talk("slabs automove 1\r\n"), "OK\r\n");
  EXPECT_EQ(client.talk("slabs automove x\r\n"), "CLIENT_ERROR bad command line format\r\n");
  EXPECT_EQ(client.talk("slabs automove 3\r\n"), "ERROR\r\n");
  EXPECT_EQ(client.talk("slabs\r\n"), "ERROR\r\n");
  EXPECT_EQ(client.talk("lru mode segmented\r\nlru temp_ttl 1\r\nlru\r\n"), "ERROR\r\nERROR\r\nERROR\r\n");
  EXPECT_EQ(client.talk("lru tune 10 20 0.1 2.0\r\n").substr(0, 6), "ERROR ");
  EXPECT_EQ(client.talk("watch proxyreqs\r\n"), "ERROR\r\n");
  EXPECT_EQ(client.talk("misbehave\r\n"), "ERROR\r\n");
  EXPECT_EQ(client.talk("shutdown\r\n"), "ERROR: shutdown not enabled\r\n");
}

TEST_F(Operations, CacheMemlimitChangesTheLimit) {
  EXPECT_EQ(client.talk("cache_memlimit 7\r\n"), "MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m\r\n");
  EXPECT_EQ(client.talk("cache_memlimit 2000000000\r\n"), "MEMLIMIT_ADJUST_FAILED input value is megabytes not bytes\r\n");
  EXPECT_EQ(client.talk("cache_memlimit x\r\ncache_memlimit\r\n"), "ERROR\r\nERROR\r\n");
  EXPECT_EQ(client.talk("cache_memlimit 8\r\ncache_memlimit 8 noreply\r\n"), "OK\r\n");
  EXPECT_EQ(statistic("settings", "maxbytes"), "8388608");
  const std::string value(100'000, 'v');
  for (int i = 0; i < 200; ++i) store("k" + std::to_string(i), value);
  EXPECT_LE(server.store.used_bytes(), 9U << 20);
  EXPECT_NE(statistic("", "evictions"), "0");
}

// Without evictions a full cache refuses to store, and keeps what it has.
TEST(OperationsWithoutEvictions, AFullCacheRefusesToStore) {
  StoreOptions options = test::small_store();
  options.memory_bytes = 1 << 20;
  options.evictions = false;
  Server server(options);
  Client client(server);
  const std::string value(8192, 'B');
  int stored = 0;
  while (client.talk("set k" + std::to_string(stored) + " 0 0 8192\r\n" + value + "\r\n") == "STORED\r\n") ++stored;
  EXPECT_GT(stored, 80);
  EXPECT_EQ(client.talk("set one 0 0 8192\r\n" + value + "\r\n"), "SERVER_ERROR out of memory storing object\r\n");
  for (int i = 0; i < stored; ++i) EXPECT_NE(client.talk("get k" + std::to_string(i) + "\r\n"), "END\r\n") << i;
  EXPECT_EQ(server.store.counters().evictions, 0U);
}

TEST_F(Operations, AShutdownEndsTheServiceOnlyIfItIsAllowed) {
  static unsigned shutdowns;
  shutdowns = 0;
  Settings settings = test::test_settings();
  settings.shutdown_enabled = true;
  Server other(test::small_store(), 1, settings);
  for (Server* const one : {&server, &other}) one->service.shut_down = [](Service&) noexcept { ++shutdowns; };
  Client allowed(other);
  client.talk("shutdown\r\n");
  EXPECT_EQ(shutdowns, 0U);
  EXPECT_EQ(allowed.talk("shutdown foo\r\n"), "CLIENT_ERROR invalid shutdown mode\r\n");
  EXPECT_EQ(shutdowns, 0U);
  EXPECT_EQ(allowed.talk("shutdown graceful\r\n"), "");
  EXPECT_EQ(shutdowns, 1U);
  EXPECT_TRUE(allowed.conversation.closing());
}

TEST_F(Operations, OfTheCrawlerAreAccepted) {
  static unsigned changes;
  changes = 0;
  server.service.settle_crawler = []() noexcept { ++changes; };
  EXPECT_EQ(client.talk("lru_crawler crawl all\r\n"), "OK\r\n");
  EXPECT_EQ(server.store.earliest_expiry(), expired_already);  // a pass is due
  EXPECT_EQ(statistic("", "lru_crawler_running"), "1");
  EXPECT_EQ(client.talk("lru_crawler crawl 1,x\r\n"), "BADCLASS invalid class id\r\n");
  EXPECT_EQ(client.talk("lru_crawler disable\r\n"), "OK\r\n");
  EXPECT_EQ(statistic("settings", "lru_crawler"), "no");
  EXPECT_EQ(client.talk("lru_crawler crawl 1\r\n"), "CLIENT_ERROR lru crawler disabled\r\n");
  EXPECT_EQ(client.talk("lru_crawler enable\r\n"), "OK\r\n");
  EXPECT_EQ(changes, 2U);
  EXPECT_EQ(client.talk("lru_crawler sleep 1000000\r\nlru_crawler tocrawl 5\r\n"), "OK\r\nOK\r\n");
  EXPECT_EQ(client.talk("lru_crawler sleep 1000001\r\n"), "CLIENT_ERROR sleep must be one second or less\r\n");
  EXPECT_EQ(client.talk("lru_crawler sleep x\r\n"), "CLIENT_ERROR bad command line format\r\n");
  EXPECT_EQ(client.talk("lru_crawler\r\nlru_crawler frobnicate\r\n"), "ERROR\r\nERROR\r\n");
}

TEST_F(Operations, MetaCommandsAreCountedAndWatchedLikeOthers) {
  EXPECT_EQ(client.talk("mn\r\n"), "MN\r\n");
  client.talk("stats detail on\r\n");
  EXPECT_EQ(client.talk("ms foo:1 1\r\nx\r\nmg foo:1 v\r\nmd foo:1\r\nmg foo:1\r\n"), "HD\r\nVA 1\r\nx\r\nHD\r\nEN\r\n");
  EXPECT_EQ(client.talk("stats detail dump\r\n"), "PREFIX foo get 2 hit 1 set 1 del 1\r\nEND\r\n");
  EXPECT_GE(server.service.total(Count::cmd_meta), 4U);
}

TEST_F(RestrictedOperations, AreRefused) {
  EXPECT_EQ(client.talk("flush_all\r\n"), "CLIENT_ERROR flush_all not allowed\r\n");
  EXPECT_EQ(client.talk("watch\r\n"), "CLIENT_ERROR watch commands not allowed\r\n");
  EXPECT_EQ(client.talk("lru_crawler metadump all\r\n"), "ERROR metadump not allowed\r\n");
  EXPECT_EQ(client.talk("lru_crawler mgdump all\r\n"), "ERROR key dump not allowed\r\n");
  EXPECT_EQ(client.talk("stats cachedump 1 1\r\n"), "CLIENT_ERROR stats cachedump not allowed\r\n");
  EXPECT_EQ(client.talk("stats detail on\r\n"), "CLIENT_ERROR stats detail not allowed\r\n");
}

TEST_F(Operations, AMetadumpHasALineForEachLiveItem) {
  store("a", "12");
  store("n,foo", "x", 100);
  store("dead", "x", 1);
  test::advance_s(2);
  std::vector<std::string> lines = lines_of(client.talk("lru_crawler metadump all\r\n"));
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines.back(), "END\r\n");
  std::sort(lines.begin(), lines.end() - 1);
  EXPECT_TRUE(lines[0].starts_with("key=a exp=-1 la=17")) << lines[0];
  EXPECT_NE(lines[0].find(" fetch=no cls=1 size=73 flags=5\n"), std::string::npos) << lines[0];
  EXPECT_TRUE(lines[1].starts_with("key=n%2Cfoo exp=17")) << lines[1];
}

TEST_F(Operations, AnMgdumpHasRequestsOfTheMetaProtocol) {
  store("a", "1");
  EXPECT_EQ(client.talk("lru_crawler mgdump hash\r\n"), "mg a\r\nEN\r\n");
  EXPECT_EQ(client.talk("lru_crawler mgdump 2,3\r\n"), "EN\r\n");
  EXPECT_EQ(client.talk("lru_crawler mgdump 1\r\n"), "mg a\r\nEN\r\n");
}

// A line end in a key must not end the dump's line: the rest of the key would be a command of the client that replays the dump.
TEST_F(Operations, ADumpShowsKeysThatAreNoTextInBase64) {
  EXPECT_EQ(client.talk("ms YQ0KZmx1c2hfYWxs 1 b\r\nx\r\n"), "HD\r\n");  // "a\r\nflush_all"
  EXPECT_EQ(client.talk("ms YWI= 1 b\r\ny\r\n"), "HD\r\n");              // "ab"
  std::vector<std::string> lines = lines_of(client.talk("lru_crawler mgdump all\r\n"));
  std::ranges::sort(lines);
  EXPECT_EQ(lines, (std::vector<std::string>{"EN\r\n", "mg YQ0KZmx1c2hfYWxs b\r\n", "mg YWI= b\r\n"}));
  EXPECT_EQ(client.talk("stats cachedump 1 0\r\n"), "END\r\n");
  EXPECT_EQ(client.talk("mg YQ0KZmx1c2hfYWxs b k v\r\n"), "VA 1 kYQ0KZmx1c2hfYWxs b\r\nx\r\n");
}

// A dump takes many events, and the table grows meanwhile. Requests behind the dump's command wait for its end.
TEST_F(Operations, ADumpOfManyItemsHasEachItemOnce) {
  constexpr int items = 5000;
  for (int i = 0; i < items; ++i) store("key" + std::to_string(i), "x");
  const std::vector<std::string> lines = lines_of(client.talk("lru_crawler mgdump all\r\nversion\r\n"));
  ASSERT_EQ(lines.size(), items + 2U);
  EXPECT_EQ(std::set<std::string>(lines.begin(), lines.end()).size(), items + 2U);
  EXPECT_EQ(lines[items], "EN\r\n");
  EXPECT_EQ(lines[items + 1], "VERSION 1.6.0-test\r\n");
}

TEST_F(Operations, ADumpDoesNotMixWithPipelinedReplies) {
  EXPECT_EQ(client.talk("version\r\nlru_crawler metadump all\r\n"),
            "VERSION 1.6.0-test\r\nERROR cannot pipeline other commands before metadump\r\n");
  EXPECT_EQ(client.talk("version\r\nlru_crawler mgdump all\r\n"),
            "VERSION 1.6.0-test\r\nERROR cannot pipeline other commands before mgdump\r\n");
  EXPECT_EQ(client.talk("version\r\nwatch\r\n"), "VERSION 1.6.0-test\r\nERROR cannot pipeline other commands before watch\r\n");
}

TEST_F(Operations, ClassesOfADumpAreChecked) {
  for (const char* const classes : {"x", "0", "99", "1,", ",1", "1,x"}) {
    EXPECT_EQ(client.talk(std::string("lru_crawler metadump ") + classes + "\r\n"), "BADCLASS invalid class id\r\n") << classes;
  }
  EXPECT_EQ(client.talk("lru_crawler metadump\r\nlru_crawler metadump 1 2\r\n"), "ERROR\r\nERROR\r\n");
}

TEST_F(Operations, ACachedumpIsLimited) {
  for (const char* const key : {"a", "b", "c"}) store(key, "123");
  EXPECT_EQ(lines_of(client.talk("stats cachedump 1 2\r\n")).size(), 3U);
  EXPECT_EQ(lines_of(client.talk("stats cachedump 1 0\r\n")).size(), 4U);
  EXPECT_EQ(client.talk("stats cachedump 2 0\r\n"), "END\r\n");
  EXPECT_EQ(client.talk("stats cachedump 99 0\r\n"), "CLIENT_ERROR Illegal slab id\r\n");
  EXPECT_NE(client.talk("stats cachedump 1 1\r\n").find(" [3 b; 0 s]\r\nEND\r\n"), std::string::npos);
}

TEST_F(Operations, DetailsAreCountedByPrefixWhileTheyAreOn) {
  EXPECT_EQ(client.talk("stats detail dump\r\n"), "END\r\n");
  store("foo:0", "x");
  EXPECT_EQ(client.talk("stats detail on\r\n"), "OK\r\n");
  EXPECT_TRUE(server.service.observed());
  store("foo:1", "x");
  client.talk("get foo:1\r\nget foo:2\r\nget foo:1 foo:1\r\ndelete foo:3\r\nget plain\r\n");
  EXPECT_EQ(client.talk("stats detail dump\r\n"), "PREFIX foo get 4 hit 3 set 1 del 1\r\nEND\r\n");
  EXPECT_EQ(client.talk("stats reset\r\nstats detail dump\r\n"), "RESET\r\nEND\r\n");
  client.talk("get foo:1\r\nstats detail off\r\nget foo:1\r\n");
  EXPECT_EQ(client.talk("stats detail dump\r\n"), "PREFIX foo get 1 hit 1 set 0 del 0\r\nEND\r\n");
  EXPECT_FALSE(server.service.observed());
}

TEST_F(Operations, DetailsAreAlsoTurnedOnByTheBinaryProtocol) {
  const auto stat = [](std::string_view key) {
    std::string request("\x80\x10\0", 3);
    request += static_cast<char>(key.size());
    request += std::string(7, '\0');
    request += static_cast<char>(key.size());
    return request + std::string(12, '\0') + std::string(key);
  };
  Client binary(server);
  EXPECT_EQ(binary.talk(stat("detail on")).size(), 24U);  // the answer that ends the list
  EXPECT_TRUE(server.service.details.on());
  client.talk("get foo:1\r\n");
  EXPECT_NE(binary.talk(stat("detail dump")).find("detailedPREFIX foo get 1 hit 0 set 0 del 0\r\nEND\r\n"), std::string::npos);
  EXPECT_EQ(binary.talk(stat("detail off")).size(), 24U);
  EXPECT_FALSE(server.service.details.on());
  EXPECT_NE(binary.talk(stat("detail x")).find("Not found"), std::string::npos);
}

// Clients choose keys, so the number of prefixes has a bound.
TEST_F(Operations, PrefixesHaveABound) {
  client.talk("stats detail on\r\n");
  for (std::size_t i = 0; i < Details::prefixes_max + 10; ++i) client.talk("get p" + std::to_string(i) + ":x\r\n");
  EXPECT_EQ(lines_of(client.talk("stats detail dump\r\n")).size(), Details::prefixes_max + 1);
}

TEST(OperationsOfBusyClients, AConnectionYieldsAfterItsRequestsOfAnEvent) {
  Settings settings = test::test_settings();
  settings.requests_per_event = 2;
  Server server(test::small_store(), 1, settings);
  Client client(server);
  const std::string_view requests = "get a\r\nget b\r\nset c 0 0 1\r\nx\r\nget c\r\nget d\r\n";
  const std::size_t used = client.conversation.consume(requests, client.reply);
  EXPECT_EQ(used, 14U);
  EXPECT_TRUE(client.conversation.waits());
  EXPECT_EQ(test::take_all(client.reply) + client.talk(requests.substr(used)),
            "END\r\nEND\r\nSTORED\r\nVALUE c 0 1\r\nx\r\nEND\r\nEND\r\n");
  EXPECT_GE(server.service.total(Count::conn_yields), 2U);
}

TEST_F(Operations, StatisticsHaveMemcachedsNames) {
  for (const char* const name : {"pid",
                                 "uptime",
                                 "time",
                                 "version",
                                 "pointer_size",
                                 "max_connections",
                                 "curr_connections",
                                 "total_connections",
                                 "rejected_connections",
                                 "connection_structures",
                                 "cmd_get",
                                 "cmd_set",
                                 "cmd_flush",
                                 "cmd_touch",
                                 "cmd_meta",
                                 "get_hits",
                                 "get_misses",
                                 "get_expired",
                                 "get_flushed",
                                 "delete_hits",
                                 "delete_misses",
                                 "incr_hits",
                                 "incr_misses",
                                 "decr_hits",
                                 "decr_misses",
                                 "cas_hits",
                                 "cas_misses",
                                 "cas_badval",
                                 "touch_hits",
                                 "touch_misses",
                                 "store_too_large",
                                 "store_no_memory",
                                 "auth_cmds",
                                 "auth_errors",
                                 "idle_kicks",
                                 "bytes_read",
                                 "bytes_written",
                                 "limit_maxbytes",
                                 "accepting_conns",
                                 "listen_disabled_num",
                                 "time_in_listen_disabled_us",
                                 "threads",
                                 "conn_yields",
                                 "hash_power_level",
                                 "hash_bytes",
                                 "hash_is_expanding",
                                 "malloc_fails",
                                 "log_worker_dropped",
                                 "log_worker_written",
                                 "log_watcher_skipped",
                                 "log_watcher_sent",
                                 "log_watchers",
                                 "bytes",
                                 "curr_items",
                                 "total_items",
                                 "expired_unfetched",
                                 "evicted_unfetched",
                                 "evictions",
                                 "reclaimed",
                                 "lrutail_reflocked",
                                 "total_malloced"}) {
    EXPECT_NE(statistic("", name), "missing") << name;
  }
  for (const char* const name : {"maxbytes",
                                 "maxconns",
                                 "tcpport",
                                 "udpport",
                                 "inter",
                                 "verbosity",
                                 "evictions",
                                 "domain_socket",
                                 "shutdown_command",
                                 "num_threads",
                                 "stat_key_prefix",
                                 "detail_enabled",
                                 "reqs_per_event",
                                 "cas_enabled",
                                 "binding_protocol",
                                 "auth_enabled_sasl",
                                 "item_size_max",
                                 "maxconns_fast",
                                 "flush_enabled",
                                 "dump_enabled",
                                 "idle_timeout",
                                 "watcher_logbuf_size",
                                 "track_sizes",
                                 "lru_crawler",
                                 "client_flags_size"}) {
    EXPECT_NE(statistic("settings", name), "missing") << name;
  }
}

/// A name that is shown twice would hide a value from programs that read the list into a table.
TEST_F(Operations, EachStatisticIsShownOnce) {
  store("a", "1");
  for (const char* const topic : {"", "settings", "items", "slabs", "sizes"}) {
    std::set<std::string> names;
    show_statistics(server.service, topic, [&](std::string_view name, std::string_view) {
      EXPECT_TRUE(names.insert(std::string(name)).second) << topic << " " << name;
    });
    EXPECT_FALSE(names.empty()) << topic;
  }
}

TEST_F(Operations, StatisticsOfClassesCountEvictionAndExpiry) {
  store("a", "1", 1);
  store("b", std::string(200, 'b'));
  EXPECT_EQ(statistic("items", "items:1:number"), "1");
  EXPECT_EQ(statistic("slabs", "1:chunk_size"), "128");
  EXPECT_EQ(statistic("slabs", "3:used_chunks"), "1");
  EXPECT_EQ(statistic("slabs", "3:total_pages"), "1");
  EXPECT_EQ(statistic("sizes", "128"), "1");
  test::advance_s(2);
  EXPECT_EQ(client.talk("get a\r\n"), "END\r\n");
  EXPECT_EQ(statistic("items", "items:1:reclaimed"), "1");
  EXPECT_EQ(statistic("items", "items:1:expired_unfetched"), "1");
  client.talk("stats reset\r\n");
  EXPECT_EQ(statistic("items", "items:1:reclaimed"), "missing");
}

}  // namespace
}  // namespace neap::memcached
