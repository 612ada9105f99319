// SPDX-License-Identifier: BSL-1.0
// The parts of an engine that are not on the path of each turn. Only the engine's own files include this.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "apps/webserver/engine/engine.hpp"
#include "apps/webserver/engine/strings.hpp"

namespace neap::webserver {

/// A list in the engine's own heap, so that its limit of memory bounds the list, too.
template <typename T>
class CountedList {
 public:
  /// False: no memory; nothing was added.
  [[nodiscard]] bool push(JSRuntime* runtime, const T& item) noexcept {
    if (used_ == room_) {
      const std::size_t room = room_ == 0 ? 16 : room_ * 2;
      void* const grown = js_realloc_rt(runtime, items_, room * sizeof(T));
      if (grown == nullptr) return false;
      items_ = static_cast<T*>(grown);
      room_ = room;
    }
    items_[used_++] = item;
    return true;
  }
  void release(JSRuntime* runtime) noexcept {
    js_free_rt(runtime, items_);
    items_ = nullptr;
    used_ = room_ = 0;
  }
  void pop() noexcept { --used_; }
  void clear() noexcept { used_ = 0; }
  [[nodiscard]] std::size_t size() const noexcept { return used_; }
  [[nodiscard]] bool empty() const noexcept { return used_ == 0; }
  [[nodiscard]] T& operator[](std::size_t index) noexcept { return items_[index]; }
  [[nodiscard]] T* begin() noexcept { return items_; }
  [[nodiscard]] T* end() noexcept { return items_ + used_; }

 private:
  T* items_ = nullptr;
  std::size_t used_ = 0, room_ = 0;
};

/// A callback of process.nextTick with its arguments, in the engine's own heap.
struct Engine::Tick {
  Tick* next;
  JSValue function;
  int count;
  JSValue arguments[];
};

struct Engine::State {
  struct Binding {
    BindingFill fill;
    JSValue object = JS_UNDEFINED;
  };
  struct Rejection {
    JSValue promise, reason;
  };
  std::map<std::string, Binding, std::less<>> bindings;
  CountedList<Rejection> rejections;
  Tick* tick_first = nullptr;
  Tick* tick_last = nullptr;

  /// A script's handlers of process events: `function (error, origin) -> handled`.
  JSValue uncaught_handler = JS_UNDEFINED, rejection_handler = JS_UNDEFINED;
  bool in_handler = false;
  std::string* entry_error = nullptr;  // receives the text of the next report, while the entry runs

  std::uint64_t watchdog_ticks = 0;  // as machine::timestamp
  std::size_t size_after_collection = 0;

  std::uint64_t console_credit_bytes = 0, console_credit_ns = 0;
  std::uint64_t console_dropped_lines = 0;
};

/// The bindings that each engine has.
void add_builtin_bindings(Engine& engine);
bool fill_modules_binding(Engine& engine, JSValueConst target);
bool fill_archive_binding(Engine& engine, JSValueConst target);
bool fill_text_binding(Engine& engine, JSValueConst target);
bool fill_url_binding(Engine& engine, JSValueConst target);
bool fill_process_binding(Engine& engine, JSValueConst target);
bool fill_timers_binding(Engine& engine, JSValueConst target);

}  // namespace neap::webserver
