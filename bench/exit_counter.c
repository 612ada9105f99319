// SPDX-License-Identifier: BSL-1.0
// Counts the exits that an idle guest would cost its hypervisor: a plugin for QEMU's TCG.
//
// A guest on KVM leaves its CPU for the hypervisor (an exit) at each HLT, port access, access to a device's registers, and at most accesses
// to MSRs. Each exit costs the host some thousand cycles, and each wake-up of a halted virtual CPU an interrupt, a schedule and an entry
// more. The emulated CPU has no exits. But the guest executes the same instructions on it, and the causes of exits are instructions that a
// plugin can see (Intel SDM volume 3C, 26.1.2 and 26.1.3). So the counts hold for any two guests on one QEMU, with equal CPU and devices.
//
//   halt       HLT
//   apic       an access to the local APIC: MSRs 800h to 8FFh (x2APIC), or a read or write of its page at FEE00000h (xAPIC)
//   msr        RDMSR and WRMSR of other MSRs, without those of `passed_through`
//   port       IN, OUT, INS and OUTS
//   device     a read or write of other memory that is not RAM: registers and doorbells of PCI devices, the HPET, the I/O APIC
//   cpuid      CPUID
//   interrupt  an interrupt that the CPU takes while it is not in HLT: the host's own interrupt or a kick ends the guest's run then
//   other      MONITOR, MWAIT, VMCALL, XSETBV, INVD, WBINVD
//
// These are the exits of a KVM without hardware that saves some. With APICv or AVIC most accesses to the APIC cost no exit, and posted
// interrupts need none to be delivered. Both systems are counted alike, as if neither existed. Not counted are exits that need a hypervisor
// to occur: nested page faults (both systems have touched their memory), interrupt windows, PAUSE loops, and the host's own interrupts.
// Moves to control and debug registers are left out, too. KVM's own devices for guests (kvm-clock, PV EOI, PV IPI) do not exist here.
//
// bench/known_exits.S has known exits, and its counts are exact. On an idle Linux, `taken` and /proc/interrupts differed by 122 in
// 30 s and by 110 in 150 s. The serial port had as many interrupts while the guest printed that file. The cause is unknown.
//
//   -plugin exit_counter.so,live=FILE
//
//   live    the counts at any time: 16 words of 64 bits for each CPU, those of `Count` in their order
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if PLUGIN_API < 7
#error "the callbacks of this plugin have the arguments of QEMU 11.1's interface"
#endif

// The packages of QEMU contain no plugin header, and the header needs GLib. So the functions used are declared here.
struct qemu_plugin_tb;
struct qemu_plugin_insn;
struct qemu_plugin_hwaddr;
struct qemu_plugin_register;
typedef void (*CpuCallback)(unsigned cpu, void* data);
typedef void (*MemoryCallback)(unsigned cpu, uint32_t access, uint64_t address, void* data);
typedef void (*TranslateCallback)(struct qemu_plugin_tb* block, void* data);
typedef void (*DiscontinuityCallback)(unsigned cpu, int type, uint64_t from, uint64_t to, void* data);
struct RegisterDescriptor {
  struct qemu_plugin_register* handle;
  const char *name, *feature;
  bool is_readonly;
};
struct Array {
  void* data;
  unsigned length;
};

extern size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb* block);
extern struct qemu_plugin_insn* qemu_plugin_tb_get_insn(const struct qemu_plugin_tb* block, size_t index);
extern size_t qemu_plugin_insn_data(const struct qemu_plugin_insn* instruction, void* to, size_t bytes);
extern struct qemu_plugin_hwaddr* qemu_plugin_get_hwaddr(uint32_t access, uint64_t address);
extern bool qemu_plugin_hwaddr_is_io(const struct qemu_plugin_hwaddr* address);
extern uint64_t qemu_plugin_hwaddr_phys_addr(const struct qemu_plugin_hwaddr* address);
extern struct Array* qemu_plugin_get_registers(void);
extern bool qemu_plugin_read_register(struct qemu_plugin_register* handle, struct Array* to);
extern struct Array* g_byte_array_new(void);
extern struct Array* g_byte_array_set_size(struct Array* array, unsigned bytes);
extern void qemu_plugin_register_vcpu_init_cb(uint64_t plugin, CpuCallback callback, void* data);
extern void qemu_plugin_register_vcpu_resume_cb(uint64_t plugin, CpuCallback callback, void* data);
extern void qemu_plugin_register_vcpu_discon_cb(uint64_t plugin, int types, DiscontinuityCallback callback, void* data);
extern void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t plugin, TranslateCallback callback, void* data);
extern void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn* instruction, CpuCallback callback, int flags, void* data);
extern void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn* instruction, MemoryCallback callback, int flags, int directions,
                                             void* data);

