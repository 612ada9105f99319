// SPDX-License-Identifier: BSL-1.0
#include "kernel/x86/firmware/this_machine.hpp"

#include <algorithm>
#include <atomic>

#include "kernel/console.hpp"
#include "kernel/machine.hpp"
#include "kernel/x86/acpi.hpp"
#include "kernel/x86/clock.hpp"
#include "kernel/x86/cpu.hpp"
#include "kernel/x86/firmware/cpu_facts.hpp"
#include "kernel/x86/firmware/memory_types.hpp"
#include "kernel/x86/firmware/remapping.hpp"
#include "kernel/x86/memory.hpp"
#include "kernel/x86/paging.hpp"
#include "kernel/x86/power/this_cpu.hpp"

namespace neap::x86::firmware {

namespace {

constinit std::uint64_t first_core_fingerprint = 0;
constinit std::atomic<bool> difference_reported{false};

void print_cpu() {
  auto& cpu = power::cpu_access();
  const auto identity = cpu_facts::identify(cpu);
  Line line;
  line << "cpu: " << (identity.name[0] != '\0' ? identity.name.data() : "without a name") << ", family " << identity.family << " model "
       << identity.model << " stepping " << identity.stepping;
  if (const auto revision = cpu_facts::microcode(cpu)) line << ", microcode " << hex(*revision);
  if (identity.hypervisor) line << ", under a hypervisor";
  if (const auto interrupts = cpu_facts::system_management_interrupts(cpu)) line << ", " << *interrupts << " SMIs since reset";
  line.print();
}

void check_memory_types() {
  const auto ranges = mtrr::read(power::cpu_access());
  if (!ranges.there) return;
  first_core_fingerprint = ranges.fingerprint;
  if (!ranges.on) {
    // The smallest firmware of virtual machines (qboot) leaves them off. The hypervisor's own page tables then decide what is cached.
    if (cpu_facts::identify(power::cpu_access()).hypervisor) return;
    print("neap: firmware left the MTRRs off: no memory is cached, everything will be very slow");
    return;
  }
  for (const auto& range : memory::installed()) {
    // The first MiB has its own MTRRs and is not used.
    const auto first = std::max(range.physical, std::uint64_t{1} << 20), end = range.physical + range.bytes;
    const auto slow = mtrr::first_slow(ranges, first, end);
    if (slow.first >= slow.end) continue;
    print("neap: firmware made RAM from ", hex(slow.first), " to ", hex(slow.end), " ", mtrr::name_of(slow.type),
          " by its MTRRs: access to it will be slow");
  }
}

class UnitPage final : public remapping::Registers {
 public:
  explicit UnitPage(volatile std::byte* page) : page_(page) {}
  [[nodiscard]] std::uint32_t read(std::uint32_t offset) noexcept override {
    return *reinterpret_cast<volatile std::uint32_t*>(page_ + offset);
  }
  void write(std::uint32_t offset, std::uint32_t value) noexcept override {
    *reinterpret_cast<volatile std::uint32_t*>(page_ + offset) = value;
  }
  void pause() noexcept override { wait_ns(10'000); }

 private:
  volatile std::byte* page_;
};

void turn_off_remapping() {
  const auto& units = acpi::tables().remapping;
  if (units.refused != 0) print("neap: ", units.refused, " IOMMUs that ACPI lists are invalid or too many and were not checked");
  for (std::size_t i = 0; i < units.count; ++i) {
    constexpr std::uint64_t page_bytes = 4096;
    const auto page = paging::map(units.bases[i], page_bytes, paging::Access::read_write, paging::Cache::uncached);
    if (!page) {
      print("neap: the IOMMU at ", hex(units.bases[i]), " cannot be reached: ", page.error().message);
      continue;
    }
    UnitPage registers(*page);
    const auto found = remapping::turn_off(registers);
    if (found.absent) print("neap: no device responds at ", hex(units.bases[i]), ", where ACPI lists an IOMMU");
    if (!found.anything()) continue;
    print("neap: firmware left the IOMMU at ", hex(units.bases[i]), " on:", found.translation ? " DMA" : "",
          found.interrupts ? " interrupts" : "", found.queued_invalidation ? " queue" : "",
          found.protected_memory ? " protected memory" : "",
          found.stuck ? "; it could not be turned off, and the card may not work: turn VT-d off in the BIOS" : "; turned off");
  }
}

}  // namespace

void check_machine() {
  print_cpu();
  check_memory_types();
  turn_off_remapping();
}

void check_core(unsigned core) {
  // A real core's MTRRs survive the INIT that starts it (SDM 3A, table 10-1); QEMU's do not.
  if (features().hypervisor) return;
  const auto ranges = mtrr::read(power::cpu_access());
  if (!ranges.there || ranges.fingerprint == first_core_fingerprint) return;
  if (!difference_reported.exchange(true)) print("neap: the MTRRs of core ", core, " differ from those of core 0: a firmware defect");
}

}  // namespace neap::x86::firmware

namespace neap::machine {

std::optional<std::uint32_t> system_management_interrupts() noexcept {
  return x86::cpu_facts::system_management_interrupts(x86::power::cpu_access());
}

}  // namespace neap::machine
