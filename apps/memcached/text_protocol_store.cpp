// SPDX-License-Identifier: BSL-1.0
// The commands of the text protocol that store a value: set, add, replace, append, prepend, cas.
#include <climits>
#include <cstring>

#include "apps/memcached/numbers.hpp"
#include "apps/memcached/observation.hpp"
#include "apps/memcached/text_protocol.hpp"
#include "apps/memcached/text_protocol_answers.hpp"
#include "apps/memcached/text_protocol_whole.hpp"
#include "kernel/panic.hpp"
#include "kernel/short_copy.hpp"

namespace neap::memcached {
using namespace text;

const char* text::store_whole(const Key& key, const char* at, const char* end, Store& store, const Clock& clock, Seconds now) noexcept {
  if (end[-1] != '\n' || store.is_short_of_memory()) return nullptr;  // the line end ends each search of `read_field`
  std::uint32_t flags = 0, expires = 0, bytes = 0;
  if (!read_field(at, flags) || !read_field(at, expires) || !read_field(at, bytes)) return nullptr;
  const auto left = static_cast<std::size_t>(end - at);
  if (left < std::size_t{bytes} + 4 || !is_line_end(at)) return nullptr;
  const char* const value = at + 2;
  if (!is_line_end(value + bytes)) return nullptr;
  const Store::Stored done = store.set(key, flags, clock.expiry(expires, now), {value, bytes}, now);
  return done.outcome == Outcome::stored ? value + bytes + 2 : nullptr;
}

std::size_t TextProtocol::item_bytes_needed(std::string_view input, const Store& store) const noexcept {
  const std::size_t line_end = input.substr(0, input_bytes_max).find('\n');
  if (reading_ != Reading::line || line_end == std::string_view::npos) return 0;
  if (is_meta(input)) {
    const std::string_view text = input.substr(0, line_end);
    return meta_item_bytes(text.substr(0, text.find_first_of(std::string_view("\r\0", 2))), store);
  }
  const Line line(input.substr(0, line_end));
  const std::string_view command = line.words[0], key = line.words[1];
  if (!has_key(key)) return 0;
  for (const std::string_view word : {"set", "add", "replace", "append", "prepend", "cas"}) {
    if (command != word) continue;
    const auto bytes = read_signed(line.words[4]);
    return bytes && *bytes >= 0 && static_cast<std::uint64_t>(*bytes) <= store.value_bytes_max()
               ? Store::footprint(key.size(), static_cast<std::size_t>(*bytes))
               : 0;
  }
  return command == "incr" || command == "decr" ? Store::footprint(key.size(), store.stored_value_bytes(store.key(key))) : 0;
}

void TextProtocol::store(Mode mode, const Line& line, Context& context) noexcept {
  const bool quiet = line.quiet();
  const std::string_view key_text = line.words[1];
  const auto flags = read_unsigned(line.words[2]);
  const auto expires = read_expiry(line.words[3], context);
  const auto bytes = read_signed(line.words[4]);
  const auto expected_cas = mode == Mode::cas ? read_unsigned(line.words[5]) : std::uint64_t{0};
  if (!has_key(key_text) || !flags || !expires || !bytes || !expected_cas || *bytes < 0 || *bytes > INT_MAX - 2)
    return refuse(context, quiet, error_format);
  context.statistics.add(Count::cmd_set);
  const auto value_bytes = static_cast<std::uint64_t>(*bytes);
  const Key key = context.store().key(key_text);
  observation::note_set_begins(context, key);
  auto [item, outcome] = context.store().allocate(key, static_cast<std::uint32_t>(*flags), *expires, value_bytes, context.now);
  if (!item) {
    const bool too_large = outcome == Outcome::too_large;
    context.statistics.add(too_large ? Count::store_too_large : Count::store_no_memory);
    say(context, quiet, too_large ? "SERVER_ERROR object too large for cache\r\n" : "SERVER_ERROR out of memory storing object\r\n");
    observation::note_refused_store(context, mode, key_text, outcome, *expires, value_bytes);
    context.transfer.discard(value_bytes + 2);
    if (mode == Mode::set) (void)context.store().remove(key, 0, context.now);  // after a refused set, no get may return the old value
    return;
  }
  context.transfer.fill(std::move(item), value_bytes + 2);
  context.transfer.mode = mode;
  context.transfer.expected_cas = *expected_cas;
  context.transfer.quiet = quiet;
}

void TextProtocol::transfer_done(Context& context) noexcept {
  if (context.transfer.meta) return finish_meta_set(meta_set_, context);
  require(context.transfer.item && context.transfer.bytes_left == 0, "memcached: a received value is complete");
  ItemPointer item = std::move(context.transfer.item);
  const Mode mode = context.transfer.mode;
  const bool quiet = context.transfer.quiet;
  if (!item->ends_in_line_end()) return refuse(context, quiet, "CLIENT_ERROR bad data chunk\r\n");
  const observation::StoreReport report(context, mode, *item.get());
  const Store::Done done = context.store().commit(mode, std::move(item), context.transfer.expected_cas, context.now);
  context.copied_bytes += done.copied_bytes;
  const Outcome outcome = done.outcome;
  report.end(context, outcome);
  if (mode == Mode::cas) {
    context.statistics.add(outcome == Outcome::stored   ? Count::cas_hits
                           : outcome == Outcome::exists ? Count::cas_badval
                                                        : Count::cas_misses);
  }
  switch (outcome) {
    case Outcome::stored:
      return say(context, quiet, "STORED\r\n");
    case Outcome::exists:
      return say(context, quiet, "EXISTS\r\n");
    case Outcome::not_found:
      return say(context, quiet, "NOT_FOUND\r\n");
    case Outcome::not_stored:
    case Outcome::not_numeric:
      return say(context, quiet, "NOT_STORED\r\n");
    case Outcome::too_large:
      context.statistics.add(Count::store_too_large);
      return say(context, quiet, "SERVER_ERROR object too large for cache\r\n");
    case Outcome::out_of_memory:
      context.statistics.add(Count::store_no_memory);
      return say(context, quiet, "SERVER_ERROR out of memory storing object\r\n");
  }
}

}  // namespace neap::memcached
