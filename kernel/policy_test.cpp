// SPDX-License-Identifier: BSL-1.0
#include "kernel/policy.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "kernel/policy_fixture.hpp"

namespace neap::policy {
namespace {

using host::PowerCall;

struct BarePolicyTest : PolicyTest {
  BarePolicyTest() : PolicyTest(bare_abilities()) {}
};

// --- Changes of settings -----------------------------------------------------------------------------------------------------------------
TEST_F(PolicyTest, AnItrIsRoundedByTheCardAndHoldsOnTheCoresWithAQueue) {
  const std::uint32_t before = generation();
  const Outcome done = set(Setting::itr, "7us");
  ASSERT_TRUE(done.has_value()) << done.error().why;
  EXPECT_EQ(done->value, "itr=8us");
  EXPECT_EQ(done->cores, "0-2");
  EXPECT_EQ(done->generation, before + 1);
  EXPECT_EQ(generation(), before + 1);
  for (unsigned core = 0; core < cores_with_queue; ++core) {
    EXPECT_EQ(card.itr[core], 8U);
    EXPECT_EQ(of(core).itr_us, 8U);
    EXPECT_EQ(of(core).generation, before + 1);
  }
  EXPECT_EQ(of(3).generation, 0U);
  const Outcome one = set(Setting::itr, "100", 1, 3);
  EXPECT_EQ(one->cores, "1");
  EXPECT_EQ(card.itr[0], 8U);
  EXPECT_EQ(card.itr[1], 100U);
  EXPECT_EQ(of(0).generation, before + 1) << "out of scope";
  EXPECT_EQ(of(1).generation, before + 2);
}

TEST_F(PolicyTest, RefusalsHaveTheAcceptedValues) {
  EXPECT_EQ(why(Setting::itr, "1025"), "itr: the card takes 0us to 1024us, in steps of 2us");
  EXPECT_EQ(why(Setting::itr, "8", 3), "itr: no queue");
  EXPECT_EQ(why(Setting::itr, "8", 4), "itr: core 4 does not run; accepted here: 0 to 3");
  EXPECT_EQ(why(Setting::idle, "c2"), "idle: \"c2\" is not accepted; accepted here: halt c1 c1e c3 c6 c7 poll monitor menu deepest");
  EXPECT_EQ(why(Setting::idle, "monitor"),
            "idle: monitor sleeps on a queue of the network card, and core 3 has none; accepted here: halt c1 "
            "c1e c3 c6 c7 poll monitor menu deepest");
  EXPECT_EQ(why(Setting::pstate, "40"),
            "pstate: \"40\" is not accepted; accepted here: a ratio of 12 to 38, 1200MHz to 3800MHz, 0xc00 to 0x2600, off");
  EXPECT_EQ(why(Setting::power_limit, "5W"), "power_limit: \"5W\" is not accepted; accepted here: 51W to 200W, off");
  EXPECT_EQ(why(Setting::poll_budget, "2000ms"), "poll_budget: \"2000ms\" is not accepted; accepted here: 0us to 1000000us");
  EXPECT_EQ(host::take_power_calls(), std::vector<PowerCall>{});
  machine->on(0, [] { use(nullptr); });
  EXPECT_EQ(why(Setting::itr, "8"), "itr: no network card is in use");
}

TEST_F(BarePolicyTest, AMissingAbilityOfTheCpuIsARefusal) {
  EXPECT_EQ(why(Setting::idle, "monitor"), "idle: monitor needs an MWAIT that sleeps; accepted here: halt poll deepest");
  EXPECT_EQ(why(Setting::idle, "c6"), "idle: c6 needs an MWAIT that sleeps; accepted here: halt poll deepest");
  EXPECT_EQ(why(Setting::pstate, "24"), "pstate: no P-states can be set on this CPU");
  EXPECT_EQ(why(Setting::power_limit, "60W"), "power_limit: no power limit can be set on this CPU");
  EXPECT_EQ(why(Setting::turbo, "on"), "turbo: turbo cannot be set on this CPU");
  EXPECT_EQ(why(Setting::epp, "128"), "epp: no energy preference can be set on this CPU");
  EXPECT_EQ(set(Setting::idle, "deepest")->value, "idle=halt");
}

TEST_F(PolicyTest, APackagesRegisterIsWrittenOnceAndAllItsCoresRecordTheChange) {
  const Outcome done = set(Setting::power_limit, "60.1W", 3);
  ASSERT_TRUE(done.has_value()) << done.error().why;
  EXPECT_EQ(done->value, "power_limit=60.125W") << "as the CPU rounds it";
  EXPECT_EQ(done->cores, "2-3");
  EXPECT_EQ(host::take_power_calls(), (std::vector<PowerCall>{{PowerCall::Kind::power_limit, 2, 60'125}}));
  EXPECT_EQ(of(2).power_limit_mw, 60'125U);
  EXPECT_EQ(of(3).power_limit_mw, 60'125U);
  EXPECT_EQ(of(1).power_limit_mw, 0U);
  EXPECT_EQ(set(Setting::turbo, "off")->cores, "0-3");
  EXPECT_EQ(host::take_power_calls(), (std::vector<PowerCall>{{PowerCall::Kind::turbo, 0, 0}, {PowerCall::Kind::turbo, 2, 0}}));
  EXPECT_EQ(of(3).turbo, 0);
}

TEST_F(PolicyTest, APStateGoesToEveryCore) {
  EXPECT_EQ(set(Setting::pstate, "2.4GHz")->value, "pstate=0x1800");
  const std::vector<PowerCall> calls = host::take_power_calls();
  ASSERT_EQ(calls.size(), cores);
  for (unsigned core = 0; core < cores; ++core) {
    EXPECT_EQ(calls[core], (PowerCall{PowerCall::Kind::pstate, core, 0x1800}));
    EXPECT_EQ(of(core).pstate, 0x1800U);
  }
}

// Cores that share a clock run at the highest request: the answer and the log report the ratio that was granted.
TEST_F(PolicyTest, TheGrantedRatioOfAPStateIsReported) {
  EXPECT_EQ(set(Setting::pstate, "0x1800")->granted, "");
  for (unsigned core = 0; core < cores; ++core) host::set_granted_ratio(core, 24);
  EXPECT_EQ(set(Setting::pstate, "0x1800")->granted, "24");
  host::set_granted_ratio(2, 29);
  EXPECT_EQ(set(Setting::pstate, "0x1800")->granted, "24-29");
  EXPECT_EQ(set(Setting::pstate, "0x1800", 2)->granted, "29");
  EXPECT_EQ(set(Setting::epp, "5")->granted, "");
  for (unsigned core = 0; core < cores; ++core) host::set_granted_ratio(core, 0);
}

TEST_F(PolicyTest, AnEnergyPreferenceHoldsForOneCoreAndIsSetBackAfterARefusal) {
  EXPECT_EQ(set(Setting::epp, "balance_power", 1)->cores, "1");
  EXPECT_EQ(of(1).epp, 192);
  EXPECT_EQ(of(0).epp, machine::firmwares_preference);
  static_cast<void>(host::take_power_calls());
  host::fail_power_calls(2);
  EXPECT_EQ(set(Setting::epp, "0").error().why, "epp: core 2 refused: this MSR faults; nothing has changed");
  host::fail_power_calls(host::no_core);
  using Kind = PowerCall::Kind;
  EXPECT_EQ(host::take_power_calls(), (std::vector<PowerCall>{{Kind::energy_preference, 0, 0},
                                                              {Kind::energy_preference, 1, 0},
                                                              {Kind::energy_preference, 0, machine::firmwares_preference},
                                                              {Kind::energy_preference, 1, 192}}));
  EXPECT_EQ(of(1).epp, 192);
  EXPECT_EQ(set(Setting::epp, "off")->value, "epp=off");
  EXPECT_EQ(of(1).epp, machine::firmwares_preference);
}

TEST_F(PolicyTest, ARefusalOfOneCpuSetsTheOthersBack) {
  ASSERT_TRUE(set(Setting::pstate, "20", 1).has_value());
  static_cast<void>(host::take_power_calls());
  host::fail_power_calls(2);
  const std::uint32_t before = generation();
  const Outcome refused = set(Setting::pstate, "24");
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().why, "pstate: core 2 refused: this MSR faults; nothing has changed");
  EXPECT_EQ(refused.error().code, ErrorCode::unsupported);
  EXPECT_EQ(of(0).pstate, 0U);
  EXPECT_EQ(of(1).pstate, 0x1400U);
  EXPECT_EQ(of(3).pstate, 0U);
  EXPECT_EQ(generation(), before + 2) << "there and back are changes: records were written under both";
  EXPECT_EQ(of(0).generation, before + 2);
  EXPECT_EQ(host::take_power_calls(), (std::vector<PowerCall>{{PowerCall::Kind::pstate, 0, 0x1800},
                                                              {PowerCall::Kind::pstate, 1, 0x1800},
                                                              {PowerCall::Kind::pstate, 0, 0},
                                                              {PowerCall::Kind::pstate, 1, 0x1400}}));
}

// The generation does not change, because no core has applied the change.
TEST_F(PolicyTest, ACpuThatRefusesOnTheFirstCoreChangesNothing) {
  host::fail_power_calls(0);
  const std::uint32_t before = generation();
  const Outcome refused = set(Setting::pstate, "24");
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().why, "pstate: core 0 refused: this MSR faults; nothing has changed");
  EXPECT_EQ(generation(), before);
  EXPECT_TRUE(host::take_power_calls().empty());
  host::fail_power_calls(host::no_core);
  const Outcome done = set(Setting::pstate, "24");
  ASSERT_TRUE(done.has_value());
  EXPECT_EQ(done->generation, before + 1);
}

// All cores request changes at once. Each change gets a number of its own, and the change with the last number remains in force.
TEST_F(PolicyTest, ChangesAreCarriedOutOneAfterTheOther) {
  constexpr unsigned each = 200;
  const std::uint32_t before = generation();
  std::atomic<unsigned> ended{0};
  std::array<std::vector<std::uint32_t>, cores> numbers;
  std::array<std::uint32_t, cores * each + 1> budget_of{};
  for (unsigned core = 0; core < cores; ++core) {
    machine->on(core, [&, core] {
      start([](auto& own, auto& all, std::uint32_t base, std::atomic<unsigned>& count, unsigned from) -> task<void> {
        for (unsigned i = 0; i < each; ++i) {
          const std::uint32_t budget = from * 1000 + i;
          const Outcome done = co_await policy::set(Setting::poll_budget, std::to_string(budget), all_cores);
          own.push_back(done->generation);
          all[done->generation - base] = budget;
        }
        ++count;
      }(numbers[core], budget_of, before, ended, core));
    });
  }
  ASSERT_TRUE(HostMachine::wait_until([&] { return ended == cores; }, std::chrono::seconds(100)));
  for (const auto& own : numbers) {
    ASSERT_EQ(own.size(), each);
    for (unsigned i = 1; i < each; ++i) ASSERT_LT(own[i - 1], own[i]);
  }
  EXPECT_EQ(generation(), before + cores * each);
  for (unsigned core = 0; core < cores; ++core) {
    EXPECT_EQ(of(core).generation, generation());
    EXPECT_EQ(of(core).poll_budget_us, budget_of[cores * each]);
  }
  EXPECT_TRUE(set(Setting::poll_budget, "0").has_value());
}

TEST_F(PolicyTest, BootSettingsAreAppliedOverTheDefaults) {
  Arguments arguments("itr=30us depth=128 pstate=24 poll_budget=5us mode=usual");
  const BootSettings boot_settings = BootSettings::from(arguments, card_rows);
  EXPECT_EQ(arguments.complaints(), "");
  std::expected<void, Refusal> done;
  machine->run(0, [&]() -> task<void> { done = co_await apply(boot_settings); });
  ASSERT_TRUE(done.has_value()) << done.error().why;
  for (unsigned core = 0; core < cores; ++core) {
    EXPECT_EQ(of(core).idle, IdleState::c6) << "the deepest";
    EXPECT_EQ(of(core).pstate, 0x1800U);
    EXPECT_EQ(of(core).poll_budget_us, 5U);
    EXPECT_EQ(of(core).turbo, 2) << "not asked for, not touched";
  }
  EXPECT_EQ(of(0).itr_us, 30U);
  EXPECT_EQ(card.ring, 128U);

  Arguments bad("idle=halt pstate=99");
  const BootSettings impossible = BootSettings::from(bad, {});
  machine->run(0, [&]() -> task<void> { done = co_await apply(impossible); });
  ASSERT_FALSE(done.has_value());
  EXPECT_EQ(done.error().why.substr(0, 12), "pstate: \"99\"");

  Arguments needs_a_core("aim=1");
  EXPECT_TRUE(BootSettings::from(needs_a_core, card_rows).values.empty());
  EXPECT_NE(needs_a_core.complaints(), "");
}

TEST_F(PolicyTest, ACardsSettingReportsItsCostAndEveryCoreRecordsIt) {
  const std::uint32_t before = generation();
  const Outcome done = set(depth, "1024", all_cores, 2);
  ASSERT_TRUE(done.has_value()) << done.error().why;
  EXPECT_EQ(done->value, "depth=1024");
  EXPECT_EQ(done->lost_frames, 7U);
  EXPECT_EQ(done->cores, "0-3");
  for (unsigned core = 0; core < cores; ++core) EXPECT_EQ(of(core).generation, before + 1);
  EXPECT_EQ(card.value_of(depth), 1024U);
  ASSERT_TRUE(set(aim, "5000", 2).has_value());
  EXPECT_EQ(card.aimed_at, 2U);
  EXPECT_EQ(of(2).generation, before + 2);
  EXPECT_EQ(of(1).generation, before + 1) << "out of scope";
  EXPECT_EQ(why(merge, "on"), "merge: not with this itr");
  EXPECT_EQ(why(depth, "63"), "depth: \"63\" is not accepted; accepted here: 64 to 4096");
  EXPECT_EQ(why(depth, "64", 1), "depth: holds for all cores of the card");
  EXPECT_EQ(why(aim, "5000"), "aim: needs the core that it is for");
  // A setting that is on by default yields to an `itr` that it does not permit; one that a user has chosen does not.
  card.merges = true;
  const std::uint32_t unmerged = generation() + 1;
  EXPECT_EQ(why(Setting::itr, "4", 3), "itr: no queue");
  EXPECT_TRUE(card.merges);
  const Outcome fast = set(Setting::itr, "4", 1);
  ASSERT_TRUE(fast.has_value()) << fast.error().why;
  EXPECT_FALSE(card.merges);
  EXPECT_EQ(fast->also, "merge=off");
  EXPECT_EQ(fast->lost_frames, 7U);
  EXPECT_EQ(fast->generation, of(1).generation);
  EXPECT_EQ(of(0).generation, unmerged) << "the card's change is one of all cores";
  card.merges = true;
  card.merge_is_default = false;
  EXPECT_EQ(why(Setting::itr, "4", 1), "itr: not while it merges");
  EXPECT_EQ(set(Setting::epp, "5")->lost_frames, std::nullopt) << "only a card's setting can cost frames";
  machine->on(0, [] { use(nullptr); });
  EXPECT_EQ(why(depth, "64"), "no network card is in use");
}

TEST_F(PolicyTest, ACardsSettingsJoinTheKernelsWhileItIsInUse) {
  machine->on(0, [&] {
    EXPECT_EQ(setting_by_name("depth"), depth);
    EXPECT_EQ(rows().size(), kernel_rows().size() + std::size(card_rows));
    use(nullptr);
    EXPECT_EQ(rows().size(), kernel_rows().size());
    EXPECT_EQ(setting_by_name("epp"), Setting::epp);
    EXPECT_EQ(setting_by_name("depth").error().why,
              "no such setting; accepted: idle itr poll_budget pstate epp power_limit turbo adaptive_poll monitor_state " +
                  std::string(segmentation_name) +
                  " tcp_congestion tcp_ecn tcp_pacing tcp_rto_min tcp_keep_alive tcp_zero_window tcp_receive tcp_send");
  });
}

// A preset of the card also sets segmentation, on cores with a network that can segment.
TEST_F(PolicyTest, SegmentationIsAcceptedWhereANetworkOffersIt) {
  const std::string refusal = segmentation_name + ": no network is up";
  EXPECT_EQ(why(Setting::segmentation, "chain"), refusal);
  for (unsigned core = 0; core < 2; ++core) machine->on(core, [] { static_cast<void>(offer_segmentation(nullptr)); });
  EXPECT_EQ(set(Setting::segmentation, "chain")->cores, "0-1");
  EXPECT_EQ(set(Setting::segmentation, "off", 1)->value, segmentation_name + "=off");
  EXPECT_EQ(of(0).segmentation, Segmentation::chain);
  EXPECT_EQ(why(Setting::segmentation, "copy", 2), refusal);
  EXPECT_EQ(set(mode, "other")->cores, "0-3");
  for (unsigned core = 0; core < cores; ++core) EXPECT_EQ(of(core).segmentation, core < 2 ? Segmentation::copy : Segmentation::off);
}

}  // namespace
}  // namespace neap::policy
