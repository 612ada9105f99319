// SPDX-License-Identifier: BSL-1.0
// The card's rows of the table of settings (kernel/policy_rows.hpp). They have the names and numbers of the 82599's rows that mean the
// same.
#pragma once

#include <span>

#include "kernel/policy_rows.hpp"

namespace neap::virtio {

namespace setting {
constexpr policy::Setting budget{8}, coalescing{13}, promiscuous{14};
}  // namespace setting

[[nodiscard]] std::span<const policy::Row> setting_rows() noexcept;

}  // namespace neap::virtio
