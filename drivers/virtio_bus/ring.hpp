// SPDX-License-Identifier: BSL-1.0
// A split virtqueue (2.7): descriptors, the ring of chains that the driver makes available, and the ring of chains that the device has
// used.
//
// The memory is shared with the device, so all that the device writes is checked by the queues before it is used as an index or a length.
// The driver never reads back what it wrote there, for the same reason. A `position` counts up and wraps at 2^16, as in the rings.
//
// Notifications in both directions are suppressed by indices where the device offers that (2.7.7, 2.7.10), otherwise by flags.
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>
#include <cstring>
#include <utility>

#include "kernel/error.hpp"
#include "kernel/memory/dma_memory.hpp"

namespace neap::virtio {

struct alignas(16) Descriptor {
  std::uint64_t address;
  std::uint32_t bytes;
  std::uint16_t flags, next;

  /// Writes all fields, in two stores.
  void store(std::uint64_t to, std::uint32_t count, std::uint32_t bits = 0, std::uint32_t number = 0) noexcept {
    const std::uint64_t word = count | std::uint64_t{bits} << 32 | std::uint64_t{number} << 48;
    std::memcpy(&address, &to, sizeof to);
    std::memcpy(&bytes, &word, sizeof word);
  }
};
namespace descriptor_flag {
constexpr std::uint16_t next = 1, device_writes = 2, indirect = 4;
}  // namespace descriptor_flag

struct UsedEntry {
  std::uint32_t id;     ///< index of the chain's first descriptor
  std::uint32_t bytes;  ///< that the device wrote
};

class Ring {
 public:
  static constexpr std::uint32_t descriptors_min = 32, descriptors_max = 1024;

  /// `count` MUST be a power of two. Errors: `invalid` (out of range), `out_of_memory`.
  [[nodiscard]] Result<void> allocate(std::uint32_t count) {
    if (count < descriptors_min || count > descriptors_max || !std::has_single_bit(count))
      return failure(ErrorCode::invalid, "virtio: a ring has a power of two of descriptors, 32 to 1024", count);
    // 2.7: the used ring begins in a cache line of its own, because the device writes it.
    available_at_ = count * static_cast<std::uint32_t>(sizeof(Descriptor));
    used_at_ = (available_at_ + 6 + 2 * count + 63) / 64 * 64;
    auto memory = DmaMemory::allocate(used_at_ + 6 + 8 * count);
    if (!memory) return std::unexpected(memory.error());
    memory_ = std::move(*memory);
    mask_ = count - 1;
    return {};
  }

  /// From now on, `publish` notifies the device by a write of `number` to `notify`. MUST be called before the first `publish`.
  void connect(volatile std::uint16_t* notify, std::uint16_t number, bool event_index) noexcept {
    notify_ = notify;
    number_ = number;
    event_index_ = event_index;
    want_interrupts(quiet_ == 0);
    seen(0);
  }

  [[nodiscard]] std::uint32_t size() const noexcept { return mask_ + 1; }
  [[nodiscard]] std::uint32_t slot(std::uint32_t position) const noexcept { return position & mask_; }
  [[nodiscard]] Descriptor* descriptors() const noexcept { return reinterpret_cast<Descriptor*>(memory_.start()); }
  [[nodiscard]] std::uint64_t descriptors_address() const noexcept { return memory_.bus_address(); }
  [[nodiscard]] std::uint64_t available_address() const noexcept { return memory_.bus_address() + available_at_; }
  [[nodiscard]] std::uint64_t used_address() const noexcept { return memory_.bus_address() + used_at_; }

  /// Stores the number of a chain's first descriptor. The device sees it after `publish`.
  void offer(std::uint32_t position, std::uint32_t id) const noexcept { available()[2 + slot(position)] = static_cast<std::uint16_t>(id); }
  /// Makes all chains before `next` available. Returns true if the device wanted a notification.
  bool publish(std::uint16_t next) noexcept {
    const std::uint16_t before = std::exchange(published_, next);
    // 2.7.13.4.1: the device's wish is read after the index is visible to it. An exchange is a locked instruction, see `fence`.
    std::atomic_ref(available()[1]).exchange(next, std::memory_order_seq_cst);
    const std::uint16_t wish = std::atomic_ref(event_index_ ? used()[2 + 4 * size()] : used()[0]).load(std::memory_order_relaxed);
    const bool wanted = event_index_ ? static_cast<std::uint16_t>(next - wish - 1) < static_cast<std::uint16_t>(next - before) : wish == 0;
    if (wanted) __atomic_store_n(notify_, number_, __ATOMIC_RELEASE);
    return wanted;
  }

  /// The position behind the last used chain. All entries before it are visible.
  [[nodiscard]] std::uint16_t used_end() const noexcept { return std::atomic_ref(used()[1]).load(std::memory_order_acquire); }
  [[nodiscard]] UsedEntry used_entry(std::uint32_t position) const noexcept { return used_entries().at(slot(position)); }
  /// The ring of used entries, for loops that should keep its place in registers.
  struct UsedEntries {
    const std::byte* start;
    std::uint32_t mask;
    [[nodiscard]] UsedEntry at(std::uint32_t slot) const noexcept {
      UsedEntry entry;
      std::memcpy(&entry, start + std::size_t{slot} * sizeof entry, sizeof entry);
      return entry;
    }
  };
  [[nodiscard]] UsedEntries used_entries() const noexcept { return {.start = memory_.start() + used_at_ + 4, .mask = mask_}; }
  /// The cache line that the device writes when it has used a chain.
  [[nodiscard]] const volatile void* used_line() const noexcept { return memory_.start() + used_at_; }

  /// Interrupts for used chains are on from the start. After `connect`, it MUST be followed by `seen`.
  void want_interrupts(bool on) noexcept {
    quiet_ = on ? 0 : 1;
    if (!event_index_) std::atomic_ref(available()[0]).store(quiet_, std::memory_order_relaxed);
  }
  /// All used entries before `position` were seen. The next one raises an interrupt, if interrupts are wanted. A caller that will sleep
  /// MUST call `fence` and then look at `used_end` again (2.7.7.2).
  void seen(std::uint16_t position) const noexcept {
    if (event_index_)
      std::atomic_ref(available()[2 + size()]).store(static_cast<std::uint16_t>(position - quiet_), std::memory_order_relaxed);
  }
  /// Loads after it see what the device has done before it saw the stores before it. A locked instruction is a full fence on this CPU (SDM
  /// volume 3, 9.2.2). The thread sanitizer does not know `std::atomic_thread_fence`.
  void fence() noexcept { fence_.exchange(true, std::memory_order_seq_cst); }

 private:
  [[nodiscard]] std::uint16_t* available() const noexcept { return reinterpret_cast<std::uint16_t*>(memory_.start() + available_at_); }
  [[nodiscard]] std::uint16_t* used() const noexcept { return reinterpret_cast<std::uint16_t*>(memory_.start() + used_at_); }

  DmaMemory memory_;
  std::uint32_t mask_ = 0, available_at_ = 0, used_at_ = 0;
  volatile std::uint16_t* notify_ = nullptr;
  std::uint16_t number_ = 0, published_ = 0, quiet_ = 0;
  bool event_index_ = false;
  std::atomic<bool> fence_ = false;
};

}  // namespace neap::virtio
