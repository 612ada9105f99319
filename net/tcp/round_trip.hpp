// SPDX-License-Identifier: BSL-1.0
// The estimate of the round-trip time, and the retransmission time-out (RFC 6298).
//
// The time-out must be longer than nearly every round trip, although the peer delays some acknowledgements. So the minimum is added to the
// estimate, as Linux does, instead of being the least value of the sum. A connection with many samples in a round trip would forget a
// deviation too fast (RFC 7323, appendix G); its deviation decreases once in a round trip. The time-out is never below the minimum of 5 ms,
// so a connection whose round trips take microseconds needs no sample of each.
#pragma once

#include <algorithm>
#include <cstdint>

namespace neap::net::tcp {

struct RoundTrip {
  static constexpr std::uint32_t initial_rto_us = 1'000'000, max_rto_us = 60'000'000;  // RFC 6298, 2.1 and 2.4

  std::uint32_t eightfold_us = 0;           ///< SRTT * 8; 0: there is no sample
  std::uint32_t fourfold_deviation_us = 0;  ///< RTTVAR * 4
  std::uint32_t rto_us = initial_rto_us;    ///< without the back-off
  std::uint32_t sampled_us = 0;             ///< when `sample_at` last took a sample

  [[nodiscard]] bool known() const noexcept { return eightfold_us != 0; }
  [[nodiscard]] std::uint32_t smoothed_us() const noexcept { return eightfold_us >> 3; }

  /// Takes a sample of a segment that was sent at `sent_us`, if the last one is a millisecond old.
  [[gnu::always_inline]] void sample_at(std::uint32_t now_us, std::uint32_t sent_us, std::uint32_t rto_min_us,
                                        bool may_decrease = true) noexcept {
    if (now_us - sampled_us < 1'000 && eightfold_us != 0) [[likely]]
      return;
    sampled_us = now_us;
    sample(now_us - sent_us, rto_min_us, may_decrease);
  }
  /// Takes a sample. `may_decrease`: the deviation may become less.
  void sample(std::uint32_t round_trip_us, std::uint32_t rto_min_us, bool may_decrease = true) noexcept {
    const std::uint32_t sample_us = round_trip_us < max_rto_us ? round_trip_us : max_rto_us;
    if (eightfold_us == 0) [[unlikely]] {
      eightfold_us = (sample_us << 3) | 1;
      fourfold_deviation_us = sample_us << 1;
    } else {
      const auto error = static_cast<std::int32_t>(sample_us - (eightfold_us >> 3));
      eightfold_us = (eightfold_us + static_cast<std::uint32_t>(error)) | 1;  // not 0, which means that there is no sample
      const auto deviation = static_cast<std::uint32_t>(error < 0 ? -error : error);
      const std::uint32_t old = fourfold_deviation_us, next = old - (old >> 2) + deviation;
      fourfold_deviation_us = may_decrease || next > old ? next : old;
    }
    const std::uint32_t margin_us = fourfold_deviation_us > rto_min_us ? fourfold_deviation_us : rto_min_us;
    const std::uint32_t sum_us = (eightfold_us >> 3) + margin_us;
    rto_us = sum_us < max_rto_us ? sum_us : max_rto_us;
  }
};

}  // namespace neap::net::tcp
