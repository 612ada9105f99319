// SPDX-License-Identifier: BSL-1.0
#include "apps/memcached/observation.hpp"

#include <array>

#include "apps/memcached/text_line.hpp"

namespace neap::memcached {

namespace {
/// A key of 250 bytes may become 750; the other fields take less than 250.
using EventLine = TextLine<1024>;
}  // namespace

namespace observation {

void report_get(const Context& context, std::string_view key, const Store::Found& found) noexcept {
  context.service.details.note_get(key, found.item != nullptr);
  if (!context.service.watchers.wants(watched::fetchers)) return;
  EventLine line;
  line.put("type=item_get key=").uri(key).put(" status=");
  line.put(found.item != nullptr ? "found" : found.flushed ? "flushed" : found.expired ? "expired" : "not_found");
  line.put(" clsid=").number(found.item != nullptr ? Store::class_id(*found.item) : 0U).put(" cfd=").number(context.connection_id);
  line.put(" size=").number(found.item != nullptr ? found.item->value_bytes : 0U);
  context.service.watchers.write(watched::fetchers, context.service.clock.unix_us(), line.text());
}

void report_store(const Context& context, Mode mode, std::string_view key, Outcome outcome, Seconds expires, std::size_t value_bytes,
                  unsigned class_id) noexcept {
  const auto status = [outcome]() -> std::string_view {
    switch (outcome) {
      case Outcome::stored:
        return "stored";
      case Outcome::exists:
        return "exists";
      case Outcome::not_found:
        return "not_found";
      case Outcome::too_large:
        return "too_large";
      case Outcome::out_of_memory:
        return "no_memory";
      case Outcome::not_stored:
      case Outcome::not_numeric:
        break;
    }
    return "not_stored";
  };
  const auto command = [mode]() -> std::string_view {
    switch (mode) {
      case Mode::set:
        return "set";
      case Mode::add:
        return "add";
      case Mode::replace:
        return "replace";
      case Mode::append:
      case Mode::append_or_add:
        return "append";
      case Mode::prepend:
      case Mode::prepend_or_add:
        return "prepend";
      case Mode::cas:
      case Mode::cas_or_stale:
        return "cas";
    }
    return "na";
  };
  if (!context.service.watchers.wants(watched::mutations)) return;
  EventLine line;
  line.put("type=item_store key=").uri(key).put(" status=").put(status()).put(" cmd=").put(command());
  line.put(" ttl=").number(expires > context.now ? expires - context.now : 0U).put(" clsid=").number(class_id);
  line.put(" cfd=").number(context.connection_id).put(" size=").number(std::uint64_t{value_bytes});
  context.service.watchers.write(watched::mutations, context.service.clock.unix_us(), line.text());
}

void StoreReport::begin(const Context& context, Mode mode, const Item& item) noexcept {
  const std::string_view key = item.key();
  if (context.service.watchers.wants(watched::fetchers)) {  // memcached looks for an old item first, and reports that
    EventLine line;
    const Store::Found old = context.store().peek({key, item.hash}, context.now);
    line.put("type=item_get key=").uri(key).put(" status=");
    line.put(old.item != nullptr ? "found" : old.flushed ? "flushed" : old.expired ? "expired" : "not_found");
    line.put(" clsid=").number(old.item != nullptr ? Store::class_id(*old.item) : 0U).put(" cfd=").number(context.connection_id);
    line.put(" size=").number(old.item != nullptr ? old.item->value_bytes : 0U);
    context.service.watchers.write(watched::fetchers, context.service.clock.unix_us(), line.text());
  }
  if (!context.service.watchers.wants(watched::mutations)) return;
  key_bytes_ = key.size();
  key.copy(key_, key.size());
  value_bytes_ = item.value_bytes;
  expires_ = item.expires.load(std::memory_order_relaxed);
  class_id_ = Store::class_id(item);
  mode_ = mode;
}

void DeleteReport::begin(const Context& context, const Key& key) noexcept {
  context.service.details.note_delete(key.text);
  if (!context.service.watchers.wants(watched::deletions)) return;
  const Store::Found found = context.store().peek(key, context.now);
  if (found.item == nullptr) return;
  class_id_ = Store::class_id(*found.item);
  value_bytes_ = found.item->value_bytes;
}

void report_delete(const Context& context, std::string_view command, std::string_view key, unsigned class_id,
                   std::uint32_t value_bytes) noexcept {
  EventLine line;
  line.put("type=deleted key=").uri(key).put(" cmd=").put(command).put(" clsid=").number(class_id).put(" size=").number(value_bytes);
  context.service.watchers.write(watched::deletions, context.service.clock.unix_us(), line.text());
}

void report_connection(Service& service, bool begins, const net::Endpoint& remote, std::uint32_t id, std::string_view reason) noexcept {
  if (!service.watchers.wants(watched::connections)) return;
  EventLine line;
  std::array<char, net::Address::text_bytes_max> address;
  line.put(begins ? "type=conn_new rip=" : "type=conn_close rip=").put(remote.address.put_text(address));
  line.put(" rport=").number(unsigned{remote.port}).put(" transport=tcp");
  if (!begins) line.put(" reason=").put(reason);
  line.put(" cfd=").number(id);
  service.watchers.write(watched::connections, service.clock.unix_us(), line.text());
}

}  // namespace observation

void Service::evicted(const Item& item, bool used) noexcept {
  EventLine line;
  const Seconds now = clock.now(), expires = item.expires.load(std::memory_order_relaxed);
  const Seconds last_used = item.accessed.load(std::memory_order_relaxed) >> 1;
  line.put("type=eviction key=").uri(item.key()).put(" fetch=").put(used || item.was_fetched() ? "yes" : "no").put(" ttl=");
  line.number(expires == expires_never ? std::int64_t{-1} : std::int64_t{expires} - std::int64_t{now});
  line.put(" la=").number(now > last_used ? now - last_used : 0U).put(" clsid=").number(Store::class_id(item));
  line.put(" size=").number(item.value_bytes);
  watchers.write(watched::evictions, clock.unix_us(), line.text());
}

/// Whole requests are handled without a look at watchers, details, or a small number of requests for each event.
void Service::settle_observation() noexcept {
  constexpr std::uint32_t requests = watched::fetchers | watched::mutations | watched::deletions;
  const bool observed = (watchers.kinds() & requests) != 0 || details.on() || settings.requests_per_event < piece_requests_max;
  observed_.store(observed, std::memory_order_relaxed);
  reply_memory.observe(observed);
  store.observe_evictions(watchers.wants(watched::evictions) ? this : nullptr);
}

}  // namespace neap::memcached
