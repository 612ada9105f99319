// SPDX-License-Identifier: BSL-1.0
#include "kernel/events.hpp"

#include <atomic>
#include <memory>
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
  wake_if_asleep(target, core);
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
  target.handed_over.push(node);
  wake_if_asleep(target, core);
}

void run_event_loop() { event_loop.run(); }

void stop_event_loop() noexcept { event_loop.stop(); }

EventCounters event_counters(unsigned core) noexcept {
  const CoreCounters& counters = core_state(core).counters;
  return {.events = counters.events.value(),
          .interrupts = counters.interrupts.value(),
          .spurious = counters.spurious.value(),
          .alarms = counters.alarms.value(),
          .remote_received = counters.remote_received.value(),
          .remote_refused = counters.remote_refused.value(),
          .sleeps = counters.sleeps.value(),
          .asleep_ns = counters.asleep_ns.value()};
}

EventEndHook::~EventEndHook() {
  if (requested_) event_loop.withdraw(*this);
}

void EventEndHook::request() noexcept {
  if (!requested_) event_loop.request(*this);
}

IdleHook::IdleHook(std::move_only_function<bool()> look) : look_(std::move(look)) { event_loop.add(*this); }

IdleHook::~IdleHook() { event_loop.remove(*this); }

// --- The loop ----------------------------------------------------------------------------------------------------------------------------

void EventLoop::request(EventEndHook& hook) noexcept {
  HookList& list = list_of(hook);
  hook.requested_ = true;
  hooks_wait_ = true;
  hook.next_ = nullptr;
  (list.first == nullptr ? list.first : list.last->next_) = &hook;
  list.last = &hook;
}

void EventLoop::withdraw(EventEndHook& hook) noexcept {
  HookList& list = list_of(hook);
  EventEndHook* before = nullptr;
  for (EventEndHook* entry = list.first; entry != &hook; entry = entry->next_) {
    require(entry != nullptr, "an event-end hook belongs to another core");
    before = entry;
  }
  (before == nullptr ? list.first : before->next_) = hook.next_;
  if (list.last == &hook) list.last = before;
  hook.requested_ = false;
}

