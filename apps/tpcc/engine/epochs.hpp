// SPDX-License-Identifier: BSL-1.0
// The global epoch of the transactions.
//
// Versions consist of an epoch and a sequence within it. Cores choose the sequence without shared data, and only the epoch is shared. It
// changes every 40 ms, so its cache line is almost always in every core's cache (Silo, section 4.1).
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "kernel/timer.hpp"

namespace neap::transactions {

class Epochs {
 public:
  static constexpr std::chrono::milliseconds period{40};

  /// Advances the epoch each `period` by a timer of the calling core, until the object is destroyed on the same core.
  void start();
  /// MUST be called on the core that called `start`.
  void stop() noexcept { timer_.cancel(); }
  void advance() noexcept { current_.fetch_add(1, std::memory_order_seq_cst); }
  [[nodiscard]] std::uint64_t current() const noexcept { return current_.load(std::memory_order_seq_cst); }

 private:
  alignas(64) std::atomic<std::uint64_t> current_{2};  // rows of loaders have epoch 1
  alignas(64) Timer timer_;
};

}  // namespace neap::transactions
