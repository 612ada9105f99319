// SPDX-License-Identifier: BSL-1.0
#include "apps/tpcc/service.hpp"

namespace neap::tpcc {

void Service::report(std::optional<unsigned> core, const Emit& emit) const {
  const unsigned first = core.value_or(0), end = core ? *core + 1 : core_count;
  if (end > core_count) return;
  constexpr CoreStatistics of = [](const void* cores, unsigned index) noexcept -> const Statistics& {
    return static_cast<const CoreState*>(cores)[index].statistics;
  };
  report_statistics(of, cores_.get(), first, end, emit);
  if (!core) emit("connections.open", connections());
}

}  // namespace neap::tpcc
