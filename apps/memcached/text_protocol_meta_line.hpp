// SPDX-License-Identifier: BSL-1.0
// The line of a meta command: its words, and what its flags say. Internal to the text protocol.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "apps/memcached/protocol.hpp"

namespace neap::memcached::text {

/// The words of a line. The first one is the command, the second one the key.
struct MetaLine {
  static constexpr std::size_t words_max = 19;  ///< a line with more words is refused, as by memcached
  std::array<std::string_view, words_max> words;
  std::size_t count = 0;  ///< number of all words, including those beyond `words_max`
  explicit MetaLine(std::string_view text) noexcept;
};

/// The flags of a line, one word each: a letter, and a token directly behind some letters.
class MetaFlags {
 public:
  static constexpr std::size_t opaque_bytes_max = 32;  ///< with the letter

  /// Reads the flags, which begin at word `first`, and the key. Returns memcached's answer to a wrong flag, or an empty text. The other
  /// members are defined only after an empty text.
  [[nodiscard]] std::string_view read(const MetaLine& line, std::size_t first, const Context& context) noexcept;

  std::string_view key;  ///< decoded if the flag b is there
  bool binary_key = false, value = false, quiet = false, leaves_use = false, invalidates = false, drops_value = false;
  std::optional<Seconds> expires{};          ///< T
  std::optional<Seconds> vivify{};           ///< N
  Seconds vivified_expires = expires_never;  ///< the expiry of an item that N makes: that of N or of T, whichever is behind the other
  Seconds recache_below = 0;                 ///< R
  std::optional<std::uint64_t> expected_cas{}, own_cas{};
  std::uint32_t client_flags = 0;
  char mode = '\0';
  std::uint64_t delta = 1, initial = 0;
  bool opaque_too_long = false;

 private:
  [[nodiscard]] std::string_view read_flag(std::string_view flag, const Context& context) noexcept;
  char decoded_key_[key_bytes_max];
};

}  // namespace neap::memcached::text
