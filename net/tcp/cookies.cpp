// SPDX-License-Identifier: BSL-1.0
#include "net/tcp/cookies.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "kernel/machine.hpp"
#include "kernel/siphash.hpp"

namespace neap::net::tcp {

namespace {

// A cookie, from the highest bit: 1 bit of time, 3 bits of MSS index, 28 bits of hash. The hash covers the whole number of the time step,
// so a cookie is not valid again later.
constexpr unsigned time_shift = 31, mss_shift = 28;
constexpr std::uint32_t mss_mask = 7, hash_mask = 0x0FFF'FFFF;

/// The cookie holds the index of the largest value that is not above the peer's MSS. An MSS below 536 is rare; it also gets index 0.
constexpr std::array<std::uint16_t, mss_mask + 1> mss_values{536, 768, 1024, 1220, 1340, 1400, 1440, 1460};

// The lowest bits of a timestamp.
constexpr std::uint32_t shift_mask = 15, shift_none = 15, sack_bit = 1 << 4, ecn_bit = 1 << 5, carried_mask = 63;

template <class Key>
std::uint32_t cookie_of(const Key& key, std::uint32_t peer_sequence, std::uint64_t step, std::uint32_t index) noexcept {
  static const SipKey secret{.low = machine::random_bits(), .high = machine::random_bits()};
  std::array<std::uint8_t, sizeof key.addresses + sizeof key.ports + 4 + 8> input;
  std::uint8_t* to = input.data();
  const auto put = [&to](const auto& value) {
    std::memcpy(to, &value, sizeof value);
    to += sizeof value;
  };
  put(key.addresses);
  put(key.ports);
  put(peer_sequence);
  put(step << mss_shift | index);
  const auto time_bit = static_cast<std::uint32_t>(step & 1);
  return time_bit << time_shift | index << mss_shift | (static_cast<std::uint32_t>(siphash(secret, input)) & hash_mask);
}

template <class Key>
std::uint32_t make(const Key& key, std::uint32_t peer_sequence, std::uint16_t mss, std::uint64_t now_us) noexcept {
  std::uint32_t index = mss_mask;
  while (index > 0 && mss_values[index] > mss) --index;
  return cookie_of(key, peer_sequence, now_us / cookie_step_us, index);
}

template <class Key>
std::optional<std::uint16_t> check(const Key& key, std::uint32_t peer_sequence, std::uint32_t cookie, std::uint64_t now_us) noexcept {
  const std::uint64_t now_step = now_us / cookie_step_us;
  const std::uint64_t step = now_step - ((now_step ^ (cookie >> time_shift)) & 1);
  const std::uint32_t index = cookie >> mss_shift & mss_mask;
  if (cookie != cookie_of(key, peer_sequence, step, index)) return std::nullopt;
  return mss_values[index];
}

}  // namespace

std::uint32_t make_cookie(const SegmentAddresses& key, std::uint32_t peer_sequence, std::uint16_t mss, std::uint64_t now_us) noexcept {
  return make(key, peer_sequence, mss, now_us);
}
std::uint32_t make_cookie(const SegmentAddresses6& key, std::uint32_t peer_sequence, std::uint16_t mss, std::uint64_t now_us) noexcept {
  return make(key, peer_sequence, mss, now_us);
}
std::optional<std::uint16_t> check_cookie(const SegmentAddresses& key, std::uint32_t peer_sequence, std::uint32_t cookie,
                                          std::uint64_t now_us) noexcept {
  return check(key, peer_sequence, cookie, now_us);
}
std::optional<std::uint16_t> check_cookie(const SegmentAddresses6& key, std::uint32_t peer_sequence, std::uint32_t cookie,
                                          std::uint64_t now_us) noexcept {
  return check(key, peer_sequence, cookie, now_us);
}

std::uint32_t cookie_timestamp(std::uint32_t timestamp, const CookieOptions& options) noexcept {
  std::uint32_t bits = options.window_scale ? std::min<std::uint32_t>(options.window_shift, window_shift_max) : shift_none;
  if (options.sack_permitted) bits |= sack_bit;
  if (options.ecn) bits |= ecn_bit;
  // The lowest bits of the result are `bits`, and the subtracted number is below 64.
  return timestamp - ((timestamp - bits) & carried_mask);
}

CookieOptions cookie_options(std::uint32_t echo) noexcept {
  const std::uint32_t shift = echo & shift_mask;
  return {.window_shift = static_cast<std::uint8_t>(shift == shift_none ? 0 : shift),
          .window_scale = shift != shift_none,
          .sack_permitted = (echo & sack_bit) != 0,
          .ecn = (echo & ecn_bit) != 0};
}

}  // namespace neap::net::tcp
