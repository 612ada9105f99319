// SPDX-License-Identifier: BSL-1.0
#include "kernel/x86/cores.hpp"

#include <array>
#include <atomic>
#include <cstring>

#include "kernel/console.hpp"
#include "kernel/machine.hpp"
#include "kernel/memory/page_allocator.hpp"
#include "kernel/panic.hpp"
#include "kernel/x86/acpi.hpp"
#include "kernel/x86/apic.hpp"
#include "kernel/x86/boot_info.hpp"
#include "kernel/x86/clock.hpp"
#include "kernel/x86/cpu.hpp"
#include "kernel/x86/descriptors.hpp"
#include "kernel/x86/firmware/this_machine.hpp"
#include "kernel/x86/layout.hpp"
#include "kernel/x86/machine_checks.hpp"
#include "kernel/x86/memory.hpp"
#include "kernel/x86/msr.hpp"
#include "kernel/x86/paging.hpp"
#include "kernel/x86/power/this_cpu.hpp"
#include "kernel/x86/topology.hpp"

namespace neap::x86 {

namespace {

/// All parameters of a starting core. trampoline.S uses the first two members.
struct CoreStart {
  std::uint64_t root;
  std::uint64_t stack_top;
  std::uint64_t thread_pointer;
  Descriptors* descriptors;
  unsigned core;
  std::uint64_t tsc_adjust;
  void (*entry)();  // null: the core is parked, so it will not run events
  std::atomic<bool> ready;
};

}  // namespace

extern "C" {
extern const std::byte trampoline_start[], trampoline_end[], trampoline_page_tables[], trampoline_self[], boot_root_table[];
constinit std::atomic<CoreStart*> core_start_slot{nullptr};
void neap_core_entered(CoreStart* start) noexcept;
}

namespace {

constexpr std::uint64_t init_wait_ns = 10'000'000;    // MP specification 1.4, B.4
constexpr std::uint64_t second_startup_ns = 200'000;  // MP specification 1.4, B.4
constexpr std::uint64_t start_limit_ns = 1'000'000'000;
constinit std::array<std::uint32_t, machine::cores_max> apic_ids{};
constinit std::array<std::uint8_t, machine::cores_max> nodes{};

/// The reachable cores that firmware lists, core 0 first.
struct Present {
  std::uint32_t apic_id;
  unsigned running;
};
constinit std::array<Present, machine::cores_max> present_cores{};
constinit unsigned present_count = 0;
constinit Topology topology{};
constinit std::atomic<unsigned> running{1};
constinit thread_local unsigned core_number = 0;
constinit thread_local std::uint64_t tsc_offset = 0;

// --- Comparison of two cores' TSCs -------------------------------------------------------------------------------------------------------
//
// Core 0 sends a request, and the new core answers with its TSC. The shortest of many round trips bounds the difference.

constinit std::atomic<std::uint32_t> request{0}, reply{0};
constinit std::atomic<std::uint64_t> reply_tsc{0};
constexpr unsigned rounds = 16, rounds_min = 2;
constexpr std::uint64_t rounds_limit_ns = 1'000'000;
constexpr std::uint32_t last_request = ~std::uint32_t{0};

void answer_clock_requests() {
  const auto start = rough_ns();
  for (std::uint32_t seen = 0; rough_ns() - start < start_limit_ns;) {
    const auto now = request.load(std::memory_order_acquire);
    if (now == seen) continue;
    if (now == last_request) return;
    reply_tsc.store(read_tsc_ordered(), std::memory_order_relaxed);
    reply.store(now, std::memory_order_release);
    seen = now;
  }
}

// The value to add to the new core's TSC; 0 if the measurement cannot distinguish that value from zero.
std::uint64_t measure_offset() {
  std::uint64_t shortest = ~std::uint64_t{0};
  std::int64_t best = 0;
  reply.store(0, std::memory_order_relaxed);
  const auto begin = rough_ns();
  for (std::uint32_t round = 1; round <= rounds; ++round) {
    if (round > rounds_min && rough_ns() - begin > rounds_limit_ns) break;  // only an emulator on too few host cores is so slow
    const auto before = read_tsc_ordered();
    request.store(round, std::memory_order_release);
    while (reply.load(std::memory_order_acquire) != round) {
      if (read_tsc() - before > machine::timestamp_hz()) break;
      pause();
    }
    const auto after = read_tsc_ordered();
    if (reply.load(std::memory_order_acquire) != round || after - before >= shortest) continue;
    shortest = after - before;
    best = static_cast<std::int64_t>(before + (after - before) / 2 - reply_tsc.load(std::memory_order_relaxed));
  }
  request.store(last_request, std::memory_order_release);
  const auto error = static_cast<std::int64_t>(shortest / 2 + 1);
  return best > error || best < -error ? static_cast<std::uint64_t>(best) : 0;
}

constinit std::atomic<std::uint64_t> offset_found{0};
constinit std::atomic<bool> offset_known{false};

// --- The start-up code's page below 1 MiB ------------------------------------------------------------------------------------------------
void fill_trampoline(std::uint64_t page) {
  // The starting core uses the page at its physical address; this code writes it through a mapping of its own.
  const auto bytes = static_cast<std::size_t>(trampoline_end - trampoline_start);
  require(bytes <= page_bytes, "trampoline longer than a page");
  const auto mapped = paging::map(page, page_bytes, paging::Access::read_write, paging::Cache::write_back);
  require(mapped.has_value(), "no mapping for the trampoline");
  auto* const copy = const_cast<std::byte*>(*mapped);
  std::memcpy(copy, trampoline_start, bytes);
  const auto at = [&](const std::byte* symbol) { return copy + (symbol - trampoline_start); };
  const auto root = static_cast<std::uint32_t>(machine::physical_address(boot_root_table));
  std::memcpy(at(trampoline_page_tables), &root, sizeof root);
  std::array<std::uint16_t, 2> relative{};
  std::memcpy(relative.data(), at(trampoline_self), sizeof relative);
  for (const auto offset : relative) {
    std::uint32_t value;
    std::memcpy(&value, copy + offset, sizeof value);
    value += static_cast<std::uint32_t>(page);
    std::memcpy(copy + offset, &value, sizeof value);
  }
}

// --- Starting one core -------------------------------------------------------------------------------------------------------------------
unsigned order_for(std::uint64_t bytes) {
  unsigned order = 0;
  while ((page_bytes << order) < bytes) ++order;
  return order;
}

bool prepare(CoreStart& start, unsigned core, void (*entry)()) {
  require(core != 0 && core < machine::cores_max, "start_cores: no such core number", core);
  const auto block_bytes = tls_block_bytes() + sizeof(Descriptors) + alignof(Descriptors);
  const auto order = order_for(block_bytes);
  neap::memory::prefer_node(nodes[core]);  // the next allocations are for that core, so they are from its node
  auto* const block = static_cast<std::byte*>(neap::memory::allocate_pages(order));
  const bool stacks = block != nullptr && paging::map_stacks(core);
  neap::memory::prefer_node(nodes[0]);
  if (!stacks) return false;
  std::memset(block, 0, page_bytes << order);
  start.root = paging::root();
  // Aligned to 16, because the entry code calls a function with this stack.
  start.stack_top = stack_top(core, main_stack);
  start.descriptors = reinterpret_cast<Descriptors*>(block);
  start.thread_pointer = prepare_tls(block + round_up(sizeof(Descriptors), alignof(Descriptors)));
  start.core = core;
  start.entry = entry;
  start.tsc_adjust = 0;
  if (features().tsc_adjust) start.tsc_adjust = read_msr(msr_tsc_adjust).value_or(0);
  start.ready.store(false);
  return true;
}

bool wait_for_slot_taken(std::uint64_t limit_ns) {
  const auto begin = rough_ns();
  while (core_start_slot.load() != nullptr) {
    if (rough_ns() - begin > limit_ns) return false;
    pause();
  }
  return true;
}

std::uint8_t node_of_apic(std::uint32_t apic_id) {
  for (const auto& core : acpi::tables().cores) {
    if (core.apic_id == apic_id) return static_cast<std::uint8_t>(core.node);
  }
  return 0;
}

enum class Outcome : std::uint8_t { started, absent, stuck };

Outcome start_one(CoreStart& start, std::uint32_t apic_id, std::uint64_t page) {
  require(page % page_bytes == 0 && page < 0x100000, "start_cores: the start page is not a page below 1 MiB", page);
  request.store(0);
  offset_known.store(false);
  core_start_slot.store(&start);
  const auto page_number = static_cast<std::uint8_t>(page / page_bytes);
  apic::send_startup(apic_id, page_number);
  if (!wait_for_slot_taken(second_startup_ns)) {
    apic::send_startup(apic_id, page_number);
    // The core did not start. Take `start` back, unless the core takes it at this moment.
    if (!wait_for_slot_taken(start_limit_ns) && core_start_slot.exchange(nullptr) != nullptr) return Outcome::absent;
  }
  const auto begin = rough_ns();
  while (!start.ready.load(std::memory_order_acquire)) {
    if (rough_ns() - begin > start_limit_ns) return Outcome::stuck;
    pause();
  }
  if (start.entry == nullptr) return Outcome::started;
  offset_found.store(measure_offset());
  offset_known.store(true, std::memory_order_release);
  while (running.load(std::memory_order_acquire) != start.core + 1) {
    if (rough_ns() - begin > 2 * start_limit_ns) return Outcome::stuck;
    pause();
  }
  return Outcome::started;
}

// Interrupts stay disabled, and no core sends an interrupt to a parked core. MWAIT may end without a cause, so it is repeated. The
// monitored line is on the core's own stack, so no core writes to it.
[[noreturn]] void park() {
  const auto plan = power::plan_parked();
  if (plan.way != power::Way::mwait) halt_for_ever();
  const std::uint64_t line = 0;
  for (;;) {
    asm volatile("monitor" ::"a"(&line), "c"(0), "d"(0) : "memory");
    asm volatile("mwait" ::"a"(std::uint32_t{plan.hint}), "c"(0) : "memory");
  }
}

}  // namespace

void neap_core_entered(CoreStart* start) noexcept {
  write_msr_known(msr_fs_base, start->thread_pointer);
  load_descriptors(*start->descriptors, start->core);
  write_msr_known(msr_fs_base, start->thread_pointer);  // loading a segment register may have cleared it
  enable_cpu_state();
  core_number = start->core;
  neap::memory::prefer_node(nodes[core_number]);
  // Firmware may have written the TSCs of some cores. Equal values of IA32_TSC_ADJUST make the TSCs equal.
  if (features().tsc_adjust) (void)write_msr(msr_tsc_adjust, start->tsc_adjust);
  apic::enable_this_core(false);
  machine_checks::start_this_core(core_number);
  if (start->entry == nullptr) {
    power::park_this_core();
    start->ready.store(true, std::memory_order_release);
    park();
  }
  power::start_this_core(core_number);
  firmware::check_core(core_number);
  initialise_alarm();
  auto* const entry = start->entry;
  start->ready.store(true, std::memory_order_release);
  answer_clock_requests();
  while (!offset_known.load(std::memory_order_acquire)) pause();
  tsc_offset = offset_found.load();
  // Core 0 waits for this increment before it starts the next core, because until this point this core uses the shared variables above.
  running.fetch_add(1, std::memory_order_release);
  entry();
  panic("a core's entry returned");
}

void initialise_first_core() {
  require(present_count == 0, "initialise_first_core called twice");
  apic_ids[0] = apic::this_id();
  nodes[0] = node_of_apic(apic_ids[0]);
  neap::memory::prefer_node(nodes[0]);
  present_cores[present_count++] = {.apic_id = apic_ids[0], .running = 0};
  for (const auto& core : acpi::tables().cores) {
    if (core.apic_id == apic_ids[0] || present_count == present_cores.size()) continue;
    if (!apic::is_x2apic() && core.apic_id >= 0xff) continue;
    present_cores[present_count++] = {.apic_id = core.apic_id, .running = machine::cores_max};
  }
  topology = find_topology(power::cpu_access());
}

std::uint32_t apic_id_of(unsigned core) {
  require(core < machine::cores_max, "apic_id_of: no such core", core);
  return apic_ids[core];
}

std::uint64_t this_core_tsc_offset() { return tsc_offset; }

namespace {
constinit std::uint64_t first_core_thread_pointer = 0;
}

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
  const auto package_id = [](unsigned i) { return present_cores[i].apic_id >> topology.package_shift; };
  // Packages get dense numbers, in the order of first appearance.
  unsigned package = 0;
  for (unsigned i = 0; package_id(i) != package_id(present); ++i) {
    bool first = true;
    for (unsigned before = 0; before < i && first; ++before) first = package_id(before) != package_id(i);
    package += first;
  }
  const auto inside = present_cores[present].apic_id & ((std::uint64_t{1} << topology.package_shift) - 1);
  return {.package = package,
          .core = static_cast<unsigned>(inside >> topology.thread_bits),
          .thread = static_cast<unsigned>(inside & ((std::uint64_t{1} << topology.thread_bits) - 1)),
          .node = node_of_apic(present_cores[present].apic_id),
          .running = present_cores[present].running};
}

