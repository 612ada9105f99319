// SPDX-License-Identifier: BSL-1.0
// The start of the other cores.
//
// All cores are started together, because on a busy host of emulated cores each may take seconds until it runs its first instruction. The
// steps of core 0:
//
// 1. INIT, SIPI, SIPI to all (SDM 3A, 9.4.4). A core that arrives marks its record (start_record.hpp) and waits without a stack.
// 2. When all have arrived, or at the time-out, each record is decided for ever: in or out. A core that arrives later halts.
// 3. The cores that are in get numbers without gaps, in firmware's order, then stacks and memory. The running ones come first.
// 4. They set themselves up in parallel. From here on a core that stops is a broken machine: a panic names it.
// 5. The number of running cores is set. Then one core after the other compares its TSC with core 0's, and enters its event loop.
#include <array>
#include <atomic>
#include <cstring>
#include <span>

#include "kernel/console.hpp"
#include "kernel/core.hpp"
#include "kernel/machine.hpp"
#include "kernel/memory/page_allocator.hpp"
#include "kernel/panic.hpp"
#include "kernel/x86/apic.hpp"
#include "kernel/x86/clock.hpp"
#include "kernel/x86/cores.hpp"
#include "kernel/x86/cpu.hpp"
#include "kernel/x86/descriptors.hpp"
#include "kernel/x86/firmware/this_machine.hpp"
#include "kernel/x86/layout.hpp"
#include "kernel/x86/machine_checks.hpp"
#include "kernel/x86/memory.hpp"
#include "kernel/x86/msr.hpp"
#include "kernel/x86/paging.hpp"
#include "kernel/x86/power/this_cpu.hpp"
#include "kernel/x86/start_record.hpp"
#include "kernel/x86/tsc_comparison.hpp"