void EventLoop::run_hooks() noexcept {
  while (hooks_.first != nullptr || last_hooks_.first != nullptr) {
    HookList& list = hooks_.first != nullptr ? hooks_ : last_hooks_;
    EventEndHook& hook = *list.first;
    list.first = hook.next_;
    hook.requested_ = false;
    hook.run_();
  }
  hooks_wait_ = false;
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

// `noexcept` is the rule that an exception does not leave an event: it ends in std::terminate with the thrower's frames still on the stack.
void EventLoop::run() noexcept {
  self_ = &core_state(this_core());
  stop_ = false;
  rcu::come_online();
  while (!stop_) {
    if (turn() || look_idle()) {
      found_work();
    } else if (!stop_) {
      be_idle();
    }
  }
  if (watchdog::on) watchdog::idle();
  rcu::go_offline();
  discard_queued();
}

bool EventLoop::turn() noexcept {
  machine::open_interrupt_window();
  bool ran = interrupts_marked() && run_marked_interrupts();
  if (received_ != nullptr || !self_->handed_over.empty()) {
    run_handed_over();
    ran = true;
  }
  if (!self_->remote.empty()) {
    run_remote();
    ran = true;
  }
  if (first_ != nullptr) {
    run_local();
    ran = true;
  }
  ran |= run_due_timers(timer_budget);
  ran |= rcu::pass_boundary(reclaim_budget);
  ran |= memory::pass_boundary();
  return ran;
}

void EventLoop::run_handed_over() noexcept {
  if (received_ == nullptr) received_ = self_->handed_over.take();
  for (unsigned i = 0; i < handed_over_budget && received_ != nullptr; ++i) {
    RemoteNode* const node = received_;
    received_ = node->next;
    self_->counters.remote_received.add();
    begin_event(*node);
    node->run(node);
    finish_event();
  }
}

// Between two of them interrupts are taken, here as in `run_local`; one that comes ends the turn's share, so it waits for the present event
// alone.
void EventLoop::run_remote() noexcept {
  unsigned ran = 0;
  while (Callback* const callback = self_->remote.front()) {
    begin_event(callback->code());
    (*callback)();
    self_->remote.pop();  // before the event's end: what it captured may ask for hooks as it goes
    ++ran;
    end_event();
    if (ran == remote_budget) break;
    machine::open_interrupt_window();
    if (interrupts_marked()) break;
  }
  self_->counters.remote_received.add(ran);
  self_->counters.events.add(ran);
}

void EventLoop::run_local() noexcept {
  unsigned ran = 0;
  while (RemoteNode* const node = first_) {
    first_ = node->next;
    if (first_ == nullptr) last_ = nullptr;
    begin_event(*node);
    node->run(node);
    ++ran;
    end_event();
    if (ran == local_budget) break;
    machine::open_interrupt_window();
    if (interrupts_marked()) break;
  }
  self_->counters.events.add(ran);
}

bool EventLoop::look_idle() noexcept {
  bool found = false;
  for (IdleHook* hook = idle_hooks_; hook != nullptr; hook = idle_next_) {
    idle_next_ = hook->next_;
    if (hook->look_()) {
      found = true;
      finish_event();
    } else {
      end_event();
    }
  }
  return found || first_ != nullptr;
}

// --- Nothing to do -----------------------------------------------------------------------------------------------------------------------

void EventLoop::found_work() noexcept {
  idle_since_ns_ = 0;
  looked_at_tsc_ = 0;
}

void EventLoop::be_idle() noexcept {
  if (watchdog::on) [[unlikely]]
    watchdog::idle();
  log::before_sleep();
  if (idle_state_ == IdleState::poll) {
    poll();
  } else if (poll_budget_ns_ != 0 && poll_budget_lasts()) {
    machine::pause();
  } else {
    sleep();
  }
}

// A core that polls is never `asleep`, so nobody sends it an interrupt: its next look finds what was queued. The log counts the time from
// one look in vain to the next as idle.
void EventLoop::poll() noexcept {
  const std::uint64_t now = machine::timestamp();
  if (looked_at_tsc_ != 0) log::slept(IdleState::poll, looked_at_tsc_, now, {});
  looked_at_tsc_ = now;
  if (now >= next_error_look_tsc_) [[unlikely]]
    look_for_hardware_errors(now);
  machine::pause();
}

bool EventLoop::poll_budget_lasts() noexcept {
  const std::uint64_t now = machine::now_ns();
  if (idle_since_ns_ == 0) idle_since_ns_ = now;
  return now - idle_since_ns_ < poll_budget_ns_;
}

// Before the core sleeps on the card's next write: notes what stands there, then looks at the rings once more. What is written after that
// changes the line, which still_idle sees; what is written after MONITOR ends the sleep. False: there is work, or the card wants the core
// to look again soon. Without a card there is nothing to watch, and the core halts.
bool EventLoop::watch_card() noexcept {
  const policy::Device* const device = policy::device();
  if (device == nullptr) return true;
  const volatile void* const line = device->next_receive_line(this_core());
  if (line == nullptr) {
    machine::pause();
    return false;
  }
  const WatchedLine before(line);
  if (look_idle()) {
    found_work();
    return false;
  }
  watched_ = before;
  return true;
}

// Runs inside machine::sleep, after which a wake is not lost any more.
bool EventLoop::still_idle() noexcept {
  const EventLoop& loop = event_loop;
  return loop.self_->remote.empty() && loop.self_->handed_over.empty() && loop.first_ == nullptr && !interrupts_marked() && !loop.stop_ &&
         !loop.watched_.changed();
}

void EventLoop::sleep() noexcept {
  free_spare_events(spare_events_kept);
  if (!rcu::prepare_sleep() || memory::pass_boundary()) return;
  if (idle_state_ == IdleState::monitor && !watch_card()) return;
  arm_alarm_for_sleep(watchdog::on ? watchdog::next_look_ns() : machine::alarm_none);
  rcu::go_offline();
  self_->asleep.store(true, std::memory_order_seq_cst);
  self_->counters.sleeps.add();
  const IdleState asked = idle_state_;
  const std::uint64_t from_ns = machine::now_ns();
  const std::uint64_t from_tsc = machine::timestamp();
  Sleep how = machine::sleep(asked, watched_.line(), &EventLoop::still_idle);
  const std::uint64_t until_tsc = machine::timestamp();
  self_->counters.asleep_ns.add(machine::now_ns() - from_ns);
  self_->asleep.store(false, std::memory_order_relaxed);
  rcu::come_online();
  alarm_may_have_fired();
  if (how.cause == WakeCause::unknown && watched_.changed()) how.cause = WakeCause::memory;
  watched_ = {};
  log::slept(asked, from_tsc, until_tsc, how);
  if (until_tsc >= next_error_look_tsc_) [[unlikely]]
    look_for_hardware_errors(until_tsc);
}

// No core is woken for it: one that sleeps for an hour looks when it wakes.
void EventLoop::look_for_hardware_errors(std::uint64_t now_tsc) noexcept {
  constexpr std::uint64_t seconds_between = 60;
  next_error_look_tsc_ = now_tsc + seconds_between * machine::timestamp_hz();
  machine::look_for_hardware_errors();
}

// Only a test's loop ends. What was spawned is destroyed here, on its own core; other kinds of node belong to others.
void EventLoop::discard_queued() noexcept {
  while (first_ != nullptr) {
    RemoteNode* const node = first_;
    first_ = node->next;
    if (node->discard != nullptr) node->discard(node);
  }
  last_ = nullptr;
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
    ++events_in_memory_;
    return memory;
  }
  spare_events_ = spare->next;
  return spare;
}

void EventLoop::give_back_event_memory(void* memory) noexcept { spare_events_ = ::new (memory) SpareEvent{spare_events_}; }

}  // namespace neap
