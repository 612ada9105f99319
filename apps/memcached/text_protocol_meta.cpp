// SPDX-License-Identifier: BSL-1.0
#include "apps/memcached/text_protocol_meta.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include "apps/memcached/observation.hpp"
#include "apps/memcached/text_protocol_meta_answer.hpp"
#include "apps/memcached/text_protocol_whole.hpp"

namespace neap::memcached::text {
namespace {

// --- mg ----------------------------------------------------------------------------------------------------------------------------------
/// True if the flag R asks for a win. `expires`: of the item. A T before the R is in effect.
bool is_recache_due(const MetaLine& line, const MetaFlags& flags, Seconds expires) noexcept {
  for (const std::string_view flag : flags_of(line, 2)) {
    if (flag.front() == 'T') expires = *flags.expires;
    if (flag.front() == 'R') return expires != expires_never && expires < flags.recache_below;
  }
  return false;
}

/// The item that mg has found, and its properties before the command.
struct Fetched {
  Item* item = nullptr;
  Store::Found miss;  ///< defined without an item
  bool created = false, won = false, was_fetched = false;
  std::uint8_t marks = 0;
  std::uint64_t cas = 0;
  Seconds expires = expires_never;
  Seconds unused_s = 0;  ///< since the last use
};

/// Makes an empty item for the flag N. Returns false if another core has made an item meanwhile. Without memory there is no item.
bool vivify(const Key& key, const MetaFlags& flags, Context& context, Fetched& fetched) noexcept {
  Store::Allocated made = context.store().allocate(key, 0, flags.vivified_expires, 0, context.now, flags.own_cas);
  if (!made.item) return true;
  made.item->add_marks(Item::mark_win_sent | (flags.binary_key ? Item::mark_binary_key : 0));
  Item* const item = made.item.get();
  const Store::Done done = context.store().commit(Mode::add, std::move(made.item), 0, context.now);
  if (done.outcome != Outcome::stored) return done.outcome != Outcome::not_stored;
  fetched.item = item;  // readable until the event's end, even if it is evicted
  fetched.cas = done.cas;
  fetched.created = fetched.won = true;
  return true;
}

/// Performs mg, except for the note of the use. It begins anew if another core replaces the item meanwhile. Each round that fails means
/// that another core has made or replaced the item.
Fetched fetch(const MetaLine& line, const MetaFlags& flags, Context& context) noexcept {
  Store& store = context.store();
  const Key key = store.key(flags.key);
  for (;;) {
    Fetched fetched;
    fetched.miss = store.peek(key, context.now);
    fetched.item = fetched.miss.item;
    if (fetched.item == nullptr) {
      if (!flags.vivify) return fetched;
      if (!vivify(key, flags, context, fetched)) continue;
      return fetched;
    }
    Item& item = *fetched.item;
    fetched.cas = item.client_cas();  // before the marks: see `Item::marks`
    fetched.marks = item.marks.load(std::memory_order_acquire);
    fetched.was_fetched = item.was_fetched();
    fetched.expires = item.expires.load(std::memory_order_relaxed);
    fetched.unused_s = context.now - std::min(context.now, item.accessed.load(std::memory_order_relaxed) >> 1);
    const bool wants_win = (fetched.marks & Item::mark_stale) != 0 || is_recache_due(line, flags, fetched.expires);
    if (wants_win && (fetched.marks & Item::mark_win_sent) == 0) {
      const auto before = store.win(item, context.now);
      if (!before) continue;
      fetched.marks = before->marks;
      fetched.cas = before->cas;
      fetched.won = (before->marks & Item::mark_win_sent) == 0;
    }
    if (flags.expires) (void)store.touch(key, *flags.expires, context.now, false);
    return fetched;
  }
}

void answer_miss(const MetaLine& line, const MetaFlags& flags, const Store::Found& miss, Context& context) noexcept {
  count_miss(miss, context.statistics);
  if (flags.quiet) return;
  Answer answer(context.reply);
  answer.code("EN");
  echo(answer, line, flags);
  answer.line_end();
  answer.end();
}

void get(const MetaLine& line, Context& context) noexcept {
  if (line.count < 2) return refuse(context, false, error_unknown);
  if (!has_key(line.words[1])) return refuse(context, false, error_format);
  if (line.count > MetaLine::words_max) return refuse(context, false, "CLIENT_ERROR options flags are too long\r\n");
  MetaFlags flags;
  if (const std::string_view error = flags.read(line, 2, context); !error.empty()) return refuse(context, false, error);
  if (flags.opaque_too_long) return refuse(context, false, error_opaque);
  context.statistics.add(Count::cmd_get);
  const Fetched fetched = fetch(line, flags, context);
  observation::note_get(context, flags.key, fetched.item != nullptr ? Store::Found{.item = fetched.item} : fetched.miss);
  if (fetched.item == nullptr) return answer_miss(line, flags, fetched.miss, context);
  Item& item = *fetched.item;
  context.statistics.add(Count::get_hits);
  if (flags.expires) {
    context.statistics.add(Count::cmd_touch);
    context.statistics.add(Count::touch_hits);
  }
  const std::size_t line_bytes = flags.value ? item.value_line_bytes() : 0;
  const bool copied = context.reply.copies(line_bytes, answer_bytes_max);
  Answer answer(context.reply, copied ? line_bytes : 0);
  if (answer.failed()) return;
  answer.code(flags.value ? "VA " : "HD");
  if (flags.value) answer.number(item.value_bytes);
  Seconds expires = fetched.expires;  // a T or N is in effect for the flags behind it
  for (const std::string_view flag : flags_of(line, 2)) {
    switch (flag.front()) {
      case 'T':
        expires = *flags.expires;
        break;
      case 'N':
        if (fetched.created) expires = *flags.vivify;
        break;
      case 's':
        answer.field('s', item.value_bytes);
        break;
      case 't':
        answer.time_to_live(expires, context.now);
        break;
      case 'c':
        answer.field('c', fetched.cas);
        break;
      case 'f':
        answer.field('f', item.flags);
        break;
      case 'l':
        answer.field('l', fetched.unused_s);
        break;
      case 'h':
        answer.field('h', fetched.was_fetched ? 1 : 0);
        break;
      case 'O':
        answer.opaque(flag);
        break;
      case 'k':
        answer.key(item.key(), flags.binary_key || item.has_mark(Item::mark_binary_key));
        break;
      default:
        break;
    }
  }
  if ((fetched.marks & Item::mark_win_sent) != 0) answer.field('Z');
  if ((fetched.marks & Item::mark_stale) != 0) answer.field('X');
  if (fetched.won) answer.field('W');
  answer.line_end();
  if (copied && flags.value) answer.value(item.value_line());
  answer.end();
  if (!copied) context.reply.refer(item, line_bytes);
  if (!flags.leaves_use) item.note_use(context.now);
}

// --- me ----------------------------------------------------------------------------------------------------------------------------------
void show(const MetaLine& line, Context& context) noexcept {
  if (line.count < 2 || !has_key(line.words[1])) return refuse(context, false, error_format);
  std::string_view key = line.words[1];
  char decoded[key_bytes_max];
  const bool binary_key = line.count > 2 && line.words[2] == "b";
  if (binary_key) {
    key = {decoded, base64::decode(key, decoded)};
    if (key.empty()) return refuse(context, false, error_format);
  }
  const Item* const item = context.store().peek(context.store().key(key), context.now).item;
  if (item == nullptr) return context.reply.put("EN\r\n");
  const Seconds expires = item->expires.load(std::memory_order_relaxed);
  const std::size_t bytes = Store::footprint(item->key_bytes, item->value_bytes, item->more_bytes());
  Answer answer(context.reply, 64);  // the names of the fields
  answer.code("ME ");
  answer.plain_key(key, binary_key || item->has_mark(Item::mark_binary_key));
  answer.code(" exp=");
  if (expires == expires_never) {
    answer.code("-1");
  } else {
    answer.number(expires - std::min(expires, context.now));
  }
  answer.code(" la=");
  answer.number(context.now - std::min(context.now, item->accessed.load(std::memory_order_relaxed) >> 1));
  answer.code(" cas=");
  answer.number(item->client_cas());
  answer.code(item->was_fetched() ? " fetch=yes cls=" : " fetch=no cls=");
  answer.number(static_cast<unsigned>(std::bit_width(bytes - 1)));
  answer.code(" size=");
  answer.number(bytes);
  answer.line_end();
  answer.end();
}

}  // namespace

void execute_meta(std::string_view text, Context& context, MetaSet& answer) noexcept {
  const MetaLine line(text);
  switch (text[1]) {
    case 'n':
      return context.reply.put("MN\r\n");
    case 'g':
      return get(line, context);
    case 's':
      return execute_ms(line, context, answer);
    case 'd':
      return execute_md(line, context);
    case 'a':
      return execute_ma(line, context);
    case 'e':
      return show(line, context);
    default:
      return refuse(context, false, error_unknown);
  }
}

std::size_t meta_item_bytes(std::string_view text, const Store& store) noexcept {
  const MetaLine line(text);
  if (line.count < 2 || line.count > MetaLine::words_max || !has_key(line.words[1])) return 0;
  const auto has = [flags = flags_of(line, 2)](char letter) {
    return std::ranges::any_of(flags, [letter](std::string_view flag) { return flag.front() == letter; });
  };
  char decoded[key_bytes_max];
  const std::string_view key = has('b') ? std::string_view(decoded, base64::decode(line.words[1], decoded)) : line.words[1];
  std::size_t value_bytes = 0;
  if (text[1] == 's') {
    const auto bytes = line.count > 2 ? read_signed(line.words[2]) : std::nullopt;
    if (!bytes || *bytes < 0 || static_cast<std::uint64_t>(*bytes) > store.value_bytes_max()) return 0;
    value_bytes = static_cast<std::size_t>(*bytes);
  } else if (text[1] == 'a') {
    value_bytes = std::max(store.stored_value_bytes(store.key(key)), number_bytes_max);
  } else if (text[1] == 'd' && has('E') && !has('x')) {
    value_bytes = store.stored_value_bytes(store.key(key));
  } else if (!(text[1] == 'g' && has('N')) && !(text[1] == 'd' && has('x'))) {
    return 0;  // among others an md that only makes an item stale, which it does in place
  }
  return Store::footprint(key.size(), value_bytes, Item::own_cas_bytes);
}

}  // namespace neap::memcached::text
