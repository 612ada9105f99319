// SPDX-License-Identifier: BSL-1.0
// Code that waits is a coroutine.
//
// An event may not block, so code that waits for a card, a peer or a point in time is written as a coroutine. A coroutine is straight-line
// code, without a stack switch or a hand-written state machine. A task runs on one core from beginning to end. After a wait it resumes on
// that core in an event of its own, whichever core completed the wait. It MUST NOT hold a reference to a `thread_local` or an RCU pointer
// across `co_await`.
//
// A `task<T>` starts when it is awaited or handed to `start`. An exception that leaves an awaited task is rethrown in the awaiting task; an
// exception that leaves a started task causes a panic. A task that waits MUST NOT be destroyed, because other objects point into its frame.
// Calling a task's function throws `bad_alloc` if there is no memory for the frame.
#pragma once

#include <chrono>
#include <concepts>
#include <coroutine>
#include <exception>
#include <optional>
#include <type_traits>
#include <utility>
#include <variant>

#include "kernel/cancellation.hpp"
#include "kernel/error.hpp"
#include "kernel/events.hpp"
#include "kernel/panic.hpp"
#include "kernel/timer.hpp"

namespace neap {

template <typename T = void>
class [[nodiscard]] task;

namespace detail {
template <typename T>
constexpr bool is_task = false;
template <typename T>
constexpr bool is_task<task<T>> = true;

/// The type that `co_await` of a task returns; for a type that is no task, the type itself.
template <typename T>
struct Awaited {
  using Type = T;
};
template <typename T>
struct Awaited<task<T>> {
  using Type = T;
};
}  // namespace detail

/// Runs `work` without an awaiter, from the next event on. Its frame is freed when it ends.
void start(task<void> work) noexcept;

/// Returns `work`, to be awaited or started. Its waits, and those of the tasks that it awaits, end when `cancellation` is requested
/// (cancellation.hpp).
template <typename T>
task<T> cancelled_by(Cancellation& cancellation, task<T> work) noexcept;

/// Suspends for at least `delay`. Throws `Cancelled` if the calling task is cancelled.
task<void> sleep_for(std::chrono::nanoseconds delay);

/// Runs `call()` as an event on `core` (which may be this core) and resumes the calling task here with the result. Needs no room in the
/// core's bounded queue, because the task's frame holds the queued node. An exception of `call` is rethrown here. A lambda whose captures
/// have destructors MUST be named before the `co_await`: GCC 12, the host's compiler, destroys such a temporary twice.
///
/// If `call` returns a task, that task runs on `core` from beginning to end, and its result or exception is returned here. `call` exists
/// until that task ends. A cancellation of the calling task does not cancel the task on `core`.
template <typename Call>
auto on_core(unsigned core, Call call) -> task<typename detail::Awaited<std::invoke_result_t<Call&>>::Type>;

/// One value that is set later, for one waiter: a callback fulfils it and a task awaits it (`co_await completion`), both on one core. A
/// task that can be cancelled awaits `completion.or_cancelled()`, which throws `Cancelled` if the task is cancelled. The completion MUST
/// still exist when the callback fulfils it.
template <typename T = void>
class Completion;

namespace detail {

/// The coroutine to resume next, set by a coroutine that suspends. Resuming it from inside `await_suspend` would nest the calls. A loop
/// that awaits a million tasks which end at once would need a million stack frames. Compilers can turn each such call into a jump, but do
/// not promise it in builds with sanitizers. So each coroutine returns to the one loop in `run_coroutine`.
extern constinit thread_local std::coroutine_handle<> next_coroutine;

/// Runs `coroutine` and then each `next_coroutine`, until one waits.
void run_coroutine(std::coroutine_handle<> coroutine) noexcept;

/// Resumes a coroutine in an event of its own, on the core that queues it. Part of the waiting coroutine's frame, so queueing cannot fail.
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
  Cancellation* cancellation = nullptr;  // the cancellation that ends this task's waits; set by `cancelled_by`, or taken from the awaiter
  ResumeNode beginning;                  // used by `start`
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
  ~task() {
    if (handle_) handle_.destroy();
  }

