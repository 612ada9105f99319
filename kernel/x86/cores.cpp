// SPDX-License-Identifier: BSL-1.0
#include "kernel/x86/cores.hpp"

#include <array>
#include <atomic>

#include "kernel/machine.hpp"
#include "kernel/memory/page_allocator.hpp"
#include "kernel/panic.hpp"
#include "kernel/x86/acpi.hpp"
#include "kernel/x86/apic.hpp"
#include "kernel/x86/cpu.hpp"
#include "kernel/x86/descriptors.hpp"
#include "kernel/x86/layout.hpp"
#include "kernel/x86/power/this_cpu.hpp"
#include "kernel/x86/topology.hpp"

namespace neap::x86 {

namespace {

constinit std::array<std::uint32_t, machine::cores_max> apic_ids{};
constinit std::array<std::uint8_t, machine::cores_max> nodes{};
constinit std::array<PresentCore, machine::cores_max> present_list{};
constinit unsigned present_count = 0;
constinit Topology topology{};
constinit std::atomic<unsigned> running{1};
constinit thread_local unsigned core_number = 0;
constinit thread_local std::uint64_t tsc_offset = 0;
constinit std::uint64_t first_core_thread_pointer = 0;

std::uint8_t node_of_apic(std::uint32_t apic_id) {
  for (const auto& core : acpi::tables().cores) {
    if (core.apic_id == apic_id) return static_cast<std::uint8_t>(core.node);
  }
  return 0;
}

}  // namespace

void initialise_first_core() {
  require(present_count == 0, "initialise_first_core called twice");
  give_number(0, apic::this_id());
  neap::memory::prefer_node(nodes[0]);
  present_list[present_count++] = {.apic_id = apic_ids[0], .running = 0};
  for (const auto& core : acpi::tables().cores) {
    if (core.apic_id == apic_ids[0] || present_count == present_list.size()) continue;
    if (!apic::is_x2apic() && core.apic_id >= 0xff) continue;
    present_list[present_count++] = {.apic_id = core.apic_id, .running = machine::cores_max};
  }
  topology = find_topology(power::cpu_access());
}

std::span<PresentCore> present_cores() { return std::span(present_list).first(present_count); }

void give_number(unsigned core, std::uint32_t apic_id) {
  require(core < machine::cores_max, "give_number: no such core", core);
  apic_ids[core] = apic_id;
  nodes[core] = node_of_apic(apic_id);
}

void set_running_cores(unsigned count) {
  require(count >= 1 && count <= present_count, "set_running_cores: out of range", count);
  running.store(count, std::memory_order_release);
}

void take_number(unsigned core) {
  core_number = core;
  neap::memory::prefer_node(nodes[core]);
}

void set_tsc_offset(std::uint64_t offset) { tsc_offset = offset; }

std::uint32_t apic_id_of(unsigned core) {
  require(core < machine::cores_max, "apic_id_of: no such core", core);
  return apic_ids[core];
}

std::uint64_t this_core_tsc_offset() { return tsc_offset; }

void use_first_core_tls() {
  first_core_thread_pointer = prepare_tls(first_core_tls);
  use_first_core_tls_pointer();
}

void use_first_core_tls_pointer() {
  require(first_core_thread_pointer != 0, "use_first_core_tls_pointer before use_first_core_tls");
  write_msr_known(msr_fs_base, first_core_thread_pointer);
}

}  // namespace neap::x86

namespace neap::machine {

using namespace x86;

unsigned core_count() noexcept { return running.load(std::memory_order_relaxed); }
unsigned this_core() noexcept { return core_number; }

unsigned node_of(unsigned core) noexcept {
  require(core < cores_max, "node_of: no such core", core);
  return nodes[core];
}

unsigned cores_present() noexcept { return present_count; }

CorePlace present_place(unsigned present) noexcept {
  require(present < present_count, "present_place: no such core", present);
  const auto package_id = [](unsigned i) { return present_list[i].apic_id >> topology.package_shift; };
  // Packages get dense numbers, in the order of first appearance.
  unsigned package = 0;
  for (unsigned i = 0; package_id(i) != package_id(present); ++i) {
    bool first = true;
    for (unsigned before = 0; before < i && first; ++before) first = package_id(before) != package_id(i);
    package += first;
  }
  const auto inside = present_list[present].apic_id & ((std::uint64_t{1} << topology.package_shift) - 1);
  return {.package = package,
          .core = static_cast<unsigned>(inside >> topology.thread_bits),
          .thread = static_cast<unsigned>(inside & ((std::uint64_t{1} << topology.thread_bits) - 1)),
          .node = node_of_apic(present_list[present].apic_id),
          .running = present_list[present].running};
}

}  // namespace neap::machine
