// SPDX-License-Identifier: BSL-1.0
#include "apps/tpcc/statistics.hpp"

#include <string>

namespace neap::tpcc {
namespace {

constexpr NamedCount<Statistics, Counter> rows[] = {
    {"connections.accepted", &Statistics::connections_accepted},
    {"connections.closed", &Statistics::connections_closed},
    {"connections.refused", &Statistics::connections_refused},
    {"connections.idle_closed", &Statistics::connections_idle_closed},
    {"connections.aborted", &Statistics::connections_aborted},
    {"requests.transactions", &Statistics::requests},
    {"requests.sets", &Statistics::sets},
    {"requests.errors", &Statistics::errors},
    {"requests.postponed", &Statistics::postponements},
    {"requests.yields", &Statistics::yields},
    {"output.waits", &Statistics::output_waits},
    {"bytes.received", &Statistics::bytes_received},
    {"bytes.sent", &Statistics::bytes_sent},
};

constexpr NamedCount<TransactionCounters, Counter> transaction_rows[] = {
    {"committed", &TransactionCounters::committed},
    {"rolled_back", &TransactionCounters::rolled_back},
    {"retries", &TransactionCounters::retries},
    {"gave_up", &TransactionCounters::gave_up},
    {"out_of_memory", &TransactionCounters::out_of_memory},
};

}  // namespace

void report_statistics(CoreStatistics of, const void* cores, unsigned first, unsigned end, const Emit& emit) {
  for (const auto& row : rows) {
    std::uint64_t sum = 0;
    for (unsigned core = first; core < end; ++core) sum += (of(cores, core).*row.count).value();
    emit(row.name, sum);
  }
  for (std::size_t type = 0; type < transaction_types; ++type) {
    for (const auto& row : transaction_rows) {
      std::uint64_t sum = 0;
      for (unsigned core = first; core < end; ++core) sum += (of(cores, core).transactions[type].*row.count).value();
      std::string name(transaction_names[type]);
      emit(name.append(".").append(row.name), sum);
    }
  }
}

}  // namespace neap::tpcc