namespace neap::x86 {

/// All parameters of a starting core. trampoline.S uses the first member. Only the core itself and core 0 access it.
struct CoreStart {
  std::uint64_t stack_top;
  std::uint64_t thread_pointer;
  Descriptors* descriptors;
  unsigned core;
  std::uint64_t tsc_adjust;
  void (*entry)();                   // null: the core is parked, so it will not run events
  std::atomic<bool> ready;           // set by the core: it can take interrupts, or it is about to park
  std::atomic<bool> offset_known;    // set by core 0
  std::uint64_t tsc_offset;          // valid once `offset_known` is true
  std::atomic<bool> has_the_offset;  // set by the core, just before it enters its event loop
};

extern "C" {
extern const std::byte trampoline_start[], trampoline_end[], trampoline_page_tables[], trampoline_self[], boot_root_table[];
// Read by trampoline.S. `core_apic_registers` is null with x2APIC.
constinit StartRecord core_records[machine::cores_max];
constinit std::uint32_t core_record_count = 0;
constinit std::uint64_t core_root_table = 0;
constinit const volatile std::byte* core_apic_registers = nullptr;
void neap_core_entered(CoreStart* start) noexcept;
}

namespace {

constexpr std::uint64_t init_wait_ns = 10'000'000;    // MP specification 1.4, B.4
constexpr std::uint64_t second_startup_ns = 200'000;  // MP specification 1.4, B.4
// A real core starts within a millisecond. An emulated one is a thread of a host, which may have other work.
constexpr std::uint64_t real_limit_s = 10, hypervisor_limit_s = 30;
constexpr std::uint64_t second_ns = 1'000'000'000;

constinit std::array<CoreStart, machine::cores_max> starts{};
/// The core that compares its TSC now. The cores after it sleep.
constinit std::atomic<unsigned> comparing{0};

std::uint64_t limit_s() { return features().hypervisor ? hypervisor_limit_s : real_limit_s; }

template <typename Condition>
bool wait_until(Condition condition, std::uint64_t limit_ns) {
  const WaitLimit limit(limit_ns);
  while (!condition()) {
    if (limit.passed()) return condition();
    pause();
  }
  return true;
}

// --- The started core --------------------------------------------------------------------------------------------------------------------

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

// A core that waits for its turn sleeps, so that emulated cores leave their host's cores to the one that compares.
void wait_for_turn() {
  const auto not_yet = []() noexcept { return comparing.load(std::memory_order_seq_cst) < machine::this_core(); };
  WakeWord& word = core_state(machine::this_core()).wake_word;
  while (not_yet()) {
    static_cast<void>(machine::sleep(IdleState::halt, word, nullptr));
    static_cast<void>(word.take());
  }
}

}  // namespace

// Several cores run this function at the same time.
void neap_core_entered(CoreStart* start) noexcept {
  write_msr_known(msr_fs_base, start->thread_pointer);
  load_descriptors(*start->descriptors, start->core);
  write_msr_known(msr_fs_base, start->thread_pointer);  // loading a segment register may have cleared it
  enable_cpu_state();
  take_number(start->core);
  // Firmware may have written the TSCs of some cores. Equal values of IA32_TSC_ADJUST make the TSCs equal.
  if (features().tsc_adjust) (void)write_msr(msr_tsc_adjust, start->tsc_adjust);
  apic::enable_this_core(false);
  machine_checks::start_this_core(start->core);
  if (start->entry == nullptr) {
    power::park_this_core();
    start->ready.store(true, std::memory_order_release);
    park();
  }
  power::start_this_core(start->core);
  firmware::check_core(start->core);
  initialise_alarm();
  start->ready.store(true, std::memory_order_release);
  wait_for_turn();
  tsc_comparison::answer(limit_s() * second_ns);
  while (!start->offset_known.load(std::memory_order_acquire)) pause();
  set_tsc_offset(start->tsc_offset);
  start->has_the_offset.store(true, std::memory_order_release);
  start->entry();
  panic("a core's entry returned");
}

namespace {

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

// --- Core 0 ------------------------------------------------------------------------------------------------------------------------------
unsigned order_for(std::uint64_t bytes) {
  unsigned order = 0;
  while ((page_bytes << order) < bytes) ++order;
  return order;
}

/// Gives the core with this APIC id the number `core`, stacks and memory. False: there is too little memory.
bool prepare(CoreStart& start, unsigned core, std::uint32_t apic_id, void (*entry)()) {
  give_number(core, apic_id);
  const auto block_bytes = tls_block_bytes() + sizeof(Descriptors) + alignof(Descriptors);
  const auto order = order_for(block_bytes);
  neap::memory::prefer_node(machine::node_of(core));  // the next allocations are for that core, so they are from its node
  auto* const block = static_cast<std::byte*>(neap::memory::allocate_pages(order));
  const bool stacks = block != nullptr && paging::map_stacks(core);
  neap::memory::prefer_node(machine::node_of(0));
  if (!stacks) return false;
  std::memset(block, 0, page_bytes << order);
  // Aligned to 16, because the entry code calls a function with this stack.
  start.stack_top = stack_top(core, main_stack);
  start.descriptors = reinterpret_cast<Descriptors*>(block);
  start.thread_pointer = prepare_tls(block + round_up(sizeof(Descriptors), alignof(Descriptors)));
  start.core = core;
  start.entry = entry;
  start.tsc_adjust = features().tsc_adjust ? read_msr(msr_tsc_adjust).value_or(0) : 0;
  return true;
}

/// The present cores without core 0, and their records.
struct Others {
  std::span<PresentCore> cores;
  std::span<StartRecord> records;
};

Others fill_records() {
  const auto cores = present_cores().subspan(1);
  const auto records = std::span(core_records).first(cores.size());
  for (std::size_t i = 0; i < cores.size(); ++i) records[i].apic_id = cores[i].apic_id;
  core_root_table = paging::root();
  core_apic_registers = apic::registers_in_memory();
  core_record_count = static_cast<std::uint32_t>(cores.size());
  return {.cores = cores, .records = records};
}

void start_all(const Others& others, std::uint64_t page) {
  require(page % page_bytes == 0 && page < 0x100000, "start_cores: the start page is not a page below 1 MiB", page);
  const auto page_number = static_cast<std::uint8_t>(page / page_bytes);
  for (const auto& core : others.cores) apic::send_init(core.apic_id);
  wait_ns(init_wait_ns);
  for (const auto& core : others.cores) apic::send_startup(core.apic_id, page_number);
  wait_ns(second_startup_ns);
  for (const auto& record : others.records) {
    if (record.is_waiting()) apic::send_startup(record.apic_id, page_number);
  }
}

void report_missing(const Others& others, const machine::CoreSet& wanted) {
  for (std::size_t i = 0; i < others.cores.size(); ++i) {
    if (others.records[i].is_in()) continue;
    print("neap: core ", i + 1, " of firmware's list (APIC id ", others.cores[i].apic_id, ") did not start within ", limit_s(),
          wanted.test(i + 1) ? " s: it is left out, and halts if it starts later" : " s, to be parked: it halts if it starts later");
  }
}

/// Prepares the cores that are in, and lets them go: the running ones, then the parked ones, so that running cores have dense numbers.
class Numbering {
 public:
  Numbering(const Others& others, const machine::CoreSet& wanted, void (*entry)()) {
    for (const bool runs : {true, false}) {
      for (std::size_t i = 0; i < others.cores.size(); ++i) {
        if (wanted.test(i + 1) == runs && others.records[i].is_in()) add(others.records[i], others.cores[i], runs ? entry : nullptr);
      }
    }
  }
  [[nodiscard]] unsigned running() const { return running_; }
  [[nodiscard]] unsigned parked() const { return next_ - running_; }

