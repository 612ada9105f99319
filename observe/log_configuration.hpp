// SPDX-License-Identifier: BSL-1.0
// The members of a log's header that say what the run was a run of: build, command line, CPU, firmware, card.
//
// A value that is not known is absent. Texts come from the build, the boot loader and hardware, so their lengths are bounded here.
#pragma once

#include <cstddef>

#include "observe/json.hpp"
#include "observe/log_file.hpp"

namespace neap::observe {

/// Adds the members to `json`, whose `bytes()` is at most `end` afterwards. Members for which there is no room are left out; the command
/// line is added last and is cut.
void add_configuration(Json& json, const BootFacts& boot, const RunCard* card, std::size_t end);

/// Longer texts are cut to this length, and then end with `...`.
constexpr std::size_t header_text_bytes_max = 128;
[[nodiscard]] std::string bounded(std::string_view text);

}  // namespace neap::observe
