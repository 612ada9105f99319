// SPDX-License-Identifier: BSL-1.0
#include "net/tcp/answer_limit.hpp"

#include "kernel/machine.hpp"

namespace neap::net::tcp {

bool AnswerLimit::take_slow(std::uint64_t now_us) noexcept {
  if (!started_ || now_us - since_us_ >= 1'000'000) {
    started_ = true;
    since_us_ = now_us;
    left_ = per_second_ / 2 + static_cast<std::uint32_t>(machine::random_bits() % (std::uint64_t{per_second_} + 1));
  }
  if (left_ == 0) {
    ++refused_;
    return false;
  }
  --left_;
  return true;
}

}  // namespace neap::net::tcp
