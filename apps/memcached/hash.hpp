// SPDX-License-Identifier: BSL-1.0 The hash function, which selects a key's bucket.
//
// Clients choose the keys. A client that knows many keys of one bucket could make each request walk all these keys. So the function is
// SipHash-1-3 under 128 secret bits that are drawn at start (kernel/siphash.hpp).
#pragma once

#include <cstdint>
#include <string_view>

#include "kernel/siphash.hpp"

namespace neap::memcached {

/// The secret of a store's hash.
using HashSeed = SipKey;

/// Returns the hash of `key`. All its 32 bits are equally random. The low bits choose the lock and the bucket.
[[gnu::always_inline]] inline std::uint32_t hash_key(std::string_view key, const HashSeed& seed) noexcept {
  const std::uint64_t hash = siphash<1, 3>(seed, {reinterpret_cast<const std::uint8_t*>(key.data()), key.size()});
  return static_cast<std::uint32_t>(hash ^ (hash >> 32));
}

}  // namespace neap::memcached
