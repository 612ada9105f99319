// SPDX-License-Identifier: BSL-1.0
// Counters of one core: connections, requests, and the outcomes of transactions of each type.
//
// A measurement needs the rate of each transaction type and the share of attempts that were lost to conflicts. So each type has counters of
// its own. A counter is written by its core and read by any core.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "apps/tpcc/transaction_type.hpp"
#include "kernel/counter.hpp"

namespace neap::tpcc {

/// The end of a transaction as its client sees it.
enum class Ending : std::uint8_t {
  committed,
  rolled_back,  ///< the 1 % of new orders with an unused item (clause 2.4.1.4): a normal answer
  conflict,     ///< each attempt had a conflict; nothing is applied
  no_memory,    ///< nothing is applied
  postponed,    ///< no end yet: another core's transaction is in the way, and nothing is applied
};

struct TransactionCounters {
  Counter committed, rolled_back;
  Counter retries;        ///< attempts after a conflict
  Counter gave_up;        ///< transactions that ended after the last attempt with a conflict
  Counter out_of_memory;  ///< transactions refused for lack of memory
};

struct Statistics {
  Counter connections_accepted, connections_closed;
  Counter connections_refused;      ///< over `connections=`
  Counter connections_idle_closed;  ///< silent for longer than `idle_timeout=`
  Counter connections_aborted;      ///< reset by this side for another reason
  Counter requests;                 ///< transactions asked for: a key of a get is one
  Counter sets;                     ///< accepted and ignored
  Counter errors;                   ///< commands refused by the parser
  Counter postponements;            ///< a transaction met another core's, and waited for a later event
  Counter yields;                   ///< a client's pipelined requests waited for other events
  Counter output_waits;             ///< a client's requests waited until it had read its replies
  Counter bytes_received, bytes_sent;
  std::array<TransactionCounters, transaction_types> transactions;
};

/// Counts the end of a transaction. `attempts` is at least one, unless the transaction was refused.
inline void count_ending(TransactionCounters& counters, Ending ending, unsigned attempts) noexcept {
  if (attempts > 1) counters.retries.add(attempts - 1);
  switch (ending) {
    case Ending::committed:
      return counters.committed.add();
    case Ending::rolled_back:
      return counters.rolled_back.add();
    case Ending::conflict:
      return counters.gave_up.add();
    case Ending::no_memory:
      return counters.out_of_memory.add();
    case Ending::postponed:
      return;
  }
}

/// A function that reads one core's counters.
using CoreStatistics = const Statistics& (*)(const void* cores, unsigned core) noexcept;
/// Calls `emit` with each counter's name and its sum over the cores `first` to `end - 1`.
void report_statistics(CoreStatistics of, const void* cores, unsigned first, unsigned end, const Emit& emit);

}  // namespace neap::tpcc
