// SPDX-License-Identifier: BSL-1.0
#include "apps/memcached/dump.hpp"

#include "apps/memcached/base64.hpp"
#include "apps/memcached/numbers.hpp"
#include "apps/memcached/text_line.hpp"

namespace neap::memcached {

namespace {
bool is_shown_as_it_is(const Item& item) noexcept { return !item.has_mark(Item::mark_binary_key) && is_one_word(item.key()); }
}  // namespace

std::uint32_t class_bits(std::string_view classes) noexcept {
  if (classes == "all" || classes == "hash") return all_classes;
  std::uint32_t bits = 0;
  for (;;) {
    const std::size_t end = classes.find(',');
    bits |= std::uint32_t{1} << (read_unsigned(classes.substr(0, end)).value_or(0) % Store::size_classes);
    if (end == std::string_view::npos) return bits;
    classes.remove_prefix(end + 1);
  }
}

/// A full reply does not end a step, so that no item is left out. A step writes at most the lines of `budget` items and of one chain.
LongAnswer::Step ItemList::write(Reply& reply, Seconds now) {
  const bool more = walk_.step(budget, [&](Item& item) {
    if (complete_ || (classes_ >> Store::class_id(item) & 1) == 0 || service_.store.is_dead(item, now)) return;
    complete_ = !show(reply, item);
  });
  if (more && !complete_) return Step::more;
  reply.put(last_line());
  return Step::done;
}

bool Dump::show(Reply& reply, const Item& item) noexcept {
  if (as_requests_) {
    TextLine<400> line;
    if (is_shown_as_it_is(item)) {
      line.put("mg ").put(item.key()).put("\r\n");
    } else {
      char encoded[base64::text_bytes(key_bytes_max)];
      const char* const end = base64::encode(encoded, item.key());
      line.put("mg ").put({encoded, static_cast<std::size_t>(end - encoded)}).put(" b\r\n");
    }
    reply.put(line.text());
    return true;
  }
  const Seconds expires = item.expires.load(std::memory_order_relaxed);
  const std::uint32_t accessed = item.accessed.load(std::memory_order_relaxed);
  TextLine<1024> line;
  line.put("key=").uri(item.key()).put(" exp=");
  line.number(expires == expires_never ? std::int64_t{-1} : service_.clock.unix_s(expires));
  line.put(" la=").number(service_.clock.unix_s(accessed >> 1)).put(" cas=").number(item.client_cas());
  line.put(" fetch=").put(item.was_fetched() ? "yes" : "no");
  line.put(" cls=").number(Store::class_id(item)).put(" size=").number(std::uint64_t{item.memory_bytes()});
  line.put(" flags=").number(item.flags).put("\n");
  reply.put(line.text());
  return true;
}

/// Leaves out keys that are no text, as memcached does with those from base64.
bool CacheDump::show(Reply& reply, const Item& item) noexcept {
  if (!is_shown_as_it_is(item)) return true;
  const Seconds expires = item.expires.load(std::memory_order_relaxed);
  TextLine<400> line;
  line.put("ITEM ").put(item.key()).put(" [").number(item.value_bytes).put(" b; ");
  line.number(expires == expires_never ? std::int64_t{0} : service_.clock.unix_s(expires)).put(" s]\r\n");
  reply.put(line.text());
  return ++shown_ != limit_;
}

}  // namespace neap::memcached
