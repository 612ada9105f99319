// SPDX-License-Identifier: BSL-1.0
#include "kernel/x86/clock.hpp"

#include <algorithm>
#include <array>

#include "kernel/console.hpp"
#include "kernel/machine.hpp"
#include "kernel/panic.hpp"
#include "kernel/x86/acpi.hpp"
#include "kernel/x86/apic.hpp"
#include "kernel/x86/cores.hpp"
#include "kernel/x86/cpu.hpp"
#include "kernel/x86/firmware/cpu_facts.hpp"
#include "kernel/x86/msr.hpp"
#include "kernel/x86/paging.hpp"
#include "kernel/x86/power/this_cpu.hpp"
#include "kernel/x86/rtc.hpp"

namespace neap::x86 {

namespace {

__extension__ using Wide = unsigned __int128;

constexpr std::uint64_t second_ns = 1'000'000'000;
// Used before the rate is known. It is above the rate of most CPUs, so most waits last longer than stated, and none is much shorter.
constexpr std::uint64_t guessed_hz = 4'000'000'000;
constexpr unsigned factor_shift = 32;
constexpr Wide ticks_max = Wide{1} << 62;  // a later deadline never matters
constinit std::uint64_t tsc_hz = guessed_hz, tsc_at_boot = 0;
constinit std::uint64_t ns_factor = (second_ns << factor_shift) / guessed_hz;
constinit std::uint64_t ticks_factor = guessed_hz / second_ns << factor_shift;
constinit std::uint64_t apic_timer_hz = 0;
constinit bool by_deadline = false;  // the alarm uses the timer's TSC-deadline mode
constinit std::uint64_t wall_clock_ns = 0;
constinit thread_local std::uint64_t alarm_deadline_ns = machine::alarm_none;

std::uint64_t ticks_to_ns(std::uint64_t ticks, std::uint64_t factor) {
  return static_cast<std::uint64_t>(Wide{ticks} * factor >> factor_shift);
}

// --- Rates stated by the CPU or a hypervisor ---------------------------------------------------------------------------------------------
std::uint64_t stated_tsc_hz() {
  const auto& cpu = features();
  if (cpu.hypervisor) {
    constexpr std::uint32_t hypervisor_leaf = 0x40000000, timing_leaf = 0x40000010;
    if (const auto largest = cpuid(hypervisor_leaf).eax; largest >= timing_leaf && largest < hypervisor_leaf + 0x10000) {
      if (const auto khz = cpuid(timing_leaf).eax; khz != 0) return std::uint64_t{khz} * 1000;
    }
  }
  if (!cpu.intel) return 0;
  if (cpu.largest_leaf >= 0x15) {
    const auto ratio = cpuid(0x15);
    std::uint64_t crystal_hz = ratio.ecx;
    if (ratio.eax != 0 && ratio.ebx != 0) {
      // Some models omit the crystal's rate. On these models the base frequency of leaf 0x16 is the TSC's rate (SDM 3B, 19.7.3).
      if (crystal_hz != 0) return crystal_hz * ratio.ebx / ratio.eax;
      if (cpu.largest_leaf >= 0x16) {
        if (const auto mhz = cpuid(0x16).eax & 0xffff; mhz != 0) return std::uint64_t{mhz} * 1'000'000;
      }
    }
  }
  // Sandy Bridge to Broadwell report the TSC's ratio to a 100 MHz clock (SDM 4, MSR_PLATFORM_INFO). A hypervisor's answer is not reliable.
  constexpr std::array<std::uint8_t, 12> models_with_ratio{0x2a, 0x2d, 0x3a, 0x3e, 0x3c, 0x3f, 0x45, 0x46, 0x3d, 0x47, 0x4f, 0x56};
  if (!cpu.hypervisor && cpu.family == 6 && std::ranges::contains(models_with_ratio, cpu.model)) {
    if (const auto info = read_msr(msr_platform_info)) {
      if (const auto ratio = *info >> 8 & 0xff; ratio != 0) return ratio * 100'000'000;
    }
  }
  return 0;
}

// --- Measuring the rates -----------------------------------------------------------------------------------------------------------------

// A timer of known rate, read as a count that goes up and wraps.
struct Reference {
  enum class Kind : std::uint8_t { power_timer_port, power_timer_memory, pit } kind;
  std::uint32_t hz, mask;
  std::uint16_t port;
  const volatile std::uint32_t* cell;

