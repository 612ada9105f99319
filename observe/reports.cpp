// SPDX-License-Identifier: BSL-1.0
// What the machine is and does, as text.
//
// Looking must not change what is looked at: everything here reads what other cores publish, and wakes none of them.
#include <vector>

#include "kernel/application.hpp"
#include "kernel/events.hpp"
#include "kernel/log.hpp"
#include "kernel/machine.hpp"
#include "kernel/memory/heap.hpp"
#include "kernel/memory/page_allocator.hpp"
#include "kernel/numbers.hpp"
#include "kernel/policy.hpp"
#include "observe/built_in.hpp"
#include "observe/server.hpp"

namespace neap::observe {
namespace {

void tell_policy_of(unsigned core, Fields& fields) {
  constexpr const char* switches[] = {"off", "on", "unknown"};
  const policy::CorePolicy now = policy::of(core);
  fields.text("idle", idle_state_names[static_cast<unsigned>(now.idle)]);
  fields.number("itr_us", now.itr_us);
  fields.number("poll_budget_us", now.poll_budget_us);
  fields.text("pstate", hexadecimal(now.performance));
  fields.number("power_limit_mw", now.power_limit_mw);
  fields.text("turbo", switches[now.turbo < 2 ? now.turbo : 2]);
  fields.number("generation", now.generation);
}

std::string core_or_none(std::optional<unsigned> core) { return core ? std::to_string(*core) : "none"; }

struct NamedCount {
  std::string_view name;
  std::uint64_t net::Counters::* count;
};
constexpr NamedCount net_counts[] = {
    {"frames_received", &net::Counters::frames_received},
    {"bytes_received", &net::Counters::bytes_received},
    {"frames_sent", &net::Counters::frames_sent},
    {"bytes_sent", &net::Counters::bytes_sent},
    {"dropped_malformed", &net::Counters::dropped_malformed},
    {"dropped_checksum", &net::Counters::dropped_checksum},
    {"dropped_protocol", &net::Counters::dropped_protocol},
    {"dropped_memory", &net::Counters::dropped_memory},
    {"receive_copied", &net::Counters::receive_copied},
    {"receive_held_max", &net::Counters::receive_held_max},
    {"transmit_full", &net::Counters::transmit_full},
    {"transmit_failed", &net::Counters::transmit_failed},
    {"transmit_copied", &net::Counters::transmit_copied},
    {"passed_on", &net::Counters::passed_on},
    {"pass_on_refused", &net::Counters::pass_on_refused},
    {"neighbours_published", &net::Counters::neighbours_published},
    {"address_conflicts", &net::Counters::address_conflicts},
    {"segments_received", &net::Counters::segments_received},
    {"segments_sent", &net::Counters::segments_sent},
    {"retransmissions", &net::Counters::retransmissions},
    {"connections_open", &net::Counters::connections_open},
    {"connections_accepted", &net::Counters::connections_accepted},
    {"connections_made", &net::Counters::connections_made},
    {"connections_refused", &net::Counters::connections_refused},
    {"connections_reset", &net::Counters::connections_reset},
    {"handler_out_of_memory", &net::Counters::handler_out_of_memory},
    {"discarded_bytes", &net::Counters::discarded_bytes},
    {"control_frames_received", &net::Counters::control_frames_received},
    {"control_bytes_received", &net::Counters::control_bytes_received},
    {"control_frames_sent", &net::Counters::control_frames_sent},
    {"control_bytes_sent", &net::Counters::control_bytes_sent},
};

struct NamedControlCount {
  std::string_view name;
  Counters::Count Counters::* count;
};
constexpr NamedControlCount control_counts[] = {
    {"control.clients_served", &Counters::clients},
    {"control.clients_displaced", &Counters::clients_displaced},
    {"control.refused_full", &Counters::refused_full},
    {"control.refused_address", &Counters::refused_address},
    {"control.lines", &Counters::lines},
    {"control.refused", &Counters::refused},
    {"control.lines_too_long", &Counters::lines_too_long},
    {"control.lines_half", &Counters::lines_half},
    {"control.tokens_missing", &Counters::tokens_missing},
    {"control.tokens_wrong", &Counters::tokens_wrong},
    {"control.out_of_memory", &Counters::out_of_memory},
    {"control.gets", &Counters::gets},
    {"control.get_lines", &Counters::get_lines},
    {"control.gets_overtaken", &Counters::gets_overtaken},
    {"stream.streams", &Counters::streams},
    {"stream.blocks", &Counters::stream_blocks},
    {"stream.lines", &Counters::stream_lines},
    {"stream.gaps", &Counters::stream_gaps},
    {"stream.lines_lost", &Counters::stream_lines_lost},
    {"stream.overtaken", &Counters::streams_overtaken},
};

/// Sums of some cores' counters.
struct CoreSums {
  EventCounters events{};
  log::TrafficTotals traffic{};
  log::Extent log{};
  std::uint64_t log_lines = 0, requests = 0;

