// SPDX-License-Identifier: BSL-1.0
// The sizes that are measured, and their repeats, as in NetPIPE 3.7.2. Both sides compute the sizes. A receiver corrects them by the sizes
// of the messages that arrive (session.hpp).
//
// Lengths grow by a step that doubles at every second length. Once the step is large enough, lengths a little below and above each length
// are measured too (perturbations): 1, 2, 3, 4, 6, 8, 12, 13, 16, 19, 21, 24, 27, 29, 32, 35, 45, …
#pragma once

#include <cstdint>
#include <optional>

namespace neap::netpipe {

class Sweep {
 public:
  static constexpr unsigned points_max = 7997;
  static constexpr double seconds_a_trial = 0.1;
  static constexpr double seconds_a_message_max = 1.0;  ///< if a message takes longer, the transmitter ends the run after this length
  static constexpr std::uint32_t trials = 3;

  struct Point {
    unsigned index = 0;
    std::uint64_t bytes = 0;
    std::uint64_t step = 0;   ///< step to the next length
    bool new_length = false;  ///< false if this is another perturbation of the previous length
  };

  Sweep(std::uint32_t from, std::uint32_t to, std::uint32_t perturbation) noexcept
      : to_(to), perturbation_(perturbation), length_(from), step_(from > 1 ? from / 2 : 1), lengths_(from > 1 ? 1 : 0) {}

  /// Returns the next size, or no value after the last. Every size is at least 1 and at most `to` + `perturbation`.
  [[nodiscard]] std::optional<Point> next() noexcept;

  /// Returns the next length, without perturbation. After the last size it is the first length that exceeds `to`.
  [[nodiscard]] std::uint64_t length() const noexcept { return length_; }
  /// Returns the next point if the peer's next size is `bytes`, and continues from there. If a perturbation explains the size, it is kept.
  /// For any other size, the series continues with `bytes` and the present step, and `to` no longer ends it.
  [[nodiscard]] Point follow(std::uint64_t bytes) noexcept;

  /// Returns how often a transmitter repeats a message, 3 to 2^31 - 1 times. `seconds` is the time of the previous size in one direction.
  [[nodiscard]] static std::uint32_t repeats(std::uint64_t bytes_before, std::uint64_t step, double seconds) noexcept;

 private:
  std::uint64_t to_, perturbation_, length_, step_;
  std::int64_t offset_ = 0;
  unsigned lengths_, index_ = 0;
  bool within_length_ = false;
};

}  // namespace neap::netpipe
