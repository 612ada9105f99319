// SPDX-License-Identifier: BSL-1.0
// The clock of each core, and whose turn it is.
//
// The emulator runs one core at a time and may be interrupted by its host at any moment. The modelled cores run side by side. Each core
// has a clock of its own, which its instructions advance. Cores take turns in rounds: in each round every core that is awake runs, in
// the order of their numbers, to the end of the round or to the next timer. So two clocks differ by at most a quantum and one
// instruction. A run that the host cuts short is continued before another core runs, and its end does not move. So the order of all
// instructions follows from the model alone.
//
// Clocks leave out skipped time, in which all cores slept: it is the same for all, and the package adds it.
#pragma once

#include <span>

#include "sim/machine/cpu_model.hpp"

namespace neap::model {

/// The work of a core since reset, at all privilege levels or at level 3.
struct Work {
  std::uint64_t instructions = 0;
  Ticks busy = 0;        ///< time in C0, without wake-ups
  Wide cycle_parts = 0;  ///< of 1/156250 cycle

  [[nodiscard]] std::uint64_t core_cycles() const noexcept { return static_cast<std::uint64_t>(cycle_parts / ticks_per_bus_clock); }
  /// The two's complement of a time takes it back.
  void add(Ticks time, unsigned ratio) noexcept {
    busy += time;
    cycle_parts += static_cast<Wide>(Signed{static_cast<std::int64_t>(time)} * ratio);
  }
};

class CoreClock {
 public:
  /// `shared`: another thread of the core runs, too.
  void set_pace(const CpuModel& cpu, unsigned ratio, bool shared) noexcept {
    ratio_ = ratio;
    shared_ = shared;
    per_instruction_ = cpu.time_per_instruction(ratio, shared);
  }
  /// Advances by instructions. A negative number takes the last ones back: an instruction that the emulator started and gave up.
  void run(std::int64_t instructions) noexcept;
  /// Advances by cycles in which the core is not halted and executes nothing.
  void stall(unsigned cycles) noexcept {
    const Ticks time = cycles * ticks_per_bus_clock / ratio_;
    local_ += time;
    all_.add(time, ratio_);
    if (user_level_) user_.add(time, ratio_);
  }
  /// From now on instructions and cycles are those of privilege level 3, or of lower ones.
  void set_user_level(bool user) noexcept { user_level_ = user; }
  /// Advances without cycles: a wake-up.
  void wait(Ticks time) noexcept { local_ += time; }
  /// A sleeping core's clock stands still; it catches up when it is woken.
  void catch_up(Ticks local) noexcept {
    if (local_ < local) local_ = local;
  }

  [[nodiscard]] Ticks local() const noexcept { return local_; }
  [[nodiscard]] Ticks per_instruction() const noexcept { return per_instruction_; }
  [[nodiscard]] unsigned ratio() const noexcept { return ratio_; }
  [[nodiscard]] const Work& work() const noexcept { return all_; }
  [[nodiscard]] const Work& user_work() const noexcept { return user_; }
  [[nodiscard]] bool is_shared() const noexcept { return shared_; }
  [[nodiscard]] Ticks busy() const noexcept { return all_.busy; }
  /// The instructions that fill the time until `end`, rounded up; 0 if it has come.
  [[nodiscard]] std::uint64_t instructions_until(Ticks end) const noexcept {
    return end <= local_ ? 0 : (end - local_ + per_instruction_ - 1) / per_instruction_;
  }

 private:
  Ticks local_ = 0, per_instruction_ = 1;
  unsigned ratio_ = 1;
  bool user_level_ = false, shared_ = false;
  Work all_, user_;
};

/// The state of one core that the order of turns depends on.
struct Runner {
  Ticks local = 0;
  bool awake = false;
  bool waits_for_others = false;  ///< it MUST NOT run before the cores behind it have caught up
};

class Rounds {
 public:
  explicit Rounds(Ticks quantum) noexcept : quantum_(quantum) {}

  /// The local time until which core `self` may run now: its own time if it is another core's turn. `timer`: the next timer's local time.
  /// `watched`: a sleeping core watches memory, so that even a core that is alone runs in rounds.
  [[nodiscard]] Ticks end_of_run(unsigned self, std::span<const Runner> cores, Ticks timer, bool watched) noexcept;
  /// True if `end_of_run` would begin another turn. The caller then looks at watched memory first.
  [[nodiscard]] bool turn_is_over(std::span<const Runner> cores, Ticks timer) const noexcept;
  /// The core whose turn it is; -1: none.
  [[nodiscard]] int turn() const noexcept { return turn_; }

 private:
  [[nodiscard]] static bool may_run(std::span<const Runner> cores, unsigned core, Ticks end) noexcept;

  Ticks quantum_;
  Ticks round_end_ = 0;
  int turn_ = -1;
};

/// True if a core that is awake is behind core `self`.
[[nodiscard]] bool is_ahead(std::span<const Runner> cores, unsigned self) noexcept;

}  // namespace neap::model
