// SPDX-License-Identifier: BSL-1.0
// Random bits for hash seeds and connection identifiers (Intel "Digital Random Number Generator" guide, 5.2).
#include <atomic>
#include <cstdint>

#include "kernel/console.hpp"
#include "kernel/machine.hpp"
#include "kernel/x86/cpu.hpp"

namespace neap::x86 {

namespace {

constexpr unsigned tries = 10;  // from the guide; a generator that fails so often is broken

bool read_generator(std::uint64_t& value) {
  for (unsigned i = 0; i < tries; ++i) {
    bool good;
    asm volatile("rdrand %0" : "=r"(value), "=@ccc"(good));
    // Some generators report success but return all ones, after a sleep or always (Linux tests for them at boot).
    if (good && value != ~std::uint64_t{0}) return true;
  }
  return false;
}

constinit std::atomic<std::uint64_t> mixed{0};
constinit std::atomic<bool> reported{false};

// Mixes a hidden counter and the TSC by the finaliser of splitmix64 (Steele, Lea, Flood, 2014). The result MUST NOT be used as a secret.
std::uint64_t mix_from_clock() {
  auto value = mixed.fetch_add(0x9e3779b97f4a7c15 + read_tsc()) ^ read_tsc();
  value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9;
  value = (value ^ value >> 27) * 0x94d049bb133111eb;
  return value ^ value >> 31;
}

}  // namespace

}  // namespace neap::x86

namespace neap::machine {

std::uint64_t random_bits() noexcept {
  using namespace x86;
  std::uint64_t value = 0;
  if (features().rdrand && read_generator(value)) return value;
  if (!reported.exchange(true)) print("neap: no random number generator in this CPU: random bits come from the clock and can be guessed");
  return mix_from_clock();
}

}  // namespace neap::machine
