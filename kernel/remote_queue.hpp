// SPDX-License-Identifier: BSL-1.0
// Work on its way from one core to another.
//
// Many cores send, one receives, nobody may wait for anybody: a core that spun on a full queue while its own is full would never get out.
// So the queue for an application's work is bounded and says when it is full; what the system itself must hand over (and must not fail) is
// a list of nodes that bring their own memory. Both are lock-free by atomic operations alone, without fences, so that the thread sanitizer
// can judge them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace neap {

/// A bounded queue, many producers, one consumer. Each slot carries the turn at which it may be filled or emptied (after D. Vyukov's
/// bounded queue): a producer claims a position by one compare-and-swap and publishes it by the slot's own turn.
template <typename T, std::uint32_t capacity>
class RemoteQueue {
  static_assert(capacity >= 2 && (capacity & (capacity - 1)) == 0);

 public:
  RemoteQueue() {
    for (std::uint64_t i = 0; i < capacity; ++i) slots_[i].turn.store(i, std::memory_order_relaxed);
  }

  /// Moves from `value` only if it returns true; false means full. Any core. The publishing store is sequentially consistent: a producer
  /// that then reads "the consumer is awake" knows that the consumer will look again (see `Core::asleep`).
  [[nodiscard]] bool try_push(T& value) noexcept {
    std::uint64_t position = head_.load(std::memory_order_relaxed);
    for (;;) {
      Slot& slot = slots_[position % capacity];
      const std::uint64_t turn = slot.turn.load(std::memory_order_acquire);
      if (turn == position) {
        if (head_.compare_exchange_weak(position, position + 1, std::memory_order_relaxed)) {
          slot.value = std::move(value);
          slot.turn.store(position + 1, std::memory_order_seq_cst);
          return true;
        }
      } else if (turn < position) {
        return false;  // the consumer has not emptied this slot since the last time round
      } else {
        position = head_.load(std::memory_order_relaxed);  // others were faster
      }
    }
  }

  /// The oldest value, to be used where it lies; null when there is none. A value that is claimed and not yet published does not count; its
  /// producer will wake the consumer. The consumer's core only, as are the next two.
  [[nodiscard]] T* front() noexcept {
    Slot& slot = slots_[tail_ % capacity];
    return slot.turn.load(std::memory_order_seq_cst) == tail_ + 1 ? &slot.value : nullptr;
  }
  /// Destroys what `front` gave.
  void pop() noexcept {
    Slot& slot = slots_[tail_ % capacity];
    if constexpr (std::is_assignable_v<T&, std::nullptr_t>) {
      slot.value = nullptr;
    } else {
      slot.value = T{};
    }
    slot.turn.store(tail_ + capacity, std::memory_order_release);
    ++tail_;
  }
  [[nodiscard]] bool empty() const noexcept { return slots_[tail_ % capacity].turn.load(std::memory_order_seq_cst) != tail_ + 1; }

 private:
  struct alignas(sizeof(T) <= 48 ? 64 : alignof(T)) Slot {
    T value{};
    std::atomic<std::uint64_t> turn{0};
  };
  alignas(64) std::atomic<std::uint64_t> head_{0};
  alignas(64) std::uint64_t tail_ = 0;
  alignas(64) Slot slots_[capacity];
};

/// Nodes with a member `Node* next`, many producers, one consumer that takes all there are, oldest first. Allocates nothing and cannot be
/// full.
template <typename Node>
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
  [[nodiscard]] bool empty() const noexcept { return head_.load(std::memory_order_seq_cst) == nullptr; }

  /// The whole chain, newest first; null when there is none.
  [[nodiscard]] Node* take_newest_first() noexcept {
    if (head_.load(std::memory_order_relaxed) == nullptr) return nullptr;
    return head_.exchange(nullptr, std::memory_order_acquire);
  }
  /// The whole chain, oldest first.
  [[nodiscard]] Node* take() noexcept {
    Node* newest = take_newest_first();
    Node* oldest = nullptr;
    while (newest != nullptr) {
      Node* const next = newest->next;
      newest->next = oldest;
      oldest = newest;
      newest = next;
    }
    return oldest;
  }

 private:
  std::atomic<Node*> head_{nullptr};
};

}  // namespace neap
