// SPDX-License-Identifier: BSL-1.0
// Selects the client that loses its place when another client needs one. A place is one of the server's slots for connections.
//
// A connection costs a peer nothing, so the first peers could hold all places without using control. Therefore there are two kinds of
// places. A client that has proven itself (by the token; if no token is set, by a valid command) has one of `clients_max` places. All other
// clients share `unproven_max` places for a short time. If all these places are taken, a newcomer displaces the oldest unproven client of
// the address that has the most unproven clients. If the newcomer's own address has `unproven_per_address_max` unproven clients, the
// newcomer displaces one of these clients. The newcomer is refused only if the answers to wrong tokens are delayed for all of them.
//
// A client is protected until its first line is answered, for at most `protected_ns`: unprotected clients are displaced first. So an owner
// that sends the token at once is proven, even if its address and others open some 300 connections a second.
//
// These are pure functions of a list, so tests can try thousands of cases. There are at most 48 clients, so quadratic time is acceptable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <expected>
#include <optional>
#include <span>

#include "net/network.hpp"

namespace neap::observe {

enum class Activity : std::uint8_t {
  idle,     ///< no line is being answered
  busy,     ///< a command is running
  delayed,  ///< the answer to a wrong token is delayed
  closing,  ///< the server is closing the connection, and the peer has not acknowledged that
};

struct Occupant {
  net::Address address;
  std::uint64_t id = 0;  ///< increases in the order of arrival
  std::uint64_t arrived_ns = 0;
  std::uint64_t progress_ns = 0;  ///< time of the client's last progress
  Activity activity = Activity::idle;
  bool answered = false;  ///< a line of this client was answered
  bool proven = false;
};

constexpr unsigned clients_max = 16;                  ///< proven clients
constexpr unsigned unproven_max = 32;                 ///< unproven clients
constexpr unsigned unproven_per_address_max = 8;      ///< unproven clients of one address
constexpr std::uint64_t protected_ns = 100'000'000;   ///< maximum age of a protected client
constexpr std::uint64_t stalled_ns = 10'000'000'000;  ///< a client whose command made no progress for this long may be displaced

enum class Refusal : std::uint8_t {
  delayed,  ///< answers to wrong tokens are delayed for all unproven clients of this address
  full,     ///< all proven clients are busy, and their commands make progress
};

/// The index of the client to displace, or no index if a place is free.
using Victim = std::expected<std::optional<std::size_t>, Refusal>;

/// Selects the client that a newcomer from `address` displaces.
[[nodiscard]] Victim victim_for_newcomer(std::span<const Occupant> occupants, const net::Address& address, std::uint64_t now_ns) noexcept;
/// Selects the client that a newly proven client displaces: a closing client, otherwise the client that has been idle for longest,
/// otherwise a client with a stalled command.
[[nodiscard]] Victim victim_for_proven(std::span<const Occupant> occupants, std::uint64_t now_ns) noexcept;

}  // namespace neap::observe
