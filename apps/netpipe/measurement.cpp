// SPDX-License-Identifier: BSL-1.0
#include "apps/netpipe/measurement.hpp"

#include <charconv>

namespace neap::netpipe {

namespace {

std::string padded(std::string text, std::size_t width) {
  if (text.size() < width) text.insert(0, width - text.size(), ' ');
  return text;
}

/// Formats `value` like printf's %WIDTH.DECIMALSf.
std::string decimal(double value, int decimals, std::size_t width) {
  char text[400];  // the largest double has 309 digits before the point
  const auto end = std::to_chars(text, text + sizeof text, value, std::chars_format::fixed, decimals).ptr;
  return padded(std::string(text, end), width);
}

std::string whole(std::uint64_t value, std::size_t width) { return padded(std::to_string(value), width); }

}  // namespace

double Measurement::megabits_per_second() const noexcept {
  return static_cast<double>(bytes) * 8.0 * (bidirectional ? 2.0 : 1.0) / (seconds * 1024.0 * 1024.0);
}

std::string Measurement::shown_line() const {
  std::string line = whole(index, 3) + ": " + whole(bytes, 7) + " bytes " + whole(repeats, 6) + " times --> ";
  if (checked) return line + " Integrity check passed";
  return line + " " + decimal(megabits_per_second(), 2, 8) + " Mbps in " + decimal(seconds * 1e6, 2, 10) + " usec";
}

std::string Measurement::file_line() const {
  const std::string both_ways = whole(bytes * (bidirectional ? 2 : 1), 8);
  if (checked) return both_ways + " " + std::to_string(repeats);
  return both_ways + " " + decimal(megabits_per_second(), 6, 0) + " " + decimal(seconds, 8, 12);
}

}  // namespace neap::netpipe
