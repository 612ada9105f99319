// SPDX-License-Identifier: BSL-1.0
// For tests: a store and one core's state without a kernel or a network, on one thread, with a clock that the test sets.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "apps/memcached/conversation.hpp"
#include "apps/memcached/test_values.hpp"

namespace neap::memcached::test {

inline std::uint64_t clock_ns = 0;  // the time of the current test
constexpr std::uint64_t start_unix_s = 1'700'000'000;

inline void advance_s(std::uint64_t seconds) { clock_ns += seconds * 1'000'000'000; }

/// On one thread no other code reads the items during a call, so unlinked items may be freed at once.
inline void reclaim_at_once(rcu::Node& node) noexcept { node.reclaim(&node); }

inline StoreOptions small_store() {
  StoreOptions options;
  options.shards = 4;
  options.buckets = 4;  // so that the table has to grow
  options.seed = {12345};
  options.retire = &reclaim_at_once;
  return options;
}

/// Stores `value`; see `Store::commit`.
inline Store::Done put(Store& store, Mode mode, std::string_view key, std::string_view value, Seconds now, Seconds expires = expires_never,
                       std::uint32_t flags = 0, std::uint64_t cas = 0) {
  auto [item, outcome] = store.allocate(store.key(key), flags, expires, value.size(), now);
  if (!item) return {.outcome = outcome};
  item->fill(0, value);
  return store.commit(mode, std::move(item), cas, now);
}

/// Returns the stored value, if there is one. Marks the item as used.
inline std::optional<std::string> value_of(Store& store, std::string_view key, Seconds now) {
  Item* const item = store.find(store.key(key), now).item;
  if (item == nullptr) return std::nullopt;
  return value_in(*item);
}

inline std::string take_all(Reply& reply, std::size_t limit = ~std::size_t{0}) {
  std::string text;
  reply.take(limit, [&](const char* data, std::size_t bytes, Reply::Release release, void* owner) {
    text.append(data, bytes);
    release(owner);
  });
  return text;
}

inline Settings test_settings() {
  Settings settings;
  settings.version = "1.6.0-test";
  settings.address = "192.0.2.1";
  return settings;
}

struct Server {
  Store store;
  Service service;
  explicit Server(const StoreOptions& options = small_store(), unsigned cores = 1, const Settings& settings = test_settings())
      : store(options), service(store, Clock([]() noexcept { return clock_ns; }, start_unix_s), settings, cores) {}
};

/// One client, which passes bytes to a conversation and returns the reply's bytes.
struct Client {
  explicit Client(Server& server) : reply(server.service.core(0).replies), conversation(server.service, server.service.core(0)) {}

  /// Sends `request` in pieces of `piece` bytes and returns all bytes of the replies.
  std::string talk(std::string_view request, std::size_t piece = ~std::size_t{0}) {
    std::string answer;
    while (!request.empty()) {
      std::string_view part = request.substr(0, piece);
      request.remove_prefix(part.size());
      // The bytes are in memory of exactly their size, so that a sanitizer finds a read beyond their end.
      const std::string copy(part);
      std::string_view left = copy;
      for (;;) {
        left.remove_prefix(conversation.consume(left, reply));
        const bool was_full = reply.full();
        answer += take_all(reply, conversation.sendable_bytes(reply));
        if (left.empty() && !was_full && !conversation.waits()) break;
      }
    }
    return answer;
  }

  Reply reply;
  Conversation conversation;
};

}  // namespace neap::memcached::test
