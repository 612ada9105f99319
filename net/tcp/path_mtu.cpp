// SPDX-License-Identifier: BSL-1.0
#include "net/tcp/path_mtu.hpp"

#include <algorithm>

#include "kernel/machine.hpp"

namespace neap::net::tcp {

namespace {

/// RFC 1191, 7.1: common sizes of links, for a router that reports none.
constexpr std::array<std::uint16_t, 7> plateaus{17'914, 8'166, 4'352, 2'002, 1'492, 1'006, 576};
/// The size that is tried when long packets vanish, before the minimum: RFC 4821, 7.2, names 1,024 bytes, here of payload.
constexpr std::uint16_t probe = 1'064;
constexpr std::uint8_t timeouts_before_lowering = 3;  // as Linux (tcp_retries1)
/// Nearly every path carries packets of `probe` bytes, so the loss of such a packet is more probably due to an outage.
constexpr std::uint8_t timeouts_of_short_packets = 6;
constexpr std::uint32_t raise_after_s = 600;  // RFC 1191, 6.3: at least 5 min after a decrease, 10 min recommended

}  // namespace

void PathMtu::start(std::uint16_t mtu, std::uint16_t cached, std::uint16_t mtu_min, std::uint32_t now_s) noexcept {
  *this = {};
  mtu_ = mtu_max_ = mtu;
  mtu_min_ = std::min(mtu_min, mtu);
  if (cached >= mtu_min_ && cached < mtu) lower(cached, now_s);
}

void PathMtu::lower(std::uint16_t mtu, std::uint32_t now_s) noexcept {
  mtu_ = mtu;
  acknowledged_ = std::min(acknowledged_, mtu);
  pending_ = 0;
  timeouts_ = 0;
  raise_s_ = now_s + raise_after_s;
}

bool PathMtu::reported_too_big(std::uint16_t reported, std::uint16_t quoted_bytes, std::uint32_t sequence,
                               std::uint32_t first_unacknowledged, std::uint32_t send_next, std::uint32_t now_s) noexcept {
  if (!in_range(sequence, first_unacknowledged, send_next)) return false;
  if (reported == 0) {
    const auto* const plateau = std::ranges::find_if(plateaus, [&](std::uint16_t size) { return size < std::min(quoted_bytes, mtu_); });
    reported = plateau == plateaus.end() ? mtu_min_ : *plateau;
  }
  reported = std::max(reported, mtu_min_);
  if (reported >= mtu_) return false;
  if (reported < acknowledged_) {
    pending_ = reported;
    return false;
  }
  lower(reported, now_s);
  return true;
}

bool PathMtu::timed_out(std::uint32_t bytes, std::uint32_t now_s) noexcept {
  if (pending_ != 0 && bytes > pending_) {
    lower(pending_, now_s);
    return true;
  }
  if (!is_full(bytes) || mtu_ <= mtu_min_) return false;
  const std::uint8_t limit = mtu_max_ <= probe ? timeouts_of_short_packets : timeouts_before_lowering;
  if (++timeouts_ < limit) return false;
  lower(probe < mtu_ ? std::max(probe, mtu_min_) : mtu_min_, now_s);
  timeouts_ = limit - 1;  // the back-off is long by now, so the next time-out lowers it again
  return true;
}

// A full segment got through, so time-outs before it were no sign of a black hole, and a smaller report is doubtful (RFC 5927, 7.2).
void PathMtu::acknowledged_more(std::uint32_t bytes) noexcept {
  const auto packet = static_cast<std::uint16_t>(std::min<std::uint32_t>(bytes, mtu_));
  acknowledged_ = std::max(acknowledged_, packet);
  if (packet > pending_) pending_ = 0;
  if (is_full(packet)) timeouts_ = 0;
}

void PathMtu::raise(std::uint32_t now_s) noexcept {
  mtu_ = mtu_max_;
  timeouts_ = 0;
  raise_s_ = now_s + raise_after_s;
}

PathMtuCache::PathMtuCache() noexcept : key_{.low = machine::random_bits(), .high = machine::random_bits()} {}

std::size_t PathMtuCache::set_of(std::uint64_t destination) const noexcept {
  return static_cast<std::size_t>(siphash<1, 3>(key_, {reinterpret_cast<const std::uint8_t*>(&destination), sizeof destination}) % sets);
}

std::uint16_t PathMtuCache::find(std::uint64_t destination, std::uint32_t now_s) const noexcept {
  for (const Entry& entry : entries_[set_of(destination)]) {
    if (entry.mtu != 0 && entry.destination == destination) return now_s - entry.set_s < lifetime_s ? entry.mtu : 0;
  }
  return 0;
}

void PathMtuCache::set(std::uint64_t destination, std::uint16_t mtu, std::uint32_t now_s) noexcept {
  auto& set = entries_[set_of(destination)];
  Entry* place = nullptr;
  for (Entry& entry : set) {
    if (entry.mtu != 0 && entry.destination == destination) {
      place = &entry;
      break;
    }
    const auto age_s = [&](const Entry& other) { return other.mtu == 0 ? ~std::uint32_t{0} : now_s - other.set_s; };
    if (place == nullptr || age_s(entry) > age_s(*place)) place = &entry;
  }
  if (place->mtu != 0 && place->destination != destination && now_s - place->set_s < lifetime_s) ++replaced_;
  *place = {.destination = destination, .set_s = now_s, .mtu = mtu};
}

void PathMtuCache::forget(std::uint64_t destination) noexcept {
  for (Entry& entry : entries_[set_of(destination)]) {
    if (entry.mtu != 0 && entry.destination == destination) entry = {};
  }
}

}  // namespace neap::net::tcp
