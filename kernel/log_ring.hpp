// SPDX-License-Identifier: BSL-1.0
// A core's lines in memory: one core writes, any core reads, nobody waits.
//
// Lines are written past the cache, so that a log of a gigabyte does not push the application's data out of it. Such stores are ordered
// with nothing but a fence, and a fence waits until they have left the core: far too dear for every record. So the writer works in chunks
// of 16 lines. Between two chunks it says which lines it is about to overwrite (`claimed`), fences once, and says up to where lines are
// whole
// (`end`): one fence orders both, the old chunk's lines before `end`, and `claimed` before the new chunk's lines. What is written in a
// half-filled chunk becomes readable before the core sleeps and when the run ends.
//
// A reader copies first and asks then whether what it copied had been claimed, or the ring been emptied, meanwhile. It loads every word by
// an acquiring load: a word of a newer line brings the newer `claimed` along. Kernel-internal.
#pragma once

#include <emmintrin.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "kernel/counter.hpp"
#include "kernel/log.hpp"

namespace neap::log {

struct alignas(record_bytes) Line {
  static constexpr std::size_t words_count = record_bytes / sizeof(std::uint64_t);
  std::uint64_t words[words_count];
};

/// 64 bytes on their way: two general registers, three of 16 bytes.
struct LineInRegisters {
  std::uint64_t words[2];
  __m128i parts[3];
};

inline void store(Line* to, const LineInRegisters& line) noexcept {
#if defined(__SANITIZE_THREAD__)
  // The thread sanitizer sees no non-temporal store; these it does, with the order that the fence gives the others.
  std::uint64_t words[Line::words_count] = {line.words[0], line.words[1]};
  std::memcpy(words + 2, line.parts, sizeof line.parts);
  for (std::size_t i = 0; i < Line::words_count; ++i) __atomic_store_n(&to->words[i], words[i], __ATOMIC_RELEASE);
#else
  for (std::size_t i = 0; i < 2; ++i) _mm_stream_si64(reinterpret_cast<long long*>(&to->words[i]), static_cast<long long>(line.words[i]));
  for (std::size_t i = 0; i < 3; ++i) _mm_stream_si128(reinterpret_cast<__m128i*>(&to->words[2 + 2 * i]), line.parts[i]);
#endif
}

class Ring {
 public:
  static constexpr std::uint64_t chunk_lines = 16;

  /// `lines`: a power of two of them, at least two chunks. Belongs to nobody: who made it frees the memory.
  Ring(Line* lines, std::uint64_t capacity) noexcept : lines_(lines), capacity_(capacity) {}
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  [[nodiscard]] std::uint64_t capacity() const noexcept { return capacity_; }
  [[nodiscard]] Line* memory() const noexcept { return lines_; }

  // The owner's.

  /// Where the line of this position lies. Those of a chunk lie side by side.
  [[nodiscard]] Line* line(std::uint64_t position) const noexcept { return lines_ + (position & (capacity_ - 1)); }
  /// Positions begin at 0 again.
  void restart() noexcept {
    // In this order: who sees the new epoch sees no old end, and who sees a new line sees the new epoch.
    end_.store(0, std::memory_order_release);
    claimed_.store(0, std::memory_order_release);
    epoch_.store(epoch_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    unwritten_.subtract(unwritten_.value());
  }
  /// Lines before `end` may be read; those before `claimed` may be written from now on.
  void publish(std::uint64_t end, std::uint64_t claimed) noexcept {
    claimed_.store(claimed, std::memory_order_release);
    _mm_sfence();
    end_.store(end, std::memory_order_release);
  }
  [[nodiscard]] std::uint64_t published() const noexcept { return end_.load(std::memory_order_relaxed); }
  void count_unwritten(std::uint64_t lines) noexcept { unwritten_.add(lines); }

  // Anybody's.

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
      const Line* const from = line(position + i);
      Line copy;
      for (std::size_t word = 0; word < Line::words_count; ++word) copy.words[word] = __atomic_load_n(&from->words[word], __ATOMIC_ACQUIRE);
      std::memcpy(&out[i], &copy, sizeof copy);
    }
    if (position < first_whole() || epoch_.load(std::memory_order_relaxed) != epoch) return 0;
    return count;
  }

 private:
  /// The oldest position whose line is not claimed for a newer one.
  [[nodiscard]] std::uint64_t first_whole() const noexcept {
    const std::uint64_t claimed = claimed_.load(std::memory_order_acquire);
    return claimed > capacity_ ? claimed - capacity_ : 0;
  }

  Line* const lines_;
  const std::uint64_t capacity_;
  alignas(64) std::atomic<std::uint64_t> end_{0};
  std::atomic<std::uint64_t> claimed_{0};
  std::atomic<std::uint64_t> epoch_{0};
  Counter unwritten_;
};

}  // namespace neap::log
