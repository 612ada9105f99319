// SPDX-License-Identifier: BSL-1.0
// The work that this core has for itself, as bits of one word.
//
// An interrupt that announces one frame causes one round of the event loop. In nearly all of these rounds there is nothing but that frame.
// So a round tests this word instead of a queue, a list or a flag for each kind of work. Only the core itself reads and writes the word;
// work from other cores is announced in `Core::wake_word`. A bit MAY be set without work: the loop then looks once and clears it.
// Kernel-internal.
#pragma once

#include <cstdint>

namespace neap {

namespace work_bits {
/// The lowest bits stand for event-end hooks that were requested, one bit for each hook.
constexpr unsigned end_hooks_max = 24;
constexpr std::uint32_t end_hooks = (1U << end_hooks_max) - 1;
constexpr std::uint32_t local = 1U << 24;   ///< events of this core are queued
constexpr std::uint32_t remote = 1U << 25;  ///< work from other cores was found, and some of it is left for the next round
constexpr std::uint32_t rcu = 1U << 26;     ///< retired nodes wait
constexpr std::uint32_t heap = 1U << 27;    ///< objects of other cores were freed, or returned objects are not yet in their slabs
constexpr std::uint32_t spare = 1U << 28;   ///< there is more memory for events than an idle core keeps
constexpr std::uint32_t policy = 1U << 29;  ///< not work: the core's idle policy needs more than a sleep in a fixed state
}  // namespace work_bits

extern constinit thread_local std::uint32_t core_work;

}  // namespace neap
