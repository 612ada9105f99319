// SPDX-License-Identifier: BSL-1.0
#include "drivers/ixgbe/start_up.hpp"

#include <algorithm>
#include <array>
#include <bit>

#include "drivers/ixgbe/statistics.hpp"
#include "kernel/console.hpp"
#include "kernel/toeplitz.hpp"

namespace neap::ixgbe {

using namespace std::chrono_literals;

namespace {

void disable_interrupts(Registers registers) noexcept {
  registers.write(reg::EIMC, reg::Eimc::from_raw(Registers::all_ones & ~reg::Eimc::reserved_mask));
  for (unsigned i = 0; i < reg::EIMC_EX.count; ++i) registers.write(reg::EIMC_EX(i), {.vectors = Registers::all_ones});
  registers.flush();
}

/// 5.2.5.3.2: tells the card to start no more PCIe requests, and waits until those in flight are done.
task<Result<void>> disable_master(Registers registers) {
  registers.modify(reg::CTRL, [](reg::Ctrl& value) { value.pcie_master_disable = true; });
  co_return co_await wait_for(
      registers, reg::STATUS, [](reg::Status value) { return !value.pcie_master_enable; }, 800ms,
      "ixgbe: STATUS shows PCIe requests still in flight");
}

/// 4.2.1.7: performs link reset and software reset together, then waits 10 ms without access to the card.
task<Result<void>> reset_once(Registers registers) {
  registers.modify(reg::CTRL, [](reg::Ctrl& value) {
    value.lrst = true;
    value.rst = true;
  });
  co_await sleep_for(10ms);
  auto done = co_await wait_for(
      registers, reg::CTRL, [](reg::Ctrl value) { return !value.rst && !value.lrst; }, 100ms, "ixgbe: CTRL.RST did not clear itself");
  if (done) co_await sleep_for(10ms);
  co_return done;
}

}  // namespace

task<Result<void>> reset_card(Registers registers) {
  if (registers.card_gone()) co_return std::unexpected(card_gone_error);
  disable_interrupts(registers);
  auto quiet = co_await disable_master(registers);
  if (!quiet && quiet.error().code != ErrorCode::timeout) co_return quiet;
  auto done = co_await reset_once(registers);
  if (done && !quiet) {
    // 5.2.5.3.2: a second reset flushes requests that never ended.
    print(quiet.error().message, "; reset twice");
    done = co_await reset_once(registers);
  }
  if (done) disable_interrupts(registers);
  co_return done;
}

task<Result<void>> wait_until_initialised(Registers registers) {
  auto loaded = co_await wait_for(
      registers, reg::EEC, [](reg::Eec value) { return value.auto_read_done; }, 500ms, "ixgbe: EEC.AUTO_RD: the EEPROM was not loaded");
  if (!loaded) co_return loaded;
  const bool port1 = (registers.read(reg::STATUS).lan_id & 1) != 0;
  auto configured = co_await wait_for(
      registers, reg::EEMNGCTL, [port1](reg::Eemngctl value) { return port1 ? value.cfg_done1 : value.cfg_done0; }, 200ms,
      "ixgbe: EEMNGCTL.CFG_DONE did not come up");
  if (!configured) {
    if (configured.error().code != ErrorCode::timeout) co_return configured;
    // Cards whose EEPROM has no firmware section never set CFG_DONE. So the driver continues, as Linux does.
    print(configured.error().message, "; continues without the firmware");
  }
  auto ready = co_await wait_for(
      registers, reg::RDRXCTL, [](reg::Rdrxctl value) { return value.dma_init_done; }, 500ms, "ixgbe: RDRXCTL.DMAIDONE did not come up");
  if (ready) registers.modify(reg::CTRL_EXT, [](reg::CtrlExt& value) { value.driver_loaded = true; });
  co_return ready;
}

Result<MacAddress> read_mac(Registers registers) {
  const std::uint32_t low = registers.read(reg::RAL(0)).address_low;
  const reg::Rah high = registers.read(reg::RAH(0));
  MacAddress mac;
  for (unsigned i = 0; i < 4; ++i) mac[i] = static_cast<std::uint8_t>(low >> 8 * i);
  for (unsigned i = 0; i < 2; ++i) mac[4 + i] = static_cast<std::uint8_t>(high.address_high >> 8 * i);
  const bool multicast = (mac[0] & 1) != 0;
  if (multicast || !high.valid || (low == 0 && high.address_high == 0)) {
    return failure(ErrorCode::device, "ixgbe: RAL/RAH hold no unicast address: EEPROM invalid", high.raw());
  }
  return mac;
}

void clear_statistics(Registers registers) {
  // 8.2.3.23: there are 16 sets of counters for 128 queues. Queue i uses set i modulo 16.
  for (unsigned i = 0; i < reg::TQSM.count; ++i) {
    const std::uint32_t first = 4 * i % 16;
    registers.write(reg::RQSMR(i), {.queue0 = first, .queue1 = first + 1, .queue2 = first + 2, .queue3 = first + 3});
    registers.write(reg::TQSM(i), {.queue0 = first, .queue1 = first + 1, .queue2 = first + 2, .queue3 = first + 3});
  }
  Statistics discarded;
  (void)discarded.collect(registers);
}

namespace {

template <class Value>
void restore(Registers registers, reg::Location<Value> place) {
  registers.write(place, Value::from_raw(Value::reset_raw));
}
template <class Array>
void restore(Registers registers, Array places) {
  for (unsigned i = 0; i < places.count; ++i) restore(registers, places(i));
}

/// Filters, credits, rates, classes and pools may have been set by an earlier driver. All get the values of 4.6.7 and 4.6.11.3.4 (neither
/// DCB nor virtualisation), which are also the values after power-on. The datasheet does not state which of the registers a software reset
/// clears. Linux, DPDK and FreeBSD also clear the rates after each reset. The arbiter MUST be stopped.
void restore_all(Registers registers) {
  const auto restore_each = [registers](auto... places) { (restore(registers, places), ...); };
  restore_each(reg::FTQF, reg::ETQF, reg::SYNQF, reg::FCRTL, reg::FCRTH, reg::MFLCN, reg::VT_CTL, reg::MTQC, reg::TXPBSIZE, reg::TXPBTHRESH,
               reg::RTRPCS, reg::RTTPCS, reg::RTTDT2C, reg::RTTPT2C, reg::RTRPT4C, reg::RTRUP2TC, reg::RTTUP2TC, reg::RTTBCNRM,
               reg::SECTXMINIFG);
  for (unsigned queue = reg::TXDCTL.count; queue-- > 0;) {
    registers.write(reg::RTTDQSEL, {.queue = queue});
    restore_each(reg::RTTDT1C, reg::RTTBCNRC);
    registers.write(reg::QDE, {.enable = false, .queue = queue, .write = true});
  }
}

/// 7.1.2.8: programs the key, the table and the hashed fields. Ports of TCP and UDP are hashed. For other packets only IP addresses are
/// hashed, so that all fragments of a datagram reach one core.
void program_rss(Registers registers, const rss::Table& table) {
  for (unsigned i = 0; i < reg::RSSRK.count; ++i) {
    std::uint32_t word = 0;
    for (unsigned byte = 0; byte < 4; ++byte) word |= std::uint32_t{toeplitz::key[4 * i + byte]} << 8 * byte;
    registers.write(reg::RSSRK(i), {.key = word});
  }
  for (unsigned i = 0; i < table.entries; i += 4) {
    const std::uint8_t* const four = &table.queues[i];
    const reg::Reta entries{.entry0 = four[0], .entry1 = four[1], .entry2 = four[2], .entry3 = four[3]};
    if (i / 4 < reg::RETA.count) {
      registers.write(reg::RETA(i / 4), entries);
    } else {
      registers.write(reg::ERETA(i / 4 - reg::RETA.count), reg::Ereta::from_raw(entries.raw()));
    }
  }
  constexpr std::uint32_t mode_rss = 1;
  registers.write(reg::MRQC, {.mode = mode_rss,
                              .rss_ipv4_tcp = true,
                              .rss_ipv4 = true,
                              .rss_ipv6 = true,
                              .rss_ipv6_tcp = true,
                              .rss_ipv4_udp = true,
                              .rss_ipv6_udp = true});
}

}  // namespace

void program_receive(Registers registers, const Model& model, const rss::Table& table, std::uint32_t frame_bytes_max) {
  // 4.6.11.3.4: the arbiter is stopped while MTQC and the packet buffers change. `program_transmit` starts it again.
  registers.write(reg::RTTDCS, {.arbitration_disable = true, .bypass_data_monitor = true, .bypass_buffer_monitor = true});
  restore_all(registers);
  // 8.2.3.7.5: the descriptor holds the hash instead of a checksum over fragments. IP, TCP and UDP checksums are always checked.
  registers.write(reg::RXCSUM, {.packet_checksum_disable = true});
  // 8.2.3.7.4: selects the headers that the card distinguishes in the descriptor's packet type.
  registers.write(reg::PSRTYPE(0), {.tcp_header = true, .udp_header = true, .ipv4_header = true, .ipv6_header = true, .l2_header = true});
  program_rss(registers, table);
  // 8.2.3.22.8, 8.2.3.8.8: the FCS is stripped; both registers must agree. 8.2.3.22.13: the largest frame, including its FCS.
  constexpr std::uint32_t fcs_bytes = 4, ordinary_frame_bytes_max = 1514;
  registers.modify(reg::HLREG0, [=](reg::Hlreg0& value) {
    value.tx_crc_enable = true;
    value.rx_crc_strip = true;
    value.tx_pad_enable = true;
    value.jumbo_enable = frame_bytes_max > ordinary_frame_bytes_max;
  });
  registers.write(reg::MAXFRS, {.max_frame_bytes = frame_bytes_max + fcs_bytes});
  // 4.6.7 (and 8.2.3.8.8): values that the datasheet requires software to write.
  registers.modify(reg::RDRXCTL, [](reg::Rdrxctl& value) {
    value.crc_strip = true;
    value.rsc_first_size = 0;
    value.rsc_ack_completion = true;
    value.fcoe_write_fix = true;
  });
  // 7.1.12: segments without payload are not merged. RSC itself is a setting of each queue.
  registers.write(reg::RSCDBU, {.ack_disable = true});
  // 4.6.11.3.4: the one traffic class gets the whole packet buffer.
  for (unsigned i = 0; i < reg::RXPBSIZE.count; ++i) registers.write(reg::RXPBSIZE(i), {.size_kib = i == 0 ? model.receive_buffer_kib : 0});
  // 4.6.7: disables "no snoop": caches may hold the memory that the card writes, so they must see these writes.
  registers.modify(reg::CTRL_EXT, [](reg::CtrlExt& value) { value.no_snoop_disable = true; });
}

void program_steering(Registers registers, unsigned index, std::uint32_t flow, unsigned queue) {
  require(index < reg::FTQF.count && queue < receive_queues_max, "ixgbe: no such steering filter or queue", index);
  constexpr std::uint32_t protocol_tcp = 0, protocol_udp = 1, highest_priority = 7;
  registers.write(reg::FTQF(index), {.enable = false});
  if (flow == 0) return;
  // 8.2.3.5.13: the filter applies to frames of any size. Software must write the reserved bits 19:13 as 1000000b, and DPDK does so. Linux
  // 3.5 (for its time stamps) and TRex left these bits zero without problems.
  constexpr std::uint32_t reserved_bits = 0x40;
  registers.write(reg::SDPQF(index), {.destination_port = std::byteswap(static_cast<std::uint16_t>(flow))});
  registers.write(reg::L34TIMIR(index), {.size_bypass = true, .reserved_value = reserved_bits, .rx_queue = queue});
  registers.write(reg::FTQF(index), {.protocol = (flow & steer_udp) != 0 ? protocol_udp : protocol_tcp,
                                     .priority = highest_priority,
                                     .mask_source_address = true,
                                     .mask_destination_address = true,
                                     .mask_source_port = true,
                                     .mask_pool = true,
                                     .enable = true});
}

void program_promiscuous(Registers registers, bool on) {
  registers.write(reg::FCTRL, {.multicast_promiscuous = on, .unicast_promiscuous = on, .broadcast_accept = true});
}

void program_multicast(Registers registers, std::span<const MacAddress> groups, bool promiscuous) {
  registers.modify(reg::FCTRL, [](reg::Fctrl& value) { value.multicast_promiscuous = true; });
  constexpr std::size_t exact = reg::RAH.count - 1;  // 8.2.3.7.8, 8.2.3.7.9: filter 0 holds our own address
  for (unsigned i = 0; i < exact; ++i) {
    registers.write(reg::RAH(i + 1), {.valid = false});
    if (i >= groups.size()) continue;
    const MacAddress& group = groups[i];
    std::uint32_t low = 0;
    for (unsigned byte = 0; byte < 4; ++byte) low |= std::uint32_t{group[byte]} << 8 * byte;
    registers.write(reg::RAL(i + 1), {.address_low = low});
    registers.write(reg::RAH(i + 1), {.address_high = group[4] | std::uint32_t{group[5]} << 8, .valid = true});
  }
  // 8.2.3.7.3, 8.2.3.7.7: with filter offset 0, the last twelve bits of the address select a bit of the table.
  std::array<std::uint32_t, reg::MTA.count> table{};
  for (const MacAddress& group : groups.subspan(std::min(groups.size(), exact))) {
    const unsigned hash = group[4] >> 4 | group[5] << 4;
    table[hash / 32] |= 1U << hash % 32;
  }
  for (unsigned i = 0; i < table.size(); ++i) registers.write(reg::MTA(i), {.bits = table[i]});
  registers.write(reg::MCSTCTRL, {.offset = 0, .filter_enable = groups.size() > exact});
  program_promiscuous(registers, promiscuous);
}

void program_vlan(Registers registers, std::uint32_t vlan) {
  require(vlan < 4096, "ixgbe: no such VLAN", vlan);
  for (unsigned i = 0; i < reg::VFTA.count; ++i) registers.write(reg::VFTA(i), {.bits = vlan / 32 == i && vlan != 0 ? 1U << vlan % 32 : 0});
  registers.modify(reg::VLNCTRL, [vlan](reg::Vlnctrl& value) { value.filter_enable = vlan != 0; });
}

void program_flow_control(Registers registers, const Model& model, const QueueOptions& options) {
  const bool asks = (options.flow_control & flow_control_transmit) != 0;
  const bool obeys = (options.flow_control & flow_control_receive) != 0;
  require(options.frame_bytes_max <= 16 * 1024, "ixgbe: the largest frame leaves no room for flow control", options.frame_bytes_max);
  // XOFF is sent at a fill level that leaves room for the frames in flight: two frames of each side, and the contents of cable and MACs
  // (3.7.7.3.3). XON is sent at half of that level.
  constexpr std::uint32_t in_flight_bytes = 32 * 1024;
  const std::uint32_t high_bytes = model.receive_buffer_kib * 1024 - 4 * options.frame_bytes_max - in_flight_bytes;
  registers.write(reg::FCRTL(0), {.threshold_16 = asks ? high_bytes / 2 / 16 : 0, .xon_enable = asks});
  registers.write(reg::FCRTH(0), {.threshold_16 = asks ? high_bytes / 16 : 0, .enable = asks});
  // 8.2.3.3.2, 8.2.3.3.5: the longest pause; the card renews it after half of that time.
  constexpr std::uint32_t pause_quanta = 0xFFFF;
  registers.write(reg::FCTTV(0), {.even = pause_quanta, .odd = pause_quanta});
  registers.write(reg::FCRTV, {.refresh = pause_quanta / 2});
  registers.write(reg::FCCFG, {.tfce_link = asks});
  // 8.2.3.22.34: the MAC consumes pause frames, whether or not it obeys them.
  registers.modify(reg::MFLCN, [obeys](reg::Mflcn& value) {
    value.discard_pause = true;
    value.link_enable = obeys;
  });
}

void program_cache_hints(Registers registers, unsigned queue, bool on, std::uint8_t tag) {
  constexpr std::uint32_t mode_dca_1_0 = 1;
  registers.write(reg::DCA_CTRL, {.disable = !on, .mode = on ? mode_dca_1_0 : 0});
  registers.modify(reg::DCA_RXCTRL(queue), [=](reg::DcaRxctrl& value) {
    value.descriptor_dca = value.header_dca = value.payload_dca = on;
    value.cpu_id = tag;
  });
  registers.modify(reg::DCA_TXCTRL(queue), [=](reg::DcaTxctrl& value) {
    value.descriptor_dca = on;
    value.cpu_id = tag;
  });
}

task<Result<void>> start_receive(Registers registers) {
  // 4.6.7, "receive enable": stop the receive path, wait until it is empty, set RXCTRL.RXEN, and let the path run again.
  registers.modify(reg::SECRXCTRL, [](reg::Secrxctrl& value) { value.stop = true; });
  auto empty = co_await wait_for(
      registers, reg::SECRXSTAT, [](reg::Secrxstat value) { return value.ready; }, 100ms, "ixgbe: SECRXSTAT.SECRX_RDY did not come up");
  if (!empty) co_return empty;
  registers.write(reg::RXCTRL, {.enable = true});
  registers.modify(reg::SECRXCTRL, [](reg::Secrxctrl& value) { value.stop = false; });
  co_return Result<void>{};
}

void program_transmit(Registers registers, std::uint32_t frame_bytes_max) {
  // 8.2.3.9.16: if the packet buffer is filled above the threshold, no further frame is fetched. The frame being fetched must still fit,
  // with two tags and its FCS. Linux, DPDK, FreeBSD and the register's reset value leave 10 KiB of room.
  constexpr std::uint32_t transmit_packet_buffer_kib = 160, room_kib_min = 10, tags_and_fcs_bytes = 12;
  const std::uint32_t room_kib = std::max(room_kib_min, (frame_bytes_max + tags_and_fcs_bytes + 1023) / 1024);
  require(room_kib < transmit_packet_buffer_kib, "ixgbe: the largest frame exceeds the transmit packet buffer", frame_bytes_max);
  registers.write(reg::TXPBSIZE(0), {.size_kib = transmit_packet_buffer_kib});
  registers.write(reg::TXPBTHRESH(0), {.threshold_kib = transmit_packet_buffer_kib - room_kib});
  restore(registers, reg::RTTDCS);
  constexpr std::uint32_t unlimited = 4095;
  registers.write(reg::DTXMXSZRQ, {.max_bytes_256 = unlimited});
  registers.modify(reg::DMATXCTL, [](reg::Dmatxctl& value) { value.enable = true; });
}

void stop_card(Registers registers) noexcept {
  disable_interrupts(registers);
  registers.modify(reg::RXCTRL, [](reg::Rxctrl& value) { value.enable = false; });
  registers.modify(reg::DMATXCTL, [](reg::Dmatxctl& value) { value.enable = false; });
  registers.modify(reg::CTRL_EXT, [](reg::CtrlExt& value) { value.driver_loaded = false; });
  registers.modify(reg::CTRL, [](reg::Ctrl& value) { value.pcie_master_disable = true; });
  registers.flush();
}

}  // namespace neap::ixgbe
