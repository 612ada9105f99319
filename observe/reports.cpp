// SPDX-License-Identifier: BSL-1.0
// Reports of the machine's settings, state and counters, as text.
//
// A report must not disturb the machine that it describes. So it reads values that other cores publish, and wakes no core. `card` and
// `timers` are exceptions: `card` reads the card's registers, and `timers` asks each core, because no other core can read its timer wheel.
#include <chrono>

#include "kernel/application.hpp"
#include "kernel/events.hpp"
#include "kernel/log.hpp"
#include "kernel/machine.hpp"
#include "kernel/memory/heap.hpp"
#include "kernel/memory/page_allocator.hpp"
#include "kernel/numbers.hpp"
#include "kernel/panic.hpp"
#include "kernel/policy.hpp"
#include "kernel/task.hpp"
#include "kernel/timer.hpp"
#include "observe/built_in.hpp"
#include "observe/server.hpp"

namespace neap::observe {
namespace {

void report_core_policy(unsigned core, Fields& fields) {
  for (const policy::Row& row : policy::kernel_rows()) {
    if (row.scope == policy::Scope::machine) continue;
    fields.text(row.report_name.empty() ? row.name : row.report_name, policy::report(row, policy::value_of(row.setting, core)));
  }
  fields.number("generation", policy::of(core).generation);
}

std::string core_or_none(std::optional<unsigned> core) { return core ? std::to_string(*core) : "none"; }

constexpr NamedCount<EventCounters> event_counts[] = {
    {"kernel.events", &EventCounters::events},
    {"kernel.interrupts", &EventCounters::interrupts},
    {"kernel.interrupts_spurious", &EventCounters::spurious},
    {"kernel.remote_received", &EventCounters::remote_received},
    {"kernel.alarms", &EventCounters::alarms},
    {"kernel.remote_refused", &EventCounters::remote_refused},
    {"kernel.polling_phases", &EventCounters::polling_phases},
    {"kernel.sleeps", &EventCounters::sleeps},
    {"kernel.asleep_ns", &EventCounters::asleep_ns},
    {"kernel.halts", &EventCounters::halts},
    {"kernel.sleeps_c1", &EventCounters::sleeps_c1},
    {"kernel.sleeps_c1e", &EventCounters::sleeps_c1e},
    {"kernel.sleeps_c3", &EventCounters::sleeps_c3},
    {"kernel.sleeps_c6", &EventCounters::sleeps_c6},
    {"kernel.sleeps_c7", &EventCounters::sleeps_c7},
    {"kernel.halted_ns", &EventCounters::halted_ns},
    {"kernel.asleep_c1_ns", &EventCounters::asleep_c1_ns},
    {"kernel.asleep_c1e_ns", &EventCounters::asleep_c1e_ns},
    {"kernel.asleep_c3_ns", &EventCounters::asleep_c3_ns},
    {"kernel.asleep_c6_ns", &EventCounters::asleep_c6_ns},
    {"kernel.asleep_c7_ns", &EventCounters::asleep_c7_ns},
};

struct LogCounters {
  std::uint64_t lines, unwritten, requests;
};
LogCounters log_counters(unsigned core) noexcept {
  const log::Extent extent = log::extent(core);
  require(extent.first <= extent.end, "a log's first line is not after its end", core);
  return {.lines = extent.end - extent.first, .unwritten = extent.unwritten, .requests = log::requests(core)};
}
constexpr NamedCount<LogCounters> log_counts[] = {
    {"log.lines", &LogCounters::lines},
    {"log.unwritten", &LogCounters::unwritten},
    {"log.requests", &LogCounters::requests},
};

constexpr NamedCount<net::Counters> net_counts[] = {
    {"net.frames_received", &net::Counters::frames_received},
    {"net.bytes_received", &net::Counters::bytes_received},
    {"net.frames_sent", &net::Counters::frames_sent},
    {"net.bytes_sent", &net::Counters::bytes_sent},
    {"net.dropped_malformed", &net::Counters::dropped_malformed},
    {"net.dropped_checksum", &net::Counters::dropped_checksum},
    {"net.dropped_protocol", &net::Counters::dropped_protocol},
    {"net.dropped_memory", &net::Counters::dropped_memory},
    {"net.receive_copied", &net::Counters::receive_copied},
    {"net.receive_held_max", &net::Counters::receive_held_max},
    {"net.transmit_full", &net::Counters::transmit_full},
    {"net.transmit_failed", &net::Counters::transmit_failed},
    {"net.transmit_copied", &net::Counters::transmit_copied},
    {"net.joined_frames", &net::Counters::joined_frames},
    {"net.joined_segments", &net::Counters::joined_segments},
    {"net.joined_copied_bytes", &net::Counters::joined_copied_bytes},
    {"net.joined_no_memory", &net::Counters::joined_no_memory},
    {"net.passed_on", &net::Counters::passed_on},
    {"net.pass_on_refused", &net::Counters::pass_on_refused},
    {"net.neighbours_published", &net::Counters::neighbours_published},
    {"net.neighbours_withheld", &net::Counters::neighbours_withheld},
    {"net.neighbours_recycled", &net::Counters::neighbours_recycled},
    {"net.neighbours_refused", &net::Counters::neighbours_refused},
    {"net.unresolved_dropped", &net::Counters::unresolved_dropped},
    {"net.address_conflicts", &net::Counters::address_conflicts},
    {"net.ipv6_malformed", &net::Counters::ipv6_malformed},
    {"net.ipv6_discovery_refused", &net::Counters::ipv6_discovery_refused},
    {"net.ipv6_conflicts", &net::Counters::ipv6_conflicts},
    {"net.ipv6_neighbours_refused", &net::Counters::ipv6_neighbours_refused},
    {"net.ipv6_neighbours_recycled", &net::Counters::ipv6_neighbours_recycled},
    {"net.ipv6_waiting_dropped", &net::Counters::ipv6_waiting_dropped},
    {"net.ipv6_routers_refused", &net::Counters::ipv6_routers_refused},
    {"net.ipv6_redirects_ignored", &net::Counters::ipv6_redirects_ignored},
    {"net.ipv6_fragments_refused", &net::Counters::ipv6_fragments_refused},
    {"net.ipv6_fragments_expired", &net::Counters::ipv6_fragments_expired},
    {"net.ipv6_mtu_reduced", &net::Counters::ipv6_mtu_reduced},
    {"net.ipv6_mtu_refused", &net::Counters::ipv6_mtu_refused},
    {"net.ipv6_errors_sent", &net::Counters::ipv6_errors_sent},
    {"net.ipv6_errors_limited", &net::Counters::ipv6_errors_limited},
    {"net.ipv6_no_route", &net::Counters::ipv6_no_route},
    {"net.ipv6_received", &net::Counters::ipv6_received},
    {"net.segments_received", &net::Counters::segments_received},
    {"net.segments_sent", &net::Counters::segments_sent},
    {"net.retransmissions", &net::Counters::retransmissions},
    {"net.connections_open", &net::Counters::connections_open},
    {"net.connections_accepted", &net::Counters::connections_accepted},
    {"net.connections_made", &net::Counters::connections_made},
    {"net.connections_refused", &net::Counters::connections_refused},
    {"net.connections_reset", &net::Counters::connections_reset},
    {"net.segments_refused", &net::Counters::segments_refused},
    {"net.options_malformed", &net::Counters::options_malformed},
    {"net.icmp_errors", &net::Counters::icmp_errors},
    {"net.icmp_errors_limited", &net::Counters::icmp_errors_limited},
    {"net.challenge_acks", &net::Counters::challenge_acks},
    {"net.challenge_acks_limited", &net::Counters::challenge_acks_limited},
    {"net.resets_limited", &net::Counters::resets_limited},
    {"net.time_waits_replaced", &net::Counters::time_waits_replaced},
    {"net.dhcp_renewals", &net::Counters::dhcp_renewals},
    {"net.dhcp_naks", &net::Counters::dhcp_naks},
    {"net.dhcp_refused", &net::Counters::dhcp_refused},
    {"net.held_bytes", &net::Counters::held_bytes},
    {"net.held_bytes_max", &net::Counters::held_bytes_max},
    {"net.payload_refused", &net::Counters::payload_refused},
    {"net.out_of_order_dropped", &net::Counters::out_of_order_dropped},
    {"net.connections_evicted", &net::Counters::connections_evicted},
    {"net.half_open", &net::Counters::half_open},
    {"net.syns_refused", &net::Counters::syns_refused},
    {"net.cookies_sent", &net::Counters::cookies_sent},
    {"net.cookies_accepted", &net::Counters::cookies_accepted},
    {"net.cookies_rejected", &net::Counters::cookies_rejected},
    {"net.handler_out_of_memory", &net::Counters::handler_out_of_memory},
    {"net.discarded_bytes", &net::Counters::discarded_bytes},
    {"net.control_frames_received", &net::Counters::control_frames_received},
    {"net.control_bytes_received", &net::Counters::control_bytes_received},
    {"net.control_frames_sent", &net::Counters::control_frames_sent},
    {"net.control_bytes_sent", &net::Counters::control_bytes_sent},
};

constexpr NamedCount<net::Waits> net_waits[] = {
    {"tcp_ms", &net::Waits::tcp_ms},
    {"connections_ms", &net::Waits::connections_ms},
    {"neighbours_ms", &net::Waits::neighbours_ms},
    {"reassembly_ms", &net::Waits::reassembly_ms},
    {"groups_ms", &net::Waits::groups_ms},
    {"dhcp_ms", &net::Waits::dhcp_ms},
    {"lease_ms", &net::Waits::lease_ms},
    {"ipv6_ms", &net::Waits::ipv6_ms},
};

constexpr NamedCount<Counters, Counters::Count> control_counts[] = {
    {"control.connections", &Counters::connections},
    {"control.unproven_displaced", &Counters::unproven_displaced},
    {"control.unproven_expired", &Counters::unproven_expired},
    {"control.clients_served", &Counters::clients},
    {"control.clients_displaced", &Counters::clients_displaced},
    {"control.refused_full", &Counters::refused_full},
    {"control.refused_delayed", &Counters::refused_delayed},
    {"control.refused_address", &Counters::refused_address},
    {"control.refused_unheard", &Counters::refused_unheard},
    {"control.input_cut", &Counters::input_cut},
    {"control.closes_cut", &Counters::closes_cut},
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

struct Cores {
  unsigned first, end;
};

/// Emits the sums of `of(core)` over `cores`.
template <class Struct, std::size_t lines>
void report_sums(const NamedCount<Struct> (&table)[lines], Struct (*of)(unsigned core) noexcept, Cores cores, const Emit& emit) {
  Struct sums{};
  for (unsigned core = cores.first; core < cores.end; ++core) {
    const Struct more = of(core);
    for (const auto& [name, count] : table) sums.*count += more.*count;
  }
  for (const auto& [name, count] : table) emit(name, sums.*count);
}

// Each system management interrupt stops all cores. So the count of one core is reported, although the CPU counts for each core.
void report_machine(const Emit& emit) {
  const machine::HardwareErrors errors = machine::hardware_errors();
  emit("machine.corrected_errors", errors.corrected);
  emit("machine.uncorrected_errors", errors.uncorrected);
  if (const auto interrupts = machine::system_management_interrupts()) emit("machine.smis", *interrupts);
}

void report_memory(const Emit& emit) {
  const memory::PageCounters pages = memory::page_counters();
  emit("memory.total_bytes", pages.total_bytes);
  emit("memory.free_bytes", pages.free_bytes);
  emit("memory.refused_pages", pages.refused);
  emit("memory.foreign_pages", pages.foreign);
  const memory::HeapCounters heap = memory::heap_counters();
  emit("memory.heap_used_bytes", heap.used_bytes);
  emit("memory.heap_refused", heap.refused);
  emit("memory.heap_remote_frees", heap.remote_frees);
}

}  // namespace

void report_line_counts(Fields& fields) {
  std::uint64_t lines = 0, unwritten = 0;
  for (unsigned core = 0; core < core_count(); ++core) {
    const LogCounters more = log_counters(core);
    lines += more.lines;
    unwritten += more.unwritten;
  }
  fields.number("lines", lines);
  fields.number("unwritten", unwritten);
}

task<std::string> report_status(const Request& request) {
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
  report_line_counts(fields);
  fields.number("generation", policy::generation());
  fields.number("clients", request.server.clients().count());
  fields.text("control_core", core_or_none(server.options().control_core));
  fields.text("address", server.network() == nullptr ? "none" : server.network()->address().to_string());
  std::string ipv6;
  if (server.network() != nullptr) {
    for (const net::Address& address : server.network()->ipv6_addresses()) ipv6 += (ipv6.empty() ? "" : "+") + address.to_string();
  }
  fields.text("address6", ipv6.empty() ? "none" : ipv6);
  if (server.network() != nullptr) fields.number("mtu", server.network()->mtu());
  fields.text("token", server.options().token.empty() ? "no" : "yes");
  fields.text("dialect", server.options().dialect == Dialect::ebbrt ? "ebbrt" : "none");
  const log::Options& options = server.options().log;
  fields.number("log", options.entries_per_core);
  fields.text("log_full", options.when_full == log::WhenFull::stop ? "stop" : "overwrite");
  fields.number("log_sample_us", options.sample_period_us);
  if (options.sample_records != 0) fields.number("log_sample_interrupts", options.sample_records);
  fields.text("log_idle", options.idle_records ? "on" : "off");
  std::string events;
  for (const std::string& name : server.options().events) events += (events.empty() ? "" : "+") + name;
  fields.text("log_events", events.empty() ? "none" : events);
  co_return "ok " + fields.all();
}

task<std::string> report_policy(const Request& request) {
  std::string text = "ok generation=" + std::to_string(policy::generation());
  for (unsigned core = 0; core < core_count(); ++core) {
    if (request.core && *request.core != core) continue;
    Fields fields(" ");
    report_core_policy(core, fields);
    text += "; " + std::to_string(core) + ' ' + fields.all();
  }
  if (request.core) co_return text;
  if (policy::has_network()) {
    Fields network(" ");
    for (const policy::Row& row : policy::kernel_rows()) {
      if (row.scope != policy::Scope::machine) continue;
      network.text(row.report_name.empty() ? row.name : row.report_name, policy::report(row, policy::value_of(row.setting, 0)));
    }
    text += "; network " + network.all();
  }
  const policy::Device* const card = policy::device();
  if (card == nullptr) co_return text;
  Fields fields(" ");
  for (const policy::Row& row : card->settings()) {
    if (!row.preset && row.scope == policy::Scope::card) fields.number(row.name, card->value_of(row.setting));
  }
  co_return text + "; card " + fields.all();
}

task<std::string> report_cores(const Request&) {
  std::string text = "ok ";
  const std::uint64_t now_ns = machine::now_ns();
  for (unsigned core = 0; core < core_count(); ++core) {
    const EventCounters events = event_counters(core);
    const LogCounters log = log_counters(core);
    const log::TrafficTotals traffic = log::traffic(core);
    Fields fields(" ");
    report_core_policy(core, fields);
    fields.number("interrupts", events.interrupts);
    fields.number("records", log::extent(core).end);
    fields.number("unwritten", log.unwritten);
    fields.number("requests", log.requests);
    fields.number("rx_frames", traffic.rx_frames);
    fields.number("rx_bytes", traffic.rx_bytes);
    fields.number("tx_frames", traffic.tx_frames);
    fields.number("tx_bytes", traffic.tx_bytes);
    fields.number("sleeps", events.sleeps);
    fields.number("asleep_ns", events.asleep_ns);
    fields.number("now_ns", now_ns);
    if (core > 0) text += "; ";
    text += std::to_string(core) + ' ' + fields.all();
  }
  co_return text;
}

void report_own_statistics(const Server& server, std::optional<unsigned> core, const Emit& emit) {
  const Cores cores{.first = core.value_or(0), .end = core ? *core + 1 : core_count()};
  report_sums(event_counts, &event_counters, cores, emit);
  report_sums(log_counts, &log_counters, cores, emit);
  report_sums(net_counts, &net::counters, cores, emit);
  if (server.network() != nullptr) server.network()->device().report_counters(core, emit);
  if (core) return;
  report_machine(emit);
  report_memory(emit);
  for (const auto& [name, member] : control_counts) emit(name, (server.counters().*member).load(std::memory_order_relaxed));
  emit("control.clients", server.clients().proven());
  emit("control.unproven", server.clients().unproven());
  emit("control.held_bytes", server.clients().held_bytes());
}

task<std::string> report_statistics(const Request& request) {
  Fields fields;
  const Emit emit = [&](std::string_view name, std::uint64_t value) { fields.number(name, value); };
  request.server.report_statistics(request.core, emit);
  co_return "ok " + fields.all();
}

task<std::string> report_card(const Request& request) {
  const net::Network* const network = request.server.network();
  if (network == nullptr) co_return "error: there is no card";
  Fields fields;
  const Emit emit = [&](std::string_view name, std::uint64_t value) { fields.number(name, value); };
  if (const auto reported = co_await network->device().report_device_counters(request.core, emit); !reported) {
    co_return std::string("error: ") + reported.error().message;
  }
  co_return "ok " + fields.all();
}

task<std::string> report_timers(const Request& request) {
  const auto here = [] {
    Fields fields(" ");
    const PendingTimers pending = pending_timers();
    fields.number("pending", pending.count);
    fields.number("next_ms", static_cast<std::uint64_t>(std::chrono::ceil<std::chrono::milliseconds>(pending.until_next).count()));
    const net::Waits waits = net::waits();
    for (const auto& [name, member] : net_waits) fields.number(name, waits.*member);
    return fields.all();
  };
  std::string text = "ok";
  for (unsigned core = 0; core < core_count(); ++core) {
    if (request.core && *request.core != core) continue;
    text += (text.size() > 2 ? "; " : " ") + std::to_string(core) + ' ' + co_await on_core(core, here);
  }
  co_return text;
}

task<std::string> report_time(const Request&) {
  Fields fields(" ");
  fields.number("tsc", machine::timestamp());
  fields.number("tsc_hz", machine::timestamp_hz());
  fields.number("now_ns", machine::now_ns());
  fields.number("core", this_core());
  co_return "ok " + fields.all();
}

}  // namespace neap::observe
