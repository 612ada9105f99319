// SPDX-License-Identifier: BSL-1.0
// The end of a turn: ticks, microtasks, unhandled rejections, and the watchdog.
#include <utility>

#include "apps/webserver/engine/engine_state.hpp"
#include "kernel/machine.hpp"

namespace neap::webserver {

namespace {

/// Ticks and microtasks between two checks of the deadline. A longer one is ended by QuickJS's own checks.
constexpr unsigned jobs_per_check = 64;

}  // namespace

/// QuickJS calls this after each 10,000 calls and jumps backwards. The first check within a turn starts the watchdog, so that a turn with
/// fewer of them does not read the clock.
int Engine::interrupt(JSRuntime*, void* engine) {
  auto& self = *static_cast<Engine*>(engine);
  return self.depth_ != 0 && self.past_deadline() ? 1 : 0;
}

bool Engine::past_deadline() noexcept {
  const std::uint64_t now = machine::timestamp();
  if (deadline_ == 0) {
    deadline_ = now + state_->watchdog_ticks;
    return false;
  }
  return now >= deadline_;
}

bool Engine::push_tick(JSValueConst function, int count, JSValueConst* arguments) noexcept {
  auto* const tick = static_cast<Tick*>(js_malloc(context_, sizeof(Tick) + static_cast<std::size_t>(count) * sizeof(JSValue)));
  if (tick == nullptr) return false;
  tick->next = nullptr;
  tick->function = JS_DupValue(context_, function);
  tick->count = count;
  for (int index = 0; index < count; ++index) tick->arguments[index] = JS_DupValue(context_, arguments[index]);
  (state_->tick_first == nullptr ? state_->tick_first : state_->tick_last->next) = tick;
  state_->tick_last = tick;
  work_ |= Work::ticks;
  return true;
}

Engine::Tick* Engine::pop_tick() noexcept {
  Tick* const tick = state_->tick_first;
  state_->tick_first = tick->next;
  if (state_->tick_first == nullptr) work_ &= ~Work::ticks;
  return tick;
}

void Engine::free_tick(Tick* tick) noexcept {
  free_value(tick->function);
  for (int index = 0; index < tick->count; ++index) free_value(tick->arguments[index]);
  js_free(context_, tick);
}

Engine::Outcome Engine::run_ticks(Outcome outcome) noexcept {
  for (unsigned run = 1; (work_ & Work::ticks) != 0; ++run) {
    Tick* const tick = pop_tick();
    const JSValue result = JS_Call(context_, tick->function, JS_UNDEFINED, tick->count, tick->arguments);
    free_tick(tick);
    ++statistics_.ticks;
    if (JS_IsException(result)) {
      outcome = worse(outcome, uncaught());
    } else {
      free_value(result);
    }
    if (outcome == Outcome::timeout) break;
    if (run % jobs_per_check == 0 && past_deadline()) return worse(outcome, end_by_watchdog());
  }
  return outcome;
}

Engine::Outcome Engine::run_jobs(Outcome outcome) noexcept {
  for (unsigned run = 1;; ++run) {
    JSContext* context = nullptr;
    const int result = JS_ExecutePendingJob(runtime_, &context);
    if (result == 0) break;
    ++statistics_.microtasks;
    if (result < 0) outcome = worse(outcome, uncaught());
    if (outcome == Outcome::timeout) break;
    if (run % jobs_per_check == 0 && past_deadline()) return worse(outcome, end_by_watchdog());
  }
  return outcome;
}

/// An endless chain of short jobs: none of them is long enough for QuickJS's own check.
Engine::Outcome Engine::end_by_watchdog() noexcept {
  JS_ThrowInternalError(context_, "interrupted");
  JSValue error = JS_GetException(context_);
  JS_SetUncatchableError(context_, error);
  JS_Throw(context_, error);
  return uncaught();
}

Engine::Outcome Engine::drain(Outcome outcome) noexcept {
  while (outcome != Outcome::timeout) {
    outcome = run_ticks(outcome);
    if (outcome != Outcome::timeout) outcome = run_jobs(outcome);
    if (outcome == Outcome::timeout) break;
    if ((work_ & Work::ticks) != 0) continue;
    if ((work_ & Work::rejections) != 0) report_rejections();
    if (work_ == 0 && !JS_IsJobPending(runtime_)) return outcome;
  }
  drop_work();
  return outcome;
}

/// Drops the ticks and microtasks that are left: all of them are from this turn. If they were kept, an endless chain of them would use up
/// the time of each later turn.
void Engine::drop_work() noexcept {
  while ((work_ & Work::ticks) != 0) {
    free_tick(pop_tick());
    ++statistics_.jobs_dropped;
  }
  statistics_.jobs_dropped += JS_DropPendingJobs(runtime_);
  for (State::Rejection& rejection : state_->rejections) {
    free_value(rejection.promise);
    free_value(rejection.reason);
  }
  state_->rejections.clear();
  work_ = 0;
}

/// Called when a promise is rejected without a handler, and again if it gets one later.
void Engine::track_rejection(JSContext* context, JSValueConst promise, JSValueConst reason, bool handled, void* engine) {
  auto& self = *static_cast<Engine*>(engine);
  CountedList<State::Rejection>& list = self.state_->rejections;
  if (!handled) {
    if (list.push(self.runtime_, {JS_DupValue(context, promise), JS_DupValue(context, reason)})) {
      self.work_ |= Work::rejections;
    } else {
      JS_FreeValue(context, promise);
      JS_FreeValue(context, reason);
    }
    return;
  }
  // The handler usually comes soon after the rejection, so the search begins at the end.
  for (std::size_t index = list.size(); index > 0; --index) {
    State::Rejection& rejection = list[index - 1];
    if (JS_VALUE_GET_PTR(rejection.promise) != JS_VALUE_GET_PTR(promise)) continue;
    const State::Rejection found = rejection;
    rejection = list[list.size() - 1];
    list.pop();
    if (list.empty()) self.work_ &= ~Work::rejections;
    JS_FreeValue(context, found.promise);
    JS_FreeValue(context, found.reason);
    return;
  }
}

void Engine::report_rejections() noexcept {
  CountedList<State::Rejection> list = std::exchange(state_->rejections, {});
  work_ &= ~Work::rejections;
  for (State::Rejection& rejection : list) {
    ++statistics_.unhandled_rejections;
    if (!call_handler(state_->rejection_handler, rejection.reason, rejection.promise)) {
      report("Unhandled rejection: ", rejection.reason);
    }
    free_value(rejection.promise);
    free_value(rejection.reason);
  }
  list.release(runtime_);
}

}  // namespace neap::webserver
