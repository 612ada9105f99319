// SPDX-License-Identifier: BSL-1.0
#include "sim/machine/machine.hpp"

#include <algorithm>
#include <cinttypes>
#include <cstring>

#include "sim/machine/profile.hpp"

namespace neap::model {

namespace {

using qemu::AfterInstruction;

constexpr std::uint64_t timer_horizon_ns = 100'000'000;  // a run is no longer than this
constexpr Ticks count_interval = 10 * ticks_per_ms;      // of counts of instructions, if they have a limit
constexpr std::uint8_t first_hint_of_c0 = 0xf0;          // SDM 2B, MWAIT: bits 7:4 are 0Fh for C0
// Ports that end the machine: isa-debug-exit as the launcher places it, and the chipset's PM1a control with SLP_EN (ACPI 4.8.3.2.1).
constexpr std::uint32_t debug_exit_port = 0xf4, power_port = 0x604, power_sleep_enable = 1 << 13;

constexpr std::uint32_t console_port = 0x3f8;  // COM1's data

constexpr int status_finished = 0, status_world_gone = 3, status_clock_ended = 4;
constexpr int status_endless = 6, status_unwritten = 8;  // the debug exit of a guest has odd ones
// Ticks of 64 bits hold 13 days. A guest that waits for input from outside passes idle days in seconds.
constexpr std::uint64_t clock_ends_ns = std::uint64_t{12} * 24 * 3600 * 1'000'000'000;

void require_profile(bool written) {
  if (written) return;
  std::fputs("neap-machine: the profile cannot be written\n", stderr);
  qemu::end_process(status_unwritten);
}

}  // namespace

bool Machine::Watch::changed() const noexcept { return armed && line != nullptr && std::memcmp(before.data(), line, before.size()) != 0; }

Machine::Machine(const CpuModel& cpu, unsigned cores, const Options& options, Link link)
    : package_(cpu, cores), rounds_(options.quantum), link_(link), options_(options), stalls_(options.stall, options.seed) {
  if (options.instructions_max != 0) next_count_ = count_interval;
  digest_.add(options.seed);
  // Cores that wait for their start-up interrupt sleep as deep as they can.
  for (unsigned i = 1; i < cores; ++i) package_.fall_asleep(i, cpu.deepest());
}

// --- Clock -------------------------------------------------------------------------------------------------------------------------------

void Machine::settle() noexcept {
  const std::uint64_t skipped_ns = qemu::skipped_ns();
  if (skipped_ns > clock_ends_ns) {
    std::fputs("neap-machine: the virtual clock ends after 12 days of idle time\n", stderr);
    qemu::end_process(status_clock_ended);
  }
  package_.set_skipped(from_ns(skipped_ns));
  const std::int64_t executed = qemu::take_executed();
  if (executed != 0 && owner_ >= 0) package_.run(static_cast<unsigned>(owner_), executed);
}

Ticks Machine::between_runs() noexcept {
  Ticks least = ~Ticks{0}, most = 0;
  for (unsigned i = 0; i < package_.cores(); ++i) {
    const Ticks local = package_.clock(i).local();
    most = std::max(most, local);
    if (qemu::is_awake(i)) least = std::min(least, local);
  }
  // A wake-up moves a core's clock past moments at which the world acts. These come first, so that the world acts in time.
  const Ticks acts = world_acts_ - std::min(world_acts_, package_.skipped());
  const Ticks seen = std::max(latest_.load(), std::min(acts, least == ~Ticks{0} ? most : least));
  latest_ = seen;
  return seen;
}

Ticks Machine::local_now() noexcept {
  const unsigned current = qemu::current_cpu();
  if (qemu::current_cpu_runs()) return package_.clock(current).local();
  // QEMU prepares a run: the instructions from now on are this core's.
  if (!qemu::global_lock_held()) {
    owner_ = static_cast<int>(current);
    return package_.clock(current).local();
  }
  return between_runs();
}

Ticks Machine::now() noexcept {
  if (!qemu::in_cpu_thread()) return latest_.load() + from_ns(qemu::skipped_ns());
  if (as_of_start_) return 0;
  settle();
  return local_now() + package_.skipped();
}

std::span<const Runner> Machine::look_at_cores() noexcept {
  for (unsigned i = 0; i < package_.cores(); ++i) {
    runners_[i] = {.local = package_.clock(i).local(), .awake = qemu::is_awake(i), .waits_for_others = waits_for_others_[i]};
  }
  return std::span(runners_).first(package_.cores());
}

/// Absolute: QEMU's next timer, or a moment at which a run ends if there is none. QEMU tells how much time is left, and 0 for a timer that
/// is due. The time since the start is the same for a core before the timer and for one behind it.
Ticks Machine::next_expiry(unsigned core) noexcept {
  as_of_start_ = true;
  const std::int64_t at_ns = qemu::next_timer_ns();
  as_of_start_ = false;
  const std::uint64_t horizon_ns = to_ns(package_.now(core)) + timer_horizon_ns;
  return from_ns(at_ns < 0 ? horizon_ns : std::min(static_cast<std::uint64_t>(at_ns), horizon_ns));
}

/// Local time of the next moment at which a run must end: a timer of QEMU's, a control period, a stall, or a count of instructions.
Ticks Machine::next_timer(unsigned core) noexcept {
  const Ticks end = std::min({next_expiry(core), package_.next_control(), next_stall(), next_count_});
  return end - std::min(end, package_.skipped());
}

/// Absolute: the least of all cores that are awake; the end of time if none is.
Ticks Machine::least_now() const noexcept {
  Ticks least = ~Ticks{0};
  for (unsigned i = 0; i < package_.cores(); ++i) {
    if (qemu::is_awake(i)) least = std::min(least, package_.now(i));
  }
  return least;
}

// All of them at once, so that no turn is decided with a core that is still to be held.
void Machine::hold_late_cores() noexcept {
  for (unsigned i = 0; i < package_.cores(); ++i) {
    const Ticks now = package_.now(i);
    if (package_.is_asleep(i) || now < stalls_.next(i)) continue;
    const Ticks length = stalls_.take(i, now);
    digest_.add(now);
    digest_.add(length);
    if (options_.trace != nullptr) {
      std::fprintf(options_.trace, "%" PRIu64 " ns: core %u is held for %" PRIu64 " ns\n", to_ns(now), i, to_ns(length));
    }
    package_.hold(i, length);
  }
}

/// Absolute; the same for every core that asks. A core that sleeps is held after it has woken up.
Ticks Machine::next_stall() const noexcept {
  Ticks next = ~Ticks{0};
  for (unsigned i = 0; i < package_.cores(); ++i) {
    if (!package_.is_asleep(i)) next = std::min(next, stalls_.next(i));
  }
  return next;
}

/// All of them at once, before any core goes on. A wake-up may change the pace of all cores. If each woke at its own entry, a core that the
/// host has interrupted would change its pace in the middle of its run.
void Machine::wake_called_cores() noexcept {
  for (unsigned i = 0; i < package_.cores(); ++i) {
    if (package_.is_asleep(i) && qemu::is_awake(i)) wake(i);
  }
}

/// The period ends when all cores that are awake have reached its end; their runs do not go beyond it. If the first core ended it for all,
/// the others would change their pace wherever the host has interrupted them.
void Machine::control_if_due() noexcept {
  const Ticks least = least_now();
  if (least != ~Ticks{0} && least >= package_.next_control()) package_.control(least);
}

/// At planned moments, which no run goes beyond: then the sum does not depend on where the host has interrupted a run.
void Machine::end_if_endless() noexcept {
  const Ticks least = least_now();
  if (least == ~Ticks{0} || least < next_count_) return;
  next_count_ = least + count_interval;
  std::uint64_t executed = 0;
  for (unsigned i = 0; i < package_.cores(); ++i) executed += package_.executed(i).instructions;
  if (executed <= options_.instructions_max) return;
  std::fprintf(stderr, "neap-machine: the guest has executed more than %" PRIu64 " instructions\n", options_.instructions_max);
  snapshot("error", 0, least);
  qemu::end_process(status_endless);
}

std::uint64_t Machine::enter(unsigned core) noexcept {
  settle();
  if (exit_written_) return 0;  // QEMU's main thread has not yet stopped the machine
  owner_ = static_cast<int>(core);
  // QEMU runs its timers when it has entered all CPUs, or after an interruption by the host. Nothing is decided before.
  if (least_now() >= next_expiry(core)) return 0;
  const bool watched = any_watched();
  if (watched && rounds_.turn_is_over(look_at_cores(), next_timer(core))) {
    static_cast<void>(wake_watchers(rounds_.turn() >= 0 ? package_.clock(static_cast<unsigned>(rounds_.turn())).local() : 0));
  }
  wake_called_cores();
  hold_late_cores();
  end_if_endless();
  if (least_now() >= next_expiry(core)) return 0;
  control_if_due();
  run_end_ = rounds_.end_of_run(core, look_at_cores(), next_timer(core), watched);
  return package_.clock(core).instructions_until(run_end_);
}

/// The core's clock has moved without instructions, or its pace has changed: the end of its run is at another instruction. Returns how
/// many are left.
std::uint64_t Machine::plan_run_again(unsigned core) noexcept {
  settle();
  const std::uint64_t left = package_.clock(core).instructions_until(run_end_);
  qemu::set_budget(core, left);
  return left;
}

AfterInstruction Machine::pause(unsigned core) noexcept {
  settle();
  package_.pause(core);
  return plan_run_again(core) == 0 ? AfterInstruction::end_run : AfterInstruction::continue_run;
}

// Clocks differ by up to a quantum. A core that reads the TSC waits until no other is behind: a value read later, by any core, is then not
// smaller.
bool Machine::may_read_tsc(unsigned core) noexcept {
  if (package_.cores() == 1) return true;
  settle();
  const auto cores = look_at_cores();
  // As of the time before this instruction, which will be executed again.
  runners_[core].local -= package_.clock(core).per_instruction();
  waits_for_others_[core] = is_ahead(cores, core);
  return !waits_for_others_[core];
}

// --- Sleep -------------------------------------------------------------------------------------------------------------------------------

void Machine::fall_asleep(unsigned core, State state) noexcept {
  package_.fall_asleep(core, state);
  digest_.add(package_.now(core));
  digest_.add(core << 8 | index_of(state));
  if (options_.trace != nullptr) {
    std::fprintf(options_.trace, "%" PRIu64 " ns: core %u sleeps in %s\n", to_ns(package_.now(core)), core, state_names[index_of(state)]);
  }
}

void Machine::wake(unsigned core) noexcept {
  if (raised_outside_[core].exchange(false)) package_.catch_up(core, latest_.load());
  const WakeCause cause = first_call_[core].value_or(watches_[core].changed() ? WakeCause::write : WakeCause::outside);
  digest_.add(package_.now(core));
  digest_.add(core << 8);
  if (options_.trace != nullptr) {
    std::fprintf(options_.trace, "%" PRIu64 " ns: core %u wakes from %s by %s\n", to_ns(package_.now(core)), core,
                 state_names[index_of(package_.state(core))], wake_cause_names[index_of(cause)]);
  }
  package_.wake(core, cause);
  if (cause == WakeCause::write) first_call_[core].reset();
}

/// An event that ends a sleep of the core, or its next sleep if the core is awake and has interrupts disabled. Further calls may come
/// before a core that wakes up takes an interrupt. Then the guest decides which of them it takes for the cause.
void Machine::note_call(unsigned core, WakeCause cause) noexcept {
  if (!first_call_[core]) first_call_[core] = cause;
  if (options_.trace != nullptr) std::fprintf(options_.trace, "core %u is called by %s\n", core, wake_cause_names[index_of(cause)]);
}

void Machine::halt(unsigned core) noexcept {
  settle();
  watches_[core].armed = watches_[core].ended_by_masked_interrupt = false;
  fall_asleep(core, package_.lightest_sleep());
}

void Machine::monitor(unsigned core, const std::uint8_t* line) noexcept {
  Watch& watch = watches_[core];
  watch.line = line;
  watch.armed = line != nullptr;
  if (watch.armed) std::memcpy(watch.before.data(), line, watch.before.size());
}

AfterInstruction Machine::mwait(unsigned core, const qemu::MwaitRequest& request) noexcept {
  settle();
  Watch& watch = watches_[core];
  if (!watch.armed || watch.changed() || request.interrupt_pending || request.hint >= first_hint_of_c0) {
    watch.armed = false;
    if (options_.trace != nullptr) std::fprintf(options_.trace, "%" PRIu64 " ns: core %u passes MWAIT\n", to_ns(package_.now(core)), core);
    return AfterInstruction::continue_run;
  }
  watch.ended_by_masked_interrupt = request.breaks_by_masked_interrupt;
  fall_asleep(core, package_.sleep_of_hint(request.hint));
  return AfterInstruction::sleep;
}

bool Machine::any_watched() const noexcept {
  for (unsigned i = 0; i < package_.cores(); ++i) {
    if (package_.is_asleep(i) && watches_[i].armed && !qemu::is_awake(i)) return true;
  }
  return false;
}

/// A write to a watched line ends a sleep. QEMU would not notice, because its CPU has no interrupt. True: it has ended one.
bool Machine::wake_watchers(Ticks local) noexcept {
  bool ended = false;
  for (unsigned i = 0; i < package_.cores(); ++i) {
    if (!package_.is_asleep(i) || !watches_[i].changed()) continue;
    note_call(i, WakeCause::write);
    watches_[i].armed = watches_[i].ended_by_masked_interrupt = false;
    package_.catch_up(i, local);
    qemu::end_halt(i);
    ended = true;
  }
  return ended;
}

void Machine::interrupt_raised(unsigned core) noexcept {
  if (!qemu::in_cpu_thread()) {
    raised_outside_[core] = true;
    return;
  }
  const bool by_core = qemu::current_cpu_runs() && qemu::current_cpu() != core;
  note_call(core, card_calls_ ? WakeCause::card : by_core ? WakeCause::core : WakeCause::timer);
  if (qemu::is_awake(core)) return;
  settle();
  package_.catch_up(core, local_now());
  if (qemu::current_cpu_runs() && qemu::current_cpu() != core) qemu::end_current_run();  // from now on two cores take turns
}

/// An interrupt from another thread first becomes a request to ask the local APIC. A core with such a request counts as called, so the
/// package may have woken it before the interrupt is raised here.
bool Machine::masked_interrupt_wakes(unsigned core) noexcept {
  Watch& watch = watches_[core];
  if (!watch.ended_by_masked_interrupt) return false;
  watch.ended_by_masked_interrupt = watch.armed = false;
  return true;
}

void Machine::interrupt_taken(unsigned core) noexcept {
  watches_[core].armed = watches_[core].ended_by_masked_interrupt = false;
  if (package_.is_asleep(core)) {
    wake(core);
    static_cast<void>(plan_run_again(core));
  }
  if (options_.trace != nullptr && first_call_[core]) std::fprintf(options_.trace, "core %u takes an interrupt\n", core);
  first_call_[core].reset();
}

// --- Instructions ------------------------------------------------------------------------------------------------------------------------

bool Machine::read(unsigned core, std::uint32_t msr, std::uint64_t& value) noexcept {
  settle();
  return read_msr(package_, core, msr, value);
}

bool Machine::write(unsigned core, std::uint32_t msr, std::uint64_t value) noexcept {
  settle();
  if (!write_msr(package_, core, msr, value)) return false;
  static_cast<void>(plan_run_again(core));
  digest_.add(package_.now(core));
  digest_.add(msr);
  digest_.add(value);
  return true;
}

bool Machine::read_performance_counter(unsigned core, std::uint32_t selector, std::uint64_t& value) noexcept {
  settle();
  return read_counter(package_, core, selector, value);
}

void Machine::cpuid(unsigned core, std::uint32_t leaf, std::uint32_t subleaf, CpuidWords& words) noexcept {
  change_cpuid(package_, leaf, words);
  if (leaf != model_machine_leaf || subleaf == 0) return;
  settle();
  snapshot("mark", subleaf, package_.now(core));
}

// The end is taken at the instruction that asks for it: QEMU's main thread ends the run some instructions later.
void Machine::port_write(std::uint32_t port, std::uint32_t value) noexcept {
  const Ticks time = now();
  digest_.add(time);
  digest_.add(std::uint64_t{port} << 32 | value);
  if (options_.lines && port == console_port && (value & 0xff) == '\n') {
    snapshot("line", ++lines_, time);
    profile::console_line_ended(lines_);
  }
  const bool ends = port == debug_exit_port || (port == power_port && (value & power_sleep_enable) != 0);
  if (!ends || exit_written_) return;
  exit_written_ = true;
  snapshot("exit", 0, time);
  require_profile(profile::machine_ended());
  qemu::end_current_run();
}

void Machine::snapshot(const char* event, std::uint64_t mark, Ticks time) noexcept {
  if (options_.trace != nullptr) std::fprintf(options_.trace, "%s, phase %u\n", event, static_cast<unsigned>(phase_));
  if (options_.out == nullptr) return;
  const Moment moment{.event = event, .phase = static_cast<unsigned>(phase_), .load = load_, .mark = mark, .now = time};
  write_snapshot(options_.out, package_, moment, digest_);
}

void Machine::ended() noexcept {
  if (!exit_written_) snapshot("exit", 0, latest_.load() + package_.skipped());
  exit_written_ = true;
  require_profile(profile::machine_ended());
}

// --- The card ----------------------------------------------------------------------------------------------------------------------------

void Machine::before_card_access(bool write, std::uint32_t region, std::uint64_t offset, const void* data, std::size_t bytes) noexcept {
  const Ticks time = now();
  if (link_.is_connected()) link_.publish(to_ns(time));
  if (!write) return;
  std::uint64_t value = 0;
  std::memcpy(&value, data, std::min(bytes, sizeof value));
  digest_.add(time);
  digest_.add(offset << 8 | region);
  digest_.add(value);
}

void Machine::after_card_access() noexcept {
  if (link_.is_connected()) look_at_world();
}

void Machine::start_world() noexcept {
  if (link_.is_connected()) qemu::set_timer(1000);
}

/// The earliest time at which a core may do something: QEMU's next timer, or the next instruction of a core that is awake. That of a core
/// that is waking up comes later than now. The world's own timer is not set at this time.
std::uint64_t Machine::idle_until_ns(std::uint64_t now_ns) const noexcept {
  const std::int64_t left = qemu::next_timer_ns();
  std::uint64_t until_ns = left < 0 ? Link::never : now_ns + static_cast<std::uint64_t>(left);
  for (unsigned i = 0; i < package_.cores(); ++i) {
    if (qemu::is_awake(i)) until_ns = std::min(until_ns, package_.is_asleep(i) ? now_ns : std::max(now_ns, to_ns(package_.now(i))));
  }
  return until_ns;
}

void Machine::advance_world() noexcept {
  if (!link_.is_connected()) return;
  const std::uint64_t now_ns = to_ns(now());
  if (!link_.advance(now_ns, idle_until_ns(now_ns))) {
    if (phase_ == Phase::finished) return;
    std::fputs("neap-machine: the world has ended the link\n", stderr);
    snapshot("error", 0, now());
    qemu::end_process(status_world_gone);
  }
  look_at_world();
}

/// After the world has acted: its interrupts, its writes to memory, its next time, its phase.
void Machine::look_at_world() noexcept {
  const Ticks time = now();
  for (std::uint64_t vectors = link_.take_vectors(); vectors != 0; vectors &= vectors - 1) {
    const auto number = static_cast<unsigned>(__builtin_ctzll(vectors));
    digest_.add(time);
    digest_.add(number);
    card_calls_ = true;
    qemu::notify_card_vector(number);
    card_calls_ = false;
  }
  const std::uint64_t next = link_.next_ns();
  world_acts_ = next == Link::never ? ~Ticks{0} : from_ns(next);
  if (next == Link::never) {
    qemu::clear_timer();
  } else {
    qemu::set_timer(next);
  }
  if (wake_watchers(local_now()) && qemu::current_cpu_runs()) qemu::end_current_run();
  if (link_.failed()) {
    snapshot("error", 0, time);
    std::fputs("neap-machine: the world cannot go on\n", stderr);
    qemu::end_process(status_world_gone);
  }
  const Phase phase = link_.phase();
  if (phase == phase_) return;
  phase_ = phase;
  load_ = link_.load();
  snapshot("phase", 0, time);
  require_profile(profile::phase_changed(phase == Phase::window, load_));
  if (phase == Phase::finished && !options_.stay) {
    exit_written_ = true;
    require_profile(profile::machine_ended());
    qemu::end_process(status_finished);
  }
}

}  // namespace neap::model
