// SPDX-License-Identifier: BSL-1.0
#include "apps/memcached/options.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace neap::memcached {
namespace {

constexpr std::uint64_t mebibyte = 1 << 20;

Options read(Arguments& arguments) { return read_options(arguments, 1024 * mebibyte, 2); }

/// The long options of memcached 1.6, and the names behind its option -o.
constexpr const char* memcached_options[] = {"unix-mask",
                                             "enable-shutdown",
                                             "enable-ssl",
                                             "port",
                                             "unix-socket",
                                             "udp-port",
                                             "memory-limit",
                                             "disable-evictions",
                                             "conn-limit",
                                             "lock-memory",
                                             "help",
                                             "license",
                                             "version",
                                             "enable-coredumps",
                                             "verbose",
                                             "daemon",
                                             "listen",
                                             "user",
                                             "pidfile",
                                             "slab-growth-factor",
                                             "slab-min-size",
                                             "threads",
                                             "enable-largepages",
                                             "max-reqs-per-event",
                                             "disable-cas",
                                             "listen-backlog",
                                             "protocol",
                                             "max-item-size",
                                             "enable-sasl",
                                             "disable-flush-all",
                                             "disable-dumping",
                                             "disable-watch",
                                             "auth-file",
                                             "memory-file",
                                             "extended",
                                             "napi-ids",
                                             "maxconns_fast",
                                             "hashpower",
                                             "no_hashexpand",
                                             "slab_reassign",
                                             "slab_automove",
                                             "slab_automove_ratio",
                                             "slab_automove_window",
                                             "tail_repair_time",
                                             "hash_algorithm",
                                             "lru_crawler",
                                             "lru_crawler_sleep",
                                             "lru_crawler_tocrawl",
                                             "lru_maintainer",
                                             "hot_lru_pct",
                                             "warm_lru_pct",
                                             "hot_max_factor",
                                             "warm_max_factor",
                                             "temporary_ttl",
                                             "idle_timeout",
                                             "watcher_logbuf_size",
                                             "worker_logbuf_size",
                                             "slab_sizes",
                                             "slab_chunk_max",
                                             "track_sizes",
                                             "no_inline_ascii_resp",
                                             "modern",
                                             "no_modern",
                                             "no_chunked_items",
                                             "no_slab_reassign",
                                             "no_slab_automove",
                                             "no_maxconns_fast",
                                             "inline_ascii_resp",
                                             "no_lru_crawler",
                                             "no_lru_maintainer",
                                             "no_drop_privileges",
                                             "drop_privileges",
                                             "resp_obj_mem_limit",
                                             "read_buf_mem_limit",
                                             "ssl_chain_cert",
                                             "ssl_key",
                                             "ssl_verify_mode",
                                             "ssl_keyformat",
                                             "ssl_ciphers",
                                             "ssl_ca_cert",
                                             "ssl_wbuf_size",
                                             "ssl_session_cache",
                                             "ssl_kernel_tls",
                                             "ssl_min_version",
                                             "proxy_config",
                                             "proxy_arg",
                                             "proxy_uring",
                                             "proxy_memprofile",
                                             "relaxed_privileges",
                                             "sock_cookie_id",
                                             "ext_path",
                                             "ext_page_size",
                                             "ext_wbuf_size",
                                             "ext_threads",
                                             "ext_io_depth",
                                             "ext_item_size",
                                             "ext_item_age",
                                             "ext_low_ttl",
                                             "ext_recache_rate",
                                             "ext_compact_under",
                                             "ext_drop_under",
                                             "ext_max_frag",
                                             "ext_max_sleep",
                                             "ext_drop_unread",
                                             "slab_automove_freeratio"};

// A user of memcached learns for each of its options what it means here, or why it has no meaning.
TEST(MemcachedOptions, EveryOptionOfMemcachedIsKnown) {
  for (const std::string name : memcached_options) {
    Arguments arguments(name + "=1");
    (void)read(arguments);
    EXPECT_EQ(arguments.complaints().find("is not known"), std::string::npos) << arguments.complaints();
  }
}

TEST(MemcachedOptions, ARefusedOptionGivesItsReasonAndARemedy) {
  for (const RefusedOption& option : refused_options()) {
    Arguments arguments(option.name);
    (void)read(arguments);
    const std::string complaint = arguments.complaints();
    EXPECT_TRUE(complaint.starts_with(std::string(option.name) + "= is refused: " + std::string(option.why))) << complaint;
    EXPECT_EQ(std::ranges::count(complaint, ';'), 1) << "not a reason and a remedy: " << complaint;
    EXPECT_FALSE(option.why.ends_with('.')) << option.name;
  }
}

TEST(MemcachedOptions, WithoutWordsTheDefaultsHold) {
  Arguments arguments("");
  const Options options = read(arguments);
  EXPECT_EQ(arguments.complaints(), "");
  EXPECT_EQ(options.settings.port, 11211);
  EXPECT_EQ(options.settings.udp_port, 0);
  EXPECT_EQ(options.store.memory_bytes, 64 * mebibyte);
  EXPECT_EQ(options.store.value_bytes_max, mebibyte);
  EXPECT_TRUE(options.store.evictions);
  EXPECT_EQ(options.settings.connections_max, 2 * 16384U);
  EXPECT_EQ(options.settings.idle_timeout_s, 0U);
  EXPECT_FALSE(options.settings.shutdown_enabled);
  EXPECT_TRUE(options.settings.flush_enabled && options.settings.dump_enabled && options.settings.watch_enabled);
}

TEST(MemcachedOptions, HaveTheirMeanings) {
  Arguments arguments(
      "port=7 udp-port=8 memory-limit=100 disable-evictions=on conn-limit=9 conn-limit-peer=3 idle_timeout=10 max-reqs-per-event=20 "
      "protocol=ascii max-item-size=2m disable-flush-all=on disable-dumping=on disable-watch=on enable-shutdown=on hashpower=16 "
      "stat_key_prefix=- watcher_logbuf_size=8");
  const Options options = read(arguments);
  const Settings& settings = options.settings;
  EXPECT_EQ(arguments.complaints(), "");
  EXPECT_EQ(settings.port, 7);
  EXPECT_EQ(settings.udp_port, 8);
  EXPECT_EQ(options.store.memory_bytes, 100 * mebibyte);
  EXPECT_FALSE(options.store.evictions);
  EXPECT_EQ(settings.connections_max, 9U);
  EXPECT_EQ(settings.peer_connections_max, 3U);
  EXPECT_EQ(settings.idle_timeout_s, 10U);
  EXPECT_EQ(settings.requests_per_event, 20U);
  EXPECT_EQ(settings.binding, Binding::text);
  EXPECT_EQ(options.store.value_bytes_max, 2 * mebibyte);
  EXPECT_FALSE(settings.flush_enabled || settings.dump_enabled || settings.watch_enabled);
  EXPECT_TRUE(settings.shutdown_enabled && settings.detail_enabled);
  EXPECT_EQ(options.store.buckets, 1U << 16);
  EXPECT_EQ(settings.key_prefix_end, '-');
  EXPECT_EQ(settings.watcher_buffer_bytes, 8U << 10);
}

TEST(MemcachedOptions, TwoWordsForOneLimitAreAContradiction) {
  for (const char* const line : {"memory=64M memory-limit=64", "max_item=1M max-item-size=1m"}) {
    Arguments arguments(line);
    (void)read(arguments);
    EXPECT_NE(arguments.complaints().find("are the same limit"), std::string::npos) << line;
  }
}

TEST(MemcachedOptions, AValueOfMoreThanHalfOfTheMemoryIsRefused) {
  for (const char* const line : {"max-item-size=33m", "max_item=33M", "max-item-size=5m memory-limit=9"}) {
    Arguments arguments(line);
    (void)read(arguments);
    EXPECT_NE(arguments.complaints().find("is more than half of the memory for items; raise memory-limit="), std::string::npos) << line;
  }
  for (const char* const line : {"max-item-size=32m", "max-item-size=128m memory-limit=256", "memory-limit=1"}) {
    Arguments arguments(line);
    (void)read(arguments);
    EXPECT_EQ(arguments.complaints(), "") << line;
  }
}

TEST(MemcachedOptions, SizesOfItemsAreThoseThatMemcachedAccepts) {
  for (const auto& [text, bytes] : {std::pair{"1k", 1024U}, {"1024", 1024U}, {"512K", 512U << 10}, {"128m", 128U << 20}}) {
    Arguments arguments(std::string("memory-limit=256 max-item-size=") + text);
    EXPECT_EQ(read(arguments).store.value_bytes_max, bytes) << text;
    EXPECT_EQ(arguments.complaints(), "");
  }
  for (const char* const text : {"1000", "129m", "1g", "", "k", "x"}) {
    Arguments arguments(std::string("max-item-size=") + text);
    (void)read(arguments);
    EXPECT_NE(arguments.complaints(), "") << text;
  }
}

}  // namespace
}  // namespace neap::memcached
