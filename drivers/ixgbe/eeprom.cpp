// SPDX-License-Identifier: BSL-1.0
#include "drivers/ixgbe/eeprom.hpp"

namespace neap::ixgbe {

using namespace std::chrono_literals;

task<Result<std::uint16_t>> read_eeprom(Registers registers, std::uint16_t address) {
  registers.write(reg::EERD, {.start = true, .address = address});
  auto word =
      co_await wait_for(registers, reg::EERD, [](reg::Eerd value) { return value.done; }, 100ms, "ixgbe: EERD.DONE did not come up");
  if (!word) co_return std::unexpected(word.error());
  co_return static_cast<std::uint16_t>(word->data);
}

}  // namespace neap::ixgbe
