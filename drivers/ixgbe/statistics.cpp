// SPDX-License-Identifier: BSL-1.0
#include "drivers/ixgbe/statistics.hpp"

namespace neap::ixgbe {

void Statistics::collect(Registers registers) noexcept {
  if (registers.card_gone()) return;
  const auto add = [&](std::uint64_t& total, auto location) { total += registers.read(location).raw(); };
  // The low half is read first: reading the high half clears both.
  const auto add_wide = [&](std::uint64_t& total, auto low, auto high) {
    const std::uint64_t low_half = registers.read(low).raw();
    total += low_half | std::uint64_t{registers.read(high).raw()} << 32;
  };
  add(received_good, reg::GPRC);
  add_wide(received_good_bytes, reg::GORCL, reg::GORCH);
  add(received_broadcast, reg::BPRC);
  add(received_multicast, reg::MPRC);
  add(transmitted_good, reg::GPTC);
  add_wide(transmitted_good_bytes, reg::GOTCL, reg::GOTCH);
  add(transmitted_broadcast, reg::BPTC);
  add(transmitted_multicast, reg::MPTC);
  add(crc_errors, reg::CRCERRS);
  add(illegal_byte_errors, reg::ILLERRC);
  add(error_bytes, reg::ERRBC);
  add(length_errors, reg::RLEC);
  add(undersize, reg::RUC);
  add(fragments, reg::RFC);
  add(oversize, reg::ROC);
  add(jabbers, reg::RJC);
  add(mac_local_faults, reg::MLFC);
  add(mac_remote_faults, reg::MRFC);
  add(pause_received, reg::LXONRXCNT);
  add(pause_received, reg::LXOFFRXCNT);
  add(pause_transmitted, reg::LXONTXC);
  add(pause_transmitted, reg::LXOFFTXC);
  for (unsigned i = 0; i < reg::RXMPC.count; ++i) add(missed_packet_buffer_full, reg::RXMPC(i));
  for (unsigned i = 0; i < queues.size(); ++i) {
    add(queues[i].received, reg::QPRC(i));
    add_wide(queues[i].received_bytes, reg::QBRC_L(i), reg::QBRC_H(i));
    add(queues[i].transmitted, reg::QPTC(i));
    add_wide(queues[i].transmitted_bytes, reg::QBTC_L(i), reg::QBTC_H(i));
    add(queues[i].dropped_no_descriptor, reg::QPRDC(i));
  }
}

}  // namespace neap::ixgbe
