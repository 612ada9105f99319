// SPDX-License-Identifier: BSL-1.0
// The members of a log's header that say what the run was a run of.
#include "observe/log_configuration.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>

#include "drivers/ixgbe/settings.hpp"
#include "kernel/arguments.hpp"
#include "kernel/machine.hpp"
#include "kernel/policy_rows.hpp"
#include "observe/described_machine.hpp"
#include "observe/options.hpp"

namespace neap::observe {
namespace {

constexpr std::uint64_t largest = std::numeric_limits<std::uint64_t>::max();

struct LogConfiguration : DescribedMachine {
  static std::string text(const BootFacts& boot, const RunCard* card = nullptr) {
    return make_header_json(boot, {.run = 1, .core = 0, .extent = {}, .card = card});
  }
};

/// The part of a header's text that `add_configuration` adds.
std::string configuration(const std::string& json) {
  const std::size_t settings = json.find("\"settings\":{");
  const std::size_t end = json.find('}', settings);
  return end == json.npos ? json : json.substr(end + 1);
}

TEST_F(LogConfiguration, NamesBuildMachineFirmwareAndCard) {
  PowerAbilities abilities = policy::full_abilities();
  abilities.wake_us = {0, 0, 10, 80, 104, 15};
  abilities.wake_us_measured = 1 << static_cast<unsigned>(IdleState::c7);
  host::set_power_abilities(abilities);
  MachineFacts facts = e5_2690_facts();
  facts.mwait_hints[static_cast<unsigned>(IdleState::c7)] = 0x30;
  host::set_machine_facts(facts);
  const BootFacts boot{
      .commit = "0123456789ab-dirty", .build = "release, gcc 15.1.0", .command_line = "itr=8us control_token=***", .slow = 100};
  RunCard card{.run = 1,
               .identity = {.name = "82599", .vendor_id = 0x8086, .device_id = 0x10fb, .revision = 1},
               .queues = 2,
               .link_at_start = RunCard::Link{.up = true, .megabits = 10'000},
               .counters_at_start = CardCounters{{"port.received", 5}, {"port.missed", 0}}};
  const std::string common =
      R"(,"commit":"0123456789ab+","build":"release","compiler":"gcc 15.1.0","microcode":"0x71a","cpu_signature":"06-2d-07",)"
      R"("limits":{"c_state":"c7","c_state_locked":true,"turbo_off_by_firmware":false,"power_limit_mw":135000},)"
      R"("frequencies_mhz":{"minimum":1200,"base":2900,"maximum":3800},)"
      R"("c_states":[{"name":"c1","hint":"0x00"},{"name":"c6","hint":"0x20","wake_up_us":104,"source":"table"},)"
      R"({"name":"c7","hint":"0x30","wake_up_us":15,"source":"measured"}],"slow":100,)"
      R"("card":{"name":"82599","id":"0x10fb","revision":1,"queues":2},"link":{"up":true,"mbps":10000},)"
      R"("card_counters_start":{"port.received":5,"port.missed":0})";
  const std::string line = R"(,"command_line":"itr=8us control_token=***"})";
  EXPECT_EQ(configuration(text(boot, &card)), common + line);
  card.counters_at_stop = CardCounters{{"port.received", 9}};
  EXPECT_EQ(configuration(text(boot, &card)), common + R"(,"card_counters_stop":{"port.received":9})" + line);
}

TEST_F(LogConfiguration, LeavesOutWhatIsNotKnown) {
  const BootFacts unknown{.commit = "unknown", .build = ""};
  EXPECT_EQ(configuration(text(unknown)), "}");
  const RunCard card{.run = 1, .identity = {.name = "82599", .device_id = 0x10fb, .revision = 0}, .queues = 1};
  EXPECT_EQ(configuration(text(unknown, &card)), R"(,"card":{"name":"82599","id":"0x10fb","revision":0,"queues":1}})");
  for (const char* no_commit : {"", "-dirty", "0123456789a", "0123456789AB", "0123456789abc"}) {
    EXPECT_EQ(configuration(text({.commit = no_commit, .build = "host"})), R"(,"build":"host"})") << no_commit;
  }
}

TEST_F(LogConfiguration, TheCommandLineIsThatOfTheImageWithoutSecrets) {
  Arguments arguments("control_token=hidden-from-logs itr=8us slow=20 log=1000");
  const Options options = Options::from(arguments, {});
  EXPECT_EQ(arguments.complaints(), "");
  const std::string json = text(find_boot_facts(options));
  EXPECT_NE(json.find(R"("command_line":"control_token=*** itr=8us slow=20 log=1000")"), std::string::npos) << json;
  EXPECT_NE(json.find(R"("slow":20)"), std::string::npos) << json;
  EXPECT_EQ(json.find("hidden"), std::string::npos);
  for (const char* bad : {"slow=0", "slow=1001", "slow=fast"}) {
    Arguments refused(bad);
    (void)Options::from(refused, {});
    EXPECT_NE(refused.complaints(), "") << bad;
  }
}

/// The longest values of everything; `quotes` are twice as long in JSON.
struct Longest {
  Longest() : quotes(5000, '"') {
    PowerAbilities abilities = policy::full_abilities();
    std::fill(std::begin(abilities.cpu), std::end(abilities.cpu) - 1, '"');
    abilities.counters = 0xFFFF;
    abilities.energy_unit_exponent = abilities.dram_energy_unit_exponent = 255;
    abilities.ratio_min = abilities.ratio_max = abilities.ratio_turbo_max = 255;
    abilities.ratio_khz = 133'333;
    abilities.wake_us.fill(0xffff);
    abilities.wake_us_measured = 0xffff;
    host::set_power_abilities(abilities);
    MachineFacts facts;
    facts.signature = {.family = 0xffff, .model = 0xffff, .stepping = 0xffff};
    facts.microcode = facts.power_limit_mw = ~0U;
    facts.c_state_limit = "c6_no_retention";
    facts.c_state_limit_locked = facts.turbo_off = false;
    facts.mwait_hints.fill(0xff);
    host::set_machine_facts(facts);
    CardCounters counters;
    for (std::size_t i = 0; i < card_counters_max; ++i) counters.emplace_back(std::string(card_counter_name_bytes_max, 'c'), largest);
    card = {.run = ~0U,
            .identity = {.name = quotes, .device_id = 0xffff, .revision = 0xff},
            .queues = ~0U,
            .link_at_start = RunCard::Link{.up = false, .megabits = ~0U},
            .counters_at_start = counters,
            .counters_at_stop = counters,
            .at_stop = true};
  }
  [[nodiscard]] BootFacts boot(std::string command_line) const {
    return {.boot_id = largest,
            .tsc_at_boot = largest,
            .control_core = ~0U,
            .application = quotes,
            .version = quotes,
            .commit = "0123456789abcdef0123456789abcdef01234567-dirty",
            .build = quotes,
            .command_line = std::move(command_line),
            .slow = ~0U};
  }
  std::string quotes;
  RunCard card;
};

// Any client can ask for the header, so a text that is too long MUST NOT make the machine panic.
TEST_F(LogConfiguration, AHeaderHasRoomForTheLongestOfEverything) {
  const Longest longest;
  const std::uint64_t all = largest;
  const LogPart part{
      .run = ~0U, .core = machine::core_count() - 1, .extent = {.first = 0, .end = all, .unwritten = all}, .card = &longest.card};
  std::size_t card_bytes = 0;  // bytes that a card's settings add; this test has no card
  for (const policy::Row& row : ixgbe::setting_rows())
    card_bytes += std::string(R"("255":"",)").size() + policy::log_description(row).size();
  constexpr std::size_t for_longer_numbers = 64;  // numbers that are longer on a real machine
  const std::string without_line = make_header_json(longest.boot(""), part);
  EXPECT_LT(without_line.size() + card_bytes + for_longer_numbers + 1000, header_bytes - 65) << "a thousand bytes for the command line";
  for (const char* member : {"commit", "build", "microcode", "cpu_signature", "limits", "frequencies_mhz", "c_states", "slow", "card",
                             "link", "card_counters_start", "card_counters_stop"}) {
    EXPECT_NE(without_line.find('"' + std::string(member) + "\":"), std::string::npos) << member;
  }
  std::string shown;
  for (unsigned i = 0; i < header_text_bytes_max - 3; ++i) shown += "\\\"";
  EXPECT_NE(without_line.find("\"application\":\"" + shown + "...\""), std::string::npos) << without_line;

  const Header header = make_header(longest.boot(std::string(100'000, 'x')), part);
  EXPECT_EQ(header.size(), header_bytes);
  std::uint32_t json_bytes;
  std::memcpy(&json_bytes, header.data() + 56, sizeof json_bytes);
  EXPECT_EQ(json_bytes, header_bytes - 65) << "a long command line is cut where the room ends";
  const std::string_view json(reinterpret_cast<const char*>(header.data()) + 64, json_bytes);
  EXPECT_TRUE(json.ends_with("xxx...\"}")) << json.substr(json.size() - 20);
}

// A cut that divides an escape would leave a text that no reader accepts.
TEST(JsonText, IsCutBetweenItsLettersAndNeverExceedsItsRoom) {
  const std::string value = R"(a"b\c""\\""\"end)";
  Json whole;
  whole.text("first", "1");
  const std::size_t without = whole.bytes();
  whole.text("v", value);
  const std::string complete = whole.take();
  for (std::size_t end = 0; end <= complete.size() + 1; ++end) {
    Json json;
    json.text("first", "1");
    json.text_up_to(end, "v", value);
    const std::size_t bytes = json.bytes();
    const std::string text = json.take();
    ASSERT_EQ(text.size(), bytes);
    ASSERT_LE(text.size(), std::max(end, without));
    if (end >= complete.size()) {
      ASSERT_EQ(text, complete);
      continue;
    }
    if (text == R"({"first":"1"})") continue;
    ASSERT_TRUE(text.starts_with(R"({"first":"1","v":")") && text.ends_with("...\"}")) << text;
    // Unescapes the value: each letter is one of the whole value's, and the closing quote is the last but one letter.
    std::string found;
    std::size_t at = text.find(R"("v":")") + 5;
    for (; at < text.size() && text[at] != '"'; ++at) found += text[at] == '\\' ? text[++at] : text[at];
    ASSERT_EQ(at, text.size() - 2) << text;
    ASSERT_TRUE(value.starts_with(found.substr(0, found.size() - 3))) << text;
  }
}

TEST(JsonText, MembersForWhichThereIsNoRoomAreTakenBack) {
  Json json;
  json.number("a", 1);
  const auto add = [&] {
    json.open("b");
    json.boolean("c", true);
    json.close();
  };
  json.up_to(sizeof R"({"a":1,"b":{"c":true}})" - 2, add);
  EXPECT_EQ(json.bytes(), sizeof R"({"a":1})" - 1);
  json.up_to(sizeof R"({"a":1,"b":{"c":true}})" - 1, add);
  json.open_list("d");
  for (int i = 0; i < 2; ++i) {
    json.open_element();
    json.number("e", 2);
    json.close();
  }
  json.close_list();
  EXPECT_EQ(json.take(), R"({"a":1,"b":{"c":true},"d":[{"e":2},{"e":2}]})");
}

}  // namespace
}  // namespace neap::observe
