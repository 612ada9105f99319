// SPDX-License-Identifier: BSL-1.0
#include "kernel/timer.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <limits>
#include <utility>

#include "kernel/event_loop.hpp"
#include "kernel/machine.hpp"
#include "kernel/panic.hpp"
#include "kernel/timer_wheel.hpp"

namespace neap {
namespace {

constinit thread_local TimerWheel wheel;
constinit thread_local std::uint64_t armed_ns = machine::alarm_none;

std::uint64_t deadline_after(std::chrono::nanoseconds delay) noexcept {
  // Half of the clock's range is kept free, so that no sum with it overflows: 292 years.
  constexpr std::uint64_t latest = std::numeric_limits<std::int64_t>::max();
  const std::uint64_t now = machine::now_ns();
  const std::uint64_t ahead = delay.count() < 0 ? 0 : static_cast<std::uint64_t>(delay.count());
  return ahead > latest - now ? latest : now + ahead;
}

}  // namespace

BootClock::time_point BootClock::now() noexcept { return time_point(duration(machine::now_ns())); }

Timer::~Timer() {
  cancel();
  wheel.forget_running(*this);
}

void Timer::arm(std::chrono::nanoseconds delay, Callback fire) {
  require(fire != nullptr, "a timer without a callback");
  cancel();
  fire_ = std::move(fire);
  wheel.insert(*this, deadline_after(delay));
}

void Timer::rearm(std::chrono::nanoseconds delay) {
  require(fire_ != nullptr || wheel.is_running(*this), "rearm of a timer that was never armed");
  cancel();
  wheel.insert(*this, deadline_after(delay));
}

bool Timer::cancel() noexcept {
  if (slot_ == nullptr) return false;
  wheel.remove(*this);
  return true;
}

bool run_due_timers(unsigned budget) noexcept { return wheel.run_due(budget); }

void arm_alarm_for_sleep() noexcept {
  const std::uint64_t earliest = wheel.earliest_ns();
  if (earliest == armed_ns) return;
  machine::set_alarm(earliest);
  armed_ns = earliest;
}

void alarm_may_have_fired() noexcept {
  // An alarm that went off a moment before its deadline by our clock must be set again. One tick covers what clocks disagree.
  if (armed_ns != machine::alarm_none && machine::now_ns() + static_cast<std::uint64_t>(timer_tick.count()) >= armed_ns) {
    armed_ns = machine::alarm_none - 1;  // matches no deadline: the next sleep sets or disarms it
  }
}

// --- The wheel ---------------------------------------------------------------------------------------------------------------------------

void TimerWheel::append(Timer*& list, Timer& timer) noexcept {
  if (list == nullptr) {
    timer.next_ = timer.previous_ = &timer;
    list = &timer;
  } else {
    timer.next_ = list;
    timer.previous_ = list->previous_;
    list->previous_->next_ = &timer;
    list->previous_ = &timer;
  }
  timer.slot_ = &list;
}

void TimerWheel::unlink(Timer*& list, Timer& timer) noexcept {
  if (timer.next_ == &timer) {
    list = nullptr;
  } else {
    timer.previous_->next_ = timer.next_;
    timer.next_->previous_ = timer.previous_;
    if (list == &timer) list = timer.next_;
  }
  timer.next_ = timer.previous_ = nullptr;
  timer.slot_ = nullptr;
}

std::uint64_t TimerWheel::slot_start(unsigned level, unsigned slot) const noexcept {
  const unsigned shift = slot_bits * level;
  return ((elapsed_ >> (shift + slot_bits)) << (shift + slot_bits)) | (std::uint64_t{slot} << shift);
}

bool TimerWheel::earliest_slot(unsigned& level, unsigned& slot) const noexcept {
  for (level = 0; level < levels; ++level) {
    if (occupied_[level] != 0) {
      slot = static_cast<unsigned>(std::countr_zero(occupied_[level]));
      return true;
    }
  }
  return false;
}

void TimerWheel::place(Timer& timer) noexcept {
  const std::uint64_t tick = tick_of(timer.deadline_ns_);
  if (tick <= elapsed_) {
    append(due_, timer);
    return;
  }
  const unsigned level = (63 - static_cast<unsigned>(std::countl_zero(tick ^ elapsed_))) / slot_bits;
  const unsigned slot = (tick >> (slot_bits * level)) % slots;
  append(heads_[level * slots + slot], timer);
  occupied_[level] |= std::uint64_t{1} << slot;
  next_look_ns_ = std::min(next_look_ns_, slot_start(level, slot) << tick_bits);
}

void TimerWheel::insert(Timer& timer, std::uint64_t deadline_ns) noexcept {
  timer.deadline_ns_ = deadline_ns;
  place(timer);
}

void TimerWheel::remove(Timer& timer) noexcept {
  if (timer.slot_ == &due_) {
    unlink(due_, timer);
    return;
  }
  const std::ptrdiff_t index = timer.slot_ - heads_;
  require(index >= 0 && index < static_cast<std::ptrdiff_t>(levels * slots), "a timer belongs to the core that armed it");
  unlink(heads_[index], timer);
  if (heads_[index] == nullptr) occupied_[index / slots] &= ~(std::uint64_t{1} << (index % slots));
}

void TimerWheel::advance(std::uint64_t now_tick) noexcept {
  unsigned level = 0;
  unsigned slot = 0;
  while (earliest_slot(level, slot)) {
    const std::uint64_t start = slot_start(level, slot);
    if (start > now_tick) break;
    elapsed_ = start;
    Timer*& list = heads_[level * slots + slot];
    occupied_[level] &= ~(std::uint64_t{1} << slot);
    while (list != nullptr) {
      Timer& timer = *list;
      unlink(list, timer);
      place(timer);  // due, or on a lower level
    }
  }
  elapsed_ = std::max(elapsed_, now_tick);
  update_next_look();
}

void TimerWheel::update_next_look() noexcept {
  unsigned level = 0;
  unsigned slot = 0;
  next_look_ns_ = earliest_slot(level, slot) ? slot_start(level, slot) << tick_bits : machine::alarm_none;
}

bool TimerWheel::run_due(unsigned budget) noexcept {
  if (due_ == nullptr) {
    if (next_look_ns_ == machine::alarm_none) return false;
    const std::uint64_t now = machine::now_ns();
    if (now < next_look_ns_) return false;
    advance(now >> tick_bits);
    if (due_ == nullptr) return false;
  }
  for (unsigned i = 0; i < budget && due_ != nullptr; ++i) {
    Timer& timer = *due_;
    unlink(due_, timer);
    // The callback may arm the timer again, give it another callback, or destroy it; so it runs from a place of its own.
    Callback fire = std::move(timer.fire_);
    running_ = &timer;
    fire();
    if (running_ == &timer && timer.fire_ == nullptr) timer.fire_ = std::move(fire);
    running_ = nullptr;
    fire = nullptr;
    event_loop.finish_event();
  }
  return true;
}

std::uint64_t TimerWheel::earliest_ns() const noexcept {
  if (due_ != nullptr) return 0;
  unsigned level = 0;
  unsigned slot = 0;
  if (!earliest_slot(level, slot)) return machine::alarm_none;
  const std::uint64_t start_ns = slot_start(level, slot) << tick_bits;
  if (level == 0) return start_ns;
  // A wake-up only to move timers to a lower level would be a wasted one.
  const Timer* const first = heads_[level * slots + slot];
  const Timer* timer = first;
  std::uint64_t earliest = machine::alarm_none;
  for (unsigned looked = 0; looked < alarm_look_at_most; ++looked) {
    earliest = std::min(earliest, tick_of(timer->deadline_ns_) << tick_bits);
    timer = timer->next_;
    if (timer == first) return earliest;
  }
  return start_ns;
}

}  // namespace neap
