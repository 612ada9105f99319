// SPDX-License-Identifier: BSL-1.0
// A ring of descriptors in memory that an Intel network card and its driver share. All legacy and advanced descriptors of the 8254x to the
// 82599 have two words of 8 bytes. The second word contains the bit DD (descriptor done).
//
// The card completes a descriptor by writing it back with DD set, in one write of 16 bytes. So the driver finds completions in memory and
// reads no register. It loads the word with DD first, with acquire order, and then the other word.
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>
#include <cstring>

#include "kernel/error.hpp"
#include "kernel/memory/dma_memory.hpp"
#include "kernel/panic.hpp"

namespace neap {

struct alignas(16) Descriptor {
  std::uint64_t words[2];

  /// Returns the word that contains DD. If DD is set, the other word is valid too.
  [[nodiscard]] std::uint64_t load_status() noexcept { return std::atomic_ref(words[1]).load(std::memory_order_acquire); }
  [[nodiscard]] std::uint64_t load_first() noexcept { return std::atomic_ref(words[0]).load(std::memory_order_relaxed); }
  /// The stores are visible to the card no later than the next tail write.
  void store(std::uint64_t word0, std::uint64_t word1) noexcept {
    std::atomic_ref(words[0]).store(word0, std::memory_order_relaxed);
    std::atomic_ref(words[1]).store(word1, std::memory_order_relaxed);
  }
};

class DescriptorRing {
 public:
  static constexpr std::uint32_t descriptors_min = 64, descriptors_max = 4096;

  /// `count` MUST be a power of two from `descriptors_min` to `descriptors_max`. Errors: `invalid`, `out_of_memory`.
  [[nodiscard]] Result<void> allocate(std::uint32_t count) noexcept {
    if (count < descriptors_min || count > descriptors_max || !std::has_single_bit(count)) {
      return failure(ErrorCode::invalid, "a ring has a power of two of descriptors, 64 to 4096", count);
    }
    auto allocated = DmaMemory::allocate(count * sizeof(Descriptor));
    if (!allocated) return std::unexpected(allocated.error());
    memory_ = std::move(*allocated);
    descriptors_ = reinterpret_cast<Descriptor*>(memory_.start());
    // RDBAL and TDBAL of the 8254x to the 82599 hold multiples of 128.
    require(bus_address() % 128 == 0 && bytes() <= memory_.bytes(), "descriptor ring: wrong base or length", bus_address());
    mask_ = count - 1;
    return {};
  }

  /// Clears all descriptors. MUST NOT be called while the card uses the ring.
  void clear() noexcept {
    require(descriptors_ != nullptr, "a descriptor ring without memory is cleared");
    std::memset(memory_.start(), 0, bytes());
  }

  [[nodiscard]] std::uint32_t size() const noexcept { return mask_ + 1; }
  /// A `position` counts up without wrapping at the ring's size; its low bits are the slot in the ring.
  [[nodiscard]] std::uint32_t slot(std::uint32_t position) const noexcept { return position & mask_; }

  /// Returns the descriptor at this position. The next descriptors, up to the ring's end, follow it in memory.
  [[nodiscard]] Descriptor* at(std::uint32_t position) const noexcept { return &descriptors_[slot(position)]; }
  /// Sets bits in a descriptor that the card does not own yet.
  void add_bits(std::uint32_t position, std::uint64_t bits) noexcept {
    std::atomic_ref word(descriptors_[slot(position)].words[1]);
    word.store(word.load(std::memory_order_relaxed) | bits, std::memory_order_relaxed);
  }

  /// Returns the start of the descriptor's cache line. Rings are page aligned, so each line contains four whole descriptors.
  [[nodiscard]] const volatile void* line_of(std::uint32_t position) const noexcept {
    constexpr std::uint32_t descriptors_per_line = 64 / sizeof(Descriptor);
    return &descriptors_[slot(position) / descriptors_per_line * descriptors_per_line];
  }

  [[nodiscard]] std::uint64_t bus_address() const noexcept { return memory_.bus_address(); }
  [[nodiscard]] std::uint32_t bytes() const noexcept { return size() * static_cast<std::uint32_t>(sizeof(Descriptor)); }

 private:
  DmaMemory memory_;
  Descriptor* descriptors_ = nullptr;
  std::uint32_t mask_ = 0;
};

}  // namespace neap
