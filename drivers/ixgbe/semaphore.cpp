// SPDX-License-Identifier: BSL-1.0
#include "drivers/ixgbe/semaphore.hpp"

#include "kernel/console.hpp"

namespace neap::ixgbe {

using namespace std::chrono_literals;

namespace {

/// The ownership bits of the software and of the firmware, indexed by `SharedResource`.
struct OwnerBits {
  std::uint32_t software;
  std::uint32_t firmware;
};
using Sync = reg::SwFwSync;
constexpr OwnerBits owner_bits[] = {{Sync::sw_eeprom_mask, Sync::fw_eeprom_mask},
                                    {Sync::sw_phy0_mask, Sync::fw_phy0_mask},
                                    {Sync::sw_phy1_mask, Sync::fw_phy1_mask},
                                    {Sync::sw_mac_mask, Sync::fw_mac_mask}};
constexpr OwnerBits bits_of(SharedResource resource) noexcept { return owner_bits[static_cast<unsigned>(resource)]; }

void release_guard(Registers registers, SyncGuard guard) noexcept {
  if (guard == SyncGuard::regsmp) registers.modify(reg::SW_FW_SYNC, [](reg::SwFwSync& value) { value.regsmp = false; });
  registers.write(reg::SWSM, {.smbi = false, .swesmbi = false});
  registers.flush();
}

/// 10.5.4, "gaining control": reading SMBI as 0 excludes other drivers. Then SWESMBI is set. If it reads as 1, the firmware is excluded. On
/// models with REGSMP, reading that bit as 0 excludes the firmware.
task<Result<void>> acquire_guard(Registers registers, SyncGuard guard) {
  auto among_drivers =
      co_await wait_for(registers, reg::SWSM, [](reg::Swsm value) { return !value.smbi; }, 500ms, "ixgbe: SWSM.SMBI is not released");
  if (!among_drivers && among_drivers.error().code != ErrorCode::timeout) co_return among_drivers;
  if (!among_drivers) print("ixgbe: SWSM.SMBI was held by a driver that is gone; taken over");
  if (guard == SyncGuard::regsmp) {
    auto with_firmware = co_await wait_for(
        registers, reg::SW_FW_SYNC, [](reg::SwFwSync value) { return !value.regsmp; }, 500ms, "ixgbe: SW_FW_SYNC.REGSMP is not released");
    if (!with_firmware && with_firmware.error().code == ErrorCode::timeout) release_guard(registers, guard);
    co_return with_firmware;
  }
  const auto deadline = BootClock::now() + 500ms;
  for (;;) {
    registers.modify(reg::SWSM, [](reg::Swsm& value) {
      value.smbi = true;
      value.swesmbi = true;
    });
    const reg::Swsm granted = registers.read(reg::SWSM);
    if (granted.raw() == Registers::all_ones) co_return std::unexpected(card_gone_error);
    if (granted.swesmbi) co_return Result<void>{};
    if (BootClock::now() >= deadline) {
      release_guard(registers, guard);
      co_return failure(ErrorCode::timeout, "ixgbe: SWSM.SWESMBI is not granted by the firmware", granted.raw());
    }
    co_await sleep_for(100us);
  }
}

}  // namespace

task<Result<void>> acquire(Registers registers, SyncGuard guard, SharedResource resource) {
  const OwnerBits bits = bits_of(resource);
  const auto deadline = BootClock::now() + 1s;
  for (;;) {
    auto guarded = co_await acquire_guard(registers, guard);
    if (!guarded) co_return guarded;
    const std::uint32_t owners = registers.read(reg::SW_FW_SYNC).raw();
    const bool busy = (owners & (bits.software | bits.firmware)) != 0;
    const bool late = BootClock::now() >= deadline;
    if (!busy || late) {
      if (busy) print("ixgbe: SW_FW_SYNC ", hex(owners), " was not released within 1 s; taken over");
      registers.write(reg::SW_FW_SYNC, reg::SwFwSync::from_raw((owners & ~bits.firmware) | bits.software));
      release_guard(registers, guard);
      co_return Result<void>{};
    }
    release_guard(registers, guard);
    co_await sleep_for(5ms);
  }
}

task<Result<void>> release(Registers registers, SyncGuard guard, SharedResource resource) {
  auto guarded = co_await acquire_guard(registers, guard);
  if (!guarded) co_return guarded;
  registers.write(reg::SW_FW_SYNC, reg::SwFwSync::from_raw(registers.read(reg::SW_FW_SYNC).raw() & ~bits_of(resource).software));
  release_guard(registers, guard);
  co_return Result<void>{};
}

}  // namespace neap::ixgbe
