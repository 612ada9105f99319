// SPDX-License-Identifier: BSL-1.0
#include "kernel/policy.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <string>
#include <vector>

#include "kernel/policy_values.hpp"
#include "tests/host/host_machine.hpp"

namespace neap::policy {
namespace {

using host::HostMachine;
using host::PowerCall;

constexpr unsigned cores = 4;
constexpr unsigned cores_with_queue = 3;

PowerAbilities everything() {
  PowerAbilities has;
  has.idle_states = 0xff;
  has.deepest = IdleState::c6;
  has.mwait_sleeps = true;
  has.performance = true;
  has.energy_preference = true;
  has.ratio_min = 12;
  has.ratio_max = 29;
  has.ratio_turbo_max = 38;
  has.ratio_khz = 100'000;
  has.power_limit = true;
  has.power_limit_least_mw = 51'000;
  has.power_limit_most_mw = 200'000;
  has.turbo = true;
  return has;
}

PowerAbilities nothing() {
  PowerAbilities has;
  has.idle_states = 1 << static_cast<unsigned>(IdleState::halt) | 1 << static_cast<unsigned>(IdleState::poll);
  return has;
}

/// A card with queues for the first three cores, that knows on which core it was called.
class TestCard final : public Device {
 public:
  [[nodiscard]] Result<std::uint32_t> round_itr(unsigned core, std::uint32_t itr_us) const noexcept override {
    if (core >= cores_with_queue) return failure(ErrorCode::unsupported, "no queue", core);
    if (itr_us > 1024) return failure(ErrorCode::invalid, "the card takes 0us to 1024us, in steps of 2us");
    return (itr_us + 1) / 2 * 2;
  }
  [[nodiscard]] std::uint32_t itr_us(unsigned core) const noexcept override { return itr[core]; }
  void set_itr(unsigned core, std::uint32_t itr_us) noexcept override {
    wrong_core += core != this_core() ? 1 : 0;
    itr[core] = itr_us;
  }
  void set_interrupt(unsigned core, bool on) noexcept override {
    wrong_core += core != this_core() ? 1 : 0;
    interrupts[core] = on;
  }
  [[nodiscard]] const volatile void* next_receive_line(unsigned core) const noexcept override {
    return busy ? nullptr : lines[core].words.data();
  }

  [[nodiscard]] std::uint32_t value_of(Setting setting) const noexcept override { return setting == Setting::rx_ring ? ring.load() : 0; }
  [[nodiscard]] task<Result<Change>> change(Setting setting, std::uint32_t value, unsigned core) override {
    wrong_core += this_core() != 0 ? 1 : 0;
    if (setting == Setting::steer) steered_to = core;
    if (setting == Setting::rsc) co_return failure(ErrorCode::invalid, "not with this itr");
    if (setting == Setting::rx_ring) ring = value;
    co_return Change{.value = value, .lost_frames = 7};
  }

  struct alignas(64) Line {
    std::array<std::uint64_t, 8> words{};
  };
  std::array<std::atomic<std::uint32_t>, cores> itr{16, 16, 16, 16};
  std::array<std::atomic<bool>, cores> interrupts{true, true, true, true};
  std::array<Line, cores> lines;
  std::atomic<bool> busy{false};
  std::atomic<std::uint32_t> ring{512};
  std::atomic<unsigned> steered_to{all_cores};
  std::atomic<int> wrong_core{0};
};

using Outcome = std::expected<Applied, Refusal>;

struct PolicyTest : testing::Test {
  explicit PolicyTest(const PowerAbilities& has = everything()) {
    host::set_power_abilities(has);
    host::set_cores_per_package(2);
    host::fail_power_calls(host::no_core);
    static_cast<void>(host::take_power_calls());
    machine.emplace(cores);
    machine->on(0, [this] { use(&card); });
  }
  ~PolicyTest() override {
    machine->on(0, [] { use(nullptr); });
    for (unsigned core = 0; core < cores; ++core) machine->run(core, [] { return to_halt(); });
    machine.reset();
    host::set_power_abilities(nothing());
    host::set_cores_per_package(0);
    EXPECT_EQ(card.wrong_core, 0);
  }
  static task<void> to_halt() { static_cast<void>(co_await policy::set(Setting::idle, "halt", this_core())); }

