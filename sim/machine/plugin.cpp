// SPDX-License-Identifier: BSL-1.0
// The model machine's CPUs, as a plugin for QEMU's TCG.
//
//   -icount shift=0,sleep=off -accel tcg,thread=single
//   -plugin machine.so,model=FILE[,link=SOCKET][,out=FILE][,quantum_ns=N][,stay=on][,lines=on][,seed=N][,stall=A:B][,trace=FILE]
//     [,profile=FILE][,moves=off][,instructions_max=N][,pace=host][,misplace=OFFSET][,interrupt_us=N]
//
//   model       the CPU's numbers: the flat file that tools/model/cpu_model.py makes
//   link        the world's socket (link.hpp); without it there is no card on this clock
//   out         snapshots, a line of JSON each (snapshot.hpp)
//   quantum_ns  length of a round of the cores (clock.hpp), 2000 by default
//   stay        on: the world's last phase does not end the run
//   lines       on: a snapshot at the end of each line on the first serial port
//   seed        recorded in the digest, and where `stall` begins. RDRAND follows QEMU's option -seed.
//   stall       MEAN_US:MAX_US: cores are late at random (stalls.hpp)
//   profile     the window's instructions by address (profile.hpp); of a sequence of loads with % for the load's number. With lines=on the
//               instructions between lines of the console, with % for the line's number
//   moves       off: of the profile, without the moves of cache lines
//   instructions_max
//               the run ends with status 6 when the cores have executed more than N instructions; a guest that polls never ends by itself
//   pace        host: idle time passes as the host's time does, for clients on the host. It needs -icount shift=0,sleep=on, and one
//               CPU. A run is then not the same twice.
//   misplace    for tests: this offset of qemu_layout.hpp is 8 bytes too large. A check MUST notice that.
//   trace       each sleep, wake-up and stall, as text
//   interrupt_us
//               for tests: the host interrupts the CPUs' runs about every N us of its time. The results MUST NOT change.
//
// A refusal is one sentence on standard error and status 2; no instruction has run then.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>

#include "sim/machine/machine.hpp"
#include "sim/machine/profile.hpp"
#include "sim/machine/qemu_layout.hpp"

using namespace neap::model;

// QEMU's plugin interface, version 7. No package has its header, so the functions used are declared here.
extern "C" {
[[gnu::visibility("default")]] extern int qemu_plugin_version;
int qemu_plugin_version = PLUGIN_API;
struct PluginInfo {
  const char* target_name;
  struct {
    int min, cur;
  } version;
  bool system_emulation;
  struct {
    int smp_vcpus, max_vcpus;
  } system;
};
void qemu_plugin_register_vcpu_init_cb(std::uint64_t plugin, void (*callback)(unsigned cpu, void* data), void* data);
/// Types: 1 interrupts, 2 exceptions.
void qemu_plugin_register_vcpu_discon_cb(std::uint64_t plugin, int types,
                                         void (*callback)(unsigned cpu, int type, std::uint64_t from, std::uint64_t to, void* data),
                                         void* data);
void qemu_plugin_register_atexit_cb(std::uint64_t plugin, void (*callback)(void* data), void* data);
[[gnu::visibility("default")]] int qemu_plugin_install(std::uint64_t plugin, const PluginInfo* info, int argc, char** argv);
}

