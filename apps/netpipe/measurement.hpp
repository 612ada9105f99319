// SPDX-License-Identifier: BSL-1.0
// One size's result, and how NPtcp writes it.
#pragma once

#include <cstdint>
#include <string>

namespace neap::netpipe {

struct Measurement {
  unsigned index = 0;
  std::uint64_t bytes = 0;  ///< of one message
  std::uint32_t repeats = 0;
  double seconds = 0;          ///< one message, one way: the best trial's mean
  bool bidirectional = false;  ///< as much went the other way in that time
  bool checked = false;        ///< contents were checked and found right; the time says nothing

  /// In units of 2^20 bit/s, both directions together: NetPIPE's.
  [[nodiscard]] double megabits_per_second() const noexcept;
  /// The line that NPtcp shows while it measures.
  [[nodiscard]] std::string shown_line() const;
  /// The line in its output file: bytes, Mbps, seconds; or bytes and repeats.
  [[nodiscard]] std::string file_line() const;
};

}  // namespace neap::netpipe
