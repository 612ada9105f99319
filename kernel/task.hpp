// SPDX-License-Identifier: BSL-1.0
// What must wait is a coroutine.
//
// An event may not block, so code that has to wait for a card, a peer or a moment is written as a coroutine: straight lines, no stack switched, no
// state machine by hand. A task runs on one core from beginning to end. It resumes there, in an event of its own, whoever completed what it
// waited for. No reference to a `thread_local` and no RCU pointer may be held across `co_await`.
//
// A `task<T>` starts when it is awaited (or handed to `start`). An exception that leaves it reaches who awaits it; one that leaves a started,
// unawaited task is a panic.
#pragma once

#include <chrono>
#include <coroutine>
#include <cstdint>
#include <exception>
#include <optional>
#include <utility>
#include <variant>

#include "kernel/error.hpp"
#include "kernel/events.hpp"
#include "kernel/timer.hpp"

namespace neap {

template <typename T = void>
class [[nodiscard]] task;

/// Runs `work` on its own, from the next event on; its frame is freed when it ends.
void start(task<void> work);

/// Suspends for at least `delay`.
task<void> sleep_for(std::chrono::nanoseconds delay);

/// Runs `call()` as an event on `core` and resumes here with what it returned. Waits while the core's remote queue is full. An exception thrown by
/// `call` is rethrown here.
template <typename Call>
auto on_core(unsigned core, Call call) -> task<decltype(call())>;

/// One value that comes later, for one waiter: what a callback fulfils and a task awaits. Both on one core.
template <typename T>
class Completion;

}  // namespace neap
