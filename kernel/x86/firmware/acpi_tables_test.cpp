// SPDX-License-Identifier: BSL-1.0
// Tests with well-formed and damaged ACPI tables.
#include "kernel/x86/firmware/acpi_tables.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <random>
#include <vector>

namespace neap::x86::acpi {
namespace {

/// A table under construction, little-endian. Its memory ends with the table, so that the address sanitizer finds a read beyond it.
class TableWriter {
 public:
  explicit TableWriter(std::size_t bytes_before_entries) : bytes_(bytes_before_entries) {}
  template <typename T>
  TableWriter& put(std::size_t offset, T value) {
    std::memcpy(bytes_.data() + offset, &value, sizeof value);
    return *this;
  }
  /// Adds an entry of `length` bytes. The caller writes a field at the returned offset plus the field's offset.
  std::size_t entry(std::uint8_t type, std::uint8_t length) {
    const std::size_t at = bytes_.size();
    bytes_.resize(at + std::max<std::size_t>(length, 2));
    put(at, type).put(at + 1, length);
    return at;
  }
  void core(std::uint8_t apic_id, std::uint32_t flags = 1) {
    const std::size_t at = entry(0, 8);
    put(at + 3, apic_id).put(at + 4, flags);
  }
  void x2apic_core(std::uint32_t apic_id) {
    const std::size_t at = entry(9, 16);
    put(at + 4, apic_id).put(at + 8, std::uint32_t{1});
  }
  void near_core(std::uint32_t domain, std::uint8_t apic_id) {
    const std::size_t at = entry(0, 16);
    put(at + 8, domain & 0xffffff00).put(at + 2, static_cast<std::uint8_t>(domain)).put(at + 3, apic_id).put(at + 4, std::uint32_t{1});
  }
  void near_x2apic_core(std::uint32_t domain, std::uint32_t apic_id) {
    const std::size_t at = entry(2, 24);
    put(at + 4, domain).put(at + 8, apic_id).put(at + 12, std::uint32_t{1});
  }
  void near_memory(std::uint32_t domain, std::uint64_t first, std::uint64_t bytes, std::uint32_t flags = 1) {
    const std::size_t at = entry(1, 40);
    put(at + 2, domain).put(at + 8, first).put(at + 16, bytes).put(at + 28, flags);
  }
  std::vector<std::byte>& bytes() { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

/// Calls `use` with the table in memory of exactly its size.
template <typename Use>
void with_table(const std::vector<std::byte>& bytes, Use use) {
  const auto exact = std::make_unique<std::byte[]>(bytes.size());
  std::copy(bytes.begin(), bytes.end(), exact.get());
  use(Bytes(exact.get(), bytes.size()));
}

constexpr std::size_t madt_entries = 44, srat_entries = 48;

Madt madt_of(TableWriter& table) {
  Madt madt;
  with_table(table.bytes(), [&](const Bytes& bytes) { read_madt(bytes, madt); });
  return madt;
}

TEST(Madt, UsableCoresAreListedOnceInTheTablesOrder) {
  TableWriter table(madt_entries);
  table.put(36, 0xfee00000).put(40, std::uint32_t{1});
  table.core(4);
  table.core(2);
  table.core(7, 0);      // disabled
  table.x2apic_core(2);  // listed twice
  table.x2apic_core(300);
  const std::size_t at = table.entry(5, 12);
  table.put(at + 4, std::uint64_t{0x1'0000'0000});
  const Madt madt = madt_of(table);
  ASSERT_EQ(madt.core_count, 3U);
  EXPECT_EQ(madt.cores[0].apic_id, 4U);
  EXPECT_EQ(madt.cores[1].apic_id, 2U);
  EXPECT_EQ(madt.cores[2].apic_id, 300U);
  EXPECT_EQ(madt.local_apic, 0x1'0000'0000U) << "the 64-bit address replaces the 32-bit one";
  EXPECT_TRUE(madt.legacy_devices);
}

TEST(Madt, CoresBeyondTheLimitAreCounted) {
  TableWriter table(madt_entries);
  for (std::uint32_t i = 0; i < machine::cores_max + 5; ++i) table.x2apic_core(1000 + i);
  const Madt madt = madt_of(table);
  EXPECT_EQ(madt.core_count, machine::cores_max);
  EXPECT_EQ(madt.cores_refused, 5U);
}

TEST(Madt, AnEntryWithoutLengthOrBeyondTheEndEndsTheList) {
  for (const std::uint8_t length : {0, 1, 200}) {
    TableWriter table(madt_entries);
    table.core(1);
    const std::size_t at = table.entry(0, 8);
    table.put(at + 1, length).put(at + 3, std::uint8_t{9}).put(at + 4, std::uint32_t{1});
    table.core(2);
    const Madt madt = madt_of(table);
    EXPECT_EQ(madt.core_count, 1U) << int{length};
  }
}

struct TwoNodes {
  std::vector<Core> cores{{.apic_id = 0, .node = 0}, {.apic_id = 1, .node = 0}, {.apic_id = 300, .node = 0}};
  Nodes nodes;
  explicit TwoNodes(std::vector<std::byte>& bytes) {
    with_table(bytes, [&](const Bytes& table) { read_srat(table, cores, nodes); });
  }
};

// Firmware's node numbers may have gaps. Our numbers have no gaps and keep the order.
TEST(Srat, NodesAreDenseAndAssignedToCoresAndMemory) {
  TableWriter table(srat_entries);
  table.near_core(0x1'00'02, 0);
  table.near_core(7, 1);
  table.near_x2apic_core(0x1'00'02, 300);
  table.near_memory(0x1'00'02, 0x1'0000'0000, 0x1000);
  table.near_memory(7, 0, 0x8000'0000);
  table.near_memory(9, 0x10'0000'0000, 0x1000, 0);  // a disabled entry, for memory that may be plugged in later
  table.near_memory(7, 0xffff'ffff'ffff'f000, ~std::uint64_t{0});
  const TwoNodes read(table.bytes());
  ASSERT_EQ(read.nodes.count, 2U);
  EXPECT_EQ(read.nodes.domains[0], 7U);
  EXPECT_EQ(read.nodes.domains[1], 0x1'00'02U);
  EXPECT_EQ(read.cores[0].node, 1U);
  EXPECT_EQ(read.cores[1].node, 0U);
  EXPECT_EQ(read.cores[2].node, 1U);
  ASSERT_EQ(read.nodes.memory_count, 3U);
  EXPECT_EQ(read.nodes.memory[0].node, 1U);
  EXPECT_EQ(read.nodes.memory[1].end, 0x8000'0000U);
  EXPECT_EQ(read.nodes.memory[2].end, ~std::uint64_t{0}) << "a length that wraps around ends at the top";
}

TEST(Srat, NodesBeyondTheLimitAreCountedAndTheirCoresGetNodeZero) {
  TableWriter table(srat_entries);
  for (std::uint32_t domain = 0; domain < machine::nodes_max + 3; ++domain) table.near_memory(domain, domain * 0x1000ULL, 0x1000);
  table.near_core(machine::nodes_max + 1, 1);
  const TwoNodes read(table.bytes());
  EXPECT_EQ(read.nodes.count, machine::nodes_max);
  EXPECT_EQ(read.nodes.refused, 4U);
  EXPECT_EQ(read.cores[1].node, 0U);
}

TEST(Slit, DistancesAreTheTablesOrADefault) {
  TableWriter srat(srat_entries);
  for (const std::uint32_t domain : {0U, 2U, 5U}) srat.near_memory(domain, domain * 0x1000ULL, 0x1000);
  TwoNodes read(srat.bytes());
  TableWriter slit(44 + 9);
  slit.put(36, std::uint64_t{3});
  const std::uint8_t matrix[9] = {10, 15, 21, 15, 10, 9, 22, 31, 10};
  for (std::size_t i = 0; i < 9; ++i) slit.put(44 + i, matrix[i]);
  with_table(slit.bytes(), [&](const Bytes& bytes) { read_slit(bytes, read.nodes); });
  EXPECT_EQ(read.nodes.distance(0, 0), 10U);
  EXPECT_EQ(read.nodes.distance(0, 1), 21U);  // domains 0 and 2
  EXPECT_EQ(read.nodes.distance(1, 0), 22U);
  EXPECT_EQ(read.nodes.distance(0, 2), 20U) << "the matrix has no domain 5";
  slit.put(36, ~std::uint64_t{0});
  with_table(slit.bytes(), [&](const Bytes& bytes) { read_slit(bytes, read.nodes); });
  EXPECT_EQ(read.nodes.distance(1, 0), 22U) << "an invalid count changes nothing";
}

TEST(Fadt, WideRegistersHavePriorityAndUnknownSpacesAreNotUsed) {
  TableWriter table(244);
  table.put(76, std::uint32_t{0x608}).put(64, std::uint32_t{0x604}).put(112, std::uint32_t{1U << 8 | 1U << 10});
  table.put(208, std::uint8_t{0}).put(212, std::uint64_t{0xfed0'0000});
  table.put(116, std::uint8_t{2}).put(120, std::uint64_t{0xcf9}).put(40, std::uint32_t{0x1000});
  with_table(table.bytes(), [&](const Bytes& bytes) {
    const Fadt fadt = read_fadt(bytes);
    EXPECT_EQ(fadt.power_timer.space, Register::Space::memory);
    EXPECT_EQ(fadt.power_timer.address, 0xfed0'0000U);
    EXPECT_EQ(fadt.power_control_a.space, Register::Space::port);
    EXPECT_EQ(fadt.power_control_a.address, 0x604U);
    EXPECT_TRUE(fadt.power_timer_32_bits);
    EXPECT_EQ(fadt.reset.address, 0U) << "a reset register in PCI configuration space";
    EXPECT_EQ(fadt.dsdt, 0x1000U);
  });
}

std::vector<std::byte> aml(std::initializer_list<int> values) {
  std::vector<std::byte> bytes(header_bytes);
  for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

TEST(SoftOff, IsOnlyTheConstantPackage) {
  with_table(aml({0x08, '_', 'S', '5', '_', 0x12, 0x06, 0x04, 0x0a, 0x05, 0x0a, 0x07, 0x00, 0x00}), [](const Bytes& bytes) {
    const SoftOff off = find_soft_off(bytes);
    EXPECT_TRUE(off.soft_off_known);
    EXPECT_EQ(off.soft_off_type_a, 5);
    EXPECT_EQ(off.soft_off_type_b, 7);
  });
  for (const auto& other : {aml({0x10, '_', 'S', '5', '_', 0x12, 0x06, 0x04, 0x0a, 0x05}),  // no Name
                            aml({0x08, '_', 'S', '5', '_', 0x12, 0x06, 0x04, 0x5b, 0x05}),  // computed
                            aml({0x08, '_', 'S', '5', '_', 0x12})}) {                       // cut off
    with_table(other, [](const Bytes& bytes) { EXPECT_FALSE(find_soft_off(bytes).soft_off_known); });
  }
}

// Valid tables with some bytes changed or the end cut off. The address sanitizer finds reads beyond the end, and every list stays within
// its bounds.
TEST(AcpiTables, DamagedTablesAreReadWithinBounds) {
  TableWriter madt_table(madt_entries), srat_table(srat_entries), fadt_table(244), slit_table(44 + 4);
  for (std::uint8_t core = 0; core < 20; ++core) madt_table.core(core);
  for (std::uint8_t core = 0; core < 20; ++core) srat_table.near_core(core % 3, core);
  for (std::uint32_t node = 0; node < 3; ++node) srat_table.near_memory(node, std::uint64_t{node} << 32, 1U << 31);
  slit_table.put(36, std::uint64_t{2});
  const auto soft_off = aml({0x08, '_', 'S', '5', '_', 0x12, 0x06, 0x04, 0x0a, 0x05, 0x0a, 0x07, 0x00, 0x00});
  std::mt19937 random(7);
  const auto damaged = [&](std::vector<std::byte> bytes) {
    for (unsigned changes = random() % 4; changes != 0; --changes) bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    if (random() % 3 == 0) bytes.resize(random() % bytes.size());
    return bytes;
  };
  for (unsigned round = 0; round < 2'000; ++round) {
    Madt madt;
    Nodes nodes;
    with_table(damaged(madt_table.bytes()), [&](const Bytes& bytes) { read_madt(bytes, madt); });
    ASSERT_LE(madt.core_count, madt.cores.size());
    with_table(damaged(srat_table.bytes()), [&](const Bytes& bytes) { read_srat(bytes, {madt.cores.data(), madt.core_count}, nodes); });
    with_table(damaged(slit_table.bytes()), [&](const Bytes& bytes) { read_slit(bytes, nodes); });
    for (std::size_t i = 0; i < madt.core_count; ++i) ASSERT_LT(madt.cores[i].node, std::max<std::size_t>(nodes.count, 1));
    for (std::size_t i = 0; i < nodes.memory_count; ++i) ASSERT_LE(nodes.memory[i].first, nodes.memory[i].end);
    with_table(damaged(fadt_table.bytes()), [](const Bytes& bytes) { static_cast<void>(read_fadt(bytes)); });
    with_table(damaged(soft_off), [](const Bytes& bytes) { static_cast<void>(find_soft_off(bytes)); });
  }
}

}  // namespace
}  // namespace neap::x86::acpi
