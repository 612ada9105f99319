// SPDX-License-Identifier: BSL-1.0
#include "apps/netpipe/sweep.hpp"

#include <algorithm>

#include "apps/netpipe/options.hpp"
#include "kernel/panic.hpp"

namespace neap::netpipe {

std::optional<Sweep::Point> Sweep::next() noexcept {
  const bool new_length = !within_length_;
  if (new_length) {
    if (index_ >= points_max || length_ > to_) return std::nullopt;
    if (lengths_ > 2 && lengths_ % 2 == 1) step_ *= 2;
  }
  const auto reach = static_cast<std::int64_t>(perturbation_);
  const bool perturbed = perturbation_ > 0 && step_ > perturbation_ + 1;
  if (new_length) offset_ = perturbed ? -reach : 0;
  require(static_cast<std::int64_t>(length_) + offset_ > 0, "netpipe: a message has a byte or more", length_);

  const Point point{.index = index_,
                    .bytes = static_cast<std::uint64_t>(static_cast<std::int64_t>(length_) + offset_),
                    .step = step_,
                    .new_length = new_length};
  ++index_;
  offset_ += perturbed ? reach : reach + 1;
  within_length_ = offset_ <= reach;
  if (!within_length_) {
    length_ += step_;
    ++lengths_;
  }
  return point;
}

Sweep::Point Sweep::follow(std::uint64_t bytes) noexcept {
  if (!within_length_ && bytes <= length_) {
    Sweep perturbed = *this;
    perturbed.perturbation_ = length_ - bytes;
    if (const auto point = perturbed.next(); point && point->bytes == bytes) {
      *this = perturbed;
      return *point;
    }
  }
  to_ = std::max<std::uint64_t>(to_, std::uint64_t{Options::bytes_max} + Options::perturbation_max);
  perturbation_ = 0;
  within_length_ = false;
  length_ = bytes + step_;
  return {.index = index_++, .bytes = bytes, .step = step_, .new_length = true};
}

std::uint32_t Sweep::repeats(std::uint64_t bytes_before, std::uint64_t step, double seconds) noexcept {
  const auto before = static_cast<double>(bytes_before);
  const double growth = before / std::max(before - static_cast<double>(step) + 1.0, 1.0);
  const double wanted = seconds_a_trial / (growth * std::max(seconds, 1e-9));
  return static_cast<std::uint32_t>(std::clamp(wanted, double{trials}, double{Options::repeats_max}));
}

}  // namespace neap::netpipe
