// SPDX-License-Identifier: BSL-1.0
// memcached on bare metal: the card, the network, control and log, the store, and a port on which every core serves its own connections.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "apps/memcached/crawler.hpp"
#include "apps/memcached/service.hpp"
#include "apps/memcached/session.hpp"
#include "drivers/ixgbe/card.hpp"
#include "drivers/ixgbe/settings.hpp"
#include "kernel/application.hpp"
#include "kernel/console.hpp"
#include "kernel/events.hpp"
#include "kernel/machine.hpp"
#include "kernel/memory/heap.hpp"
#include "kernel/memory/page_allocator.hpp"
#include "kernel/task.hpp"
#include "net/network.hpp"
#include "observe/control.hpp"

namespace {

using namespace neap;

constexpr std::uint64_t mebibyte = 1 << 20;
/// The store leaves about 1/`free_share` of the memory that is free at start to the network and the card, even when items fragment memory.
constexpr std::uint64_t free_share = 32;

struct Options {
  net::AddressSetting address;
  observe::Options observation;
  std::uint16_t port;
  memcached::StoreOptions store;
};

/// The cache may use all memory that is free now, except the log's memory and one eighth, which is left to the card, the network and the
/// store's table.
Options read_options(Arguments& arguments) {
  Options options;
  options.address = net::AddressSetting::from(arguments);
  options.observation = observe::Options::from(arguments, ixgbe::setting_rows());
  const std::uint64_t log_bytes = options.observation.log.entries_per_core * log::entry_bytes * core_count();
  const std::uint64_t free_bytes = memory::page_counters().free_bytes / 8 * 7;
  const std::uint64_t memory_max = std::max(free_bytes - std::min(free_bytes, log_bytes), mebibyte);
  options.port = static_cast<std::uint16_t>(arguments.number("port", 11211, {1, 65535}, "TCP port on which clients are served"));
  options.store.memory_bytes = arguments.bytes("memory", std::min(64 * mebibyte, memory_max), {mebibyte, memory_max},
                                               "memory for items; beyond it the least recently used are evicted");
  options.store.value_bytes_max =
      static_cast<std::uint32_t>(arguments.bytes("max_item", mebibyte, {1024, 128 * mebibyte}, "the largest value that is stored"));
  options.store.seed = {machine::random_bits(), machine::random_bits()};
  options.store.cores = core_count();
  options.store.memory.shrink = &memory::shrink;
  options.store.memory.free_bytes = &memory::free_page_bytes;
  options.store.memory.unused_bytes = &memory::unused_slab_bytes;
  options.store.memory.free_bytes_min = free_bytes / free_share;
  arguments.finish();
  return options;
}

/// Counts the CPU's ticks, because `now_ns` would convert them for each request.
memcached::Clock server_clock() noexcept {
  const std::uint64_t now_s = (machine::wall_clock_at_boot_ns() + machine::now_ns()) / 1'000'000'000;
  return {&machine::timestamp, now_s - machine::timestamp() / machine::timestamp_hz(), machine::timestamp_hz()};
}

int fail(const char* what, const Error& error) {
  print("memcached: ", what, ": ", error.message, " (", hex(error.detail), ")");
  return 1;
}

}  // namespace

neap::task<int> neap::application(Arguments& arguments) {
  Options options = read_options(arguments);

  auto card = co_await ixgbe::open(
      {}, {.reserved_core = options.observation.control_core, .reserved_port = options.observation.control_port.value_or(0)});
  if (!card) co_return fail("no network card", card.error());
  auto network = co_await net::up(**card, options.address);
  if (!network) co_return fail("no network", network.error());
  auto control = co_await observe::start(std::move(options.observation), **card, **network);
  if (!control) co_return fail("no control", control.error());

  memcached::Store store(options.store);
  if (!store.valid()) co_return fail("no store", {.code = ErrorCode::out_of_memory, .message = "not enough memory for the table"});
  const std::string address = (*network)->address().to_string();
  memcached::Service service(store, server_clock(),
                             {.version = std::string("1.6.0-neap") + neap_version, .address = address, .port = options.port}, core_count());
  memcached::Crawler crawler(store, service.clock);

  (void)(*control)->add_statistics(
      "memcached", [&service](std::optional<unsigned> core, const Emit& emit) { memcached::report_counters(service, core, emit); });
  if (const auto listening = co_await memcached::serve(**network, service, options.port); !listening) {
    co_return fail("cannot listen", listening.error());
  }
  print("memcached: listening on ", address, ":", options.port);

  Completion<> never;  // keeps this task alive; all further work is done in events of connections
  co_await never;
  co_return 0;
}
