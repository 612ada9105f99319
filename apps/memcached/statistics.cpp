// SPDX-License-Identifier: BSL-1.0
#include "apps/memcached/statistics.hpp"

#include <algorithm>
#include <bit>
#include <charconv>
#include <string>

#include "apps/memcached/service.hpp"
#include "apps/memcached/text_line.hpp"

namespace neap::memcached {
namespace {

struct NamedCount {
  Count count;
  std::string_view name;
};
constexpr NamedCount named_counts[] = {
    {Count::cmd_get, "cmd_get"},
    {Count::cmd_set, "cmd_set"},
    {Count::cmd_flush, "cmd_flush"},
    {Count::cmd_touch, "cmd_touch"},
    {Count::cmd_meta, "cmd_meta"},
    {Count::get_hits, "get_hits"},
    {Count::get_misses, "get_misses"},
    {Count::get_expired, "get_expired"},
    {Count::get_flushed, "get_flushed"},
    {Count::delete_misses, "delete_misses"},
    {Count::delete_hits, "delete_hits"},
    {Count::incr_misses, "incr_misses"},
    {Count::incr_hits, "incr_hits"},
    {Count::decr_misses, "decr_misses"},
    {Count::decr_hits, "decr_hits"},
    {Count::cas_misses, "cas_misses"},
    {Count::cas_hits, "cas_hits"},
    {Count::cas_badval, "cas_badval"},
    {Count::touch_hits, "touch_hits"},
    {Count::touch_misses, "touch_misses"},
    {Count::store_too_large, "store_too_large"},
    {Count::store_no_memory, "store_no_memory"},
    {Count::bytes_read, "bytes_read"},
    {Count::bytes_written, "bytes_written"},
    {Count::conn_yields, "conn_yields"},
    {Count::idle_kicks, "idle_kicks"},
    {Count::uploads_reset, "uploads_reset"},
    {Count::udp_requests, "udp_requests"},
    {Count::udp_dropped, "udp_dropped"},
    {Count::reply_no_memory, "reply_no_memory"},
    {Count::holders_reset, "holders_reset"},
    {Count::reply_waits, "reply_waits"},
    {Count::protocol_errors, "protocol_errors"},
    {Count::protocol_overrun, "protocol_overrun"},
    {Count::no_progress, "no_progress"},
};

class Lines {
 public:
  explicit Lines(const StatisticSink& sink) : sink_(sink) {}
  void text(std::string_view name, std::string_view value) { sink_(name, value); }
  void number(std::string_view name, std::uint64_t value) {
    char digits[20];
    sink_(name, {digits, static_cast<std::size_t>(std::to_chars(digits, digits + sizeof digits, value).ptr - digits)});
  }
  void seconds(std::string_view name, std::uint64_t microseconds) {
    TextLine<40> line;
    sink_(name, line.number(microseconds / 1'000'000).put(".").millionths(microseconds % 1'000'000).text());
  }

