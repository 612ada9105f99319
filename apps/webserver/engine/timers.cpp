// SPDX-License-Identifier: BSL-1.0
#include "apps/webserver/engine/timers.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <new>
#include <utility>

#include "apps/webserver/engine/engine_state.hpp"
#include "kernel/events.hpp"
#include "kernel/machine.hpp"

namespace neap::webserver {

namespace {

/// Callbacks in one event. Others of the core may run before the next ones.
constexpr unsigned turns_per_event = 64;
constexpr double delay_ms_max = 2147483647;

void release(JSRuntime* runtime, TimerEntry& entry) noexcept {
  JS_FreeValueRT(runtime, std::exchange(entry.callback, JS_UNDEFINED));
  for (int index = 0; index < entry.count; ++index) JS_FreeValueRT(runtime, entry.arguments[index]);
  js_free_rt(runtime, std::exchange(entry.arguments, nullptr));
  entry.count = 0;
}

}  // namespace

Timers::Timers(Engine& engine) : engine_(engine), alive_(std::make_shared<Timers*>(this)) {
  class_ = engine.new_class({.class_name = "Timeout",
                             .finalizer =
                                 [](JSRuntime* runtime, JSValueConst value) {
                                   JSClassID id = 0;
                                   auto* const entry = static_cast<TimerEntry*>(JS_GetAnyOpaque(value, &id));
                                   if (entry == nullptr) return;
                                   release(runtime, *entry);
                                   js_free_rt(runtime, entry);
                                 },
                             .gc_mark =
                                 [](JSRuntime* runtime, JSValueConst value, JS_MarkFunc* mark) {
                                   JSClassID id = 0;
                                   auto* const entry = static_cast<TimerEntry*>(JS_GetAnyOpaque(value, &id));
                                   if (entry == nullptr) return;
                                   JS_MarkValue(runtime, entry->callback, mark);
                                   for (int index = 0; index < entry->count; ++index) JS_MarkValue(runtime, entry->arguments[index], mark);
                                 },
                             .call = nullptr,
                             .exotic = nullptr});
}

Timers::~Timers() {
  *alive_ = nullptr;
  require(heap_ == nullptr && immediates_ == 0, "timers destroyed before they were stopped", used_ + immediates_);
}

void Timers::stop_all() noexcept {
  timer_.cancel();
  firing_ = false;
  while (used_ != 0) {
    TimerEntry& entry = *heap_[0];
    remove(entry);
    engine_.free_value(std::exchange(entry.self, JS_UNDEFINED));
  }
  while (immediate_first_ != nullptr) {
    TimerEntry* const entry = std::exchange(immediate_first_, immediate_first_->next);
    engine_.free_value(std::exchange(entry->self, JS_UNDEFINED));
  }
  immediate_last_ = nullptr;
  immediates_ = 0;
  js_free_rt(engine_.runtime(), std::exchange(heap_, nullptr));
  room_ = 0;
}

TimerEntry* Timers::entry(JSValueConst value) const noexcept { return static_cast<TimerEntry*>(JS_GetOpaque(value, class_)); }

TimerEntry* Timers::make(JSValueConst callback, int count, JSValueConst* arguments, JSValue& object) {
  JSContext* const context = engine_.context();
  if (pending() >= engine_.options().timers_max) {
    ++engine_.statistics_.timers_refused;
    throw_coded(context, ErrorClass::range, "ERR_TOO_MANY_TIMERS", "Too many pending timers");
    return nullptr;
  }
  object = JS_NewObjectClass(context, class_);
  if (JS_IsException(object)) return nullptr;
  void* const memory = js_malloc(context, sizeof(TimerEntry));
  auto* const values = count == 0 ? nullptr : static_cast<JSValue*>(js_malloc(context, static_cast<std::size_t>(count) * sizeof(JSValue)));
  if (memory == nullptr || (count != 0 && values == nullptr)) {
    js_free(context, memory);
    js_free(context, values);
    JS_FreeValue(context, object);
    return nullptr;
  }
  auto* const entry = ::new (memory) TimerEntry{.callback = JS_DupValue(context, callback), .arguments = values, .count = count};
  for (int index = 0; index < count; ++index) values[index] = JS_DupValue(context, arguments[index]);
  JS_SetOpaque(object, entry);
  return entry;
}

JSValue Timers::start(JSValueConst callback, double delay_ms, bool repeat, int count, JSValueConst* arguments) {
  JSValue object = JS_UNDEFINED;
  TimerEntry* const entry = make(callback, count, arguments, object);
  if (entry == nullptr) return JS_EXCEPTION;
  entry->repeat = repeat;
  entry->delay_ms = delay_ms >= 1 && delay_ms <= delay_ms_max ? static_cast<std::uint32_t>(delay_ms) : 1;
  entry->deadline_ns = machine::now_ns() + std::uint64_t{entry->delay_ms} * 1'000'000;
  if (!insert(*entry)) {
    JS_FreeValue(engine_.context(), object);
    return JS_ThrowOutOfMemory(engine_.context());
  }
  entry->self = JS_DupValue(engine_.context(), object);
  arm();
  return object;
}

void Timers::refresh(JSValueConst object) noexcept {
  TimerEntry* const found = this->entry(object);
  if (found == nullptr || found->immediate || JS_IsUndefined(found->callback)) return;
  TimerEntry& entry = *found;
  const bool was_pending = entry.place != TimerEntry::not_pending;
  if (was_pending) remove(entry);
  entry.deadline_ns = machine::now_ns() + std::uint64_t{entry.delay_ms} * 1'000'000;
  if (!insert(entry)) return;
  if (JS_IsUndefined(entry.self)) entry.self = JS_DupValue(engine_.context(), object);
  arm();
}

void Timers::stop(JSValueConst value) noexcept {
  TimerEntry* found = entry(value);
  if (found == nullptr && (JS_IsNumber(value) || JS_IsString(value))) {
    std::uint32_t id = 0;
    if (JS_ToUint32(engine_.context(), &id, value) != 0 || id == 0) return;
    const auto at = std::find_if(heap_, heap_ + used_, [id](const TimerEntry* each) { return each->id == id; });
    if (at != heap_ + used_) found = *at;
  }
  if (found == nullptr) return;
  found->repeat = false;
  if (found->immediate) {
    // It stays in its list, without a callback.
    if (!found->fires) release(engine_.runtime(), *found);
    return;
  }
  if (found->place != TimerEntry::not_pending) {
    remove(*found);
    if (!found->fires) release(engine_.runtime(), *found);
    engine_.free_value(std::exchange(found->self, JS_UNDEFINED));  // the object may end here
  } else if (!found->fires) {
    release(engine_.runtime(), *found);
  }
}

std::uint32_t Timers::number(TimerEntry& entry) noexcept {
  if (entry.id == 0) entry.id = ++last_id_ == 0 ? ++last_id_ : last_id_;
  return entry.id;
}

// --- The heap ----------------------------------------------------------------------------------------------------------------------------

bool Timers::before(const TimerEntry& first, const TimerEntry& second) noexcept {
  return first.deadline_ns != second.deadline_ns ? first.deadline_ns < second.deadline_ns : first.sequence < second.sequence;
}

void Timers::settle(std::size_t place, TimerEntry* entry) noexcept {
  heap_[place] = entry;
  entry->place = place;
}

/// Moves the entry at `place` up or down to its place.
void Timers::sift(std::size_t place) noexcept {
  TimerEntry* const entry = heap_[place];
  while (place != 0 && before(*entry, *heap_[(place - 1) / 2])) {
    settle(place, heap_[(place - 1) / 2]);
    place = (place - 1) / 2;
  }
  for (;;) {
    std::size_t child = place * 2 + 1;
    if (child >= used_) break;
    if (child + 1 < used_ && before(*heap_[child + 1], *heap_[child])) ++child;
    if (!before(*heap_[child], *entry)) break;
    settle(place, heap_[child]);
    place = child;
  }
  settle(place, entry);
}

bool Timers::insert(TimerEntry& entry) noexcept {
  if (used_ == room_) {
    const std::size_t room = room_ == 0 ? 64 : room_ * 2;
    void* const grown = js_realloc_rt(engine_.runtime(), heap_, room * sizeof(TimerEntry*));
    if (grown == nullptr) return false;
    heap_ = static_cast<TimerEntry**>(grown);
    room_ = room;
  }
  entry.sequence = ++sequence_;
  settle(used_++, &entry);
  sift(used_ - 1);
  return true;
}

void Timers::remove(TimerEntry& entry) noexcept {
  const std::size_t place = std::exchange(entry.place, TimerEntry::not_pending);
  require(place < used_ && heap_[place] == &entry, "a timer that is not in its place", place);
  TimerEntry* const last = heap_[--used_];
  if (last == &entry) return;
  settle(place, last);
  sift(place);
}

// --- Firing ------------------------------------------------------------------------------------------------------------------------------

/// Arms the kernel's timer for the earliest deadline. A timer that was stopped leaves the earlier alarm: it then finds nothing to do.
void Timers::arm() noexcept {
  if (firing_ || used_ == 0) return;
  const std::uint64_t deadline_ns = heap_[0]->deadline_ns;
  if (timer_.pending() && armed_ns_ <= deadline_ns) return;
  armed_ns_ = deadline_ns;
  const std::uint64_t now_ns = machine::now_ns();
  timer_.arm(std::chrono::nanoseconds(deadline_ns > now_ns ? deadline_ns - now_ns : 0), [this] { fire(); });
}

void Timers::fire() noexcept {
  firing_ = true;
  const std::uint64_t now_ns = machine::now_ns(), started = sequence_;
  // Timers that callbacks start do not fire in this event.
  const auto due = [&] { return used_ != 0 && heap_[0]->deadline_ns <= now_ns && heap_[0]->sequence <= started; };
  for (unsigned turns = 0; turns < turns_per_event && due(); ++turns) fire_one(*heap_[0]);
  if (due()) {
    spawn([alive = alive_] {
      if (*alive != nullptr) (*alive)->fire();
    });
    return;
  }
  firing_ = false;
  arm();
}

void Timers::fire_one(TimerEntry& entry) noexcept {
  JSContext* const context = engine_.context();
  remove(entry);
  const Value object(context, std::exchange(entry.self, JS_UNDEFINED));  // keeps the entry
  ++engine_.statistics_.timers_fired;
  entry.fires = true;
  engine_.call(entry.callback, object.get(), {entry.arguments, static_cast<std::size_t>(entry.count)});
  entry.fires = false;
  if (entry.place != TimerEntry::not_pending) return;  // refreshed by its callback
  if (entry.repeat) {
    entry.deadline_ns = machine::now_ns() + std::uint64_t{entry.delay_ms} * 1'000'000;
    if (insert(entry)) entry.self = JS_DupValue(context, object.get());
    return;
  }
  // Otherwise a callback that refers to its own timer would be a cycle.
  release(engine_.runtime(), entry);
}

JSValue Timers::start_immediate(JSValueConst callback, int count, JSValueConst* arguments) {
  JSValue object = JS_UNDEFINED;
  TimerEntry* const entry = make(callback, count, arguments, object);
  if (entry == nullptr) return JS_EXCEPTION;
  entry->immediate = true;
  entry->self = JS_DupValue(engine_.context(), object);
  (immediate_first_ == nullptr ? immediate_first_ : immediate_last_->next) = entry;
  immediate_last_ = entry;
  ++immediates_;
  request_immediates();
  return object;
}

void Timers::request_immediates() {
  if (std::exchange(immediates_requested_, true)) return;
  spawn([alive = alive_] {
    if (*alive != nullptr) (*alive)->run_immediates();
  });
}

/// Runs the immediates of now. Those that they start run in a later event.
void Timers::run_immediates() noexcept {
  immediates_requested_ = false;
  std::size_t left = std::min<std::size_t>(immediates_, turns_per_event);
  for (; left != 0 && immediate_first_ != nullptr; --left) {
    TimerEntry& entry = *immediate_first_;
    immediate_first_ = entry.next;
    if (immediate_first_ == nullptr) immediate_last_ = nullptr;
    --immediates_;
    const Value object(engine_.context(), std::exchange(entry.self, JS_UNDEFINED));
    if (JS_IsUndefined(entry.callback)) continue;
    ++engine_.statistics_.immediates;
    entry.fires = true;
    engine_.call(entry.callback, object.get(), {entry.arguments, static_cast<std::size_t>(entry.count)});
    entry.fires = false;
    release(engine_.runtime(), entry);
  }
  if (immediates_ != 0) request_immediates();
}

}  // namespace neap::webserver