  [[nodiscard]] std::uint32_t read() const {
    switch (kind) {
      case Kind::power_timer_port:
        return in32(port) & mask;
      case Kind::power_timer_memory:
        return *cell & mask;
      case Kind::pit:
        break;
    }
    // Counter 2 of the 8254 counts down; latch it, then read low and high byte (Intel 8254 data sheet, "counter latch command").
    constexpr std::uint16_t command = 0x43, counter2 = 0x42;
    constexpr std::uint8_t latch_counter2 = 0x80;
    out8(command, latch_counter2);
    const std::uint32_t low = in8(counter2);
    return (0xffff - (low | std::uint32_t{in8(counter2)} << 8)) & mask;
  }
};

Reference find_reference() {
  constexpr std::uint32_t power_timer_hz = 3'579'545, pit_hz = 1'193'182;
  const auto& tables = acpi::tables();
  const std::uint32_t mask = tables.power_timer_32_bits ? 0xffffffff : 0x00ffffff;
  if (const auto timer = tables.power_timer; timer.address != 0) {
    Reference reference{.kind = Reference::Kind::power_timer_port, .hz = power_timer_hz, .mask = mask, .port = 0, .cell = nullptr};
    if (timer.space == acpi::Register::Space::port) {
      reference.port = static_cast<std::uint16_t>(timer.address);
    } else if (const auto mapped = paging::map(timer.address, 4, paging::Access::read, paging::Cache::uncached)) {
      reference.kind = Reference::Kind::power_timer_memory;
      reference.cell = reinterpret_cast<const volatile std::uint32_t*>(*mapped);
    }
    // Firmware may list timers that do not run, so a timer is used only if it counts.
    const auto first = reference.port != 0 || reference.cell != nullptr ? reference.read() : 0;
    for (unsigned i = 0; (reference.port != 0 || reference.cell != nullptr) && i < 1000; ++i) {
      if (reference.read() != first) return reference;
    }
  }
  // Gate of counter 2 on, speaker off; counts from 65536 in mode 2 (port 61h: Intel chipset datasheets, "NMI status and control").
  constexpr std::uint16_t control = 0x61, command = 0x43, counter2 = 0x42;
  constexpr std::uint8_t gate = 0x01, speaker = 0x02, counter2_both_bytes_mode2 = 0xb4;
  out8(control, static_cast<std::uint8_t>((in8(control) & ~speaker) | gate));
  out8(command, counter2_both_bytes_mode2);
  out8(counter2, 0);
  out8(counter2, 0);
  return {.kind = Reference::Kind::pit, .hz = pit_hz, .mask = 0xffff, .port = 0, .cell = nullptr};
}

struct Reading {
  std::uint64_t tsc;
  std::uint32_t reference, apic_timer;
};

// Reads TSC, reference timer and APIC timer at one moment. Keeps the fastest of several attempts, to exclude SMIs and pauses by a host.
Reading read_together(const Reference& reference) {
  Reading best{};
  std::uint64_t shortest = ~std::uint64_t{0};
  for (unsigned i = 0; i < 12; ++i) {
    const auto before = read_tsc_ordered();
    const auto count = reference.read();
    const auto left = apic::timer_left();
    const auto after = read_tsc_ordered();
    if (after - before >= shortest) continue;
    shortest = after - before;
    best = {.tsc = before + (after - before) / 2, .reference = count, .apic_timer = left};
  }
  return best;
}

void measure(bool tsc_known) {
  constexpr std::uint32_t measurements_per_second = 125;  // 8 ms each
  const auto reference = find_reference();
  apic::set_timer(apic::TimerMode::one_shot, apic::vector_alarm, true);
  apic::start_timer(0xffffffff);
  const auto first = read_together(reference);
  const auto limit_tsc = guessed_hz / 10;  // bounds the wait if the reference timer stops
  while (((reference.read() - first.reference) & reference.mask) < reference.hz / measurements_per_second &&
         read_tsc() - first.tsc < limit_tsc)
    pause();
  const auto last = read_together(reference);
  apic::start_timer(0);
  std::uint64_t ticks = (last.reference - first.reference) & reference.mask;
  if (ticks < reference.hz / measurements_per_second) ticks = 0;  // the reference timer stopped, so its count is useless
  std::uint64_t hz = reference.hz;
  if (tsc_known) {  // a known TSC is a better reference than the timer
    ticks = last.tsc - first.tsc;
    hz = tsc_hz;
  } else if (ticks != 0) {
    tsc_hz = static_cast<std::uint64_t>(Wide{last.tsc - first.tsc} * hz / ticks);
  } else {
    print("neap: no timer of known rate counts; the clock assumes a TSC of ", guessed_hz, " Hz");
    ticks = last.tsc - first.tsc;
    hz = guessed_hz;
  }
  apic_timer_hz = static_cast<std::uint64_t>(Wide{first.apic_timer - last.apic_timer} * hz / ticks);
}

}  // namespace

std::uint64_t rough_ns() { return ticks_to_ns(read_tsc(), ns_factor); }

WaitLimit::WaitLimit(std::uint64_t limit_ns)
    : start_tsc_(read_tsc()), ticks_(static_cast<std::uint64_t>(std::min(Wide{limit_ns} * ticks_factor >> factor_shift, ticks_max))) {}

void wait_ns(std::uint64_t duration_ns) {
  const WaitLimit limit(duration_ns);
  while (!limit.passed()) pause();
}

// MUST run before the first core writes IA32_TSC_ADJUST.
void choose_alarm() {
  by_deadline = features().tsc_deadline;
  auto& cpu = power::cpu_access();
  if (!by_deadline || !cpu_facts::deadline_may_fail(cpu_facts::identify(cpu), cpu_facts::microcode(cpu).value_or(0))) return;
  by_deadline = false;
  print("neap: this microcode has an erratum of TSC-deadline alarms, so the APIC timer counts down instead: update the BIOS");
}

void initialise_clock() {
  choose_alarm();
  if (tsc_at_boot == 0) tsc_at_boot = read_tsc();
  const auto stated = stated_tsc_hz();
  if (stated != 0) tsc_hz = stated;
  if (stated == 0 || !by_deadline) measure(stated != 0);
  ns_factor = static_cast<std::uint64_t>((Wide{second_ns} << factor_shift) / tsc_hz);
  require(ns_factor != 0, "clock: an impossible TSC rate", tsc_hz);
  ticks_factor = static_cast<std::uint64_t>((Wide{tsc_hz} << factor_shift) / second_ns);
  const auto seconds = rtc::read_unix_seconds();
  const auto since_boot_ns = machine::now_ns();
  wall_clock_ns = seconds == 0 ? 0 : seconds * second_ns - since_boot_ns;
}

void mark_boot() { tsc_at_boot = read_tsc(); }

void initialise_alarm() {
  require(tsc_at_boot != 0, "initialise_alarm before initialise_clock");
  alarm_deadline_ns = machine::alarm_none;
  apic::set_timer(by_deadline ? apic::TimerMode::tsc_deadline : apic::TimerMode::one_shot, apic::vector_alarm, false);
}

void alarm_arrived() {
  // The APIC's timer has its own rate, and 32 bits may be too few for the whole delay. So the interrupt may be early.
  const auto deadline_ns = alarm_deadline_ns;
  if (deadline_ns == machine::alarm_none) return;
  if (machine::now_ns() < deadline_ns) {
    machine::set_alarm(deadline_ns);
  } else {
    alarm_deadline_ns = machine::alarm_none;
  }
}

}  // namespace neap::x86