namespace {

Machine* machine = nullptr;  // never destroyed, because QEMU calls the plugin until the process ends

[[noreturn]] void refuse(const std::string& why) {
  std::fprintf(stderr, "neap-machine: %s\n", why.c_str());
  qemu::end_process(2);
}

constexpr qemu::Hooks hooks{
    .clock_ns = [] { return static_cast<std::int64_t>(to_ns(machine->now())); },
    .tsc = [] { return machine->tsc(); },
    .enter = [](unsigned cpu) { return machine->enter(cpu); },
    .look_at_memory = [] { machine->look_at_memory(); },
    .interrupt_taken = [](unsigned cpu) { machine->interrupt_taken(cpu); },
    .level_changed = [](unsigned cpu, bool user) { machine->level_changed(cpu, user); },
    .interrupt_raised = [](unsigned cpu) { machine->interrupt_raised(cpu); },
    .masked_interrupt_wakes = [](unsigned cpu) { return machine->masked_interrupt_wakes(cpu); },
    .read_msr = [](unsigned cpu, std::uint32_t number, std::uint64_t& value) { return machine->read(cpu, number, value); },
    .write_msr = [](unsigned cpu, std::uint32_t number, std::uint64_t value) { return machine->write(cpu, number, value); },
    .read_counter = [](unsigned cpu, std::uint32_t selector,
                       std::uint64_t& value) { return machine->read_performance_counter(cpu, selector, value); },
    .cpuid = [](unsigned cpu, std::uint32_t leaf, std::uint32_t subleaf, CpuidWords& words) { machine->cpuid(cpu, leaf, subleaf, words); },
    .monitor = [](unsigned cpu, const std::uint8_t* line) { machine->monitor(cpu, line); },
    .mwait = [](unsigned cpu, const qemu::MwaitRequest& request) { return machine->mwait(cpu, request); },
    .halt = [](unsigned cpu) { machine->halt(cpu); },
    .pause = [](unsigned cpu) { return machine->pause(cpu); },
    .may_read_tsc = [](unsigned cpu) { return machine->may_read_tsc(cpu); },
    .port_write = [](unsigned, std::uint32_t port, std::uint32_t value) { machine->port_write(port, value); },
    .before_card_access = [](bool write, std::uint32_t region, std::uint64_t offset, const void* data,
                             std::size_t bytes) { machine->before_card_access(write, region, offset, data, bytes); },
    .after_card_access = [] { machine->after_card_access(); },
    .timer = [] { machine->advance_world(); },
};

struct Words {
  std::string model, link, profile;
  bool watches_moves = true, has_hosts_pace = false;
  unsigned interrupt_us = 0;  // 0: not
  Options options;
};

std::FILE* opened(const char* path) {
  std::FILE* const file = std::fopen(path, "w");
  if (file == nullptr) refuse(std::string("cannot write ") + path);
  return file;
}

void misplace(std::string_view name) {
  const auto found = std::ranges::find(qemu::offset::all, name, &qemu::offset::Named::name);
  if (found == qemu::offset::all.end()) refuse("misplace: there is no offset " + std::string(name));
  *found->value += 8;
}

Words parse_words(int argc, char** argv) {
  Words words;
  for (int i = 0; i < argc; ++i) {
    const char* const equals = std::strchr(argv[i], '=');
    const std::string key(argv[i], equals == nullptr ? std::strlen(argv[i]) : static_cast<std::size_t>(equals - argv[i]));
    const char* const value = equals == nullptr ? "" : equals + 1;
    char* end = nullptr;
    if (key == "model") {
      words.model = value;
    } else if (key == "link") {
      words.link = value;
    } else if (key == "profile") {
      words.profile = value;
    } else if (key == "moves") {
      words.watches_moves = std::strcmp(value, "off") != 0;
    } else if (key == "out") {
      words.options.out = opened(value);
    } else if (key == "trace") {
      words.options.trace = opened(value);
    } else if (key == "stay") {
      words.options.stay = std::strcmp(value, "on") == 0;
    } else if (key == "lines") {
      words.options.lines = std::strcmp(value, "on") == 0;
    } else if (key == "quantum_ns") {
      const auto ns = std::strtoul(value, &end, 10);
      if (*end != '\0' || ns < 100 || ns > 1'000'000) refuse("quantum_ns takes 100 to 1000000");
      words.options.quantum = from_ns(ns);
    } else if (key == "interrupt_us") {
      const auto us = std::strtoul(value, &end, 10);
      if (*end != '\0' || us < 1 || us > 1'000'000) refuse("interrupt_us takes 1 to 1000000");
      words.interrupt_us = static_cast<unsigned>(us);
    } else if (key == "instructions_max") {
      words.options.instructions_max = std::strtoul(value, &end, 10);
      if (*end != '\0' || words.options.instructions_max == 0) refuse("instructions_max takes a number above 0");
    } else if (key == "pace") {
      words.has_hosts_pace = std::strcmp(value, "host") == 0;
    } else if (key == "misplace") {
      misplace(value);
    } else if (key == "seed") {
      words.options.seed = std::strtoul(value, &end, 10);
      if (*end != '\0') refuse("seed takes a number");
    } else if (key == "stall") {
      if (!words.options.stall.parse(value)) refuse("stall takes two times in us, 1 to 1000000: MEAN:MAX");
    } else {
      refuse("unknown option " + key +
             "; accepted: model link instructions_max misplace interrupt_us moves out pace profile quantum_ns stay lines seed stall trace");
    }
  }
  if (words.options.lines && !words.profile.empty() && words.profile.find('%', words.profile.rfind('/') + 1) == std::string::npos) {
    refuse("profile needs a % in the file's name with lines=on, for the number of the line");
  }
  return words;
}

CpuModel read_model(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) refuse("cannot read the model file '" + path + "'");
  auto model = parse_cpu_model(text.str());
  if (!model) refuse("model file " + path + ": " + model.error());
  return *model;
}

}  // namespace

int qemu_plugin_install(std::uint64_t plugin, const PluginInfo* info, int argc, char** argv) {
  const Words words = parse_words(argc, argv);
  if (!info->system_emulation || std::strcmp(info->target_name, "x86_64") != 0) refuse("it models an x86-64 machine only");
  const auto cores = static_cast<unsigned>(info->system.smp_vcpus);
  if (cores > cores_max) refuse("the model has at most " + std::to_string(cores_max) + " CPUs");
  const CpuModel model = read_model(words.model);
  if (const char* const why = qemu::attach(hooks)) refuse(why);
  Link link;
  if (!words.link.empty()) {
    if (const char* const why = link.connect(words.link.c_str())) refuse(why);
  }
  if (words.has_hosts_pace && cores > 1) refuse("pace=host is for one CPU");
  if (words.has_hosts_pace) qemu::leave_idle_time_to_qemu();
  machine = new Machine(model, cores, words.options, link);
  qemu_plugin_register_vcpu_init_cb(
      plugin,
      [](unsigned cpu, void*) {
        if (const char* const why = qemu::check_cpu(cpu)) refuse(why);
        if (cpu == 0) machine->start_world();
      },
      nullptr);
  if (!words.profile.empty()) {
    const profile::Span span = words.options.lines ? profile::Span::console_line : profile::Span::window;
    profile::begin(plugin, words.profile.c_str(), span, words.watches_moves && cores > 1);
  }
  if (words.interrupt_us != 0) qemu::interrupt_runs(words.interrupt_us);
  constexpr int interrupts_and_exceptions = 3;
  qemu_plugin_register_vcpu_discon_cb(
      plugin, interrupts_and_exceptions,
      [](unsigned cpu, int, std::uint64_t, std::uint64_t, void*) { machine->level_changed(cpu, qemu::is_at_user_level(cpu)); }, nullptr);
  qemu_plugin_register_atexit_cb(plugin, [](void*) { machine->ended(); }, nullptr);
  return 0;
}
