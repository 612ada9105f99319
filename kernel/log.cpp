// SPDX-License-Identifier: BSL-1.0
// Runs: how all cores begin and end together, who is told, and who may read. What one core writes is in log_writer.cpp.
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

constexpr std::uint64_t records_per_core_min = 64;

/// What any core may look at of a core. One more, for a test's thread that is no core.
struct alignas(64) PerCore {
  Counter requests;
  std::atomic<const Traffic*> watched{nullptr};
  std::atomic<Ring*> ring{nullptr};
};
constinit std::array<PerCore, machine::cores_max + 1> per_core{};

PerCore& here() noexcept { return per_core[this_core()]; }

constinit Options prepared_options{.records_per_core = 0};
constinit bool prepared = false;

// --- Runs --------------------------------------------------------------------------------------------------------------------------------

/// Whoever moves it away from `idle` or `running` owns everything below until it is there again.
enum class Phase : std::uint8_t { idle, starting, running, stopping, clearing };
constinit std::atomic<Phase> phase{Phase::idle};
constexpr std::uint64_t state_running = std::uint64_t{1} << 32;
constinit std::atomic<std::uint64_t> state_word{0};  // run, and whether it is on: read together

constinit std::uint32_t last_run = 0;
constinit RunPlan plan{};
constinit Bounds bounds{};
/// Armed and cancelled on the core that started the run.
std::unique_ptr<Timer> bound_timer;
constinit unsigned bound_core = 0;
alignas(64) constinit std::atomic<std::uint64_t> requests_of_run{0};

bool leave(Phase from, Phase to) noexcept { return phase.compare_exchange_strong(from, to, std::memory_order_acq_rel); }

/// A visit of all cores at the same time, and back. Allocates nothing, so that a bound can end a run without memory.
struct Round {
  struct Visit : RemoteNode {};
  std::array<Visit, machine::cores_max> visits{};
  RemoteNode back{};
  std::atomic<unsigned> left{0};
  unsigned home = 0;
  void (*visit)() noexcept = nullptr;
  void (*over)() noexcept = nullptr;   // on the core that began
  Completion<void>* waiter = nullptr;  // after it
};
constinit Round the_round{};

void arrive(RemoteNode*) noexcept {
  the_round.visit();
  if (the_round.left.fetch_sub(1, std::memory_order_acq_rel) == 1) hand_over(the_round.home, the_round.back);
}

void come_back(RemoteNode*) noexcept {
  Completion<void>* const waiter = std::exchange(the_round.waiter, nullptr);
  the_round.over();  // the next round may begin in here
  if (waiter != nullptr) waiter->fulfil();
}

/// For the owner of the phase.
void go_round(void (*visit)() noexcept, void (*over)() noexcept, Completion<void>* waiter) noexcept {
  the_round.visit = visit;
  the_round.over = over;
  the_round.waiter = waiter;
  the_round.home = this_core();
  the_round.back.run = &come_back;
  const unsigned cores = core_count();
  the_round.left.store(cores, std::memory_order_relaxed);
  for (unsigned core = 0; core < cores; ++core) {
    the_round.visits[core].run = &arrive;
    hand_over(core, the_round.visits[core]);
  }
}

// --- News --------------------------------------------------------------------------------------------------------------------------------

struct Listener : RemoteNode {
  std::function<void()> news;
  unsigned id = 0;
  unsigned core = 0;
  std::atomic<bool> queued{false};
  bool forgotten = false;  // its core's: freed by the event that is queued or under way
  bool called = false;
  Listener* after = nullptr;
};
constinit SpinLock listeners_lock;
constinit Listener* listeners = nullptr;
constinit unsigned last_listener = 0;

void bring_news(RemoteNode* node) noexcept {
  auto* const listener = static_cast<Listener*>(node);
  listener->queued.store(false, std::memory_order_release);
  if (!listener->forgotten) {
    listener->called = true;
    listener->news();
    listener->called = false;
  }
  // Forgotten by itself, and perhaps queued again before that.
  if (listener->forgotten && !listener->queued.load(std::memory_order_acquire)) delete listener;
}

void announce() noexcept {
  const std::lock_guard lock(listeners_lock);
  for (Listener* listener = listeners; listener != nullptr; listener = listener->after) {
    if (!listener->queued.exchange(true, std::memory_order_acq_rel)) hand_over(listener->core, *listener);
  }
}

