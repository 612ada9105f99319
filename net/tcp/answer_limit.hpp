// SPDX-License-Identifier: BSL-1.0
// Limits for answers to stray and forged segments.
//
// Such a segment is answered by a challenge ACK (RFC 5961) or by a reset. Without a limit, a flood of them makes the machine send a flood
// itself, and two machines can answer each other for ever. A connection sends one challenge ACK in 500 ms. A core has a limit in a second
// for all connections. An attacker can count the answers to its own segments. From a constant limit it could derive how many answers others
// got (CVE-2016-5696), so each second has another, random limit. The same class limits how often other cores are asked for a connection.
#pragma once

#include <cstdint>

namespace neap::net::tcp {

/// A core's limit for one kind of answer.
class AnswerLimit {
 public:
  /// Between half of `per_second` and one and a half of it are permitted in each second.
  explicit AnswerLimit(std::uint32_t per_second) noexcept : per_second_(per_second) {}
  /// True if an answer may be sent now.
  [[nodiscard]] bool take(std::uint64_t now_us) noexcept {
    if (now_us - since_us_ >= 1'000'000 || left_ == 0) [[unlikely]]
      return take_slow(now_us);
    --left_;
    return true;
  }
  [[nodiscard]] std::uint64_t refused() const noexcept { return refused_; }

 private:
  [[gnu::noinline]] bool take_slow(std::uint64_t now_us) noexcept;

  std::uint64_t since_us_ = 0;
  std::uint64_t refused_ = 0;
  std::uint32_t per_second_;
  std::uint32_t left_ = 0;
  bool started_ = false;
};

constexpr std::uint32_t challenge_interval_ms = 500;   ///< of one connection (as Linux)
constexpr std::uint32_t challenges_per_second = 1000;  ///< of one core
constexpr std::uint32_t resets_per_second = 1000;      ///< of one core, for segments without a connection
constexpr std::uint32_t searches_per_second = 1000;    ///< of one core, for ICMP errors about a connection of an unknown core

/// True if a connection may answer now. `last_ms`: the time of its last answer, in ms of the boot clock plus 1; 0: never.
[[nodiscard]] inline bool may_answer(std::uint32_t& last_ms, std::uint64_t now_us, AnswerLimit& limit) noexcept {
  auto now_ms = static_cast<std::uint32_t>(now_us / 1000) + 1;
  if (now_ms == 0) now_ms = 1;
  if (last_ms != 0 && now_ms - last_ms < challenge_interval_ms) return false;
  if (!limit.take(now_us)) return false;
  last_ms = now_ms;
  return true;
}

}  // namespace neap::net::tcp
