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

class TimerAwaiter {
 public:
  explicit TimerAwaiter(std::chrono::nanoseconds delay) noexcept : delay_(delay) {}
  TimerAwaiter(const TimerAwaiter&) = delete;
  TimerAwaiter& operator=(const TimerAwaiter&) = delete;
  [[nodiscard]] bool await_ready() const noexcept { return false; }
  void await_suspend(std::coroutine_handle<> waiter) {
    timer_.arm(delay_, [waiter] { run_coroutine(waiter); });
  }
  void await_resume() const noexcept {}

 private:
  std::chrono::nanoseconds delay_;
  Timer timer_;
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
