// SPDX-License-Identifier: BSL-1.0
#include "drivers/ixgbe/link.hpp"

#include <array>

#include "drivers/ixgbe/phy.hpp"
#include "drivers/ixgbe/semaphore.hpp"
#include "drivers/ixgbe/sfp.hpp"
#include "kernel/console.hpp"

namespace neap::ixgbe {

namespace {

// Values of AUTOC.LMS (8.2.3.22.19) and of AUTOC2.10G_PMA_PMD_Serial (8.2.3.22.22).
constexpr std::uint32_t link_mode_10g_serial = 3, serial_interface_sfi = 2;

task<Result<void>> prepare_module(Registers registers) {
  // The pin SDP3 is "transmit disable" on SFP+ boards. The EEPROM has made it an output.
  registers.modify(reg::ESDP, [](reg::Esdp& value) { value.sdp3_data = false; });
  registers.flush();
  auto kind = co_await identify_sfp(registers);
  if (!kind) {
    if (kind.error().code == ErrorCode::closed) co_return std::unexpected(kind.error());
    print("ixgbe: ", kind.error().message, " (", kind.error().detail, "); the link keeps the EEPROM's settings");
    co_return Result<void>{};
  }
  auto loaded = co_await load_sfp_settings(registers, *kind);
  if (!loaded) {
    if (loaded.error().code == ErrorCode::closed) co_return loaded;
    print(loaded.error().message, " (", name_of(*kind), "); the link keeps its settings");
  }
  co_return Result<void>{};
}

task<Result<void>> prepare_phy(Registers registers, SyncGuard guard) {
  const bool port1 = (registers.read(reg::STATUS).lan_id & 1) != 0;
  const SharedResource phy = port1 ? SharedResource::phy1 : SharedResource::phy0;
  auto turn = co_await acquire(registers, guard, phy);
  if (!turn) co_return turn;
  const auto woken = co_await wake_phy(registers);
  if (!woken && woken.error().code == ErrorCode::closed) co_return woken;
  if (!woken) print(woken.error().message, " (", woken.error().detail, "); the link keeps its settings");
  co_return co_await release(registers, guard, phy);
}

}  // namespace

task<Result<void>> start_link(Registers registers, const Model& model, Medium medium) {
  if (medium == Medium::phy) co_return co_await prepare_phy(registers, model.guard);
  const bool sfp = medium == Medium::sfp;
  if (sfp) {
    auto prepared = co_await prepare_module(registers);
    if (!prepared) co_return prepared;
  }
  // The firmware also uses AUTOC, so the driver takes the lock (10.5.4).
  auto turn = co_await acquire(registers, model.guard, SharedResource::mac);
  if (!turn) co_return turn;
  if (sfp) {
    registers.modify(reg::AUTOC2, [](reg::Autoc2& value) { value.pma_pmd_10g_serial = serial_interface_sfi; });
  }
  registers.modify(reg::AUTOC, [sfp](reg::Autoc& value) {
    if (sfp) value.link_mode = link_mode_10g_serial;
    value.restart_an = true;
  });
  registers.flush();
  co_return co_await release(registers, model.guard, SharedResource::mac);
}

LinkStatus read_link(Registers registers, const Model& model) noexcept {
  const reg::Links links = registers.read(reg::LINKS);
  if (!links.link_up || links.raw() == Registers::all_ones) return {};
  // Index: the speed field, whose value 0 is reserved. On other models than X550, the bit `speed_between` has another meaning.
  constexpr std::array<std::uint32_t, 4> megabits{0, 100, 1'000, 10'000}, megabits_between{0, 5'000, 0, 2'500};
  const bool between = model.speeds_between && links.speed_between;
  return {.up = true, .megabits = between ? megabits_between[links.speed] : megabits[links.speed]};
}

}  // namespace neap::ixgbe