  void add(unsigned core) noexcept {
    const EventCounters more = event_counters(core);
    events.events += more.events;
    events.interrupts += more.interrupts;
    events.spurious += more.spurious;
    events.remote_received += more.remote_received;
    events.remote_refused += more.remote_refused;
    events.sleeps += more.sleeps;
    events.asleep_ns += more.asleep_ns;
    const log::TrafficTotals frames = log::traffic(core);
    traffic.rx_descriptors += frames.rx_descriptors;
    traffic.rx_frames += frames.rx_frames;
    traffic.rx_bytes += frames.rx_bytes;
    traffic.tx_descriptors += frames.tx_descriptors;
    traffic.tx_frames += frames.tx_frames;
    traffic.tx_bytes += frames.tx_bytes;
    const log::Extent extent = log::extent(core);
    log_lines += extent.end - extent.first;
    log.unwritten += extent.unwritten;
    requests += log::requests(core);
  }
};

void tell_kernel(const CoreSums& sums, const Emit& emit) {
  emit("kernel.events", sums.events.events);
  emit("kernel.interrupts", sums.events.interrupts);
  emit("kernel.interrupts_spurious", sums.events.spurious);
  emit("kernel.remote_received", sums.events.remote_received);
  emit("kernel.remote_refused", sums.events.remote_refused);
  emit("kernel.sleeps", sums.events.sleeps);
  emit("kernel.asleep_ns", sums.events.asleep_ns);
}

void tell_traffic(const CoreSums& sums, const Emit& emit) {
  emit("ixgbe.rx.descriptors", sums.traffic.rx_descriptors);
  emit("ixgbe.rx.frames", sums.traffic.rx_frames);
  emit("ixgbe.rx.bytes", sums.traffic.rx_bytes);
  emit("ixgbe.tx.descriptors", sums.traffic.tx_descriptors);
  emit("ixgbe.tx.frames", sums.traffic.tx_frames);
  emit("ixgbe.tx.bytes", sums.traffic.tx_bytes);
  emit("log.lines", sums.log_lines);
  emit("log.unwritten", sums.log.unwritten);
  emit("log.requests", sums.requests);
}

// The CPU counts them for each core; firmware takes all cores at once.
void tell_machine(const Emit& emit) {
  if (const auto interrupts = machine::system_management_interrupts()) emit("machine.smis", *interrupts);
}

void tell_memory(const Emit& emit) {
  const memory::PageCounters pages = memory::page_counters();
  emit("memory.total_bytes", pages.total_bytes);
  emit("memory.free_bytes", pages.free_bytes);
  emit("memory.refused_pages", pages.refused);
  const memory::HeapCounters heap = memory::heap_counters();
  emit("memory.heap_used_bytes", heap.used_bytes);
  emit("memory.heap_refused", heap.refused);
}

}  // namespace

void tell_lines(Fields& fields) {
  std::uint64_t lines = 0, unwritten = 0;
  for (unsigned core = 0; core < core_count(); ++core) {
    const log::Extent extent = log::extent(core);
    lines += extent.end - extent.first;
    unwritten += extent.unwritten;
  }
  fields.number("lines", lines);
  fields.number("unwritten", unwritten);
}

task<std::string> tell_status(const Request& request) {
  const Server& server = request.server;
  const log::State log = log::state();
  Fields fields;
  fields.text("application", application_name);
  fields.text("version", neap_version);
  fields.number("cores", core_count());
  fields.number("uptime_s", machine::now_ns() / 1'000'000'000);
  fields.text("boot_id", hex_id(server.boot_id()));
  fields.number("run", log.run);
  fields.text("logging", log.running ? "on" : "off");
  tell_lines(fields);
  fields.number("generation", policy::generation());
  fields.number("clients", request.server.clients().count());
  fields.text("control_core", core_or_none(server.options().control_core));
  fields.text("address", server.network() == nullptr ? "none" : server.network()->address().to_string());
  fields.text("token", server.options().token.empty() ? "no" : "yes");
  const log::Options& options = server.options().log;
  fields.number("log", options.records_per_core);
  fields.text("log_full", options.when_full == log::WhenFull::stop ? "stop" : "overwrite");
  fields.number("log_sample_us", options.sample_period_us);
  fields.text("log_idle", options.idle_records ? "on" : "off");
  co_return "ok " + fields.all();
}

task<std::string> tell_policy(const Request& request) {
  std::string text = "ok generation=" + std::to_string(policy::generation());
  for (unsigned core = 0; core < core_count(); ++core) {
    if (request.core && *request.core != core) continue;
    Fields fields(" ");
    tell_policy_of(core, fields);
    text += "; " + std::to_string(core) + ' ' + fields.all();
  }
  co_return text;
}

task<std::string> tell_cores(const Request&) {
  std::string text = "ok ";
  const std::uint64_t now_ns = machine::now_ns();
  for (unsigned core = 0; core < core_count(); ++core) {
    CoreSums sums;
    sums.add(core);
    Fields fields(" ");
    tell_policy_of(core, fields);
    fields.number("interrupts", sums.events.interrupts);
    fields.number("records", log::extent(core).end);
    fields.number("unwritten", sums.log.unwritten);
    fields.number("requests", sums.requests);
    fields.number("rx_frames", sums.traffic.rx_frames);
    fields.number("rx_bytes", sums.traffic.rx_bytes);
    fields.number("tx_frames", sums.traffic.tx_frames);
    fields.number("tx_bytes", sums.traffic.tx_bytes);
    fields.number("sleeps", sums.events.sleeps);
    fields.number("asleep_ns", sums.events.asleep_ns);
    fields.number("now_ns", now_ns);
    if (core > 0) text += "; ";
    text += std::to_string(core) + ' ' + fields.all();
  }
  co_return text;
}

void tell_own_statistics(const Server& server, std::optional<unsigned> core, const Emit& emit) {
  const unsigned first = core.value_or(0), end = core ? *core + 1 : core_count();
  CoreSums sums;
  for (unsigned other = first; other < end; ++other) sums.add(other);
  tell_kernel(sums, emit);
  tell_traffic(sums, emit);
  net::Counters net{};
  for (unsigned other = first; other < end; ++other) {
    const net::Counters more = net::counters(other);
    for (const auto& [name, member] : net_counts) net.*member += more.*member;
  }
  for (const auto& [name, member] : net_counts) emit("net." + std::string(name), net.*member);
  if (core) return;
  tell_machine(emit);
  tell_memory(emit);
  for (const auto& [name, member] : control_counts) emit(name, (server.counters().*member).load(std::memory_order_relaxed));
}

task<std::string> tell_statistics(const Request& request) {
  Fields fields;
  const Emit emit = [&](std::string_view name, std::uint64_t value) { fields.number(name, value); };
  request.server.tell_statistics(request.core, emit);
  co_return "ok " + fields.all();
}

task<std::string> tell_time(const Request&) {
  Fields fields(" ");
  fields.number("tsc", machine::timestamp());
  fields.number("tsc_hz", machine::timestamp_hz());
  fields.number("now_ns", machine::now_ns());
  fields.number("core", this_core());
  co_return "ok " + fields.all();
}

}  // namespace neap::observe