  Outcome set(Setting setting, const std::string& value, unsigned core = all_cores, unsigned from = 0) {
    Outcome outcome;
    machine->run(from, [&]() -> task<void> { outcome = co_await policy::set(setting, value, core); });
    return outcome;
  }
  std::string why(Setting setting, const std::string& value, unsigned core = all_cores) {
    const std::uint32_t before = generation();
    const Outcome outcome = set(setting, value, core);
    EXPECT_EQ(generation(), before) << "a refusal is no change";
    return outcome ? "accepted: " + outcome->value : outcome.error().why;
  }

  TestCard card;
  std::optional<HostMachine> machine;
};

struct BarePolicyTest : PolicyTest {
  BarePolicyTest() : PolicyTest(nothing()) {}
};

// --- Values ------------------------------------------------------------------------------------------------------------------------------

std::string understood(Setting setting, std::string_view text) {
  const auto value = parse(setting, text, everything());
  return value ? text_of(setting, *value) : "refused";
}

TEST(PolicyValues, EverySpellingMeansOneThing) {
  EXPECT_EQ(understood(Setting::idle, "c6"), "idle=c6");
  EXPECT_EQ(understood(Setting::idle, "deepest"), "idle=c6");
  EXPECT_EQ(understood(Setting::itr, "8us"), "itr=8us");
  EXPECT_EQ(understood(Setting::itr, "8"), "itr=8us");
  EXPECT_EQ(understood(Setting::itr, "1ms"), "itr=1000us");
  for (const char* same : {"24", "2400MHz", "2.4GHz", "2410MHz", "0x1800", "2.350GHz"})
    EXPECT_EQ(understood(Setting::pstate, same), "pstate=0x1800") << same;
  EXPECT_EQ(understood(Setting::pstate, "38"), "pstate=0x2600");
  EXPECT_EQ(understood(Setting::pstate, "off"), "pstate=off");
  EXPECT_EQ(understood(Setting::power_limit, "60W"), "power_limit=60W");
  EXPECT_EQ(understood(Setting::power_limit, "60.125"), "power_limit=60.125W");
  EXPECT_EQ(understood(Setting::power_limit, "off"), "power_limit=off");
  EXPECT_EQ(understood(Setting::turbo, "on"), "turbo=on");
  for (const char* same : {"128", "balance_performance"}) EXPECT_EQ(understood(Setting::epp, same), "epp=128") << same;
  EXPECT_EQ(understood(Setting::epp, "performance"), "epp=0");
  EXPECT_EQ(understood(Setting::epp, "balance_power"), "epp=192");
  EXPECT_EQ(understood(Setting::epp, "power"), "epp=255");
  EXPECT_EQ(understood(Setting::epp, "off"), "epp=off");
  EXPECT_EQ(understood(Setting::poll_budget, "50us"), "poll_budget=50us");
  EXPECT_EQ(understood(Setting::poll_budget, "0"), "poll_budget=0us");
  EXPECT_EQ(understood(Setting::rx_ring, "1024"), "rx_ring=1024");
  EXPECT_EQ(understood(Setting::rsc, "on"), "rsc=on");
  EXPECT_EQ(understood(Setting::preset, "study"), "preset=study");
  for (const char* vlan : {"1", "4094", "off"}) EXPECT_EQ(understood(Setting::vlan, vlan), std::string("vlan=") + vlan);
  for (const char* form : segmentation_names) EXPECT_EQ(understood(Setting::tso, form), std::string("tso=") + form);
  for (const char* pauses : {"off", "receive", "transmit", "both"})
    EXPECT_EQ(understood(Setting::flow_control, pauses), std::string("flow_control=") + pauses);
  for (const char* flow : {"udp:5000", "tcp:65535", "off"}) EXPECT_EQ(understood(Setting::steer, flow), std::string("steer=") + flow);
}

TEST(PolicyValues, WhatIsNotAValueIsRefused) {
  for (const char* bad : {"", " ", "8 us", "-8", "8s", "us", "8usus", "8.5us", "99999999999999999999", "0x8", "1001ms"})
    EXPECT_EQ(understood(Setting::poll_budget, bad), "refused") << bad;
  for (const char* bad : {"", "11", "39", "0x0b00", "0x1801", "0x18000", "0x", "24GHz", "2.4", "2.4.1GHz", "2.GHz", ".4GHz", "GHz", "0"})
    EXPECT_EQ(understood(Setting::pstate, bad), "refused") << bad;
  for (const char* bad : {"", "50.999W", "201", "0", "-60", "60w", "60.1255W", "W"})
    EXPECT_EQ(understood(Setting::power_limit, bad), "refused") << bad;
  for (const char* bad : {"", "256", "-1", "0x80", "1.5", "default", "Power"}) EXPECT_EQ(understood(Setting::epp, bad), "refused") << bad;
  for (const char* bad : {"", "C6", "c2", "halt ", "poll,halt"}) EXPECT_EQ(understood(Setting::idle, bad), "refused") << bad;
  for (const char* bad : {"", "yes", "1", "ON"}) {
    for (const Setting setting : {Setting::turbo, Setting::rsc, Setting::head_write_back, Setting::promiscuous, Setting::dca})
      EXPECT_EQ(understood(setting, bad), "refused") << bad;
  }
  for (const char* bad : {"", "0", "4095", "on", "1,2"}) EXPECT_EQ(understood(Setting::vlan, bad), "refused") << bad;
  for (const char* bad : {"", "on", "single", "1"}) EXPECT_EQ(understood(Setting::tso, bad), "refused") << bad;
  for (const char* bad : {"", "on", "both ", "2"}) EXPECT_EQ(understood(Setting::flow_control, bad), "refused") << bad;
  for (const char* bad : {"", "-1", "64us", "0x40", "1000001"}) EXPECT_EQ(understood(Setting::rx_ring, bad), "refused") << bad;
  for (const char* bad : {"", "5000", "udp", "udp:", "udp:0", "udp:65536", "sctp:1", "udp:1,tcp:2"})
    EXPECT_EQ(understood(Setting::steer, bad), "refused") << bad;
}

TEST(PolicyValues, ARefusalShowsWhatWasTypedFitForALine) {
  const std::string long_text = "\x01\n" + std::string(5000, 'x');
  const auto refused = parse(Setting::turbo, long_text, everything());
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().why, "turbo: \"??" + std::string(30, 'x') + "...\" is not accepted; accepted here: on off");
}

// --- Setting -----------------------------------------------------------------------------------------------------------------------------

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

TEST_F(PolicyTest, RefusalsSayWhatIsAccepted) {
  EXPECT_EQ(why(Setting::itr, "1025"), "itr: the card takes 0us to 1024us, in steps of 2us");
  EXPECT_EQ(why(Setting::itr, "8", 3), "itr: no queue");
  EXPECT_EQ(why(Setting::itr, "8", 4), "itr: core 4 does not run; accepted here: 0 to 3");
  EXPECT_EQ(why(Setting::idle, "c2"), "idle: \"c2\" is not accepted; accepted here: halt c1 c1e c3 c6 c7 poll monitor deepest");
  EXPECT_EQ(why(Setting::idle, "monitor"),
            "idle: monitor sleeps on a queue of the network card, and core 3 has none; accepted here: halt c1 "
            "c1e c3 c6 c7 poll monitor deepest");
  EXPECT_EQ(why(Setting::pstate, "40"),
            "pstate: \"40\" is not accepted; accepted here: a ratio of 12 to 38, 1200MHz to 3800MHz, 0xc00 to 0x2600, off");
  EXPECT_EQ(why(Setting::power_limit, "5W"), "power_limit: \"5W\" is not accepted; accepted here: 51W to 200W, off");
  EXPECT_EQ(why(Setting::poll_budget, "2000ms"), "poll_budget: \"2000ms\" is not accepted; accepted here: 0us to 1000000us");
  EXPECT_EQ(host::take_power_calls(), std::vector<PowerCall>{});
  machine->on(0, [] { use(nullptr); });
  EXPECT_EQ(why(Setting::itr, "8"), "itr: no network card is in use");
}

TEST_F(BarePolicyTest, WhatTheCpuLacksIsRefusedHonestly) {
  EXPECT_EQ(why(Setting::idle, "monitor"), "idle: monitor needs an MWAIT that sleeps; accepted here: halt poll deepest");
  PowerAbilities broken{.idle_states = 0b0100'0111, .mwait_sleeps = true, .timer_stops = true, .writes_missed = true};
  EXPECT_EQ(policy::parse(Setting::idle, "c6", broken).error().why,
            "idle: c6 would stop this CPU's APIC timer (no ARAT in CPUID leaf 6); accepted here: halt c1 c1e poll deepest");
  EXPECT_EQ(policy::parse(Setting::idle, "monitor", broken).error().why,
            "idle: monitor needs a MONITOR that sees every write, and this CPU's may miss one (erratum); accepted here: halt c1 c1e poll "
            "deepest");
  broken.timer_stops = false;
  EXPECT_EQ(policy::parse(Setting::idle, "c6", broken).error().why, "idle: this CPU has no c6; accepted here: halt c1 c1e poll deepest");
  EXPECT_EQ(why(Setting::idle, "c6"), "idle: c6 needs an MWAIT that sleeps; accepted here: halt poll deepest");
  EXPECT_EQ(why(Setting::pstate, "24"), "pstate: no P-states can be set on this CPU");
  EXPECT_EQ(why(Setting::power_limit, "60W"), "power_limit: no power limit can be set on this CPU");
  EXPECT_EQ(why(Setting::turbo, "on"), "turbo: turbo cannot be set on this CPU");
  EXPECT_EQ(why(Setting::epp, "128"), "epp: no energy preference can be set on this CPU");
  EXPECT_EQ(set(Setting::idle, "deepest")->value, "idle=halt");
}

TEST_F(PolicyTest, APackageIsToldOnceAndAllItsCoresTakeNote) {
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
    EXPECT_EQ(calls[core], (PowerCall{PowerCall::Kind::performance, core, 0x1800}));
    EXPECT_EQ(of(core).performance, 0x1800U);
  }
}

// Cores that share a clock run at the fastest one's request: the answer and the log say what came of a request.
TEST_F(PolicyTest, WhatIsGrantedOfAPStateIsTold) {
  EXPECT_EQ(set(Setting::pstate, "0x1800")->granted, "");
  for (unsigned core = 0; core < cores; ++core) host::set_granted_ratio(core, 24);
  EXPECT_EQ(set(Setting::pstate, "0x1800")->granted, "24");
  host::set_granted_ratio(2, 29);
  EXPECT_EQ(set(Setting::pstate, "0x1800")->granted, "24-29");
  EXPECT_EQ(set(Setting::pstate, "0x1800", 2)->granted, "29");
  EXPECT_EQ(set(Setting::epp, "5")->granted, "");
  for (unsigned core = 0; core < cores; ++core) host::set_granted_ratio(core, 0);
}

TEST_F(PolicyTest, AnEnergyPreferenceIsACoresOwnAndGoesBack) {
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

TEST_F(PolicyTest, ACpuThatRefusesLeavesNothingHalfSet) {
  ASSERT_TRUE(set(Setting::pstate, "20", 1).has_value());
  static_cast<void>(host::take_power_calls());
  host::fail_power_calls(2);
  const std::uint32_t before = generation();
  const Outcome refused = set(Setting::pstate, "24");
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().why, "pstate: core 2 refused: this MSR faults; nothing has changed");
  EXPECT_EQ(refused.error().code, ErrorCode::unsupported);
  EXPECT_EQ(of(0).performance, 0U);
  EXPECT_EQ(of(1).performance, 0x1400U);
  EXPECT_EQ(of(3).performance, 0U);
  EXPECT_EQ(generation(), before + 2) << "there and back are changes: records were written under both";
  EXPECT_EQ(of(0).generation, before + 2);
  EXPECT_EQ(host::take_power_calls(), (std::vector<PowerCall>{{PowerCall::Kind::performance, 0, 0x1800},
                                                              {PowerCall::Kind::performance, 1, 0x1800},
                                                              {PowerCall::Kind::performance, 0, 0},
                                                              {PowerCall::Kind::performance, 1, 0x1400}}));
}

// Not even the generation: nobody can have stamped a record with it.
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

// Changes asked for on all cores at once: each gets its own number, and the last number is what holds.
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

TEST_F(PolicyTest, WishesAreAppliedOverTheDefaults) {
  Arguments arguments("itr=30us pstate=24 poll_budget=5us");
  const Wishes wishes = Wishes::from(arguments);
  EXPECT_EQ(arguments.complaints(), "");
  std::expected<void, Refusal> done;
  machine->run(0, [&]() -> task<void> { done = co_await apply(wishes); });
  ASSERT_TRUE(done.has_value()) << done.error().why;
  for (unsigned core = 0; core < cores; ++core) {
    EXPECT_EQ(of(core).idle, IdleState::c6) << "the deepest";
    EXPECT_EQ(of(core).performance, 0x1800U);
    EXPECT_EQ(of(core).poll_budget_us, 5U);
    EXPECT_EQ(of(core).turbo, 2) << "not asked for, not touched";
  }
  EXPECT_EQ(of(0).itr_us, 30U);

  Arguments bad("idle=halt pstate=99");
  const Wishes impossible = Wishes::from(bad);
  machine->run(0, [&]() -> task<void> { done = co_await apply(impossible); });
  ASSERT_FALSE(done.has_value());
  EXPECT_EQ(done.error().why.substr(0, 12), "pstate: \"99\"");
}

TEST_F(PolicyTest, ACardsSettingSaysWhatItCostAndEveryCoreNotesIt) {
  const std::uint32_t before = generation();
  const Outcome done = set(Setting::rx_ring, "1024", all_cores, 2);
  ASSERT_TRUE(done.has_value()) << done.error().why;
  EXPECT_EQ(done->value, "rx_ring=1024");
  EXPECT_EQ(done->lost_frames, 7U);
  EXPECT_EQ(done->cores, "0-3");
  for (unsigned core = 0; core < cores; ++core) EXPECT_EQ(of(core).generation, before + 1);
  EXPECT_EQ(card.value_of(Setting::rx_ring), 1024U);
  ASSERT_TRUE(set(Setting::steer, "udp:5000", 2).has_value());
  EXPECT_EQ(card.steered_to, 2U);
  EXPECT_EQ(of(2).generation, before + 2);
  EXPECT_EQ(of(1).generation, before + 1) << "out of scope";
  EXPECT_EQ(why(Setting::rsc, "on"), "rsc: not with this itr");
  EXPECT_EQ(why(Setting::rx_ring, "64", 1), "rx_ring: holds for all cores of the card");
  EXPECT_EQ(why(Setting::steer, "udp:5000"), "steer: needs the core that gets the frames");
  machine->on(0, [] { use(nullptr); });
  EXPECT_EQ(why(Setting::rx_ring, "64"), "rx_ring: no network card is in use");
}

// --- What an idle core does --------------------------------------------------------------------------------------------------------------

// Where a network is up that can, and nowhere else; a preset sets it too.
TEST_F(PolicyTest, SegmentationIsTheNetworksToOffer) {
  EXPECT_EQ(why(Setting::tso, "chain"), "tso: no network is up");
  for (unsigned core = 0; core < 2; ++core) machine->on(core, [] { static_cast<void>(offer_segmentation(nullptr)); });
  EXPECT_EQ(set(Setting::tso, "chain")->cores, "0-1");
  EXPECT_EQ(set(Setting::tso, "off", 1)->value, "tso=off");
  EXPECT_EQ(of(0).segmentation, Segmentation::chain);
  EXPECT_EQ(why(Setting::tso, "copy", 2), "tso: no network is up");
  EXPECT_EQ(set(Setting::preset, "study")->cores, "0-3");
  for (unsigned core = 0; core < cores; ++core) EXPECT_EQ(of(core).segmentation, core < 2 ? Segmentation::copy : Segmentation::off);
}

TEST_F(PolicyTest, ACoreSleepsInTheStateThatIsAskedFor) {
  for (const char* state : {"c1", "c6", "halt", "c3"}) {
    ASSERT_TRUE(set(Setting::idle, state).has_value());
    for (unsigned core = 0; core < cores; ++core) {
      EXPECT_TRUE(HostMachine::wait_until([&] {
        const auto asleep = host::asleep_in(core);
        return asleep && idle_state_names[static_cast<unsigned>(*asleep)] == std::string(state);
      })) << "core "
          << core << ", " << state;
    }
  }
}

TEST_F(PolicyTest, PollNeverSleepsTakesNoInterruptAndFindsRemoteWork) {
  ASSERT_TRUE(set(Setting::idle, "poll", 1).has_value());
  EXPECT_FALSE(card.interrupts[1]);
  EXPECT_TRUE(card.interrupts[0]);
  std::uint64_t sleeps = 0;
  machine->on(1, [&] { sleeps = event_counters(1).sleeps; });
  std::atomic<unsigned> hops{0};
  std::function<void()> bounce = [&] {
    if (hops.fetch_add(1) < 1000) {
      EXPECT_TRUE(spawn_on(1 - this_core(), [&] { bounce(); }).has_value());
    }
  };
  machine->on(0, bounce);
  ASSERT_TRUE(HostMachine::wait_until([&] { return hops > 1000; }));
  std::atomic<bool> fired{false};
  Timer timer;
  machine->on(1, [&] { timer.arm(std::chrono::milliseconds(5), [&] { fired = true; }); });
  ASSERT_TRUE(HostMachine::wait_until([&] { return fired.load(); }));
  machine->on(1, [&] { EXPECT_EQ(event_counters(1).sleeps, sleeps); });
  EXPECT_EQ(host::asleep_in(1), std::nullopt);
  ASSERT_TRUE(set(Setting::idle, "halt", 1).has_value());
  EXPECT_TRUE(card.interrupts[1]);
  EXPECT_TRUE(HostMachine::wait_until([&] { return host::asleep_in(1) == IdleState::halt; }));
}

// The card's write is what ends the sleep; whatever the moment it falls on, the idle hook finds the frame.
TEST_F(PolicyTest, MonitorSleepsOnTheCardsLineAndMissesNoWrite) {
  constexpr std::uint64_t frames = 300;
  std::atomic<std::uint64_t> found{0};
  std::optional<IdleHook> hook;
  const auto line = [&] { return std::atomic_ref(card.lines[1].words[1]); };
  machine->on(1, [&] {
    hook.emplace([&] {
      if (line().load() == found.load()) return false;
      found.fetch_add(1);
      return true;
    });
  });
  ASSERT_TRUE(set(Setting::idle, "monitor", 1).has_value());
  EXPECT_FALSE(card.interrupts[1]);
  EXPECT_TRUE(HostMachine::wait_until([&] { return host::asleep_in(1) == IdleState::monitor; }));
  for (std::uint64_t frame = 1; frame <= frames; ++frame) {
    line().store(frame);
    ASSERT_TRUE(HostMachine::wait_until([&] { return found == frame; })) << frame;
  }
  card.busy = true;
  machine->on(1, [] {});
  EXPECT_EQ(host::asleep_in(1), std::nullopt) << "a card that must not be slept on is polled";
  card.busy = false;
  EXPECT_TRUE(HostMachine::wait_until([&] { return host::asleep_in(1) == IdleState::monitor; }));
  ASSERT_TRUE(set(Setting::idle, "halt", 1).has_value());
  EXPECT_TRUE(card.interrupts[1]);
  machine->on(1, [&] { hook.reset(); });
}

TEST_F(PolicyTest, APollBudgetIsSpentBeforeSleep) {
  std::atomic<unsigned> looks{0};
  std::optional<IdleHook> hook;
  machine->on(2, [&] {
    hook.emplace([&] {
      ++looks;
      return false;
    });
  });
  ASSERT_TRUE(set(Setting::poll_budget, "20ms", 2).has_value());
  ASSERT_TRUE(HostMachine::wait_until([&] { return host::asleep_in(2).has_value(); }));
  machine->on(2, [&] { looks = 0; });
  ASSERT_TRUE(HostMachine::wait_until([&] { return host::asleep_in(2).has_value(); })) << "it ends";
  EXPECT_GT(looks, 2U) << "without a budget the core looks once and sleeps";
  machine->on(2, [&] { hook.reset(); });
}

}  // namespace
}  // namespace neap::policy
