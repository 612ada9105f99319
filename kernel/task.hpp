// SPDX-License-Identifier: BSL-1.0
// What must wait is a coroutine.
//
// An event may not block, so code that has to wait for a card, a peer or a moment is written as a coroutine: straight lines, no stack
// switched, no state machine by hand. A task runs on one core from beginning to end. It resumes there, in an event of its own, whoever
// completed what it waited for. No reference to a `thread_local` and no RCU pointer may be held across `co_await`.
//
// A `task<T>` starts when it is awaited (or handed to `start`). An exception that leaves it reaches who awaits it; one that leaves a
// started, unawaited task is a panic. A task that has begun to wait must not be destroyed before it ends: something holds its address.
// Calling a task's function throws `bad_alloc` when there is no memory for its frame.
#pragma once

#include <chrono>
#include <concepts>
#include <coroutine>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <variant>

#include "kernel/error.hpp"
#include "kernel/events.hpp"
#include "kernel/panic.hpp"
#include "kernel/timer.hpp"

namespace neap {

template <typename T = void>
class [[nodiscard]] task;

/// Runs `work` on its own, from the next event on; its frame is freed when it ends.
void start(task<void> work) noexcept;

/// Suspends for at least `delay`.
task<void> sleep_for(std::chrono::nanoseconds delay);

/// Runs `call()` as an event on `core` (this one too) and resumes here with what it returned. Needs no room in the core's bounded queue:
/// the task itself is what waits its turn there. An exception thrown by `call` is rethrown here. Give a lambda whose captures have
/// destructors a name before the `co_await`: GCC 12 destroys such a temporary twice (the host's compiler).
template <typename Call>
auto on_core(unsigned core, Call call) -> task<decltype(call())>;

/// One value that comes later, for one waiter: what a callback fulfils and a task awaits (`co_await completion`). Both on one core.
template <typename T = void>
class Completion;

namespace detail {

/// Where a coroutine that suspends says who goes on. Resuming the other from inside `await_suspend` would stack them up: a loop that awaits
/// a million tasks which end at once would need a million frames, unless the compiler turns each hand-over into a jump, which builds with
/// sanitizers do not promise. So each returns to the one loop in `run_coroutine`.
extern constinit thread_local std::coroutine_handle<> next_coroutine;

/// Runs `coroutine` and whatever it hands over to, until one waits.
void run_coroutine(std::coroutine_handle<> coroutine) noexcept;

/// Resumes a coroutine in an event of its own, on the core that enqueues it. Lives in the waiting coroutine's frame: cannot fail.
struct ResumeNode : RemoteNode {
  ResumeNode() noexcept : RemoteNode{.run = &ResumeNode::resume} {}
  static void resume(RemoteNode* node) noexcept { run_coroutine(static_cast<ResumeNode*>(node)->waiter); }
  std::coroutine_handle<> waiter;
};

[[noreturn]] void unawaited_task_failed(std::exception_ptr exception) noexcept;

struct TaskPromiseBase {
  struct FinalAwaiter {
    [[nodiscard]] bool await_ready() const noexcept { return false; }
    template <typename Promise>
    void await_suspend(std::coroutine_handle<Promise> ended) const noexcept {
      TaskPromiseBase& promise = ended.promise();
      if (promise.on_its_own) {
        ended.destroy();
      } else {
        next_coroutine = promise.awaiter;
      }
    }
    void await_resume() const noexcept {}
  };

  [[nodiscard]] std::suspend_always initial_suspend() const noexcept { return {}; }
  [[nodiscard]] FinalAwaiter final_suspend() const noexcept { return {}; }

  std::coroutine_handle<> awaiter;
  ResumeNode beginning;  // used by `start`
  bool on_its_own = false;
};

template <typename T>
struct TaskPromise : TaskPromiseBase {
  task<T> get_return_object() noexcept;
  template <typename U>
    requires std::convertible_to<U&&, T>
  void return_value(U&& value) {
    outcome.template emplace<1>(std::forward<U>(value));
  }
  void unhandled_exception() noexcept { outcome.template emplace<2>(std::current_exception()); }
  T take() {
    if (outcome.index() == 2) std::rethrow_exception(std::get<2>(outcome));
    return std::move(std::get<1>(outcome));
  }
  std::variant<std::monostate, T, std::exception_ptr> outcome;
};

template <>
struct TaskPromise<void> : TaskPromiseBase {
  task<void> get_return_object() noexcept;
  void return_void() const noexcept {}
  void unhandled_exception() noexcept {
    if (on_its_own) unawaited_task_failed(std::current_exception());
    exception = std::current_exception();
  }
  void take() const {
    if (exception) std::rethrow_exception(exception);
  }
  std::exception_ptr exception;
};

}  // namespace detail

template <typename T>
class [[nodiscard]] task {
 public:
  using promise_type = detail::TaskPromise<T>;
  using Handle = std::coroutine_handle<promise_type>;

