// SPDX-License-Identifier: BSL-1.0
// The machine: the package, the order of its cores' turns and the link to the world, driven by QEMU's events.
//
// Each function below is called by QEMU through a hook (qemu.hpp). It first settles: the instructions executed since the last event are
// added to the core that executed them. All but a few run in the one thread of the CPUs.
#pragma once

#include <array>
#include <atomic>
#include <cstdio>
#include <memory>
#include <optional>

#include "sim/machine/clock.hpp"
#include "sim/machine/link.hpp"
#include "sim/machine/package.hpp"
#include "sim/machine/qemu.hpp"
#include "sim/machine/snapshot.hpp"
#include "sim/machine/stalls.hpp"

namespace neap::model {

struct Options {
  Ticks quantum = 2 * ticks_per_us;
  bool stay = false;   ///< the world's last phase does not end the run
  bool lines = false;  ///< a snapshot at the end of each line on the first serial port
  std::FILE* out = nullptr;
  std::FILE* trace = nullptr;
  std::uint64_t seed = 0;
  StallOptions stall;
  std::uint64_t instructions_max = 0;  ///< of all cores, since reset; a guest that executes more is ended. 0: no limit
};

class Machine {
 public:
  Machine(const CpuModel& cpu, unsigned cores, const Options& options, Link link);

  // Clock
  /// Of the core that runs; between runs the least of all that are awake.
  [[nodiscard]] Ticks now() noexcept;
  [[nodiscard]] std::int64_t tsc() noexcept { return static_cast<std::int64_t>(package_.tsc(now())); }
  [[nodiscard]] std::uint64_t enter(unsigned core) noexcept;
  [[nodiscard]] bool may_read_tsc(unsigned core) noexcept;
  [[nodiscard]] qemu::AfterInstruction pause(unsigned core) noexcept;

  // Sleep
  void halt(unsigned core) noexcept;
  void monitor(unsigned core, const std::uint8_t* line) noexcept;
  [[nodiscard]] qemu::AfterInstruction mwait(unsigned core, const qemu::MwaitRequest& request) noexcept;
  void look_at_memory() noexcept { static_cast<void>(wake_watchers(between_runs())); }
  void interrupt_raised(unsigned core) noexcept;
  [[nodiscard]] bool masked_interrupt_wakes(unsigned core) noexcept;
  void interrupt_taken(unsigned core) noexcept;
  /// After an instruction or an event that may change the privilege level.
  void level_changed(unsigned core, bool user) noexcept {
    settle();
    package_.set_user_level(core, user);
  }

  // Instructions
  [[nodiscard]] bool read(unsigned core, std::uint32_t msr, std::uint64_t& value) noexcept;
  [[nodiscard]] bool write(unsigned core, std::uint32_t msr, std::uint64_t value) noexcept;
  [[nodiscard]] bool read_performance_counter(unsigned core, std::uint32_t selector, std::uint64_t& value) noexcept;
  void cpuid(unsigned core, std::uint32_t leaf, std::uint32_t subleaf, CpuidWords& words) noexcept;
  void port_write(std::uint32_t port, std::uint32_t value) noexcept;

  // The card
  /// Once, when QEMU's clock is ours: lets the world say when it acts first.
  void start_world() noexcept;
  void before_card_access(bool write, std::uint32_t region, std::uint64_t offset, const void* data, std::size_t bytes) noexcept;
  void after_card_access() noexcept;
  void advance_world() noexcept;

  /// At the end of QEMU, from its main thread.
  void ended() noexcept;

 private:
  /// The line that a core watches after MONITOR, as it was then.
  struct Watch {
    const std::uint8_t* line = nullptr;
    std::array<std::uint8_t, 64> before{};
    bool armed = false;
    bool ended_by_masked_interrupt = false;
    [[nodiscard]] bool changed() const noexcept;
  };

  void settle() noexcept;
  [[nodiscard]] Ticks between_runs() noexcept;  // local
  [[nodiscard]] Ticks local_now() noexcept;
  [[nodiscard]] std::span<const Runner> look_at_cores() noexcept;
  [[nodiscard]] bool any_watched() const noexcept;
  [[nodiscard]] bool wake_watchers(Ticks local) noexcept;
  void fall_asleep(unsigned core, State state) noexcept;
  void wake(unsigned core) noexcept;
  void wake_called_cores() noexcept;
  void control_if_due() noexcept;
  void end_if_endless() noexcept;
  void note_call(unsigned core, WakeCause cause) noexcept;
  [[nodiscard]] std::uint64_t plan_run_again(unsigned core) noexcept;
  [[nodiscard]] std::uint64_t idle_until_ns(std::uint64_t now_ns) const noexcept;
  [[nodiscard]] Ticks next_expiry(unsigned core) noexcept;
  [[nodiscard]] Ticks next_timer(unsigned core) noexcept;
  [[nodiscard]] Ticks least_now() const noexcept;
  void hold_late_cores() noexcept;
  [[nodiscard]] Ticks next_stall() const noexcept;
  void look_at_world() noexcept;
  void snapshot(const char* event, std::uint64_t mark, Ticks now) noexcept;

  Package package_;
  Rounds rounds_;
  Link link_;
  Options options_;
  Digest digest_;
  Stalls stalls_;
  std::array<Watch, cores_max> watches_{};
  std::array<Runner, cores_max> runners_{};
  std::array<bool, cores_max> waits_for_others_{};
  std::array<std::atomic<bool>, cores_max> raised_outside_{};
  std::array<std::optional<WakeCause>, cores_max> first_call_{};  // oldest wake-up request that the core has not answered
  bool card_calls_ = false;                                       // a message of the card is being delivered
  int owner_ = -1;                                                // the core whose instructions are counted
  Ticks run_end_ = 0;                                             // local, of the run in progress
  std::atomic<Ticks> latest_{0};                                  // local: what other threads see as the time
  Ticks world_acts_ = ~Ticks{0};                                  // absolute: the next moment at which the world acts by itself
  Ticks next_count_ = ~Ticks{0};                                  // absolute: the next count of executed instructions
  Phase phase_ = Phase::set_up;
  std::uint64_t load_ = 0;    // the world's load under way
  std::uint64_t lines_ = 0;   // on the first serial port
  bool as_of_start_ = false;  // QEMU is asked for a time since the start
  bool exit_written_ = false;
};

}  // namespace neap::model
