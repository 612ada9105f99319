// SPDX-License-Identifier: BSL-1.0
#include "apps/wakeup/pair.hpp"

#include <algorithm>

#include "kernel/event_loop.hpp"
#include "kernel/events.hpp"
#include "kernel/log.hpp"
#include "kernel/policy.hpp"
#include "kernel/timer.hpp"
// The portable interface wakes a core by a write or an interrupt, as its state needs. The benchmark chooses, so it uses the APIC itself.
#include "kernel/x86/apic.hpp"
#include "kernel/x86/cores.hpp"
#include "kernel/x86/cpu.hpp"

namespace neap::wakeup {

namespace {

constexpr std::uint64_t ms_ns = 1'000'000;
// A sleep that no doorbell ends, ends after this time beyond the planned one. A host may hold an emulated core for some 100 ms.
constexpr std::uint64_t rescue_ns = 500 * ms_ns;
// The ringing core waits for the sleeper at most for this time. It exceeds the longest sleep.
constexpr std::uint64_t answer_limit_ns = 2000 * ms_ns;
// Before it rings, the core sleeps in HLT. It wakes up this long before the doorbell's time and then polls, so its own wake-up is over.
constexpr std::uint64_t polled_ns = 50'000;

// The event loop sets its own alarm before its next sleep.
void disarm() noexcept {
  machine::set_alarm(machine::alarm_none);
  forget_alarm();
}

/// The TSC, read after all earlier loads; later instructions do not begin before.
std::uint64_t ticks_now() noexcept { return x86::read_tsc_ordered() + x86::this_core_tsc_offset(); }

std::uint64_t to_ticks(std::uint64_t ns) noexcept {
  constexpr std::uint64_t second_ns = 1'000'000'000;
  return ns / second_ns * machine::timestamp_hz() + ns % second_ns * machine::timestamp_hz() / second_ns;
}

/// `monitor` is no C-state: the core sleeps in the one that its setting `monitor_state` names.
IdleState requested_state(IdleState idle) noexcept { return idle == IdleState::monitor ? policy::of(this_core()).monitor_state : idle; }

/// Sleeps once as an idle core with `idle` would. With `monitor`, a write to `line` after it was copied ends the sleep. The other states
/// watch no line of ours.
Sleep sleep_as(IdleState idle, WakeWord& word, const WatchedLine& line) noexcept {
  const Sleep how = machine::sleep(requested_state(idle), word, idle == IdleState::monitor ? &line : nullptr);
  static_cast<void>(word.take());
  return how;
}

void wake(WakeWord& word, unsigned core) noexcept {
  if (word.request(WakeWord::call)) machine::end_sleep(core);
}

}  // namespace

// An event of the sleeper.
void Pair::sleep_once() noexcept {
  const bool timed = doorbell_ == Doorbell::timer || doorbell_ == Doorbell::timer_all;
  const std::uint64_t line = sleeper_line_.load(std::memory_order_relaxed);
  // The alarm takes nanoseconds. Two readings of the TSC around one of the nanoseconds place the deadline on the TSC.
  const std::uint64_t before_tsc = ticks_now(), now_ns = machine::now_ns(), after_tsc = ticks_now();
  const std::uint64_t deadline_ns = now_ns + asleep_ns_ + (timed ? 0 : rescue_ns);
  if (timed) rung_tsc_.store(before_tsc + (after_tsc - before_tsc) / 2 + to_ticks(asleep_ns_), std::memory_order_relaxed);

  if (state_ == IdleState::poll) {
    asleep_tsc_.store(ticks_now(), std::memory_order_release);
    poll(deadline_ns);
  } else {
    machine::set_alarm(deadline_ns);
    const WatchedLine before(&sleeper_line_);
    asleep_tsc_.store(ticks_now(), std::memory_order_release);
    how_ = sleep_as(state_, sleeper_word_, before);
    awake_tsc_ = ticks_now();
    disarm();
    const bool written = sleeper_line_.load(std::memory_order_relaxed) != line;
    if (how_.cause == WakeCause::unknown && written) how_.cause = WakeCause::memory;
    log_sleep();
  }
  done_.store(true, std::memory_order_release);
  wake(ringer_word_, ringer_);
}

// An interrupt's handler marks the vector. The event loop calls the vector's empty callback after this event.
void Pair::poll(std::uint64_t deadline_ns) noexcept {
  const std::uint64_t line = sleeper_line_.load(std::memory_order_relaxed);
  for (;;) {
    machine::open_interrupt_window();
    if (interrupts_marked()) {
      how_ = {.cause = WakeCause::interrupt, .vector = vector_};
    } else if (sleeper_line_.load(std::memory_order_acquire) != line) {
      how_ = {.cause = WakeCause::memory, .vector = 0};
    } else if (machine::now_ns() >= deadline_ns) {
      how_ = {.cause = WakeCause::timer, .vector = 0};
    } else {
      machine::pause();
      continue;
    }
    awake_tsc_ = ticks_now();
    return;
  }
}

// Two entries that adjoin: the sleep until the doorbell, and the wake-up. The first one's vector is the doorbell's number, because a sleep
// of cause `unknown` has no vector. A sleep that another event ended is one entry.
void Pair::log_sleep() const noexcept {
  const std::uint64_t asleep = asleep_tsc_.load(std::memory_order_relaxed), rung = rung_tsc_.load(std::memory_order_acquire);
  if (asleep == 0) return;
  const IdleState requested = requested_state(state_);
  if (how_.cause != expected_cause(state_, doorbell_) || rung < asleep || rung > awake_tsc_) {
    log::slept(state_, requested, asleep, awake_tsc_, how_);
    return;
  }
  log::slept(state_, requested, asleep, rung, {.cause = WakeCause::unknown, .vector = static_cast<std::uint8_t>(doorbell_)});
  log::slept(state_, requested, rung, awake_tsc_, how_);
}

// The ringing core waits in HLT. Its wait is part of no measurement, but a core that polls would take power from the other one.
void Pair::wait_and_ring() noexcept {
  const std::uint64_t ring_at = asleep_tsc_.load(std::memory_order_acquire) + to_ticks(asleep_ns_), polled = to_ticks(polled_ns);
  for (std::uint64_t now = ticks_now(); now + polled < ring_at && !done_.load(std::memory_order_acquire); now = ticks_now()) {
    machine::set_alarm(machine::now_ns() + to_nanoseconds(ring_at - now - polled, machine::timestamp_hz()));
    static_cast<void>(sleep_as(IdleState::halt, ringer_word_, ringer_line_));
  }
  disarm();
  while (ticks_now() < ring_at && !done_.load(std::memory_order_acquire)) machine::pause();
  const bool watches_line = state_ == IdleState::monitor || state_ == IdleState::poll;
  const std::uint32_t target = x86::apic_id_of(sleeper_);
  rung_tsc_.store(ticks_now(), std::memory_order_relaxed);
  if (doorbell_ == Doorbell::ipi) {
    x86::apic::send(target, state_ == IdleState::poll ? vector_ : x86::apic::vector_wake);
  } else if (watches_line) {
    sleeper_line_.fetch_add(1, std::memory_order_seq_cst);
  } else {
    wake(sleeper_word_, sleeper_);
  }
}

void Pair::sleep_until_done(IdleState state, std::uint64_t latest_ns) noexcept {
  while (!done_.load(std::memory_order_acquire) && machine::now_ns() < latest_ns) {
    machine::set_alarm(latest_ns);
    static_cast<void>(sleep_as(state, ringer_word_, ringer_line_));
  }
  disarm();
}

Result<Round> Pair::ring(IdleState state, Doorbell doorbell, std::chrono::nanoseconds asleep) {
  const std::uint64_t limit_ns = machine::now_ns() + answer_limit_ns + static_cast<std::uint64_t>(asleep.count());
  const auto late = [&] { return machine::now_ns() >= limit_ns; };
  while (!done_.load(std::memory_order_acquire)) {
    if (late()) return failure(ErrorCode::timeout, "the sleeper has not ended an earlier round", sleeper_);
    machine::pause();
  }
  state_ = state;
  doorbell_ = doorbell;
  asleep_ns_ = static_cast<std::uint64_t>(asleep.count());
  ringer_ = this_core();
  how_ = {};
  awake_tsc_ = 0;
  asleep_tsc_.store(0, std::memory_order_relaxed);
  rung_tsc_.store(0, std::memory_order_relaxed);
  done_.store(false, std::memory_order_release);
  if (const auto spawned = spawn_on(sleeper_, [this] { sleep_once(); }); !spawned) {
    done_.store(true, std::memory_order_release);
    return failure(spawned.error().code, spawned.error().message, sleeper_);
  }
  while (asleep_tsc_.load(std::memory_order_acquire) == 0 && !done_.load(std::memory_order_acquire)) {
    if (late()) return failure(ErrorCode::timeout, "the sleeper does not begin to sleep", sleeper_);
    machine::pause();
  }
  if (doorbell == Doorbell::timer) sleep_until_done(IdleState::halt, limit_ns);
  if (doorbell == Doorbell::timer_all) sleep_until_done(state, limit_ns);
  if ((doorbell == Doorbell::ipi || doorbell == Doorbell::write) && !done_.load(std::memory_order_acquire)) wait_and_ring();
  while (!done_.load(std::memory_order_acquire)) {
    if (late()) return failure(ErrorCode::timeout, "the sleeper does not wake up", sleeper_);
    machine::pause();
  }
  const std::uint64_t asleep_tsc = asleep_tsc_.load(std::memory_order_relaxed), rung = rung_tsc_.load(std::memory_order_relaxed);
  // On a busy host the deadline may pass before the core sleeps. That is no wake-up, and the log does not have it as one.
  const bool good = how_.cause == expected_cause(state, doorbell) && asleep_tsc != 0 && rung >= asleep_tsc && awake_tsc_ >= rung;
  return Round{.good = good, .ticks = good ? awake_tsc_ - rung : 0};
}

task<void> Pair::restore_alarms() const {
  co_await on_core(sleeper_, [] { return sleep_for(timer_tick); });
  co_await sleep_for(timer_tick);
}

}  // namespace neap::wakeup
