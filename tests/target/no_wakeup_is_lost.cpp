// SPDX-License-Identifier: BSL-1.0
// Work that is handed over to a core is done at once, even if the core is just falling asleep, in every idle state of this machine. In the
// first part, thousands of hand-overs pass around a ring of cores. Each target core has no other work, and no timer wakes it. In the second
// part, all cores wake each other continuously, by every means.
#include <array>
#include <atomic>

#include "kernel/policy.hpp"
#include "kernel/x86/apic.hpp"
#include "kernel/x86/cores.hpp"
#include "tests/target/stress.hpp"

namespace {

using namespace neap;
using test::check;
constexpr unsigned rounds = 2000;
std::atomic<unsigned> hops{0};

void hop(unsigned left) {
  hops.fetch_add(1);
  if (left == 0) return;
  check(spawn_on((this_core() + 1) % core_count(), [left] { hop(left - 1); }).has_value(), "queued");
}

/// A token is on one core at a time, and wakes the next core by remote work, by a device's interrupt, or by a timer.
struct Token : RemoteNode {
  unsigned left = 0;
  Timer timer;
  test::Chance chance{1};
};

std::array<std::uint8_t, machine::cores_max> vectors{};
std::array<std::atomic<Token*>, machine::cores_max> raised{};
std::atomic<unsigned> tokens_left{0};

void travel(Token& token) {
  if (token.left-- == 0) {
    tokens_left.fetch_sub(1);
    return;
  }
  const unsigned there = token.chance.below(core_count());
  Token* nobody = nullptr;
  const unsigned how = token.chance.below(4);
  if (how == 0 && raised[there].compare_exchange_strong(nobody, &token)) {
    return x86::apic::send(x86::apic_id_of(there), vectors[there]);
  }
  if (how == 1) return token.timer.arm(std::chrono::microseconds(token.chance.below(200)), [&token] { travel(token); });
  if (how == 2 && spawn_on(there, [&token] { travel(token); }).has_value()) return;
  token.run = [](RemoteNode* node) noexcept { travel(*static_cast<Token*>(node)); };
  hand_over(there, token);
}

void take_vector() {
  const unsigned self = this_core();
  const auto vector = allocate_vector(self, [self] {
    if (Token* const token = raised[self].exchange(nullptr); token != nullptr) travel(*token);
  });
  check(vector.has_value(), "a vector");
  vectors[self] = *vector;
}

task<void> ring() {
  const auto total = rounds * core_count();
  hops = 0;
  check(spawn_on(core_count() - 1, [total] { hop(total - 1); }).has_value(), "queued");
  // The ring also wakes core 0. Core 0's timer is needed only to end a test that hangs.
  co_await test::wait_for([total] { return hops.load() == total; }, "the chain stopped");
}

task<void> storm(unsigned seed) {
  constexpr unsigned tokens_count = 8, journeys = 1000;
  static std::array<Token, tokens_count> tokens;
  tokens_left = tokens_count;
  for (unsigned i = 0; i < tokens_count; ++i) {
    tokens[i].left = journeys;
    tokens[i].chance = test::Chance(seed * tokens_count + i);
    check(spawn_on(i % core_count(), [&token = tokens[i]] { travel(token); }).has_value(), "queued");
  }
  co_await test::wait_for([] { return tokens_left.load() == 0; }, "a token came to rest");
}

}  // namespace

neap::task<int> neap::application(Arguments& arguments) {
  test::Stress stress(arguments);
  arguments.finish();
  co_await on_each_core(take_vector);
  unsigned states = 0, storms = 0;
  while (stress.goes_on()) {
    for (unsigned state = 0; state < idle_states; ++state) {
      // A core with `poll` is always busy. With more polling cores than the host has CPUs, the test takes too long.
      const bool polls = static_cast<IdleState>(state) == IdleState::poll;
      // `monitor` watches a ring of the card, and this machine has no card.
      if (static_cast<IdleState>(state) == IdleState::monitor) continue;
      if (((machine::power_abilities().idle_states >> state) & 1) == 0 && !polls) continue;
      check((co_await policy::set(policy::Setting::idle, idle_state_names[state], policy::all_cores)).has_value(), idle_state_names[state]);
      if (!polls) co_await ring();
      co_await storm(++storms);
      ++states;
    }
  }
  check((co_await policy::set(policy::Setting::idle, "halt", policy::all_cores)).has_value(), "and back");
  for (unsigned core = 0; core < core_count(); ++core)
    check(event_counters(core).sleeps > 10, "the core slept in between", event_counters(core).sleeps);
  print("wake-ups: ", storms, " storms, ", states, " states");
  co_return 0;
}
