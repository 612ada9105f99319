// SPDX-License-Identifier: BSL-1.0
// The C library's memory functions, for the whole image: the linker takes these before newlib's. CMakeLists.txt compiles this file without
// link-time optimisation, because the compiler calls these functions for code that it makes after that, and without built-in functions,
// because a loop in memcpy must not become a call of memcpy.
#include "kernel/libc/memory_functions.hpp"

#include <cstring>

#include "kernel/libc/vector_memory.hpp"

namespace neap::libc {
constinit bool fast_string_instructions = false;
}  // namespace neap::libc

extern "C" {

void* memcpy(void* __restrict to, const void* __restrict from, std::size_t bytes) {
  return neap::libc::copy(to, from, bytes, neap::libc::fast_string_instructions);
}
void* memmove(void* to, const void* from, std::size_t bytes) {
  return neap::libc::copy(to, from, bytes, neap::libc::fast_string_instructions);
}
void* memset(void* to, int value, std::size_t bytes) { return neap::libc::fill(to, value, bytes, neap::libc::fast_string_instructions); }
int memcmp(const void* one, const void* other, std::size_t bytes) { return neap::libc::compare(one, other, bytes); }
void* memchr(const void* from, int value, std::size_t bytes) { return const_cast<void*>(neap::libc::find(from, value, bytes)); }

}  // extern "C"
