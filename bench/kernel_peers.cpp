// SPDX-License-Identifier: BSL-1.0
// Counts the steps of bench/kernel.cpp and bench/kernel_memory.cpp on Linux, with its C and C++ libraries.
//
// This is a statically linked program. tools/bench/kernel_peers.py boots Debian's kernel with this program as the only process. It counts
// instructions by the plugin that also counts those of Neap's images. The plugin counts all instructions of a CPU, so the count of a system
// call includes the kernel's work. Each thread stays on one CPU, because both marks of a region must be on the same CPU.
#include <pthread.h>
#include <sched.h>
#include <sys/reboot.h>
#include <sys/resource.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <coroutine>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <exception>
#include <functional>
#include <thread>
#include <utility>

#include "bench/known_sequences.hpp"
#include "bench/marks.hpp"
#include "bench/memory_steps.hpp"

namespace {

namespace bench = neap::bench;

// tools/bench/kernel_peers.py uses these numbers.
enum Region : unsigned {
  known_sequence,
  string_instruction,
  function_queue,
  pipe_send,
  pipe_receive,
  timer_add_cancel,
  timer_push_back,
  thread_local_call,
  plain_call,
  shared_lock_read,
  plain_read,
  await_task,
  signal_to_handler,
  pair_64,
  pair_4096,
  malloc_64,
  free_64,
  remote_free_64,
};

using bench::hidden;
using bench::repetitions;

[[noreturn]] void power_off() {
  std::fflush(stdout);
  reboot(RB_POWER_OFF);
  std::abort();
}

void must(bool holds, const char* what) {
  if (holds) return;
  std::printf("peers: failed: %s\n", what);
  power_off();
}

void stay_on(unsigned cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  must(sched_setaffinity(0, sizeof set, &set) == 0, "a CPU for each thread");
}

// --- Deferred work, on this thread and on another one ------------------------------------------------------------------------------------
void count_function_queue() {
  std::deque<std::function<void()>> queue;
  unsigned ran = 0;
  for (unsigned i = 0; i < repetitions; ++i) {
    bench::begin_counting<function_queue>();
    queue.emplace_back([&ran] {
      bench::end_counting<function_queue>();
      ++ran;
    });
    const std::function<void()> function = std::move(queue.front());
    queue.pop_front();
    function();
  }
  must(ran == repetitions, "all functions run");
}

struct Work {
  void (*run)(Work*);
  unsigned ran = 0;
};

/// Sends a pointer through a pipe to a thread that is executing other work.
void count_pipe() {
  constexpr unsigned batch = 1000;  // a pipe has room for this many pointers: it holds 65,536 bytes
  std::array<int, 2> ends{};
  must(pipe(ends.data()) == 0, "a pipe");
  std::atomic<unsigned> sent{0}, received{0};
  std::thread receiver([&] {
    stay_on(1);
    for (unsigned i = 0; i < repetitions; ++i) {
      while (sent < (i / batch + 1) * batch) asm volatile("pause");
      Work* work = nullptr;
      bench::begin_counting<pipe_receive>();
      const ssize_t got = read(ends[0], &work, sizeof work);
      if (got == sizeof work) work->run(work);
      must(got == sizeof work, "what was written can be read");
      received = i + 1;
    }
  });
  Work work{.run = [](Work* self) {
    bench::end_counting<pipe_receive>();
    ++self->ran;
  }};
  Work* const to_send = &work;
  for (unsigned done = 0; done < repetitions; done += batch) {
    for (unsigned i = 0; i < batch; ++i) {
      bench::begin_counting<pipe_send>();
      const ssize_t written = write(ends[1], &to_send, sizeof to_send);
      bench::end_counting<pipe_send>();
      must(written == sizeof to_send, "there is room in the pipe");
    }
    sent = done + batch;
    while (received != sent) asm volatile("pause");
  }
  receiver.join();
  must(work.ran == repetitions, "all work is done");
}

// --- Timers ------------------------------------------------------------------------------------------------------------------------------
void set_timer(int timer, std::int64_t seconds, std::int64_t ns) {
  const itimerspec when{.it_interval = {}, .it_value = {.tv_sec = seconds, .tv_nsec = ns}};
  must(timerfd_settime(timer, 0, &when, nullptr) == 0, "a timer is set");
}

void count_timers() {
  constexpr unsigned others = 1000;
  constexpr std::int64_t delay_ns = 200'000'000;
  const rlimit files{.rlim_cur = others + 100, .rlim_max = others + 100};
  must(setrlimit(RLIMIT_NOFILE, &files) == 0, "files enough");
  const auto make = [] {
    const int timer = timerfd_create(CLOCK_MONOTONIC, 0);
    must(timer >= 0, "a timer");
    return timer;
  };
  for (unsigned i = 0; i < others; ++i) set_timer(make(), 100 + i, 0);
  const int timer = make();
  for (unsigned i = 0; i < repetitions; ++i) {
    bench::begin_counting<timer_add_cancel>();
    set_timer(timer, 0, delay_ns);
    set_timer(timer, 0, 0);
    bench::end_counting<timer_add_cancel>();
  }
  for (unsigned i = 0; i < repetitions; ++i) {
    bench::begin_counting<timer_push_back>();
    set_timer(timer, 0, delay_ns);
    bench::end_counting<timer_push_back>();
  }
}

// --- Thread-local data, and shared data that other threads may change --------------------------------------------------------------------
struct Requests {
  Requests() : served(hidden(std::uint64_t{0})) {}
  std::uint64_t served;
};
thread_local Requests requests;  // made when a thread first uses it
std::uint64_t settings = 42;

void count_calls_and_reads() {
  Requests plain;
  asm volatile("" ::"r"(&plain) : "memory");
  pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
  for (unsigned i = 0; i < repetitions; ++i) {
    bench::begin_counting<plain_call>();
    plain.served = i;
    asm volatile("" ::: "memory");
    bench::end_counting<plain_call>();
    bench::begin_counting<thread_local_call>();
    requests.served = i;
    asm volatile("" ::: "memory");
    bench::end_counting<thread_local_call>();
    std::uint64_t seen = 0;
    bench::begin_counting<plain_read>();
    seen = settings;
    asm volatile("" ::"r"(seen) : "memory");
    bench::end_counting<plain_read>();
    bench::begin_counting<shared_lock_read>();
    pthread_rwlock_rdlock(&lock);
    seen = settings;
    asm volatile("" ::"r"(seen) : "memory");
    pthread_rwlock_unlock(&lock);
    bench::end_counting<shared_lock_read>();
  }
}

// --- Coroutines --------------------------------------------------------------------------------------------------------------------------
/// A minimal lazy task, without exceptions and cancellation. Its awaiter continues when the task ends.
struct MinimalTask {
  struct promise_type {
    std::coroutine_handle<> awaiter = std::noop_coroutine();
    int value = 0;
    MinimalTask get_return_object() { return {std::coroutine_handle<promise_type>::from_promise(*this)}; }
    std::suspend_always initial_suspend() noexcept { return {}; }
    auto final_suspend() noexcept {
      struct Resume {
        bool await_ready() noexcept { return false; }
        std::coroutine_handle<> await_suspend(std::coroutine_handle<promise_type> ended) noexcept { return ended.promise().awaiter; }
        void await_resume() noexcept {}
      };
      return Resume{};
    }
    void return_value(int result) { value = result; }
    void unhandled_exception() { std::terminate(); }
  };
  MinimalTask(std::coroutine_handle<promise_type> started) : handle(started) {}
  MinimalTask& operator=(MinimalTask&&) = delete;
  ~MinimalTask() { handle.destroy(); }
  bool await_ready() { return false; }
  std::coroutine_handle<> await_suspend(std::coroutine_handle<> awaiter) {
    handle.promise().awaiter = awaiter;
    return handle;
  }
  int await_resume() { return handle.promise().value; }
  std::coroutine_handle<promise_type> handle;
};

[[gnu::noinline]] MinimalTask at_once(int value) { co_return value; }

MinimalTask count_awaits() {
  for (unsigned i = 0; i < repetitions; ++i) {
    bench::begin_counting<await_task>();
    const int value = co_await at_once(2);
    bench::end_counting<await_task>();
    must(value == 2, "a task's result");
  }
  co_return 0;
}

// --- Interrupts --------------------------------------------------------------------------------------------------------------------------
void count_signals() {
  must(std::signal(SIGUSR1, [](int) { bench::end_counting<signal_to_handler>(); }) != SIG_ERR, "a signal's handler");
  for (unsigned i = 0; i < repetitions; ++i) {
    bench::begin_counting<signal_to_handler>();
    std::raise(SIGUSR1);
  }
}

// --- Memory that another thread frees ----------------------------------------------------------------------------------------------------
void count_remote_frees() {
  static std::array<void*, repetitions> objects;
  std::thread([] {
    stay_on(1);
    for (void*& object : objects) object = std::malloc(64);
  }).join();
  for (void* const object : objects) {
    bench::begin_counting<remote_free_64>();
    std::free(hidden(object));
    bench::end_counting<remote_free_64>();
  }
}

}  // namespace

int main() {
  stay_on(0);
  bench::count_known_sequences<known_sequence, string_instruction>();
  count_pipe();  // first, so that all counts are with two threads: with one thread, the C library is faster
  count_function_queue();
  count_timers();
  count_calls_and_reads();
  MinimalTask awaits = count_awaits();
  awaits.handle.resume();
  count_signals();
  bench::count_pairs<pair_64>(64);
  bench::count_pairs<pair_4096>(4096);
  bench::count_halves<malloc_64, free_64>();
  count_remote_frees();
  std::printf("peers: counted\n");
  power_off();
}