 private:
  void add(StartRecord& record, PresentCore& core, void (*entry)()) {
    auto& start = starts[next_];
    if (!prepare(start, next_, core.apic_id, entry)) {
      print("neap: no memory to start the core with APIC id ", core.apic_id, ": it is left out and halts");
      record.start.store(no_start(), std::memory_order_release);
      return;
    }
    if (entry != nullptr) {
      power::place_core(next_, core.apic_id);
      core.running = next_;
      ++running_;
    }
    ++next_;
    record.start.store(&start, std::memory_order_release);
  }

  unsigned next_ = 1, running_ = 1;
};

/// A core that stops here has a number and a stack, and may continue at any moment. So the machine must not go on without it.
void require_done(const std::atomic<bool>& done, const CoreStart& start, const char* what) {
  if (!wait_until([&] { return done.load(std::memory_order_acquire); }, limit_s() * second_ns)) {
    print("neap: core ", start.core, " (APIC id ", apic_id_of(start.core), ") started, but did not ", what, " within ", limit_s(), " s");
    panic("a core stopped while it started", start.core);
  }
}

void compare_clock(CoreStart& start) {
  tsc_comparison::begin();
  comparing.store(start.core, std::memory_order_seq_cst);
  wake(start.core);
  start.tsc_offset = tsc_comparison::measure();
  start.offset_known.store(true, std::memory_order_release);
  require_done(start.has_the_offset, start, "compare its clock");
}

}  // namespace

}  // namespace neap::x86

namespace neap::machine {

using namespace x86;

unsigned start_cores(const CoreSet& wanted, void (*entry)()) noexcept {
  require(this_core() == 0 && core_record_count == 0, "start_cores: called twice, or not on core 0");
  if (cores_present() <= 1) return 1;
  const auto page = x86::memory::low_page();
  if (page == 0) {
    print("neap: no free page below 640 KiB to start other cores from");
    return 1;
  }
  fill_trampoline(page);
  const Others others = fill_records();
  start_all(others, page);
  decide(others.records, limit_s() * second_ns, rough_ns, x86::pause);
  report_missing(others, wanted);
  const Numbering numbering(others, wanted, entry);
  if (numbering.running() < wanted.count() && features().hypervisor) {
    // A hypervisor has no broken cores, only late ones. With fewer cores than its user gave the machine, measurements would be wrong.
    print("neap: ", numbering.running(), " of ", wanted.count(),
          " cores started, so the machine ends: the host of this machine is too busy");
    exit(ExitStatus::failure);
  }
  const auto all = std::span(starts).subspan(1, numbering.running() - 1 + numbering.parked());
  for (const auto& start : all) require_done(start.ready, start, "set itself up");
  set_running_cores(numbering.running());
  for (auto& start : all.first(numbering.running() - 1)) compare_clock(start);
  power::report_parked(numbering.parked());
  return numbering.running();
}

}  // namespace neap::machine
