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

  /// `ticks` counts from an arbitrary start, `ticks_per_s` in a second. `unix_at_zero_s` is the date of that start, in seconds since 1970,
  /// and `fraction_ticks` the part of a second that is to be added. The seconds of the count begin with those of the date.
  Clock(Source ticks, std::uint64_t unix_at_zero_s, std::uint64_t ticks_per_s = 1'000'000'000, std::uint64_t fraction_ticks = 0) noexcept
      : ticks_(ticks), ticks_per_s_(ticks_per_s), created_ticks_(ticks()) {
    const std::uint64_t since_second = created_ticks_ + fraction_ticks;
    created_unix_s_ = static_cast<std::int64_t>(unix_at_zero_s + since_second / ticks_per_s);
    created_ticks_ -= since_second % ticks_per_s;
  }

  [[nodiscard]] Seconds now() const noexcept { return second_of(ticks_since_creation()); }
  [[nodiscard]] std::uint64_t ticks_since_creation() const noexcept { return ticks_() - created_ticks_; }
  [[nodiscard]] std::uint64_t ticks_per_s() const noexcept { return ticks_per_s_; }
  [[nodiscard]] Seconds second_of(std::uint64_t ticks) const noexcept { return static_cast<Seconds>(ticks / ticks_per_s_) + first_second; }
  [[nodiscard]] std::uint32_t uptime_s() const noexcept { return now() - first_second; }
  [[nodiscard]] std::int64_t unix_s(Seconds now) const noexcept { return created_unix_s_ + now - first_second; }

  /// Returns the microseconds since 1970.
  [[nodiscard]] std::uint64_t unix_us() const noexcept {
    const std::uint64_t ticks = ticks_since_creation();
    return (static_cast<std::uint64_t>(created_unix_s_) + ticks / ticks_per_s_) * 1'000'000 +
           static_cast<std::uint64_t>(static_cast<unsigned __int128>(ticks % ticks_per_s_) * 1'000'000 / ticks_per_s_);
  }

  /// Converts a client's expiry. An item with 0 never expires, one with a negative number expires at once. A number of up to 30 days is in
  /// seconds from `now`. A larger number is a date; an item with a past date expires at once.
  [[nodiscard]] Seconds expiry(std::int64_t asked, Seconds now) const noexcept {
    if (asked == 0) return expires_never;
    if (asked < 0) return expired_already;
    if (asked <= relative_expiry_max_s) return now + static_cast<Seconds>(asked);
    const std::int64_t on_our_count = asked - created_unix_s_ + first_second;
    return on_our_count <= 1 ? expired_already : static_cast<Seconds>(on_our_count);
  }

  /// Returns the nanoseconds until `now()` is `second`; 0 if it is that already.
  [[nodiscard]] std::uint64_t ns_until(Seconds second) const noexcept {
    constexpr std::uint64_t second_ns = 1'000'000'000;
    const std::uint64_t begins = std::uint64_t{second - first_second} * ticks_per_s_, ticks = ticks_since_creation();
    if (second < first_second || begins <= ticks) return 0;
    const std::uint64_t left = begins - ticks;  // no product overflows: 10^9 has 30 bits, and a rate in Hz has at most 34
    return left / ticks_per_s_ * second_ns + (left % ticks_per_s_ * second_ns + ticks_per_s_ - 1) / ticks_per_s_;
  }

  static constexpr Seconds first_second = 2;

 private:
  Source ticks_;
  std::uint64_t ticks_per_s_, created_ticks_;
  std::int64_t created_unix_s_;
};

/// Reads a clock without a division, except once a second. A core has one.
class ClockReader {
 public:
  [[nodiscard]] [[gnu::always_inline]] Seconds now(const Clock& clock) noexcept {
    const std::uint64_t ticks = clock.ticks_since_creation();
    if (ticks - second_began_ >= clock.ticks_per_s()) [[unlikely]]
      begin_second(clock, ticks);
    return second_;
  }

 private:
  [[gnu::noinline]] void begin_second(const Clock& clock, std::uint64_t ticks) noexcept {
    second_ = clock.second_of(ticks);
    second_began_ = ticks - ticks % clock.ticks_per_s();
  }

  std::uint64_t second_began_ = 0;  // in ticks since the clock was created
  Seconds second_ = Clock::first_second;
};

}  // namespace neap::memcached
