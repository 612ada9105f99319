// SPDX-License-Identifier: BSL-1.0
#include "drivers/ixgbe/statistics.hpp"

namespace neap::ixgbe {

namespace {

/// A counter and the function that reads it; `i` is the number of the register set, if there are several sets.
template <class Struct>
struct Source : NamedCount<Struct> {
  std::uint64_t (*read)(Registers registers, unsigned i) noexcept;
};

template <const auto& location>
std::uint64_t once(Registers registers, unsigned) noexcept {
  return registers.read(location).raw();
}
template <const auto& locations>
std::uint64_t of_set(Registers registers, unsigned i) noexcept {
  return registers.read(locations(i)).raw();
}
/// The low half is read first: reading the high half clears both.
template <auto read_low, auto read_high>
std::uint64_t wide(Registers registers, unsigned i) noexcept {
  const std::uint64_t low = read_low(registers, i);
  return low | read_high(registers, i) << 32;
}
std::uint64_t missed(Registers registers, unsigned) noexcept {
  std::uint64_t sum = 0;
  for (unsigned i = 0; i < reg::RXMPC.count; ++i) sum += registers.read(reg::RXMPC(i)).raw();
  return sum;
}

constexpr Source<PortStatistics> port_sources[] = {
    {{"ixgbe.port.received", &PortStatistics::received}, &once<reg::GPRC>},
    {{"ixgbe.port.received_bytes", &PortStatistics::received_bytes}, &wide<once<reg::GORCL>, once<reg::GORCH>>},
    {{"ixgbe.port.sent", &PortStatistics::sent}, &once<reg::GPTC>},
    {{"ixgbe.port.sent_bytes", &PortStatistics::sent_bytes}, &wide<once<reg::GOTCL>, once<reg::GOTCH>>},
    {{"ixgbe.port.missed", &PortStatistics::missed}, &missed},
    {{"ixgbe.port.crc_errors", &PortStatistics::crc_errors}, &once<reg::CRCERRS>},
    {{"ixgbe.port.illegal_bytes", &PortStatistics::illegal_bytes}, &once<reg::ILLERRC>},
    {{"ixgbe.port.length_errors", &PortStatistics::length_errors}, &once<reg::RLEC>},
    {{"ixgbe.port.undersize", &PortStatistics::undersize}, &once<reg::RUC>},
    {{"ixgbe.port.fragments", &PortStatistics::fragments}, &once<reg::RFC>},
    {{"ixgbe.port.oversize", &PortStatistics::oversize}, &once<reg::ROC>},
    {{"ixgbe.port.jabbers", &PortStatistics::jabbers}, &once<reg::RJC>},
    {{"ixgbe.port.local_faults", &PortStatistics::local_faults}, &once<reg::MLFC>},
    {{"ixgbe.port.remote_faults", &PortStatistics::remote_faults}, &once<reg::MRFC>},
    {{"ixgbe.port.pauses", &PortStatistics::pauses}, &once<reg::LXOFFRXCNT>},
    {{"ixgbe.port.pauses_sent", &PortStatistics::pauses_sent}, &once<reg::LXOFFTXC>},
    {{"ixgbe.port.resumes_sent", &PortStatistics::resumes_sent}, &once<reg::LXONTXC>},
};
constexpr Source<QueueStatistics> queue_sources[] = {
    {{"ixgbe.queue.received", &QueueStatistics::received}, &of_set<reg::QPRC>},
    {{"ixgbe.queue.received_bytes", &QueueStatistics::received_bytes}, &wide<of_set<reg::QBRC_L>, of_set<reg::QBRC_H>>},
    {{"ixgbe.queue.sent", &QueueStatistics::sent}, &of_set<reg::QPTC>},
    {{"ixgbe.queue.sent_bytes", &QueueStatistics::sent_bytes}, &wide<of_set<reg::QBTC_L>, of_set<reg::QBTC_H>>},
    {{"ixgbe.queue.no_descriptor", &QueueStatistics::no_descriptor}, &of_set<reg::QPRDC>},
};

}  // namespace

Result<void> Statistics::collect(Registers registers) noexcept {
  if (registers.card_gone()) return std::unexpected(card_gone_error);
  for (const auto& source : port_sources) port.*source.count += source.read(registers, 0);
  for (unsigned i = 0; i < queues.size(); ++i) {
    for (const auto& source : queue_sources) queues[i].*source.count += source.read(registers, i);
  }
  return {};
}

std::uint64_t Statistics::collect_dropped(Registers registers, unsigned queue) noexcept {
  require(queue < queues.size(), "ixgbe: no such receive queue", queue);
  const std::uint64_t dropped = registers.read(reg::QPRDC(queue)).raw();
  if (dropped == Registers::all_ones && registers.card_gone()) return 0;
  queues[queue].no_descriptor += dropped;
  return dropped;
}

void Statistics::report(std::optional<unsigned> core, const Emit& emit) const {
  if (!core) {
    for (const auto& source : port_sources) emit(source.name, port.*source.count);
  }
  for (const auto& source : queue_sources) {
    std::uint64_t sum = 0;
    for (unsigned i = 0; i < queues.size(); ++i) sum += !core || i == *core ? queues[i].*source.count : 0;
    emit(source.name, sum);
  }
}

}  // namespace neap::ixgbe
