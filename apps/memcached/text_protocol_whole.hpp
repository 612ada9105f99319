// SPDX-License-Identifier: BSL-1.0
// Requests that have arrived whole: gets of one key, and sets. Nearly all requests of a cache are one of these.
//
// The session handles them in one pass over the received bytes, in one function (always_inline): the calls and saved registers of separate
// functions cost as much as the work. Any other request, or a request with anything unusual, is left to the parsers. Internal to memcached.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "apps/memcached/protocol.hpp"
#include "apps/memcached/text_protocol_answers.hpp"
#include "kernel/panic.hpp"
#include "kernel/short_copy.hpp"

namespace neap::memcached::text {

constexpr std::string_view end_of_get = "END\r\n";

/// The four bytes of `letters`, as they are loaded.
constexpr std::uint32_t word_of(const char (&letters)[5]) noexcept {
  return std::bit_cast<std::uint32_t>(std::array{letters[0], letters[1], letters[2], letters[3]});
}

/// True if a line ends at `at`, where two bytes MUST exist.
inline bool is_line_end(const char* at) noexcept {
  std::uint16_t bytes = 0;
  std::memcpy(&bytes, at, sizeof bytes);
  return bytes == std::bit_cast<std::uint16_t>(std::array{'\r', '\n'});
}

/// Reads a number of at most nine digits from `at`, and moves `at` behind the number. Returns false for anything else. A byte that is no
/// digit MUST follow at or behind `at`; no byte behind it is read.
[[gnu::always_inline]] inline bool read_digits(const char*& at, std::uint32_t& number) noexcept {
  constexpr std::uint32_t number_max = 999'999'999;
  unsigned digit = static_cast<unsigned char>(*at) - unsigned{'0'};
  if (digit > 9) return false;
  std::uint64_t value = digit;
  for (++at; (digit = static_cast<unsigned char>(*at) - unsigned{'0'}) <= 9; ++at) {
    value = value * 10 + digit;
    if (value > number_max) return false;
  }
  number = static_cast<std::uint32_t>(value);
  return true;
}

/// The same, with a blank before the number.
[[gnu::always_inline]] inline bool read_field(const char*& at, std::uint32_t& number) noexcept {
  if (*at != ' ') return false;
  ++at;
  return read_digits(at, number);
}

/// Writes "VALUE <key> <flags> <bytes>[ <cas>]", the value, and `behind`, which is the end of the get or empty.
[[gnu::always_inline]] inline void write_value(Item& item, bool with_cas, std::string_view behind, Reply& reply) noexcept {
  const std::size_t key_bytes = item.key_bytes;
  require(key_bytes <= key_bytes_max, "memcached: length of a stored key", key_bytes);
  const std::size_t value_bytes = std::size_t{item.value_bytes} + 2;
  const std::size_t head_bytes_max = 6 + key_bytes + 1 + 10 + 1 + 10 + 1 + 20 + 2;
  const bool copied = reply.copies(value_bytes, head_bytes_max + behind.size());
  char* const head = reply.room(head_bytes_max + (copied ? value_bytes + behind.size() : 0));
  if (head == nullptr) [[unlikely]]
    return;
  char* at = put_text(head, "VALUE ");
  copy_medium(at, item.key_data(), key_bytes);
  at += key_bytes;
  *at++ = ' ';
  at = put_number(at, item.flags);
  *at++ = ' ';
  at = put_number(at, value_bytes - 2);
  if (with_cas) {
    *at++ = ' ';
    at = put_number(at, item.client_cas());
  }
  at = put_text(at, "\r\n");
  if (copied) [[likely]] {
    copy_medium(at, item.key_data() + key_bytes, value_bytes);
    at = put_text(at + value_bytes, behind);
    reply.advance(static_cast<std::size_t>(at - head));
    return;
  }
  reply.advance(static_cast<std::size_t>(at - head));
  reply.refer(item, value_bytes);
  reply.put(behind);
}

/// The maximum that `put_value_text` writes.
[[nodiscard]] constexpr std::size_t value_text_bytes_max(std::size_t key_bytes, std::size_t value_bytes) noexcept {
  return 6 + key_bytes + 1 + 10 + 1 + 10 + 2 + value_bytes + 2 + end_of_get.size();
}

/// Writes to `to` what `write_value` writes without a CAS id, and the end of the get. Returns its end. `key_bytes`: of `item`.
[[gnu::always_inline]] inline char* put_value_text(char* to, const Item& item, std::size_t key_bytes) noexcept {
  const std::size_t value_bytes = item.value_bytes;
  const char* const key = item.key_data();
  to = put_text(to, "VALUE ");
  if (value_bytes >= 16) [[likely]] {
    // Whole vectors: the value's first bytes, which the last one may contain, are overwritten.
    neap::detail::copy_16(to, key);
    for (std::size_t copied = 16; copied < key_bytes; copied += 16) neap::detail::copy_16(to + copied, key + copied);
  } else {
    copy_medium(to, key, key_bytes);
  }
  to += key_bytes;
  *to++ = ' ';
  to = put_number(to, item.flags);
  *to++ = ' ';
  to = put_text(put_number(to, value_bytes), "\r\n");
  copy_medium(to, key + key_bytes, value_bytes + 2);
  return put_text(to + value_bytes + 2, end_of_get);
}

inline void count_miss(const Store::Found& found, Statistics& statistics) noexcept {
  statistics.add(Count::get_misses);
  if (found.expired) statistics.add(Count::get_expired);
  if (found.flushed) statistics.add(Count::get_flushed);
}

/// Stores the value of "set <key>" whose rest begins at `at`. Returns the end of the request. Returns null, with no effect, if the request
/// has not arrived whole or is unusual, and if memory is short.
[[nodiscard]] const char* store_whole(const Key& key, const char* at, const char* end, Store& store, const Clock& clock,
                                      Seconds now) noexcept;

/// Handles the whole requests at the front of `input`, up to the first other request, and until the reply is full. The reply MUST NOT be
/// full.
[[gnu::always_inline]] inline Handled handle_whole_requests(std::string_view input, Store& store, const Clock& clock, Seconds now,
                                                            Statistics& statistics, Reply& reply) noexcept {
  if (input.size() <= 4) return {};
  const char* begin = input.data();  // of the next request
  const char* const end = begin + input.size();
  std::uint32_t gets = 0, misses = 0, sets = 0;
  // The place of the next answer, which the reply is told when it has no quick room, and at the end.
  char* to = reply.cursor();
  const char* quick_end = reply.quick_end();
  const auto has_quick_room = [&] [[gnu::always_inline]] (std::size_t bytes) { return bytes < static_cast<std::size_t>(quick_end - to); };
  /// Appends an answer by `write`, which has room of any kind. Returns false if the reply is full.
  const auto write_slowly = [&] [[gnu::always_inline]] (auto write) {
    reply.advance_to(to);
    write();
    to = reply.cursor();
    if (reply.full()) return false;
    quick_end = reply.quick_end();
    return true;
  };
  const auto put = [&] [[gnu::always_inline]] (std::string_view text) {
    if (!has_quick_room(text.size())) [[unlikely]]
      return write_slowly([&] { reply.put(text); });
    to = put_text(to, text);
    return true;
  };
  do {
    std::uint32_t command = 0;
    std::memcpy(&command, begin, sizeof command);
    const bool is_get = command == word_of("get ");
    if (!is_get && command != word_of("set ")) [[unlikely]]
      break;
    const char* const word = begin + 4;
    const char* const at = detail::find_break(begin, word, end);
    const std::string_view key{word, static_cast<std::size_t>(at - word)};
    if (key.size() - 1 >= key_bytes_max || end - at < 2) break;
    if (is_get) [[likely]] {
      if (!is_line_end(at)) break;
      const Store::Found found = store.find({.text = key, .hash = hash_key(key, store.seed())}, now);
      Item* const item = found.item;
      ++gets;
      begin = at + 2;
      if (item == nullptr) [[unlikely]] {
        ++misses;
        count_miss(found, statistics);
        if (!put(end_of_get)) break;
        continue;
      }
      const std::size_t value_bytes = item->value_bytes;
      const bool is_copied = value_bytes + 2 <= Reply::copy_bytes_max || reply.in_frame();  // as in `Reply::copies`
      if (is_copied && has_quick_room(value_text_bytes_max(key.size(), value_bytes))) [[likely]] {
        to = put_value_text(to, *item, key.size());
      } else if (!write_slowly([item, &reply] { write_value(*item, false, end_of_get, reply); })) {
        break;
      }
    } else {
      const char* const behind = store_whole({.text = key, .hash = hash_key(key, store.seed())}, at, end, store, clock, now);
      if (behind == nullptr) break;
      ++sets;
      begin = behind;
      if (!put("STORED\r\n")) break;
    }
  } while (end - begin > 4);
  reply.advance_to(to);
  if (gets != 0) {
    statistics.add(Count::cmd_get, gets);
    statistics.add(Count::get_hits, gets - misses);
  }
  if (sets != 0) statistics.add(Count::cmd_set, sets);
  statistics.add(Count::requests, std::uint64_t{gets} + sets);
  return {.bytes = static_cast<std::size_t>(begin - input.data()), .requests = gets + sets};
}

}  // namespace neap::memcached::text
