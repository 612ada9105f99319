// SPDX-License-Identifier: BSL-1.0
// A queue that allocates nothing.
//
// Queueing an event or a waiter must not fail, so it must not allocate: the link is a part of the queued object. An object that is queued
// twice would cut the queue in two or turn it into a ring. So a link shows whether it is in use, and queueing its object again panics.
//
// The queue belongs to one core, or a lock protects it. Work from other cores arrives by `RemoteList` (remote_queue.hpp), which uses the
// same links.
#pragma once

#include <utility>

#include "kernel/panic.hpp"

namespace neap {

/// The end marker of each queue. Null cannot be the marker, because a null link shows that an object is in no queue.
template <typename Link>
inline constinit Link queue_end{};

template <typename Link>
[[nodiscard]] bool is_queued(const Link& object) noexcept {
  return object.next != nullptr;
}

/// A base for objects that need no more than the link.
struct QueueLink {
  QueueLink* next = nullptr;
};

/// First in, first out. Link has a member `Link* next = nullptr`; T is Link or derives from it. An object is in one queue at a time. The
/// queue does not own its objects.
template <typename T, typename Link = T>
class IntrusiveQueue {
 public:
  constexpr IntrusiveQueue() = default;
  /// `other` is empty afterwards.
  IntrusiveQueue(IntrusiveQueue&& other) noexcept : first_(std::exchange(other.first_, end)), last_(other.last_) {}
  /// This queue MUST be empty.
  IntrusiveQueue& operator=(IntrusiveQueue&& other) noexcept {
    require(empty(), "a queue with objects in it is overwritten");
    first_ = std::exchange(other.first_, end);
    last_ = other.last_;
    return *this;
  }

  [[nodiscard]] bool empty() const noexcept { return first_ == end; }
  /// The oldest object; null if the queue is empty.
  [[nodiscard]] T* front() const noexcept { return empty() ? nullptr : static_cast<T*>(first_); }

  /// `object` MUST NOT be in a queue.
  [[gnu::always_inline]] void push_back(T& object) noexcept {
    Link& link = object;
    require(!is_queued(link), "an object is queued at most once");
    link.next = end;
    (first_ == end ? first_ : last_->next) = &link;
    last_ = &link;
  }
  /// Removes the oldest object and returns it; null if the queue is empty. The object may then be queued again.
  [[gnu::always_inline]] T* pop_front() noexcept {
    Link* const link = first_;
    if (link == end) return nullptr;
    first_ = std::exchange(link->next, nullptr);
    return static_cast<T*>(link);
  }
  /// Removes `object`, which MUST be in this queue. Steps through all older objects.
  void remove(T& object) noexcept {
    Link* before = nullptr;
    Link* link = first_;
    for (; link != &object; link = link->next) {
      require(link != end, "an object is removed from a queue that it is not in");
      before = link;
    }
    (before == nullptr ? first_ : before->next) = std::exchange(link->next, nullptr);
    if (last_ == link) last_ = before;
  }
  /// Takes a chain that is linked from its newest object to its oldest, as `RemoteList::take_newest_first` returns it. This queue MUST be
  /// empty.
  void take_reversed(Link* newest) noexcept {
    require(empty(), "a queue with objects in it is overwritten");
    last_ = newest;
    while (newest != end) {
      Link* const older = newest->next;
      newest->next = first_;
      first_ = newest;
      newest = older;
    }
  }

 private:
  static constexpr Link* end = &queue_end<Link>;

  Link* first_ = end;
  Link* last_ = nullptr;  // valid unless the queue is empty
};

}  // namespace neap
