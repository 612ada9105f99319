// SPDX-License-Identifier: BSL-1.0
// The interface between the portable kernel and the machine.
//
// Two machines exist: `kernel/x86/` (bare metal) and `tests/host/` (one host thread for each core, so that unit tests and sanitizers run
// the kernel's own sources). All code that touches the CPU or the chipset is behind these functions; nothing else in `kernel/` may include
// `kernel/x86/`. Unless stated otherwise, a function may be called on any core, outside interrupt handlers.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <expected>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "kernel/error.hpp"
#include "kernel/machine_facts.hpp"
#include "kernel/power.hpp"

namespace neap {
class WakeWord;
class WatchedLine;
}  // namespace neap

namespace neap::machine {

constexpr unsigned cores_max = 256;

// --- Cores -------------------------------------------------------------------------------------------------------------------------------
/// Cores that run, 1 to `cores_max`; constant once `start_cores` has returned.
[[nodiscard]] unsigned core_count() noexcept;

/// The calling core, 0 to `core_count() - 1`. Core 0 is the one that booted. Costs one thread-local load.
[[nodiscard]] unsigned this_core() noexcept;

/// Number of present cores: those that firmware reports as usable, running or not. Present core 0 is the core that booted.
[[nodiscard]] unsigned cores_present() noexcept;

/// The position of a present core in the machine. Package numbers are dense. The numbers of cores and threads come from the CPU.
struct CorePlace {
  unsigned package = 0, core = 0, thread = 0;
  unsigned node = 0;             ///< NUMA node, numbered as by `node_of`
  unsigned running = cores_max;  ///< its core number if it runs; `cores_max`: it does not run (it is parked)
};
[[nodiscard]] CorePlace present_place(unsigned present) noexcept;

using CoreSet = std::bitset<cores_max>;
/// Starts the present cores in `wanted`, in ascending order; the first is the calling core. Each calls `entry()` on its own stack with its
/// own TLS, and never returns from it. All others are parked for ever: in the deepest idle state, without interrupts. Called once, on core
/// 0. Returns the number of running cores, which is final: before the first core calls `entry`, each core is in or out for ever.
/// A core that does not start within 10 s (30 s under a hypervisor) is out. It is reported on the console, and halts if it starts later.
/// Numbers stay dense. Under a hypervisor the machine ends (`ExitStatus::failure`) if a core in `wanted` is out.
unsigned start_cores(const CoreSet& wanted, void (*entry)()) noexcept;

// --- Sleeping, waking, interrupts --------------------------------------------------------------------------------------------------------
// Interrupts are disabled while events run. They are taken only inside the next two functions, on the core's own stack. For each interrupt
// the machine calls `neap::interrupt_arrived(vector)`, or for the alarm `neap::alarm_fired()` (interrupts.hpp), and acknowledges it.

/// Takes pending interrupts and returns. Costs a few cycles if there are none.
void open_interrupt_window() noexcept;

/// Sleeps in `state`, `halt` or `c1` to `c7`, until an interrupt or a request to `word`. Does not sleep if `word` has a request already. If
/// `watched` is not null, `state` is a C-state, and a write to this cache line also ends the sleep, or prevents it if it came after the
/// line was copied. The caller MUST pass a state that the CPU has (policy.hpp refuses others), and MUST have checked all other reasons to
/// stay awake: nothing on this core runs between the call and the sleep. The requests stay in `word`.
Sleep sleep(IdleState state, WakeWord& word, const WatchedLine* watched) noexcept;

/// A short pause between two checks of a polling core. It leaves execution units to other threads of the same physical core.
void pause() noexcept;

/// Ends the present or next `sleep` of `core`. Called after `WakeWord::request` has returned true.
void end_sleep(unsigned core) noexcept;

/// The interrupt vectors that `interrupts.hpp` may allocate on each core. The other vectors belong to exceptions, the alarm and wake-ups.
constexpr unsigned vector_first = 0x30;
constexpr unsigned vector_last = 0xDF;

// --- Time --------------------------------------------------------------------------------------------------------------------------------
/// Nanoseconds since boot, monotonic, equal on all cores within the accuracy of the TSC.
[[nodiscard]] std::uint64_t now_ns() noexcept;

/// The raw counter from which `now_ns` is computed, and its rate in Hz.
[[nodiscard]] std::uint64_t timestamp() noexcept;
[[nodiscard]] std::uint64_t timestamp_hz() noexcept;
/// A timestamp at which `now_ns` is at most `ns`. It is less by some billionths of the time since boot, the rounding of the rate.
[[nodiscard]] std::uint64_t timestamp_before(std::uint64_t ns) noexcept;

/// Wall clock at boot, nanoseconds since 1970-01-01T00:00Z (from the RTC; 1 s resolution on x86).
[[nodiscard]] std::uint64_t wall_clock_at_boot_ns() noexcept;

/// Wakes this core at `deadline_ns` (on the clock of `now_ns`) or a little later. Replaces this core's earlier alarm. `alarm_none` disarms
/// it, so that an idle core without timers takes no interrupt.
constexpr std::uint64_t alarm_none = ~std::uint64_t{0};
void set_alarm(std::uint64_t deadline_ns) noexcept;

// --- Power: abilities of this CPU, settings of this core or its package (kernel/x86/power/) ----------------------------------------------
/// The CPU's abilities, complete once `start_cores` has returned.
[[nodiscard]] const PowerAbilities& power_abilities() noexcept;

/// What the CPU and firmware reported at boot; constant once `start_cores` has returned.
[[nodiscard]] const MachineFacts& facts() noexcept;

/// Physical package of a running core, dense from 0.
[[nodiscard]] unsigned package_of(unsigned core) noexcept;
[[nodiscard]] unsigned package_count() noexcept;

/// The tag by which a card's cache hints (DCA) select a running core. Errors: `unsupported`, with a static text that names what is missing.
[[nodiscard]] Result<std::uint8_t> cache_tag(unsigned core) noexcept;

/// Requests this core's p-state. `raw` is written to IA32_PERF_CTL (clock ratio in bits 15:8). With HWP on, only the ratio is written, to
/// IA32_HWP_REQUEST as minimum and maximum. Errors: `unsupported`.
[[nodiscard]] Result<void> set_pstate(std::uint64_t raw) noexcept;
/// The ratio at which this core runs now (IA32_PERF_STATUS). It differs from the requested ratio if another thread or core that shares its
/// clock requests a higher ratio, or if a limit applies. Errors: `unsupported`.
[[nodiscard]] Result<std::uint8_t> granted_ratio() noexcept;
/// The energy preference of this core's HWP: 0 (speed) to 255 (saving); `firmwares_preference` restores the value that it had at boot.
/// Errors: `unsupported`.
constexpr unsigned firmwares_preference = 256;
[[nodiscard]] Result<void> set_energy_preference(unsigned preference) noexcept;
/// Sets the sustained power limit (PL1) of this core's package and returns the rounded value. 0 restores firmware's limit. Errors:
/// `unsupported` (also if locked), `invalid`.
[[nodiscard]] Result<std::uint32_t> set_power_limit(std::uint32_t milliwatts) noexcept;
/// Turns turbo of this core's package on or off. Errors: `unsupported`.
[[nodiscard]] Result<void> set_turbo(bool on) noexcept;

/// Reads all counters that this CPU has for this core and its package.
[[nodiscard]] CounterSample sample_counters() noexcept;

/// Returns the value that makes a counter count the event `text`: a name from the CPU's list, or `event=0xd1,umask=0x20`. The error is the
/// reason to report, with the accepted names.
[[nodiscard]] std::expected<std::uint32_t, std::string> find_event(std::string_view text);
/// Chooses the events that each core counts in addition, by values of `find_event`; at most `PowerAbilities::free_event_counters`. MUST be
/// called on core 0, before any core calls `count_chosen_events`.
void choose_events(std::span<const std::uint32_t> events) noexcept;
/// Makes this core count the chosen events, from 0 on. Errors: `unsupported` (a register faults).
[[nodiscard]] Result<void> count_chosen_events() noexcept;

/// Number of system management interrupts of this core since reset. During them firmware runs, not Neap. Returns nothing if the CPU does
/// not count them.
[[nodiscard]] std::optional<std::uint32_t> system_management_interrupts() noexcept;

/// Hardware errors of all cores since boot that did not stop the machine. An uncorrected error has damaged data, but no core had used the
/// data.
struct HardwareErrors {
  std::uint64_t corrected = 0, uncorrected = 0;
};
[[nodiscard]] HardwareErrors hardware_errors() noexcept;
/// Reads this core's error banks and counts their errors; takes some microseconds. Two cores that share a bank may both count an error.
void check_hardware_errors() noexcept;

// --- Memory ------------------------------------------------------------------------------------------------------------------------------
/// NUMA nodes: memory and the cores near it, numbered from 0 without gaps, in the order of firmware's numbers. One node if firmware reports
/// none. Nodes beyond `nodes_max` count as node 0.
constexpr unsigned nodes_max = 64;
/// The node of a running core; constant once `start_cores` has returned.
[[nodiscard]] unsigned node_of(unsigned core) noexcept;
/// The distance from the cores of `from` to the memory of `to`, in ACPI's unit. It is 10 for a node's own memory, and 20 for another
/// node's, unless firmware states another distance.
[[nodiscard]] unsigned node_distance(unsigned from, unsigned to) noexcept;

struct MemoryRange {
  std::uint64_t physical, bytes;
  std::uint32_t node;
};

/// RAM that the kernel may use, page aligned, ascending, without overlap; already mapped at `direct_map(physical)`.
[[nodiscard]] std::span<const MemoryRange> usable_memory() noexcept;

[[nodiscard]] void* direct_map(std::uint64_t physical) noexcept;

/// True if `pointer` lies in the direct map, like all allocated memory.
[[nodiscard]] bool in_direct_map(const void* pointer) noexcept;

/// The address that a device uses for `pointer`, which MUST be in the direct map or in the image.
[[nodiscard]] std::uint64_t physical_address(const void* pointer) noexcept;

/// RAM that survives a warm restart on known firmware. It is not part of `usable_memory`. May be empty.
[[nodiscard]] std::span<std::byte> kept_memory() noexcept;
/// Writes the contents of `kept_memory` from the caches to RAM, because a restart discards caches. Slow.
void write_back_caches() noexcept;

/// Random bits from the CPU, or mixed from the clock if the CPU has no generator (reported once at boot).
[[nodiscard]] std::uint64_t random_bits() noexcept;

// --- Console, exit and restart -----------------------------------------------------------------------------------------------------------
/// Writes `text` to the console and to the boot log (boot_log.hpp). May be called anywhere, on any core. Lines of different cores do not
/// mix.
void console_write(std::string_view text) noexcept;

/// The exit status of the machine (`tools/machine.py` decodes it from QEMU's isa-debug-exit).
enum class ExitStatus : std::uint8_t { success = 16, failure = 17, panic = 18, bad_command_line = 19 };

/// Stops all cores. Then an emulator exits; real hardware is powered off (success) or halted (any other status). After a panic with
/// `panic=reboot` the machine is restarted as by `reboot`.
[[noreturn]] void exit(ExitStatus status) noexcept;
[[noreturn]] void power_off() noexcept;
[[noreturn]] void reboot() noexcept;

/// Prints a symbolised backtrace of the caller to the console, without the `skip` innermost frames.
void print_backtrace(unsigned skip) noexcept;

/// The name of the function at address `code`, in `buffer`; empty if there is none.
[[nodiscard]] std::string_view code_name(std::uintptr_t code, std::span<char> buffer) noexcept;

/// Interrupts another core briefly and returns the name of the event that it runs, in `buffer`. Empty if the core runs no event or does not
/// answer within 100 ms (1 s under a hypervisor).
[[nodiscard]] std::string_view event_on(unsigned core, std::span<char> buffer) noexcept;

/// Stops every other core where it is. Returns after they have stopped, or after 100 ms (10 s under a hypervisor). Safe in a panic.
void stop_other_cores() noexcept;

/// Prints where `stop_other_cores` stopped the cores: one line for all cores that slept, and a backtrace for each core that did not (up to
/// a limit).
void print_other_cores() noexcept;

/// The command line from the boot loader, without the image's name.
[[nodiscard]] std::string_view command_line() noexcept;

/// A file that the boot loader has loaded beside the image (Multiboot 1, 3.3; Multiboot 2, 3.6.6). Its bytes come from outside, so a reader
/// MUST check them. They stay in place, and they MUST NOT be written.
struct BootModule {
  std::span<const std::byte> bytes;
  std::string_view name;  ///< the text that the loader gave the module; often the file's path, may be empty
};
constexpr std::size_t boot_modules_max = 8;
/// The modules in the loader's order; a module outside of RAM is left out. The same on all cores.
[[nodiscard]] std::span<const BootModule> boot_modules() noexcept;

}  // namespace neap::machine
