// SPDX-License-Identifier: BSL-1.0
// The result for one size, and its text in NPtcp's formats.
#pragma once

#include <cstdint>
#include <string>

namespace neap::netpipe {

struct Measurement {
  unsigned index = 0;
  std::uint64_t bytes = 0;  ///< of one message
  std::uint32_t repeats = 0;
  double seconds = 0;          ///< one message, one way: the best trial's mean
  bool bidirectional = false;  ///< the same number of bytes was sent in the other direction in that time
  bool checked = false;        ///< contents were checked and correct; the time has no meaning

  /// In NetPIPE's unit of 2^20 bit/s, both directions together.
  [[nodiscard]] double megabits_per_second() const noexcept;
  /// The line that NPtcp shows while it measures.
  [[nodiscard]] std::string shown_line() const;
  /// The line in its output file: bytes, Mbps, seconds; or bytes and repeats.
  [[nodiscard]] std::string file_line() const;
};

}  // namespace neap::netpipe
