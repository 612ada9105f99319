// SPDX-License-Identifier: BSL-1.0
// Detects writes outside of heap objects and writes after `free`.
//
// Without memory protection, a wrong write hits another object's data, and the crash comes later and elsewhere. With the boot option
// `heap=checked` each object is placed between redzones. It is filled with one pattern when allocated and with another when freed, and it
// is then held in a quarantine. A wrong write is found when the object is freed or leaves the quarantine. The panic's message states which
// kind of wrong write it was. The checks cost time and about 80 bytes for each object, so they are for tests. Kernel-internal.
#pragma once

#include <cstddef>

namespace neap::memory {

/// The heap itself (heap.cpp), without checks.
namespace plain {
[[nodiscard]] void* allocate(std::size_t bytes, std::size_t alignment) noexcept;
void deallocate(void* pointer) noexcept;
[[nodiscard]] std::size_t usable_bytes(const void* pointer) noexcept;
}  // namespace plain

namespace checks {

/// Cannot be undone. MUST be called before the first allocation.
void turn_on() noexcept;
[[nodiscard]] bool on() noexcept;

/// As in heap.hpp, but MUST be called only if `on()` is true. Each function panics if it finds a wrong write.
[[nodiscard]] void* allocate(std::size_t bytes, std::size_t alignment) noexcept;
void deallocate(void* pointer) noexcept;
[[nodiscard]] std::size_t usable_bytes(const void* pointer) noexcept;

/// Checks and frees all objects in this core's quarantine.
void release_quarantine() noexcept;
[[nodiscard]] bool quarantined(unsigned core) noexcept;

}  // namespace checks
}  // namespace neap::memory
