// SPDX-License-Identifier: BSL-1.0
// memcpy, memmove, memset, memcmp and memchr with vectors of 16 bytes (SSE2, which every x86-64 CPU has).
//
// newlib compares, searches and sets byte by byte or in words of 8 bytes, unless both pointers are aligned. Keys, lines and headers are 10
// to 100 bytes long at any alignment. So short lengths are the fast path here: a copy of up to 128 bytes has no loop, and a comparison of a
// key takes one or two vectors. `./neap bench request` counts the effect.
//
// A function never reads outside of the aligned 16-byte blocks that the arguments' bytes are in, so it never touches another page.
// Vector registers MAY be used here at any time: interrupts occur only at calls (kernel/x86/vectors.S), and the handler of an exception
// that returns calls none of these functions (kernel/x86/exceptions.cpp).
#pragma once

#include <emmintrin.h>

#include <bit>
#include <cstddef>
#include <cstdint>

namespace neap::libc {

/// From this size on, a CPU with fast string instructions (ERMS) copies and fills by REP. Below it, their start costs more (Intel's
/// Optimization Reference Manual, "Enhanced REP MOVSB and STOSB Operation").
constexpr std::size_t repeat_bytes_min = 2048;

namespace vector_detail {

// Loads and stores of any alignment; may_alias, because callers' objects have any type.
template <typename Word>
struct [[gnu::packed, gnu::may_alias]] Unaligned {
  Word word;
};
template <typename Word>
[[gnu::always_inline]] inline Word load(const unsigned char* from) noexcept {
  return reinterpret_cast<const Unaligned<Word>*>(from)->word;
}
template <typename Word>
[[gnu::always_inline]] inline void store(unsigned char* to, Word word) noexcept {
  reinterpret_cast<Unaligned<Word>*>(to)->word = word;
}
[[gnu::always_inline]] inline __m128i load16(const unsigned char* from) noexcept {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
}
[[gnu::always_inline]] inline void store16(unsigned char* to, __m128i vector) noexcept {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), vector);
}
/// A bit for each of 16 bytes: 1 where they are equal.
[[gnu::always_inline]] inline unsigned equal_bytes(__m128i one, __m128i other) noexcept {
  return static_cast<unsigned>(_mm_movemask_epi8(_mm_cmpeq_epi8(one, other)));
}

/// 64 bytes in registers: all are read before any is written.
struct Block {
  __m128i a, b, c, d;
  [[gnu::always_inline]] static Block read(const unsigned char* from) noexcept {
    return {load16(from), load16(from + 16), load16(from + 32), load16(from + 48)};
  }
  [[gnu::always_inline]] void write(unsigned char* to) const noexcept {
    store16(to, a);
    store16(to + 16, b);
    store16(to + 32, c);
    store16(to + 48, d);
  }
};

/// Copies 0 to 16 bytes. The areas may overlap.
[[gnu::always_inline]] inline void copy_up_to_16(unsigned char* to, const unsigned char* from, std::size_t bytes) noexcept {
  if (bytes >= 8) {
    const auto first = load<std::uint64_t>(from), last = load<std::uint64_t>(from + bytes - 8);
    store(to, first);
    store(to + bytes - 8, last);
  } else if (bytes >= 4) {
    const auto first = load<std::uint32_t>(from), last = load<std::uint32_t>(from + bytes - 4);
    store(to, first);
    store(to + bytes - 4, last);
  } else if (bytes != 0) {  // the first byte, the last, and the one in the middle
    const unsigned char first = from[0], middle = from[bytes / 2], last = from[bytes - 1];
    to[0] = first;
    to[bytes / 2] = middle;
    to[bytes - 1] = last;
  }
}

/// Copies more than 128 bytes.
[[gnu::noinline]] inline void copy_long(unsigned char* to, const unsigned char* from, std::size_t bytes, bool repeats) noexcept {
  const bool backward = reinterpret_cast<std::uintptr_t>(to) - reinterpret_cast<std::uintptr_t>(from) < bytes;
  if (backward) {  // `to` is behind `from` and the areas overlap
    const Block first = Block::read(from);
    std::size_t left = bytes;
    for (; left > 64; left -= 64) Block::read(from + left - 64).write(to + left - 64);
    first.write(to);
    return;
  }
  // Overlapping areas are excluded, because REP is slow if `from` is less than 64 bytes behind `to`.
  if (repeats && bytes >= repeat_bytes_min && reinterpret_cast<std::uintptr_t>(from) - reinterpret_cast<std::uintptr_t>(to) >= bytes) {
    asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
    return;
  }
  const Block last = Block::read(from + bytes - 64);
  unsigned char* const end = to + bytes - 64;
  for (; to < end; to += 64, from += 64) Block::read(from).write(to);
  last.write(end);
}

/// memcmp's result for two words whose first byte is in the lowest bits.
[[gnu::always_inline]] inline int order(std::uint64_t one, std::uint64_t other) noexcept {
  return std::byteswap(one) < std::byteswap(other) ? -1 : 1;
}

}  // namespace vector_detail

