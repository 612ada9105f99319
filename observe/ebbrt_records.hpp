// SPDX-License-Identifier: BSL-1.0
// EbbRT's log records, made from Neap's.
//
// EbbRT's log is an array of records of 88 bytes, one for each interrupt, without a header. The studies' programs read that array. Neap has
// further records and puts counters into entries of their own, so its entries are folded into EbbRT's form one by one.
#pragma once

#include <cstdint>
#include <optional>

#include "kernel/log_record.hpp"

namespace neap::observe::ebbrt {

/// One interrupt, little-endian. Zero in `instructions` to `c7` means "not sampled". Source: EbbRT, IxgbeDriver.h (branch baremetalNIC).
struct Record {
  std::uint64_t tsc = 0;
  std::uint64_t instructions = 0, cycles = 0, reference_cycles = 0, llc_misses = 0;
  std::uint64_t joules = 0;      ///< the raw energy counter of the package, which wraps at 32 bits
  std::uint64_t c3 = 0, c6 = 0;  ///< always 0, as in EbbRT
  std::uint64_t c7 = 0;          ///< sleeps since the record that was sampled before
  std::uint32_t rx_descriptors = 0, rx_bytes = 0, tx_descriptors = 0, tx_bytes = 0;
};
static_assert(sizeof(Record) == 88);

/// Folds a core's entries, which MUST be given in their order. A record stands for the run's start, an interrupt, or the run's end. Traffic
/// and samples of other records (polls, changes of settings) go into the record that follows them.
class Folder {
 public:
  /// Takes the next entry. Returns the record that this entry completes, if any.
  [[nodiscard]] std::optional<Record> take(const log::Record& entry) noexcept;
  /// Returns the last record, if any. MUST be called after the last entry.
  [[nodiscard]] std::optional<Record> finish() noexcept;

 private:
  void begin(const log::Record& entry) noexcept;

  Record record_{};
  std::uint64_t sleeps_ = 0;  // sleeps that are in no record yet
  bool begun_ = false;        // an entry has begun `record_`
  bool complete_ = false;     // `record_` is one of EbbRT's and only waits for its samples
};

}  // namespace neap::observe::ebbrt
