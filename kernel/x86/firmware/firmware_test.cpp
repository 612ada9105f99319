// SPDX-License-Identifier: BSL-1.0
// Tests of checks on CPU, MTRRs, PCI Express and IOMMUs. Tables of register values represent firmware's settings.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "kernel/x86/firmware/cpu_facts.hpp"
#include "kernel/x86/firmware/memory_types.hpp"
#include "kernel/x86/firmware/pcie.hpp"
#include "kernel/x86/firmware/remapping.hpp"
#include "kernel/x86/power/fake_cpu.hpp"

namespace neap::x86 {
namespace {

using power::test::FakeCpu;
constexpr std::uint64_t gibibyte = std::uint64_t{1} << 30;

// --- CPU ---------------------------------------------------------------------------------------------------------------------------------
TEST(CpuFacts, NameHasNoSurroundingBlanks) {
  auto cpu = power::test::sandy_bridge_ep();
  cpu.name("  Intel(R) Xeon(R) CPU E5-2690 0 @ 2.90GHz");
  const auto found = cpu_facts::identify(cpu);
  EXPECT_STREQ(found.name.data(), "Intel(R) Xeon(R) CPU E5-2690 0 @ 2.90GHz");
  EXPECT_EQ(found.family, 6);
  EXPECT_EQ(found.model, 0x2d);
  EXPECT_FALSE(found.hypervisor);
}

TEST(CpuFacts, NamesOfFullLengthAndWithControlBytesStayInBounds) {
  auto cpu = power::test::sandy_bridge_ep();
  cpu.name(std::string(48, 'x'));
  EXPECT_EQ(std::string(cpu_facts::identify(cpu).name.data()), std::string(48, 'x'));
  cpu.name("a\x1b[2Jb");
  EXPECT_STREQ(cpu_facts::identify(cpu).name.data(), "a?[2Jb");
}

TEST(CpuFacts, IntelsMicrocodeRevisionIsTheUpperHalfAfterAWriteOfZero) {
  auto cpu = power::test::sandy_bridge_ep();
  cpu.msrs[0x8b] = 0x0000'071a'0000'0000;
  cpu.swallows.insert(0x8b);
  EXPECT_EQ(cpu_facts::microcode(cpu), 0x71aU);
  EXPECT_EQ(cpu.writes, (FakeCpu::Writes{{0x8b, 0}}));
}

TEST(CpuFacts, OtherCpusHaveTheRevisionInTheLowerHalfAndNoWrite) {
  FakeCpu cpu;
  cpu.vendor("AuthenticAMD", 13);
  cpu.msrs[0x8b] = 0x0a20'1210;
  EXPECT_EQ(cpu_facts::microcode(cpu), 0x0a20'1210U);
  EXPECT_TRUE(cpu.writes.empty());
}

TEST(CpuFacts, AZeroOrAFaultIsNoRevision) {
  auto cpu = power::test::sandy_bridge_ep();
  EXPECT_EQ(cpu_facts::microcode(cpu), std::nullopt);
  cpu.msrs[0x8b] = 0;
  EXPECT_EQ(cpu_facts::microcode(cpu), std::nullopt);
}

TEST(CpuFacts, SystemManagementInterruptsAreReadOnlyFromCpusThatCountThem) {
  auto cpu = power::test::sandy_bridge_ep();
  EXPECT_EQ(cpu_facts::system_management_interrupts(cpu), std::nullopt) << "the MSR faults";
  cpu.msrs[0x34] = 0xffff'ffff'0000'0011;  // the upper half is reserved
  EXPECT_EQ(cpu_facts::system_management_interrupts(cpu), 0x11U);
  auto emulated = power::test::emulated("GenuineIntel");
  emulated.msrs[0x34] = 0;
  EXPECT_EQ(cpu_facts::system_management_interrupts(emulated), std::nullopt) << "an emulator's zero is not a count";
  FakeCpu other;
  other.vendor("AuthenticAMD", 13);
  other.msrs[0x34] = 5;
  EXPECT_EQ(cpu_facts::system_management_interrupts(other), std::nullopt);
}

// --- MTRRs -------------------------------------------------------------------------------------------------------------------------------
constexpr std::uint64_t mask_of(std::uint64_t bytes) { return (((std::uint64_t{1} << 46) - 1) & ~(bytes - 1)) | 1 << 11; }

FakeCpu with_mtrrs(std::uint64_t default_type, std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges) {
  auto cpu = power::test::sandy_bridge_ep();
  cpu.leaves[{1, 0}].edx |= 1 << 12;
  cpu.msrs[0xfe] = 0xd00 | (ranges.size() + 1);
  cpu.msrs[0x2ff] = default_type;
  ranges.emplace_back(0, 0);  // a range that is not in use
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    cpu.msrs[static_cast<std::uint32_t>(0x200 + 2 * i)] = ranges[i].first;
    cpu.msrs[static_cast<std::uint32_t>(0x201 + 2 * i)] = ranges[i].second;
  }
  return cpu;
}

constexpr std::uint64_t on_uncached = 0xc00, on_write_back = 0xc06;

// 16 GiB of RAM at 0 to 2 GiB and 4 to 18 GiB. The default type is uncached, so firmware covers the RAM by several ranges.
TEST(MemoryTypes, CoveredRamIsWriteBack) {
  auto cpu = with_mtrrs(on_uncached, {{0 | 6, mask_of(2 * gibibyte)},
                                      {4 * gibibyte | 6, mask_of(4 * gibibyte)},
                                      {8 * gibibyte | 6, mask_of(8 * gibibyte)},
                                      {16 * gibibyte | 6, mask_of(2 * gibibyte)}});
  const auto ranges = mtrr::read(cpu);
  ASSERT_TRUE(ranges.there && ranges.on);
  EXPECT_EQ(ranges.count, 4U);
  EXPECT_EQ(mtrr::type_at(ranges, 3 * gibibyte), mtrr::Type::uncached);
  for (const auto& [first, end] : {std::pair{gibibyte, 2 * gibibyte}, std::pair{4 * gibibyte, 18 * gibibyte}}) {
    const auto slow = mtrr::first_slow(ranges, first, end);
    EXPECT_EQ(slow.first, slow.end);
  }
}

TEST(MemoryTypes, AMissingPieceIsFound) {
  auto cpu = with_mtrrs(on_uncached, {{0 | 6, mask_of(2 * gibibyte)}, {4 * gibibyte | 6, mask_of(4 * gibibyte)}});
  const auto slow = mtrr::first_slow(mtrr::read(cpu), 4 * gibibyte, 9 * gibibyte);
  EXPECT_EQ(slow.first, 8 * gibibyte);
  EXPECT_EQ(slow.end, 9 * gibibyte);
  EXPECT_EQ(slow.type, mtrr::Type::uncached);
}

TEST(MemoryTypes, AnUncachedHoleOverridesThePieceAroundIt) {
  auto cpu = with_mtrrs(on_uncached, {{0 | 6, mask_of(4 * gibibyte)}, {3 * gibibyte | 0, mask_of(gibibyte)}});
  const auto ranges = mtrr::read(cpu);
  const auto slow = mtrr::first_slow(ranges, 1 << 20, 4 * gibibyte);
  EXPECT_EQ(slow.first, 3 * gibibyte);
  EXPECT_EQ(slow.end, 4 * gibibyte);
  EXPECT_EQ(mtrr::first_slow(ranges, 1 << 20, 3 * gibibyte).first, 3 * gibibyte);
}

TEST(MemoryTypes, WriteThroughOverridesWriteBack) {
  auto cpu = with_mtrrs(on_write_back, {{0 | 6, mask_of(4 * gibibyte)}, {gibibyte | 4, mask_of(gibibyte)}});
  EXPECT_EQ(mtrr::type_at(mtrr::read(cpu), gibibyte), mtrr::Type::write_through);
}

TEST(MemoryTypes, DisabledMtrrsMakeAllMemoryUncached) {
  auto cpu = with_mtrrs(0x006, {{0 | 6, mask_of(4 * gibibyte)}});
  const auto ranges = mtrr::read(cpu);
  EXPECT_TRUE(ranges.there);
  EXPECT_FALSE(ranges.on);
  EXPECT_EQ(mtrr::type_at(ranges, gibibyte), mtrr::Type::uncached);
}

TEST(MemoryTypes, CoresDifferIfOneRangeDiffers) {
  auto one = with_mtrrs(on_uncached, {{0 | 6, mask_of(4 * gibibyte)}});
  auto other = with_mtrrs(on_uncached, {{0 | 6, mask_of(2 * gibibyte)}});
  EXPECT_EQ(mtrr::read(one).fingerprint, mtrr::read(one).fingerprint);
  EXPECT_NE(mtrr::read(one).fingerprint, mtrr::read(other).fingerprint);
}

TEST(MemoryTypes, WithoutTheFeatureNothingIsReported) {
  auto cpu = power::test::sandy_bridge_ep();
  EXPECT_FALSE(mtrr::read(cpu).there);
  cpu.leaves[{1, 0}].edx |= 1 << 12;
  EXPECT_FALSE(mtrr::read(cpu).there) << "the MSRs fault";
  auto many = with_mtrrs(on_write_back, {});
  many.msrs[0xfe] = 0xff;  // the field's maximum
  EXPECT_LE(mtrr::read(many).count, mtrr::variable_max);
}

// --- PCI Express -------------------------------------------------------------------------------------------------------------------------
std::string text_of(const pcie::Link& link) {
  Line line;
  pcie::describe(link, line);
  return std::string(line.text());
}

TEST(Pcie, AGoodSlotIsDescribed) {
  // An x8 link at 5 GT/s, payload 256 of 512 bytes, read requests of 512 bytes.
  const auto link =
      pcie::decode({.device_capabilities = 0x10008cc2, .device_control = 0x2830, .link_control = 0x40, .link_status = 0x1082});
  EXPECT_EQ(text_of(link), "x8 at 5.0 GT/s, payload 256 of 512 bytes, read requests of 512 bytes, ASPM off");
  EXPECT_EQ(pcie::megabits_per_second(link), 32'000U);
}

TEST(Pcie, ANarrowSlotWithAspmIsDescribed) {
  const auto link = pcie::decode({.device_capabilities = 2, .device_control = 0, .link_control = 3, .link_status = 0x41});
  EXPECT_EQ(text_of(link), "x4 at 2.5 GT/s, payload 128 of 512 bytes, read requests of 128 bytes, ASPM L0s and L1");
  EXPECT_EQ(pcie::megabits_per_second(link), 8'000U);
}

TEST(Pcie, AVirtualLinkHasNoSpeed) {
  const auto link = pcie::decode({});
  EXPECT_EQ(pcie::megabits_per_second(link), 0U);
  EXPECT_TRUE(text_of(link).starts_with("no link speed reported"));
  EXPECT_EQ(pcie::megabits_per_second(pcie::decode({.link_status = 0x8f})), 0U) << "a speed that nobody has defined yet";
}

TEST(Pcie, OnlyAPayloadLargerThanThePortsIsReduced) {
  EXPECT_EQ(pcie::payload_matched(0x2850, 0x0020), 0x2830) << "512 to 256";
  EXPECT_EQ(pcie::payload_matched(0x2830, 0x0020), 0x2830);
  EXPECT_EQ(pcie::payload_matched(0x2810, 0x00a0), 0x2810) << "smaller is allowed";
}

TEST(Pcie, InvalidWindowsAreRefused) {
  const std::vector<machine::MemoryRange> ram{{.physical = 1 << 20, .bytes = 2 * gibibyte, .node = 0}};
  const pcie::Window good{.base = 0xb0000000, .segment = 0, .first_bus = 0, .last_bus = 255};
  EXPECT_EQ(pcie::window_problem(good, {}, ram), nullptr);
  EXPECT_NE(pcie::window_problem(good, std::span(&good, 1), ram), nullptr) << "listed twice";
  auto other_segment = good;
  other_segment.segment = 1;
  EXPECT_EQ(pcie::window_problem(other_segment, std::span(&good, 1), ram), nullptr);
  for (const auto& bad : {pcie::Window{.base = 0, .segment = 0, .first_bus = 0, .last_bus = 255},
                          pcie::Window{.base = 0xb0001000, .segment = 0, .first_bus = 0, .last_bus = 255},
                          pcie::Window{.base = 0xb0000000, .segment = 0, .first_bus = 9, .last_bus = 8},
                          pcie::Window{.base = gibibyte, .segment = 0, .first_bus = 0, .last_bus = 255},
                          pcie::Window{.base = 0xffff'ffff'fff0'0000, .segment = 0, .first_bus = 0, .last_bus = 255}}) {
    EXPECT_NE(pcie::window_problem(bad, {}, ram), nullptr) << std::hex << bad.base;
  }
  // The used part of the window counts, not the address of bus 0.
  const pcie::Window high{.base = 0x40000000, .segment = 0, .first_bus = 0xf0, .last_bus = 0xff};
  EXPECT_NE(pcie::window_problem(high, {}, ram), nullptr);
  const std::vector<machine::MemoryRange> little{{.physical = 1 << 20, .bytes = 1025 << 20, .node = 0}};
  EXPECT_EQ(pcie::window_problem(high, {}, little), nullptr);
}

// --- IOMMUs ------------------------------------------------------------------------------------------------------------------------------
std::vector<std::byte> table_of(std::initializer_list<std::pair<std::uint16_t, std::vector<std::uint8_t>>> structures) {
  std::vector<std::byte> table(48);
  for (const auto& [type, body] : structures) {
    const auto length = static_cast<std::uint16_t>(4 + body.size());
    for (const std::uint8_t byte : {static_cast<std::uint8_t>(type), static_cast<std::uint8_t>(type >> 8),
                                    static_cast<std::uint8_t>(length), static_cast<std::uint8_t>(length >> 8)}) {
      table.push_back(std::byte{byte});
    }
    for (const auto byte : body) table.push_back(std::byte{byte});
  }
  return table;
}

std::vector<std::uint8_t> unit_at(std::uint64_t base) {
  std::vector<std::uint8_t> body{1, 0, 0, 0};  // flags, size, segment
  for (unsigned i = 0; i < 8; ++i) body.push_back(static_cast<std::uint8_t>(base >> 8 * i));
  return body;
}

TEST(Remapping, UnitsAreFoundAmongOtherStructures) {
  const auto table = table_of({{0, unit_at(0xfed90000)}, {1, std::vector<std::uint8_t>(20)}, {0, unit_at(0xfed91000)}});
  const auto units = remapping::find_units(table);
  ASSERT_EQ(units.count, 2U);
  EXPECT_EQ(units.bases[0], 0xfed90000U);
  EXPECT_EQ(units.bases[1], 0xfed91000U);
  EXPECT_EQ(units.refused, 0U);
}

TEST(Remapping, ADamagedTableIsReadWithinBounds) {
  EXPECT_EQ(remapping::find_units({}).count, 0U);
  auto endless = table_of({{0, unit_at(0xfed90000)}, {0, {}}});
  endless[endless.size() - 2] = std::byte{0};  // a length of 0
  EXPECT_EQ(remapping::find_units(endless).count, 1U);
  auto cut = table_of({{0, unit_at(0xfed90000)}});
  cut.pop_back();
  EXPECT_EQ(remapping::find_units(cut).count, 0U);
  EXPECT_EQ(remapping::find_units(table_of({{0, unit_at(0xfed90004)}, {0, unit_at(0)}})).refused, 2U);
  std::vector<std::byte> many(48);
  for (std::size_t i = 0; i < remapping::units_max + 3; ++i) {
    const auto one = table_of({{0, unit_at(0x1000 * (i + 1))}});
    many.insert(many.end(), one.begin() + 48, one.end());
  }
  EXPECT_EQ(remapping::find_units(many).count, remapping::units_max);
  EXPECT_EQ(remapping::find_units(many).refused, 3U);
}

// An IOMMU that executes a command after some reads, and records invalid commands.
class FakeUnit final : public remapping::Registers {
 public:
  std::uint32_t status = 0, protected_memory = 0;
  unsigned looks_until_done = 3;
  bool stuck = false, gone = false;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> writes;
  unsigned pauses = 0;

  [[nodiscard]] std::uint32_t read(std::uint32_t offset) noexcept override {
    if (gone) return 0xffffffff;
    if (offset == 0x00) return 0x10;
    if (offset == 0x1c) {
      if (pending_ && !stuck && ++looks_ >= looks_until_done) status = std::exchange(pending_, std::nullopt).value();
      return status;
    }
    return offset == 0x64 ? protected_memory : 0;
  }
  void write(std::uint32_t offset, std::uint32_t value) noexcept override {
    writes.emplace_back(offset, value);
    looks_ = 0;
    if (offset == 0x18) pending_ = (status & 0x69000000) | value;  // the one-shot bits of the status keep their values
    if (offset == 0x64 && !stuck) protected_memory = value & 0x80000000 ? protected_memory : 0;
  }
  void pause() noexcept override { ++pauses; }

 private:
  std::optional<std::uint32_t> pending_;
  unsigned looks_ = 0;
};

constexpr std::uint32_t translation_on = 1U << 31, root_set = 1U << 30, queue_on = 1U << 26, interrupts_on = 1U << 25, table_set = 1U << 24;

TEST(Remapping, ADisabledUnitIsNotWritten) {
  FakeUnit unit;
  unit.status = root_set | table_set;
  const auto found = remapping::turn_off(unit);
  EXPECT_FALSE(found.anything() || found.stuck || found.absent);
  EXPECT_TRUE(unit.writes.empty());
}

TEST(Remapping, FeaturesAreTurnedOffOneByOneTranslationFirst) {
  FakeUnit unit;
  unit.status = translation_on | root_set | queue_on | interrupts_on | table_set;
  unit.protected_memory = 0x80000001;
  const auto found = remapping::turn_off(unit);
  EXPECT_TRUE(found.translation && found.interrupts && found.queued_invalidation && found.protected_memory);
  EXPECT_FALSE(found.stuck);
  EXPECT_EQ(unit.status & (translation_on | interrupts_on | queue_on), 0U);
  EXPECT_EQ(unit.protected_memory, 0U);
  const std::vector<std::pair<std::uint32_t, std::uint32_t>> expected{
      {0x18, queue_on | interrupts_on}, {0x18, queue_on}, {0x18, 0}, {0x64, 0x00000001}};
  EXPECT_EQ(unit.writes, expected) << "a one-shot command bit must not be set again";
}

TEST(Remapping, AUnitThatDoesNotRespondIsGivenUp) {
  FakeUnit unit;
  unit.status = translation_on;
  unit.stuck = true;
  const auto found = remapping::turn_off(unit);
  EXPECT_TRUE(found.translation && found.stuck);
  EXPECT_EQ(unit.pauses, remapping::waits_max);
}

TEST(Remapping, AnAbsentUnitIsNotWritten) {
  FakeUnit unit;
  unit.gone = true;
  const auto found = remapping::turn_off(unit);
  EXPECT_TRUE(found.absent);
  EXPECT_FALSE(found.anything());
  EXPECT_TRUE(unit.writes.empty());
}

TEST(CpuFacts, DeadlineAlarmsFailUntilTheMicrocodeIsFixed) {
  struct Case {
    std::uint16_t model, stepping;
    std::uint32_t microcode;
    bool may_fail;
  };
  for (const Case& now : {Case{0x3f, 2, 0x39, true}, Case{0x3f, 2, 0x3a, false}, Case{0x3f, 4, 0x0e, true}, Case{0x3f, 4, 0x0f, false},
                          Case{0x4f, 1, 0x0b00001f, true}, Case{0x4f, 1, 0x0b000020, false}, Case{0x55, 4, 0x02000013, true},
                          Case{0x55, 7, 0, false},     // Cascade Lake
                          Case{0x2d, 7, 0, false}}) {  // Sandy Bridge-EP does not have this erratum
    const cpu_facts::Identity identity{.family = 6, .model = now.model, .stepping = now.stepping, .intel = true};
    EXPECT_EQ(cpu_facts::deadline_may_fail(identity, now.microcode), now.may_fail) << std::hex << now.model << ' ' << now.microcode;
  }
  cpu_facts::Identity guest{.family = 6, .model = 0x3c, .intel = true, .hypervisor = true};
  EXPECT_FALSE(cpu_facts::deadline_may_fail(guest, 0)) << "the hypervisor provides its timer";
}

}  // namespace
}  // namespace neap::x86
