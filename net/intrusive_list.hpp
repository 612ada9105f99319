// SPDX-License-Identifier: BSL-1.0
// Lists that allocate no memory.
//
// A connection is in several lists at once and must be able to leave each of them without failing. So the links are members of the
// connection, one for each list. Removing a connection from any position takes a few stores.
#pragma once

namespace neap::net {

template <typename T>
struct ListLink {
  T* next = nullptr;
  T* previous = nullptr;
  bool listed = false;
};

/// First in, first out. `link` is the member of T that belongs to this list.
template <typename T, ListLink<T> T::* link>
class IntrusiveList {
 public:
  [[nodiscard]] bool empty() const noexcept { return first_ == nullptr; }
  [[nodiscard]] T* front() const noexcept { return first_; }
  [[nodiscard]] static T* next(const T& entry) noexcept { return (entry.*link).next; }

  /// Does nothing if the entry is in the list already.
  void push_back(T& entry) noexcept {
    ListLink<T>& own = entry.*link;
    if (own.listed) return;
    own = {.next = nullptr, .previous = last_, .listed = true};
    (last_ == nullptr ? first_ : (last_->*link).next) = &entry;
    last_ = &entry;
  }
  /// Does nothing if the entry is not in the list.
  void remove(T& entry) noexcept {
    ListLink<T>& own = entry.*link;
    if (!own.listed) return;
    (own.previous == nullptr ? first_ : (own.previous->*link).next) = own.next;
    (own.next == nullptr ? last_ : (own.next->*link).previous) = own.previous;
    own = {};
  }
  T* pop_front() noexcept {
    T* const entry = first_;
    if (entry != nullptr) remove(*entry);
    return entry;
  }

 private:
  T* first_ = nullptr;
  T* last_ = nullptr;
};

}  // namespace neap::net
