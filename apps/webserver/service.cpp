// SPDX-License-Identifier: BSL-1.0
#include "apps/webserver/service.hpp"

#include <algorithm>
#include <atomic>
#include <new>
#include <utility>

#include "kernel/console.hpp"
#include "kernel/log.hpp"
#include "kernel/machine.hpp"
#include "kernel/panic.hpp"
#include "kernel/when_all.hpp"
#include "net/address.hpp"

namespace neap::webserver {

namespace {

/// Seconds since 1970; negative without a clock that knows the date.
std::int64_t unix_seconds() noexcept {
  const std::uint64_t boot_ns = machine::wall_clock_at_boot_ns();
  if (boot_ns == 0) return -1;
  return static_cast<std::int64_t>((boot_ns + machine::now_ns()) / 1'000'000'000);
}

void report_engine_statistics(const EngineStatistics& statistics, const Emit& emit) {
  constexpr NamedCount<EngineStatistics> rows[] = {
      {"turns", &EngineStatistics::turns},
      {"exceptions", &EngineStatistics::exceptions},
      {"turns_timed_out", &EngineStatistics::timeouts},
      {"out_of_memory", &EngineStatistics::out_of_memory},
      {"unhandled_rejections", &EngineStatistics::unhandled_rejections},
      {"jobs_dropped", &EngineStatistics::jobs_dropped},
      {"microtasks", &EngineStatistics::microtasks},
      {"ticks", &EngineStatistics::ticks},
      {"timers_fired", &EngineStatistics::timers_fired},
      {"timers_refused", &EngineStatistics::timers_refused},
      {"timers_pending", &EngineStatistics::timers_pending},
      {"immediates", &EngineStatistics::immediates},
      {"collections", &EngineStatistics::collections},
      {"collections_busy", &EngineStatistics::collections_busy},
      {"collection_ns", &EngineStatistics::collection_ns},
      {"console_bytes", &EngineStatistics::console_bytes},
      {"console_bytes_dropped", &EngineStatistics::console_bytes_dropped},
      {"script_memory_bytes", &EngineStatistics::memory_bytes},
      {"script_memory_max_bytes", &EngineStatistics::memory_max_bytes},
  };
  for (const auto& row : rows) emit(row.name, statistics.*row.count);
}

}  // namespace

/// The parts of one core. Made, used and destroyed there; other cores read only the counters.
struct Service::Core {
  Core(const Options& options, Service& service, std::unique_ptr<Engine> made)
      : http(&unix_seconds, CoreLimits{.output_bytes_max = options.output_bytes_max}),
        engine(std::move(made)),
        binding(*engine, http, service, HttpBinding::Settings{.connections_max = options.connections_max}) {}
  HttpCore http;
  std::unique_ptr<Engine> engine;
  HttpBinding binding;
  IdleHook collector{[this] { return engine->collect_if_worthwhile() || collect_messages(); }};
  std::uint64_t kept_after_collection = 0;

