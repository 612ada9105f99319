// SPDX-License-Identifier: BSL-1.0
// The battery-backed clock, read once at boot (Motorola MC146818A data sheet). ACPI locates the century byte.
#pragma once

#include <cstdint>

namespace neap::x86::rtc {

/// Seconds since 1970-01-01T00:00Z if the clock is set to UTC; 0 if it gives no valid time within 20 ms.
[[nodiscard]] std::uint64_t read_unix_seconds();

}  // namespace neap::x86::rtc
