// SPDX-License-Identifier: BSL-1.0
#include "sim/machine/snapshot.hpp"

#include <cinttypes>

namespace neap::model {

namespace {

void write_core(std::FILE* to, Package& package, unsigned core, Ticks now) {
  const Executed executed = package.executed(core);
  std::fprintf(to,
               "{\"instructions\":%" PRIu64 ",\"user_instructions\":%" PRIu64 ",\"cycles\":%" PRIu64 ",\"reference_cycles\":%" PRIu64
               ",\"c0_ns\":%" PRIu64 ",\"wakeups\":%" PRIu64 ",\"frequency_mhz\":%u,\"residency_ns\":{",
               executed.instructions, package.clock(core).user_work().instructions, executed.core_cycles, executed.reference_cycles,
               to_ns(package.clock(core).busy()), package.wakeups(core), package.clock(core).ratio() * 100);
  const auto write_states = [&](auto residency) {
    const char* separator = "";
    for (unsigned i = 1; i < state_count; ++i) {
      if (!package.cpu().sleep[i].present) continue;
      std::fprintf(to, "%s\"%s\":%" PRIu64, separator, state_names[i], to_ns(residency(static_cast<State>(i))));
      separator = ",";
    }
  };
  write_states([&](State state) { return package.residency(core, state, now); });
  // With SMT the core may be in a less deep state than this thread.
  std::fputs("},\"core_residency_ns\":{", to);
  write_states([&](State state) { return package.core_residency(core, state, now); });
  std::fputs("},\"wakeups_by\":{", to);
  for (unsigned i = 0; i < wake_cause_count; ++i) {
    std::fprintf(to, "%s\"%s\":%" PRIu64, i == 0 ? "" : ",", wake_cause_names[i], package.wakeups(core, static_cast<WakeCause>(i)));
  }
  std::fputs("}}", to);
}

}  // namespace

void write_snapshot(std::FILE* to, Package& package, const Moment& moment, const Digest& digest) {
  std::fprintf(to,
               "{\"event\":\"%s\",\"phase\":%u,\"load\":%" PRIu64 ",\"mark\":%" PRIu64 ",\"model\":\"%s\",\"virtual_ns\":%" PRIu64
               ",\"package_j\":%.9f,\"cores_j\":%.9f,\"dram_j\":%.9f,\"package_residency_ns\":{",
               moment.event, moment.phase, moment.load, moment.mark, package.cpu().name.c_str(), to_ns(moment.now),
               package.package_joules(moment.now), package.cores_joules(moment.now), package.dram_joules(moment.now));
  for (unsigned i = 1; i < package_state_count; ++i) {
    std::fprintf(to, "%s\"%s\":%" PRIu64, i == 1 ? "" : ",", package_state_names[i],
                 to_ns(package.package_residency(static_cast<PackageState>(i), moment.now)));
  }
  std::fprintf(to, "},\"digest\":\"%016" PRIx64 "\",\"cpus\":[", digest.value());
  for (unsigned i = 0; i < package.cores(); ++i) {
    if (i != 0) std::fputc(',', to);
    write_core(to, package, i, moment.now);
  }
  std::fputs("]}\n", to);
  std::fflush(to);
}

}  // namespace neap::model
