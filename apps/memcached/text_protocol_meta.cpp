// SPDX-License-Identifier: BSL-1.0
#include "apps/memcached/text_protocol_meta.hpp"

#include <algorithm>
#include <bit>
#include <climits>
#include <cstring>
#include <span>
#include <utility>

#include "apps/memcached/base64.hpp"
#include "apps/memcached/numbers.hpp"
#include "apps/memcached/text_protocol_answers.hpp"
#include "apps/memcached/text_protocol_meta_line.hpp"
#include "apps/memcached/text_protocol_whole.hpp"
#include "kernel/panic.hpp"

namespace neap::memcached::text {
namespace {

constexpr std::string_view too_many_flags = "CLIENT_ERROR options flags too long\r\n";
constexpr std::string_view wrong_flag = "CLIENT_ERROR invalid or duplicate flag\r\n";
constexpr std::string_view opaque_too_long = "CLIENT_ERROR opaque token too long\r\n";
constexpr std::string_view out_of_memory = "SERVER_ERROR out of memory\r\n";

/// A bound of every answer without the value: the code with a length, every field once, and the line end. Each number of a field may be
/// followed by up to 4 bytes that are overwritten (`put_number`).
constexpr std::size_t answer_bytes_max = 3 + 11 + 2 + base64::text_bytes(key_bytes_max) + 2 + 8 * (3 + number_bytes_max) + 33 + 6 + 2 + 4;
static_assert(answer_bytes_max <= ReplyPool::chunk_bytes);

/// Writes an answer of at most `answer_bytes_max` bytes, and the bytes behind it. The reply is not changed before `end`.
class Answer {
 public:
  explicit Answer(Reply& reply, std::size_t more_bytes = 0) noexcept
      : reply_(reply), begin_(reply.room(answer_bytes_max + more_bytes)), at_(begin_ != nullptr ? begin_ : dropped_) {}
  /// True if there is no memory for the answer; the connection is then aborted.
  [[nodiscard]] bool failed() const noexcept { return begin_ == nullptr; }
  void code(std::string_view text) noexcept { at_ = put_text(at_, text); }
  void number(std::uint64_t value) noexcept { at_ = put_number(at_, value); }
  void field(char flag) noexcept {
    *at_++ = ' ';
    *at_++ = flag;
  }
  void field(char flag, std::uint64_t value) noexcept {
    field(flag);
    number(value);
  }
  /// `flag`: with its letter.
  void opaque(std::string_view flag) noexcept {
    *at_++ = ' ';
    at_ = put_text(at_, flag);
  }
  void plain_key(std::string_view bytes, bool encoded) noexcept { at_ = encoded ? base64::encode(at_, bytes) : put_text(at_, bytes); }
  void key(std::string_view bytes, bool encoded) noexcept {
    field('k');
    plain_key(bytes, encoded);
    if (encoded) field('b');
  }
  void time_to_live(Seconds expires, Seconds now) noexcept {
    field('t');
    if (expires == expires_never) {
      code("-1");
    } else {
      number(expires > now ? expires - now : 0);
    }
  }
  void line_end() noexcept { code("\r\n"); }
  void value(std::string_view bytes) noexcept { at_ = put_value(at_, bytes); }
  void end() noexcept {
    if (begin_ != nullptr) reply_.advance(static_cast<std::size_t>(at_ - begin_));
  }

