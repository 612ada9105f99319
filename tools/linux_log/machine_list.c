// SPDX-License-Identifier: BSL-1.0
#define _GNU_SOURCE
#include "machine_list.h"

#include <cpuid.h>
#include <ctype.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "machine_list_private.h"

// --- The CPU's own registers -------------------------------------------------------------------------------------------------------------
struct leaf {
  uint32_t eax, ebx, ecx, edx;
};

// CPUID's leaf without a check of the largest one.
static struct leaf cpuid(uint32_t number) {
  struct leaf leaf;
  __cpuid_count(number, 0, leaf.eax, leaf.ebx, leaf.ecx, leaf.edx);
  return leaf;
}

struct cpu {
  bool intel, hypervisor, modelled;
  unsigned family, model, stepping;
  uint32_t largest, largest_extended;
};

static struct cpu identify(void) {
  struct cpu cpu = {0};
  const struct leaf vendor = cpuid(0), one = cpuid(1), own = cpuid(0x4e656170);
  cpu.largest = vendor.eax;
  cpu.largest_extended = cpuid(0x80000000).eax;
  cpu.intel = vendor.ebx == 0x756e6547 && vendor.edx == 0x49656e69 && vendor.ecx == 0x6c65746e;  // "GenuineIntel"
  cpu.hypervisor = (one.ecx >> 31 & 1) != 0;
  cpu.modelled = own.ebx == 0x7061654e && own.ecx == 0x65646f6d && own.edx == 0x64656c6c;  // "Neapmodelled", the model machine
  const unsigned family = one.eax >> 8 & 0xf;
  cpu.family = family == 0xf ? family + (one.eax >> 20 & 0xff) : family;
  cpu.model = (one.eax >> 4 & 0xf) | (one.eax >> 12 & 0xf0);
  cpu.stepping = one.eax & 0xf;
  return cpu;
}

enum {
  MSR_PLATFORM_INFO = 0xce,
  MSR_PKG_CST_CONFIG_CONTROL = 0xe2,
  MSR_MISC_ENABLE = 0x1a0,
  MSR_TURBO_RATIO_LIMIT = 0x1ad,
  MSR_RAPL_POWER_UNIT = 0x606,
  MSR_PKG_POWER_LIMIT = 0x610,
  MSR_PM_ENABLE = 0x770,
  MSR_HWP_CAPABILITIES = 0x771,
};

