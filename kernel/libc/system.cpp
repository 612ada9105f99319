// SPDX-License-Identifier: BSL-1.0
// The system functions that the C library calls. There is a console, a clock and an exit. There are no files, processes or signals; calls
// for them fail with errno.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "kernel/console.hpp"
#include "kernel/machine.hpp"
#include "kernel/panic.hpp"
#include "kernel/spin_lock.hpp"

namespace machine = neap::machine;

namespace {

constexpr std::uint64_t second_ns = 1'000'000'000, sleep_ns_max = second_ns;

bool is_console(int file) noexcept { return file >= 0 && file <= 2; }

int fail(int error) noexcept {
  errno = error;
  return -1;
}

std::uint64_t wall_clock_ns() noexcept { return machine::wall_clock_at_boot_ns() + machine::now_ns(); }

timespec as_timespec(std::uint64_t ns) noexcept {
  return {.tv_sec = static_cast<time_t>(ns / second_ns), .tv_nsec = static_cast<long>(ns % second_ns)};
}

}  // namespace

extern "C" {

// --- Standard input, output and error: the console ---------------------------------------------------------------------------------------
_READ_WRITE_RETURN_TYPE write(int file, const void* data, std::size_t bytes) {
  if (file != 1 && file != 2) return fail(EBADF);
  bytes = std::min<std::size_t>(bytes, INT_MAX);
  machine::console_write({static_cast<const char*>(data), bytes});
  return static_cast<_READ_WRITE_RETURN_TYPE>(bytes);
}
_READ_WRITE_RETURN_TYPE read(int file, void*, std::size_t) { return file == 0 ? 0 : fail(EBADF); }
int close(int file) { return is_console(file) ? 0 : fail(EBADF); }
int isatty(int file) {
  if (is_console(file)) return 1;
  errno = EBADF;
  return 0;
}
int fstat(int file, struct stat* result) {
  if (!is_console(file)) return fail(EBADF);
  *result = {};
  result->st_mode = S_IFCHR;
  return 0;
}
off_t lseek(int file, off_t, int) { return fail(is_console(file) ? ESPIPE : EBADF); }
int fcntl(int file, int, ...) { return is_console(file) ? 0 : fail(EBADF); }

// --- Files: there is no file system ------------------------------------------------------------------------------------------------------
int open(const char*, int, ...) { return fail(ENOENT); }
int stat(const char*, struct stat*) { return fail(ENOENT); }
int unlink(const char*) { return fail(ENOENT); }
int link(const char*, const char*) { return fail(ENOENT); }
int mkdir(const char*, mode_t) { return fail(EROFS); }

// --- Time --------------------------------------------------------------------------------------------------------------------------------
int gettimeofday(timeval* result, void*) {
  const timespec now = as_timespec(wall_clock_ns());
  *result = {.tv_sec = now.tv_sec, .tv_usec = static_cast<suseconds_t>(now.tv_nsec / 1000)};
  return 0;
}
int clock_gettime(clockid_t clock, timespec* result) {
  if (clock != CLOCK_REALTIME && clock != CLOCK_MONOTONIC) return fail(EINVAL);
  *result = as_timespec(clock == CLOCK_REALTIME ? wall_clock_ns() : machine::now_ns());
  return 0;
}
int clock_getres(clockid_t clock, timespec* result) {
  if (clock != CLOCK_REALTIME && clock != CLOCK_MONOTONIC) return fail(EINVAL);
  if (result != nullptr) *result = {.tv_sec = 0, .tv_nsec = 1};
  return 0;
}
// Processor time: the time since boot, because there is one program.
std::clock_t clock() { return static_cast<std::clock_t>(machine::now_ns() / (second_ns / CLOCKS_PER_SEC)); }
// This call is for short pauses during set-up, because it blocks the whole core.
int nanosleep(const timespec* time, timespec* left) {
  if (time->tv_sec < 0 || time->tv_nsec < 0 || time->tv_nsec >= static_cast<long>(second_ns)) return fail(EINVAL);
  const std::uint64_t ns = static_cast<std::uint64_t>(time->tv_sec) * second_ns + static_cast<std::uint64_t>(time->tv_nsec);
  neap::require(ns <= sleep_ns_max, "a blocking sleep of over 1 s: await sleep_for instead", ns);
  const std::uint64_t begin_ns = machine::now_ns();
  while (machine::now_ns() - begin_ns < ns) neap::relax_cpu();
  if (left != nullptr) *left = {};
  return 0;
}

// --- Random bits -------------------------------------------------------------------------------------------------------------------------
int getentropy(void* buffer, std::size_t bytes) {
  if (bytes > 256) return fail(EIO);
  auto* to = static_cast<std::byte*>(buffer);
  while (bytes != 0) {
    const std::uint64_t bits = machine::random_bits();
    const std::size_t piece = std::min(bytes, sizeof bits);
    std::memcpy(to, &bits, piece);
    to += piece;
    bytes -= piece;
  }
  return 0;
}

// --- Processes: there is only one --------------------------------------------------------------------------------------------------------
pid_t getpid() { return 1; }
int kill(pid_t, int signal) { neap::panic("a signal was raised", static_cast<std::uint64_t>(signal)); }
long sysconf(int name) {
  switch (name) {
    case _SC_PAGESIZE:
      return 4096;
    case _SC_NPROCESSORS_CONF:
    case _SC_NPROCESSORS_ONLN:
      return static_cast<long>(machine::core_count());
    default:
      return fail(EINVAL);
  }
}
[[noreturn]] void _exit(int status) { machine::exit(status == 0 ? machine::ExitStatus::success : machine::ExitStatus::failure); }
[[noreturn]] void abort() { neap::panic("abort was called"); }
[[noreturn]] void __assert_func(const char* file, int line, const char* function, const char* expression) {
  neap::Line text;
  text << "assertion failed: " << expression << " (" << file << ':' << line << " in " << (function == nullptr ? "?" : function) << ')';
  neap::panic(text.text());
}

// Objects of static and thread storage exist as long as the machine runs, because other cores may still use them. So no destructor is
// registered.
int __cxa_atexit(void (*)(void*), void*, void*) { return 0; }
int __cxa_thread_atexit(void (*)(void*), void*, void*) { return 0; }

}  // extern "C"
