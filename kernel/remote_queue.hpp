// SPDX-License-Identifier: BSL-1.0
// Queues from many cores to one.
//
// Many cores send, one receives, and no core may wait for another: two cores that spin on each other's full queue would deadlock. So the
// queue for an application's work is bounded and reports when it is full. Queueing the kernel's work must not fail. So each work item of
// the kernel is a node of a linked list, and queueing it needs no further memory. Queue and list are lock-free. They use atomic operations
// without fences, so that the thread sanitizer can check them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace neap {

/// A bounded queue: many producers, one consumer. Each slot has a sequence number that tells whether the slot can be filled or emptied
/// (after D. Vyukov's bounded queue). A producer claims a position by one compare-and-swap; the slot's sequence number publishes the value.
template <typename T, std::uint32_t capacity>
class RemoteQueue {
  static_assert(capacity >= 2 && (capacity & (capacity - 1)) == 0);

 public:
  RemoteQueue() {
    for (std::uint64_t i = 0; i < capacity; ++i) slots_[i].sequence.store(i, std::memory_order_relaxed);
  }

  /// Returns false if the queue is full; `value` is then unchanged. May be called on any core. The publishing store is sequentially
  /// consistent. So a producer that then finds its request in the consumer's `WakeWord` can rely on the consumer to check the queue again.
  [[nodiscard]] bool try_push(T& value) noexcept {
    std::uint64_t position = head_.load(std::memory_order_relaxed);
    for (;;) {
      Slot& slot = slots_[position % capacity];
      const std::uint64_t sequence = slot.sequence.load(std::memory_order_acquire);
      if (sequence == position) {
        if (head_.compare_exchange_weak(position, position + 1, std::memory_order_relaxed)) {
          slot.value = std::move(value);
          slot.sequence.store(position + 1, std::memory_order_seq_cst);
          return true;
        }
      } else if (sequence < position) {
        return false;  // the consumer has not yet removed the slot's previous value: the queue is full
      } else {
        position = head_.load(std::memory_order_relaxed);  // another producer has claimed this position
      }
    }
  }

  /// The oldest value, in place; null if there is none. A position that is claimed but not yet published counts as empty; its producer will
  /// wake the consumer. Only the consumer's core may call `front`, `pop` and `empty`.
  [[nodiscard]] T* front() noexcept { return empty() ? nullptr : &oldest_->value; }
  /// Destroys the value that `front` returned.
  void pop() noexcept {
    Slot& slot = *oldest_;
    if constexpr (std::is_assignable_v<T&, std::nullptr_t>) {
      slot.value = nullptr;
    } else {
      slot.value = T{};
    }
    slot.sequence.store(tail_ + capacity, std::memory_order_release);
    ++tail_;
    oldest_ = &slots_[tail_ % capacity];
  }
  [[nodiscard]] bool empty() const noexcept { return oldest_->sequence.load(std::memory_order_seq_cst) != tail_ + 1; }

 private:
  struct alignas(sizeof(T) <= 48 ? 64 : alignof(T)) Slot {
    T value{};
    std::atomic<std::uint64_t> sequence{0};
  };
  alignas(64) std::atomic<std::uint64_t> head_{0};
  alignas(64) std::uint64_t tail_ = 0;
  Slot* oldest_ = slots_;  // the slot of position `tail_`
  alignas(64) Slot slots_[capacity];
};

/// Nodes with a member `Node* next`: many producers, one consumer that takes all of them at once. Allocates nothing and cannot be full.
/// `end` is the value of the oldest node's link.
template <typename Node, Node* end = nullptr>
class RemoteList {
 public:
  void push(Node& node) noexcept {
    Node* head = head_.load(std::memory_order_relaxed);
    do {
      node.next = head;
    } while (!head_.compare_exchange_weak(head, &node, std::memory_order_seq_cst, std::memory_order_relaxed));
  }
  /// Pushes a chain that is already linked from `newest` to `oldest`.
  void push_chain(Node& newest, Node& oldest) noexcept {
    Node* head = head_.load(std::memory_order_relaxed);
    do {
      oldest.next = head;
    } while (!head_.compare_exchange_weak(head, &newest, std::memory_order_seq_cst, std::memory_order_relaxed));
  }
  [[nodiscard]] bool empty() const noexcept { return head_.load(std::memory_order_seq_cst) == end; }

  /// The whole chain, newest first; `end` if there is none. Only the consumer's core may call it.
  [[nodiscard]] Node* take_newest_first() noexcept {
    if (empty()) return end;
    return head_.exchange(end, std::memory_order_acquire);
  }

 private:
  std::atomic<Node*> head_{end};
};

}  // namespace neap
