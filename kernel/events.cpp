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

namespace {

/// A callable on its way through the local queue.
struct SpawnedEvent : RemoteNode {
  explicit SpawnedEvent(Callback call) : RemoteNode{.run = &SpawnedEvent::execute}, callback(std::move(call)) {}
  static void execute(RemoteNode* node) noexcept {
    const std::unique_ptr<SpawnedEvent> event(static_cast<SpawnedEvent*>(node));
    event->callback();
  }
  Callback callback;
};

}  // namespace

void spawn(Callback callback) {
  require(callback != nullptr, "spawn of an empty callback");
  event_loop.enqueue(*new SpawnedEvent(std::move(callback)));
}

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
  while (hooks_wait()) {
    HookList& list = hooks_.first != nullptr ? hooks_ : last_hooks_;
    EventEndHook& hook = *list.first;
    list.first = hook.next_;
    hook.requested_ = false;
    hook.run_();
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
  rcu::go_offline();
  discard_queued();
}

bool EventLoop::turn() noexcept {
  machine::open_interrupt_window();
  bool ran = run_marked_interrupts();
  ran |= run_handed_over();
  ran |= run_remote();
  ran |= run_local();
  ran |= run_due_timers(timer_budget);
  ran |= rcu::pass_boundary(reclaim_budget);
  ran |= memory::pass_boundary();
  return ran;
}

bool EventLoop::run_handed_over() noexcept {
  if (received_ == nullptr) {
    received_ = self_->handed_over.take();
    if (received_ == nullptr) return false;
  }
  for (unsigned i = 0; i < handed_over_budget && received_ != nullptr; ++i) {
    RemoteNode* const node = received_;
    received_ = node->next;
    self_->counters.remote_received.add();
    node->run(node);
    finish_event();
  }
  return true;
}

bool EventLoop::run_remote() noexcept {
  if (self_->remote.empty()) return false;
  Callback callback;
  if (!self_->remote.try_pop(callback)) return false;
  self_->counters.remote_received.add();
  callback();
  callback = nullptr;  // what it captured may ask for hooks as it goes
  finish_event();
  return true;
}

bool EventLoop::run_local() noexcept {
  RemoteNode* const node = first_;
  if (node == nullptr) return false;
  first_ = node->next;
  if (first_ == nullptr) last_ = nullptr;
  node->run(node);
  finish_event();
  return true;
}

bool EventLoop::look_idle() noexcept {
  bool found = false;
  for (IdleHook* hook = idle_hooks_; hook != nullptr; hook = idle_next_) {
    idle_next_ = hook->next_;
    if (hook->look_()) {
      found = true;
      finish_event();
    } else if (hooks_wait()) {
      run_hooks();
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
  machine::pause();
}

bool EventLoop::poll_budget_lasts() noexcept {
  const std::uint64_t now = machine::now_ns();
  if (idle_since_ns_ == 0) idle_since_ns_ = now;
  return now - idle_since_ns_ < poll_budget_ns_;
}

namespace {

// The card may write it at any moment.
std::uint64_t load_word(const volatile void* line, std::size_t index) noexcept {
  auto* const words = static_cast<std::uint64_t*>(const_cast<void*>(line));
  return std::atomic_ref(words[index]).load(std::memory_order_acquire);
}

}  // namespace

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
  for (std::size_t i = 0; i < watched_before_.size(); ++i) watched_before_[i] = load_word(line, i);
  if (look_idle()) {
    found_work();
    return false;
  }
  watched_ = line;
  return true;
}

bool EventLoop::line_changed() const noexcept {
  for (std::size_t i = 0; i < watched_before_.size(); ++i) {
    if (load_word(watched_, i) != watched_before_[i]) return true;
  }
  return false;
}

// Runs inside machine::sleep, after which a wake is not lost any more.
bool EventLoop::still_idle() noexcept {
  const EventLoop& loop = event_loop;
  return loop.self_->remote.empty() && loop.self_->handed_over.empty() && loop.first_ == nullptr && !interrupts_marked() && !loop.stop_ &&
         (loop.watched_ == nullptr || !loop.line_changed());
}

void EventLoop::sleep() noexcept {
  if (!rcu::prepare_sleep() || memory::pass_boundary()) return;
  if (idle_state_ == IdleState::monitor && !watch_card()) return;
  arm_alarm_for_sleep();
  rcu::go_offline();
  self_->asleep.store(true, std::memory_order_seq_cst);
  self_->counters.sleeps.add();
  const IdleState asked = idle_state_;
  const std::uint64_t from_ns = machine::now_ns();
  const std::uint64_t from_tsc = machine::timestamp();
  Sleep how = machine::sleep(asked, watched_, &EventLoop::still_idle);
  const std::uint64_t until_tsc = machine::timestamp();
  self_->counters.asleep_ns.add(machine::now_ns() - from_ns);
  self_->asleep.store(false, std::memory_order_relaxed);
  rcu::come_online();
  alarm_may_have_fired();
  if (watched_ != nullptr) {
    if (how.cause == WakeCause::unknown && line_changed()) how.cause = WakeCause::memory;
    watched_ = nullptr;
  }
  log::slept(asked, from_tsc, until_tsc, how);
}

// Only a test's loop ends. What was spawned is destroyed here, on its own core; other kinds of node belong to others.
void EventLoop::discard_queued() noexcept {
  while (first_ != nullptr) {
    RemoteNode* const node = first_;
    first_ = node->next;
    if (node->run == &SpawnedEvent::execute) delete static_cast<SpawnedEvent*>(node);
  }
  last_ = nullptr;
}

}  // namespace neap
