// SPDX-License-Identifier: BSL-1.0
// Meta requests that have arrived whole: mg and ms with usual flags, and mn. Any other request is left to the parser, with no effect.
#include <cstring>

#include "apps/memcached/text_protocol_meta.hpp"
#include "apps/memcached/text_protocol_meta_line.hpp"
#include "apps/memcached/text_protocol_whole.hpp"

namespace neap::memcached::text {
namespace {

constexpr std::uint64_t bits_of(std::string_view letters) noexcept {
  std::uint64_t bits = 0;
  for (const char letter : letters) bits |= std::uint64_t{1} << (letter - 'A');
  return bits;
}
constexpr std::uint64_t flags_of_get = bits_of("vkfcstqO"), flags_of_set = bits_of("kcsqOTF");

/// A bound of an answer without key and value: the code with a length, the fields s, t, f, c and O, k, and the line end, with the bytes
/// that `put_number` may write behind a number.
constexpr std::size_t head_bytes_max = 3 + 11 + 3 * 12 + 22 + 33 + 2 + 2 + 8;

/// The flags of a request, in the text: `begin` is the blank before the first one, or the line end.
struct Flags {
  const char* begin;
  std::uint64_t letters = 0;
  std::string_view opaque;  ///< with its letter
  std::uint32_t seconds = 0, client_flags = 0;
  [[nodiscard]] bool has(char letter) const noexcept { return (letters >> (letter - 'A') & 1) != 0; }
};

/// Reads the flags at `at`, and moves `at` behind the line. Returns false for a flag that is not among `allowed`, and for anything else
/// that is unusual. The byte before `end` MUST be a line end.
[[gnu::always_inline]] inline bool read_flags(const char*& at, const char* end, std::uint64_t allowed, Flags& flags) noexcept {
  flags.begin = at;
  while (*at == ' ') {
    const char letter = at[1];
    const unsigned index = static_cast<unsigned char>(letter) - unsigned{'A'};
    if (index > 'z' - 'A') return false;
    const std::uint64_t bit = std::uint64_t{1} << index;
    if ((allowed & ~flags.letters & bit) == 0) return false;
    flags.letters |= bit;
    const char* const word = ++at;
    ++at;
    if (letter == 'O') {
      while (static_cast<unsigned char>(*at) > ' ') ++at;
      flags.opaque = {word, static_cast<std::size_t>(at - word)};
      if (flags.opaque.size() > MetaFlags::opaque_bytes_max) return false;
    } else if (letter == 'T' || letter == 'F') {
      std::uint32_t number = 0;
      if (!read_digits(at, number)) return false;
      (letter == 'T' ? flags.seconds : flags.client_flags) = number;
    }
  }
  if (end - at < 2 || !is_line_end(at)) return false;
  at += 2;
  return true;
}

/// Writes the fields that the flags ask for. `item`: of an mg; null for an ms.
[[gnu::always_inline]] inline char* put_fields(char* to, const Flags& flags, std::string_view key, const Item* item,
                                               std::size_t value_bytes, std::uint64_t cas, Seconds now) noexcept {
  for (const char* at = flags.begin; *at == ' ';) {
    const char letter = *++at;
    ++at;
    switch (letter) {
      case 'O':
        *to++ = ' ';
        to = put_text(to, flags.opaque);
        at += flags.opaque.size() - 1;
        continue;
      case 'k':
        to = put_key(put_text(to, " k"), key);
        continue;
      case 'T':
      case 'F':
        while (*at >= '0') ++at;
        continue;
      case 'q':
      case 'v':
        continue;
      default:
        break;
    }
    if (letter == 's') {
      to = put_number(put_text(to, " s"), value_bytes);
    } else if (letter == 'c') {
      to = put_number(put_text(to, " c"), cas);
    } else if (item == nullptr) {
      continue;
    } else if (letter == 'f') {
      to = put_number(put_text(to, " f"), item->flags);
    } else {
      const Seconds expires = item->expires.load(std::memory_order_relaxed);
      to = expires == expires_never ? put_text(to, " t-1") : put_number(put_text(to, " t"), expires > now ? expires - now : 0);
    }
  }
  return put_text(to, "\r\n");
}

/// Writes what a miss shows: the fields O and k, in the order in which they were sent.
char* put_echo(char* to, const Flags& flags, std::string_view key) noexcept {
  for (const char* at = flags.begin; *at == ' ';) {
    const char letter = *++at;
    ++at;
    if (letter == 'O') {
      *to++ = ' ';
      to = put_text(to, flags.opaque);
      at += flags.opaque.size() - 1;
    } else if (letter == 'k') {
      to = put_key(put_text(to, " k"), key);
    }
  }
  return put_text(to, "\r\n");
}

}  // namespace

Handled handle_whole_meta_requests(std::string_view input, Store& store, const Clock& clock, Seconds now, Statistics& statistics,
                                   Reply& reply) noexcept {
  const char* begin = input.data();  // of the next request
  const char* const end = begin + input.size();
  const char* const lines_end = begin + input.rfind('\n') + 1;
  std::uint32_t gets = 0, misses = 0, sets = 0, others = 0;
  while (lines_end - begin >= 4 && begin[0] == 'm' && !reply.full()) {
    if (std::memcmp(begin, "mn\r\n", 4) == 0) {
      reply.put("MN\r\n");
      begin += 4;
      ++others;
      continue;
    }
    const char command = begin[1];
    if ((command != 'g' && command != 's') || begin[2] != ' ') break;
    const char* at = detail::find_break(begin, begin + 3, lines_end);
    const std::string_view key_text{begin + 3, static_cast<std::size_t>(at - begin - 3)};
    if (key_text.size() - 1 >= key_bytes_max) break;
    const Key key{.text = key_text, .hash = hash_key(key_text, store.seed())};
    Flags flags;
    const std::size_t answer_bytes_max = head_bytes_max + key_text.size();
    if (command == 'g') {
      if (!read_flags(at, lines_end, flags_of_get, flags)) break;
      const Store::Found found = store.peek(key, now);
      Item* const item = found.item;
      if (item == nullptr) [[unlikely]] {
        count_miss(found, statistics);
        ++misses;
        if (!flags.has('q')) {
          char* const to = reply.room(answer_bytes_max);
          if (to == nullptr) break;
          reply.advance_to(put_echo(put_text(to, "EN"), flags, key_text));
        }
      } else {
        const std::uint64_t cas = item->client_cas();  // before the marks: see `Item::marks`
        const std::size_t value_bytes = item->value_bytes;
        if (item->marks.load(std::memory_order_acquire) & (Item::mark_stale | Item::mark_win_sent | Item::mark_binary_key)) break;
        const std::size_t line_bytes = flags.has('v') ? value_bytes + 2 : 0;
        if (!reply.copies(line_bytes, answer_bytes_max)) break;
        char* const head = reply.room(answer_bytes_max + line_bytes);
        if (head == nullptr) break;
        char* to = line_bytes != 0 ? put_number(put_text(head, "VA "), value_bytes) : put_text(head, "HD");
        to = put_fields(to, flags, key_text, item, value_bytes, cas, now);
        if (line_bytes != 0) to = put_value(to, {item->key_data() + key_text.size(), line_bytes});
        reply.advance_to(to);
        item->note_use(now);
      }
      ++gets;
      begin = at;
    } else {
      std::uint32_t bytes = 0;
      if (!read_field(at, bytes) || !read_flags(at, lines_end, flags_of_set, flags)) break;
      if (static_cast<std::size_t>(end - at) < std::size_t{bytes} + 2 || !is_line_end(at + bytes) || store.is_short_of_memory()) break;
      char* const head = reply.room(answer_bytes_max);  // before the value is stored, because without room the parser would store it again
      if (head == nullptr) break;
      const Store::Stored done = store.set(key, flags.client_flags, clock.expiry(flags.seconds, now), {at, bytes}, now);
      if (done.outcome != Outcome::stored) break;
      if (!flags.has('q')) reply.advance_to(put_fields(put_text(head, "HD"), flags, key_text, nullptr, bytes, done.cas, now));
      ++sets;
      begin = at + bytes + 2;
    }
  }
  if (gets != 0) {
    statistics.add(Count::cmd_get, gets);
    statistics.add(Count::get_hits, gets - misses);
  }
  if (sets != 0) statistics.add(Count::cmd_set, sets);
  const std::uint32_t requests = gets + sets + others;
  statistics.add(Count::requests, requests);
  statistics.add(Count::cmd_meta, requests);
  return {.bytes = static_cast<std::size_t>(begin - input.data()), .requests = requests};
}

}  // namespace neap::memcached::text
