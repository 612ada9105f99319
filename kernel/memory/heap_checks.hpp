// SPDX-License-Identifier: BSL-1.0
// Finding who writes where nothing is his.
//
// One byte behind an object's end, a pointer used after `free`: on this machine that is somebody else's data, and the crash comes later and
// elsewhere. With the word `heap=checked` each object lies between redzones, is filled with a pattern when it is given out and with another
// one when it is freed, and stays unused for a while after. What was written in the wrong place is found when the object is freed or leaves
// that quarantine, and ends in a panic that says which of the two it was. It costs some 80 bytes an object, and time: for tests.
// Kernel-internal.
#pragma once

#include <cstddef>

namespace neap::memory {

/// The heap itself (heap.cpp). Its objects know nothing of checks.
namespace plain {
[[nodiscard]] void* allocate(std::size_t bytes, std::size_t alignment) noexcept;
void deallocate(void* pointer) noexcept;
[[nodiscard]] std::size_t usable_bytes(const void* pointer) noexcept;
}  // namespace plain

namespace checks {

/// From now on and for ever; before the first allocation.
void turn_on() noexcept;
[[nodiscard]] bool on() noexcept;

/// As those of heap.hpp; only if `on`. All may panic over what they find.
[[nodiscard]] void* allocate(std::size_t bytes, std::size_t alignment) noexcept;
void deallocate(void* pointer) noexcept;
[[nodiscard]] std::size_t usable_bytes(const void* pointer) noexcept;

/// Frees what this core holds back, after a look at it.
void release_quarantine() noexcept;
/// Whether `core` holds something back.
[[nodiscard]] bool quarantined(unsigned core) noexcept;

}  // namespace checks
}  // namespace neap::memory
