// SPDX-License-Identifier: BSL-1.0
// The list of facts that decides whether two runs may be compared.
#include "observe/machine_list.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <set>
#include <string>

#include "kernel/machine.hpp"
#include "observe/described_machine.hpp"
#include "observe/testing.hpp"

namespace neap::observe::testing {
namespace {

/// True if `json` has `member`, followed by the next member or the end.
bool has(const std::string& json, const std::string& member) {
  for (std::size_t at = json.find(member); at != json.npos; at = json.find(member, at + 1)) {
    const char next = at + member.size() < json.size() ? json[at + member.size()] : '?';
    if ((next == ',' || next == '}') && (json[at - 1] == ',' || json[at - 1] == '{')) return true;
  }
  return false;
}

struct MachineList : DescribedMachine {
  World world;
  std::string ask(std::string_view line) { return world.ask(line); }
  /// Sets one setting, then returns the list.
  std::string after(std::string_view change) {
    const std::string answer = ask(change);
    EXPECT_TRUE(answer.starts_with("ok")) << answer;
    return ask("machine");
  }
};

TEST_F(MachineList, NamesCpuLimitsAndClock) {
  PowerAbilities abilities = policy::full_abilities();
  std::ranges::copy(std::string_view("Test \"CPU\""), std::begin(abilities.cpu));
  host::set_power_abilities(abilities);
  MachineFacts facts = e5_2690_facts();
  facts.turbo_off = true;
  facts.power_limit_2_mw = 162'000;
  facts.mwait_sub_states = 0x21120;
  facts.tsc_invariant = true;
  facts.installed_bytes = 512 << 20;
  host::set_machine_facts(facts);
  const BootFacts boot{.commit = "0123456789ab-dirty", .build = "release, gcc 15.1.0", .command_line = "itr=8us control_token=***"};
  const std::string json = make_machine_list(boot, nullptr);
  for (const char* member : {R"("system":"neap")",
                             R"("system_build":"0123456789ab+, release, gcc 15.1.0")",
                             R"("command_line":"itr=8us control_token=***")",
                             R"("clock":"metal")",
                             R"("cpu_model":"Test \"CPU\"")",
                             R"("cpu_signature":"06-2d-07")",
                             R"("cpu_microcode":"0x71a")",
                             R"("cpu_threads":3)",
                             R"("ram_bytes":536870912)",
                             R"("mwait_sub_states":"0x00021120")",
                             R"("c_state_limit":"c7")",
                             R"("c_state_limit_locked":true)",
                             R"("c_states":["c1","c6"])",
                             R"("idle_driver":"mwait")",
                             R"("frequency_min_mhz":1200)",
                             R"("frequency_base_mhz":2900)",
                             R"("frequency_max_mhz":3800)",
                             R"("pstate_driver":"perf_ctl")",
                             R"("pstate_governor":"firmware")",
                             R"("turbo":false)",
                             R"("power_limit_1_mw":135000)",
                             R"("power_limit_2_mw":162000)",
                             R"("tsc_invariant":true)"}) {
    EXPECT_TRUE(has(json, member)) << member << " in " << json;
  }
  EXPECT_EQ(json.find("card_"), json.npos) << "there is no card";
}

TEST_F(MachineList, TheClockOfAHypervisorOrAModelIsNamed) {
  MachineFacts facts;
  facts.hypervisor = true;
  host::set_machine_facts(facts);
  EXPECT_TRUE(has(make_machine_list({}, nullptr), R"("clock":"hypervisor")"));
  std::ranges::copy(std::string_view("TCGTCGTCGTCG"), facts.hypervisor_name.begin());
  host::set_machine_facts(facts);
  EXPECT_TRUE(has(make_machine_list({}, nullptr), R"("clock":"TCGTCGTCGTCG")"));
  facts.modelled = true;
  host::set_machine_facts(facts);
  EXPECT_TRUE(has(make_machine_list({}, nullptr), R"("clock":"modelled")"));
}

// A member that is not known must not look like a fact.
TEST_F(MachineList, LeavesOutWhatIsNotKnown) {
  host::set_power_abilities(policy::bare_abilities());
  host::set_machine_facts({});
  const std::string json = make_machine_list({.commit = "unknown", .build = ""}, nullptr);
  for (const char* name : {"system_build", "cpu_model", "cpu_signature", "cpu_microcode", "ram_bytes", "mwait_sub_states", "c_state_limit",
                           "c_states", "frequency_", "pstate_", "epp", "turbo", "power_limit_", "tsc_invariant", "null"}) {
    EXPECT_EQ(json.find('"' + std::string(name)), json.npos) << name << " in " << json;
  }
}

TEST_F(MachineList, LongTextsAreBounded) {
  const BootFacts boot{.build = std::string_view(R"("""""""""")"), .command_line = std::string(10'000, '"')};
  const std::string json = make_machine_list(boot, nullptr);
  EXPECT_LT(json.size(), 4096U);
  EXPECT_NE(json.find(R"(...","clock")"), json.npos) << json;
}

// Settings are those of now, not those of the boot.
TEST_F(MachineList, FollowsTheSettings) {
  std::string json = ask("machine");
  ASSERT_TRUE(json.starts_with(R"(ok {"system":"neap",)") && json.ends_with("}")) << json;
  EXPECT_TRUE(has(json, R"("card_pci_id":"8086:10fb")")) << json;
  EXPECT_TRUE(has(json, R"("link_mbps":10000)")) << json;
  EXPECT_TRUE(has(json, R"("queues":2)")) << json;
  EXPECT_TRUE(has(json, R"("queue_cores":["0","1"])")) << json;
  EXPECT_TRUE(has(json, R"("itr_us":0)")) << json;
  EXPECT_TRUE(has(after("itr,8us"), R"("itr_us":8)"));
  EXPECT_TRUE(has(after("itr,20us,1"), R"("itr_us":[8,20])")) << "cores that differ have a list";
  json = after("poll_budget,50us,0");
  EXPECT_TRUE(has(json, R"("busy_poll_us":[50,0,0])")) << json;
  json = after("idle,poll");
  EXPECT_TRUE(has(json, R"("c_state_deepest":"poll")")) << json;
  EXPECT_TRUE(has(json, R"("idle_governor":"poll")")) << json;
}

TEST_F(MachineList, ThePowerSettingsReplaceFirmwaresLimits) {
  host::set_power_abilities(policy::full_abilities());
  MachineFacts facts;
  facts.power_limit_mw = 135'000;
  facts.turbo_off = true;
  host::set_machine_facts(facts);
  EXPECT_TRUE(has(ask("machine"), R"("power_limit_1_mw":135000)"));
  EXPECT_TRUE(has(after("power_limit,60W"), R"("power_limit_1_mw":60000)"));
  EXPECT_TRUE(has(after("turbo,on"), R"("turbo":true)"));
  EXPECT_TRUE(has(after("epp,balance_performance"), R"("epp":"balance_performance")"));
  const std::string json = after("pstate,0x1800");
  EXPECT_TRUE(has(json, R"("frequency_limit_min_mhz":2400)")) << json;
  EXPECT_TRUE(has(json, R"("frequency_limit_max_mhz":2400)")) << json;
  EXPECT_TRUE(has(json, R"("pstate_governor":"fixed")")) << json;
  (void)ask("pstate,off");
  (void)ask("power_limit,off");
}

// A program reads both systems' lists by this table, so a member without a row would be a mistake in a name.
TEST_F(MachineList, EachMemberHasARowInTheDocument) {
  host::set_power_abilities(policy::full_abilities());
  std::ifstream file(NEAP_MACHINE_LIST_DOCUMENT);
  std::set<std::string> rows;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("| `")) rows.insert(line.substr(3, line.find('`', 3) - 3));
  }
  EXPECT_GE(rows.size(), 60U);
  const std::string json = ask("machine");
  unsigned members = 0;
  for (std::size_t at = json.find("\":"); at != json.npos; at = json.find("\":", at + 1)) {
    const std::size_t begin = json.rfind('"', at - 1) + 1;
    const std::string name = json.substr(begin, at - begin);
    EXPECT_TRUE(rows.contains(name)) << name;
    ++members;
  }
  EXPECT_GE(members, 40U);
}

}  // namespace
}  // namespace neap::observe::testing