namespace {

/// Starts cores one after the other, first those that run and then the parked ones, so that the running cores have dense numbers.
class Starter {
 public:
  explicit Starter(std::uint64_t page) : page_(page) {}

  /// False: no further core can be started.
  bool start(Present& core, void (*entry)()) {
    auto& start = starts_[next_];
    nodes[next_] = node_of_apic(core.apic_id);
    if ((!prepared_ || start.entry != entry) && !prepare(start, next_, entry)) {
      print("neap: no memory to start core ", next_, "; running on ", running.load());
      return false;
    }
    apic_ids[next_] = core.apic_id;
    const auto outcome = start_one(start, core.apic_id, page_);
    prepared_ = outcome == Outcome::absent;  // the prepared stacks are untouched, so the next core can use them
    if (outcome != Outcome::started) print("neap: the core with APIC id ", core.apic_id, " did not start within 1 s, left out");
    if (outcome == Outcome::started) {
      if (entry != nullptr) {
        core.running = next_;
      } else {
        ++parked_;
      }
      ++next_;
    }
    return outcome != Outcome::stuck;  // a stuck core may still use the stack of this number, and the variables for starting cores
  }
  [[nodiscard]] unsigned parked() const { return parked_; }

 private:
  static inline std::array<CoreStart, cores_max> starts_{};
  std::uint64_t page_;
  unsigned next_ = 1, parked_ = 0;
  bool prepared_ = false;
};

}  // namespace

unsigned start_cores(const CoreSet& wanted, void (*entry)()) noexcept {
  require(this_core() == 0 && running.load() == 1, "start_cores: called twice, or not on core 0");
  if (present_count <= 1) return 1;
  const auto page = x86::memory::low_page();
  if (page == 0) {
    print("neap: no free page below 640 KiB to start other cores from");
    return 1;
  }
  fill_trampoline(page);
  for (unsigned i = 1; i < present_count; ++i) apic::send_init(present_cores[i].apic_id);
  wait_ns(init_wait_ns);

  Starter starter(page);
  const auto start_all = [&] {
    for (const bool runs : {true, false}) {
      for (unsigned i = 1; i < present_count; ++i) {
        if (wanted.test(i) == runs && !starter.start(present_cores[i], runs ? entry : nullptr)) return;
      }
    }
  };
  start_all();
  power::report_parked(starter.parked());
  return running.load();
}

}  // namespace neap::machine
