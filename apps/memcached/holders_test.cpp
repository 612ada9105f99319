// SPDX-License-Identifier: BSL-1.0
#include "apps/memcached/holders.hpp"

#include <gtest/gtest.h>

#include <stop_token>
#include <thread>

#include "apps/memcached/test_server.hpp"

namespace neap::memcached {
namespace {

struct Reader : Holder {
  std::size_t held_in_flight() noexcept override { return 1; }
  void reset_connection() noexcept override { ++resets; }
  unsigned resets = 0;
};

// In an earlier version, a core took the replies that another core charged at this moment for held values, and reset a client that was
// reading. That version fails this test in most runs.
TEST(Holders, AreNotResetBecauseRepliesChangeMeanwhile) {
  test::Server server(test::small_store(), 2);
  CoreState& core = server.service.core(0);
  Reader reader;
  core.holders.add(reader, server.service.clock.now());
  std::jthread other([&memory = server.service.reply_memory](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      memory.charge(1 << 20);
      memory.discharge(1 << 20);
    }
  });
  for (int i = 0; i < 20'000'000 && reader.listed(); ++i) static_cast<void>(shed_holders(server.service, core, nullptr));
  EXPECT_EQ(reader.resets, 0U);
  if (reader.listed()) core.holders.remove(reader);
}

// Both together would take all memory otherwise, and a `set` would be refused.
TEST(Holders, HaveLessMemoryWhileRepliesTakeMuch) {
  test::Server server(test::small_store(), 1);
  CoreState& core = server.service.core(0);
  Reader reader;
  core.holders.add(reader, server.service.clock.now());
  const std::size_t memory = server.store.memory_bytes(), values = memory / 16 * 7;
  server.store.charge_held(values);
  static_cast<void>(shed_holders(server.service, core, nullptr));
  EXPECT_EQ(reader.resets, 0U);
  server.service.reply_memory.charge(memory / 2);
  static_cast<void>(shed_holders(server.service, core, nullptr));
  EXPECT_EQ(reader.resets, 1U);
  server.service.reply_memory.discharge(memory / 2);
  server.store.discharge_held(values);
}

}  // namespace
}  // namespace neap::memcached