// --- Beginning and end -------------------------------------------------------------------------------------------------------------------

void end_here() noexcept {
  if (this_core() == bound_core) bound_timer->cancel();
  writer.end(plan);
}

void run_is_over() noexcept {
  state_word.store(plan.run, std::memory_order_release);
  phase.store(Phase::idle, std::memory_order_release);
  announce();
}

/// False: no run is on.
bool end_run(Completion<void>* waiter) noexcept {
  if (!leave(Phase::running, Phase::stopping)) return false;
  go_round(&end_here, &run_is_over, waiter);
  return true;
}

void run_is_on() noexcept {
  state_word.store(plan.run | state_running, std::memory_order_seq_cst);
  bound_core = this_core();
  if (bounds.time.count() > 0) bound_timer->arm(bounds.time, [] { end_run(nullptr); });
  phase.store(Phase::running, std::memory_order_release);
  announce();
  // A core may have reached the bound before the last one had begun.
  if (bounds.requests != 0 && requests_of_run.load(std::memory_order_acquire) >= bounds.requests) end_run(nullptr);
}

void answered(std::uint64_t requests) noexcept {
  // Refused while the run still begins: `run_is_on` looks again.
  if (requests_of_run.fetch_add(requests, std::memory_order_acq_rel) + requests >= plan.requests_bound) end_run(nullptr);
}

/// On its own core, so that the memory is near. False: there is none.
bool make_ring(std::uint64_t lines) noexcept {
  void* const memory = memory::allocate_run(lines * record_bytes / memory::page_bytes, 0);
  if (memory == nullptr) return false;
  auto* const ring = new (std::nothrow) Ring(static_cast<Line*>(memory), lines);
  if (ring == nullptr) {
    memory::free_run(memory);
    return false;
  }
  writer.use(ring);
  here().ring.store(ring, std::memory_order_release);
  return true;
}

void free_ring(PerCore& core) noexcept {
  Ring* const ring = core.ring.exchange(nullptr, std::memory_order_acq_rel);
  if (ring == nullptr) return;
  memory::free_run(ring->memory());
  delete ring;
}

}  // namespace

