// SPDX-License-Identifier: BSL-1.0
#pragma once

namespace neap::x86 {

/// Scans every function of every bus. Called on core 0, after ACPI is read and mappings can be made.
void scan_pci();

}  // namespace neap::x86
