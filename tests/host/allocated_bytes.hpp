// SPDX-License-Identifier: BSL-1.0
// The bytes that this process has allocated, for tests of memory accounting.
#pragma once

#include <malloc.h>

#include <cstddef>

#ifdef __SANITIZE_ADDRESS__
extern "C" std::size_t __sanitizer_get_current_allocated_bytes();  // declared here, because some systems lack its header
#endif

namespace neap::host {

inline std::size_t allocated_bytes() {
#ifdef __SANITIZE_ADDRESS__
  return __sanitizer_get_current_allocated_bytes();
#else
  const auto info = mallinfo2();
  return info.uordblks + info.hblkhd;
#endif
}

}  // namespace neap::host
