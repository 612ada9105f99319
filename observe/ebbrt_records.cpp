// SPDX-License-Identifier: BSL-1.0
#include "observe/ebbrt_records.hpp"

#include <cstring>
#include <limits>
#include <utility>

namespace neap::observe::ebbrt {
namespace {

/// EbbRT's fields are signed, so a sum stops at the largest positive value.
void add(std::uint32_t& sum, std::uint32_t more) noexcept {
  constexpr std::uint64_t largest = std::numeric_limits<std::int32_t>::max();
  const std::uint64_t total = std::uint64_t{sum} + more;
  sum = static_cast<std::uint32_t>(total < largest ? total : largest);
}

}  // namespace

void Folder::begin(const log::Record& entry) noexcept {
  const auto kind = static_cast<log::Kind>(entry.kind);
  begun_ = true;
  record_.tsc = entry.tsc;
  add(record_.rx_descriptors, entry.rx_descriptors);
  add(record_.rx_bytes, entry.rx_bytes);
  add(record_.tx_descriptors, entry.tx_descriptors);
  add(record_.tx_bytes, entry.tx_bytes);
  if (kind != log::Kind::poll) sleeps_ += entry.idle_entries;  // in `poll` they are checks of the ring
  complete_ = kind != log::Kind::poll && kind != log::Kind::policy;
}

std::optional<Record> Folder::take(const log::Record& entry) noexcept {
  switch (static_cast<log::Kind>(entry.kind)) {
    case log::Kind::start:
    case log::Kind::interrupt:
    case log::Kind::poll:
    case log::Kind::policy:
    case log::Kind::stop: {
      const auto done = complete_ ? std::optional(std::exchange(record_, {})) : std::nullopt;
      begin(entry);
      return done;
    }
    case log::Kind::sample: {
      if (!begun_) return std::nullopt;  // the sample's record was overwritten
      log::Sample sample;
      static_assert(sizeof sample == sizeof entry);
      std::memcpy(&sample, &entry, sizeof sample);
      record_.instructions = sample.instructions;
      record_.cycles = sample.cycles;
      record_.reference_cycles = sample.reference_cycles;
      record_.llc_misses = sample.llc_misses;
      record_.joules = sample.package_energy;
      record_.c7 = std::exchange(sleeps_, 0);
      return std::nullopt;
    }
    default:
      return std::nullopt;
  }
}

std::optional<Record> Folder::finish() noexcept {
  if (!std::exchange(complete_, false)) return std::nullopt;
  return std::exchange(record_, {});
}

}  // namespace neap::observe::ebbrt
