// SPDX-License-Identifier: BSL-1.0
#include "apps/memcached/statistics.hpp"

#include <bit>
#include <charconv>
#include <string>

#include "apps/memcached/service.hpp"

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

 private:
  const StatisticSink& sink_;
};

void show_general(Service& service, Lines lines) {
  const Seconds now = service.clock.now();
  const StoreCounters store = service.store.counters();
  const std::uint32_t buckets = service.store.table().bucket_count();
  lines.number("pid", 1);
  lines.number("uptime", service.clock.uptime_s());
  lines.number("time", static_cast<std::uint64_t>(service.clock.unix_s(now)));
  lines.text("version", service.settings.version);
  lines.number("pointer_size", 8 * sizeof(void*));
  lines.number("curr_connections", service.connections());
  lines.number("total_connections", service.total(Count::total_connections));
  lines.number("rejected_connections", service.total(Count::rejected_connections));
  for (const auto& [count, name] : named_counts) lines.number(name, service.total(count));
  lines.number("limit_maxbytes", service.store.memory_bytes());
  lines.number("threads", service.core_count);
  lines.number("hash_power_level", static_cast<unsigned>(std::bit_width(buckets) - 1));
  lines.number("hash_bytes", std::uint64_t{buckets} * sizeof(void*));
  lines.number("hash_is_expanding", service.store.table().is_growing() ? 1 : 0);
  lines.number("bytes", store.bytes);
  lines.number("held_bytes", service.store.held_bytes());
  lines.number("reply_bytes", service.reply_memory.bytes());
  lines.number("reply_limit_bytes", service.reply_memory.limit_bytes());
  lines.number("reply_spare_bytes", service.reply_spare_bytes());
  lines.number("curr_items", store.items);
  lines.number("total_items", store.items_ever);
  lines.number("expired_unfetched", store.expired_unfetched);
  lines.number("evicted_unfetched", store.evicted_unfetched);
  lines.number("evictions", store.evictions);
  lines.number("reclaimed", store.reclaimed);
  lines.number("second_chances", store.second_chances);
  lines.number("chain_evictions", store.chain_evictions);
  lines.number("items_moved", store.moved);
  lines.number("memory_waits", store.waits);
  lines.number("retired_bytes", service.store.retired_bytes());
}

void show_settings(const Service& service, Lines lines) {
  lines.number("maxbytes", service.store.memory_bytes());
  lines.number("tcpport", service.settings.port);
  lines.number("udpport", 0);
  lines.text("inter", service.settings.address);
  lines.number("verbosity", 0);
  lines.text("evictions", "on");
  lines.number("num_threads", service.core_count);
  lines.text("detail_enabled", "no");
  lines.text("cas_enabled", "yes");
  lines.text("binding_protocol", "auto-negotiate");
  lines.text("auth_enabled_sasl", "no");
  lines.text("auth_enabled_ascii", "no");
  lines.number("item_size_max", service.store.value_bytes_max());
  lines.text("flush_enabled", "yes");
  lines.text("lru_crawler", "no");
}

/// Calls `show` for each group of items. The store has no slab classes, so a group has the items whose sizes round up to one power of two.
template <typename Show>
void for_each_size(const Service& service, Show show) {
  const auto sizes = service.store.sizes();
  for (unsigned at = 0; at < sizes.size(); ++at) {
    if (sizes[at].items > 0 || sizes[at].evictions > 0) show(at, sizes[at]);
  }
}

void show_items(const Service& service, Lines lines) {
  const Seconds age = service.store.oldest_age(service.clock.now());
  for_each_size(service, [&](unsigned at, const Store::SizeClass& size) {
    const std::string prefix = "items:" + std::to_string(at) + ":";
    lines.number(prefix + "number", size.items);
    lines.number(prefix + "age", age);
    lines.number(prefix + "mem_requested", size.bytes);
    lines.number(prefix + "evicted", size.evictions);
  });
}

/// A name MUST NOT be in `show_items`, too: memcached_exporter refuses the statistics of a server that has a name in both.
void show_slabs(const Service& service, Lines lines) {
  unsigned active = 0;
  for_each_size(service, [&](unsigned at, const Store::SizeClass& size) {
    const std::string prefix = std::to_string(at) + ":";
    lines.number(prefix + "chunk_size", std::uint64_t{1} << at);
    lines.number(prefix + "used_chunks", size.items);
    ++active;
  });
  lines.number("active_slabs", active);
  lines.number("total_malloced", service.store.used_bytes() + service.store.held_bytes() + service.store.retired_bytes());
}

}  // namespace

StatisticsAnswer show_statistics(Service& service, std::string_view topic, const StatisticSink& sink) {
  if (topic == "reset") {
    service.reset_totals();
    service.store.reset_counters();
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
      Lines(sink).number(std::to_string(std::uint64_t{1} << at), size.items);
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

std::uint64_t Service::connections() const noexcept {
  std::uint64_t open = 0;
  for (unsigned core = 0; core < core_count; ++core) {
    open += cores_[core].statistics.value(Count::total_connections) - cores_[core].statistics.value(Count::closed_connections);
  }
  return open;
}

}  // namespace neap::memcached
