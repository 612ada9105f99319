// SPDX-License-Identifier: BSL-1.0
// The meta commands that change items: ms, md, ma.
#include <climits>
#include <cstring>
#include <utility>

#include "apps/memcached/observation.hpp"
#include "apps/memcached/text_protocol_meta_answer.hpp"
#include "kernel/panic.hpp"

namespace neap::memcached::text {
namespace {

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

/// Answers an error in a line of md or ma, and returns false.
bool read_line(const MetaLine& line, MetaFlags& flags, Context& context) noexcept {
  std::string_view error;
  if (line.count < 2) {
    error = error_unknown;
  } else if (!has_key(line.words[1])) {
    error = error_format;
  } else if (line.count > MetaLine::words_max) {
    error = error_too_many_flags;
  } else if (!flags.read(line, 2, context).empty()) {
    error = error_flags;
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

}  // namespace

// --- ms ----------------------------------------------------------------------------------------------------------------------------------
void execute_ms(const MetaLine& line, Context& context, MetaSet& answer) noexcept {
  if (line.count < 2) return refuse(context, false, error_unknown);
  if (!has_key(line.words[1]) || line.count < 3) return refuse(context, false, error_format);
  if (line.count > MetaLine::words_max) return refuse(context, false, error_too_many_flags);
  const auto bytes = read_signed(line.words[2]);
  if (!bytes || *bytes < 0 || *bytes > INT_MAX - 2) return refuse(context, false, error_format);
  const auto value_bytes = static_cast<std::uint64_t>(*bytes);
  MetaFlags flags;
  std::string_view error = flags.read(line, 3, context);
  Mode mode = Mode::set;
  if (error.empty()) {
    if (flags.opaque_too_long) error = error_opaque;
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
  observation::note_set_begins(context, key);
  auto [item, outcome] = context.store().allocate(key, flags.client_flags, expires, value_bytes, context.now, own_cas);
  if (!item) {
    const bool too_large = outcome == Outcome::too_large;
    context.statistics.add(too_large ? Count::store_too_large : Count::store_no_memory);
    context.reply.put(too_large ? "SERVER_ERROR object too large for cache\r\n" : "SERVER_ERROR out of memory storing object\r\n");
    observation::note_refused_store(context, mode, flags.key, outcome, expires, value_bytes);
    context.transfer.discard(value_bytes + 2);
    (void)context.store().remove(key, 0, context.now);  // after a refused ms of any mode, no get may return the old value
    return;
  }
  if (flags.binary_key) item->add_marks(Item::mark_binary_key);
  Transfer& transfer = context.transfer;
  transfer.fill(std::move(item), value_bytes + 2);
  transfer.mode = mode;
  transfer.expected_cas = mode == Mode::add ? 0 : flags.expected_cas.value_or(0);
  transfer.quiet = flags.quiet;
  transfer.meta = true;
}

void finish_meta_set(const MetaSet& fields, Context& context) noexcept {
  Transfer& transfer = context.transfer;
  transfer.meta = false;
  require(transfer.item && transfer.bytes_left == 0, "memcached: a received value is complete");
  if (!transfer.item->ends_in_line_end()) return refuse(context, false, "CLIENT_ERROR bad data chunk\r\n");
  char key[key_bytes_max];  // the item may be gone once it is committed
  const std::size_t key_bytes = transfer.item->key_bytes;
  std::memcpy(key, transfer.item->key_data(), key_bytes);
  const Mode mode = transfer.mode;
  const observation::StoreReport report(context, mode, *transfer.item.get());
  const Store::Done done = context.store().commit(mode, std::move(transfer.item), transfer.expected_cas, context.now);
  report.end(context, done.outcome);
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

// --- md and ma ---------------------------------------------------------------------------------------------------------------------------
void execute_md(const MetaLine& line, Context& context) noexcept {
  MetaFlags flags;
  if (!read_line(line, flags, context)) return;
  if (flags.opaque_too_long) return refuse(context, false, error_opaque);
  const observation::DeleteReport report(context, context.store().key(flags.key));
  const Store::Done done = remove_or_revise(flags, context);
  report.end(context, "md", flags.key, done.outcome == Outcome::stored && !flags.invalidates);
  context.copied_bytes += done.copied_bytes;
  if (done.outcome == Outcome::out_of_memory) {
    context.statistics.add(Count::store_no_memory);
    return context.reply.put(error_memory);
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

void execute_ma(const MetaLine& line, Context& context) noexcept {
  MetaFlags flags;
  if (!read_line(line, flags, context)) return;
  const bool up = flags.mode == '\0' || flags.mode == 'I' || flags.mode == '+';
  if (!up && flags.mode != 'D' && flags.mode != '-') return refuse(context, false, "CLIENT_ERROR invalid mode for ma M token\r\n");
  if (flags.opaque_too_long) return refuse(context, false, error_opaque);
  bool created = false;
  const Store::Done done = count_or_create(flags, up, context, created);
  context.copied_bytes += done.copied_bytes;
  const bool stored = done.outcome == Outcome::stored;
  if (done.outcome == Outcome::not_numeric) return context.reply.put("CLIENT_ERROR cannot increment or decrement non-numeric value\r\n");
  if (done.outcome == Outcome::out_of_memory || done.outcome == Outcome::too_large) {
    context.statistics.add(Count::store_no_memory);
    return context.reply.put(created ? "SERVER_ERROR Out of memory allocating new item\r\n" : error_memory);
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

}  // namespace neap::memcached::text
