// SPDX-License-Identifier: BSL-1.0
#include "net/stack.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <new>

#include "kernel/console.hpp"
#include "kernel/machine.hpp"
#include "kernel/panic.hpp"
#include "lwip/dhcp.h"
#include "lwip/etharp.h"
#include "lwip/init.h"
#include "lwip/ip4_frag.h"
#include "lwip/memp.h"
#include "lwip/stats.h"
#include "net/control_frames.hpp"
#include "net/outgoing_segment.hpp"
#include "net/payload_reference.hpp"
#include "net/tcp/flow.hpp"
#include "netif/ethernet.h"

namespace neap::net {

constinit thread_local Stack* Stack::current_ = nullptr;

namespace {

/// The stack of each core. A core writes only its own element; any core reads all elements.
constinit std::array<std::atomic<const Stack*>, machine::cores_max> stacks_of_cores{};

constexpr unsigned table_bits = 12, time_wait_bits = 12;
constexpr std::uint32_t time_wait_max = 16'384;
constexpr std::uint64_t time_wait_us = 30'000'000;  ///< two times a segment's lifetime of 15 s

/// lwIP's initialisation MUST run only once on each core. A test may start several stacks on a core.
void start_lwip_once() noexcept {
  static constinit thread_local bool started = false;
  if (!started) lwip_init();
  started = true;
}

ip4_addr_t to_lwip(Ipv4Address address) noexcept { return {.addr = lwip_htonl(address.value)}; }
Ipv4Address from_lwip(const ip4_addr_t* address) noexcept { return {lwip_ntohl(ip4_addr_get_u32(address))}; }
err_t transmit(netif*, pbuf* frame) { return Stack::here()->transmit(frame); }

err_t initialise_interface(netif* interface) {
  interface->name[0] = 'i';
  interface->name[1] = 'x';
  interface->output = etharp_output;
  interface->linkoutput = transmit;
  interface->mtu = Stack::here()->mtu();
  interface->hwaddr_len = ETH_HWADDR_LEN;
  interface->flags = NETIF_FLAG_BROADCAST | NETIF_FLAG_ETHARP | NETIF_FLAG_ETHERNET;
  if (Stack::here()->primary()) interface->flags |= NETIF_FLAG_IGMP;  // the first core's IGMP serves all cores
  return ERR_OK;
}

}  // namespace

// --- Construction and destruction --------------------------------------------------------------------------------------------------------
Stack::Stack(StackGroup& group, unsigned core)
    : group_(group),
      core_(core),
      limits_(group.device.limits()),
      segmentation_(policy::offer_segmentation(segmentation_unsupported(limits_))),
      lwip_counters_(&lwip_stats),
      lwip_pools_(::memp_per_core),
      end_of_event_([this] { end_of_event(); }) {
  require(this_core() == core, "a stack is made on its own core", core);
  require(current_ == nullptr, "a core has one stack", core);
  current_ = this;
  finish_.stack = this;
  finish_.run = [](RemoteNode* node) noexcept { static_cast<FinishNode*>(node)->stack->finish_gone(); };

  start_lwip_once();
  netif_add_noaddr(&netif_, nullptr, &initialise_interface, &ethernet_input);
  const MacAddress mac = group.device.mac();
  for (std::size_t i = 0; i < mac.size(); ++i) netif_.hwaddr[i] = common_headers_.from_mac[i] = mac[i];
  common_headers_.ethertype = ETHTYPE_IP;
  common_headers_.version_and_length = SegmentHeaders::version_4_without_options;
  common_headers_.fragment = 0x4000;  // don't fragment: RFC 1191
  const unsigned table6_bits = group.ipv6_setting.mode == Ipv6Setting::Mode::off ? 1 : table_bits;
  const unsigned time_wait6_bits = group.ipv6_setting.mode == Ipv6Setting::Mode::off ? 1 : time_wait_bits;
  const bool tables = table_.start(table_bits) && time_wait_.start(time_wait_bits, time_wait_max, time_wait_us) &&
                      table6_.start(table6_bits) && time_wait6_.start(time_wait6_bits, time_wait_max, time_wait_us);
  require(tables, "there is memory for the tables of a stack", core);
  netif_set_hostname(&netif_, "neap");
  checksum_base_ = NETIF_CHECKSUM_ENABLE_ALL;
  if (limits_.checksum_offload) {
    checksum_base_ =
        static_cast<std::uint16_t>(checksum_base_ & ~(NETIF_CHECKSUM_GEN_IP | NETIF_CHECKSUM_GEN_TCP | NETIF_CHECKSUM_GEN_UDP));
  }
  NETIF_SET_CHECKSUM_CTRL(&netif_, checksum_base_);
  netif_set_default(&netif_);
  netif_set_up(&netif_);
  if (group.device.link_up()) netif_set_link_up(&netif_);
  policy::follow_network_settings(&tcp::load_settings);
  tcp::load_settings();
  stacks_of_cores[core].store(this, std::memory_order_release);
}

// Only tests end a stack.
Stack::~Stack() {
  require(this_core() == core_, "a stack ends on its own core", core_);
  require(frames_in_flight_ == 0, "a stack ends when the card has returned all frames", frames_in_flight_);
  require(connections() == 0, "a stack ends when all its connections have ended", connections());
  stacks_of_cores[core_].store(nullptr, std::memory_order_release);
  timer_.cancel();
  tcp_timer_.cancel();
  while (datagram_ports_ != nullptr) end_datagrams(datagram_ports_->pcb->local_port);
  if (primary() && netif_dhcp_data(&netif_) != nullptr) {
    dhcp_stop(&netif_);
    dhcp_cleanup(&netif_);
  }
  netif_remove(&netif_);
  memp_per_core_trim();
  trim_payload_references();
  OutgoingSegment::trim();
  Buffer::trim_free_list();
  tcp::Flow::trim();
  static_cast<void>(policy::offer_segmentation("no network is up"));
  current_ = nullptr;
}

const char* Stack::segmentation_unsupported(const NetDeviceLimits& limits) noexcept {
  if (limits.tso_bytes_max == 0) return "the network card cannot segment";
  if (!limits.checksum_offload) return "the network card does not fill in checksums";
  return nullptr;
}

void Stack::link_changed(bool up) noexcept {
  groups_dirty_ = true;  // lwIP sends IGMP reports again after the link or the address changed
  ++etharp_generation;   // without a link there is no route
  if (primary()) {
    print("net: link ", up ? "up" : "down");
    wake_lease_clock();
  }
  if (up) {
    netif_set_link_up(&netif_);
  } else {
    netif_set_link_down(&netif_);
  }
  if (primary() && up) ipv6_.begin();
  if (primary() && !up) ipv6_.end();
  want_checks();
}

void Stack::set_addresses(const Addresses& addresses) noexcept {
  const ip4_addr_t address = to_lwip(addresses.address);
  const ip4_addr_t netmask = to_lwip(addresses.netmask);
  const ip4_addr_t gateway = to_lwip(addresses.gateway);
  netif_set_addr(&netif_, &address, &netmask, &gateway);
  groups_dirty_ = true;
  want_checks();
}

Addresses Stack::addresses() const noexcept {
  return {.address = from_lwip(netif_ip4_addr(&netif_)),
          .netmask = from_lwip(netif_ip4_netmask(&netif_)),
          .gateway = from_lwip(netif_ip4_gw(&netif_))};
}

bool Stack::start_dhcp() noexcept {
  const bool started = dhcp_start(&netif_) == ERR_OK;
  want_checks();
  return started;
}

// --- The end of an event -----------------------------------------------------------------------------------------------------------------

// Most events handle segments of open connections, all without lwIP. Such an event changes no address, no time-out and no frame of lwIP's.
// Skipping the checks saves 80 instructions of an event (`./neap bench request --rows get.1`).
void Stack::end_of_event() noexcept {
  if (checks_due_) [[unlikely]]
    begin_checks();
  if (!dirty_.empty()) settle_dirty();
  if (checks_due_) [[unlikely]]
    check_at_event_end();
  now_us_ = 0;
}

void Stack::begin_checks() noexcept {
  if (retry_blocked_) {
    retry_blocked_ = false;
    while (ConnectionState* connection = blocked_.pop_front()) mark_dirty_at_receipt(*connection);
  }
  if (counters_.held_bytes.value() > memory_limit_bytes_ * memory::reset_factor) evict();
}

void Stack::check_at_event_end() noexcept {
  checks_due_ = false;
  if (const std::uint32_t own = netif_ip4_addr(&netif_)->addr; own != connections_address_) {
    connections_address_ = own;
    reset_connections_of_others();
  }
  if (primary() && addresses() != published_) publish_addresses();
  update_timers();
  if (memory_short()) checks_due_ = true;  // the next event checks again
}

void Stack::mark_gone(ConnectionState& connection) noexcept {
  require(this_core() == core_ && connection.gone(), "a connection ends on its own core, after it was closed", core_);
  if (is_queued<QueueLink>(connection)) dirty_.remove(connection);
  gone_.push_back(connection);
  if (!is_queued(finish_)) hand_over(core_, finish_);
}

// Connections that are gone leave the blocked ones together, because one could be removed only in a walk through all of them.
void Stack::finish_gone() noexcept {
  IntrusiveQueue<ConnectionState, BlockedLink> blocked = std::move(blocked_);
  while (ConnectionState* connection = blocked.pop_front()) {
    if (!connection->gone()) blocked_.push_back(*connection);
  }
  while (ConnectionState* connection = gone_.pop_front()) connection->finish();
}

void Stack::add(const ConnectionState&) noexcept {
  require(this_core() == core_, "a connection begins on the core of its stack", core_);
  counters_.connections_open.add();
}

void Stack::forget(const ConnectionState& connection) noexcept {
  require(this_core() == core_ && connections() > 0, "a connection ends once, on the core of its stack", core_);
  require(!is_queued<QueueLink>(connection) && !is_queued<BlockedLink>(connection), "a connection ends without work", core_);
  counters_.connections_open.subtract(1);
}

// Connections keep the address with which they began.
void Stack::reset_connections_of_others() noexcept {
  for (std::uint32_t chain = 0; chain < table_.chains(); ++chain) {
    for (ConnectionState* connection = table_.first_of(chain); connection != nullptr;) {
      ConnectionState* const next = connection->chain_next;
      if (static_cast<std::uint32_t>(connection->sent_ipv4().addresses) != connections_address_) {
        if (connection->listener() != nullptr) {
          connection->drop_half_open();
        } else {
          connection->request_abort();
        }
      }
      connection = next;
    }
  }
}

void Stack::abort_all() noexcept {
  while (listeners_ != nullptr) stop_listening(listeners_->port);
  for (std::uint32_t chain = 0; chain < chains(); ++chain) {
    for (ConnectionState* connection = first_of(chain); connection != nullptr; connection = connection->chain_next)
      connection->request_abort();
  }
}

void Stack::stop_transmitting() noexcept {
  transmitting_stopped_ = true;
  for (int i = 0; i <= IP_REASS_MAXAGE; ++i) ip_reass_tmr();
}

// --- Addresses of the machine ------------------------------------------------------------------------------------------------------------
namespace {

/// Sets `addresses` in the stack of each core except the group's first core, one core after the other. Waits while a core's queue is full.
task<void> distribute_addresses(StackGroup& group, Addresses addresses) {
  for (unsigned core = group.first + 1; core < group.first + group.cores; ++core) {
    co_await on_core(core, [&group, core, addresses] {
      if (Stack* const stack = group.stack(core); stack != nullptr) stack->set_addresses(addresses);
    });
  }
}

}  // namespace

void Stack::publish_addresses() noexcept {
  const Addresses now = addresses();
  if (published_.address != now.address) {
    if (published_.address.value != 0 && now.address.value == 0) print("net: the address is lost, connections are reset");
    if (published_.address.value != 0 && now.address.value != 0) print("net: the address changed, connections are reset");
  }
  published_ = now;
  groups_dirty_ = true;  // lwIP has scheduled an IGMP report of each group
  group_.netmask.store(now.netmask.value, std::memory_order_release);
  group_.address.store(now.address.value, std::memory_order_release);
  if (group_.cores > 1) start(distribute_addresses(group_, now));
}

// --- Counters ----------------------------------------------------------------------------------------------------------------------------
namespace {

std::uint64_t value_of(const STAT_COUNTER& counter) noexcept { return __atomic_load_n(&counter, __ATOMIC_RELAXED); }

}  // namespace

Counters Stack::snapshot() const noexcept {
  static_assert(sizeof(Counter) == sizeof(std::uint64_t) && sizeof(CountersOf<Counter>) == sizeof(Counters), "counters alone");
  std::array<std::uint64_t, sizeof(Counters) / sizeof(std::uint64_t)> values;
  std::ranges::transform(std::span(reinterpret_cast<const Counter*>(&counters_), values.size()), values.begin(), &Counter::value);
  auto all = std::bit_cast<Counters>(values);
  const stats_& lwip = *lwip_counters_;
  for (const stats_proto* const protocol : {&lwip.ip, &lwip.udp, &lwip.icmp}) all.dropped_checksum += value_of(protocol->chkerr);
  all.dropped_protocol += value_of(lwip.ip.drop);
  for (const stats_proto* const protocol : {&lwip.udp, &lwip.etharp}) all.dropped_protocol += value_of(protocol->proterr);
  if (const ipv6::Engine* const engine = ipv6_.engine(); engine != nullptr) {
    const ipv6::EngineCounters& of_engine = engine->counters();
    const ipv6::Neighbours::Counters& neighbours = engine->neighbours().counters();
    const ipv6::Reassembly::Counters& reassembly = engine->reassembly().counters();
    all.ipv6_malformed = of_engine.malformed.value();
    all.ipv6_discovery_refused = of_engine.discovery_refused.value();
    all.ipv6_conflicts = of_engine.conflicts.value() + engine->addresses().counters().duplicates.value();
    all.ipv6_neighbours_refused = neighbours.refused.value();
    all.ipv6_neighbours_recycled = neighbours.recycled.value();
    all.ipv6_waiting_dropped = neighbours.waiting_dropped.value();
    all.ipv6_routers_refused = of_engine.routers_refused.value() + of_engine.advertisements_limited.value();
    all.ipv6_redirects_ignored = of_engine.redirects_ignored.value();
    all.ipv6_fragments_refused = reassembly.refused.value() + reassembly.malformed.value() + reassembly.overlaps.value();
    all.ipv6_fragments_expired = reassembly.timed_out.value();
    all.ipv6_mtu_reduced = of_engine.too_big_believed.value();
    all.ipv6_mtu_refused = of_engine.too_big_refused.value();
    all.ipv6_errors_sent = of_engine.errors_sent.value();
    all.ipv6_errors_limited = of_engine.errors_limited.value();
    all.ipv6_no_route = of_engine.no_route.value();
    all.dropped_protocol += of_engine.not_for_us.value();
    all.dropped_checksum += of_engine.bad_checksum.value();
  }
  for (unsigned kind = 0; kind < MEMP_MAX; ++kind) all.dropped_memory += value_of(lwip_pools_[kind].refused);
  return all;
}

Counters Stack::counters_of(unsigned core) noexcept {
  const Stack* const stack = core < stacks_of_cores.size() ? stacks_of_cores[core].load(std::memory_order_acquire) : nullptr;
  return stack == nullptr ? Counters{} : stack->snapshot();
}

Counters counters(unsigned core) noexcept { return Stack::counters_of(core); }

}  // namespace neap::net
