// SPDX-License-Identifier: BSL-1.0
// What the portable kernel asks of the machine under it.
//
// Two machines exist: `kernel/x86/` (bare metal) and `tests/host/` (one host thread a core, so that unit tests and sanitizers run the
// kernel's own sources). Everything that touches the CPU or the chipset is behind these functions; nothing else in `kernel/` may include
// `kernel/x86/`. Unless said otherwise a function may be called on any core, outside interrupt handlers.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "kernel/error.hpp"
#include "kernel/power.hpp"

namespace neap::machine {

constexpr unsigned cores_max = 256;

// --- Cores -------------------------------------------------------------------------------------------------------------------------------

/// Cores that run, 1 to `cores_max`; constant once `start_cores` has returned.
[[nodiscard]] unsigned core_count() noexcept;

/// This core, 0 to `core_count() - 1`. Core 0 is the one that booted. A plain thread-local load.
[[nodiscard]] unsigned this_core() noexcept;

/// Cores that firmware reports as usable, whether they run or not: numbers of a list of its own, which the core that booted heads.
[[nodiscard]] unsigned cores_present() noexcept;

/// Where a present core is. Numbers of packages are dense; those of cores and threads are what the CPU says, each within its package or
/// core.
struct CorePlace {
  unsigned package = 0, core = 0, thread = 0;
  unsigned node = 0;             ///< as `node_of`
  unsigned running = cores_max;  ///< its number among the running cores; `cores_max`: none, it is parked
};
[[nodiscard]] CorePlace present_place(unsigned present) noexcept;

using CoreSet = std::bitset<cores_max>;
/// Starts the present cores named in `wanted`, in their order, the first being the caller; each calls `entry()` on its own stack with its
/// own TLS, and never returns from it. All others are parked: asleep in the deepest state, without interrupts, for ever. Called once, on
/// core 0. Returns how many cores run then (a core that does not come up within 1 s is reported on the console and left out: ids stay
/// dense).
unsigned start_cores(const CoreSet& wanted, void (*entry)()) noexcept;

// --- Sleeping, waking, interrupts --------------------------------------------------------------------------------------------------------
// Interrupts are closed while events run. They are taken only inside the two functions below, on the core's own stack. For each one the
// machine calls `neap::interrupt_arrived(vector)`, or for its alarm `neap::alarm_went_off()` (interrupts.hpp), and acknowledges it.

/// Takes what is pending and returns. Costs a few cycles when there is nothing.
void open_interrupt_window() noexcept;

/// Sleeps in `state` until an interrupt or a `wake` of this core, or for `monitor` until `watched` is written (one cache line; null for the
/// other states). `still_idle()` is asked once more after the machine has made sure that a `wake`, or a write, from now on ends the sleep:
/// so nothing that was queued before the call is slept over. A state that the CPU lacks is not asked for (policy.hpp refuses it); `poll` is
/// no sleep and may not be passed.
Sleep sleep(IdleState state, const volatile void* watched, bool (*still_idle)() noexcept) noexcept;

/// A moment's rest between two looks of a core that polls: frees what other threads of the same physical core can use.
void pause() noexcept;

/// Ends `core`'s present or next `sleep`. Never lost, cheap if it does not sleep.
void wake(unsigned core) noexcept;

/// The range of interrupt vectors that `interrupts.hpp` may hand out on each core (others belong to exceptions, the alarm and wake-ups).
constexpr unsigned vector_first = 0x30;
constexpr unsigned vector_last = 0xDF;

// --- Time --------------------------------------------------------------------------------------------------------------------------------

/// Nanoseconds since boot, monotonic, the same on all cores to within what the TSC gives.
[[nodiscard]] std::uint64_t now_ns() noexcept;

/// The raw counter behind `now_ns` and its rate in Hz.
[[nodiscard]] std::uint64_t timestamp() noexcept;
[[nodiscard]] std::uint64_t timestamp_hz() noexcept;

/// Wall clock at boot, nanoseconds since 1970-01-01T00:00Z (from the RTC; 1 s resolution on x86).
[[nodiscard]] std::uint64_t wall_clock_at_boot_ns() noexcept;

/// Wakes this core at `deadline_ns` (as `now_ns`) or a little later; replaces the earlier alarm. `alarm_none` disarms: an idle core with
/// nothing due takes no interrupt.
constexpr std::uint64_t alarm_none = ~std::uint64_t{0};
void set_alarm(std::uint64_t deadline_ns) noexcept;

// --- Power: what this CPU has, and settings of this core or its package (kernel/x86/power/) ---------------------------------------------

/// Complete once `start_cores` has returned.
[[nodiscard]] const PowerAbilities& power_abilities() noexcept;

/// Physical package of a running core, dense from 0.
[[nodiscard]] unsigned package_of(unsigned core) noexcept;
[[nodiscard]] unsigned package_count() noexcept;

/// The name by which a card gives hints to a running core's cache (DCA). Errors: `unsupported`, with a static text that says what is
/// missing.
[[nodiscard]] Result<std::uint8_t> cache_tag(unsigned core) noexcept;

/// This core's frequency: `raw` goes into IA32_PERF_CTL (ratio in bits 15:8) or, with HWP on, its ratio into IA32_HWP_REQUEST as least and
/// most. Errors: `unsupported`.
[[nodiscard]] Result<void> set_performance(std::uint64_t raw) noexcept;
/// The ratio at which this core runs now (IA32_PERF_STATUS): what it asked for, unless another thread or core that shares its clock asks
/// for more, or a limit holds it down. Errors: `unsupported`.
[[nodiscard]] Result<std::uint8_t> granted_ratio() noexcept;
/// What HWP of this core prefers where it may choose: 0 speed to 255 saving; `firmwares_preference` as firmware had it. Errors:
/// `unsupported`.
constexpr unsigned firmwares_preference = 256;
[[nodiscard]] Result<void> set_energy_preference(unsigned preference) noexcept;
/// This core's package's sustained limit (PL1); returns what it was rounded to. 0: firmware's own limit again. Errors: `unsupported` (also
/// when locked), `invalid`.
[[nodiscard]] Result<std::uint32_t> set_power_limit(std::uint32_t milliwatts) noexcept;
/// Turbo of this core's package. Errors: `unsupported`.
[[nodiscard]] Result<void> set_turbo(bool on) noexcept;

/// Reads this core's and its package's counters, as many as there are.
[[nodiscard]] CounterSample sample_counters() noexcept;

/// System management interrupts, in which firmware takes the machine away, that this core met since reset. None where that is not counted.
[[nodiscard]] std::optional<std::uint32_t> system_management_interrupts() noexcept;

/// Errors of the hardware that stopped nothing, of all cores since boot. An uncorrected one here was not used by any core.
struct HardwareErrors {
  std::uint64_t corrected = 0, uncorrected = 0;
};
[[nodiscard]] HardwareErrors hardware_errors() noexcept;
/// Reads and counts what this core's error banks hold: some microseconds. Two cores that share a bank may both count an error.
void look_for_hardware_errors() noexcept;

// --- Memory ------------------------------------------------------------------------------------------------------------------------------

/// NUMA nodes: memory and the cores near it, numbered from 0 without gaps, in the order of firmware's own numbers. One node where firmware
/// tells of none; nodes beyond `nodes_max` count as node 0.
constexpr unsigned nodes_max = 64;
[[nodiscard]] unsigned node_count() noexcept;
/// Of a running core; constant once `start_cores` has returned.
[[nodiscard]] unsigned node_of(unsigned core) noexcept;
/// How far the memory of node `to` is from the cores of `from`, as ACPI counts it: 10 is its own; 20 for others where firmware does not
/// say.
[[nodiscard]] unsigned node_distance(unsigned from, unsigned to) noexcept;

struct MemoryRange {
  std::uint64_t physical;
  std::uint64_t bytes;
  std::uint32_t node;
};

/// RAM that the kernel may use, page aligned, ascending, without overlap; already mapped at `direct_map(physical)`.
[[nodiscard]] std::span<const MemoryRange> usable_memory() noexcept;

[[nodiscard]] void* direct_map(std::uint64_t physical) noexcept;

/// True if `pointer` lies in the direct map: all memory that is allocated does.
[[nodiscard]] bool in_direct_map(const void* pointer) noexcept;

/// The address a device uses for `pointer`, which lies in the direct map or in the image.
[[nodiscard]] std::uint64_t physical_address(const void* pointer) noexcept;

/// RAM that no restart changes while power stays on, as far as one can know; `usable_memory` leaves it out. May be empty.
[[nodiscard]] std::span<std::byte> kept_memory() noexcept;
/// What was written there leaves the caches, which a restart empties. Slow.
void write_back_caches() noexcept;

/// Random bits from the CPU, or mixed from the clock where it has no generator (said once at boot).
[[nodiscard]] std::uint64_t random_bits() noexcept;

// --- Console and the end -----------------------------------------------------------------------------------------------------------------

/// Writes all of `text` to the console and to the boot log (boot_log.hpp); may be called anywhere, on any core; lines of different cores do
/// not mix.
void console_write(std::string_view text) noexcept;

/// Status that the machine's surroundings see (`tools/machine.py` decodes it from QEMU's isa-debug-exit).
enum class ExitStatus : std::uint8_t { success = 16, failure = 17, panic = 18, bad_command_line = 19 };

/// Stops all cores; ends the emulator, or powers off (success) or halts (anything else) real hardware. After a panic with `panic=reboot`:
/// `reboot`.
[[noreturn]] void exit(ExitStatus status) noexcept;
[[noreturn]] void power_off() noexcept;
[[noreturn]] void reboot() noexcept;

/// Prints a symbolised backtrace of the caller to the console. `skip` innermost frames are left out.
void print_backtrace(unsigned skip) noexcept;

/// The name of the function that holds `code`, in `buffer`; empty if there is none.
[[nodiscard]] std::string_view code_name(std::uintptr_t code, std::span<char> buffer) noexcept;

/// Interrupts another core for a moment, wherever it is, to see which event it runs: its name in `buffer`, empty if it runs none or does
/// not answer within 100 ms.
[[nodiscard]] std::string_view event_on(unsigned core, std::span<char> buffer) noexcept;

/// Asks every other core to stop where it is; returns after they did, or 100 ms (10 s under a hypervisor). Safe in a panic.
void stop_other_cores() noexcept;

/// Prints where the cores were that `stop_other_cores` stopped: who sleeps in a line for all, of others a backtrace, of many the first.
void print_other_cores() noexcept;

/// The words that the boot loader passed, without the image's name.
[[nodiscard]] std::string_view command_line() noexcept;

}  // namespace neap::machine
