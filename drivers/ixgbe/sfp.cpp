// SPDX-License-Identifier: BSL-1.0
#include "drivers/ixgbe/sfp.hpp"

#include "drivers/ixgbe/semaphore.hpp"

namespace neap::ixgbe {

using namespace std::chrono_literals;

namespace {

// The EEPROM's list of settings: pairs of kind and address, ended by all ones. This is the format that Intel's own drivers read; the
// datasheet only reserves word 2Bh.
constexpr std::uint16_t settings_list_word = 0x2B, list_end = 0xFFFF;
constexpr std::uint16_t kind_direct_attach_port0 = 3, kind_optical_port0 = 5;
constexpr unsigned list_entries_max = 64, settings_words_max = 512;

/// The bus's two lines in I2CCTL (8.2.3.1.5).
class ModuleLines {
 public:
  explicit ModuleLines(Registers registers) noexcept : registers_(registers) {}
  void drive(bool clock, bool data) const noexcept {
    registers_.write(reg::I2CCTL, {.clock_out = clock, .data_out = data});
    registers_.flush();
  }
  [[nodiscard]] bool data() const noexcept { return registers_.read(reg::I2CCTL).data_in; }

 private:
  Registers registers_;
};

constexpr SyncGuard guard = model_82599.guard;  // no other model has an SFP+ cage

[[nodiscard]] std::uint32_t port_of(Registers registers) noexcept { return registers.read(reg::STATUS).lan_id & 1; }

/// Returns the address of the settings for `kind`; 0 if the list has none.
task<Result<std::uint16_t>> find_settings(Registers registers, std::uint16_t kind) {
  auto list = co_await read_eeprom(registers, settings_list_word);
  if (!list) co_return list;
  if (*list == 0 || *list == list_end) co_return std::uint16_t{0};
  for (unsigned i = 0; i < list_entries_max; ++i) {
    const auto entry = static_cast<std::uint16_t>(*list + 1 + 2 * i);
    auto found = co_await read_eeprom(registers, entry);
    if (!found) co_return found;
    if (*found == list_end) break;
    if (*found != kind) continue;
    auto address = co_await read_eeprom(registers, static_cast<std::uint16_t>(entry + 1));
    if (address && *address == list_end) co_return std::uint16_t{0};
    co_return address;
  }
  co_return std::uint16_t{0};
}

}  // namespace

task<Result<std::uint16_t>> read_eeprom(Registers registers, std::uint16_t address) {
  registers.write(reg::EERD, {.start = true, .address = address});
  auto word =
      co_await wait_for(registers, reg::EERD, [](reg::Eerd value) { return value.done; }, 100ms, "ixgbe: EERD.DONE did not come up");
  if (!word) co_return std::unexpected(word.error());
  co_return static_cast<std::uint16_t>(registers.read(reg::EERD).data);
}

task<Result<SfpKind>> identify_sfp(Registers registers) {
  const SharedResource bus = port_of(registers) == 0 ? SharedResource::phy0 : SharedResource::phy1;
  auto turn = co_await acquire(registers, guard, bus);
  if (!turn) co_return std::unexpected(turn.error());
  auto kind = sff_8472::read_kind(TwoWireBus(ModuleLines(registers)));
  auto given_back = co_await release(registers, guard, bus);
  if (!given_back) co_return std::unexpected(given_back.error());
  co_return kind;
}

task<Result<void>> load_sfp_settings(Registers registers, SfpKind kind) {
  const std::uint16_t first_port = kind == SfpKind::direct_attach ? kind_direct_attach_port0 : kind_optical_port0;
  auto address = co_await find_settings(registers, static_cast<std::uint16_t>(first_port + port_of(registers)));
  if (!address) co_return std::unexpected(address.error());
  if (*address == 0) co_return failure(ErrorCode::not_found, "ixgbe: EEPROM has no settings for this module", first_port);

  auto turn = co_await acquire(registers, guard, SharedResource::mac);
  if (!turn) co_return turn;
  Result<void> done;
  for (unsigned i = 1; done; ++i) {
    auto word = co_await read_eeprom(registers, static_cast<std::uint16_t>(*address + i));
    if (!word) {
      done = std::unexpected(word.error());
    } else if (*word == list_end) {
      break;
    } else if (i > settings_words_max) {
      done = failure(ErrorCode::device, "ixgbe: EEPROM settings of the module have no end", *address);
    } else {
      registers.write(reg::CORECTL, reg::Corectl::from_raw(*word));
    }
  }
  registers.flush();
  auto given_back = co_await release(registers, guard, SharedResource::mac);
  co_return done ? given_back : done;
}

}  // namespace neap::ixgbe
