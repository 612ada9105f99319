// SPDX-License-Identifier: BSL-1.0
#include "drivers/ixgbe/settings.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include "kernel/power.hpp"

namespace neap::ixgbe {
namespace {

using policy::Row;
using policy::Setting;

const Row& row_of(std::string_view name) {
  for (const Row& row : setting_rows()) {
    if (row.name == name) return row;
  }
  ADD_FAILURE() << "no setting " << name;
  return setting_rows().front();
}

std::string understood(std::string_view name, std::string_view text) {
  const Row& row = row_of(name);
  const auto value = policy::parse(row, text, PowerAbilities{});
  return value ? policy::print(row, *value) : "refused";
}

TEST(CardSettings, ValuesAreReadAndPrintedTheSame) {
  for (const char* flow : {"udp:5000", "tcp:65535", "off"}) EXPECT_EQ(understood("steer", flow), std::string("steer=") + flow);
  for (const char* bad : {"", "5000", "udp", "udp:", "udp:0", "udp:65536", "sctp:1", "udp:1,tcp:2"})
    EXPECT_EQ(understood("steer", bad), "refused") << bad;
  for (const char* vlan : {"1", "4094", "off"}) EXPECT_EQ(understood("vlan", vlan), std::string("vlan=") + vlan);
  for (const char* pauses : {"off", "receive", "transmit", "both"})
    EXPECT_EQ(understood("flow_control", pauses), std::string("flow_control=") + pauses);
  EXPECT_EQ(policy::parse(row_of("flow_control"), "receive", PowerAbilities{}), policy::Value{flow_control_receive});
  EXPECT_EQ(policy::parse(row_of("flow_control"), "transmit", PowerAbilities{}), policy::Value{flow_control_transmit});
  EXPECT_EQ(policy::parse(row_of("preset"), "study", PowerAbilities{}), policy::Value{1});
}

TEST(CardSettings, EveryDefaultIsAcceptedAndNothingOutsideOfTheRange) {
  for (const CardSetting& setting : card_settings()) {
    if (setting.option == nullptr) continue;
    const Row& row = setting.row;
    EXPECT_EQ(row.initial, QueueOptions{}.*setting.option) << row.name;
    EXPECT_EQ(understood(row.name, policy::default_value(row)), policy::print(row, row.initial));
    if (row.kind != policy::Kind::number) continue;
    EXPECT_EQ(understood(row.name, std::to_string(row.value_max + 1)), "refused") << row.name;
    if (row.value_min != 0) EXPECT_EQ(understood(row.name, std::to_string(row.value_min - 1)), "refused") << row.name;
  }
}

TEST(CardSettings, NamesAndNumbersBelongToOneSettingEach) {
  std::set<std::string_view> names;
  std::set<Setting> numbers;
  for (const std::span<const Row> rows : {policy::kernel_rows(), setting_rows()}) {
    for (const Row& row : rows) {
      EXPECT_TRUE(numbers.insert(row.setting).second) << row.name;
      EXPECT_TRUE(names.insert(row.name).second) << row.name;
    }
  }
}

TEST(CardSettings, ALogsHeaderDescribesThem) {
  EXPECT_EQ(policy::log_description(row_of("rx_ring")), "rx_ring");
  EXPECT_EQ(policy::log_description(row_of("rsc")), "rsc::switch");
  EXPECT_EQ(policy::log_description(row_of("preset")), "preset::choice::default|study");
  EXPECT_EQ(policy::log_description(row_of("steer")), "steer::port::0=off");
  EXPECT_EQ(policy::log_description(row_of("flow_control")), "flow_control::choice::off|receive|transmit|both");
  EXPECT_EQ(policy::log_description(row_of("vlan")), "vlan::::0=off");
}

// Logs of older versions name settings by these numbers.
TEST(CardSettings, NumbersInLogRecordsStay) {
  constexpr std::string_view names[] = {"idle",
                                        "itr",
                                        "pstate",
                                        "power_limit",
                                        "turbo",
                                        "poll_budget",
                                        "rx_ring",
                                        "tx_ring",
                                        "rx_budget",
                                        "pthresh",
                                        "hthresh",
                                        "wthresh",
                                        "head_write_back",
                                        "rsc",
                                        "promiscuous",
                                        "preset",
                                        "steer",
                                        "epp",
                                        "flow_control",
                                        "dca",
                                        "vlan",
                                        "tso",
                                        "monitor_state",
                                        "adaptive_poll",
                                        "tx_interrupt"};
  for (const std::span<const Row> rows : {policy::kernel_rows(), setting_rows()}) {
    for (const Row& row : rows) {
      const auto number = static_cast<unsigned>(row.setting);
      if (number < std::size(names)) EXPECT_EQ(row.name, names[number]);
    }
  }
}

std::string_view scope_name(policy::Scope scope) {
  switch (scope) {
    case policy::Scope::core:
    case policy::Scope::named_core:
      return "core";
    case policy::Scope::package:
      return "package";
    case policy::Scope::card:
      return "card";
    case policy::Scope::machine:
      return "machine";
  }
  return "";
}

/// Returns the table that docs/policy.md must contain, made from the rows.
std::string table() {
  std::string text = "| setting | values | scope | default | meaning |\n|---|---|---|---|---|\n";
  for (const std::span<const Row> rows : {policy::kernel_rows(), setting_rows()}) {
    for (const Row& row : rows) {
      text += "| `" + policy::usage(row) + '`';
      for (const policy::OtherName& other : row.other_names) text += ", `" + std::string(other.name) + '`';
      text += " | " + policy::accepted_values(row) + " | " + std::string(scope_name(row.scope)) + " | " + policy::default_value(row) +
              " | " + std::string(row.help) + " |\n";
    }
  }
  return text;
}

TEST(CardSettings, TheDocumentsTableIsMadeFromTheRows) {
  std::ifstream file(NEAP_POLICY_DOCUMENT);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  EXPECT_NE(text.find("\n\n" + table() + '\n'), std::string::npos) << "docs/policy.md has to have this table:\n\n" << table();
}

}  // namespace
}  // namespace neap::ixgbe
