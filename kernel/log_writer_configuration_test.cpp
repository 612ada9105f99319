// SPDX-License-Identifier: BSL-1.0
// Tests of the entries that say what a log is a log of: settings with their values, and the phases of the load.
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "kernel/log_writer_testing.hpp"

namespace neap::log {
namespace {

struct LogWriterConfigurationTest : LogWriterTest {};

std::size_t three_settings(std::span<ConfiguredSetting, configured_settings_max> out) noexcept {
  out[0] = {.setting = 0, .value = 4};
  out[1] = {.setting = 6, .value = 512};
  out[2] = {.setting = 21, .value = 2};
  return 3;
}

// Most settings have no field in the Settings entry of the start, and a setting that was never changed has no record of a change.
TEST_F(LogWriterConfigurationTest, AtTheStartEachSettingHasAnEntryWithItsValue) {
  subject.begin({.configuration = &three_settings});
  EXPECT_EQ(ended().size(), 2U + 2) << "before the first change the settings are not known";

  subject.policy_changed({.idle_state = 4, .changed = 0, .turbo = 1, .generation = 4, .itr_us = 8, .card_value = 9});
  subject.begin({.configuration = &three_settings});
  const auto entries = ended();
  ASSERT_EQ(entries.size(), 3U + 3 + 2);
  const auto at_start = as<Settings>(entries[2]);
  EXPECT_EQ(at_start.card_value, 9U);
  constexpr std::pair<unsigned, unsigned> expected[] = {{0, 4}, {6, 512}, {21, 2}};
  for (std::size_t i = 0; i < 3; ++i) {
    auto entry = as<Settings>(entries[3 + i]);
    EXPECT_EQ(entry.kind, static_cast<std::uint8_t>(Kind::configured));
    EXPECT_EQ(entry.changed, expected[i].first);
    EXPECT_EQ(entry.card_value, expected[i].second);
    entry.kind = at_start.kind;
    entry.changed = at_start.changed;
    entry.card_value = at_start.card_value;
    EXPECT_EQ(std::memcmp(&entry, &at_start, sizeof entry), 0) << "all other fields are those of the start";
  }
}

TEST_F(LogWriterConfigurationTest, AChangeOfSeveralSettingsIsFollowedByAllValues) {
  subject.record_configuration();  // there is no run
  subject.policy_changed({.generation = 4});
  subject.begin({.configuration = &three_settings});
  subject.policy_changed({.changed = 15, .generation = 5});
  subject.record_configuration();
  const auto entries = ended();
  ASSERT_EQ(entries.size(), 3U + 3 + 2 + 3 + 2);
  for (std::size_t i = 8; i < 11; ++i) {
    const auto entry = as<Settings>(entries[i]);
    EXPECT_EQ(entry.kind, static_cast<std::uint8_t>(Kind::configured));
    EXPECT_EQ(entry.generation, 5U);
    EXPECT_EQ(entry.tsc, entries[7].tsc);
    EXPECT_NE(entry.changed, 15U);
  }
}

std::size_t all_settings(std::span<ConfiguredSetting, configured_settings_max> out) noexcept {
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = {.setting = static_cast<std::uint8_t>(i), .value = 1};
  return out.size();
}

struct SmallLogWriterTest : LogWriterTest {
  SmallLogWriterTest() : LogWriterTest(32) {}
};

TEST_F(SmallLogWriterTest, SettingsForWhichALogHasNoRoomAreCounted) {
  can_count(counter::package_energy | counter::core_c6);
  subject.policy_changed({.generation = 4});
  subject.begin({.configuration = &all_settings});
  const std::uint64_t written = 32 - 4 - 5;  // the start has four entries and the Settings entry; the stop needs four
  EXPECT_EQ(ring.extent().unwritten, configured_settings_max - written);
  EXPECT_EQ(subject.mark(LoadPhase::window), Marked::no_room);
  EXPECT_EQ(ring.extent().unwritten, configured_settings_max - written + 1);
  const auto entries = ended();
  ASSERT_EQ(entries.size(), 32U);
  EXPECT_EQ(entries[28].kind, static_cast<std::uint8_t>(Kind::stop));
}

TEST_F(LogWriterConfigurationTest, AMarkSaysWhichPhaseOfTheLoadBegins) {
  EXPECT_EQ(subject.mark(LoadPhase::preload), Marked::no_run);
  subject.policy_changed({.generation = 4});
  subject.begin({});
  clock.advance(std::chrono::microseconds(7));
  EXPECT_EQ(subject.mark(LoadPhase::drain), Marked::written);
  pass(1);
  subject.record(Kind::interrupt);
  const auto entries = ended();
  ASSERT_EQ(entries.size(), 3U + 2 + 2);
  const auto mark = as<Mark>(entries[3]);
  EXPECT_EQ(mark.tsc, boot_ns + 7'000);
  EXPECT_EQ(mark.kind, static_cast<std::uint8_t>(Kind::mark));
  EXPECT_EQ(mark.what, 3U);
  EXPECT_EQ(mark.generation, 4U);
  EXPECT_EQ(entries[4].rx_frames, 1U) << "a mark ends no interval";
  EXPECT_EQ(subject.mark(LoadPhase::end), Marked::no_run);
}

}  // namespace
}  // namespace neap::log