  [[nodiscard]] bool valid() const noexcept { return static_cast<bool>(handle_); }
  void set_cancellation(Cancellation* cancellation) noexcept {
    require(valid(), "a cancellation for an empty task");
    handle_.promise().cancellation = cancellation;
  }
  [[nodiscard]] Handle release() noexcept { return std::exchange(handle_, nullptr); }

  class Awaiter {
   public:
    explicit Awaiter(Handle handle) noexcept : handle_(handle) {}
    [[nodiscard]] bool await_ready() const noexcept { return false; }
    template <typename Promise>
    void await_suspend(std::coroutine_handle<Promise> awaiter) const noexcept {
      handle_.promise().awaiter = awaiter;
      if constexpr (std::derived_from<Promise, detail::TaskPromiseBase>) {
        if (handle_.promise().cancellation == nullptr) handle_.promise().cancellation = awaiter.promise().cancellation;
      }
      detail::next_coroutine = handle_;
    }
    T await_resume() const { return handle_.promise().take(); }

   private:
    Handle handle_;
  };
  /// A task may be awaited once.
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

template <typename T>
task<T> cancelled_by(Cancellation& cancellation, task<T> work) noexcept {
  require(work.valid(), "cancelled_by with an empty task");
  work.set_cancellation(&cancellation);
  return work;
}

namespace detail {

/// Queues `node` as an event of this core.
void resume_later(ResumeNode& node) noexcept;

/// `co_await OwnCancellation{}` returns the cancellation of the calling task; null without one. Does not suspend.
struct OwnCancellation {
  Cancellation* cancellation = nullptr;
  [[nodiscard]] bool await_ready() const noexcept { return false; }
  template <std::derived_from<TaskPromiseBase> Promise>
  bool await_suspend(std::coroutine_handle<Promise> asking) noexcept {
    cancellation = asking.promise().cancellation;
    return false;
  }
  [[nodiscard]] Cancellation* await_resume() const noexcept { return cancellation; }
};

class CompletionBase {
 public:
  CompletionBase& operator=(CompletionBase&&) = delete;

  [[nodiscard]] bool await_ready() const noexcept { return fulfilled_; }
  void await_suspend(std::coroutine_handle<> waiter) noexcept {
    require(!node_.waiter, "a completion has one waiter");
    node_.waiter = waiter;
  }
  [[nodiscard]] bool fulfilled() const noexcept { return fulfilled_; }
  /// From now on the completion does not resume its waiter.
  void forget_waiter() noexcept { node_.waiter = nullptr; }

 protected:
  ~CompletionBase() { require(!is_queued(node_), "a completion is destroyed before its waiter resumed"); }
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

/// The awaitable that `or_cancelled` returns.
template <typename Awaited>
class WaitOrCancelled : CancellableWait {
 public:
  explicit WaitOrCancelled(Awaited& awaited) noexcept : awaited_(awaited) { give_up = &WaitOrCancelled::cancel; }
  [[nodiscard]] bool await_ready() const noexcept { return awaited_.await_ready(); }
  template <std::derived_from<TaskPromiseBase> Promise>
  bool await_suspend(std::coroutine_handle<Promise> waiter) noexcept {
    if (!begin(waiter.promise().cancellation)) return false;
    resume_.waiter = waiter;
    awaited_.await_suspend(waiter);
    return true;
  }
  decltype(auto) await_resume() {
    end();
    return awaited_.await_resume();
  }

