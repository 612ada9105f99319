// SPDX-License-Identifier: BSL-1.0
// A callable that is stored and called later.
//
// Every event, timer and interrupt vector has a `Callback`, so making, moving or calling a `Callback` must cost only a handful of
// instructions. The usual capture of a few pointers allocates nothing. `std::move_only_function` would need an indirect call to move even a
// trivially copyable callable. It also hides the address of the callable's code. The watchdog needs this address to print an event's name.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <type_traits>
#include <utility>

namespace neap {

/// Owns a callable without arguments and ignores its result. Can be moved, not copied. A callable of up to `room_bytes` is stored inside
/// the `Callback`. A larger callable, or one whose move may throw, is stored on the heap (throws `bad_alloc`).
class Callback {
 public:
  static constexpr std::size_t room_bytes = 32;

  constexpr Callback() noexcept : room_{} {}
  constexpr Callback(std::nullptr_t) noexcept : room_{} {}
  template <typename F>
    requires(!std::same_as<std::remove_cvref_t<F>, Callback> && std::invocable<std::decay_t<F>&>)
  Callback(F&& function) {
    set(std::forward<F>(function));
  }
  Callback(Callback&& other) noexcept { take(other); }
  Callback& operator=(std::nullptr_t) noexcept {
    clear();
    return *this;
  }
  Callback& operator=(Callback&& other) noexcept {
    if (this != &other) {
      clear();
      take(other);
    }
    return *this;
  }
  template <typename F>
    requires(!std::same_as<std::remove_cvref_t<F>, Callback> && std::invocable<std::decay_t<F>&>)
  Callback& operator=(F&& function) {
    clear();
    set(std::forward<F>(function));
    return *this;
  }
  ~Callback() { clear(); }

  /// The callback MUST NOT be empty.
  void operator()() { call_(room_); }
  [[nodiscard]] friend bool operator==(const Callback& callback, std::nullptr_t) noexcept { return callback.call_ == nullptr; }
  /// The address of the callable's code, for a look-up in the symbol table.
  [[nodiscard]] std::uintptr_t code() const noexcept { return reinterpret_cast<std::uintptr_t>(call_); }

 private:
  template <typename Function>
  static constexpr bool fits =
      sizeof(Function) <= room_bytes && alignof(Function) <= alignof(void*) && std::is_nothrow_move_constructible_v<Function>;
  template <typename Function>
  static constexpr bool copied_as_bytes = std::is_trivially_copyable_v<Function> && std::is_trivially_destructible_v<Function>;

  /// Moves the callable from `from` to `to` and destroys the source. If `to` is null, the callable is destroyed without a move.
  using Relocate = void (*)(void* to, void* from) noexcept;
  template <typename Function>
  static void relocate_function(void* to, void* from) noexcept {
    Function& function = *std::launder(static_cast<Function*>(from));
    if (to != nullptr) ::new (to) Function(std::move(function));
    function.~Function();
  }
  template <typename Function>
  static void relocate_pointer(void* to, void* from) noexcept {
    Function* const function = *std::launder(static_cast<Function**>(from));
    if (to != nullptr) {
      ::new (to) Function*(function);
    } else {
      delete function;
    }
  }

  template <typename F>
  void set(F&& function) {
    using Function = std::decay_t<F>;
    if constexpr (fits<Function>) {
      ::new (static_cast<void*>(room_)) Function(std::forward<F>(function));
      call_ = [](void* room) { static_cast<void>((*std::launder(static_cast<Function*>(room)))()); };
      if constexpr (!copied_as_bytes<Function>) relocate_ = &relocate_function<Function>;
    } else {
      ::new (static_cast<void*>(room_)) Function*(new Function(std::forward<F>(function)));
      call_ = [](void* room) { static_cast<void>((**std::launder(static_cast<Function**>(room)))()); };
      relocate_ = &relocate_pointer<Function>;
    }
  }
  void take(Callback& other) noexcept {
    if (other.relocate_ != nullptr) {
      other.relocate_(room_, other.room_);
    } else {
      std::memcpy(room_, other.room_, room_bytes);
    }
    call_ = std::exchange(other.call_, nullptr);
    relocate_ = std::exchange(other.relocate_, nullptr);
  }
  void clear() noexcept {
    if (relocate_ != nullptr) relocate_(nullptr, room_);
    call_ = nullptr;
    relocate_ = nullptr;
  }

  alignas(void*) std::byte room_[room_bytes];
  void (*call_)(void*) = nullptr;
  Relocate relocate_ = nullptr;
};

}  // namespace neap
