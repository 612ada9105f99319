// SPDX-License-Identifier: BSL-1.0
// A progress watchdog for tests: work that does not return in time ends the process and is named.
//
// A loop without progress would otherwise run until ctest's time-out, which says neither where nor why. The limit is wall-clock time, taken
// by SIGALRM, so it needs no second thread and works inside a loop that never yields. One limit at a time; the process has one alarm.
#pragma once

#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

namespace neap::test {

class TimeLimit {
 public:
  /// Aborts with `what` in the message unless the object is destroyed, or `restart` called, within `seconds`. `what` must live as long.
  explicit TimeLimit(const char* what, unsigned seconds = 20) noexcept : seconds_(seconds) {
    name = what;
    struct sigaction action {};
    action.sa_handler = &TimeLimit::expired;
    sigaction(SIGALRM, &action, &before_);
    restart();
  }
  TimeLimit(const TimeLimit&) = delete;
  TimeLimit& operator=(const TimeLimit&) = delete;
  ~TimeLimit() {
    alarm(0);
    sigaction(SIGALRM, &before_, nullptr);
  }
  void restart() const noexcept { alarm(seconds_); }

 private:
  static void expired(int) noexcept {
    constexpr char message[] = "no progress within the time limit: ";
    (void)!write(STDERR_FILENO, message, sizeof message - 1);
    (void)!write(STDERR_FILENO, name, std::strlen(name));
    (void)!write(STDERR_FILENO, "\n", 1);
    std::abort();
  }

  static inline const char* name = "";
  unsigned seconds_;
  struct sigaction before_ {};
};

}  // namespace neap::test