 private:
  static void cancel(CancellableWait& wait) noexcept {
    auto& self = static_cast<WaitOrCancelled&>(wait);
    if (self.awaited_.fulfilled()) return;  // the event that resumes the task is queued already
    self.cancelled = true;
    self.awaited_.forget_waiter();
    resume_later(self.resume_);
  }
  Awaited& awaited_;
  ResumeNode resume_;
};

}  // namespace detail

template <typename T>
class Completion : public detail::CompletionBase {
 public:
  /// May be called once. The waiter resumes in an event of its own.
  void fulfil(T value) {
    require(!fulfilled(), "a completion is fulfilled once");
    value_.emplace(std::move(value));
    finish();
  }
  T await_resume() { return std::move(*value_); }
  [[nodiscard]] auto or_cancelled() noexcept { return detail::WaitOrCancelled<Completion>(*this); }

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
  [[nodiscard]] auto or_cancelled() noexcept { return detail::WaitOrCancelled<Completion>(*this); }
};

namespace detail {

/// The result of a call: a value or an exception.
template <typename Value>
struct Outcome {
  struct Nothing {};
  std::exception_ptr exception;
  std::optional<std::conditional_t<std::is_void_v<Value>, Nothing, Value>> value;

  template <typename Call>
  void set(Call&& call) noexcept {
    try {
      if constexpr (std::is_void_v<Value>) {
        call();
      } else {
        value.emplace(call());
      }
    } catch (...) {
      exception = std::current_exception();
    }
  }
  Value take() {
    if (exception) std::rethrow_exception(exception);
    if constexpr (!std::is_void_v<Value>) return std::move(*value);
  }
};

/// Runs `work` to its end and stores its result.
template <typename T>
task<void> run_into(task<T> work, Outcome<T>& outcome) {
  try {
    if constexpr (std::is_void_v<T>) {
      co_await std::move(work);
    } else {
      outcome.value.emplace(co_await std::move(work));
    }
  } catch (...) {
    outcome.exception = std::current_exception();
  }
}

/// Carries the call of `on_core` to the other core and the outcome back. Part of the waiting task's frame.
template <typename Call>
class RemoteCall : RemoteNode {
 public:
  using Given = std::invoke_result_t<Call&>;
  using Value = typename Awaited<Given>::Type;

  RemoteCall(unsigned core, Call& call) noexcept
      : RemoteNode{.run = &RemoteCall::call_there}, call_(call), core_(core), home_(this_core()) {}
  RemoteCall& operator=(RemoteCall&&) = delete;

  [[nodiscard]] bool await_ready() const noexcept { return false; }
  void await_suspend(std::coroutine_handle<> waiter) noexcept {
    waiter_ = waiter;
    hand_over(core_, *this);
  }
  Value await_resume() { return outcome_.take(); }

 private:
  static void call_there(RemoteNode* node) noexcept {
    auto& self = *static_cast<RemoteCall*>(node);
    require(this_core() == self.core_, "a remote call runs on the core that it was sent to", self.core_);
    if constexpr (is_task<Given>) {
      try {
        start(run_there(self));
        return;
      } catch (...) {  // no memory for the frame
        self.outcome_.exception = std::current_exception();
      }
    } else {
      self.outcome_.set(self.call_);
    }
    self.go_home();
  }
  static task<void> run_there(RemoteCall& self)
    requires is_task<Given>
  {
    {
      // The task's frame is freed on its own core, before the outcome is sent back.
      co_await run_into(make_there(self), self.outcome_);
    }
    self.go_home();
  }
  /// A separate task, so that an exception of `call` itself becomes an outcome too.
  static Given make_there(RemoteCall& self)
    requires is_task<Given>
  {
    co_return co_await self.call_();
  }
  void go_home() noexcept {
    run = &RemoteCall::resume_here;
    hand_over(home_, *this);
  }
  static void resume_here(RemoteNode* node) noexcept {
    const auto& self = *static_cast<RemoteCall*>(node);
    require(this_core() == self.home_, "a remote call returns to its own core", self.home_);
    run_coroutine(self.waiter_);
  }

  Call& call_;
  unsigned core_, home_;
  std::coroutine_handle<> waiter_;
  Outcome<Value> outcome_;
};

}  // namespace detail

template <typename Call>
auto on_core(unsigned core, Call call) -> task<typename detail::Awaited<std::invoke_result_t<Call&>>::Type> {
  require(core < core_count(), "on_core of a core that does not run", core);
  detail::RemoteCall<Call> remote(core, call);
  co_return co_await remote;
}

}  // namespace neap
