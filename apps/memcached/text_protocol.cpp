// SPDX-License-Identifier: BSL-1.0
#include "apps/memcached/text_protocol.hpp"

#include <algorithm>
#include <cstring>
#include <optional>

#include "apps/memcached/numbers.hpp"
#include "apps/memcached/observation.hpp"
#include "apps/memcached/text_protocol_answers.hpp"
#include "apps/memcached/text_protocol_whole.hpp"
#include "kernel/panic.hpp"

namespace neap::memcached {
namespace {

using namespace text;

}  // namespace

// --- Bytes to commands -------------------------------------------------------------------------------------------------------------------
std::size_t TextProtocol::step(std::string_view input, Context& context) noexcept {
  switch (reading_) {
    case Reading::line:
      break;
    case Reading::keys:
      return step_keys(input, context);
    case Reading::rest:
    case Reading::failed_rest:
      return step_rest(input, context);
  }
  if (!context.service.observed()) [[likely]] {
    if (const std::size_t used = whole_requests(input, context); used != 0) [[likely]]
      return used;
  }
  return step_line(input, context);
}

std::size_t TextProtocol::whole_requests(std::string_view input, Context& context) noexcept {
  const Service& service = context.service;
  const auto handle = [&](auto pass) {
    return pass(input, context.store(), service.clock, context.now, context.statistics, context.reply).bytes;
  };
  const std::size_t used = handle(handle_whole_requests);
  return used != 0 || !is_meta(input) ? used : handle(handle_whole_meta_requests);
}

std::size_t TextProtocol::wants(std::string_view input, std::string_view more) const noexcept {
  require(input.size() <= input_bytes_max, "memcached: more input than one line is kept", input.size());
  const std::size_t room = input_bytes_max - input.size();
  const std::string_view candidates = more.substr(0, room);
  const std::size_t line_end = candidates.find('\n');
  return line_end == std::string_view::npos ? candidates.size() : line_end + 1;
}

std::size_t TextProtocol::step_line(std::string_view input, Context& context) noexcept {
  std::size_t blanks = 0;
  while (blanks < input.size() && input[blanks] == ' ') ++blanks;
  if (blanks > 0) return blanks;
  if (const std::size_t used = try_begin_get(input, context)) return used;

  const std::string_view window = input.substr(0, line_bytes_max + 2);
  const std::size_t line_end = window.find('\n');
  if (line_end == std::string_view::npos) {
    if (window.size() < line_bytes_max + 2) return 0;
    context.statistics.add(Count::protocol_errors);
    context.reply.put("CLIENT_ERROR line too long\r\n");
    reading_ = Reading::failed_rest;
    return window.size();
  }
  std::string_view line = window.substr(0, line_end);
  if (line.size() > 1 && line.back() == '\r') line.remove_suffix(1);
  line = line.substr(0, line.find('\0'));
  context.statistics.add(Count::requests);
  if (is_meta(line)) {
    context.statistics.add(Count::cmd_meta);
    execute_meta(line, context, meta_set_);
    return line_end + 1;
  }
  try {
    execute(line, context);
  } catch (...) {  // only `stats` allocates; without memory the connection is closed
    context.closing = true;
  }
  return line_end + 1;
}

/// Begins any form of get, possibly before the whole line has arrived.
std::size_t TextProtocol::try_begin_get(std::string_view input, Context& context) noexcept {
  struct Form {
    std::string_view word;
    bool with_cas, with_touch;
  };
  static constexpr Form forms[] = {
      {"gets ", true, false}, {"gat ", false, true}, {"gats ", true, true}, {"get ", false, false}, {"bget ", false, false}};
  if (input.empty() || (input.front() != 'g' && input.front() != 'b')) return 0;
  for (const Form& form : forms) {
    if (!input.starts_with(form.word)) continue;
    begin_get(form.with_cas, form.with_touch, context);
    return form.word.size() + step_keys(input.substr(form.word.size()), context);
  }
  return 0;
}

void TextProtocol::begin_get(bool with_cas, bool with_touch, Context& context) noexcept {
  reading_ = Reading::keys;
  context.statistics.add(Count::requests);
  get_with_cas_ = with_cas;
  get_with_touch_ = with_touch;
  get_expiry_known_ = false;
  get_has_keys_ = false;
  get_start_ = context.reply.position();
}

std::size_t TextProtocol::step_keys(std::string_view input, Context& context) noexcept {
  const char* const begin = input.data();
  const char* const end = begin + input.size();
  const char* at = begin;
  for (;;) {
    while (at < end && *at == ' ') ++at;
    const char* const word = at;
    if (context.reply.full()) return static_cast<std::size_t>(word - begin);
    // A blank or a line end ends the word. Any other control character is part of the word.
    for (;;) {
      at = detail::find_break(begin, at, end);
      if (at == end || *at == ' ' || *at == '\n' || *at == '\0') break;
      if (*at == '\r' && (at + 1 == end || at[1] == '\n')) break;
      ++at;
    }
    const std::string_view text(word, static_cast<std::size_t>(at - word));
    if (at == end || (*at == '\r' && at + 1 == end)) {  // the word may continue in the next input
      if (text.size() <= key_bytes_max) return static_cast<std::size_t>(word - begin);
      (void)word_of_get(text, context);  // the word is already too long for a key
      return static_cast<std::size_t>(at - begin);
    }
    if (!text.empty() && !word_of_get(text, context)) return static_cast<std::size_t>(at - begin);
    if (*at == ' ') continue;
    if (*at == '\0') {
      reading_ = Reading::rest;
      return static_cast<std::size_t>(at - begin) + 1;  // consumes this byte too, because a result of 0 would request more input
    }
    end_get(context);
    return static_cast<std::size_t>(at - begin) + (*at == '\r' ? 2 : 1);
  }
}

std::size_t TextProtocol::step_rest(std::string_view input, Context& context) noexcept {
  const std::size_t line_end = input.find('\n');
  if (line_end == std::string_view::npos) return input.size();
  if (reading_ == Reading::rest) end_get(context);
  reading_ = Reading::line;
  return line_end + 1;
}

bool TextProtocol::word_of_get(std::string_view word, Context& context) noexcept {
  if (get_with_touch_ && !get_expiry_known_) {
    const auto expires = word.size() <= key_bytes_max ? read_expiry(word, context) : std::nullopt;  // a longer word may be incomplete
    if (!expires) {
      fail_get(error_expiry, context);
      return false;
    }
    get_expires_ = *expires;
    get_expiry_known_ = true;
    return true;
  }
  if (!has_key(word)) {
    fail_get(error_format, context);
    return false;
  }
  get_has_keys_ = true;
  const Key key = context.store().key(word);
  context.statistics.add(Count::cmd_get);
  const Store::Found found =
      get_with_touch_ ? context.store().touch(key, get_expires_, context.now) : context.store().find(key, context.now);
  if (get_with_touch_) {
    context.statistics.add(Count::cmd_touch);
    context.statistics.add(found.item != nullptr ? Count::touch_hits : Count::touch_misses);
  }
  observation::note_get(context, word, found);
  if (found.item != nullptr) {
    context.statistics.add(Count::get_hits);
    write_value(*found.item, get_with_cas_, "", context.reply);
    return true;
  }
  count_miss(found, context.statistics);
  return true;
}

void TextProtocol::end_get(Context& context) noexcept {
  reading_ = Reading::line;
  context.reply.put(get_has_keys_ || get_expiry_known_ ? end_of_get : error_unknown);
}

/// Replaces the get's values in the reply by `error`. If they can no longer be removed (`get_is_final`), appends `error`.
void TextProtocol::fail_get(std::string_view error, Context& context) noexcept {
  context.statistics.add(Count::protocol_errors);
  if (!get_is_final(context.reply)) context.reply.rewind(get_start_);
  context.reply.put(error);
  reading_ = Reading::failed_rest;
}

// --- Lines -------------------------------------------------------------------------------------------------------------------------------
TextProtocol::Line::Line(std::string_view text) noexcept {
  const char* const begin = text.data();
  const char* const end = begin + text.size();
  for (const char* at = begin; at < end;) {
    if (*at == ' ') {
      ++at;
      continue;
    }
    const char* const word = at;
    for (;;) {  // any other control character is part of the word
      at = detail::find_break(begin, at, end);
      if (at == end || *at == ' ') break;
      ++at;
    }
    if (count < kept) words[count] = {word, static_cast<std::size_t>(at - word)};
    ++count;
  }
}

void TextProtocol::execute(std::string_view text, Context& context) {
  const Line line(text);
  const std::string_view command = line.words[0];
  const auto words = [&](std::size_t min, std::size_t max) { return line.count >= min && line.count <= max; };
  if (command == "set" && words(5, 6)) return store(Mode::set, line, context);
  if (command == "add" && words(5, 6)) return store(Mode::add, line, context);
  if (command == "replace" && words(5, 6)) return store(Mode::replace, line, context);
  if (command == "append" && words(5, 6)) return store(Mode::append, line, context);
  if (command == "prepend" && words(5, 6)) return store(Mode::prepend, line, context);
  if (command == "cas" && words(6, 7)) return store(Mode::cas, line, context);
  if (command == "delete" && words(2, 4)) return remove(line, context);
  if (command == "incr" && words(3, 4)) return count(true, line, context);
  if (command == "decr" && words(3, 4)) return count(false, line, context);
  if (command == "touch" && words(3, 4)) return touch(line, context);
  if (command == "version") {
    context.reply.put("VERSION ");
    context.reply.put(context.service.settings.version);
    context.reply.put("\r\n");
    return;
  }
  if (command == "quit") {
    context.closing = context.quit = true;
    return;
  }
  if (operate(line, context)) return;
  context.statistics.add(Count::protocol_errors);
  if (line.count > 1 && line.count <= Line::kept && line.words[line.count - 1].starts_with("HTTP/")) {
    context.closing = true;  // an HTTP request that a web page sends to this port must not execute commands
    return;
  }
  context.reply.put(error_unknown);
}

void TextProtocol::remove(const Line& line, Context& context) noexcept {
  const bool quiet = line.count > 2 && line.quiet();  // otherwise "noreply" is the key
  if (line.count > 2) {
    const bool zero = line.words[2] == "0";
    if (!(line.count == 3 ? zero || quiet : zero && quiet))
      return refuse(context, quiet, "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\n");
  }
  if (!has_key(line.words[1])) return refuse(context, quiet, error_format);
  const Key key = context.store().key(line.words[1]);
  const observation::DeleteReport report(context, key);
  const bool done = context.store().remove(key, 0, context.now).outcome == Outcome::stored;
  report.end(context, "delete", key.text, done);
  context.statistics.add(done ? Count::delete_hits : Count::delete_misses);
  say(context, quiet, done ? "DELETED\r\n" : "NOT_FOUND\r\n");
}

void TextProtocol::count(bool up, const Line& line, Context& context) noexcept {
  const bool quiet = line.quiet();
  const auto delta = read_unsigned(line.words[2]);
  if (!has_key(line.words[1]) || !delta)
    return refuse(context, quiet, has_key(line.words[1]) ? "CLIENT_ERROR invalid numeric delta argument\r\n" : error_format);
  const Store::Done done = context.store().arithmetic(context.store().key(line.words[1]), up, *delta, 0, context.now);
  context.copied_bytes += done.copied_bytes;
  switch (done.outcome) {
    case Outcome::stored: {
      context.statistics.add(up ? Count::incr_hits : Count::decr_hits);
      char text[24];
      char* const end = put_text(put_number(text, done.value), "\r\n");
      return say(context, quiet, {text, static_cast<std::size_t>(end - text)});
    }
    case Outcome::not_numeric:
      return say(context, quiet, "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n");
    case Outcome::out_of_memory:
    case Outcome::too_large:
      context.statistics.add(Count::store_no_memory);
      return say(context, quiet, "SERVER_ERROR out of memory\r\n");
    default:
      context.statistics.add(up ? Count::incr_misses : Count::decr_misses);
      return say(context, quiet, "NOT_FOUND\r\n");
  }
}

void TextProtocol::touch(const Line& line, Context& context) noexcept {
  const bool quiet = line.quiet();
  const auto expires = read_expiry(line.words[2], context);
  if (!has_key(line.words[1]) || !expires) return refuse(context, quiet, has_key(line.words[1]) ? error_expiry : error_format);
  const bool found = context.store().touch(context.store().key(line.words[1]), *expires, context.now).item != nullptr;
  context.statistics.add(Count::cmd_touch);
  context.statistics.add(found ? Count::touch_hits : Count::touch_misses);
  say(context, quiet, found ? "TOUCHED\r\n" : "NOT_FOUND\r\n");
}

}  // namespace neap::memcached