/// memmove, and so memcpy. `repeats`: the CPU has ERMS.
[[gnu::always_inline]] inline void* copy(void* destination, const void* source, std::size_t bytes, bool repeats) noexcept {
  using namespace vector_detail;
  auto* const to = static_cast<unsigned char*>(destination);
  const auto* const from = static_cast<const unsigned char*>(source);
  if (bytes <= 16) {
    copy_up_to_16(to, from, bytes);
  } else if (bytes <= 32) {
    const __m128i first = load16(from), last = load16(from + bytes - 16);
    store16(to, first);
    store16(to + bytes - 16, last);
  } else if (bytes <= 64) {
    const __m128i first = load16(from), second = load16(from + 16), third = load16(from + bytes - 32), last = load16(from + bytes - 16);
    store16(to, first);
    store16(to + 16, second);
    store16(to + bytes - 32, third);
    store16(to + bytes - 16, last);
  } else if (bytes <= 128) {
    const Block first = Block::read(from), last = Block::read(from + bytes - 64);
    first.write(to);
    last.write(to + bytes - 64);
  } else {
    copy_long(to, from, bytes, repeats);
  }
  return destination;
}

/// memset. `repeats`: the CPU has ERMS.
[[gnu::always_inline]] inline void* fill(void* destination, int value, std::size_t bytes, bool repeats) noexcept {
  using namespace vector_detail;
  auto* to = static_cast<unsigned char*>(destination);
  const std::uint64_t word = static_cast<unsigned char>(value) * 0x0101010101010101U;
  if (bytes < 16) {
    if (bytes >= 8) {
      store(to, word);
      store(to + bytes - 8, word);
    } else if (bytes >= 4) {
      store(to, static_cast<std::uint32_t>(word));
      store(to + bytes - 4, static_cast<std::uint32_t>(word));
    } else if (bytes != 0) {
      to[0] = to[bytes / 2] = to[bytes - 1] = static_cast<unsigned char>(value);
    }
    return destination;
  }
  const __m128i vector = _mm_set1_epi64x(static_cast<long long>(word));
  unsigned char* const end = to + bytes;
  if (bytes <= 64) {
    store16(to, vector);
    store16(end - 16, vector);
    if (bytes > 32) {
      store16(to + 16, vector);
      store16(end - 32, vector);
    }
    return destination;
  }
  if (repeats && bytes >= repeat_bytes_min) {
    asm volatile("rep stosb" : "+D"(to), "+c"(bytes) : "a"(value) : "memory");
    return destination;
  }
  const Block block{vector, vector, vector, vector};
  for (; to < end - 64; to += 64) block.write(to);
  block.write(end - 64);
  return destination;
}

/// memcmp.
[[gnu::always_inline]] inline int compare(const void* left, const void* right, std::size_t bytes) noexcept {
  using namespace vector_detail;
  const auto* const one = static_cast<const unsigned char*>(left);
  const auto* const other = static_cast<const unsigned char*>(right);
  if (bytes >= 16) {
    const std::size_t last = bytes - 16;
    for (std::size_t at = 0;; at += 16) {
      if (at > last) at = last;  // the last vector may begin within the one before it
      if (const unsigned equal = equal_bytes(load16(one + at), load16(other + at)); equal != 0xFFFF) {
        const std::size_t place = at + static_cast<unsigned>(std::countr_one(equal));
        return one[place] - other[place];
      }
      if (at == last) return 0;
    }
  }
  if (bytes >= 8) {
    const auto first = load<std::uint64_t>(one), first_other = load<std::uint64_t>(other);
    if (first != first_other) return order(first, first_other);
    const auto last = load<std::uint64_t>(one + bytes - 8), last_other = load<std::uint64_t>(other + bytes - 8);
    return last == last_other ? 0 : order(last, last_other);
  }
  if (bytes >= 4) {
    const auto first = load<std::uint32_t>(one), first_other = load<std::uint32_t>(other);
    if (first != first_other) return std::byteswap(first) < std::byteswap(first_other) ? -1 : 1;
    const auto last = load<std::uint32_t>(one + bytes - 4), last_other = load<std::uint32_t>(other + bytes - 4);
    return last == last_other ? 0 : std::byteswap(last) < std::byteswap(last_other) ? -1 : 1;
  }
  for (std::size_t at = 0; at < bytes; ++at) {
    if (one[at] != other[at]) return one[at] - other[at];
  }
  return 0;
}

/// memchr; null if the byte is not there. Reads aligned blocks only, the first of which may begin before `from`.
[[gnu::always_inline]] inline const void* find(const void* from, int value, std::size_t bytes) noexcept {
  using namespace vector_detail;
  if (bytes == 0) return nullptr;
  const auto begin = reinterpret_cast<std::uintptr_t>(from);
  const std::size_t skipped = begin % 16;
  const auto* block = reinterpret_cast<const __m128i*>(begin - skipped);
  const __m128i wanted = _mm_set1_epi8(static_cast<char>(value));
  unsigned found = equal_bytes(_mm_load_si128(block), wanted) >> skipped;
  // `place`: the offset from `from` of the found bits' first byte. `bytes` may be larger than the address space, so nothing is added to it.
  std::size_t place = 0, covered = 16 - skipped;
  while (found == 0) {
    if (bytes <= covered) return nullptr;
    place = covered;
    covered += 16;
    found = equal_bytes(_mm_load_si128(++block), wanted);
  }
  place += static_cast<unsigned>(std::countr_zero(found));
  return place < bytes ? reinterpret_cast<const void*>(begin + place) : nullptr;
}

}  // namespace neap::libc
