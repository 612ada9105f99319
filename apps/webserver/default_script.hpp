// SPDX-License-Identifier: BSL-1.0
// The script that the image runs without a boot module: scripts/hello.js, as an archive inside the image.
#pragma once

#include <cstddef>
#include <span>

extern "C" {
extern const std::byte neap_webserver_default_script_begin[];
extern const std::byte neap_webserver_default_script_end[];
}

namespace neap::webserver {

[[nodiscard]] inline std::span<const std::byte> default_script() noexcept {
  return {neap_webserver_default_script_begin,
          static_cast<std::size_t>(neap_webserver_default_script_end - neap_webserver_default_script_begin)};
}

}  // namespace neap::webserver
