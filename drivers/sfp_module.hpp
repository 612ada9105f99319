// SPDX-License-Identifier: BSL-1.0
// Identifies a pluggable module over its two-wire bus, by SFF-8472.
//
// A card needs different analog settings for a cable and for an optic. The module identifies itself in the first bytes of device A0h on its
// bus. These bytes do not depend on the card.
#pragma once

#include <cstdint>

#include "drivers/two_wire_bus.hpp"
#include "kernel/error.hpp"

namespace neap {

/// The kinds of modules that need different settings at 10 Gb/s.
enum class SfpKind : std::uint8_t {
  direct_attach,  ///< passive copper cable
  optical,        ///< short or long range optic, or active copper cable
};

[[nodiscard]] constexpr const char* name_of(SfpKind kind) noexcept {
  return kind == SfpKind::direct_attach ? "direct attach cable" : "optical module";
}

namespace sff_8472 {

// SFF-8472, table 4-1: offsets of bytes in device A0h, and values of these bytes.
constexpr std::uint8_t module_address = 0xA0, identifier_offset = 0, ethernet_10g_offset = 3, cable_offset = 8;
constexpr std::uint8_t identifier_sfp = 3, code_10g_sr = 1 << 4, code_10g_lr = 1 << 5;
constexpr std::uint8_t cable_passive = 1 << 2, cable_active = 1 << 3;

/// Reads the byte at `offset`. Errors: `not_found` (no module responds).
template <class Lines>
[[nodiscard]] Result<std::uint8_t> read(const TwoWireBus<Lines>& bus, std::uint8_t offset) {
  constexpr unsigned attempts = 3;
  for (unsigned i = 0; i < attempts; ++i) {
    std::uint8_t value = 0;
    if (bus.read(module_address, offset, value)) return value;
  }
  return failure(ErrorCode::not_found, "no SFP+ module responds", offset);
}

/// Reads the module's kind in about 3 ms. Errors: `not_found` (no module responds), `unsupported` (not a known 10 Gb/s module).
template <class Lines>
[[nodiscard]] Result<SfpKind> read_kind(const TwoWireBus<Lines>& bus) {
  const auto identifier = read(bus, identifier_offset);
  if (!identifier) return std::unexpected(identifier.error());
  if (*identifier != identifier_sfp) return failure(ErrorCode::unsupported, "the module is not an SFP", *identifier);
  const auto cable = read(bus, cable_offset);
  if (!cable) return std::unexpected(cable.error());
  if ((*cable & cable_passive) != 0) return SfpKind::direct_attach;
  if ((*cable & cable_active) != 0) return SfpKind::optical;
  const auto codes = read(bus, ethernet_10g_offset);
  if (!codes) return std::unexpected(codes.error());
  if ((*codes & (code_10g_sr | code_10g_lr)) != 0) return SfpKind::optical;
  return failure(ErrorCode::unsupported, "the module is not a known 10 Gb/s module", *codes);
}

}  // namespace sff_8472
}  // namespace neap
