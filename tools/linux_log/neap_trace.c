// SPDX-License-Identifier: BSL-1.0
// neap-trace: Neap's log of interrupts on a stock Linux (docs/linux-log.md).
//
// One file runs on any machine with a kernel that has BTF: the BPF programs are inside, and all libraries are linked statically.
// Exit status: 0; 1: this machine cannot do it; 2: the command line is wrong.
#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "control.h"
#include "machine_list.h"
#include "run.h"

enum { EXIT_CANNOT = 1, EXIT_USAGE = 2, DRAIN_PERIOD_MS = 100, LOG_ENTRIES = 1 << 20, SAMPLE_PERIOD_US = 1000 };
static const char usage[] =
    "usage: neap-trace --out DIR [--seconds N] [options]       writes core0.log, core1.log, ... when it ends\n"
    "       neap-trace --listen [ADDRESS:]PORT [options]       serves Neap's control protocol: ./neap log collect\n"
    "       neap-trace machine [--interface IF]                prints the facts about this machine as JSON\n"
    "options: --interface IF        the first interface of an ixgbe, if not given\n"
    "         --idle                records each sleep\n"
    "         --sample-us N         period of the samples of counters (1000)\n"
    "         --no-counters         opens no perf events\n"
    "         --entries N           largest number of entries in a core's log (1048576); of 64 bytes each\n"
    "         --ring N              entries between kernel and user space for each CPU, a power of two up to 16384\n"
    "         --drain-ms N          period in which the rings are emptied (100)\n"
    "         --application NAME    name of the traced server, for the log's header\n"
    "         --token-file FILE     a file with the token that clients must send\n";

struct Options {
  const char *out, *listen, *interface, *application, *token_file;
  uint64_t seconds, sample_us, entries, ring, drain_ms;
  bool record_sleeps, no_counters, is_machine;
};

__attribute__((format(printf, 2, 3), noreturn)) static void fail(int status, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fprintf(stderr, "neap-trace: ");
  vfprintf(stderr, format, arguments);
  fprintf(stderr, "\n");
  va_end(arguments);
  exit(status);
}

static uint64_t number(const char* option, const char* text, uint64_t minimum, uint64_t maximum) {
  char* end;
  errno = 0;
  const unsigned long long value = strtoull(text, &end, 10);
  if (errno || *text < '0' || *text > '9' || *end || value < minimum || value > maximum) {
    fail(EXIT_USAGE, "--%s takes %llu to %llu, not '%.40s'", option, (unsigned long long)minimum, (unsigned long long)maximum, text);
  }
  return value;
}

static struct Options parse(int count, char** words) {
  struct Options options = {
      .application = "linux", .sample_us = SAMPLE_PERIOD_US, .entries = LOG_ENTRIES, .ring = RAW_ENTRIES_MAX, .drain_ms = DRAIN_PERIOD_MS};
  static const struct option names[] = {
      {"out", 1, NULL, 'o'},     {"listen", 1, NULL, 'l'}, {"interface", 1, NULL, 'i'},  {"application", 1, NULL, 'a'},
      {"seconds", 1, NULL, 's'}, {"idle", 0, NULL, 'd'},   {"sample-us", 1, NULL, 'p'},  {"no-counters", 0, NULL, 'n'},
      {"entries", 1, NULL, 'e'}, {"ring", 1, NULL, 'r'},   {"token-file", 1, NULL, 't'}, {"drain-ms", 1, NULL, 'm'},
      {"help", 0, NULL, 'h'},    {NULL, 0, NULL, 0},
  };
  for (int found; (found = getopt_long(count, words, "h", names, NULL)) != -1;) {
    switch (found) {
      case 'o':
        options.out = optarg;
        break;
      case 'l':
        options.listen = optarg;
        break;
      case 'i':
        options.interface = optarg;
        break;
      case 'a':
        options.application = optarg;
        break;
      case 't':
        options.token_file = optarg;
        break;
      case 's':
        options.seconds = number("seconds", optarg, 1, 1000000);
        break;
      case 'p':
        options.sample_us = number("sample-us", optarg, 1, 1000000000);
        break;
      case 'e':
        options.entries = number("entries", optarg, 64, 1ULL << 40);
        break;
      case 'r':
        options.ring = number("ring", optarg, 16, RAW_ENTRIES_MAX);
        break;
      case 'm':
        options.drain_ms = number("drain-ms", optarg, 5, 60000);
        break;
      case 'd':
        options.record_sleeps = true;
        break;
      case 'n':
        options.no_counters = true;
        break;
      case 'h':
        fputs(usage, stdout);
        exit(0);
      default:
        fputs(usage, stderr);
        exit(EXIT_USAGE);
    }
  }
  if (optind < count && strcmp(words[optind], "machine") == 0) {
    options.is_machine = true;
    ++optind;
  }
  if (optind < count) fail(EXIT_USAGE, "'%.40s' is no word of neap-trace; --help lists them", words[optind]);
  if (options.ring & (options.ring - 1)) fail(EXIT_USAGE, "--ring takes a power of two, not %llu", (unsigned long long)options.ring);
  if (!options.is_machine && !options.out == !options.listen)
    fail(EXIT_USAGE, "give either --out DIR or --listen PORT; --help explains them");
  if (options.seconds && !options.out)
    fail(EXIT_USAGE, "--seconds belongs to --out; a client of --listen sends start,%llus", (unsigned long long)options.seconds);
  if (strlen(options.application) > 40) fail(EXIT_USAGE, "--application takes at most 40 characters");
  return options;
}

