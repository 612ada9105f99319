// SPDX-License-Identifier: BSL-1.0
// Core 0 sleeps in each idle state, then computes at several frequencies and below a power limit. Around each part it reads its counters
// and asks the model for a snapshot (CPUID). It prints what the counters counted; the test compares that with the snapshots.
#include <array>
#include <span>
#include <string>

#include "kernel/policy.hpp"
#include "kernel/x86/cpu.hpp"
#include "kernel/x86/msr.hpp"
#include "tests/target/check.hpp"

namespace {

using namespace neap;
using policy::Setting;
using test::check;
using x86::read_msr_known;

constexpr std::chrono::milliseconds nap{3};
constexpr unsigned naps = 10;
constexpr std::uint64_t loop_rounds = 4'000'000;

constexpr std::uint32_t msr_event1 = 0xc2, msr_mperf = 0xe7, msr_aperf = 0xe8, msr_perf_status = 0x198, msr_fixed_counter0 = 0x309,
                        msr_package_energy = 0x611, msr_dram_energy = 0x619, msr_cores_energy = 0x639, msr_core_c3 = 0x3fc,
                        msr_core_c6 = 0x3fd, msr_core_c7 = 0x3fe;
struct Named {
  const char* name;
  std::uint32_t msr;
};
// Instructions last, so that the snapshot follows at once.
constexpr std::array readings{Named{"aperf", msr_aperf},
                              Named{"mperf", msr_mperf},
                              Named{"package", msr_package_energy},
                              Named{"dram", msr_dram_energy},
                              Named{"cores", msr_cores_energy},
                              Named{"c3", msr_core_c3},
                              Named{"c6", msr_core_c6},
                              Named{"c7", msr_core_c7},
                              Named{"cycles", msr_fixed_counter0 + 1},
                              Named{"reference_cycles", msr_fixed_counter0 + 2},
                              Named{"chosen_instructions", msr_event1},
                              Named{"instructions", msr_fixed_counter0}};
struct Sample {
  std::uint64_t tsc = 0;
  std::array<std::uint64_t, readings.size()> values{};
};

/// Everything is read, and the model writes the snapshot of this number right after.
[[gnu::noinline]] Sample sample(std::uint32_t mark) {
  Sample now;
  now.tsc = x86::read_tsc_ordered();
  for (std::size_t i = 0; i < readings.size(); ++i) now.values[i] = read_msr_known(readings[i].msr);
  (void)x86::cpuid(x86::model_machine_leaf, mark);
  return now;
}

void report(const std::string& part, std::uint32_t mark, const Sample& before, const Sample& after) {
  std::string text = "part " + part + " marks " + std::to_string(mark) + " " + std::to_string(mark + 1);
  text += " tsc " + std::to_string(after.tsc - before.tsc);
  for (std::size_t i = 0; i < readings.size(); ++i) {
    text += std::string(" ") + readings[i].name + " " + std::to_string(after.values[i] - before.values[i]);
  }
  text += " ratio " + std::to_string(read_msr_known(msr_perf_status) >> 8 & 0xff);
  print(text);
}

void compute() {
  for (std::uint64_t i = 0; i < loop_rounds; ++i) asm volatile("");
}

task<void> set_all(Setting setting, std::string value) {
  const auto done = co_await policy::set(setting, value, policy::all_cores);
  check(done.has_value(), value);
}

}  // namespace

neap::task<int> neap::application(Arguments& arguments) {
  arguments.finish();
  const PowerAbilities& has = machine::power_abilities();
  check(has.mwait_sleeps && has.pstates && has.power_limit, "the model has all of these");
  const auto event = machine::find_event("instructions");
  check(event.has_value() && has.free_event_counters >= 1, "the model counts instructions by name");
  check(!machine::find_event("llc_misses").has_value(), "the model has no misses, and CPUID says so");
  machine::choose_events(std::span(&*event, 1));
  check(machine::count_chosen_events().has_value(), "the model's counters can be set");
  std::uint32_t mark = 1;
  for (const std::string state : {"halt", "c1", "c1e", "c3", "c6", "c7"}) {
    if (state != "halt" && !(co_await policy::set(Setting::idle, state, policy::all_cores)).has_value()) continue;
    co_await set_all(Setting::idle, state);
    co_await sleep_for(nap);
    const Sample before = sample(mark);
    for (unsigned i = 0; i < naps; ++i) co_await sleep_for(nap);
    const Sample after = sample(mark + 1);
    report(state, mark, before, after);
    mark += 2;
  }
  const unsigned turbo = has.ratio_turbo_max;
  for (const unsigned ratio : {unsigned{has.ratio_min}, unsigned{has.ratio_max}, turbo}) {
    co_await set_all(Setting::pstate, std::to_string(ratio));
    const Sample before = sample(mark);
    compute();
    const Sample after = sample(mark + 1);
    report("ratio-" + std::to_string(ratio), mark, before, after);
    mark += 2;
  }
  co_return 0;
}
