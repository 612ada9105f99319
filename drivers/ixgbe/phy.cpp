// SPDX-License-Identifier: BSL-1.0
#include "drivers/ixgbe/phy.hpp"

namespace neap::ixgbe {

using namespace std::chrono_literals;

namespace {

// IEEE 802.3 clause 45: cycles on the bus, and the devices of a PHY with their registers.
enum class Cycle : std::uint8_t { address = 0, write = 1, read = 3 };
constexpr std::uint32_t device_pma = 1, device_vendor = 30;
constexpr std::uint32_t register_control = 0, register_identifier = 2;
constexpr std::uint16_t absent = 0xFFFF;  // no PHY drives the bus
constexpr unsigned phys_max = 32;
constexpr std::uint16_t low_power = 1U << 11;  // the vendor's, in the control register of its device; as in Linux's driver

/// One register of one device of the PHY at one address.
struct PhyRegister {
  std::uint32_t phy, device, address;
};

task<Result<void>> run(Registers registers, PhyRegister where, Cycle cycle) {
  registers.write(
      reg::MSCA,
      {.address = where.address, .device = where.device, .phy = where.phy, .opcode = static_cast<std::uint32_t>(cycle), .command = true});
  co_return co_await wait_for(
      registers, reg::MSCA, [](reg::Msca value) { return !value.command; }, 10ms, "ixgbe: MSCA.MDICMD: the MDIO bus did not answer", 10us);
}

task<Result<std::uint16_t>> read(Registers registers, PhyRegister where) {
  for (const Cycle cycle : {Cycle::address, Cycle::read}) {
    if (auto done = co_await run(registers, where, cycle); !done) co_return std::unexpected(done.error());
  }
  co_return static_cast<std::uint16_t>(registers.read(reg::MSRWD).read_data);
}

task<Result<void>> write(Registers registers, PhyRegister where, std::uint16_t value) {
  registers.write(reg::MSRWD, {.write_data = value});
  for (const Cycle cycle : {Cycle::address, Cycle::write}) {
    if (auto done = co_await run(registers, where, cycle); !done) co_return done;
  }
  co_return Result<void>{};
}

}  // namespace

task<Result<void>> wake_phy(Registers registers) {
  for (std::uint32_t phy = 0; phy < phys_max; ++phy) {
    const auto identifier = co_await read(registers, {phy, device_pma, register_identifier});
    if (!identifier) co_return std::unexpected(identifier.error());
    if (*identifier == absent || *identifier == 0) continue;
    const PhyRegister power{phy, device_vendor, register_control};
    const auto control = co_await read(registers, power);
    if (!control) co_return std::unexpected(control.error());
    if ((*control & low_power) == 0) co_return Result<void>{};
    co_return co_await write(registers, power, static_cast<std::uint16_t>(*control & ~low_power));
  }
  co_return failure(ErrorCode::not_found, "ixgbe: no PHY answers on the MDIO bus");
}

}  // namespace neap::ixgbe