static void require_kernel(void) {
  if (access("/sys/kernel/btf/vmlinux", R_OK) != 0) {
    fail(EXIT_CANNOT, "this kernel has no BTF (/sys/kernel/btf/vmlinux); use one with CONFIG_DEBUG_INFO_BTF=y, such as Debian's since 11");
  }
  if (geteuid() != 0) fail(EXIT_CANNOT, "loading BPF programs needs root; run it by sudo");
}

static void require_module_types(void) {
  if (access("/sys/kernel/btf/ixgbe", R_OK) != 0 && access("/sys/module/ixgbe", F_OK) == 0 &&
      access("/sys/module/ixgbe/initstate", F_OK) == 0) {
    fail(EXIT_CANNOT, "the module ixgbe has no BTF; use the kernel's own module, not one that was built without BTF");
  }
}

static void read_token(const char* path, char* token) {
  *token = 0;
  if (!path) return;
  char line[TOKEN_BYTES_MAX + 2];
  if (!text_read_line(path, line, sizeof line) || !*line) fail(EXIT_USAGE, "%s holds no token; write one line into it", path);
  if (strlen(line) > TOKEN_BYTES_MAX) fail(EXIT_USAGE, "the token in %s is longer than %d bytes", path, TOKEN_BYTES_MAX);
  strcpy(token, line);
}

static struct Tracer* open_tracer(const struct Options* options) {
  struct Tracer* tracer = calloc(1, sizeof *tracer);
  char interface[16] = "", error[640];
  if (!tracer) fail(EXIT_CANNOT, "out of memory");
  host_read(&tracer->host);
  if (tracer->host.cpus > CPUS_MAX) fail(EXIT_CANNOT, "this machine has %u CPUs; neap-trace knows at most %d", tracer->host.cpus, CPUS_MAX);
  if (options->interface && strlen(options->interface) >= sizeof interface) fail(EXIT_USAGE, "--interface takes at most 15 characters");
  if (options->interface) snprintf(interface, sizeof interface, "%s", options->interface);
  if (!*interface && !card_find(interface, sizeof interface)) {
    fail(EXIT_CANNOT, "no interface here has the driver ixgbe, the only one that neap-trace knows; `modprobe ixgbe` loads it");
  }
  if (!card_open(&tracer->card, interface, error, sizeof error)) fail(EXIT_CANNOT, "%s", error);
  require_module_types();
  const struct rlimit files = {65536, 65536};  // a file for each counter of each CPU
  setrlimit(RLIMIT_NOFILE, &files);
  memset(tracer->counters.fds, 0xFF, sizeof tracer->counters.fds);
  if (!options->no_counters) counters_open(&tracer->counters, tracer->host.cpus, tracer->host.package_of);
  settings_open(&tracer->settings, &tracer->card, tracer->host.cpus);
  const struct KernelOptions kernel = {.cpus = tracer->host.cpus,
                                       .ring_entries = (uint32_t)options->ring,
                                       .sample_period_ns = options->sample_us * 1000,
                                       .record_sleeps = options->record_sleeps,
                                       .polling_state = tracer->host.polling_state,
                                       .idle_states = tracer->host.cpuidle_state_count};
  if (!kernel_load(&tracer->kernel, &kernel, &tracer->card, &tracer->counters, error, sizeof error)) fail(EXIT_CANNOT, "%s", error);
  tracer->cores = calloc(tracer->host.cpus, sizeof *tracer->cores);
  if (!tracer->cores) fail(EXIT_CANNOT, "out of memory");
  for (uint32_t cpu = 0; cpu < tracer->host.cpus; ++cpu) {
    tracer->cores[cpu].file.fd = -1;
    tracer->cores[cpu].kept =
        mmap(NULL, RAW_KEPT_MAX * sizeof(struct RawEntry), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (tracer->cores[cpu].kept == MAP_FAILED) fail(EXIT_CANNOT, "out of memory");
    tracer->cores[cpu].file.entries_max = options->entries;
  }
  tracer->facts.sample_period_us = (uint32_t)options->sample_us;
  snprintf(tracer->facts.application, sizeof tracer->facts.application, "%s", options->application);
  tracer->drain_period_ms = tracer->drain_period_ms_max = (uint32_t)options->drain_ms;
  tracer->out = options->out;
  return tracer;
}

static int open_signals(void) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  sigprocmask(SIG_BLOCK, &signals, NULL);
  return signalfd(-1, &signals, SFD_CLOEXEC);
}

