// SPDX-License-Identifier: BSL-1.0
// Runs of the log: all cores begin and end a run together. log_writer.cpp composes the entries of one core.
#include "kernel/log.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

#include "kernel/events.hpp"
#include "kernel/log_ring.hpp"
#include "kernel/log_writer.hpp"
#include "kernel/machine.hpp"
#include "kernel/memory/page_allocator.hpp"
#include "kernel/panic.hpp"
#include "kernel/spin_lock.hpp"
#include "kernel/timer.hpp"

namespace neap::log {
namespace {

constexpr std::uint64_t entries_per_core_min = 64;

/// The part of each core's state that other cores may read. The array's last element is for test threads that are not a core.
struct alignas(64) PerCore {
  Counter requests;
  std::atomic<const Traffic*> watched{nullptr};
  std::atomic<Ring*> ring{nullptr};
};
constinit std::array<PerCore, machine::cores_max + 1> per_core{};

PerCore& here() noexcept { return per_core[this_core()]; }

constinit Options prepared_options{.entries_per_core = 0};
constinit bool prepared = false;

// --- Runs --------------------------------------------------------------------------------------------------------------------------------
/// The core that changes the phase from `idle` or `running` owns the variables below until the phase is `idle` or `running` again.
enum class Phase : std::uint8_t { idle, starting, running, stopping, clearing };
constinit std::atomic<Phase> phase{Phase::idle};
constexpr std::uint64_t state_running = std::uint64_t{1} << 32;
constinit std::atomic<std::uint64_t> state_word{0};  // the run's number and the running flag in one word, so that both are read at once

constinit std::uint32_t last_run = 0;
constinit RunPlan plan{};
constinit std::atomic<ConfigurationSource> configuration_source{nullptr};
constinit Bounds bounds{};
/// Armed and cancelled on the core that started the run (`bound_core`).
std::unique_ptr<Timer> bound_timer;
constinit unsigned bound_core = 0;
alignas(64) constinit std::atomic<std::uint64_t> requests_of_run{0};

bool change_phase(Phase from, Phase to) noexcept { return phase.compare_exchange_strong(from, to, std::memory_order_acq_rel); }

/// Calls a function on every core, then another function on the core that began the broadcast. Allocates nothing, so that a run ends at its
/// bound even if there is no memory left.
struct Broadcast {
  struct Call : RemoteNode {};
  std::array<Call, machine::cores_max> calls{};
  RemoteNode completion{};
  std::atomic<unsigned> pending{0};
  unsigned origin = 0;
  void (*on_each_core)() noexcept = nullptr;
  void (*on_completion)() noexcept = nullptr;  // called on the core that began the broadcast
  Completion<void>* waiter = nullptr;          // fulfilled after `on_completion`
};
/// The only broadcast. Only the core that has changed the phase uses it.
constinit Broadcast broadcast{};

void call_on_core(RemoteNode*) noexcept {
  broadcast.on_each_core();
  const unsigned before = broadcast.pending.fetch_sub(1, std::memory_order_acq_rel);
  require(before != 0, "log: each core is called once", this_core());
  if (before == 1) hand_over(broadcast.origin, broadcast.completion);
}

void complete_broadcast(RemoteNode*) noexcept {
  Completion<void>* const waiter = std::exchange(broadcast.waiter, nullptr);
  broadcast.on_completion();  // the next broadcast may begin in here
  if (waiter != nullptr) waiter->fulfil();
}

/// Only the core that has changed the phase may call it.
void begin_broadcast(void (*on_each_core)() noexcept, void (*on_completion)() noexcept, Completion<void>* waiter) noexcept {
  require(broadcast.pending.load(std::memory_order_acquire) == 0, "log: one broadcast at a time", this_core());
  broadcast.on_each_core = on_each_core;
  broadcast.on_completion = on_completion;
  broadcast.waiter = waiter;
  broadcast.origin = this_core();
  broadcast.completion.run = &complete_broadcast;
  const unsigned cores = core_count();
  broadcast.pending.store(cores, std::memory_order_relaxed);
  for (unsigned core = 0; core < cores; ++core) {
    broadcast.calls[core].run = &call_on_core;
    hand_over(core, broadcast.calls[core]);
  }
}

// --- Observers ---------------------------------------------------------------------------------------------------------------------------
struct Observer : RemoteNode {
  std::function<void()> on_change;
  unsigned id = 0, core = 0;
  std::atomic<bool> queued{false};
  bool removed = false;  // used only by the observer's core; true: the observer's event, queued or running, frees the observer
  bool running = false;
  Observer* after = nullptr;
};
constinit SpinLock observers_lock;
constinit Observer* observers = nullptr;
constinit unsigned last_observer = 0;

void call_observer(RemoteNode* node) noexcept {
  auto* const observer = static_cast<Observer*>(node);
  observer->queued.store(false, std::memory_order_release);
  if (!observer->removed) {
    observer->running = true;
    observer->on_change();
    observer->running = false;
  }
  // The observer may have removed itself. If a change has queued it again, the queued event frees it.
  if (observer->removed && !observer->queued.load(std::memory_order_acquire)) delete observer;
}

void notify_observers() noexcept {
  const std::lock_guard lock(observers_lock);
  for (Observer* observer = observers; observer != nullptr; observer = observer->after) {
    if (!observer->queued.exchange(true, std::memory_order_acq_rel)) hand_over(observer->core, *observer);
  }
}

// --- Start and stop ----------------------------------------------------------------------------------------------------------------------
void end_on_this_core() noexcept {
  if (this_core() == bound_core) bound_timer->cancel();
  writer.end(plan);
}

void finish_stop() noexcept {
  state_word.store(plan.run, std::memory_order_release);
  phase.store(Phase::idle, std::memory_order_release);
  notify_observers();
}

/// False: no run is on.
bool end_run(Completion<void>* waiter) noexcept {
  if (!change_phase(Phase::running, Phase::stopping)) return false;
  begin_broadcast(&end_on_this_core, &finish_stop, waiter);
  return true;
}

void finish_start() noexcept {
  state_word.store(plan.run | state_running, std::memory_order_seq_cst);
  bound_core = this_core();
  if (bounds.time.count() > 0) bound_timer->arm(bounds.time, [] { end_run(nullptr); });
  phase.store(Phase::running, std::memory_order_release);
  notify_observers();
  // A core may have reached the bound before the last core had begun, so the bound is checked here.
  if (bounds.requests != 0 && requests_of_run.load(std::memory_order_acquire) >= bounds.requests) end_run(nullptr);
}

void add_to_run(std::uint64_t requests) noexcept {
  // While the run still begins, `end_run` does nothing, but `finish_start` checks the bound later.
  if (requests_of_run.fetch_add(requests, std::memory_order_acq_rel) + requests >= plan.requests_bound) end_run(nullptr);
}

/// Allocates this core's ring on its own node. False: out of memory.
bool make_ring(std::uint64_t entries) noexcept {
  void* const memory = memory::allocate_run(entries * entry_bytes / memory::page_bytes, 0);
  if (memory == nullptr) return false;
  auto* const ring = new (std::nothrow) Ring(static_cast<Entry*>(memory), entries);
  if (ring == nullptr) {
    memory::free_run(memory);
    return false;
  }
  writer.use(ring);
  here().ring.store(ring, std::memory_order_release);
  return true;
}

std::unexpected<Error> no_memory() noexcept {
  return failure(ErrorCode::out_of_memory, "log: no memory for so many entries; set fewer by log=", prepared_options.entries_per_core);
}

void free_ring(PerCore& core) noexcept {
  Ring* const ring = core.ring.exchange(nullptr, std::memory_order_acq_rel);
  if (ring == nullptr) return;
  memory::free_run(ring->memory());
  delete ring;
}

/// Allocates the rings of all cores, if they do not exist yet. After an error there are none.
task<Result<void>> make_rings() {
  if (per_core[0].ring.load(std::memory_order_acquire) != nullptr) co_return Result<void>{};
  for (unsigned core = 0; core < core_count(); ++core) {
    const bool made = co_await on_core(core, [] { return make_ring(prepared_options.entries_per_core); });
    if (made) continue;
    for (unsigned other = 0; other < core; ++other) {
      co_await on_core(other, [] {
        writer.use(nullptr);
        free_ring(here());
      });
    }
    co_return no_memory();
  }
  co_return Result<void>{};
}

}  // namespace

task<Result<void>> prepare(Options options) {
  require(this_core() == 0, "log: `prepare` is called on core 0", this_core());
  if (prepared) co_return failure(ErrorCode::invalid, "log: prepared already");
  if (options.entries_per_core > entries_per_core_max)
    co_return failure(ErrorCode::invalid, "log: at most 268435456 entries a core", options.entries_per_core);
  prepared = true;
  if (options.entries_per_core != 0) options.entries_per_core = std::bit_ceil(std::max(options.entries_per_core, entries_per_core_min));
  prepared_options = options;
  if (options.entries_per_core == 0) co_return Result<void>{};
  if (!bound_timer) bound_timer = std::make_unique<Timer>();
  const std::uint64_t bytes = options.entries_per_core * entry_bytes * core_count();
  if (bytes > memory::free_page_bytes()) {
    const auto refused = no_memory();
    prepared_options.entries_per_core = 0;
    prepared = false;
    co_return refused;
  }
  co_return Result<void>{};
}

const Options& options() noexcept { return prepared_options; }

void release() noexcept {
  for (PerCore& core : per_core) {
    free_ring(core);
    core.watched.store(nullptr, std::memory_order_relaxed);
    core.requests.subtract(core.requests.value());
  }
  while (observers != nullptr) delete std::exchange(observers, observers->after);
  prepared_options = {.entries_per_core = 0};
  prepared = false;
  describe_configuration_by(nullptr);
  bound_timer.reset();
  broadcast.pending.store(0, std::memory_order_relaxed);
  last_run = 0;
  state_word.store(0, std::memory_order_relaxed);
  phase.store(Phase::idle, std::memory_order_relaxed);
}

task<Result<std::uint32_t>> start(Bounds wanted) {
  if (prepared_options.entries_per_core == 0) co_return failure(ErrorCode::not_found, "log: no memory for it; boot with log=ENTRIES");
  if (wanted.time.count() < 0) co_return failure(ErrorCode::invalid, "log: a time below zero");
  if (!change_phase(Phase::idle, Phase::starting)) co_return failure(ErrorCode::closed, "log: a run is on");
  if (const auto made = co_await make_rings(); !made) {
    phase.store(Phase::idle, std::memory_order_release);
    co_return std::unexpected(made.error());
  }
  bounds = wanted;
  plan = {.run = ++last_run,
          .overwrite = prepared_options.when_full == WhenFull::overwrite,
          .idle_records = prepared_options.idle_records,
          .count_requests = wanted.requests != 0,
          .sample_period_ticks =
              prepared_options.sample_records != 0 ? 0 : machine::timestamp_hz() * prepared_options.sample_period_us / 1'000'000,
          .sample_records = prepared_options.sample_records,
          // Each core adds its requests to the common count in batches of this size. Small batches keep the excess over the bound small.
          .requests_at_once = std::clamp<std::uint64_t>(wanted.requests / 16 / core_count(), 1, 64),
          .requests_bound = wanted.requests,
          .configuration = configuration_source.load(std::memory_order_acquire)};
  const std::uint32_t run = plan.run;
  requests_of_run.store(0, std::memory_order_relaxed);
  // The run's number stays 0 while some cores' logs belong to the old run and others to the new one.
  state_word.store(state_running, std::memory_order_seq_cst);
  Completion<void> begun;
  begin_broadcast([]() noexcept { writer.begin(plan); }, &finish_start, &begun);
  co_await begun;
  co_return run;
}

task<Result<void>> stop() {
  Completion<void> over;
  if (!end_run(&over)) co_return failure(ErrorCode::closed, "log: no run is on");
  co_await over;
  co_return Result<void>{};
}

task<Result<void>> clear() {
  if (!change_phase(Phase::idle, Phase::clearing)) co_return failure(ErrorCode::closed, "log: a run is on");
  state_word.store(0, std::memory_order_seq_cst);
  Completion<void> over;
  begin_broadcast(
      []() noexcept {
        if (writer.ring() != nullptr) writer.ring()->restart();
      },
      []() noexcept {
        phase.store(Phase::idle, std::memory_order_release);
        notify_observers();
      },
      &over);
  co_await over;
  co_return Result<void>{};
}

State state() noexcept {
  const std::uint64_t word = state_word.load(std::memory_order_seq_cst);
  return {.running = (word & state_running) != 0, .run = static_cast<std::uint32_t>(word)};
}

void describe_configuration_by(ConfigurationSource source) noexcept { configuration_source.store(source, std::memory_order_release); }
void record_configuration() noexcept { writer.record_configuration(); }

unsigned add_run_observer(std::function<void()> on_change) {
  auto observer = std::make_unique<Observer>();
  observer->run = &call_observer;
  observer->on_change = std::move(on_change);
  observer->core = this_core();
  const std::lock_guard lock(observers_lock);
  observer->id = ++last_observer;
  observer->after = observers;
  observers = observer.release();
  return observers->id;
}

void remove_run_observer(unsigned id) noexcept {
  Observer* gone = nullptr;
  {
    const std::lock_guard lock(observers_lock);
    for (Observer** place = &observers; *place != nullptr; place = &(*place)->after) {
      if ((*place)->id != id) continue;
      gone = *place;
      *place = gone->after;
      break;
    }
  }
  if (gone == nullptr) return;
  require(gone->core == this_core(), "log: an observer is removed on the core that added it", gone->core);
  gone->removed = true;
  if (!gone->queued.load(std::memory_order_acquire) && !gone->running) delete gone;
}

// --- Functions for the calling core ------------------------------------------------------------------------------------------------------
void watch(const Traffic* traffic) noexcept {
  writer.watch(traffic);
  here().watched.store(traffic, std::memory_order_release);
}

TrafficTotals traffic(unsigned core) noexcept {
  const Traffic* const now = core < machine::cores_max ? per_core[core].watched.load(std::memory_order_acquire) : nullptr;
  if (now == nullptr) return {};
  return {.rx_descriptors = now->rx_descriptors.value(),
          .rx_frames = now->rx_frames.value(),
          .rx_bytes = now->rx_bytes.value(),
          .tx_descriptors = now->tx_descriptors.value(),
          .tx_frames = now->tx_frames.value(),
          .tx_bytes = now->tx_bytes.value()};
}

void count_control(const ControlTraffic& passed) noexcept { writer.count_control(passed); }

// `interrupt` and `poll` are flattened: `record` inlined with a constant kind costs five instructions less (`./neap bench observe`).
[[gnu::flatten]] void interrupt() noexcept {
  if (writer.on()) [[unlikely]]
    writer.record(Kind::interrupt);
}

[[gnu::flatten]] void poll() noexcept {
  if (writer.on()) [[unlikely]]
    writer.record(Kind::poll);
}

void before_sleep() noexcept {
  if (!writer.on()) [[likely]]
    return;
  writer.publish();
  if (writer.has_requests()) [[unlikely]]
    add_to_run(writer.take_requests());
}

void slept(IdleState asked, IdleState state, std::uint64_t asleep_tsc, std::uint64_t awake_tsc, Sleep how) noexcept {
  writer.slept(asked, state, asleep_tsc, awake_tsc, how);
}

void policy_changed(Settings settings) noexcept { writer.policy_changed(settings); }

Marked mark(LoadPhase phase) noexcept {
  require(this_core() == 0, "log: marks are written on core 0", this_core());
  return writer.mark(phase);
}

void collected(std::uint64_t begin_tsc, std::uint64_t bytes_before, std::uint64_t bytes_after) noexcept {
  writer.collected(begin_tsc, bytes_before, bytes_after);
}

void count_transaction(unsigned type, const TransactionEnd& end) noexcept { writer.count_transaction(type, end); }

void count_requests(std::uint64_t requests) noexcept {
  here().requests.add(requests);
  if (writer.add_requests(requests)) [[unlikely]]
    add_to_run(writer.take_requests());
}

RunEnds run_ends() noexcept { return writer.run_ends(); }

std::uint64_t requests(unsigned core) noexcept { return core < machine::cores_max ? per_core[core].requests.value() : 0; }

// --- Functions for readers on any core ---------------------------------------------------------------------------------------------------
Extent extent(unsigned core) noexcept {
  const Ring* const ring = core < machine::cores_max ? per_core[core].ring.load(std::memory_order_acquire) : nullptr;
  return ring != nullptr ? ring->extent() : Extent{};
}

std::size_t read(unsigned core, std::uint64_t position, std::span<Record> out) noexcept {
  const Ring* const ring = core < machine::cores_max ? per_core[core].ring.load(std::memory_order_acquire) : nullptr;
  return ring != nullptr ? ring->read(position, out) : 0;
}

}  // namespace neap::log
