// SPDX-License-Identifier: BSL-1.0
// Binary requests that have arrived whole: gets that find a small value, and sets without a CAS id.
//
// As text_protocol_whole.hpp, for the binary protocol. Any other request is left to `BinaryProtocol`. Internal to memcached.
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "apps/memcached/binary_protocol.hpp"
#include "kernel/panic.hpp"
#include "kernel/short_copy.hpp"

namespace neap::memcached::binary {

template <std::unsigned_integral T>
inline T read_big(const char* from) noexcept {
  T value;
  std::memcpy(&value, from, sizeof value);
  return std::byteswap(value);
}

template <std::unsigned_integral T>
inline void write_big(char* to, T value) noexcept {
  value = std::byteswap(value);
  std::memcpy(to, &value, sizeof value);
}

constexpr std::uint8_t opcode_set = 0x01;

/// True for get, getk and their quiet forms, 0x00, 0x0c, 0x09 and 0x0d, which answer a hit alike.
constexpr bool is_get(std::uint8_t opcode) noexcept { return opcode < 16 && (0b11'0010'0000'0001U >> opcode & 1) != 0; }
/// True for getk and its quiet form, whose answers have the key.
constexpr bool is_get_with_key(std::uint8_t opcode) noexcept { return (opcode & 4) != 0; }
static_assert(is_get(0x00) && is_get(0x09) && is_get(0x0c) && is_get(0x0d) && !is_get(0x01) && !is_get(0x04) && !is_get(0x08));

/// Writes the 24 bytes of a successful answer's header. `request`: the request's header. `key_bytes`: at most 255.
inline void write_answer_head(char* to, const char* request, std::uint8_t extras_bytes, std::size_t key_bytes, std::size_t body_bytes,
                              std::uint64_t cas) noexcept {
  const std::uint64_t first = 0x81U | std::uint64_t{static_cast<std::uint8_t>(request[1])} << 8 | std::uint64_t{key_bytes} << 24 |
                              std::uint64_t{extras_bytes} << 32;
  std::memcpy(to, &first, sizeof first);
  write_big(to + 8, static_cast<std::uint32_t>(body_bytes));
  neap::detail::copy_word<std::uint32_t>(to + 12, request + 12);  // opaque
  write_big(to + 16, cas);
}

/// Stores the value of the whole set at `begin`, which has a key of `key_bytes`, and returns the item's CAS id. Returns 0, with no effect,
/// if memory is short or the value too large.
[[nodiscard]] std::uint64_t store_whole(const char* begin, std::size_t key_bytes, std::size_t value_bytes, Store& store, const Clock& clock,
                                        Seconds now) noexcept;

/// Handles the whole requests at the front of `input`, up to the first other request, and until the reply is full.
[[nodiscard]] Handled handle_whole_requests(std::string_view input, Store& store, const Clock& clock, Seconds now, Statistics& statistics,
                                            Reply& reply) noexcept;

}  // namespace neap::memcached::binary
