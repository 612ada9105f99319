// SPDX-License-Identifier: BSL-1.0
#include "net/tcp/initial_sequence.hpp"

#include <array>
#include <cstring>

#include "kernel/machine.hpp"
#include "kernel/siphash.hpp"

namespace neap::net::tcp {

namespace {

/// The machine's key, a random number that the first call makes.
const SipKey& secret() noexcept {
  static const SipKey key{.low = machine::random_bits(), .high = machine::random_bits()};
  return key;
}

template <class Key>
InitialNumbers numbers_of(const Key& key, std::uint64_t now_us) noexcept {
  std::array<std::uint8_t, sizeof key.addresses + sizeof key.ports> names;
  std::memcpy(names.data(), &key.addresses, sizeof key.addresses);
  std::memcpy(names.data() + sizeof key.addresses, &key.ports, sizeof key.ports);
  const std::uint64_t hash = siphash(secret(), names);
  return {.sequence = static_cast<std::uint32_t>(now_us / 4 + hash), .timestamp_offset = static_cast<std::uint32_t>(hash >> 32)};
}

}  // namespace

InitialNumbers initial_numbers(const SegmentAddresses& key, std::uint64_t now_us) noexcept { return numbers_of(key, now_us); }
InitialNumbers initial_numbers(const SegmentAddresses6& key, std::uint64_t now_us) noexcept { return numbers_of(key, now_us); }

}  // namespace neap::net::tcp
