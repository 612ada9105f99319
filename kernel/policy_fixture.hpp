// SPDX-License-Identifier: BSL-1.0
// For tests of settings on a running machine: four cores, and a card with a queue for three of them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <expected>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "kernel/policy.hpp"
#include "kernel/policy_rows.hpp"
#include "kernel/policy_testing.hpp"
#include "tests/host/host_machine.hpp"

namespace neap::policy {

using host::HostMachine;
constexpr unsigned cores = 4, cores_with_queue = 3;

// Settings of a card that exists only in tests.
constexpr Setting depth{40}, merge{41}, aim{42}, mode{43};
inline constexpr std::string_view modes[] = {"usual", "other"};
inline constexpr Row card_rows[] = {
    {.setting = depth, .name = "depth", .scope = Scope::card, .value_min = 64, .value_max = 4096, .initial = 512, .help = "Depth."},
    {.setting = merge, .name = "merge", .kind = Kind::on_off, .scope = Scope::card, .help = "Merges."},
    {.setting = aim, .name = "aim", .scope = Scope::named_core, .value_max = 65535, .help = "Aims at a core."},
    {.setting = mode,
     .name = "mode",
     .kind = Kind::choice,
     .scope = Scope::card,
     .choices = modes,
     .preset = true,
     .help = "Sets several."},
};

/// A card with queues for the first three cores. It counts calls on a wrong core.
class TestCard final : public Device {
 public:
  [[nodiscard]] Result<std::uint32_t> round_itr(unsigned core, std::uint32_t itr_us) const noexcept override {
    if (core >= cores_with_queue) return failure(ErrorCode::unsupported, "no queue", core);
    if (itr_us > 1024) return failure(ErrorCode::invalid, "the card takes 0us to 1024us, in steps of 2us");
    if (merges && itr_us < 6) return failure(ErrorCode::invalid, "not while it merges");
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

  [[nodiscard]] std::span<const Row> settings() const noexcept override { return card_rows; }
  [[nodiscard]] std::uint32_t value_of(Setting setting) const noexcept override { return setting == depth ? ring.load() : 0; }
  [[nodiscard]] std::optional<Setting> off_for_itr(std::uint32_t itr_us) const noexcept override {
    return merges && merge_is_default && itr_us < 6 ? std::optional(merge) : std::nullopt;
  }
  [[nodiscard]] task<Result<Change>> change(Setting setting, std::uint32_t value, unsigned core) override {
    wrong_core += this_core() != 0 ? 1 : 0;
    if (setting == aim) aimed_at = core;
    if (setting == merge && value != 0) co_return failure(ErrorCode::invalid, "not with this itr");
    if (setting == merge) merges = false;
    if (setting == depth) ring = value;
    Change change{.value = value, .lost_frames = 7};
    if (setting == mode) change.segmentation = Segmentation::copy;
    co_return change;
  }

  struct alignas(64) Line {
    std::array<std::uint64_t, 8> words{};
  };
  std::array<std::atomic<std::uint32_t>, cores> itr{16, 16, 16, 16};
  std::array<std::atomic<bool>, cores> interrupts{true, true, true, true};
  std::array<Line, cores> lines;
  std::atomic<bool> busy{false}, merges{false}, merge_is_default{true};
  std::atomic<std::uint32_t> ring{512};
  std::atomic<unsigned> aimed_at{all_cores};
  std::atomic<int> wrong_core{0};
};

using Outcome = std::expected<Applied, Refusal>;
inline const std::string segmentation_name(std::ranges::find(kernel_rows(), Setting::segmentation, &Row::setting)->name);

struct PolicyTest : testing::Test {
  explicit PolicyTest(const PowerAbilities& has = full_abilities()) {
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
    host::set_power_abilities(bare_abilities());
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

}  // namespace neap::policy
