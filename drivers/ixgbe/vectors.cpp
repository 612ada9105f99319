// SPDX-License-Identifier: BSL-1.0
#include "drivers/ixgbe/vectors.hpp"

#include <algorithm>

#include "drivers/ixgbe/queue_options.hpp"

namespace neap::ixgbe {

void program_vectors(Registers registers, unsigned pairs, bool transmit_interrupt) {
  require(pairs != 0 && pairs <= 2 * reg::IVAR.count, "ixgbe: more queue pairs than vectors", pairs);
  // 7.3.1.4, 8.2.3.5.18: MSI-X with more than one vector. Reading EICR does not clear the queues' causes. Masked messages stay pending.
  registers.write(reg::GPIE, {.multiple_msix = true, .other_clear_disable = true, .eiame = true, .pba_support = true});
  program_queue_causes(registers, pairs, transmit_interrupt);
  registers.write(reg::IVAR_MISC, {.other = pairs, .other_valid = true});
  program_moderation(registers, pairs, Moderation{});
  // 7.3.1.3, 7.3.1.4: queue causes clear themselves (those of vectors from 16 on always), and no cause masks its vector (queue_pair.hpp).
  registers.write(reg::EIAC, {.rtxq = (1U << std::min(pairs, 16U)) - 1});
  registers.write(reg::EIAM, {.rtxq = 0});
  for (unsigned i = 0; i < reg::EIAM_EX.count; ++i) registers.write(reg::EIAM_EX(i), {.vectors = 0});
}

// The datasheet does not say whether IVAR may be written while queues run. Linux writes it only before. A cause that is set already still
// causes its interrupt.
void program_queue_causes(Registers registers, unsigned pairs, bool transmit_interrupt) {
  // 7.3.4.3: one register serves two queue pairs; both directions of a pair share its vector.
  const auto receives = [pairs](unsigned queue) { return queue < std::min(pairs, receive_queues_max); };
  const auto transmits = [=](unsigned queue) { return queue < pairs && (transmit_interrupt || !receives(queue)); };
  for (unsigned i = 0; 2 * i < pairs; ++i) {
    const unsigned even = 2 * i, odd = even + 1;
    registers.write(reg::IVAR(i), {.rx_even = receives(even) ? even : 0,
                                   .rx_even_valid = receives(even),
                                   .tx_even = transmits(even) ? even : 0,
                                   .tx_even_valid = transmits(even),
                                   .rx_odd = receives(odd) ? odd : 0,
                                   .rx_odd_valid = receives(odd),
                                   .tx_odd = transmits(odd) ? odd : 0,
                                   .tx_odd_valid = transmits(odd)});
  }
}

void enable_vectors(Registers registers, std::uint64_t queues) {
  (void)take_other_causes(registers);
  registers.write(reg::EIMS_EX(0), {.vectors = static_cast<std::uint32_t>(queues)});
  registers.write(reg::EIMS_EX(1), {.vectors = static_cast<std::uint32_t>(queues >> 32)});
  registers.write(reg::EIMS, {.pci_exception = true, .lsc = true, .ecc = true, .other = true});
}

void program_moderation(Registers registers, unsigned vector, Moderation moderation) {
  registers.write(reg::EITR(vector), {.itr_interval = moderation.interval_steps, .counter_write_disable = true});
}

void mask_vector(Registers registers, unsigned vector) { registers.write(reg::EIMC_EX(vector / 32), {.vectors = 1U << vector % 32}); }

void unmask_vector(Registers registers, unsigned vector, bool raise) {
  registers.write(reg::EIMS_EX(vector / 32), {.vectors = 1U << vector % 32});
  if (raise) registers.write(reg::EICS_EX(vector / 32), {.vectors = 1U << vector % 32});
}

reg::Eicr take_other_causes(Registers registers) {
  // EICR is not read, because the 82599 specification update warns that clear-by-read may lose a cause that occurs at that moment. EICS
  // shows the causes without clearing them, and writing ones to EICR clears the causes that were read (Linux does the same).
  reg::Eicr causes = reg::Eicr::from_raw(registers.read(reg::EICS).raw());
  if (causes.raw() == Registers::all_ones) return causes;
  causes.rtxq = 0;
  registers.write(reg::EICR, causes);
  return causes;
}

}  // namespace neap::ixgbe
