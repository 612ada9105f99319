// SPDX-License-Identifier: BSL-1.0
// setTimeout, setInterval and setImmediate.
//
// A server has a pending timer or more for each request, and the kernel's timers cost no allocation. But each callback is a turn of its
// own, and a script may make millions of timers. So an engine has one timer of the kernel, for its earliest deadline, and a bounded heap (a
// binary heap by deadline) in its own limited memory. Timers of one deadline fire in the order in which they were started.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "apps/webserver/engine/quickjs.hpp"
#include "kernel/timer.hpp"

namespace neap::webserver {

class Engine;

/// An object `Timeout` or `Immediate` of a script. While it is pending, it has a reference to its own object.
struct TimerEntry {
  JSValue callback = JS_UNDEFINED;
  JSValue* arguments = nullptr;
  int count = 0;
  bool repeat = false, immediate = false, has_reference = true, fires = false;
  std::uint32_t delay_ms = 0, id = 0;
  std::uint64_t deadline_ns = 0, sequence = 0;
  std::size_t place = not_pending;  // in the heap
  JSValue self = JS_UNDEFINED;
  TimerEntry* next = nullptr;  // of the list of immediates

  static constexpr std::size_t not_pending = ~std::size_t{0};
};

class Timers {
 public:
  explicit Timers(Engine& engine);
  Timers& operator=(Timers&&) = delete;
  ~Timers();

  // JS_EXCEPTION: no memory, or too many timers (counted).
  [[nodiscard]] JSValue start(JSValueConst callback, double delay_ms, bool repeat, int count, JSValueConst* arguments);
  [[nodiscard]] JSValue start_immediate(JSValueConst callback, int count, JSValueConst* arguments);
  /// Stops the timer that a value names: its object, or its number. Other values are ignored.
  void stop(JSValueConst timer) noexcept;
  /// Starts a timer again with its own delay, unless it has fired or was stopped.
  void refresh(JSValueConst object) noexcept;
  /// Stops all timers and frees their memory. MUST be called before the engine's runtime ends.
  void stop_all() noexcept;
  [[nodiscard]] std::size_t pending() const noexcept { return used_ + immediates_; }
  [[nodiscard]] TimerEntry* entry(JSValueConst value) const noexcept;
  /// The number by which clearTimeout also knows the timer. Pending timers with a number are found by a search of the heap.
  [[nodiscard]] std::uint32_t number(TimerEntry& entry) noexcept;
  [[nodiscard]] JSClassID object_class() const noexcept { return class_; }

 private:
  TimerEntry* make(JSValueConst callback, int count, JSValueConst* arguments, JSValue& object);
  bool insert(TimerEntry& entry) noexcept;
  void remove(TimerEntry& entry) noexcept;
  void sift(std::size_t place) noexcept;
  void settle(std::size_t place, TimerEntry* entry) noexcept;
  static bool before(const TimerEntry& first, const TimerEntry& second) noexcept;
  void arm() noexcept;
  void fire() noexcept;
  void fire_one(TimerEntry& entry) noexcept;
  void run_immediates() noexcept;
  void request_immediates();

  Engine& engine_;
  JSClassID class_;
  Timer timer_;
  std::uint64_t armed_ns_ = ~std::uint64_t{0};
  TimerEntry** heap_ = nullptr;
  std::size_t used_ = 0, room_ = 0;
  std::uint64_t sequence_ = 0;
  std::uint32_t last_id_ = 0;
  TimerEntry* immediate_first_ = nullptr;
  TimerEntry* immediate_last_ = nullptr;
  std::size_t immediates_ = 0;
  bool immediates_requested_ = false;
  bool firing_ = false;
  std::shared_ptr<Timers*> alive_;  // for events that may run after this object's end
};

}  // namespace neap::webserver
