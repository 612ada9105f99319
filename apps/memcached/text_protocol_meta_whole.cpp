// SPDX-License-Identifier: BSL-1.0
// Meta requests that have arrived whole: mg and ms with usual flags, and mn. Any other request is left to the parser, with no effect.
#include <cstring>

#include "apps/memcached/text_protocol_meta.hpp"
#include "apps/memcached/text_protocol_meta_line.hpp"
#include "apps/memcached/text_protocol_whole.hpp"
#include "kernel/short_copy.hpp"

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

/// As `put_text`, without a call. An opaque has a few bytes.
[[gnu::always_inline]] inline char* put_opaque(char* to, std::string_view opaque) noexcept {
  *to++ = ' ';
  if (opaque.size() >= 8) {
    copy_short(to, opaque.data(), opaque.size());
  } else {
    for (std::size_t at = 0; at < opaque.size(); ++at) to[at] = opaque[at];
  }
  return to + opaque.size();
}

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
        to = put_opaque(to, flags.opaque);
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
      to = put_opaque(to, flags.opaque);
      at += flags.opaque.size() - 1;
    } else if (letter == 'k') {
      to = put_key(put_text(to, " k"), key);
    }
  }
  return put_text(to, "\r\n");
}

/// The requests of one pass.
struct Pass {
  Store& store;
  const Clock& clock;
  const Seconds now;
  Statistics& statistics;
  Reply& reply;
  std::uint32_t gets = 0, misses = 0, sets = 0;
};

/// Answers the mg whose key ends at `at`. Returns the end of the request. Returns null, with no effect, if the request is unusual, and if
/// there is no memory for the answer. The byte before `end` MUST be a line end.
[[gnu::noinline]] const char* get_whole(const Key& key, const char* at, const char* end, Pass& pass) noexcept {
  Flags flags;
  if (!read_flags(at, end, flags_of_get, flags)) return nullptr;
  Reply& reply = pass.reply;
  const std::size_t answer_bytes_max = head_bytes_max + key.text.size();
  const Store::Found found = pass.store.peek(key, pass.now);
  Item* const item = found.item;
  if (item == nullptr) [[unlikely]] {
    if (!flags.has('q')) {
      char* const to = reply.room(answer_bytes_max);
      if (to == nullptr) return nullptr;
      reply.advance_to(put_echo(put_text(to, "EN"), flags, key.text));
    }
    count_miss(found, pass.statistics);
    ++pass.gets;
    ++pass.misses;
    return at;
  }
  const std::uint64_t cas = flags.has('c') ? item->client_cas() : 0;  // before the marks: see `Item::marks`
  const std::size_t value_bytes = item->value_bytes;
  const std::size_t line_bytes = flags.has('v') ? value_bytes + 2 : 0;
  constexpr unsigned unusual = Item::mark_stale | Item::mark_win_sent | Item::mark_binary_key;
  const bool is_unusual = (item->marks.load(std::memory_order_acquire) & unusual) != 0 || !reply.copies(line_bytes, answer_bytes_max);
  char* const head = is_unusual ? nullptr : reply.room(answer_bytes_max + line_bytes);
  if (head == nullptr) [[unlikely]]
    return nullptr;
  char* to = line_bytes != 0 ? put_number(put_text(head, "VA "), value_bytes) : put_text(head, "HD");
  to = put_fields(to, flags, key.text, item, value_bytes, cas, pass.now);
  if (line_bytes != 0) {
    copy_medium(to, item->key_data() + key.text.size(), line_bytes);
    to += line_bytes;
  }
  reply.advance_to(to);
  item->note_use(pass.now);
  ++pass.gets;
  return at;
}

/// As `get_whole`, for an ms whose value ends before `end`. The byte before `lines_end` MUST be a line end.
[[gnu::noinline]] const char* set_whole(const Key& key, const char* at, const char* lines_end, const char* end, Pass& pass) noexcept {
  Flags flags;
  std::uint32_t bytes = 0;
  if (!read_field(at, bytes) || !read_flags(at, lines_end, flags_of_set, flags)) return nullptr;
  if (static_cast<std::size_t>(end - at) < std::size_t{bytes} + 2 || !is_line_end(at + bytes)) return nullptr;
  if (pass.store.is_short_of_memory()) return nullptr;
  char* const head = pass.reply.room(head_bytes_max + key.text.size());  // before the value is stored: the parser would store it again
  if (head == nullptr) return nullptr;
  const Seconds expires = pass.clock.expiry(flags.seconds, pass.now);
  const Store::Stored done = pass.store.set(key, flags.client_flags, expires, {at, bytes}, pass.now);
  if (done.outcome != Outcome::stored) return nullptr;
  if (!flags.has('q')) {
    pass.reply.advance_to(put_fields(put_text(head, "HD"), flags, key.text, nullptr, bytes, done.cas, pass.now));
  }
  ++pass.sets;
  return at + bytes + 2;
}

}  // namespace

Handled handle_whole_meta_requests(std::string_view input, Store& store, const Clock& clock, Seconds now, Statistics& statistics,
                                   Reply& reply) noexcept {
  const char* begin = input.data();  // of the next request
  const char* const end = begin + input.size();
  const char* const lines_end = end[-1] == '\n' ? end : begin + input.rfind('\n') + 1;
  Pass pass{.store = store, .clock = clock, .now = now, .statistics = statistics, .reply = reply};
  std::uint32_t others = 0;
  while (lines_end - begin >= 4) {
    std::uint32_t command = 0;
    std::memcpy(&command, begin, sizeof command);
    if (command == word_of("mn\r\n")) [[unlikely]] {
      reply.put("MN\r\n");
      begin += 4;
      ++others;
    } else {
      constexpr std::uint32_t three_bytes = 0x00ff'ffff;
      const bool is_get = (command & three_bytes) == (word_of("mg  ") & three_bytes);
      if (!is_get && (command & three_bytes) != (word_of("ms  ") & three_bytes)) break;
      const char* const at = detail::find_break(begin, begin + 3, lines_end);
      const std::string_view text{begin + 3, static_cast<std::size_t>(at - begin - 3)};
      if (text.size() - 1 >= key_bytes_max) break;
      const Key key{.text = text, .hash = hash_key(text, store.seed())};
      const char* const behind = is_get ? get_whole(key, at, lines_end, pass) : set_whole(key, at, lines_end, end, pass);
      if (behind == nullptr) break;
      begin = behind;
    }
    if (reply.full()) break;
  }
  if (pass.gets != 0) {
    statistics.add(Count::cmd_get, pass.gets);
    statistics.add(Count::get_hits, pass.gets - pass.misses);
  }
  if (pass.sets != 0) statistics.add(Count::cmd_set, pass.sets);
  const std::uint32_t requests = pass.gets + pass.sets + others;
  statistics.add(Count::requests, requests);
  statistics.add(Count::cmd_meta, requests);
  return {.bytes = static_cast<std::size_t>(begin - input.data()), .requests = requests};
}

}  // namespace neap::memcached::text
