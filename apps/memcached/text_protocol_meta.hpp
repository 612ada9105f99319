// SPDX-License-Identifier: BSL-1.0
// The meta commands of the text protocol: mn, mg, ms, md, ma, me (memcached's doc/protocol.txt), as memcached 1.6.38 answers them.
//
// Differences from memcached:
// - A command that is answered by an error has no effect. memcached finds some errors late, for example an opaque that is too long after
//   mg has made an item, or after ma has counted.
// - A length of ms that needs more than 31 bits is refused, as in the classic commands. memcached uses its low 32 bits.
// - A key that the client sends in base64 is returned in base64. memcached returns the bytes themselves if the item was not made by an ms
//   with the flag b; they may have blanks and line ends.
// - The time to live (flag t) of an item that has just expired is 0. memcached answers a number near 2^32.
// - ma whose result is longer than the old number obeys E and T. memcached applies them to the old item, which it has just replaced.
// - l and la are exact to a minute, because a use within a minute of the noted one is not noted (item.hpp).
// - me shows the item's memory in this store as its size, and the logarithm of that memory as its class.
// Internal to the text protocol.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "apps/memcached/protocol.hpp"

namespace neap::memcached::text {

/// True if `line`, which has no leading blanks, is a meta command, or begins like one: m, another letter, and no more letters.
[[nodiscard]] inline bool is_meta(std::string_view line) noexcept {
  return line.size() >= 2 && line[0] == 'm' && line[1] != ' ' && (line.size() == 2 || line[2] == ' ');
}

/// What the answer to an ms shows. It is kept while the value arrives, because the line may be gone by then.
struct MetaSet {
  static constexpr std::size_t fields_max = 4;
  std::array<char, fields_max> fields;  ///< the flags O, k, c, s in the order in which they were sent
  std::uint8_t field_count = 0, opaque_bytes = 0;
  bool binary_key = false;
  std::array<char, 32> opaque;
};

/// Executes a meta command. An ms sets up the transfer and `answer`; `finish_meta_set` MUST be called once the value is complete.
void execute_meta(std::string_view line, Context& context, MetaSet& answer) noexcept;
void finish_meta_set(const MetaSet& answer, Context& context) noexcept;
/// Returns the size of the item that the command allocates, 0 if none.
[[nodiscard]] std::size_t meta_item_bytes(std::string_view line, const Store& store) noexcept;

/// Handles the whole requests at the front of `input` that are an mg or ms with usual flags, or mn, up to the first other request, and
/// until the reply is full. The reply MUST NOT be full. A pass of its own, so that the classic requests' pass has no further instructions.
[[nodiscard]] Handled handle_whole_meta_requests(std::string_view input, Store& store, const Clock& clock, Seconds now,
                                                 Statistics& statistics, Reply& reply) noexcept;

}  // namespace neap::memcached::text
