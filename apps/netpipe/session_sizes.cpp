// SPDX-License-Identifier: BSL-1.0
// How a receiver learns the sizes that its peer chose, by the end marks of first messages (session.hpp), and how it refuses a size.
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include "apps/netpipe/session.hpp"

namespace neap::netpipe {
namespace {

constexpr std::uint64_t size_max = std::uint64_t{Options::bytes_max} + Options::perturbation_max;

/// Returns the number of bytes at the front that are `filling`. `memcmp` compares each byte with the next one, many at a time.
std::size_t filling_bytes(std::span<const std::byte> bytes) noexcept {
  if (bytes.empty() || bytes.front() != Session::filling) return 0;
  std::size_t at = 0;
  for (const std::size_t block : {256, 16}) {
    while (bytes.size() - at > block && std::memcmp(&bytes[at], &bytes[at + 1], block) == 0) at += block;
  }
  while (at < bytes.size() && bytes[at] == Session::filling) ++at;
  return at;
}

}  // namespace

/// Consumes bytes of a first message, up to its end mark. Returns the number of bytes.
std::size_t Session::learn(std::span<const std::byte> bytes) {
  const std::uint64_t before = received_at_;
  const std::size_t taken = filling_bytes(bytes);
  received_at_ += taken;
  if (received_at_ > size_max) {
    fail(refusal(received_at_));
    return taken;
  }
  if (taken == bytes.size()) return taken;
  // Only streamed messages follow each other at once. NPtcp -I fills messages with 'b', so a mark alone counts only where one byte is
  // expected.
  const bool streamed = step_ == Step::trial && options_.stream;
  const bool alone = step_ == Step::trial && received_at_ == 0 && message_bytes_ != 1;
  if (bytes[taken] == mark && (streamed || taken + 1 == bytes.size()) && !alone) {
    if (step_ == Step::probe) peer_marks_ = true;
    size_known(++received_at_);
  } else if (received_at_ >= message_bytes_) {
    fail("the peer's first message has more than " + std::to_string(message_bytes_) + " bytes and no mark at its end");
  } else {
    peer_marks_ = false;
    rest_of_message();
    return taken;
  }
  return static_cast<std::size_t>(received_at_ - before);
}

/// The message in progress has `bytes`, all of which have arrived.
void Session::size_known(std::uint64_t bytes) {
  if (step_ == Step::probe) {
    if (bytes > options_.to) return fail(refusal(bytes));
    sweep_ = Sweep(static_cast<std::uint32_t>(bytes), options_.to, options_.perturbation);
  } else if (bytes != point_.bytes) {
    sweep_ = sweep_before_;
    point_ = sweep_.follow(bytes);
    // The bound is for sizes without perturbation. `follow` has checked it for a size that a perturbation explains.
    if (bytes > std::uint64_t{options_.to} + options_.perturbation) return fail(refusal(bytes));
  }
  message_bytes_ = bytes;
  rest_of_message();
}

/// The size of the message in progress is `message_bytes_`.
void Session::rest_of_message() {
  learning_ = false;
  bulk_wanted_ = message_bytes_ * (exchange_ == Exchange::receive_only ? repeats_ : 1) - received_at_;
  if (exchange_ == Exchange::send_then_receive || (exchange_ == Exchange::receive_then_send && bulk_wanted_ == 0)) {
    bulk_bytes_ = message_bytes_;
  }
}

void Session::take_silence_as_mark() {
  if (state_ != State::running || !awaits_mark()) return;
  size_known(received_at_);
  advance();
}

/// Returns why a size is refused, with the words that admit it.
std::string Session::refusal(std::uint64_t bytes) const {
  const std::string number = std::to_string(bytes);
  return "refused a size of " + number + " bytes, more than to=" + std::to_string(options_.to) +
         (bytes <= Options::bytes_max ? "; to=" + number + " admits it" : "; to= is at most " + std::to_string(Options::bytes_max));
}

/// Returns which message is in progress, for the reason of a failure.
std::string Session::where() const {
  if (step_ != Step::probe && step_ != Step::trial) return {};
  return " within a message of " + std::to_string(message_bytes_) + " bytes; the peer may have other options for " +
         (transmits() || options_.integrity || !peer_marks_ ? "sizes or mode" : "the mode");
}

}  // namespace neap::netpipe
