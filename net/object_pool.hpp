// SPDX-License-Identifier: BSL-1.0
// Small objects of one type, allocated and freed on one core thousands of times a second.
//
// Taking an object from the free list costs a few instructions, and so does giving it back. Spare objects beyond `keep` are returned to
// malloc. Each type and core has one pool: declare it `constinit thread_local`.
#pragma once

#include <new>
#include <utility>

namespace neap::net {

template <typename T, unsigned keep = 1024>
class ObjectPool {
 public:
  constexpr ObjectPool() = default;

  /// Returns null if there is no memory.
  template <typename... Arguments>
  [[nodiscard]] T* take(Arguments&&... arguments) noexcept {
    Slot* slot = free_;
    if (slot != nullptr) {
      free_ = slot->next;
      --spare_;
    } else {
      slot = new (std::nothrow) Slot;
      if (slot == nullptr) return nullptr;
    }
    return ::new (static_cast<void*>(slot->memory)) T{std::forward<Arguments>(arguments)...};
  }
  void give_back(T* object) noexcept {
    object->~T();
    auto* const slot = reinterpret_cast<Slot*>(object);
    if (spare_ >= keep) {
      delete slot;
      return;
    }
    slot->next = free_;
    free_ = slot;
    ++spare_;
  }
  /// Returns the spare objects to malloc (for tests that look for leaks).
  void trim() noexcept {
    while (free_ != nullptr) delete std::exchange(free_, free_->next);
    spare_ = 0;
  }

 private:
  union Slot {
    Slot* next;
    alignas(T) unsigned char memory[sizeof(T)];
  };
  Slot* free_ = nullptr;
  unsigned spare_ = 0;
};

}  // namespace neap::net
