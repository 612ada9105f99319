// SPDX-License-Identifier: BSL-1.0
#include "kernel/task.hpp"

#include "kernel/event_loop.hpp"
#include "kernel/exception_text.hpp"

namespace neap {
namespace detail {

constinit thread_local std::coroutine_handle<> next_coroutine;

void run_coroutine(std::coroutine_handle<> coroutine) noexcept {
  while (coroutine) {
    next_coroutine = nullptr;
    coroutine.resume();
    coroutine = std::exchange(next_coroutine, nullptr);
  }
}

void resume_later(ResumeNode& node) noexcept { event_loop.enqueue(node); }

void unawaited_task_failed(std::exception_ptr exception) noexcept {
  panic_for_exception("an exception left a task that nobody awaits", exception);
}

namespace {

class TimerAwaiter : CancellableWait {
 public:
  explicit TimerAwaiter(std::chrono::nanoseconds delay) noexcept : delay_(delay) { give_up = &TimerAwaiter::cancel; }
  [[nodiscard]] bool await_ready() const noexcept { return false; }
  bool await_suspend(std::coroutine_handle<TaskPromise<void>> waiter) {
    if (!begin(waiter.promise().cancellation)) return false;
    resume_.waiter = waiter;
    timer_.arm(delay_, [waiter] { run_coroutine(waiter); });
    return true;
  }
  void await_resume() { end(); }

 private:
  static void cancel(CancellableWait& wait) noexcept {
    auto& self = static_cast<TimerAwaiter&>(wait);
    self.timer_.cancel();
    self.cancelled = true;
    resume_later(self.resume_);
  }
  std::chrono::nanoseconds delay_;
  Timer timer_;
  ResumeNode resume_;
};

}  // namespace
}  // namespace detail

void start(task<void> work) noexcept {
  require(work.valid(), "start of an empty task");
  const auto handle = work.release();
  auto& promise = handle.promise();
  promise.on_its_own = true;
  promise.beginning.waiter = handle;
  detail::resume_later(promise.beginning);
}

task<void> sleep_for(std::chrono::nanoseconds delay) {
  detail::TimerAwaiter awaiter(delay);
  co_await awaiter;
}

}  // namespace neap
