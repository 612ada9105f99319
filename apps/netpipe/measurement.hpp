// SPDX-License-Identifier: BSL-1.0 The result for one message size, and its text in NPtcp's formats.
#pragma once

#include <cstdint>
#include <string>

namespace neap::netpipe {

struct Measurement {
  unsigned index = 0;
  std::uint64_t bytes = 0;  ///< bytes of one message
  std::uint32_t repeats = 0;
  double seconds = 0;          ///< the best trial's mean time of one message in one direction
  bool bidirectional = false;  ///< the same number of bytes was sent in the other direction in the same time
  bool checked = false;        ///< contents were checked and correct; the time has no meaning

  /// Returns the throughput of both directions together, in NetPIPE's unit of 2^20 bit/s.
  [[nodiscard]] double megabits_per_second() const noexcept;
  /// Returns the line that NPtcp shows while it measures.
  [[nodiscard]] std::string shown_line() const;
  /// Returns the line in NPtcp's output file. It has bytes, Mbps and seconds, or bytes and repeats.
  [[nodiscard]] std::string file_line() const;
};

}  // namespace neap::netpipe