 private:
  Reply& reply_;
  char* begin_;
  char dropped_[answer_bytes_max + 64];  // without memory the answer is written here
  char* at_;
};

/// The flags of a line, without command and key.
[[nodiscard]] std::span<const std::string_view> flags_of(const MetaLine& line, std::size_t first) noexcept {
  return std::span(line.words).subspan(first, line.count - first);
}

/// Writes the fields that show what the client has sent.
void echo(Answer& answer, const MetaLine& line, const MetaFlags& flags) noexcept {
  for (const std::string_view flag : flags_of(line, 2)) {
    if (flag.front() == 'O') answer.opaque(flag);
    if (flag.front() == 'k') answer.key(flags.key, flags.binary_key);
  }
}

// --- mg ----------------------------------------------------------------------------------------------------------------------------------
/// True if the flag R asks for a win. `expires`: of the item. A T before the R is in effect.
bool is_recache_due(const MetaLine& line, const MetaFlags& flags, Seconds expires) noexcept {
  for (const std::string_view flag : flags_of(line, 2)) {
    if (flag.front() == 'T') expires = *flags.expires;
    if (flag.front() == 'R') return expires != expires_never && expires < flags.recache_below;
  }
  return false;
}

/// What mg has found, as it was before the command.
struct Fetched {
  Item* item = nullptr;
  Store::Found miss;  ///< defined without an item
  bool created = false, won = false, was_fetched = false;
  std::uint8_t marks = 0;
  std::uint64_t cas = 0;
  Seconds expires = expires_never;
  Seconds unused_s = 0;  ///< since the last use
};

/// Makes an empty item for the flag N. Returns null without memory. Returns null, and sets `again`, if another core has made an item.
Item* vivify(const Key& key, const MetaFlags& flags, Context& context, bool& again) noexcept {
  Store::Allocated made = context.store().allocate(key, 0, flags.vivified_expires, 0, context.now, flags.own_cas);
  if (!made.item) return nullptr;
  made.item->add_marks(Item::mark_win_sent | (flags.binary_key ? Item::mark_binary_key : 0));
  Item* const item = made.item.get();
  const Outcome outcome = context.store().commit(Mode::add, std::move(made.item), 0, context.now).outcome;
  again = outcome == Outcome::not_stored;
  return outcome == Outcome::stored ? item : nullptr;  // readable until the event's end, even if it is evicted
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
      bool again = false;
      fetched.item = vivify(key, flags, context, again);
      if (again) continue;
      if (fetched.item == nullptr) return fetched;
      fetched.cas = fetched.item->client_cas();
      fetched.created = fetched.won = true;
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
      fetched.marks = *before;
      fetched.won = (*before & Item::mark_win_sent) == 0;
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
  if (flags.opaque_too_long) return refuse(context, false, opaque_too_long);
  context.statistics.add(Count::cmd_get);
  const Fetched fetched = fetch(line, flags, context);
  if (fetched.item == nullptr) return answer_miss(line, flags, fetched.miss, context);
  Item& item = *fetched.item;
  context.statistics.add(Count::get_hits);
  if (flags.expires) {
    context.statistics.add(Count::cmd_touch);
    context.statistics.add(Count::touch_hits);
  }
  const std::string_view value = flags.value ? item.value_line() : std::string_view{};
  const bool copied = context.reply.copies(value.size(), answer_bytes_max);
  Answer answer(context.reply, copied ? value.size() : 0);
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
  if (copied && flags.value) answer.value(value);
  answer.end();
  if (!copied) context.reply.refer(item, value);
  if (!flags.leaves_use) item.note_use(context.now);
}

// --- ms ----------------------------------------------------------------------------------------------------------------------------------
/// Reads the mode of ms. Returns false if there is no such mode.
bool read_mode(const MetaFlags& flags, Mode& mode) noexcept {
  const auto with_cas = [&flags](Mode without) {
    return !flags.expected_cas ? without : flags.invalidates ? Mode::cas_or_stale : Mode::cas;
  };
  switch (flags.mode) {
    case '\0':
    case 'S':
      mode = with_cas(Mode::set);
      return true;
    case 'R':
      mode = with_cas(Mode::replace);
      return true;
    case 'E':
      mode = Mode::add;
      return true;
    case 'A':
      mode = flags.vivify ? Mode::append_or_add : Mode::append;
      return true;
    case 'P':
      mode = flags.vivify ? Mode::prepend_or_add : Mode::prepend;
      return true;
    default:
      return false;
  }
}

void set(const MetaLine& line, Context& context, MetaSet& answer) noexcept {
  if (line.count < 2) return refuse(context, false, error_unknown);
  if (!has_key(line.words[1]) || line.count < 3) return refuse(context, false, error_format);
  if (line.count > MetaLine::words_max) return refuse(context, false, too_many_flags);
  const auto bytes = read_signed(line.words[2]);
  if (!bytes || *bytes < 0 || *bytes > INT_MAX - 2) return refuse(context, false, error_format);
  const auto value_bytes = static_cast<std::uint64_t>(*bytes);
  MetaFlags flags;
  std::string_view error = flags.read(line, 3, context);
  Mode mode = Mode::set;
  if (error.empty()) {
    if (flags.opaque_too_long) error = opaque_too_long;
    if (!read_mode(flags, mode)) error = "CLIENT_ERROR invalid mode for ms M token\r\n";
  }
  if (!error.empty()) {
    refuse(context, false, error);
    return context.transfer.discard(value_bytes + 2);
  }
  context.statistics.add(Count::cmd_set);
  answer.field_count = answer.opaque_bytes = 0;
  answer.binary_key = flags.binary_key;
  for (const std::string_view flag : flags_of(line, 3)) {
    const char letter = flag.front();
    if (letter != 'O' && letter != 'k' && letter != 'c' && letter != 's') continue;
    answer.fields[answer.field_count++] = letter;
    if (letter != 'O') continue;
    answer.opaque_bytes = static_cast<std::uint8_t>(flag.size());
    std::memcpy(answer.opaque.data(), flag.data(), flag.size());
  }
  const Key key = context.store().key(flags.key);
  const Seconds expires =
      mode == Mode::append_or_add || mode == Mode::prepend_or_add ? *flags.vivify : flags.expires.value_or(expires_never);
  const OwnCas own_cas = flags.own_cas == 0 ? std::nullopt : flags.own_cas;  // 0 asks for an id of the store, as in memcached
  auto [item, outcome] = context.store().allocate(key, flags.client_flags, expires, value_bytes, context.now, own_cas);
  if (!item) {
    const bool too_large = outcome == Outcome::too_large;
    context.statistics.add(too_large ? Count::store_too_large : Count::store_no_memory);
    context.reply.put(too_large ? "SERVER_ERROR object too large for cache\r\n" : "SERVER_ERROR out of memory storing object\r\n");
    context.transfer.discard(value_bytes + 2);
    (void)context.store().remove(key, 0, context.now);  // after a refused ms of any mode, no get may return the old value
    return;
  }
  if (flags.binary_key) item->add_marks(Item::mark_binary_key);
  Transfer& transfer = context.transfer;
  transfer.bytes_left = value_bytes + 2;
  transfer.to = item->value_data();
  transfer.item = std::move(item);
  transfer.mode = mode;
  transfer.expected_cas = mode == Mode::add ? 0 : flags.expected_cas.value_or(0);
  transfer.quiet = flags.quiet;
  transfer.meta = true;
}

std::string_view code_of(Outcome outcome) noexcept {
  switch (outcome) {
    case Outcome::stored:
      return "HD";
    case Outcome::exists:
      return "EX";
    case Outcome::not_found:
      return "NF";
    case Outcome::not_stored:
    case Outcome::not_numeric:
    case Outcome::too_large:  // of a value that append or prepend would make
    case Outcome::out_of_memory:
      return "NS";
  }
  return "NS";
}

// --- md and ma ---------------------------------------------------------------------------------------------------------------------------
/// Answers an error in a line of md or ma, and returns false.
bool read_line(const MetaLine& line, MetaFlags& flags, Context& context) noexcept {
  std::string_view error;
  if (line.count < 2) {
    error = error_unknown;
  } else if (!has_key(line.words[1])) {
    error = error_format;
  } else if (line.count > MetaLine::words_max) {
    error = too_many_flags;
  } else if (!flags.read(line, 2, context).empty()) {
    error = wrong_flag;
  }
  if (!error.empty()) refuse(context, false, error);
  return error.empty();
}

Store::Done remove_or_revise(const MetaFlags& flags, Context& context) noexcept {
  Store& store = context.store();
  const Key key = store.key(flags.key);
  if (flags.invalidates || flags.drops_value) {
    return store.revise(key,
                        {.to_stale = flags.invalidates,
                         .without_value = flags.drops_value,
                         .flags = flags.client_flags,
                         .expires = flags.expires,
                         .expected_cas = flags.expected_cas,
                         .own_cas = flags.own_cas},
                        context.now);
  }
  if (flags.expected_cas == 0) {  // matches only an item whose client has chosen the id 0
    const Item* const item = store.peek(key, context.now).item;
    if (item == nullptr) return {.outcome = Outcome::not_found};
    if (item->client_cas() != 0) return {.outcome = Outcome::exists};
  }
  return store.remove(key, flags.expected_cas.value_or(0), context.now);
}

void remove(const MetaLine& line, Context& context) noexcept {
  MetaFlags flags;
  if (!read_line(line, flags, context)) return;
  if (flags.opaque_too_long) return refuse(context, false, opaque_too_long);
  const Store::Done done = remove_or_revise(flags, context);
  context.copied_bytes += done.copied_bytes;
  if (done.outcome == Outcome::out_of_memory) {
    context.statistics.add(Count::store_no_memory);
    return context.reply.put(out_of_memory);
  }
  const bool stored = done.outcome == Outcome::stored;
  if (!stored || !flags.invalidates) context.statistics.add(stored ? Count::delete_hits : Count::delete_misses);
  if (stored && flags.quiet) return;
  Answer answer(context.reply);
  answer.code(code_of(done.outcome));
  echo(answer, line, flags);
  answer.line_end();
  answer.end();
}

/// Counts, or makes the number for the flag N. Begins anew if another core makes or removes the number meanwhile.
Store::Done count_or_create(const MetaFlags& flags, bool up, Context& context, bool& created) noexcept {
  Store& store = context.store();
  const Key key = store.key(flags.key);
  for (;;) {
    Store::Done done = store.arithmetic(key, up, flags.delta, flags.expected_cas.value_or(0), context.now,
                                        {.expires = flags.expires, .own_cas = flags.own_cas});
    if (done.outcome != Outcome::not_found || !flags.vivify) return done;
    done = store.create_number(key, flags.initial, flags.vivified_expires, context.now,
                               {.own_cas = flags.own_cas, .binary_key = flags.binary_key});
    if (done.outcome == Outcome::not_stored) continue;
    created = true;
    return done;
  }
}

void arithmetic(const MetaLine& line, Context& context) noexcept {
  MetaFlags flags;
  if (!read_line(line, flags, context)) return;
  const bool up = flags.mode == '\0' || flags.mode == 'I' || flags.mode == '+';
  if (!up && flags.mode != 'D' && flags.mode != '-') return refuse(context, false, "CLIENT_ERROR invalid mode for ma M token\r\n");
  if (flags.opaque_too_long) return refuse(context, false, opaque_too_long);
  bool created = false;
  const Store::Done done = count_or_create(flags, up, context, created);
  context.copied_bytes += done.copied_bytes;
  const bool stored = done.outcome == Outcome::stored;
  if (done.outcome == Outcome::not_numeric) return context.reply.put("CLIENT_ERROR cannot increment or decrement non-numeric value\r\n");
  if (done.outcome == Outcome::out_of_memory || done.outcome == Outcome::too_large) {
    context.statistics.add(Count::store_no_memory);
    return context.reply.put(created ? "SERVER_ERROR Out of memory allocating new item\r\n" : out_of_memory);
  }
  if (stored && !created) context.statistics.add(up ? Count::incr_hits : Count::decr_hits);
  if (done.outcome == Outcome::not_found) context.statistics.add(up ? Count::incr_misses : Count::decr_misses);
  if (stored && !created && flags.quiet) return;
  char digits[number_bytes_max + 4];
  const std::string_view number(digits, static_cast<std::size_t>(put_number(digits, done.value) - digits));
  Answer answer(context.reply, number.size() + 2);
  if (stored && flags.value) {
    answer.code("VA ");
    answer.number(number.size());
  } else {
    answer.code(code_of(done.outcome));
  }
  if (stored) {
    Seconds expires = created ? expires_never : done.expired_at;  // as in `get`
    for (const std::string_view flag : flags_of(line, 2)) {
      if (flag.front() == 'T') expires = *flags.expires;
      if (flag.front() == 'N' && created) expires = *flags.vivify;
      if (flag.front() == 't') answer.time_to_live(expires, context.now);
      if (flag.front() == 'c') answer.field('c', done.cas);
      if (flag.front() == 'O') answer.opaque(flag);
      if (flag.front() == 'k') answer.key(flags.key, flags.binary_key);
    }
  } else {
    echo(answer, line, flags);
  }
  answer.line_end();
  if (stored && flags.value) {
    answer.code(number);
    answer.line_end();
  }
  answer.end();
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
      return set(line, context, answer);
    case 'd':
      return remove(line, context);
    case 'a':
      return arithmetic(line, context);
    case 'e':
      return show(line, context);
    default:
      return refuse(context, false, error_unknown);
  }
}

void finish_meta_set(const MetaSet& fields, Context& context) noexcept {
  Transfer& transfer = context.transfer;
  transfer.meta = false;
  require(transfer.item && transfer.bytes_left == 0, "memcached: a received value is complete");
  if (!transfer.item->value_line().ends_with("\r\n")) return refuse(context, false, "CLIENT_ERROR bad data chunk\r\n");
  char key[key_bytes_max];  // the item may be gone once it is committed
  const std::size_t key_bytes = transfer.item->key_bytes;
  std::memcpy(key, transfer.item->key_data(), key_bytes);
  const Mode mode = transfer.mode;
  const Store::Done done = context.store().commit(mode, std::move(transfer.item), transfer.expected_cas, context.now);
  context.copied_bytes += done.copied_bytes;
  if (mode == Mode::cas || mode == Mode::cas_or_stale) {
    context.statistics.add(done.outcome == Outcome::stored   ? Count::cas_hits
                           : done.outcome == Outcome::exists ? Count::cas_badval
                                                             : Count::cas_misses);
  }
  if (done.outcome == Outcome::too_large) context.statistics.add(Count::store_too_large);
  if (done.outcome == Outcome::out_of_memory) context.statistics.add(Count::store_no_memory);
  if (done.outcome == Outcome::stored && transfer.quiet) return;
  Answer answer(context.reply);
  answer.code(code_of(done.outcome));
  for (std::size_t at = 0; at < fields.field_count; ++at) {
    switch (fields.fields[at]) {
      case 'O':
        answer.opaque({fields.opaque.data(), fields.opaque_bytes});
        break;
      case 'k':
        answer.key({key, key_bytes}, fields.binary_key);
        break;
      case 'c':
        answer.field('c', done.cas);
        break;
      default:
        answer.field('s', done.value_bytes);
        break;
    }
  }
  answer.line_end();
  answer.end();
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
