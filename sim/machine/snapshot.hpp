// SPDX-License-Identifier: BSL-1.0
// The truth, as the model knows it: one line of JSON for each moment of interest. All numbers are sums since reset.
#pragma once

#include <cstdint>
#include <cstdio>

#include "sim/machine/package.hpp"

namespace neap::model {

/// A checksum of the run: FNV-1a over all events with their times. Equal runs have equal digests.
class Digest {
 public:
  void add(std::uint64_t value) noexcept { value_ = (value_ ^ value) * 1099511628211U; }
  [[nodiscard]] std::uint64_t value() const noexcept { return value_; }

 private:
  std::uint64_t value_ = 14695981039346656037U;
};

struct Moment {
  const char* event;  ///< "phase", "mark", "line", "exit" or "error"
  unsigned phase = 0;
  std::uint64_t load = 0;  ///< the number of the world's load, from 0
  std::uint64_t mark = 0;
  Ticks now = 0;  ///< absolute
};

void write_snapshot(std::FILE* to, Package& package, const Moment& moment, const Digest& digest);

}  // namespace neap::model