 private:
  const StatisticSink& sink_;
};

std::uint64_t used_memory(const Service& service) {
  return service.store.used_bytes() + service.store.held_bytes() + service.store.retired_bytes();
}

void show_general(Service& service, Lines lines) {
  const Seconds now = service.clock.now();
  const StoreCounters store = service.store.counters();
  const std::uint32_t buckets = service.store.table().bucket_count();
  lines.number("pid", 1);
  lines.number("uptime", service.clock.uptime_s());
  lines.number("time", static_cast<std::uint64_t>(service.clock.unix_s(now)));
  lines.text("version", service.settings.version);
  lines.number("pointer_size", 8 * sizeof(void*));
  lines.seconds("rusage_user", service.busy_us != nullptr ? service.busy_us() : 0);
  lines.seconds("rusage_system", 0);  // the time of the kernel is in `rusage_user`, as both are one program
  lines.number("max_connections", service.settings.connections_max);
  lines.number("curr_connections", service.connections());
  lines.number("total_connections", service.total(Count::total_connections));
  lines.number("rejected_connections", service.total(Count::rejected_connections));
  lines.number("connection_structures", service.connections());
  for (const auto& [count, name] : named_counts) lines.number(name, service.total(count));
  lines.number("response_obj_oom", service.total(Count::reply_no_memory));
  lines.number("auth_cmds", 0);  // there is no authentication
  lines.number("auth_errors", 0);
  lines.number("limit_maxbytes", service.store.memory_bytes());
  lines.number("accepting_conns", 1);  // a connection over the limit is accepted, gets an error, and is closed
  lines.number("listen_disabled_num", 0);
  lines.number("time_in_listen_disabled_us", 0);
  lines.number("threads", service.core_count);
  lines.number("hash_power_level", static_cast<unsigned>(std::bit_width(buckets) - 1));
  lines.number("hash_bytes", std::uint64_t{buckets} * sizeof(void*));
  lines.number("hash_is_expanding", service.store.table().is_growing() ? 1 : 0);
  lines.number("malloc_fails", service.total(Count::store_no_memory) + service.total(Count::reply_no_memory));
  lines.number("log_worker_dropped", 0);  // lines go to the watchers' buffers at once
  lines.number("log_worker_written", service.watchers.sent() + service.watchers.skipped());
  lines.number("log_watcher_skipped", service.watchers.skipped());
  lines.number("log_watcher_sent", service.watchers.sent());
  lines.number("log_watchers", service.watchers.count());
  lines.number("bytes", store.bytes);
  lines.number("held_bytes", service.store.held_bytes());
  lines.number("upload_bytes", service.upload_bytes());
  lines.number("reply_bytes", service.reply_memory.bytes());
  lines.number("reply_limit_bytes", service.reply_memory.limit_bytes());
  lines.number("reply_spare_bytes", service.reply_spare_bytes());
  lines.number("curr_items", store.items);
  lines.number("total_items", store.items_ever);
  lines.number("expired_unfetched", store.expired_unfetched);
  lines.number("evicted_unfetched", store.evicted_unfetched);
  lines.number("evictions", store.evictions);
  lines.number("direct_reclaims", store.evictions);  // the command that needs the memory evicts
  lines.number("reclaimed", store.reclaimed);
  lines.number("lrutail_reflocked", 0);  // an item that a reply holds is evicted all the same; the reply keeps its memory
  lines.number("lru_crawler_running", service.store.crawl_is_due(now) && service.crawler_on.load(std::memory_order_relaxed) ? 1 : 0);
  lines.number("lru_crawler_starts", store.crawler_starts);
  lines.number("crawler_reclaimed", store.crawler_reclaimed);
  lines.number("crawler_items_checked", store.crawler_checked);
  lines.number("second_chances", store.second_chances);
  lines.number("chain_evictions", store.chain_evictions);
  lines.number("items_moved", store.moved);
  lines.number("memory_waits", store.waits);
  lines.number("retired_bytes", service.store.retired_bytes());
  lines.number("total_malloced", used_memory(service));
}

void show_settings(const Service& service, Lines lines) {
  const Settings& settings = service.settings;
  const auto yes_if = [](bool value) -> std::string_view { return value ? "yes" : "no"; };
  lines.number("maxbytes", service.store.memory_bytes());
  lines.number("maxconns", settings.connections_max);
  lines.number("maxconns_peer", settings.peer_connections_max);
  lines.number("tcpport", settings.port);
  lines.number("udpport", settings.udp_port);
  lines.text("inter", settings.address);
  lines.number("verbosity", service.verbosity.load(std::memory_order_relaxed));
  lines.text("evictions", service.store.evictions() ? "on" : "off");
  lines.text("domain_socket", "NULL");  // there are no UNIX sockets
  lines.text("shutdown_command", yes_if(settings.shutdown_enabled));
  lines.number("num_threads", service.core_count);
  lines.number("num_threads_per_udp", settings.udp_port != 0 ? service.core_count : 0);
  lines.text("stat_key_prefix", {&settings.key_prefix_end, 1});
  lines.text("detail_enabled", yes_if(service.details.on()));
  lines.number("reqs_per_event", settings.requests_per_event);
  lines.text("cas_enabled", "yes");
  lines.text("binding_protocol", settings.binding == Binding::text     ? "ascii"
                                 : settings.binding == Binding::binary ? "binary"
                                                                       : "auto-negotiate");
  lines.text("auth_enabled_sasl", "no");
  lines.text("auth_enabled_ascii", "no");
  lines.number("item_size_max", service.store.value_bytes_max());
  lines.text("maxconns_fast", "yes");
  lines.text("slab_reassign", "no");
  lines.number("slab_automove", 0);
  lines.text("lru_crawler", yes_if(service.crawler_on.load(std::memory_order_relaxed)));
  lines.number("lru_crawler_sleep", 0);    // the crawler works while its core is idle
  lines.number("lru_crawler_tocrawl", 0);  // a pass visits all items
  lines.text("lru_maintainer_thread", "no");
  lines.text("lru_segmented", "no");
  lines.text("temp_lru", "no");
  lines.text("flush_enabled", yes_if(settings.flush_enabled));
  lines.text("dump_enabled", yes_if(settings.dump_enabled));
  lines.text("watch_enabled", yes_if(settings.watch_enabled));
  lines.text("hash_algorithm", service.store.seed().uses_aes ? "aes" : "siphash-1-3");
  lines.number("idle_timeout", settings.idle_timeout_s);
  lines.number("watcher_logbuf_size", settings.watcher_buffer_bytes);
  lines.text("track_sizes", "yes");
  lines.text("inline_ascii_response", "no");
  lines.text("ssl_enabled", "no");
  lines.number("client_flags_size", sizeof Item::flags);
}

/// Calls `show` for each group of items. The store has no slab classes, so a group has the items whose sizes round up to one power of two.
/// Its number begins at 1, as the numbers of slab classes.
template <typename Show>
void for_each_size(const Service& service, Show show) {
  const auto sizes = service.store.sizes();
  for (unsigned at = Store::first_size_class; at < sizes.size(); ++at) {
    if (sizes[at].items > 0 || sizes[at].evictions > 0 || sizes[at].reclaimed > 0) show(at, sizes[at]);
  }
}

void show_items(const Service& service, Lines lines) {
  const Seconds now = service.clock.now(), age = service.store.oldest_age(now);
  for_each_size(service, [&](unsigned at, const Store::SizeClass& size) {
    const std::string prefix = "items:" + std::to_string(at - Store::first_size_class + 1) + ":";
    lines.number(prefix + "number", size.items);
    lines.number(prefix + "age", age);
    lines.number(prefix + "mem_requested", size.bytes);
    lines.number(prefix + "evicted", size.evictions);
    lines.number(prefix + "evicted_nonzero", size.evicted_nonzero);
    lines.number(prefix + "evicted_time", size.evictions == 0 ? 0 : now - std::min(now, size.last_evicted_used));
    lines.number(prefix + "outofmemory", 0);  // memory runs out for the whole cache: `store_no_memory`
    lines.number(prefix + "tailrepairs", 0);  // references are not lost
    lines.number(prefix + "lrutail_reflocked", 0);
    lines.number(prefix + "reclaimed", size.reclaimed);
    lines.number(prefix + "crawler_reclaimed", size.crawler_reclaimed);
    lines.number(prefix + "expired_unfetched", size.expired_unfetched);
    lines.number(prefix + "evicted_unfetched", size.evicted_unfetched);
  });
}

/// A "page" is a mebibyte, and a "chunk" the largest size of the group, because memcached's programs compute memory with these two.
/// A name MUST NOT be in `show_items`, too: memcached_exporter refuses the statistics of a server that has a name in both.
void show_slabs(const Service& service, Lines lines) {
  constexpr std::uint64_t page_bytes = 1 << 20;
  unsigned active = 0;
  for_each_size(service, [&](unsigned at, const Store::SizeClass& size) {
    const std::string prefix = std::to_string(at - Store::first_size_class + 1) + ":";
    const std::uint64_t chunk_bytes = std::uint64_t{1} << at;
    lines.number(prefix + "chunk_size", chunk_bytes);
    lines.number(prefix + "chunks_per_page", std::max<std::uint64_t>(page_bytes / chunk_bytes, 1));
    lines.number(prefix + "total_pages", (size.bytes + page_bytes - 1) / page_bytes);
    lines.number(prefix + "total_chunks", size.items);
    lines.number(prefix + "used_chunks", size.items);
    lines.number(prefix + "free_chunks", 0);  // free memory belongs to all sizes
    lines.number(prefix + "free_chunks_end", 0);
    for (const std::string_view count : {"cmd_set", "cas_hits", "cas_badval"}) {
      lines.number(prefix + std::string(count), 0);  // commands are counted for all sizes together; memcached_exporter needs these names
    }
    ++active;
  });
  lines.number("active_slabs", active);
  lines.number("total_malloced", used_memory(service));
}

}  // namespace

StatisticsAnswer show_statistics(Service& service, std::string_view topic, const StatisticSink& sink) {
  if (topic == "reset") {
    service.reset_totals();
    service.store.reset_counters();
    service.details.clear();
    return StatisticsAnswer::reset;
  }
  if (topic.empty()) {
    show_general(service, Lines(sink));
  } else if (topic == "settings") {
    show_settings(service, Lines(sink));
  } else if (topic == "items") {
    show_items(service, Lines(sink));
  } else if (topic == "slabs") {
    show_slabs(service, Lines(sink));
  } else if (topic == "sizes") {
    for_each_size(service, [&](unsigned at, const Store::SizeClass& size) {
      if (size.items != 0) Lines(sink).number(std::to_string(std::uint64_t{1} << at), size.items);
    });
  } else {
    return StatisticsAnswer::unknown;
  }
  return StatisticsAnswer::shown;
}

void report_counters(Service& service, std::optional<unsigned> core, const Emit& emit) {
  const auto value = [&](Count count) { return core ? service.core(*core).statistics.value(count) : service.total(count); };
  emit("requests", value(Count::requests));
  emit("total_connections", value(Count::total_connections));
  for (const auto& [count, name] : named_counts) emit(name, value(count));
  if (core) return;
  const StoreCounters store = service.store.counters();
  emit("curr_connections", service.connections());
  emit("rejected_connections", service.total(Count::rejected_connections));
  emit("upload_bytes", service.upload_bytes());
  emit("log_watchers", service.watchers.count());
  emit("bytes", store.bytes);
  emit("held_bytes", service.store.held_bytes());
  emit("reply_bytes", service.reply_memory.bytes());
  emit("reply_limit_bytes", service.reply_memory.limit_bytes());
  emit("reply_spare_bytes", service.reply_spare_bytes());
  emit("curr_items", store.items);
  emit("evictions", store.evictions);
  emit("chain_evictions", store.chain_evictions);
  emit("items_moved", store.moved);
  emit("memory_waits", store.waits);
  emit("retired_bytes", service.store.retired_bytes());
}

std::uint64_t Service::total(Count which) const noexcept {
  std::uint64_t sum = 0;
  for (unsigned core = 0; core < core_count; ++core) sum += cores_[core].statistics.value(which);
  return sum - at_reset_[static_cast<std::size_t>(which)].load(std::memory_order_relaxed);
}

void Service::reset_totals() noexcept {
  for (std::size_t at = 0; at < at_reset_.size(); ++at) at_reset_[at].fetch_add(total(static_cast<Count>(at)), std::memory_order_relaxed);
}

std::size_t Service::reply_spare_bytes() const noexcept {
  std::size_t sum = 0;
  for (unsigned core = 0; core < core_count; ++core) sum += cores_[core].replies.spare_bytes();
  return sum;
}

std::size_t Service::upload_bytes() const noexcept {
  std::size_t sum = 0;
  for (unsigned core = 0; core < core_count; ++core) sum += cores_[core].uploads.bytes();
  return sum;
}

std::uint64_t Service::connections() const noexcept {
  std::uint64_t open = 0;
  for (unsigned core = 0; core < core_count; ++core) {
    open += cores_[core].statistics.value(Count::total_connections) - cores_[core].statistics.value(Count::closed_connections);
  }
  return open;
}

}  // namespace neap::memcached
