// SPDX-License-Identifier: BSL-1.0
// A core's log entries in memory: one core writes, any core reads, and neither waits.
//
// Entries are written by stores that bypass the cache, so that a log of a gigabyte does not evict the application's data. Such stores are
// ordered only by a fence. A fence waits until they have left the core, so a fence for every record would be too expensive. The writer
// works in chunks of 16 entries. Between two chunks it announces which entries it will overwrite next (`claimed`), executes one fence, and
// then announces the end of the complete entries (`end`). One fence orders both: the old chunk's entries before `end`, and `claimed` before
// the new chunk's entries. The entries of a partly filled chunk become readable before the core sleeps and when the run ends.
//
// A reader copies entries first. Then it checks whether these entries were claimed, or the ring was restarted, during the copy. It loads
// every word by an acquiring load. So if it has loaded a word of a newer entry, it then also sees the newer `claimed`. Kernel-internal.
#pragma once

#include <emmintrin.h>

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "kernel/counter.hpp"
#include "kernel/log.hpp"
#include "kernel/panic.hpp"

namespace neap::log {

struct alignas(entry_bytes) Entry {
  static constexpr std::size_t words_count = entry_bytes / sizeof(std::uint64_t);
  std::uint64_t words[words_count];
};

/// An entry before it is stored: two general registers and three 16-byte registers.
struct EntryInRegisters {
  std::uint64_t words[2];
  __m128i parts[3];
};

inline void store(Entry* to, const EntryInRegisters& entry) noexcept {
#if defined(__SANITIZE_THREAD__)
  // The thread sanitizer does not see non-temporal stores, so it gets ordinary ones. Their release order replaces the fence.
  std::uint64_t words[Entry::words_count] = {entry.words[0], entry.words[1]};
  std::memcpy(words + 2, entry.parts, sizeof entry.parts);
  for (std::size_t i = 0; i < Entry::words_count; ++i) __atomic_store_n(&to->words[i], words[i], __ATOMIC_RELEASE);
#else
  for (std::size_t i = 0; i < 2; ++i) _mm_stream_si64(reinterpret_cast<long long*>(&to->words[i]), static_cast<long long>(entry.words[i]));
  for (std::size_t i = 0; i < 3; ++i) _mm_stream_si128(reinterpret_cast<__m128i*>(&to->words[2 + 2 * i]), entry.parts[i]);
#endif
}

class Ring {
 public:
  static constexpr std::uint64_t chunk_entries = 16;

  /// `capacity` entries: a power of two, at least two chunks. The ring does not own the memory.
  Ring(Entry* entries, std::uint64_t capacity) noexcept : entries_(entries), capacity_(capacity) {
    require(std::has_single_bit(capacity) && capacity >= 2 * chunk_entries,
            "log: a ring has a power of two of entries, two chunks at least", capacity);
  }
  Ring& operator=(Ring&&) = delete;

  [[nodiscard]] std::uint64_t capacity() const noexcept { return capacity_; }
  [[nodiscard]] Entry* memory() const noexcept { return entries_; }

  // Functions for the writing core only.

  /// The address of the entry at this position. The entries of a chunk are adjacent.
  [[nodiscard]] Entry* entry(std::uint64_t position) const noexcept { return entries_ + (position & (capacity_ - 1)); }
  /// Restarts the positions at 0.
  void restart() noexcept {
    // The order matters. A reader that sees the new epoch does not see the old end; a reader that sees a new entry sees the new epoch.
    end_.store(0, std::memory_order_release);
    claimed_.store(0, std::memory_order_release);
    epoch_.store(epoch_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    unwritten_.subtract(unwritten_.value());
  }
  /// Readers may now read entries before `end`. The core may write entries before `claimed`, over the entries `capacity` positions older.
  void publish(std::uint64_t end, std::uint64_t claimed) noexcept {
    claimed_.store(claimed, std::memory_order_release);
    _mm_sfence();
    end_.store(end, std::memory_order_release);
  }
  /// As `publish`, for entries that are claimed already.
  void publish_end(std::uint64_t end) noexcept {
    _mm_sfence();
    end_.store(end, std::memory_order_release);
  }
  [[nodiscard]] std::uint64_t published() const noexcept { return end_.load(std::memory_order_relaxed); }
  void count_unwritten(std::uint64_t entries) noexcept { unwritten_.add(entries); }

  // For any core.

  [[nodiscard]] Extent extent() const noexcept {
    const std::uint64_t end = end_.load(std::memory_order_acquire);
    const std::uint64_t first = first_whole();
    return {.first = first, .end = end < first ? first : end, .unwritten = unwritten_.value()};
  }

  std::size_t read(std::uint64_t position, std::span<Record> out) const noexcept {
    const std::uint64_t epoch = epoch_.load(std::memory_order_acquire);
    const std::uint64_t end = end_.load(std::memory_order_acquire);
    if (position >= end || position < first_whole()) return 0;
    const std::size_t count = out.size() < end - position ? out.size() : static_cast<std::size_t>(end - position);
    for (std::size_t i = 0; i < count; ++i) {
      const Entry* const from = entry(position + i);
      Entry copy;
      for (std::size_t word = 0; word < Entry::words_count; ++word)
        copy.words[word] = __atomic_load_n(&from->words[word], __ATOMIC_ACQUIRE);
      std::memcpy(&out[i], &copy, sizeof copy);
    }
    if (position < first_whole() || epoch_.load(std::memory_order_relaxed) != epoch) return 0;
    return count;
  }

 private:
  /// The oldest position whose entry is not claimed for a newer one.
  [[nodiscard]] std::uint64_t first_whole() const noexcept {
    const std::uint64_t claimed = claimed_.load(std::memory_order_acquire);
    return claimed > capacity_ ? claimed - capacity_ : 0;
  }

  Entry* const entries_;
  const std::uint64_t capacity_;
  alignas(64) std::atomic<std::uint64_t> end_{0};
  std::atomic<std::uint64_t> claimed_{0}, epoch_{0};
  Counter unwritten_;
};

}  // namespace neap::log
