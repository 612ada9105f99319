// SPDX-License-Identifier: BSL-1.0
// What watchers (watch.hpp) and `stats detail` (detail.hpp) learn about a request. The parsers call these functions on the ordinary way
// only; each call costs a load and a branch without a watcher.
#pragma once

#include <cstdint>
#include <string_view>

#include "apps/memcached/protocol.hpp"
#include "net/address.hpp"

namespace neap::memcached::observation {

void report_get(const Context& context, std::string_view key, const Store::Found& found) noexcept;
void report_store(const Context& context, Mode mode, std::string_view key, Outcome outcome, Seconds expires, std::size_t value_bytes,
                  unsigned class_id) noexcept;
void report_delete(const Context& context, std::string_view command, std::string_view key, unsigned class_id,
                   std::uint32_t value_bytes) noexcept;

/// A lookup of `key`, with its result.
inline void note_get(const Context& context, std::string_view key, const Store::Found& found) noexcept {
  if (context.service.observed()) [[unlikely]]
    report_get(context, key, found);
}

/// A command announces a value for `key`. memcached looks the key up first, and reports that too.
inline void note_set_begins(const Context& context, const Key& key) noexcept {
  if (context.service.observed()) [[unlikely]]
    context.service.details.note_set(key.text);
}

/// No item was allocated for a value of `value_bytes`.
inline void note_refused_store(const Context& context, Mode mode, std::string_view key, Outcome outcome, Seconds expires,
                               std::size_t value_bytes) noexcept {
  if (context.service.observed()) [[unlikely]]
    report_store(context, mode, key, outcome, expires, value_bytes, 0);
}

/// `item` is about to be stored. MUST be called before the store's call.
struct StoreReport {
  StoreReport(const Context& context, Mode mode, const Item& item) noexcept {
    if (context.service.observed()) [[unlikely]]
      begin(context, mode, item);
  }
  /// The item was stored, or not.
  void end(const Context& context, Outcome outcome) const noexcept {
    if (key_bytes_ != 0) [[unlikely]]
      report_store(context, mode_, {key_, key_bytes_}, outcome, expires_, value_bytes_, class_id_);
  }

 private:
  void begin(const Context& context, Mode mode, const Item& item) noexcept;
  // A copy, because another core may unlink and free the item once it is stored. Not filled in without a watcher.
  std::size_t key_bytes_ = 0, value_bytes_ = 0;
  Seconds expires_ = 0;
  unsigned class_id_ = 0;
  Mode mode_ = Mode::set;
  char key_[key_bytes_max];
};

/// `key` is about to be deleted by `command`. MUST be called before the store's call.
class DeleteReport {
 public:
  DeleteReport(const Context& context, const Key& key) noexcept {
    if (context.service.observed()) [[unlikely]]
      begin(context, key);
  }
  void end(const Context& context, std::string_view command, std::string_view key, bool deleted) const noexcept {
    if (deleted && class_id_ != 0) [[unlikely]]
      report_delete(context, command, key, class_id_, value_bytes_);
  }

 private:
  void begin(const Context& context, const Key& key) noexcept;
  unsigned class_id_ = 0;  // of the item; 0: there is no item, or no watcher
  std::uint32_t value_bytes_ = 0;
};

void report_connection(Service& service, bool begins, const net::Endpoint& remote, std::uint32_t id, std::string_view reason) noexcept;

}  // namespace neap::memcached::observation
