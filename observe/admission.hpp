// SPDX-License-Identifier: BSL-1.0
// Which client gives way when a place is needed.
//
// A connection costs a peer nothing, so the first peers that connect could hold all places without ever using control. So there are two
// kinds of places. A client that has proven itself (by the token, or without one by a valid line) takes one of `clients_max`. All others
// share `unproven_max` for a short time. A newcomer displaces the oldest of the address that has most of those. Only an address whose own
// places are all being delayed for wrong tokens must wait. An owner that sends the token at once is proven before 31 others have connected.
//
// Pure functions of a list, so that tests can try addresses and moments by the thousand. At most 48 clients: quadratic is cheap enough.
#pragma once

#include <cstddef>
#include <cstdint>
#include <expected>
#include <optional>
#include <span>

#include "net/network.hpp"

namespace neap::observe {

/// What a client is at.
enum class Activity : std::uint8_t {
  idle,     ///< no line of it is being answered
  busy,     ///< a command works for it
  delayed,  ///< a wrong token of it is being delayed
  closing,  ///< the server has ended the conversation; the peer has not acknowledged that
};

/// One client that has a place.
struct Occupant {
  net::Ipv4Address address;
  std::uint64_t id = 0;           ///< in the order of arrival
  std::uint64_t progress_ns = 0;  ///< when something of this client last went through
  Activity activity = Activity::idle;
  bool proven = false;
};

constexpr unsigned clients_max = 16;                  ///< proven ones
constexpr unsigned unproven_max = 32;                 ///< others
constexpr unsigned unproven_per_address_max = 8;      ///< of these
constexpr std::uint64_t stalled_ns = 10'000'000'000;  ///< a command without progress for so long may be displaced

enum class Refusal : std::uint8_t {
  delayed,  ///< all unproven clients of this address are being delayed for wrong tokens
  full,     ///< all proven clients are busy, and their commands make progress
};

/// The index of a client, or none: there is room.
using Victim = std::expected<std::optional<std::size_t>, Refusal>;

/// The client that gives way to a newcomer from `address`.
[[nodiscard]] Victim victim_for_newcomer(std::span<const Occupant> occupants, net::Ipv4Address address) noexcept;
/// The client that gives way to one that has just proven itself: one that is closing, else the one that has been idle for longest, else
/// one whose command is stalled.
[[nodiscard]] Victim victim_for_proven(std::span<const Occupant> occupants, std::uint64_t now_ns) noexcept;

}  // namespace neap::observe
