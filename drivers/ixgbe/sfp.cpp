// SPDX-License-Identifier: BSL-1.0
#include "drivers/ixgbe/sfp.hpp"

#include "drivers/ixgbe/semaphore.hpp"
#include "drivers/two_wire_bus.hpp"

namespace neap::ixgbe {

using namespace std::chrono_literals;

namespace {

// SFF-8472, table 4-1: offsets in device A0h and what they say.
constexpr std::uint8_t module_address = 0xA0;
constexpr std::uint8_t identifier_offset = 0;
constexpr std::uint8_t ethernet_10g_offset = 3;
constexpr std::uint8_t cable_offset = 8;
constexpr std::uint8_t identifier_sfp = 3;
constexpr std::uint8_t code_10g_sr = 1 << 4;
constexpr std::uint8_t code_10g_lr = 1 << 5;
constexpr std::uint8_t cable_passive = 1 << 2;
constexpr std::uint8_t cable_active = 1 << 3;

// The EEPROM's list of settings: pairs of a kind and an address, ended by all ones (as Intel's own drivers read it; the datasheet only
// reserves it).
constexpr std::uint16_t settings_list_word = 0x2B;
constexpr std::uint16_t list_end = 0xFFFF;
constexpr std::uint16_t kind_direct_attach_port0 = 3;
constexpr std::uint16_t kind_optical_port0 = 5;
constexpr unsigned list_entries_max = 64;
constexpr unsigned settings_words_max = 512;

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

[[nodiscard]] std::uint32_t port_of(Registers registers) noexcept { return registers.read(reg::STATUS).lan_id & 1; }

[[nodiscard]] Result<std::uint8_t> read_module(Registers registers, std::uint8_t offset) {
  constexpr unsigned attempts = 3;
  for (unsigned i = 0; i < attempts; ++i) {
    std::uint8_t value = 0;
    if (TwoWireBus(ModuleLines(registers)).read(module_address, offset, value)) return value;
  }
  return failure(ErrorCode::not_found, "ixgbe: no SFP+ module answers", offset);
}

[[nodiscard]] Result<SfpKind> read_kind(Registers registers) {
  const auto identifier = read_module(registers, identifier_offset);
  if (!identifier) return std::unexpected(identifier.error());
  if (*identifier != identifier_sfp) return failure(ErrorCode::unsupported, "ixgbe: module is not an SFP", *identifier);
  const auto cable = read_module(registers, cable_offset);
  if (!cable) return std::unexpected(cable.error());
  if ((*cable & cable_passive) != 0) return SfpKind::direct_attach;
  if ((*cable & cable_active) != 0) return SfpKind::optical;
  const auto codes = read_module(registers, ethernet_10g_offset);
  if (!codes) return std::unexpected(codes.error());
  if ((*codes & (code_10g_sr | code_10g_lr)) != 0) return SfpKind::optical;
  return failure(ErrorCode::unsupported, "ixgbe: module is no 10 Gb/s module that this driver knows", *codes);
}

/// Address of the settings for `kind`, 0 if the list has none.
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

// The words that Intel's own tools sum up: the first 63, and the sections that words 3 to 14 point to, each with its length in front.
task<Result<std::uint16_t>> sum_eeprom(Registers registers) {
  constexpr std::uint16_t checksum_word = 0x3F;
  constexpr std::uint16_t first_pointer = 0x03;
  constexpr std::uint16_t last_pointer = 0x0E;
  constexpr std::uint16_t section_words_max = 4096;
  std::uint16_t sum = 0;
  for (std::uint16_t address = 0; address <= checksum_word; ++address) {
    const auto word = co_await read_eeprom(registers, address);
    if (!word) co_return word;
    sum = static_cast<std::uint16_t>(sum + *word);
    if (address < first_pointer || address > last_pointer || *word == 0 || *word == list_end) continue;
    const auto length = co_await read_eeprom(registers, *word);
    if (!length) co_return length;
    for (std::uint16_t i = 1; *length <= section_words_max && i <= *length; ++i) {
      const auto part = co_await read_eeprom(registers, static_cast<std::uint16_t>(*word + i));
      if (!part) co_return part;
      sum = static_cast<std::uint16_t>(sum + *part);
    }
  }
  co_return sum;
}

task<Result<SfpKind>> identify_sfp(Registers registers) {
  const SharedResource bus = port_of(registers) == 0 ? SharedResource::phy0 : SharedResource::phy1;
  auto turn = co_await acquire(registers, bus);
  if (!turn) co_return std::unexpected(turn.error());
  auto kind = read_kind(registers);
  auto given_back = co_await release(registers, bus);
  if (!given_back) co_return std::unexpected(given_back.error());
  co_return kind;
}

task<Result<void>> load_sfp_settings(Registers registers, SfpKind kind) {
  const std::uint16_t first_port = kind == SfpKind::direct_attach ? kind_direct_attach_port0 : kind_optical_port0;
  auto address = co_await find_settings(registers, static_cast<std::uint16_t>(first_port + port_of(registers)));
  if (!address) co_return std::unexpected(address.error());
  if (*address == 0) co_return failure(ErrorCode::not_found, "ixgbe: EEPROM has no settings for this module", first_port);

  auto turn = co_await acquire(registers, SharedResource::mac);
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
  auto given_back = co_await release(registers, SharedResource::mac);
  co_return done ? given_back : done;
}

}  // namespace neap::ixgbe
