// SPDX-License-Identifier: BSL-1.0
// What the C library's memory functions (memory_functions.cpp) know about the CPU. Kernel-internal, only in images.
#pragma once

namespace neap::libc {

/// True if long copies and fills use REP (ERMS). Set once at start, before other cores run. Until then it is false.
extern bool fast_string_instructions;

}  // namespace neap::libc