/// Empties the rings and serves clients until a signal, or until the run of `--out` has ended.
static void loop(struct Tracer* tracer, struct Control* control, int signals) {
  uint64_t due_ns = monotonic_ns();
  for (bool is_over = false; !is_over;) {
    struct pollfd fds[CLIENTS_MAX + 2];
    fds[0] = (struct pollfd){.fd = signals, .events = POLLIN};
    const uint32_t count = control ? control_wanted(control, fds + 1) : 0;
    const uint64_t now_ns = monotonic_ns();
    poll(fds, count + 1, now_ns >= due_ns ? 0 : (int)((due_ns - now_ns) / 1000000 + 1));
    if (monotonic_ns() >= due_ns) {
      run_drain(tracer);
      due_ns = monotonic_ns() + tracer->drain_period_ms * 1000000ULL;
    }
    if (control) control_serve(control, fds + 1, count);
    is_over = fds[0].revents & POLLIN || (!control && !tracer->is_on);
  }
  run_stop(tracer);
}

static int finish_files(const struct Tracer* tracer) {
  int status = 0;
  for (uint32_t cpu = 0; cpu < tracer->host.cpus; ++cpu) {
    const struct LogFile* file = &tracer->cores[cpu].file;
    char from[4096], to[4096];
    snprintf(from, sizeof from, "%s/core%u.log.making", tracer->out, cpu);
    snprintf(to, sizeof to, "%s/core%u.log", tracer->out, cpu);
    const bool is_whole = !file->error && fsync(file->fd) == 0 && rename(from, to) == 0;
    if (!is_whole) status = EXIT_CANNOT;
    if (!is_whole) fprintf(stderr, "neap-trace: %s was not written whole (%s)\n", to, strerror(file->error ? file->error : errno));
    const uint64_t unwritten = run_unwritten(tracer, cpu);
    printf("core %u: %llu entries", cpu, (unsigned long long)file->entries);
    if (unwritten) printf(", %llu more found no room", (unsigned long long)unwritten);
    printf("\n");
  }
  return status;
}

static int list_machine(const char* interface) {
  const int status = machine_list_write(stdout, interface);
  if (status == MACHINE_LIST_NO_INTERFACE)
    fail(EXIT_CANNOT, "there is no interface %s; `ip link` lists them", interface ? interface : "of an ixgbe");
  if (status != MACHINE_LIST_WRITTEN || fflush(stdout) != 0)
    fail(EXIT_CANNOT, "the list cannot be written; is there memory, and room for the output?");
  return 0;
}

int main(int count, char** words) {
  const struct Options options = parse(count, words);
  if (options.is_machine) return list_machine(options.interface);
  char token[TOKEN_BYTES_MAX + 1], error[640];
  read_token(options.token_file, token);
  if (options.out && mkdir(options.out, 0755) != 0 && errno != EEXIST) {
    fail(EXIT_CANNOT, "%s cannot be made (%s); name another folder: --out", options.out, strerror(errno));
  }
  if (options.out && access(options.out, W_OK | X_OK) != 0) {
    fail(EXIT_CANNOT, "%s cannot be written (%s); name another folder: --out", options.out, strerror(errno));
  }
  require_kernel();
  struct Tracer* tracer = open_tracer(&options);
  const int signals = open_signals();
  struct Control* control = NULL;
  if (options.listen) {
    control = control_listen(tracer, options.listen, token, error, sizeof error);
    if (!control) fail(EXIT_CANNOT, "%s", error);
    printf("neap-trace: control at %s\n", options.listen);
  } else {
    if (!run_start(tracer, error, sizeof error)) fail(EXIT_CANNOT, "%s", error);
    if (options.seconds) tracer->end_ns = monotonic_ns() + options.seconds * 1000000000ULL;
    printf("neap-trace: records %s into %s\n", tracer->card.interface, options.out);
  }
  fflush(stdout);
  loop(tracer, control, signals);
  return options.out ? finish_files(tracer) : 0;
}
