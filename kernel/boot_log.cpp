// SPDX-License-Identifier: BSL-1.0
#include "kernel/boot_log.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "kernel/panic.hpp"
#include "kernel/spin_lock.hpp"

namespace neap::boot_log {
namespace {

// The lock is held only for a short copy. A longer wait means that an exception interrupted this core while it held the lock. The core then
// continues without the lock.
constexpr unsigned tries_max = 10'000'000;
constinit char ring[bytes_max]{};
constinit std::atomic<std::uint64_t> written{0};
constinit SpinLock lock;
constinit std::atomic<bool> broken{false};

class Guard {
 public:
  Guard() noexcept {
    for (unsigned tries = 0; tries < tries_max && !broken.load(std::memory_order_relaxed); ++tries) {
      if ((locked_ = lock.try_lock())) return;
      relax_cpu();
    }
  }
  Guard& operator=(Guard&&) = delete;
  ~Guard() {
    if (locked_) lock.unlock();
  }

 private:
  bool locked_ = false;
};

void copy_out(std::uint64_t from, char* to, std::size_t bytes) noexcept {
  require(bytes <= bytes_max, "more bytes than the boot log holds", bytes);
  const std::size_t at = from % bytes_max;
  const std::size_t in_front = std::min(bytes, bytes_max - at);
  std::memcpy(to, ring + at, in_front);
  std::memcpy(to + in_front, ring, bytes - in_front);
}

std::uint64_t oldest(std::uint64_t end) noexcept { return end > bytes_max ? end - bytes_max : 0; }

}  // namespace

void append(std::string_view text) noexcept {
  const Guard guard;
  std::uint64_t end = written.load(std::memory_order_relaxed);
  if (text.size() > bytes_max) {
    end += text.size() - bytes_max;
    text.remove_prefix(text.size() - bytes_max);
  }
  const std::size_t at = end % bytes_max;
  const std::size_t in_front = std::min(text.size(), bytes_max - at);
  std::memcpy(ring + at, text.data(), in_front);
  std::memcpy(ring, text.data() + in_front, text.size() - in_front);
  written.store(end + text.size(), std::memory_order_release);
}

Extent extent() noexcept {
  const std::uint64_t end = written.load(std::memory_order_acquire);
  return {.first = oldest(end), .end = end};
}

Part read(std::uint64_t from, std::span<char> out) noexcept {
  const Guard guard;
  const std::uint64_t end = written.load(std::memory_order_relaxed);
  const std::uint64_t first = oldest(end);
  Part part{.first = std::min(from, end), .end = end};
  if (part.first < first) {
    // The oldest byte may be in the middle of a line. The rest of that line is skipped, unless no later line follows.
    std::uint64_t feed = first;
    while (feed + 1 < end && ring[feed % bytes_max] != '\n') ++feed;
    part.first = feed + 1 < end ? feed + 1 : first;
  }
  part.bytes = static_cast<std::size_t>(std::min<std::uint64_t>(out.size(), end - part.first));
  if (part.bytes == 0) return part;
  copy_out(part.first, out.data(), part.bytes);
  const std::string_view text(out.data(), part.bytes);
  if (const std::size_t last = text.rfind('\n'); last != text.npos) part.bytes = last + 1;
  return part;
}

void break_lock() noexcept { broken.store(true); }

}  // namespace neap::boot_log