  task() = default;
  explicit task(Handle handle) noexcept : handle_(handle) {}
  task(task&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  task& operator=(task&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  task(const task&) = delete;
  task& operator=(const task&) = delete;
  ~task() {
    if (handle_) handle_.destroy();
  }

  [[nodiscard]] bool valid() const noexcept { return static_cast<bool>(handle_); }
  /// Gives up the frame to the caller.
  [[nodiscard]] Handle release() noexcept { return std::exchange(handle_, nullptr); }

  class Awaiter {
   public:
    explicit Awaiter(Handle handle) noexcept : handle_(handle) {}
    [[nodiscard]] bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> awaiter) const noexcept {
      handle_.promise().awaiter = awaiter;
      detail::next_coroutine = handle_;
    }
    T await_resume() const { return handle_.promise().take(); }

   private:
    Handle handle_;
  };
  /// A task is awaited once.
  Awaiter operator co_await() const& = delete;
  Awaiter operator co_await() && noexcept {
    require(valid(), "await of an empty task");
    return Awaiter(handle_);
  }

 private:
  Handle handle_;
};

template <typename T>
task<T> detail::TaskPromise<T>::get_return_object() noexcept {
  return task<T>(std::coroutine_handle<TaskPromise<T>>::from_promise(*this));
}
inline task<void> detail::TaskPromise<void>::get_return_object() noexcept {
  return task<void>(std::coroutine_handle<TaskPromise<void>>::from_promise(*this));
}

namespace detail {

/// Queues `node` as an event of this core.
void resume_later(ResumeNode& node) noexcept;

class CompletionBase {
 public:
  CompletionBase() = default;
  CompletionBase(const CompletionBase&) = delete;
  CompletionBase& operator=(const CompletionBase&) = delete;

  [[nodiscard]] bool await_ready() const noexcept { return fulfilled_; }
  void await_suspend(std::coroutine_handle<> waiter) noexcept {
    require(!node_.waiter, "a completion has one waiter");
    node_.waiter = waiter;
  }
  [[nodiscard]] bool fulfilled() const noexcept { return fulfilled_; }

 protected:
  ~CompletionBase() = default;
  void finish() noexcept {
    require(this_core() == core_, "a completion is fulfilled on its own core", core_);
    fulfilled_ = true;
    if (node_.waiter) resume_later(node_);
  }

 private:
  ResumeNode node_;
  unsigned core_ = this_core();
  bool fulfilled_ = false;
};

}  // namespace detail

template <typename T>
class Completion : public detail::CompletionBase {
 public:
  /// Once. The waiter resumes in an event of its own.
  void fulfil(T value) {
    require(!fulfilled(), "a completion is fulfilled once");
    value_.emplace(std::move(value));
    finish();
  }
  T await_resume() { return std::move(*value_); }

 private:
  std::optional<T> value_;
};

template <>
class Completion<void> : public detail::CompletionBase {
 public:
  void fulfil() noexcept {
    require(!fulfilled(), "a completion is fulfilled once");
    finish();
  }
  void await_resume() const noexcept {}
};

namespace detail {

/// The way of `on_core`'s call to the other core and of its outcome back. Lives in the waiting task's frame.
template <typename Call>
class RemoteCall : RemoteNode {
 public:
  using Value = std::invoke_result_t<Call&>;

  RemoteCall(unsigned core, Call& call) noexcept
      : RemoteNode{.run = &RemoteCall::call_there}, call_(call), core_(core), home_(this_core()) {}
  RemoteCall(const RemoteCall&) = delete;
  RemoteCall& operator=(const RemoteCall&) = delete;

  [[nodiscard]] bool await_ready() const noexcept { return false; }
  void await_suspend(std::coroutine_handle<> waiter) noexcept {
    waiter_ = waiter;
    hand_over(core_, *this);
  }
  Value await_resume() {
    if (exception_) std::rethrow_exception(exception_);
    if constexpr (!std::is_void_v<Value>) return std::move(*value_);
  }

 private:
  static void call_there(RemoteNode* node) noexcept {
    auto& self = *static_cast<RemoteCall*>(node);
    try {
      if constexpr (std::is_void_v<Value>) {
        self.call_();
      } else {
        self.value_.emplace(self.call_());
      }
    } catch (...) {
      self.exception_ = std::current_exception();
    }
    self.run = &RemoteCall::resume_here;
    hand_over(self.home_, self);
  }
  static void resume_here(RemoteNode* node) noexcept { run_coroutine(static_cast<RemoteCall*>(node)->waiter_); }

  struct Nothing {};
  Call& call_;
  unsigned core_;
  unsigned home_;
  std::coroutine_handle<> waiter_;
  std::exception_ptr exception_;
  std::optional<std::conditional_t<std::is_void_v<Value>, Nothing, Value>> value_;
};

}  // namespace detail

template <typename Call>
auto on_core(unsigned core, Call call) -> task<decltype(call())> {
  require(core < core_count(), "on_core of a core that does not run", core);
  detail::RemoteCall<Call> remote(core, call);
  co_return co_await remote;
}

}  // namespace neap
