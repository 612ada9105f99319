// SPDX-License-Identifier: BSL-1.0
#include "kernel/events.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <utility>

#include "kernel/core.hpp"
#include "kernel/event_loop.hpp"
#include "kernel/log.hpp"
#include "kernel/memory/heap.hpp"
#include "kernel/panic.hpp"
#include "kernel/policy.hpp"

namespace neap {

constinit thread_local EventLoop event_loop;

namespace detail {

void* take_event_memory() { return event_loop.take_event_memory(); }
void give_back_event_memory(void* memory) noexcept { event_loop.give_back_event_memory(memory); }
void enqueue(RemoteNode& node) noexcept { event_loop.enqueue(node); }

}  // namespace detail

Result<void> spawn_on(unsigned core, Callback callback) {
  require(callback != nullptr, "spawn_on of an empty callback");
  require(core < core_count(), "spawn_on a core that does not run", core);
  if (core == this_core()) {
    spawn(std::move(callback));
    return {};
  }
  Core& target = core_state(core);
  if (!target.remote.try_push(callback)) {
    if (Core* const self = this_core_state(); self != nullptr) self->counters.remote_refused.add();
    return failure(ErrorCode::full, "remote queue of the core is full", core);
  }
  announce_work(target, core, WakeWord::remote_event);
  return {};
}

void hand_over(unsigned core, RemoteNode& node) noexcept {
  require(node.run != nullptr, "hand_over of a node without a function");
  require(core < core_count(), "hand_over to a core that does not run", core);
  if (core == this_core()) {
    event_loop.enqueue(node);
    return;
  }
  Core& target = core_state(core);
  require(!is_queued(node), "a node is handed over at most once");
  target.handed_over.push(node);
  announce_work(target, core, WakeWord::handed_over);
}

void run_event_loop() { event_loop.run(); }
void stop_event_loop() noexcept { event_loop.stop(); }

EventEndHook::EventEndHook(Callback run, Place place) : run_(std::move(run)) {
  require(run_ != nullptr, "an event-end hook without a callback");
  event_loop.add(*this, place);
}

EventEndHook::~EventEndHook() { event_loop.remove(*this); }

IdleHook::IdleHook(std::move_only_function<bool()> look) : look_(std::move(look)) {
  require(look_ != nullptr, "an idle hook without a function");
  event_loop.add(*this);
}

IdleHook::~IdleHook() { event_loop.remove(*this); }

// --- The loop ----------------------------------------------------------------------------------------------------------------------------
void EventLoop::add(EventEndHook& hook, EventEndHook::Place place) noexcept {
  const bool last = place == EventEndHook::Place::last;
  const unsigned end = last ? work_bits::end_hooks_max : work_bits::end_hooks_max - last_hooks_max;
  for (unsigned number = last ? end - last_hooks_max : 0; number < end; ++number) {
    if (hooks_[number] != nullptr) continue;
    hooks_[number] = &hook;
    hook.bit_ = 1U << number;
    return;
  }
  panic("a core has too many event-end hooks");
}

void EventLoop::remove(EventEndHook& hook) noexcept {
  const auto number = static_cast<unsigned>(std::countr_zero(hook.bit_));
  require(hooks_[number] == &hook, "an event-end hook belongs to another core", number);
  hooks_[number] = nullptr;
  core_work &= ~hook.bit_;
}

// The lowest bit is the next hook's. Hooks of place `last` have the highest bits.
void EventLoop::run_hooks() noexcept {
  while ((core_work & work_bits::end_hooks) != 0) {
    const auto number = static_cast<unsigned>(std::countr_zero(core_work));
    EventEndHook* const hook = hooks_[number];
    require(hook != nullptr, "an event-end hook is requested on another core than its own", number);
    core_work &= core_work - 1;
    hook->run_();
  }
}

void EventLoop::add(IdleHook& hook) noexcept {
  IdleHook** end = &idle_hooks_;
  while (*end != nullptr) end = &(*end)->next_;
  *end = &hook;
}

void EventLoop::remove(IdleHook& hook) noexcept {
  if (idle_next_ == &hook) idle_next_ = hook.next_;
  for (IdleHook** entry = &idle_hooks_; *entry != nullptr; entry = &(*entry)->next_) {
    if (*entry == &hook) {
      *entry = hook.next_;
      return;
    }
  }
  panic("an idle hook belongs to another core");
}

// `noexcept`: an exception that leaves an event ends in std::terminate, with the throwing frames still on the stack.
void EventLoop::run() noexcept {
  self_ = &core_state(this_core());
  require(this_core() < core_count(), "an event loop on a thread that is no core", this_core());
  heap_flag_ = &memory::boundary_flag();
  stop_ = false;
  note_policy();
  rcu::come_online(*self_);
  for (;;) {
    bool again = run_iteration();
    // Without an interrupt that announces a frame, the rings are checked beside other work, too.
    if (!again || interrupt_off_) again |= run_idle_hooks();
    if (again || has_more_work()) [[unlikely]] {
      end_iteration(again);
      if (stop_) break;
    } else {
      be_idle();
    }
  }
  end_polling_phase();
  if (watchdog::on) watchdog::idle();
  rcu::go_offline(*self_);
  discard_queued();
}

// Returns false if no work is left that this function handles: only interrupts ran, and after them nothing was queued. So a wake-up by an
// interrupt takes one iteration, not a second one that finds nothing.
[[gnu::always_inline]] inline bool EventLoop::run_iteration() noexcept {
  bool ran = false;
  for (unsigned windows = 1;; ++windows) {
    machine::open_interrupt_window();
    if (!interrupts_marked()) break;
    run_marked_interrupts(*self_);
    if ((core_work & work_bits::policy) != 0) [[unlikely]]
      found_work();
    if (windows == interrupt_windows) {
      ran = true;
      break;
    }
  }
  if ((core_work & (work_bits::local | work_bits::remote)) != 0 || self_->wake_word.any()) [[unlikely]]
    ran |= run_queued();
  return ran;
}

/// True if this core does not sleep at once in a fixed state: there is work, RCU waits for this core, or the idle policy has to decide.
[[gnu::always_inline]] inline bool EventLoop::has_more_work() const noexcept {
  return core_work != 0 || rcu::epoch_changed() || heap_flag_->load(std::memory_order_relaxed);
}

/// `again`: the iteration has run events, so the next one follows without a sleep.
[[gnu::noinline]] void EventLoop::end_iteration(bool again) noexcept {
  end_event();  // hooks that an idle hook has requested
  again |= (core_work & work_bits::local) != 0;
  again |= rcu::pass_boundary(reclaim_budget);
  if ((core_work & work_bits::heap) != 0 || heap_flag_->load(std::memory_order_relaxed)) again |= memory::pass_boundary();
  again |= timer_wheel.run_due(timer_budget, machine::timestamp());
  if (again) {
    found_work();
  } else if (!stop_) {
    be_idle_by_policy();
  }
}

[[gnu::noinline]] bool EventLoop::run_queued() noexcept {
  if (self_->wake_word.any()) requests_ |= self_->wake_word.take();
  requests_ &= ~WakeWord::call;
  bool ran = false;
  if ((requests_ & WakeWord::handed_over) != 0) ran |= run_handed_over();
  if ((requests_ & WakeWord::remote_event) != 0) ran |= run_remote();
  if ((core_work & work_bits::local) != 0) ran |= run_local();
  core_work = requests_ != 0 ? core_work | work_bits::remote : core_work & ~work_bits::remote;
  return ran;
}

bool EventLoop::run_handed_over() noexcept {
  unsigned ran = 0;
  if (received_.empty()) received_.take_reversed(self_->handed_over.take_newest_first());
  while (ran < handed_over_budget) {
    RemoteNode* const node = received_.pop_front();
    if (node == nullptr) break;
    ++ran;
    self_->counters.remote_received.add();
    begin_event(*node);
    node->run(node);
    finish_event();
  }
  if (received_.empty() && self_->handed_over.empty()) requests_ &= ~WakeWord::handed_over;
  return ran != 0;
}

// Interrupts are taken between two events, here and in `run_local`. After an interrupt, the iteration runs no more queued events, so the
// interrupt's callback waits for one event at most.
bool EventLoop::run_remote() noexcept {
  unsigned ran = 0;
  while (Callback* const callback = self_->remote.front()) {
    begin_event(callback->code());
    (*callback)();
    self_->remote.pop();  // before `end_event`: the captures' destructors may request hooks, which `end_event` calls
    ++ran;
    end_event();
    if (ran == remote_budget) break;
    machine::open_interrupt_window();
    if (interrupts_marked()) break;
  }
  self_->counters.remote_received.add(ran);
  self_->counters.events.add(ran);
  if (self_->remote.empty()) requests_ &= ~WakeWord::remote_event;
  return ran != 0;
}

bool EventLoop::run_local() noexcept {
  unsigned left = local_budget;  // counted down, because that is one instruction less for each event
  while (RemoteNode* const node = local_.pop_front()) {
    begin_event(*node);
    node->run(node);
    end_event();
    if (--left == 0) break;
    machine::open_interrupt_window();
    if (interrupts_marked()) break;
  }
  const unsigned ran = local_budget - left;
  self_->counters.events.add(ran);
  if (local_.empty()) core_work &= ~work_bits::local;
  return ran != 0;
}

[[gnu::always_inline]] inline bool EventLoop::run_idle_hooks() noexcept {
  bool found = false;
  for (IdleHook* hook = idle_hooks_; hook != nullptr; hook = idle_next_) {
    idle_next_ = hook->next_;
    if (hook->look_()) {
      found = true;
      finish_event();
    }
  }
  return found;
}

// --- The idle loop -----------------------------------------------------------------------------------------------------------------------
void EventLoop::found_work() noexcept {
  if (idle_since_ns_ != 0) [[unlikely]]
    end_gap();
  found_none_at_tsc_ = 0;
}

/// Sleeps in a fixed state. There is no work, and `core_work` is zero, so the policy is one that allows this.
[[gnu::always_inline]] inline void EventLoop::be_idle() noexcept {
  log::before_sleep();
  const std::uint64_t now_tsc = machine::timestamp();
  if (timer_wheel.run_due(timer_budget, now_tsc)) [[unlikely]]
    return;
  arm_alarm_for_sleep();
  if (core_work != 0) [[unlikely]]
    return;  // `before_sleep` has ended the log's run, which queues an event
  std::uint64_t until_tsc = 0;
  static_cast<void>(sleep_in(idle_state_, now_tsc, nullptr, until_tsc));
  if (until_tsc >= next_error_check_tsc_) [[unlikely]]
    check_hardware_errors(until_tsc);
}

/// As `be_idle`, with every idle policy, for a core with or without nodes of RCU.
void EventLoop::be_idle_by_policy() noexcept {
  if (watchdog::on) watchdog::idle();
  log::before_sleep();
  if ((core_work & work_bits::spare) != 0) {
    free_spare_events(spare_events_kept);
    core_work &= ~work_bits::spare;
  }
  if (idle_state_ == IdleState::poll) {
    poll(machine::timestamp());
  } else if (may_poll_ && keeps_polling()) {
    machine::pause();
  } else {
    sleep();
  }
}

// Called whenever one of these has changed. The watchdog is switched on and off before cores run.
void EventLoop::note_policy() noexcept {
  const bool fixed = static_cast<unsigned>(idle_state_) < c_states && !may_poll_ && !watchdog::on && !stop_;
  core_work = fixed ? core_work & ~work_bits::policy : core_work | work_bits::policy;
}

// A polling core is never `asleep`, so no sender interrupts it: its next check finds queued work. The log counts the time between two
// checks as idle if the first check found no work.
void EventLoop::poll(std::uint64_t now) noexcept {
  if (found_none_at_tsc_ != 0) log::slept(IdleState::poll, IdleState::poll, found_none_at_tsc_, now, {});
  found_none_at_tsc_ = now;
  if (now >= next_error_check_tsc_) [[unlikely]]
    check_hardware_errors(now);
  machine::pause();
}

void EventLoop::idle_by(const Idling& idling) noexcept {
  const auto state = static_cast<unsigned>(idling.state), watching = static_cast<unsigned>(idling.monitor_state);
  require(state < idle_states, "no such idle state", state);
  require(watching >= static_cast<unsigned>(IdleState::c1) && watching <= static_cast<unsigned>(IdleState::c7), "no C-state", watching);
  end_polling_phase();
  idle_state_ = idling.state;
  interrupt_off_ = idle_state_ == IdleState::poll || idle_state_ == IdleState::monitor;
  monitor_state_ = idling.monitor_state;
  poll_budget_ns_ = idling.poll_budget_ns;
  adaptation_.limit(idling.adaptive_poll_ns);
  may_poll_ = poll_budget_ns_ != 0 || adaptation_.on();
  note_policy();
}

// The time at which the core had no work is kept while it sleeps, so that a gap that a sleep ended counts in full.
bool EventLoop::keeps_polling() noexcept {
  const std::uint64_t now = machine::now_ns();
  if (idle_since_ns_ == 0) idle_since_ns_ = now;
  const std::uint64_t gap_ns = now - idle_since_ns_;
  if (gap_ns < adaptation_.budget_ns()) {
    begin_polling_phase();
    return true;
  }
  end_polling_phase();
  return gap_ns < poll_budget_ns_;
}

void EventLoop::end_gap() noexcept {
  if (adaptation_.on()) adaptation_.note_gap(machine::now_ns() - idle_since_ns_);
  idle_since_ns_ = 0;
}

void EventLoop::begin_polling_phase() noexcept {
  if (polling_phase_ || idle_state_ == IdleState::monitor) return;  // with `monitor` the interrupt is off already
  policy::Device* const device = policy::device();
  if (device == nullptr) return;
  polling_phase_ = interrupt_off_ = true;
  self_->counters.polling_phases.add();
  device->set_interrupt(this_core(), false);
}

// If a frame arrived since the last check, the card raises an interrupt now. So the core can sleep at once.
void EventLoop::end_polling_phase() noexcept {
  if (!polling_phase_) return;
  polling_phase_ = interrupt_off_ = false;
  if (policy::Device* const device = policy::device(); device != nullptr) device->set_interrupt(this_core(), true);
}

// Called before the core sleeps until the card's next write. Copies the line that the card writes next, then checks the rings once more. A
// write after the copy changes the line, which `machine::sleep` checks; a write after MONITOR ends the sleep. Returns false if there is
// work, or if the driver offers no line now. The core then checks again soon. Without a card the core halts.
bool EventLoop::watch_card() noexcept {
  const policy::Device* const device = policy::device();
  if (device == nullptr) return true;
  const volatile void* const line = device->next_receive_line(this_core());
  if (line == nullptr) {
    machine::pause();
    return false;
  }
  const WatchedLine before(line);
  const bool found = run_idle_hooks();
  end_event();
  if (found || (core_work & work_bits::local) != 0) {
    found_work();
    return false;
  }
  watched_ = before;
  return true;
}

/// Sleeps in `state`, and counts and records the sleep. There is no work on this core, and no interrupt has arrived that is not handled.
[[gnu::always_inline]] inline Sleep EventLoop::sleep_in(IdleState state, std::uint64_t from_tsc, const WatchedLine* watched,
                                                        std::uint64_t& until_tsc) noexcept {
  const auto index = static_cast<unsigned>(state);
  Counter& asleep_ticks = self_->counters.asleep_ticks[index];
  self_->counters.sleeps[index].add();
  asleep_ticks.subtract(from_tsc);
  Sleep how = machine::sleep(state, self_->wake_word, watched);
  until_tsc = machine::timestamp();
  rcu::end_sleep(*self_);
  asleep_ticks.add(until_tsc);
  if (watched != nullptr && how.cause == WakeCause::unknown && watched->changed()) how.cause = WakeCause::memory;
  log::slept(idle_state_, state, from_tsc, until_tsc, how);
  return how;
}

[[gnu::noinline]] void EventLoop::sleep() noexcept {
  if (!rcu::prepare_sleep()) return;
  watched_ = {};
  IdleState state = idle_state_;
  if (state == IdleState::monitor) {
    if (!watch_card()) return;
    state = watched_.line() != nullptr ? monitor_state_ : IdleState::halt;
  }
  const std::uint64_t latest_ns = watchdog::on ? watchdog::next_look_ns() : machine::alarm_none;
  if (state == IdleState::menu) {
    state = choose_state(latest_ns);
  } else {
    arm_alarm_for_sleep(latest_ns);
  }
  if ((core_work & (work_bits::end_hooks | work_bits::local)) != 0 || interrupts_marked()) return;
  const std::uint64_t from_tsc = machine::timestamp();
  std::uint64_t until_tsc = 0;
  const Sleep how = sleep_in(state, from_tsc, watched_.line() != nullptr ? &watched_ : nullptr, until_tsc);
  if (idle_state_ == IdleState::menu && how.cause != WakeCause::not_asleep) {
    const bool to_look_again = how.cause == WakeCause::timer && alarm_is_to_look_again_;
    governor_.woke(machine::power_abilities(), state, nanoseconds(until_tsc - from_tsc), to_look_again);
  }
  if (until_tsc >= next_error_check_tsc_) check_hardware_errors(until_tsc);
}

/// Chooses the state of `menu`, and arms the alarm for the earliest of the next timer, `latest_ns` and the moment to choose again.
IdleState EventLoop::choose_state(std::uint64_t latest_ns) noexcept {
  const std::uint64_t now_ns = machine::now_ns();
  // As in `arm_alarm_for_sleep`, a time that cancelled timers have left too early stays until it has passed.
  if (menu_timer_ns_ <= now_ns) menu_timer_ns_ = machine::alarm_none;
  if (menu_timer_ns_ > std::min(timer_wheel.not_before_ns(), latest_ns)) menu_timer_ns_ = std::min(timer_wheel.earliest_ns(), latest_ns);
  const std::uint64_t until_timer_ns = menu_timer_ns_ > now_ns ? menu_timer_ns_ - now_ns : 0;
  const IdleGovernor::Choice choice = governor_.choose(machine::power_abilities(), until_timer_ns);

  // Before short sleeps the alarm would move a little each time, and setting it costs more than all else here. So an alarm stays if it is
  // at least half the wanted time away.
  alarm_is_to_look_again_ = choice.look_again_ns < until_timer_ns;
  const std::uint64_t latest_alarm_ns = alarm_is_to_look_again_ ? now_ns + choice.look_again_ns : menu_timer_ns_;
  const std::uint64_t earliest_alarm_ns = alarm_is_to_look_again_ ? now_ns + choice.look_again_ns / 2 : menu_timer_ns_;
  if (armed_alarm_ns < earliest_alarm_ns || armed_alarm_ns > latest_alarm_ns) {
    machine::set_alarm(latest_alarm_ns);
    armed_alarm_ns = latest_alarm_ns;
  }
  return choice.state;
}

// No core is woken for this check: a core that sleeps for an hour checks when it wakes.
void EventLoop::check_hardware_errors(std::uint64_t now_tsc) noexcept {
  constexpr std::uint64_t seconds_between = 60;
  next_error_check_tsc_ = now_tsc + seconds_between * machine::timestamp_hz();
  machine::check_hardware_errors();
}

// A loop ends only in tests. Spawned events are destroyed here, on their own core. Nodes of other kinds have an owner that frees them.
void EventLoop::discard_queued() noexcept {
  while (RemoteNode* const node = local_.pop_front()) {
    if (node->discard != nullptr) node->discard(node);
  }
  free_spare_events(0);
}

void EventLoop::free_spare_events(unsigned keep) noexcept {
  while (events_in_memory_ > keep && spare_events_ != nullptr) {
    ::operator delete(std::exchange(spare_events_, spare_events_->next));
    --events_in_memory_;
  }
}

void* EventLoop::take_event_memory() {
  SpareEvent* const spare = spare_events_;
  if (spare == nullptr) [[unlikely]] {
    void* const memory = ::operator new(detail::event_bytes);
    if (++events_in_memory_ > spare_events_kept) core_work |= work_bits::spare;
    return memory;
  }
  spare_events_ = spare->next;
  return spare;
}

void EventLoop::give_back_event_memory(void* memory) noexcept { spare_events_ = ::new (memory) SpareEvent{spare_events_}; }

}  // namespace neap
