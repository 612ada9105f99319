// SPDX-License-Identifier: BSL-1.0
// The settings that a run records at its start, on each core.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "kernel/log.hpp"
#include "kernel/policy.hpp"
#include "kernel/policy_fixture.hpp"

namespace neap::policy {
namespace {

// Without `merge`.
constexpr Row rows[] = {card_rows[0], card_rows[2], card_rows[3]};

/// A card with a queue for core 0 only.
class OneQueueCard final : public Device {
 public:
  [[nodiscard]] Result<std::uint32_t> round_itr(unsigned core, std::uint32_t itr_us) const noexcept override {
    if (core != 0) return failure(ErrorCode::unsupported, "no queue", core);
    return itr_us;
  }
  [[nodiscard]] std::uint32_t itr_us(unsigned) const noexcept override { return 16; }
  void set_itr(unsigned, std::uint32_t) noexcept override {}
  void set_interrupt(unsigned, bool) noexcept override {}
  [[nodiscard]] const volatile void* next_receive_line(unsigned) const noexcept override { return nullptr; }
  [[nodiscard]] std::span<const Row> settings() const noexcept override { return rows; }
  [[nodiscard]] std::uint32_t value_of(Setting setting) const noexcept override { return setting == depth ? ring.load() : 7; }
  [[nodiscard]] task<Result<Change>> change(Setting setting, std::uint32_t value, unsigned) override {
    if (setting == depth) ring = value;
    co_return Change{.value = value};
  }
  std::atomic<std::uint32_t> ring{512};
};

using Configuration = std::map<std::string, std::uint32_t>;

/// Two cores whose CPU is `has`, with or without a card.
struct Machine {
  explicit Machine(const PowerAbilities& has, bool with_card = true) {
    host::set_power_abilities(has);
    host::prepare_pages();
    host_machine.emplace(2);
    host_machine->run(0, [&]() -> task<void> {
      use(with_card ? &card : nullptr);
      const BootSettings none;
      EXPECT_TRUE((co_await apply(none)).has_value());
      EXPECT_TRUE((co_await log::prepare({.entries_per_core = 128})).has_value());
    });
  }
  Machine& operator=(Machine&&) = delete;
  ~Machine() {
    for (unsigned core = 0; core < 2; ++core) {
      host_machine->run(core, []() -> task<void> { static_cast<void>(co_await policy::set(Setting::idle, "halt", this_core())); });
    }
    host_machine->on(0, [] { use(nullptr); });
    host_machine.reset();
    log::release();
    host::set_power_abilities(bare_abilities());
  }
  void set(Setting setting, const std::string& value, unsigned core = all_cores) {
    host_machine->run(0, [&]() -> task<void> { EXPECT_TRUE((co_await policy::set(setting, value, core)).has_value()) << value; });
  }
  /// Makes a run; returns the settings that `core` recorded at its start, by name. Each MUST occur once, after the Settings entry.
  Configuration recorded(unsigned core) {
    host_machine->run(0, []() -> task<void> {
      EXPECT_TRUE((co_await log::start({})).has_value());
      EXPECT_TRUE((co_await log::stop()).has_value());
    });
    const std::vector<log::Record> entries = entries_of(core);
    return configured(entries, std::ranges::find(entries, static_cast<std::uint8_t>(log::Kind::settings), &log::Record::kind));
  }
  static std::vector<log::Record> entries_of(unsigned core) {
    std::vector<log::Record> entries(static_cast<std::size_t>(log::extent(core).end));
    EXPECT_EQ(log::read(core, 0, entries), entries.size());
    return entries;
  }
  /// The settings in the `configured` entries behind the Settings entry `settings`.
  Configuration configured(const std::vector<log::Record>& entries, std::vector<log::Record>::const_iterator settings) {
    Configuration found;
    EXPECT_NE(settings, entries.end());
    if (settings == entries.end()) return found;
    for (auto entry = settings + 1; entry != entries.end() && entry->kind == static_cast<std::uint8_t>(log::Kind::configured); ++entry) {
      const auto configured = std::bit_cast<log::Settings>(*entry);
      host_machine->on(0, [&] {
        const Row* const row = find_row(static_cast<Setting>(configured.changed));
        ASSERT_NE(row, nullptr) << unsigned{configured.changed};
        EXPECT_TRUE(found.emplace(row->name, configured.card_value).second) << row->name;
      });
    }
    return found;
  }