task<Result<void>> prepare(Options options) {
  require(this_core() == 0, "log: prepared on another core than 0", this_core());
  if (prepared) co_return failure(ErrorCode::invalid, "log: its memory is there already");
  if (options.records_per_core > records_per_core_max)
    co_return failure(ErrorCode::invalid, "log: at most 268435456 records a core", options.records_per_core);
  prepared = true;
  if (options.records_per_core != 0) options.records_per_core = std::bit_ceil(std::max(options.records_per_core, records_per_core_min));
  prepared_options = options;
  if (options.records_per_core == 0) co_return Result<void>{};
  if (!bound_timer) bound_timer = std::make_unique<Timer>();
  for (unsigned core = 0; core < core_count(); ++core) {
    const bool made = co_await on_core(core, [lines = options.records_per_core] { return make_ring(lines); });
    if (made) continue;
    for (unsigned other = 0; other < core; ++other) {
      co_await on_core(other, [] {
        writer.use(nullptr);
        free_ring(here());
      });
    }
    prepared_options.records_per_core = 0;
    prepared = false;
    co_return failure(ErrorCode::out_of_memory, "log: no memory for so many records; fewer by log=", options.records_per_core);
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
  while (listeners != nullptr) delete std::exchange(listeners, listeners->after);
  prepared_options = {.records_per_core = 0};
  prepared = false;
  bound_timer.reset();
  last_run = 0;
  state_word.store(0, std::memory_order_relaxed);
  phase.store(Phase::idle, std::memory_order_relaxed);
}

task<Result<std::uint32_t>> start(Bounds wanted) {
  if (prepared_options.records_per_core == 0) co_return failure(ErrorCode::not_found, "log: no memory for it; boot with log=RECORDS");
  if (wanted.time.count() < 0) co_return failure(ErrorCode::invalid, "log: a time below zero");
  if (!leave(Phase::idle, Phase::starting)) co_return failure(ErrorCode::closed, "log: a run is on");
  bounds = wanted;
  plan = {.run = ++last_run,
          .overwrite = prepared_options.when_full == WhenFull::overwrite,
          .idle_records = prepared_options.idle_records,
          .count_requests = wanted.requests != 0,
          .sample_period_ticks = machine::timestamp_hz() * prepared_options.sample_period_us / 1'000'000,
          // So that a short bound is met closely as well.
          .requests_at_once = std::clamp<std::uint64_t>(wanted.requests / 16 / core_count(), 1, 64),
          .requests_bound = wanted.requests};
  const std::uint32_t run = plan.run;
  requests_of_run.store(0, std::memory_order_relaxed);
  // Neither the old run nor the new one while some cores' logs are the one's and some the other's.
  state_word.store(state_running, std::memory_order_seq_cst);
  Completion<void> begun;
  go_round([]() noexcept { writer.begin(plan); }, &run_is_on, &begun);
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
  if (!leave(Phase::idle, Phase::clearing)) co_return failure(ErrorCode::closed, "log: a run is on");
  state_word.store(0, std::memory_order_seq_cst);
  Completion<void> over;
  go_round(
      []() noexcept {
        if (writer.ring() != nullptr) writer.ring()->restart();
      },
      []() noexcept {
        phase.store(Phase::idle, std::memory_order_release);
        announce();
      },
      &over);
  co_await over;
  co_return Result<void>{};
}

State state() noexcept {
  const std::uint64_t word = state_word.load(std::memory_order_seq_cst);
  return {.running = (word & state_running) != 0, .run = static_cast<std::uint32_t>(word)};
}

unsigned on_news(std::function<void()> news) {
  auto listener = std::make_unique<Listener>();
  listener->run = &bring_news;
  listener->news = std::move(news);
  listener->core = this_core();
  const std::lock_guard lock(listeners_lock);
  listener->id = ++last_listener;
  listener->after = listeners;
  listeners = listener.release();
  return listeners->id;
}

void forget_news(unsigned id) noexcept {
  Listener* gone = nullptr;
  {
    const std::lock_guard lock(listeners_lock);
    for (Listener** place = &listeners; *place != nullptr; place = &(*place)->after) {
      if ((*place)->id != id) continue;
      gone = *place;
      *place = gone->after;
      break;
    }
  }
  if (gone == nullptr) return;
  require(gone->core == this_core(), "log: news are forgotten on another core than asked for", gone->core);
  gone->forgotten = true;
  if (!gone->queued.load(std::memory_order_acquire) && !gone->called) delete gone;
}

// --- On each core ------------------------------------------------------------------------------------------------------------------------

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

void interrupt() noexcept {
  if (writer.on()) [[unlikely]]
    writer.record(Kind::interrupt);
}

void poll() noexcept {
  if (writer.on()) [[unlikely]]
    writer.record(Kind::poll);
}

void before_sleep() noexcept {
  if (!writer.on()) [[likely]]
    return;
  writer.publish();
  if (const std::uint64_t requests = writer.take_requests(); requests != 0) answered(requests);
}

void slept(IdleState asked, std::uint64_t asleep_tsc, std::uint64_t awake_tsc, Sleep how) noexcept {
  writer.slept(asked, asleep_tsc, awake_tsc, how);
}

void policy_changed(Settings settings) noexcept { writer.policy_changed(settings); }

void count_requests(std::uint64_t requests) noexcept {
  here().requests.add(requests);
  if (writer.add_requests(requests)) [[unlikely]]
    answered(writer.take_requests());
}

std::uint64_t requests(unsigned core) noexcept { return core < machine::cores_max ? per_core[core].requests.value() : 0; }

// --- From any core -----------------------------------------------------------------------------------------------------------------------

Extent extent(unsigned core) noexcept {
  const Ring* const ring = core < machine::cores_max ? per_core[core].ring.load(std::memory_order_acquire) : nullptr;
  return ring != nullptr ? ring->extent() : Extent{};
}

std::size_t read(unsigned core, std::uint64_t position, std::span<Record> out) noexcept {
  const Ring* const ring = core < machine::cores_max ? per_core[core].ring.load(std::memory_order_acquire) : nullptr;
  return ring != nullptr ? ring->read(position, out) : 0;
}

}  // namespace neap::log
