// SPDX-License-Identifier: BSL-1.0
// Parses the bytes of ACPI's tables, without access to the machine (ACPI 6.5, chapter 5).
//
// A table with a wrong length must not prevent the boot. So nothing in a table is trusted: reads beyond its end give 0, every list has a
// bound, and an invalid entry ends its list. acpi.cpp finds the tables in memory; tests supply tables of their own.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "kernel/machine.hpp"

namespace neap::x86::acpi {

/// Bytes of a table, with bounded reads: beyond the end everything is 0.
class Bytes {
 public:
  Bytes() = default;
  Bytes(const std::byte* first, std::size_t count) : bytes_(first, count) {}
  template <typename T>
  [[nodiscard]] T read(std::size_t offset) const {
    T value{};
    if (offset <= bytes_.size() && bytes_.size() - offset >= sizeof value) std::memcpy(&value, bytes_.data() + offset, sizeof value);
    return value;
  }
  [[nodiscard]] std::size_t size() const { return bytes_.size(); }
  [[nodiscard]] std::span<const std::byte> span() const { return bytes_; }
  [[nodiscard]] Bytes part(std::size_t offset, std::size_t count) const {
    if (offset > bytes_.size()) return {};
    return {bytes_.data() + offset, std::min(count, bytes_.size() - offset)};
  }
  [[nodiscard]] bool sums_to_zero() const {
    std::uint8_t sum = 0;
    for (const auto byte : bytes_) sum = static_cast<std::uint8_t>(sum + static_cast<std::uint8_t>(byte));
    return sum == 0;
  }
  [[nodiscard]] std::string_view text(std::size_t offset, std::size_t count) const {
    const auto piece = part(offset, count);
    return {reinterpret_cast<const char*>(piece.bytes_.data()), piece.size()};
  }

 private:
  std::span<const std::byte> bytes_;
};

/// The header of every table (5.2.6).
constexpr std::size_t header_bytes = 36;

struct Core {
  std::uint32_t apic_id;
  std::uint32_t node;  ///< dense, see `Nodes`
};

/// The MADT (5.2.12).
struct Madt {
  std::array<Core, machine::cores_max> cores{};  ///< usable cores, each APIC id once, in the order of the table
  std::size_t core_count = 0;
  std::size_t cores_refused = 0;  ///< cores beyond the array's size
  std::uint64_t local_apic = 0;
  bool legacy_devices = false;
};
void read_madt(const Bytes& table, Madt& madt);

/// RAM near the cores of a node.
struct NodeMemory {
  std::uint64_t first, end;
  std::uint32_t node;
};

/// SRAT and SLIT (5.2.16, 5.2.17). Firmware's numbers of nodes ("proximity domains") are replaced by dense numbers in the same order.
struct Nodes {
  static constexpr std::size_t memory_max = 256;
  std::array<NodeMemory, memory_max> memory{};
  std::size_t memory_count = 0;
  std::array<std::uint32_t, machine::nodes_max> domains{};                                   ///< firmware's number of each node
  std::size_t count = 0;                                                                     ///< 0: no table
  std::size_t refused = 0;                                                                   ///< entries beyond the arrays' sizes
  std::array<std::array<std::uint8_t, machine::nodes_max>, machine::nodes_max> distances{};  ///< 0: unknown

  [[nodiscard]] unsigned distance(unsigned from, unsigned to) const;
};
/// Sets the nodes of `cores`.
void read_srat(const Bytes& table, std::span<Core> cores, Nodes& nodes);
/// MUST be called after `read_srat`.
void read_slit(const Bytes& table, Nodes& nodes);

/// A register as ACPI describes it (5.2.3.2); `address` 0: absent.
struct Register {
  enum class Space : std::uint8_t { memory = 0, port = 1 };
  Space space;
  std::uint64_t address;
};

/// The FADT (5.2.9).
struct Fadt {
  Register power_timer;  ///< 3.579545 MHz
  bool power_timer_32_bits;
  Register power_control_a, power_control_b;
  std::uint16_t smi_command_port;  ///< 0: ACPI mode is always on
  std::uint8_t acpi_enable_value;
  Register reset;
  std::uint8_t reset_value;
  std::uint8_t century_register;  ///< of the RTC, 0: unknown
  std::uint64_t dsdt;             ///< physical address, 0: none
};
[[nodiscard]] Fadt read_fadt(const Bytes& table);

/// The power-off values of a DSDT or SSDT.
struct SoftOff {
  bool soft_off_known = false;
  std::uint8_t soft_off_type_a = 0, soft_off_type_b = 0;
};
[[nodiscard]] SoftOff find_soft_off(const Bytes& aml);

}  // namespace neap::x86::acpi
