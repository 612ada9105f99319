// SPDX-License-Identifier: BSL-1.0
// The members of a log's header that say what the run was a run of: build, command line, CPU, firmware, card.
//
// A value that is not known is absent. Texts come from the build, the boot loader and hardware, so their lengths are bounded here.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "kernel/machine_facts.hpp"
#include "observe/json.hpp"
#include "observe/log_file.hpp"

namespace neap::observe {

/// Adds the members to `json`, whose `bytes()` is at most `end` afterwards. Members for which there is no room are left out; the command
/// line is added last and is cut.
void add_configuration(Json& json, const BootFacts& boot, const RunCard* card, std::size_t end);

/// Longer texts are cut to this length, and then end with `...`.
constexpr std::size_t header_text_bytes_max = 128;
[[nodiscard]] std::string bounded(std::string_view text);

/// Family, model and stepping as hexadecimal digits: "06-2d-07".
[[nodiscard]] std::string signature_text(const MachineFacts::Signature& signature);
/// The commit's digits, with `+` at the end if a file differed from it; empty if the build did not know it. `name` is as `neap_commit`.
[[nodiscard]] std::string commit_text(std::string_view name);

}  // namespace neap::observe
