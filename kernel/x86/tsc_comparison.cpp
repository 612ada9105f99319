// SPDX-License-Identifier: BSL-1.0
#include "kernel/x86/tsc_comparison.hpp"

#include <atomic>

#include "kernel/machine.hpp"
#include "kernel/x86/clock.hpp"
#include "kernel/x86/cpu.hpp"

namespace neap::x86::tsc_comparison {

namespace {

constinit std::atomic<std::uint32_t> request{0}, reply{0};
constinit std::atomic<std::uint64_t> reply_tsc{0};
constexpr unsigned rounds = 16, rounds_min = 2;
constexpr std::uint64_t rounds_limit_ns = 1'000'000;
constexpr std::uint32_t last_request = ~std::uint32_t{0};

}  // namespace

void begin() {
  reply.store(0, std::memory_order_relaxed);
  request.store(0, std::memory_order_release);
}

void answer(std::uint64_t limit_ns) {
  const WaitLimit limit(limit_ns);
  for (std::uint32_t seen = 0; !limit.passed();) {
    const auto now = request.load(std::memory_order_acquire);
    if (now == seen) continue;
    if (now == last_request) return;
    reply_tsc.store(read_tsc_ordered(), std::memory_order_relaxed);
    reply.store(now, std::memory_order_release);
    seen = now;
  }
}

std::uint64_t measure() {
  std::uint64_t shortest = ~std::uint64_t{0};
  std::int64_t best = 0;
  const WaitLimit limit(rounds_limit_ns);
  for (std::uint32_t round = 1; round <= rounds; ++round) {
    if (round > rounds_min && limit.passed()) break;  // only an emulator on too few host cores is so slow
    const auto before = read_tsc_ordered();
    request.store(round, std::memory_order_release);
    while (reply.load(std::memory_order_acquire) != round) {
      if (read_tsc() - before > machine::timestamp_hz()) break;
      pause();
    }
    const auto after = read_tsc_ordered();
    if (reply.load(std::memory_order_acquire) != round || after - before >= shortest) continue;
    shortest = after - before;
    best = static_cast<std::int64_t>(before + (after - before) / 2 - reply_tsc.load(std::memory_order_relaxed));
  }
  request.store(last_request, std::memory_order_release);
  const auto error = static_cast<std::int64_t>(shortest / 2 + 1);
  return best > error || best < -error ? static_cast<std::uint64_t>(best) : 0;
}

}  // namespace neap::x86::tsc_comparison