namespace neap::machine {

using namespace x86;

std::uint64_t timestamp() noexcept { return read_tsc() + this_core_tsc_offset(); }
std::uint64_t timestamp_hz() noexcept { return tsc_hz; }
std::uint64_t now_ns() noexcept { return ticks_to_ns(timestamp() - tsc_at_boot, ns_factor); }
// Both factors are rounded down, so `now_ns` at the result is not above `ns`.
std::uint64_t timestamp_before(std::uint64_t ns) noexcept {
  return tsc_at_boot + static_cast<std::uint64_t>(std::min(Wide{ns} * ticks_factor >> factor_shift, ticks_max));
}
std::uint64_t wall_clock_at_boot_ns() noexcept { return wall_clock_ns; }

void set_alarm(std::uint64_t deadline_ns) noexcept {
  alarm_deadline_ns = deadline_ns;
  if (deadline_ns == alarm_none) {
    if (by_deadline) {
      write_msr_known(msr_tsc_deadline, 0);
    } else {
      apic::start_timer(0);
    }
    return;
  }
  const auto now = now_ns();
  const auto left_ns = deadline_ns > now ? deadline_ns - now : 0;
  if (by_deadline) {
    // The MSR is compared with this core's own TSC. One tick is added to the quotient, so that the alarm is never early.
    const auto ticks = static_cast<std::uint64_t>(std::min((Wide{left_ns} << factor_shift) / ns_factor + 1, ticks_max));
    write_msr_known(msr_tsc_deadline, read_tsc() + ticks);
    return;
  }
  const auto ticks = std::min<Wide>(Wide{left_ns} * apic_timer_hz / second_ns + 1, 0xffffffff);
  apic::start_timer(static_cast<std::uint32_t>(ticks));
}

}  // namespace neap::machine
