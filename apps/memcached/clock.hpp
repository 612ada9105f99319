// SPDX-License-Identifier: BSL-1.0
// The server's clock, and the expiry of items.
//
// The protocol gives an expiry either as seconds from now (up to 30 days) or as a date, and each item stores it in 32 bits. So the server
// counts seconds since shortly before its start, and converts both forms to that count once, when the command arrives. Store and parsers do
// not read a clock. They get `now` as an argument, so that a test can simulate a month at once.
#pragma once

#include <cstdint>

namespace neap::memcached {

/// Seconds on the server's own count. The count starts at 2, so that 0 can mean "never" and 1 "already expired".
using Seconds = std::uint32_t;
constexpr Seconds expires_never = 0, expired_already = 1;
constexpr std::int64_t relative_expiry_max_s = 60 * 60 * 24 * 30;  // protocol.txt, "Expiration times"

class Clock {
 public:
  using Source = std::uint64_t (*)() noexcept;

  /// `now_ns` counts nanoseconds from an arbitrary start. `unix_at_zero_s` is the date of that start, in seconds since 1970.
  Clock(Source now_ns, std::uint64_t unix_at_zero_s) noexcept
      : now_ns_(now_ns), created_ns_(now_ns()), created_unix_s_(static_cast<std::int64_t>(unix_at_zero_s + created_ns_ / ns_per_s)) {}

  [[nodiscard]] Seconds now() const noexcept { return static_cast<Seconds>(since_creation_ns() / ns_per_s) + first_second; }
  [[nodiscard]] std::uint64_t since_creation_ns() const noexcept { return now_ns_() - created_ns_; }
  [[nodiscard]] std::uint32_t uptime_s() const noexcept { return now() - first_second; }
  [[nodiscard]] std::int64_t unix_s(Seconds now) const noexcept { return created_unix_s_ + now - first_second; }

  /// Converts a client's expiry. An item with 0 never expires, one with a negative number expires at once. A number of up to 30 days is in
  /// seconds from `now`. A larger number is a date; an item with a past date expires at once.
  [[nodiscard]] Seconds expiry(std::int64_t asked, Seconds now) const noexcept {
    if (asked == 0) return expires_never;
    if (asked < 0) return expired_already;
    if (asked <= relative_expiry_max_s) return now + static_cast<Seconds>(asked);
    const std::int64_t on_our_count = asked - created_unix_s_ + first_second;
    return on_our_count <= 1 ? expired_already : static_cast<Seconds>(on_our_count);
  }

  static constexpr std::uint64_t ns_per_s = 1'000'000'000;
  static constexpr Seconds first_second = 2;

 private:
  Source now_ns_;
  std::uint64_t created_ns_;
  std::int64_t created_unix_s_;
};

/// Reads a clock without a division, except once a second. A core has one.
class ClockReader {
 public:
  [[nodiscard]] Seconds now(const Clock& clock) noexcept {
    const std::uint64_t ns = clock.since_creation_ns();
    if (ns - second_began_ns_ >= Clock::ns_per_s) [[unlikely]] {
      second_ = static_cast<Seconds>(ns / Clock::ns_per_s) + Clock::first_second;
      second_began_ns_ = ns / Clock::ns_per_s * Clock::ns_per_s;
    }
    return second_;
  }

 private:
  std::uint64_t second_began_ns_ = 0;
  Seconds second_ = Clock::first_second;
};

}  // namespace neap::memcached