// Reads a register of core 0, if the kernel's msr driver and the caller's privileges permit it.
static bool read_msr(uint32_t number, uint64_t* value) {
  const int file = open("/dev/cpu/0/msr", O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  const bool read = pread(file, value, sizeof *value, number) == (ssize_t)sizeof *value;
  close(file);
  return read;
}

// --- system ------------------------------------------------------------------------------------------------------------------------------
// Writes the command line with `***` for the value of each word whose name speaks of a secret.
static void add_command_line(struct json* json) {
  static const char* const secrets[] = {"token", "passw", "secret", "key", "credential"};
  char text[4096], shown[4096 + 4];
  if (!read_line(text, sizeof text, "/proc/cmdline")) return;
  size_t length = 0;
  char* rest = NULL;
  for (char* word = strtok_r(text, " ", &rest); word != NULL; word = strtok_r(NULL, " ", &rest)) {
    char* const value = strchr(word, '=');
    bool secret = false;
    if (value != NULL) *value = '\0';
    for (size_t i = 0; value != NULL && i < sizeof secrets / sizeof secrets[0]; ++i)
      secret = secret || strcasestr(word, secrets[i]) != NULL;
    const int more = snprintf(shown + length, sizeof shown - length, "%s%s%s%s", length > 0 ? " " : "", word, value != NULL ? "=" : "",
                              value == NULL ? ""
                              : secret      ? "***"
                                            : value + 1);
    if (more < 0 || (size_t)more >= sizeof shown - length) break;
    length += (size_t)more;
  }
  json_text(json, "command_line", length > 0 ? shown : "");
}

static void add_system(struct json* json, const struct cpu* cpu) {
  struct utsname name;
  json_text(json, "system", "linux");
  if (uname(&name) == 0) {
    json_text(json, "system_version", name.release);
    json_text(json, "system_build", name.version);
  }
  add_command_line(json);
  if (cpu->modelled) {
    json_text(json, "clock", "modelled");
  } else if (cpu->hypervisor) {
    const struct leaf vendor = cpuid(0x40000000);
    char text[13] = "";
    memcpy(text, &vendor.ebx, 4);
    memcpy(text + 4, &vendor.ecx, 4);
    memcpy(text + 8, &vendor.edx, 4);
    json_text(json, "clock", vendor.eax >= 0x40000000 && text[0] != '\0' ? text : "hypervisor");
  } else {
    json_text(json, "clock", "metal");
  }
}

// --- cpu ---------------------------------------------------------------------------------------------------------------------------------
static void add_cpu_names(struct json* json, const struct cpu* cpu) {
  if (cpu->largest_extended >= 0x80000004) {
    char text[49] = "";
    for (uint32_t i = 0; i < 3; ++i) {
      const struct leaf part = cpuid(0x80000002 + i);
      memcpy(text + i * sizeof part, &part, sizeof part);
    }
    const char* first = text;
    while (*first == ' ') ++first;
    size_t length = strlen(text);
    while (length > 0 && text[length - 1] == ' ') text[--length] = '\0';
    if (*first != '\0') json_text(json, "cpu_model", first);
  }
  char signature[32];
  snprintf(signature, sizeof signature, "%02x-%02x-%02x", cpu->family, cpu->model, cpu->stepping);
  json_text(json, "cpu_signature", signature);
  FILE* const file = fopen("/proc/cpuinfo", "re");
  char line[TEXT_BYTES_MAX];
  unsigned revision;
  while (file != NULL && fgets(line, sizeof line, file) != NULL) {
    if (sscanf(line, "microcode : %x", &revision) != 1) continue;
    snprintf(line, sizeof line, "0x%x", revision);
    json_text(json, "cpu_microcode", line);
    break;
  }
  if (file != NULL) fclose(file);
}

static void add_cores(struct json* json) {
  static bool online[CORES_MAX], others[CORES_MAX];
  static uint64_t packages[CORES_MAX], cores[CORES_MAX][2];
  unsigned threads, count, package_count = 0, core_count = 0;
  if (!read_cores(online, &threads, "/sys/devices/system/cpu/online")) return;
  for (unsigned core = 0; core < CORES_MAX; ++core) {
    uint64_t package, number;
    if (!online[core]) continue;
    if (!read_number(&package, "/sys/devices/system/cpu/cpu%u/topology/physical_package_id", core)) continue;
    if (!read_number(&number, "/sys/devices/system/cpu/cpu%u/topology/core_id", core)) continue;
    unsigned i = 0;
    while (i < package_count && packages[i] != package) ++i;
    if (i == package_count) packages[package_count++] = package;
    i = 0;
    while (i < core_count && (cores[i][0] != package || cores[i][1] != number)) ++i;
    if (i < core_count) continue;
    cores[core_count][0] = package;
    cores[core_count++][1] = number;
  }
  if (package_count > 0) json_number(json, "cpu_packages", package_count);
  if (core_count > 0) json_number(json, "cpu_cores", core_count);
  json_number(json, "cpu_threads", threads);
  if (read_cores(others, &count, "/sys/devices/system/cpu/present")) json_number(json, "cpu_threads_present", count);
  if (core_count > 0) json_flag(json, "smt", threads > core_count);
  if (read_cores(others, &count, "/sys/devices/system/node/online")) json_number(json, "numa_nodes", count);
}

// RAM above the first MiB in firmware's map, in whole pages, as Neap counts it.
static void add_ram(struct json* json) {
  const uint64_t low_end = 1 << 20, page = 4096;
  uint64_t total = 0;
  for (unsigned i = 0;; ++i) {
    uint64_t first, last;
    char type[TEXT_BYTES_MAX];
    if (!read_number(&first, "/sys/firmware/memmap/%u/start", i) || !read_number(&last, "/sys/firmware/memmap/%u/end", i)) break;
    if (!read_line(type, sizeof type, "/sys/firmware/memmap/%u/type", i) || strcmp(type, "System RAM") != 0) continue;
    first = ((first < low_end ? low_end : first) + page - 1) / page * page;
    const uint64_t end = (last + 1) / page * page;
    if (end > first) total += end - first;
  }
  if (total > 0) json_number(json, "ram_bytes", total);
}

static void add_mitigations(struct json* json) {
  // Sorted by name. A later kernel may know further names; those are left out here, and add nothing to the older ones.
  static const char* const names[] = {"gather_data_sampling",
                                      "itlb_multihit",
                                      "l1tf",
                                      "mds",
                                      "meltdown",
                                      "mmio_stale_data",
                                      "reg_file_data_sampling",
                                      "retbleed",
                                      "spec_rstack_overflow",
                                      "spec_store_bypass",
                                      "spectre_v1",
                                      "spectre_v2",
                                      "srbds",
                                      "tsx_async_abort"};
  bool opened = false;
  for (size_t i = 0; i < sizeof names / sizeof names[0]; ++i) {
    char text[TEXT_BYTES_MAX], element[TEXT_BYTES_MAX + 64];
    if (!read_line(text, sizeof text, "/sys/devices/system/cpu/vulnerabilities/%s", names[i])) continue;
    if (!opened) json_open_list(json, "mitigations");
    opened = true;
    snprintf(element, sizeof element, "%s: %s", names[i], text);
    json_element(json, element);
  }
  if (opened) json_close_list(json);
}

// --- idle --------------------------------------------------------------------------------------------------------------------------------
enum { STATES_MAX = 16 };

// Neap's name of a state of cpuidle: "C1_ACPI" is c1, "C1E" is c1e. The driver haltpoll calls HLT "haltpoll idle".
static void name_of_state(char* text) {
  if (strcmp(text, "haltpoll idle") == 0) strcpy(text, "halt");
  char* const suffix = strstr(text, "_ACPI");
  if (suffix != NULL) *suffix = '\0';
  for (; *text != '\0'; ++text) *text = (char)tolower((unsigned char)*text);
}

static void add_c_states(struct json* json) {
  char names[STATES_MAX][TEXT_BYTES_MAX];
  unsigned count = 0;
  int deepest = -1;
  for (; count < STATES_MAX; ++count) {
    uint64_t disabled = 0;
    if (!read_line(names[count], sizeof names[count], "/sys/devices/system/cpu/cpu0/cpuidle/state%u/name", count)) break;
    name_of_state(names[count]);
    (void)read_number(&disabled, "/sys/devices/system/cpu/cpu0/cpuidle/state%u/disable", count);
    if (disabled == 0) deepest = (int)count;
  }
  if (count == 0) return;
  json_open_list(json, "c_states");
  for (unsigned i = 0; i < count; ++i) {
    if (strcmp(names[i], "poll") != 0) json_element(json, names[i]);
  }
  json_close_list(json);
  if (deepest >= 0) json_text(json, "c_state_deepest", names[deepest]);
}

// The names are those of Neap's log (kernel/x86/power/facts.cpp). On other models the bits have another meaning.
static const char* package_limit(unsigned model, unsigned code) {
  static const char* const sandy_bridge[] = {"none", "c2", "c6_no_retention", "c6", "c7", "c7_shrunk", "code_6", "unlimited"};
  static const char* const skylake_server[] = {"none", "c2", "c6_no_retention", "c6", "code_4", "code_5", "code_6", "unlimited"};
  switch (model) {
    case 0x2a:
    case 0x2d:
    case 0x3a:
    case 0x3e:
      return sandy_bridge[code];
    case 0x55:
    case 0x6a:
    case 0x6c:
    case 0x8f:
    case 0xad:
    case 0xae:
    case 0xaf:
    case 0xcf:
      return skylake_server[code];
    default:
      return NULL;
  }
}

static void add_idle(struct json* json, const struct cpu* cpu) {
  if (cpu->largest >= 5 && (cpuid(1).ecx >> 3 & 1) != 0) {
    char text[16];
    snprintf(text, sizeof text, "0x%08x", cpuid(5).edx);
    json_text(json, "mwait_sub_states", text);
  }
  uint64_t value;
  // A hypervisor answers this register with a value of its own.
  if (cpu->intel && cpu->family == 6 && !cpu->hypervisor && package_limit(cpu->model, 0) != NULL &&
      read_msr(MSR_PKG_CST_CONFIG_CONTROL, &value)) {
    json_text(json, "c_state_limit", package_limit(cpu->model, value & 7));
    json_flag(json, "c_state_limit_locked", (value >> 15 & 1) != 0);
  }
  add_c_states(json);
  char driver[TEXT_BYTES_MAX];
  if (read_line(driver, sizeof driver, "/sys/devices/system/cpu/cpuidle/current_driver")) {
    json_text(json, "idle_driver", driver);
    const char* const module = strcmp(driver, "intel_idle") == 0 ? "intel_idle" : strcmp(driver, "acpi_idle") == 0 ? "processor" : NULL;
    if (module != NULL && read_number(&value, "/sys/module/%s/parameters/max_cstate", module))
      json_number(json, "c_state_driver_max", value);
  }
  json_text_of_file(json, "idle_governor", "/sys/devices/system/cpu/cpuidle/current_governor");
  if (read_number(&value, "/proc/sys/net/core/busy_poll")) json_number(json, "busy_poll_us", value);
}

// --- frequency and power -----------------------------------------------------------------------------------------------------------------
// Neap's table (kernel/x86/power/models.cpp): one step of the ratio is 133.33 MHz on Nehalem and Westmere, 100 MHz on later CPUs.
static unsigned ratio_step_khz(unsigned model) {
  switch (model) {
    case 0x1a:
    case 0x1e:
    case 0x1f:
    case 0x2e:
    case 0x25:
    case 0x2c:
    case 0x2f:
      return 133333;
    default:
      return 100000;
  }
}

static void add_mhz_of_file(struct json* json, const char* name, const char* file) {
  uint64_t khz;
  if (read_number(&khz, "/sys/devices/system/cpu/cpu0/cpufreq/%s", file)) json_number(json, name, khz / 1000);
}

static void add_frequencies(struct json* json, const struct cpu* cpu) {
  uint64_t info, turbo;
  if (cpu->intel && cpu->family == 6 && read_msr(MSR_PLATFORM_INFO, &info) && (info >> 8 & 0xff) != 0 && (info >> 40 & 0xff) != 0) {
    const uint64_t step_khz = ratio_step_khz(cpu->model), base = info >> 8 & 0xff;
    uint64_t highest = base;
    if (read_msr(MSR_TURBO_RATIO_LIMIT, &turbo) && (turbo & 0xff) > highest) highest = turbo & 0xff;
    uint64_t hwp;
    if (cpu->largest >= 6 && (cpuid(6).eax >> 7 & 1) != 0 && read_msr(MSR_PM_ENABLE, &hwp) && (hwp & 1) != 0 &&
        read_msr(MSR_HWP_CAPABILITIES, &turbo) && (turbo & 0xff) > highest) {
      highest = turbo & 0xff;
    }
    json_number(json, "frequency_min_mhz", (info >> 40 & 0xff) * step_khz / 1000);
    json_number(json, "frequency_base_mhz", base * step_khz / 1000);
    json_number(json, "frequency_max_mhz", highest * step_khz / 1000);
  } else {
    add_mhz_of_file(json, "frequency_min_mhz", "cpuinfo_min_freq");
    add_mhz_of_file(json, "frequency_base_mhz", "base_frequency");
    add_mhz_of_file(json, "frequency_max_mhz", "cpuinfo_max_freq");
  }
  add_mhz_of_file(json, "frequency_limit_min_mhz", "scaling_min_freq");
  add_mhz_of_file(json, "frequency_limit_max_mhz", "scaling_max_freq");
}

// Writes the member as one text, or as a list with an element for each core that runs if the cores differ.
static void add_of_cores(struct json* json, const char* name, const char* file) {
  static bool online[CORES_MAX];
  unsigned count, known = 0;
  char first[TEXT_BYTES_MAX], text[TEXT_BYTES_MAX];
  bool equal = true;
  if (!read_cores(online, &count, "/sys/devices/system/cpu/online")) return;
  for (unsigned core = 0; core < CORES_MAX; ++core) {
    if (!online[core] || !read_line(text, sizeof text, "/sys/devices/system/cpu/cpu%u/cpufreq/%s", core, file)) continue;
    if (known++ == 0) memcpy(first, text, sizeof first);
    equal = equal && strcmp(first, text) == 0;
  }
  if (known == 0) return;
  if (equal) {
    json_text(json, name, first);
    return;
  }
  json_open_list(json, name);
  for (unsigned core = 0; core < CORES_MAX; ++core) {
    if (online[core] && read_line(text, sizeof text, "/sys/devices/system/cpu/cpu%u/cpufreq/%s", core, file)) json_element(json, text);
  }
  json_close_list(json);
}

static void add_turbo(struct json* json, const struct cpu* cpu) {
  uint64_t value;
  if (read_number(&value, "/sys/devices/system/cpu/intel_pstate/no_turbo")) {
    json_flag(json, "turbo", value == 0);
  } else if (read_number(&value, "/sys/devices/system/cpu/cpufreq/boost")) {
    json_flag(json, "turbo", value != 0);
  } else if (cpu->intel && cpu->family == 6 && !cpu->hypervisor && cpu->largest >= 6 && (cpuid(6).eax >> 1 & 1) != 0 &&
             read_msr(MSR_MISC_ENABLE, &value)) {
    json_flag(json, "turbo", (value >> 38 & 1) == 0);
  }
}

// A limit that is off has no member.
static void add_power_limits(struct json* json, const struct cpu* cpu) {
  static const char* const names[] = {"power_limit_1_mw", "power_limit_2_mw"};
  uint64_t value, units;
  const bool has_registers = cpu->intel && cpu->family == 6 && !cpu->hypervisor && read_msr(MSR_RAPL_POWER_UNIT, &units) && units != 0 &&
                             read_msr(MSR_PKG_POWER_LIMIT, &value);
  for (unsigned i = 0; i < 2; ++i) {
    uint64_t microwatts;
    if (has_registers) {
      const uint64_t limit = i == 0 ? value : value >> 32, exponent = units & 0xf;
      if ((limit >> 15 & 1) != 0) json_number(json, names[i], ((limit & 0x7fff) * 1000 + (1ULL << exponent >> 1)) >> exponent);
    } else if (read_number(&microwatts, "/sys/class/powercap/intel-rapl:0/constraint_%u_power_limit_uw", i) && microwatts != 0) {
      json_number(json, names[i], microwatts / 1000);
    }
  }
}

static void add_power(struct json* json, const struct cpu* cpu) {
  add_frequencies(json, cpu);
  add_of_cores(json, "pstate_driver", "scaling_driver");
  add_of_cores(json, "pstate_governor", "scaling_governor");
  uint64_t value;
  const bool has_hwp = cpu->intel && cpu->largest >= 6 && (cpuid(6).eax >> 7 & 1) != 0;
  if (!has_hwp) {
    json_flag(json, "hwp", false);
  } else if (read_msr(MSR_PM_ENABLE, &value)) {
    json_flag(json, "hwp", (value & 1) != 0);
  }
  add_of_cores(json, "epp", "energy_performance_preference");
  add_turbo(json, cpu);
  add_power_limits(json, cpu);
}

// --- time --------------------------------------------------------------------------------------------------------------------------------
// perf's page of any event has the factor by which the kernel converts the TSC to nanoseconds: ns = tsc * multiplier >> shift.
static bool read_tsc_hz(uint64_t* hz) {
  struct perf_event_attr event = {.type = PERF_TYPE_SOFTWARE, .size = sizeof event, .config = PERF_COUNT_SW_DUMMY};
  event.exclude_kernel = 1;
  event.exclude_hv = 1;
  const int file = (int)syscall(SYS_perf_event_open, &event, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
  if (file < 0) return false;
  const size_t bytes = (size_t)sysconf(_SC_PAGESIZE);
  const struct perf_event_mmap_page* const page = mmap(NULL, bytes, PROT_READ, MAP_SHARED, file, 0);
  bool known = false;
  if (page != MAP_FAILED) {
    known = page->cap_user_time && page->time_mult != 0 && page->time_shift < 64;
    if (known) *hz = (uint64_t)(((unsigned __int128)1000000000 << page->time_shift) / page->time_mult);
    munmap((void*)page, bytes);
  }
  close(file);
  return known;
}

static void add_time(struct json* json, const struct cpu* cpu) {
  uint64_t hz;
  if (read_tsc_hz(&hz)) json_number(json, "tsc_hz", hz);
  if (cpu->largest_extended >= 0x80000007) json_flag(json, "tsc_invariant", (cpuid(0x80000007).edx >> 8 & 1) != 0);
  json_text_of_file(json, "clock_source", "/sys/devices/system/clocksource/clocksource0/current_clocksource");
  json_text_of_file(json, "timer_device", "/sys/devices/system/clockevents/clockevent0/current_device");
}

int machine_list_write(FILE* out, const char* interface) {
  char found[PATH_BYTES_MAX];
  if (interface != NULL && !has_interface(interface)) return MACHINE_LIST_NO_INTERFACE;
  if (interface == NULL && find_card(found, sizeof found)) interface = found;
  struct json json = {.out = out};
  const struct cpu cpu = identify();
  add_system(&json, &cpu);
  add_cpu_names(&json, &cpu);
  add_cores(&json);
  add_ram(&json);
  add_mitigations(&json);
  add_idle(&json, &cpu);
  add_power(&json, &cpu);
  add_time(&json, &cpu);
  if (interface != NULL) add_card(&json, interface);
  fputs("}\n", out);
  return fflush(out) == 0 && !ferror(out) ? MACHINE_LIST_WRITTEN : MACHINE_LIST_NOT_WRITTEN;
}
