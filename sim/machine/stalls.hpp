// SPDX-License-Identifier: BSL-1.0
// Cores that are late.
//
// Firmware (SMM), a hypervisor or a throttled clock can hold a core for longer than software expects, and then the order of two cores' work
// is one that never occurs otherwise. The option `stall=MEAN_US:MAX_US` holds each core again and again: after a random time of about
// MEAN_US, for a random time of up to MAX_US. A held core executes nothing and counts no cycles; interrupts wait. A core that sleeps is
// held when it has woken up.
//
// All moments are virtual and come from the seed. They do not depend on how the emulator divides a core's run.
#pragma once

#include <array>
#include <cstdint>
#include <cstdlib>

#include "sim/machine/cpu_model.hpp"

namespace neap::model {

/// `stall=MEAN_US:MAX_US`; 0: no stalls.
struct StallOptions {
  std::uint64_t mean_us = 0, max_us = 0;
  static constexpr std::uint64_t limit_us = 1'000'000;

  /// False if the text is not of this form, or a number is not 1 to `limit_us`.
  [[nodiscard]] bool parse(const char* text) noexcept {
    char* end = nullptr;
    mean_us = std::strtoul(text, &end, 10);
    if (end == text || *end != ':') return false;
    const char* const second = end + 1;
    max_us = std::strtoul(second, &end, 10);
    return end != second && *end == '\0' && mean_us != 0 && max_us != 0 && mean_us <= limit_us && max_us <= limit_us;
  }
};

class Stalls {
 public:
  Stalls() = default;
  Stalls(const StallOptions& options, std::uint64_t seed) noexcept : options_(options) {
    for (unsigned core = 0; core < cores_max; ++core) {
      state_[core] = seed + (core + 1) * golden;
      plan(core, 0);
    }
  }

  /// The absolute time from which the core is held next.
  [[nodiscard]] Ticks next(unsigned core) const noexcept { return options_.mean_us == 0 ? ~Ticks{0} : next_[core]; }
  /// The core's time has come to `next`: how long it is held from `now` on.
  [[nodiscard]] Ticks take(unsigned core, Ticks now) noexcept {
    const Ticks length = (1 + random(core) % options_.max_us) * ticks_per_us;
    plan(core, now + length);
    return length;
  }

 private:
  static constexpr std::uint64_t golden = 0x9e37'79b9'7f4a'7c15;

  /// Evenly distributed up to twice the mean.
  void plan(unsigned core, Ticks from) noexcept {
    if (options_.mean_us != 0) next_[core] = from + (1 + random(core) % (2 * options_.mean_us)) * ticks_per_us;
  }

  /// SplitMix64 (Steele, Lea, Flood 2014).
  [[nodiscard]] std::uint64_t random(unsigned core) noexcept {
    std::uint64_t x = state_[core] += golden;
    x = (x ^ (x >> 30)) * 0xbf58'476d'1ce4'e5b9;
    x = (x ^ (x >> 27)) * 0x94d0'49bb'1331'11eb;
    return x ^ (x >> 31);
  }

  StallOptions options_;
  std::array<std::uint64_t, cores_max> state_{};
  std::array<Ticks, cores_max> next_{};
};

}  // namespace neap::model
