// SPDX-License-Identifier: BSL-1.0
#include "kernel/policy_rows.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "kernel/policy.hpp"
#include "kernel/policy_testing.hpp"

namespace neap::policy {
namespace {

std::string understood(const Row& row, std::string_view text) {
  const auto value = parse(row, text, full_abilities());
  return value ? print(row, *value) : "refused";
}
std::string understood(Setting setting, std::string_view text) { return understood(*find_row(setting), text); }
std::string why(Setting setting, std::string_view text, const PowerAbilities& abilities) {
  return parse(*find_row(setting), text, abilities).error().why;
}

constexpr std::string_view directions[] = {"off", "in", "out", "both"};
constexpr Row number{.name = "n", .value_min = 1, .value_max = 4094, .unit = "frames", .off = true};
constexpr Row plain_number{.name = "p", .value_max = 1'000'000};
constexpr Row choice{.name = "c", .kind = Kind::choice, .choices = directions};
constexpr Row on_off{.name = "s", .kind = Kind::on_off};

TEST(PolicyRows, EverySpellingMeansOneThing) {
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
  const std::string segmentation(find_row(Setting::segmentation)->name);
  for (const char* form : segmentation_names) EXPECT_EQ(understood(Setting::segmentation, form), segmentation + '=' + form);
  for (const char* same : {"1", "4094", "off"}) EXPECT_EQ(understood(number, same), std::string("n=") + same);
  for (const std::string_view direction : directions) EXPECT_EQ(understood(choice, direction), "c=" + std::string(direction));
  for (const char* same : {"on", "off"}) EXPECT_EQ(understood(on_off, same), std::string("s=") + same);
}

TEST(PolicyRows, OtherTextsAreRefused) {
  for (const char* bad : {"", " ", "8 us", "-8", "8s", "us", "8usus", "8.5us", "99999999999999999999", "0x8", "1001ms"})
    EXPECT_EQ(understood(Setting::poll_budget, bad), "refused") << bad;
  for (const char* bad : {"", "11", "39", "0x0b00", "0x1801", "0x18000", "0x", "24GHz", "2.4", "2.4.1GHz", "2.GHz", ".4GHz", "GHz", "0"})
    EXPECT_EQ(understood(Setting::pstate, bad), "refused") << bad;
  for (const char* bad : {"", "50.999W", "201", "0", "-60", "60w", "60.1255W", "W"})
    EXPECT_EQ(understood(Setting::power_limit, bad), "refused") << bad;
  for (const char* bad : {"", "256", "-1", "0x80", "1.5", "default", "Power"}) EXPECT_EQ(understood(Setting::epp, bad), "refused") << bad;
  for (const char* bad : {"", "C6", "c2", "halt ", "poll,halt"}) EXPECT_EQ(understood(Setting::idle, bad), "refused") << bad;
  for (const char* bad : {"", "yes", "1", "ON"}) {
    EXPECT_EQ(understood(Setting::turbo, bad), "refused") << bad;
    EXPECT_EQ(understood(on_off, bad), "refused") << bad;
  }
  for (const char* bad : {"", "on", "single", "1"}) EXPECT_EQ(understood(Setting::segmentation, bad), "refused") << bad;
  for (const char* bad : {"", "on", "both ", "2"}) EXPECT_EQ(understood(choice, bad), "refused") << bad;
  for (const char* bad : {"", "0", "4095", "on", "1,2"}) EXPECT_EQ(understood(number, bad), "refused") << bad;
  for (const char* bad : {"", "off", "-1", "64us", "0x40", "1000001"}) EXPECT_EQ(understood(plain_number, bad), "refused") << bad;
}

TEST(PolicyRows, ARefusalShowsTheTextFitForALine) {
  const std::string long_text = "\x01\n" + std::string(5000, 'x');
  EXPECT_EQ(why(Setting::turbo, long_text, full_abilities()),
            "turbo: \"??" + std::string(30, 'x') + "...\" is not accepted; accepted here: on off");
}

TEST(PolicyRows, ARefusalNamesTheMissingAbilityOfTheCpu) {
  PowerAbilities broken{.idle_states = 0b0100'0111, .mwait_sleeps = true, .timer_stops = true, .writes_missed = true};
  EXPECT_EQ(why(Setting::idle, "c6", broken),
            "idle: c6 would stop this CPU's APIC timer (no ARAT in CPUID leaf 6); accepted here: halt c1 c1e poll deepest");
  EXPECT_EQ(why(Setting::idle, "monitor", broken),
            "idle: monitor needs a MONITOR that sees every write, and this CPU's may miss one (erratum); accepted here: halt c1 c1e poll "
            "deepest");
  broken.timer_stops = false;
  EXPECT_EQ(why(Setting::idle, "c6", broken), "idle: this CPU has no c6; accepted here: halt c1 c1e poll deepest");
}

TEST(PolicyRows, TextsAreMadeFromTheRow) {
  EXPECT_EQ(accepted_values(number), "1 to 4094 frames, off");
  EXPECT_EQ(accepted_values(plain_number), "0 to 1000000");
  EXPECT_EQ(accepted_values(choice), "off in out both");
  EXPECT_EQ(accepted_values(*find_row(Setting::poll_budget)), "0us to 1000000us");
  EXPECT_EQ(default_value(number), "off");
  EXPECT_EQ(default_value(*find_row(Setting::poll_budget)), "0us");
  EXPECT_EQ(default_value(*find_row(Setting::idle)), "deepest");
  EXPECT_EQ(usage(*find_row(Setting::itr)), "itr,TIME[,CORE]");
  EXPECT_EQ(usage({.name = "n", .scope = Scope::card}), "n,N");
  EXPECT_EQ(usage({.name = "n", .scope = Scope::named_core}), "n,N,CORE");
  EXPECT_EQ(help({.name = "n", .value_max = 7, .help = "Size."}), "Size. Values: 0 to 7.");
  EXPECT_EQ(report(number, 0), "0") << "reports are for programs";
  EXPECT_EQ(report(*find_row(Setting::pstate), 0), "0x0");
  EXPECT_EQ(report(*find_row(Setting::turbo), 2), "unknown");
  EXPECT_EQ(report(*find_row(Setting::power_limit), 60'125), "60125");
}

TEST(PolicyRows, ALogsHeaderDescribesThem) {
  EXPECT_EQ(log_description(*find_row(Setting::idle)), "idle:idle_state:choice");
  EXPECT_EQ(log_description(*find_row(Setting::itr)), "itr:itr_us::us");
  EXPECT_EQ(log_description(*find_row(Setting::pstate)), "pstate:performance:raw");
  EXPECT_EQ(log_description(*find_row(Setting::power_limit)), "power_limit:power_limit_mw::mW:0=off");
  EXPECT_EQ(log_description(*find_row(Setting::turbo)), "turbo:turbo:switch");
  EXPECT_EQ(log_description(*find_row(Setting::epp)), "epp::::256=off");
  EXPECT_EQ(log_description(plain_number), "p");
  EXPECT_EQ(log_description(number), "n::::0=off");
  EXPECT_EQ(log_description(choice), "c::choice::off|in|out|both");
  EXPECT_EQ(log_description(on_off), "s::switch");
}

TEST(PolicyRows, NamesAndNumbersBelongToOneSettingEach) {
  std::set<std::string_view> names;
  std::set<Setting> numbers;
  for (const Row& row : kernel_rows()) {
    EXPECT_TRUE(numbers.insert(row.setting).second) << row.name;
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    for (const OtherName& other : row.other_names) EXPECT_TRUE(names.insert(other.name).second) << other.name;
    EXPECT_EQ(find_row(row.name), &row);
  }
  EXPECT_EQ(find_row("none such"), nullptr);
  EXPECT_EQ(find_row(Setting{255}), nullptr) << "the number that marks a record without a change";
}

}  // namespace
}  // namespace neap::policy
