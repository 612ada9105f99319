// SPDX-License-Identifier: BSL-1.0
#include "apps/memcached/options.hpp"

#include <algorithm>
#include <optional>
#include <string>

#include "apps/memcached/numbers.hpp"

namespace neap::memcached {
namespace {

constexpr std::uint64_t mebibyte = 1 << 20;
constexpr std::uint64_t value_bytes_limit = 128 * mebibyte;
constexpr unsigned connections_core = 16384;   // the network stack's limit
constexpr unsigned idle_timeout_s_max = 3600;  // a probe of TCP after two hours would count as a sign of the client
constexpr std::uint64_t hashpower_min = 6;     // a bucket for each shard
constexpr std::uint64_t hashpower_max = 30;

constexpr std::string_view no_process = "there are no processes, users and signals, because the machine runs this one program";
constexpr std::string_view no_classes =
    "items come from the kernel's heap, which moves empty slabs between sizes, so there are no slab classes to set up";
constexpr std::string_view no_lru = "eviction is a clock with second chances for each part of the table, not a list in segments";
constexpr std::string_view no_tls = "there is no TLS; use a separate network or a tunnel";
constexpr std::string_view no_extstore = "there is no storage device, so no extstore";
constexpr std::string_view no_proxy = "there is no proxy";
constexpr std::string_view no_buffers = "a connection without work in progress holds no buffer; memory-limit= limits replies, too";

constexpr RefusedOption refused[] = {
    {"unix-socket", "there are no UNIX sockets; clients use the network"},
    {"unix-mask", "there are no UNIX sockets; clients use the network"},
    {"listen", "the machine has one address; ip= sets it"},
    {"daemon", no_process},
    {"user", no_process},
    {"pidfile", no_process},
    {"enable-coredumps", "a panic is reported on the console, and after a restart by control"},
    {"lock-memory", "memory is never paged out"},
    {"enable-largepages", "all memory is mapped by large pages already"},
    {"verbose", "requests are not printed; the command watch shows them"},
    {"help", "a wrong word shows all accepted words"},
    {"version", "the console and the command version show it"},
    {"license", "the file LICENSE has the licence"},
    {"threads", "each core runs one event loop; cores= chooses the cores"},
    {"listen-backlog", "the backlog is fixed, and SYN cookies serve clients beyond it"},
    {"disable-cas", "every item has a CAS id, and its memory would not be saved"},
    {"napi-ids", "the card's RSS chooses the core of a connection"},
    {"enable-sasl", "there is no SASL; use a separate network or a tunnel"},
    {"auth-file", "there is no authentication; use a separate network or a tunnel"},
    {"memory-file", "a restart begins with an empty cache, because memory is not kept"},
    {"extended", "there is no -o; write the names behind it as words of their own"},
    {"slab-growth-factor", no_classes},
    {"slab-min-size", no_classes},
    {"slab_sizes", no_classes},
    {"slab_reassign", no_classes},
    {"no_slab_reassign", no_classes},
    {"slab_automove", no_classes},
    {"no_slab_automove", no_classes},
    {"slab_automove_ratio", no_classes},
    {"slab_automove_window", no_classes},
    {"slab_automove_freeratio", no_classes},
    {"slab_chunk_max", no_classes},
    {"no_chunked_items", no_classes},
    {"lru_maintainer", no_lru},
    {"no_lru_maintainer", no_lru},
    {"hot_lru_pct", no_lru},
    {"warm_lru_pct", no_lru},
    {"hot_max_factor", no_lru},
    {"warm_max_factor", no_lru},
    {"temporary_ttl", no_lru},
    {"no_lru_crawler", "the crawler has one word; write lru_crawler=off"},
    {"lru_crawler_sleep", "the crawler works only while its core has nothing else to do"},
    {"lru_crawler_tocrawl", "a pass of the crawler visits all items"},
    {"modern", "it sets options that do not exist here"},
    {"no_modern", "it sets options that do not exist here"},
    {"maxconns_fast", "it is always on: a connection over conn-limit gets an error and is closed"},
    {"no_maxconns_fast", "a connection over conn-limit always gets an error and is closed"},
    {"no_hashexpand", "a table that does not grow would make every request slower"},
    {"tail_repair_time", "an item that a reply holds is never in the way of eviction"},
    {"hash_algorithm", "keys are hashed under a secret, because clients choose them"},
    {"worker_logbuf_size", "lines for watchers are written to their buffers at once; see watcher_logbuf_size"},
    {"track_sizes", "stats sizes always counts"},
    {"no_inline_ascii_resp", "it has no effect in memcached either"},
    {"inline_ascii_resp", "it has no effect in memcached either"},
    {"drop_privileges", no_process},
    {"no_drop_privileges", no_process},
    {"relaxed_privileges", no_process},
    {"sock_cookie_id", no_process},
    {"resp_obj_mem_limit", no_buffers},
    {"read_buf_mem_limit", no_buffers},
    {"enable-ssl", no_tls},
    {"ssl_chain_cert", no_tls},
    {"ssl_key", no_tls},
    {"ssl_verify_mode", no_tls},
    {"ssl_keyformat", no_tls},
    {"ssl_ciphers", no_tls},
    {"ssl_ca_cert", no_tls},
    {"ssl_wbuf_size", no_tls},
    {"ssl_session_cache", no_tls},
    {"ssl_kernel_tls", no_tls},
    {"ssl_min_version", no_tls},
    {"ext_path", no_extstore},
    {"ext_page_size", no_extstore},
    {"ext_wbuf_size", no_extstore},
    {"ext_threads", no_extstore},
    {"ext_io_depth", no_extstore},
    {"ext_item_size", no_extstore},
    {"ext_item_age", no_extstore},
    {"ext_low_ttl", no_extstore},
    {"ext_drop_unread", no_extstore},
    {"ext_recache_rate", no_extstore},
    {"ext_compact_under", no_extstore},
    {"ext_drop_under", no_extstore},
    {"ext_max_frag", no_extstore},
    {"ext_max_sleep", no_extstore},
    {"proxy_config", no_proxy},
    {"proxy_arg", no_proxy},
    {"proxy_uring", no_proxy},
    {"proxy_memprofile", no_proxy},
};

std::uint32_t to_32(std::uint64_t number) { return static_cast<std::uint32_t>(number); }

/// memcached's form of a size: bytes, or a number with k or m.
std::optional<std::uint64_t> read_size(std::string_view text) {
  std::uint64_t unit = 1;
  if (text.ends_with('k') || text.ends_with('K')) unit = 1 << 10;
  if (text.ends_with('m') || text.ends_with('M')) unit = mebibyte;
  if (unit != 1) text.remove_suffix(1);
  const auto number = read_unsigned(text);
  if (!number || *number > value_bytes_limit) return std::nullopt;
  return *number * unit;
}

/// Two words for the same limit: memcached's, in megabytes, and Neap's, in bytes.
std::uint64_t read_memory(Arguments& arguments, std::uint64_t bytes_max) {
  constexpr std::string_view main_word = "memory-limit", bytes_word = "memory";
  const std::uint64_t otherwise = std::min(64 * mebibyte, bytes_max);
  const std::uint64_t in_mebibytes =
      arguments.number(main_word, otherwise / mebibyte, {1, std::max<std::uint64_t>(bytes_max / mebibyte, 1)},
                       "MiB of memory for items; beyond it the least recently used are evicted");
  const std::uint64_t in_bytes = arguments.bytes(bytes_word, otherwise, {mebibyte, bytes_max}, "the same limit in bytes");
  if (!arguments.has(main_word)) return in_bytes;
  if (arguments.has(bytes_word)) arguments.reject(bytes_word, "and memory-limit= are the same limit: give one of them");
  return in_mebibytes * mebibyte;
}

std::uint64_t read_item_size(Arguments& arguments) {
  constexpr std::string_view main_word = "max-item-size", bytes_word = "max_item";
  const std::string text = arguments.text(main_word, "1m", "the largest value that is stored: bytes, or a number with k or m; 1k to 128m");
  const std::uint64_t in_bytes = arguments.bytes(bytes_word, mebibyte, {1024, value_bytes_limit}, "the same limit, with K or M");
  if (!arguments.has(main_word)) return in_bytes;
  if (arguments.has(bytes_word)) arguments.reject(bytes_word, "and max-item-size= are the same limit: give one of them");
  const auto size = read_size(text);
  if (!size || *size < 1024 || *size > value_bytes_limit) {
    arguments.reject(main_word, "is not a size from 1k to 128m");
    return mebibyte;
  }
  return *size;
}

/// A value of more than half of the memory could evict all other items, so stock memcached refuses such a limit, too.
void check_item_size(Arguments& arguments, const StoreOptions& store) {
  for (const std::string_view word : {"max-item-size", "max_item"}) {
    if (arguments.has(word) && store.value_bytes_max > store.memory_bytes / 2)
      arguments.reject(word, "is more than half of the memory for items; raise memory-limit=");
  }
}

}  // namespace

std::span<const RefusedOption> refused_options() noexcept { return refused; }

Options read_options(Arguments& arguments, std::uint64_t memory_bytes_max, unsigned cores) {
  Options options;
  Settings& settings = options.settings;
  settings.port = static_cast<std::uint16_t>(arguments.number("port", 11211, {1, 65535}, "TCP port on which clients are served"));
  settings.udp_port = static_cast<std::uint16_t>(arguments.number(
      "udp-port", 0, {0, 65535}, "UDP port; 0: no UDP, because a forged sender's address makes a server of UDP flood that address"));
  options.store.memory_bytes = read_memory(arguments, memory_bytes_max);
  options.store.value_bytes_max = to_32(read_item_size(arguments));
  check_item_size(arguments, options.store);
  settings.evictions = !arguments.flag("disable-evictions", false, "if the memory is used up, refuse to store instead of evicting");
  options.store.evictions = settings.evictions;
  options.store.buckets =
      std::uint32_t{1} << arguments.number("hashpower", 14, {hashpower_min, hashpower_max}, "the table begins with 2^N buckets and grows");

  const std::uint64_t connections_max = std::uint64_t{connections_core} * cores;
  settings.connections_max = to_32(arguments.number("conn-limit", connections_max, {1, connections_max}, "open connections"));
  settings.peer_connections_max =
      to_32(arguments.number("conn-limit-peer", 0, {0, connections_max}, "open connections of one address; 0: no limit"));
  settings.idle_timeout_s =
      to_32(arguments.number("idle_timeout", 0, {0, idle_timeout_s_max}, "seconds until a silent connection is reset; 0: never"));
  settings.requests_per_event = to_32(
      arguments.number("max-reqs-per-event", 1000, {1, 1'000'000}, "requests of one connection after which other connections are served"));
  settings.crawler = arguments.flag("lru_crawler", true, "free expired items in idle time");
  constexpr Binding bindings[] = {Binding::automatic, Binding::text, Binding::binary};
  settings.binding = bindings[arguments.choice("protocol", {"auto", "ascii", "binary"}, 0, "the protocol; auto: the first byte decides")];

  settings.flush_enabled = !arguments.flag("disable-flush-all", false, "refuse flush_all");
  settings.dump_enabled = !arguments.flag("disable-dumping", false, "refuse stats cachedump, stats detail and lru_crawler metadump");
  settings.watch_enabled = !arguments.flag("disable-watch", false, "refuse watch");
  settings.shutdown_enabled = arguments.flag("enable-shutdown", false, "allow shutdown, which switches the machine off");
  settings.detail_enabled = arguments.has("stat_key_prefix");
  const std::string prefix_end =
      arguments.text("stat_key_prefix", ":", "stats detail counts keys by the part before this character; the word turns it on");
  if (prefix_end.size() == 1) {
    settings.key_prefix_end = prefix_end.front();
  } else {
    arguments.reject("stat_key_prefix", "is not one character");
  }
  settings.watcher_buffer_bytes =
      to_32(arguments.number("watcher_logbuf_size", 256, {8, 4096}, "KiB for lines that a watcher has not read")) << 10;
  for (const RefusedOption& option : refused_options()) {
    const bool has_remedy = option.why.contains(';');
    arguments.refuse(option.name, "is refused: " + std::string(option.why) + (has_remedy ? "" : "; leave it out"));
  }
  return options;
}

}  // namespace neap::memcached