#define EXPORT __attribute__((visibility("default")))
EXPORT int qemu_plugin_version = PLUGIN_API;
EXPORT int qemu_plugin_install(uint64_t plugin, const void* info, int argc, char** argv);

enum { no_registers = 0, reads_registers = 1, reads_and_writes = 3, interrupts = 1 };

/// The order is that of tools/bench/idle.py.
enum Count {
  halt,
  apic,
  msr,
  port,
  device,
  cpuid,
  interrupt,
  other,
  wakeup,      ///< interrupts that end a HLT in which the CPU's thread slept; it does not sleep if one was pending
  taken,       ///< interrupts, those that end a HLT among them
  passed_msr,  ///< accesses to MSRs without an exit
  counts_used,
  counts_of_cpu = 16,
  no_exit = counts_of_cpu,
};
enum { cpus_max = 256, code_bytes_max = 15 };

/// The counts of one CPU. Only the thread of that CPU writes them.
struct Cpu {
  uint64_t counts[counts_of_cpu];
} __attribute__((aligned(64)));

static struct Cpu* cpus;
static struct {
  bool is_halted, has_slept;
} __attribute__((aligned(64))) states[cpus_max];
static struct qemu_plugin_register* rcx;
static __thread struct Array* rcx_value;

static void count(unsigned cpu, enum Count what) {
  if (cpu < cpus_max) ++cpus[cpu].counts[what];
}

/// True for MSRs that KVM lets a guest access without an exit on Intel's CPUs: TSC, SPEC_CTRL, PRED_CMD, FLUSH_CMD, SYSENTER_CS, _ESP and
/// _EIP, XFD and XFD_ERR, and the bases of FS and GS (SDM volume 4). A write of the TSC has an exit, and is not an idle system's.
static bool passed_through(uint32_t number) {
  return number == 0x10 || number == 0x48 || number == 0x49 || number == 0x10B || (number >= 0x174 && number <= 0x176) || number == 0x1C4 ||
         number == 0x1C5 || (number >= 0xC0000100 && number <= 0xC0000102);
}

static void executed(unsigned cpu, void* data) {
  const enum Count what = (enum Count)(uintptr_t)data;
  count(cpu, what);
  if (what != halt || cpu >= cpus_max) return;
  states[cpu].is_halted = true;
  states[cpu].has_slept = false;
}

/// RDMSR or WRMSR, with the MSR's number in ECX.
static void accessed_msr(unsigned cpu, void* data) {
  (void)data;
  uint32_t number = 0;
  if (rcx_value == NULL) rcx_value = g_byte_array_new();
  g_byte_array_set_size(rcx_value, 0);
  if (!qemu_plugin_read_register(rcx, rcx_value) || rcx_value->length < sizeof number) {
    count(cpu, msr);
    return;
  }
  memcpy(&number, rcx_value->data, sizeof number);
  count(cpu, number >= 0x800 && number <= 0x8FF ? apic : passed_through(number) ? passed_msr : msr);
}

static void accessed_memory(unsigned cpu, uint32_t access, uint64_t address, void* data) {
  (void)data;
  const struct qemu_plugin_hwaddr* const physical = qemu_plugin_get_hwaddr(access, address);
  if (physical == NULL || !qemu_plugin_hwaddr_is_io(physical)) return;
  count(cpu, qemu_plugin_hwaddr_phys_addr(physical) >> 12 == 0xFEE00 ? apic : device);
}

static void took_interrupt(unsigned cpu, int type, uint64_t from, uint64_t to, void* data) {
  (void)type, (void)from, (void)to, (void)data;
  if (cpu >= cpus_max) return;
  count(cpu, taken);
  if (!states[cpu].is_halted) {
    count(cpu, interrupt);
  } else if (states[cpu].has_slept) {
    count(cpu, wakeup);
  }
  states[cpu].is_halted = false;
}

/// The CPU's thread slept and runs again. QEMU also wakes it for work of its own, after which it sleeps again.
static void resumed(unsigned cpu, void* data) {
  (void)data;
  if (cpu < cpus_max) states[cpu].has_slept = true;
}

