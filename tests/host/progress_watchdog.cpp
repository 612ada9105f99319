// SPDX-License-Identifier: BSL-1.0
#include "tests/host/progress_watchdog.hpp"

#include <execinfo.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

// This function exists only in builds with a sanitizer. It prints a backtrace with the names and lines of functions.
extern "C" [[gnu::weak]] void __sanitizer_print_stack_trace();

namespace neap::host {

struct Entry {
  std::string name;
  const WatchedWork* work;
  pthread_t thread;
  std::uint64_t seen_piece = 0;
  unsigned looks = 0;
};

namespace {

constexpr int report_signal = SIGUSR1;
std::atomic<unsigned> limit{progress_limit};

// This handler runs on the hanging thread. Its calls are not safe in a signal handler, but the process ends here.
void report_and_abort(int) {
  if (__sanitizer_print_stack_trace != nullptr) {
    __sanitizer_print_stack_trace();
  } else {
    void* frames[64];
    backtrace_symbols_fd(frames, backtrace(frames, 64), STDERR_FILENO);
  }
  std::abort();
}

}  // namespace

// The watchdog is never destroyed, because its thread runs until the process ends.
struct Watchdog {
  static Watchdog& instance() {
    static auto& watchdog = *new Watchdog;
    return watchdog;
  }

  Watchdog() {
    signal(report_signal, report_and_abort);
    std::thread([this] {
      for (;;) {
        std::this_thread::sleep_for(std::chrono::seconds(1));
        look();
      }
    }).detach();
  }

  void look() {
    const std::lock_guard lock(mutex);
    for (const auto& entry : entries) {
      const std::uint64_t piece = entry->work->piece_.load(std::memory_order_relaxed);
      entry->looks = piece != 0 && piece == std::exchange(entry->seen_piece, piece) ? entry->looks + 1 : 0;
      if (entry->looks < limit.load()) continue;
      std::fprintf(stderr, "host machine: %s has lasted for %u s; it is at:\n", entry->name.c_str(), entry->looks);
      pthread_kill(entry->thread, report_signal);
      // The thread sanitizer delivers a signal only at a system call. If the hanging thread makes no system call for 5 s, the watchdog's
      // thread aborts the process.
      std::this_thread::sleep_for(std::chrono::seconds(5));
      std::abort();
    }
  }

  std::mutex mutex;
  std::vector<std::unique_ptr<Entry>> entries;
};

void set_progress_limit(unsigned looks) { limit = looks; }

WatchedWork::WatchedWork(std::string name) {
  auto entry = std::make_unique<Entry>(Entry{.name = std::move(name), .work = this, .thread = pthread_self()});
  entry_ = entry.get();
  Watchdog& watchdog = Watchdog::instance();
  const std::lock_guard lock(watchdog.mutex);
  watchdog.entries.push_back(std::move(entry));
}

WatchedWork::~WatchedWork() {
  Watchdog& watchdog = Watchdog::instance();
  const std::lock_guard lock(watchdog.mutex);
  std::erase_if(watchdog.entries, [this](const auto& entry) { return entry.get() == entry_; });
}

}  // namespace neap::host
