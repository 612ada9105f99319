// SPDX-License-Identifier: BSL-1.0
// memcached on bare metal: the card, the network, control and log, the store, and a port on which every core serves its own connections.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "apps/memcached/connection_list.hpp"
#include "apps/memcached/crawler.hpp"
#include "apps/memcached/options.hpp"
#include "apps/memcached/service.hpp"
#include "apps/memcached/session.hpp"
#include "apps/memcached/udp.hpp"
#include "drivers/any_card.hpp"
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

struct MachineOptions {
  net::AddressSetting address;
  any_card::Choice card;
  observe::Options observation;
  memcached::Options memcached;
};

/// The cache may use all memory that is free now, except the log's memory and one eighth, which is left to the card, the network and the
/// store's table.
MachineOptions read_options(Arguments& arguments) {
  MachineOptions options;
  options.address = net::AddressSetting::from(arguments);
  options.card = any_card::Choice::from(arguments);
  options.observation = observe::Options::from(arguments, any_card::setting_rows());
  const std::uint64_t log_bytes = options.observation.log.entries_per_core * log::entry_bytes * core_count();
  const std::uint64_t free_bytes = memory::page_counters().free_bytes / 8 * 7;
  const std::uint64_t memory_max = std::max(free_bytes - std::min(free_bytes, log_bytes), mebibyte);
  options.memcached = memcached::read_options(arguments, memory_max, core_count());
  memcached::StoreOptions& store = options.memcached.store;
  store.seed = {machine::random_bits(), machine::random_bits()};
  store.cores = core_count();
  store.memory.shrink = &memory::shrink;
  store.memory.free_bytes = &memory::free_page_bytes;
  store.memory.unused_bytes = &memory::unused_slab_bytes;
  store.memory.free_bytes_min = free_bytes / free_share;
  memcached::Settings& settings = options.memcached.settings;
  settings.version = std::string("1.6.0-neap") + neap_version;
  settings.connection_secret = static_cast<std::uint32_t>(machine::random_bits());
  arguments.finish();
  return options;
}

/// Counts the CPU's ticks, because `now_ns` would convert them for each request.
memcached::Clock server_clock() noexcept {
  constexpr std::uint64_t second_ns = 1'000'000'000;
  const std::uint64_t unix_ns = machine::wall_clock_at_boot_ns() + machine::now_ns(), ticks = machine::timestamp();
  const std::uint64_t hz = machine::timestamp_hz();
  std::uint64_t at_zero_s = unix_ns / second_ns - ticks / hz;  // without a date, it wraps, and the clock's sum is right
  std::uint64_t fraction_ticks = unix_ns % second_ns * hz / second_ns + hz - ticks % hz;
  if (fraction_ticks < hz) {
    --at_zero_s;
  } else {
    fraction_ticks -= hz;
  }
  return {&machine::timestamp, at_zero_s, hz, fraction_ticks};
}

/// Returns the time that the cores were not asleep, since the boot and together. A core that polls is never asleep.
std::uint64_t busy_us() noexcept {
  std::uint64_t busy_ns = 0;
  for (unsigned core = 0; core < core_count(); ++core) {
    const std::uint64_t asleep_ns = event_counters(core).asleep_ns, now_ns = machine::now_ns();
    busy_ns += now_ns - std::min(now_ns, asleep_ns);
  }
  return busy_ns / 1000;
}

/// Switches the machine off, in an event after those that are queued. Connections end with the machine, and the objects of the application
/// are not destroyed, because other cores still use them.
void shut_down(memcached::Service&) noexcept {
  spawn([] {
    print("memcached: shut down by a client");
    machine::exit(machine::ExitStatus::success);
  });
}

/// Runs the crawler on core 0 while `Service::crawler_on` says so. Clients change that on any core.
class CrawlerSwitch {
 public:
  CrawlerSwitch(memcached::Store& store, memcached::Service& service)
      : service_(service), crawler_(store, service.clock, service.crawler_on.load()) {
    instance_ = this;
    service.settle_crawler = []() noexcept { instance_->call_.ask(0); };
  }
  CrawlerSwitch& operator=(CrawlerSwitch&&) = delete;

 private:
  static inline CrawlerSwitch* instance_ = nullptr;
  memcached::Service& service_;
  memcached::Crawler crawler_;
  CoalescedCall call_{[](void* context) noexcept {
                        auto& self = *static_cast<CrawlerSwitch*>(context);
                        self.crawler_.turn(self.service_.crawler_on.load());
                      },
                      this};
};

int fail(const char* what, const Error& error) {
  print("memcached: ", what, ": ", error.message, " (", hex(error.detail), ")");
  return 1;
}

}  // namespace

neap::task<int> neap::application(Arguments& arguments) {
  MachineOptions options = read_options(arguments);

  auto card = co_await any_card::open(options.card, {.reserved_core = options.observation.control_core,
                                                     .reserved_port = options.observation.control_port.value_or(0),
                                                     .frame_bytes_max = options.address.frame_bytes_max()});
  if (!card) co_return fail("no network card", card.error());
  auto network = co_await net::up(*card->device, options.address);
  if (!network) co_return fail("no network", network.error());
  auto control = co_await observe::start(std::move(options.observation), *card->settings, **network);
  if (!control) co_return fail("no control", control.error());

  memcached::Store store(options.memcached.store);
  if (!store.valid()) co_return fail("no store", {.code = ErrorCode::out_of_memory, .message = "not enough memory for the table"});
  memcached::Settings& settings = options.memcached.settings;
  const net::Address address = (*network)->shown_address();
  settings.address = address.to_string();
  memcached::Service service(store, server_clock(), settings, core_count());
  CrawlerSwitch crawler(store, service);
  service.busy_us = &busy_us;
  service.shut_down = &shut_down;
  service.list_connections = &memcached::list_connections;

  (void)(*control)->add_statistics(
      "memcached", [&service](std::optional<unsigned> core, const Emit& emit) { memcached::report_counters(service, core, emit); });
  const auto listening =
      co_await (*network)->listen(settings.port, [&service](net::Connection& connection) -> std::unique_ptr<net::ConnectionHandler> {
        auto handler = memcached::accept(service, connection);
        memcached::expect_idle(service, service.core(this_core()));
        return handler;
      });
  if (!listening) co_return fail("cannot listen", listening.error());
  if (settings.udp_port != 0) {
    const auto receiving = co_await memcached::serve_datagrams(**network, service, settings.udp_port);
    if (!receiving) co_return fail("cannot receive datagrams", receiving.error());
    print("memcached: UDP on ", net::Endpoint{.address = address, .port = settings.udp_port}.to_string());
  }
  print("memcached: listening on ", net::Endpoint{.address = address, .port = settings.port}.to_string());

  Completion<> never;  // keeps this task alive; all further work is done in events of connections
  co_await never;
  co_return 0;
}