  OneQueueCard card;
  std::optional<HostMachine> host_machine;
};

TEST(Configuration, HasEverySettingOfACoreAndTheCard) {
  Machine machine(full_abilities());
  machine.set(Setting::idle, "c3", 0);
  machine.set(Setting::pstate, "24", 0);
  machine.set(Setting::power_limit, "60W");
  machine.set(Setting::poll_budget, "20us", 0);
  machine.set(depth, "1024");
  EXPECT_EQ(machine.recorded(0), (Configuration{{"idle", 3},
                                                {"itr", 16},
                                                {"pstate", 0x1800},
                                                {"power_limit", 60'000},
                                                {"turbo", 2},
                                                {"poll_budget", 20},
                                                {"adaptive_poll", 0},
                                                {"monitor_state", 1},
                                                {"epp", 256},
                                                {"depth", 1024}}))
      << "a preset and a setting that names a core have no value; without a network there is no segmentation";
  Configuration other = machine.recorded(1);
  EXPECT_FALSE(other.contains("itr")) << "this core has no queue";
  EXPECT_EQ(other.at("idle"), static_cast<std::uint32_t>(full_abilities().deepest));
  EXPECT_EQ(other.at("poll_budget"), 0U);
  EXPECT_EQ(other.at("depth"), 1024U);

  machine.host_machine->on(0, [] { static_cast<void>(offer_segmentation(nullptr)); });
  machine.set(Setting::segmentation, "chain");
  EXPECT_EQ(machine.recorded(0).at("tso"), 2U);
  EXPECT_FALSE(machine.recorded(1).contains("tso")) << "this core's network cannot segment";
  machine.host_machine->on(0, [] { static_cast<void>(offer_segmentation("no network is up")); });
}

// The change of a preset names the preset alone, which has no value. Without further entries the values behind it would not be known.
TEST(Configuration, IsRecordedAgainBehindAPreset) {
  Machine machine(bare_abilities());
  machine.host_machine->run(0, [&]() -> task<void> {
    EXPECT_TRUE((co_await log::start({})).has_value());
    machine.card.ring = 2048;  // as the card would do for this preset
    EXPECT_TRUE((co_await policy::set(mode, "other", all_cores)).has_value());
    EXPECT_TRUE((co_await log::stop()).has_value());
  });
  for (unsigned core = 0; core < 2; ++core) {
    const std::vector<log::Record> entries = Machine::entries_of(core);
    const auto preset = std::ranges::find_if(entries, [](const log::Record& entry) {
      return entry.kind == static_cast<std::uint8_t>(log::Kind::settings) &&
             std::bit_cast<log::Settings>(entry).changed == static_cast<unsigned>(mode);
    });
    const Configuration behind = machine.configured(entries, preset);
    EXPECT_EQ(behind.at("depth"), 2048U);
    EXPECT_EQ(behind.contains("itr"), core == 0);
  }
}

TEST(Configuration, LeavesOutWhatAMachineDoesNotHave) {
  Machine bare(bare_abilities(), false);
  EXPECT_EQ(bare.recorded(0), (Configuration{{"idle", 0}, {"poll_budget", 0}, {"adaptive_poll", 0}}));
}

TEST(Configuration, LeavesOutAPowerLimitThatFirmwareHasLocked) {
  PowerAbilities locked = full_abilities();
  locked.power_limit_locked = true;
  Machine machine(locked);
  EXPECT_FALSE(machine.recorded(0).contains("power_limit"));
}

}  // namespace
}  // namespace neap::policy