  /// The engine does not count the memory of an exchange, which an object in a cycle of garbage keeps. So this many more of them are a
  /// reason to collect, too.
  bool collect_messages() noexcept {
    constexpr std::uint64_t step = 256;
    const std::uint64_t kept = binding.counters().messages_kept.value();
    kept_after_collection = std::min(kept_after_collection, kept);
    if (kept < kept_after_collection + step) return false;
    engine->collect();
    kept_after_collection = binding.counters().messages_kept.value();
    return true;
  }
  std::vector<std::uint16_t> noted;  ///< ports asked for during the start
  std::atomic<bool> started = false;
};

Service::Service(net::Network& network, const Options& options, Archive scripts)
    : network_(network), options_(options), scripts_(std::move(scripts)), cores_(network.cores()) {}

Service::~Service() = default;

task<std::expected<void, std::string>> Service::start() {
  // A mistake in the script is the same on all cores, so it is reported by the first one alone.
  if (std::string why = start_core(0); !why.empty()) co_return std::unexpected(std::move(why));
  std::vector<task<std::string>> others;
  for (unsigned core = 1; core < cores_.size(); ++core) {
    others.push_back(on_core(core, [this, core] { return start_core(core); }));
  }
  for (task<std::string>& other : others) {
    if (std::string why = co_await std::move(other); !why.empty()) co_return std::unexpected(std::move(why));
  }
  for (unsigned core = 0; core < cores_.size(); ++core) {
    const std::vector<std::uint16_t> noted = co_await on_core(core, [this, core] {
      cores_[core]->started = true;
      return std::exchange(cores_[core]->noted, {});
    });
    for (const std::uint16_t port : noted) {
      const char* const error = co_await open_everywhere(port);
      co_await on_core(core, [this, core, port, error] { cores_[core]->binding.port_opened(port, error); });
    }
  }
  co_return std::expected<void, std::string>();
}

std::string Service::start_core(unsigned index) {
  EngineOptions options;
  options.memory_max_bytes = options_.script_memory_bytes;
  options.watchdog_ms = options_.watchdog_ms;
  options.environment = {{"NODE_ENV", "production"}, {"PORT", std::to_string(options_.port)}};
  auto engine = Engine::make(std::move(options), scripts_);
  if (!engine) return std::string("no engine on core ") + std::to_string(index) + ": " + std::string(engine.error().message);
  cores_[index] = std::make_unique<Core>(options_, *this, std::move(*engine));
  const auto run = cores_[index]->engine->run_entry();
  if (!run) return "the script failed on core " + std::to_string(index) + ": " + run.error();
  return {};
}

void Service::open(HttpBinding& binding, std::uint16_t port) {
  const unsigned core = this_core();
  require(&cores_[core]->binding == &binding, "webserver: a port is opened by another core's binding", core);
  if (!cores_[core]->started) {
    cores_[core]->noted.push_back(port);
    return;
  }
  neap::start(open_port(core, port));
}

task<void> Service::open_port(unsigned core, std::uint16_t port) {
  const char* const error = co_await on_core(0, [this, port] { return open_everywhere(port); });
  cores_[core]->binding.port_opened(port, error);
}

task<const char*> Service::open_everywhere(std::uint16_t port) {
  const AsyncMutex::Lock lock = co_await opening_.lock();
  if (const auto known = opened_.find(port); known != opened_.end()) co_return known->second;
  const auto listening = co_await network_.listen(port, [this, port](net::Connection& connection) { return accept(port, connection); });
  const char* const error = listening ? nullptr : listening.error().code == ErrorCode::out_of_memory ? "ENOMEM" : "EADDRINUSE";
  opened_.emplace(port, error);
  const net::Endpoint endpoint{.address = network_.shown_address(), .port = port};
  if (error == nullptr) {
    print("webserver: listening on ", endpoint.to_string());
  } else {
    print("webserver: cannot listen on ", endpoint.to_string(), ": ", listening.error().message);
  }
  co_return error;
}

std::unique_ptr<net::ConnectionHandler> Service::accept(std::uint16_t port, net::Connection& connection) {
  const std::unique_ptr<Core>& core = cores_[this_core()];
  return core == nullptr ? nullptr : core->binding.accept(port, connection);
}

void Service::report_counters(std::optional<unsigned> core, const Emit& emit) const {
  std::vector<std::pair<std::string, std::uint64_t>> sums;
  const auto add = [&](std::string_view name, std::uint64_t value) {
    const auto known = std::ranges::find(sums, name, [](const auto& sum) { return std::string_view(sum.first); });
    if (known == sums.end()) {
      sums.emplace_back(name, value);
    } else {
      known->second += value;
    }
  };
  for (unsigned index = 0; index < cores_.size(); ++index) {
    if ((core && *core != index) || cores_[index] == nullptr) continue;
    report_statistics(cores_[index]->http.statistics, add);
    report_script_counters(cores_[index]->binding.counters(), add);
    report_engine_statistics(cores_[index]->engine->statistics(), add);
  }
  for (const auto& [name, value] : sums) emit(name, value);
}

}  // namespace neap::webserver