/// Returns the exit of an instruction; `msr` stands for RDMSR and WRMSR of any MSR. Prefixes come in any order, but REX comes last (SDM
/// volume 2, 2.1.1).
static enum Count exit_of(const uint8_t* code, size_t bytes) {
  size_t i = 0;
  while (i < bytes && (code[i] == 0x66 || code[i] == 0x67 || code[i] == 0xF2 || code[i] == 0xF3 || code[i] == 0x2E || code[i] == 0x36 ||
                       code[i] == 0x3E || code[i] == 0x26 || code[i] == 0x64 || code[i] == 0x65)) {
    ++i;
  }
  if (i < bytes && (code[i] & 0xF0) == 0x40) ++i;
  if (i >= bytes) return no_exit;
  const uint8_t opcode = code[i];
  if (opcode == 0xF4) return halt;
  if ((opcode >= 0x6C && opcode <= 0x6F) || (opcode >= 0xE4 && opcode <= 0xE7) || (opcode >= 0xEC && opcode <= 0xEF)) return port;
  if (opcode != 0x0F || i + 1 >= bytes) return no_exit;
  switch (code[i + 1]) {
    case 0xA2:
      return cpuid;
    case 0x30:
    case 0x32:
      return msr;
    case 0x08:  // INVD
    case 0x09:  // WBINVD, WBNOINVD
      return other;
    case 0x01:
      if (i + 2 >= bytes) return no_exit;
      // VMCALL, MONITOR, MWAIT, XSETBV
      return code[i + 2] == 0xC1 || code[i + 2] == 0xC8 || code[i + 2] == 0xC9 || code[i + 2] == 0xD1 ? other : no_exit;
    default:
      return no_exit;
  }
}

static void translated(struct qemu_plugin_tb* block, void* data) {
  (void)data;
  const size_t instructions = qemu_plugin_tb_n_insns(block);
  for (size_t i = 0; i < instructions; ++i) {
    struct qemu_plugin_insn* const instruction = qemu_plugin_tb_get_insn(block, i);
    uint8_t code[code_bytes_max] = {0};
    const enum Count what = exit_of(code, qemu_plugin_insn_data(instruction, code, sizeof code));
    if (what == msr) {
      qemu_plugin_register_vcpu_insn_exec_cb(instruction, accessed_msr, reads_registers, NULL);
    } else if (what != no_exit) {
      qemu_plugin_register_vcpu_insn_exec_cb(instruction, executed, no_registers, (void*)(uintptr_t)what);
    }
    qemu_plugin_register_vcpu_mem_cb(instruction, accessed_memory, no_registers, reads_and_writes, NULL);
  }
}

/// A register's handle is the same on all CPUs, and MUST be asked for in the context of one.
static void started(unsigned cpu, void* data) {
  (void)data;
  if (cpu != 0) return;
  const struct Array* const found = qemu_plugin_get_registers();
  const struct RegisterDescriptor* const registers = found->data;
  for (unsigned i = 0; i < found->length; ++i) {
    if (strcmp(registers[i].name, "rcx") == 0) rcx = registers[i].handle;
  }
  if (rcx != NULL) return;
  fprintf(stderr, "exit counter: this QEMU has no register rcx\n");
  _exit(1);
}

static bool keep_live(const char* path) {
  const size_t bytes = cpus_max * sizeof *cpus;
  const int file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
  if (file < 0 || ftruncate(file, (off_t)bytes) != 0) return false;
  void* const mapped = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (mapped == MAP_FAILED) return false;
  cpus = mapped;
  return true;
}

int qemu_plugin_install(uint64_t plugin, const void* info, int argc, char** argv) {
  (void)info;
  if (argc != 1 || strncmp(argv[0], "live=", 5) != 0) {
    fprintf(stderr, "exit counter: live=FILE is the one word that it takes\n");
    return 1;
  }
  if (!keep_live(argv[0] + 5)) {
    perror(argv[0] + 5);
    return 1;
  }
  qemu_plugin_register_vcpu_init_cb(plugin, started, NULL);
  qemu_plugin_register_vcpu_resume_cb(plugin, resumed, NULL);
  qemu_plugin_register_vcpu_discon_cb(plugin, interrupts, took_interrupt, NULL);
  qemu_plugin_register_vcpu_tb_trans_cb(plugin, translated, NULL);
  return 0;
}
