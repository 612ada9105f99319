// SPDX-License-Identifier: BSL-1.0
#include "apps/memcached/binary_protocol.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "apps/memcached/binary_protocol_whole.hpp"
#include "apps/memcached/numbers.hpp"
#include "apps/memcached/observation.hpp"
#include "kernel/panic.hpp"
#include "kernel/short_copy.hpp"

namespace neap::memcached {
namespace {

namespace op {
enum : std::uint8_t {
  get = 0x00,
  set = 0x01,
  add = 0x02,
  replace = 0x03,
  remove = 0x04,
  increment = 0x05,
  decrement = 0x06,
  quit = 0x07,
  flush = 0x08,
  get_quiet = 0x09,
  noop = 0x0a,
  version = 0x0b,
  get_key = 0x0c,
  get_key_quiet = 0x0d,
  append = 0x0e,
  prepend = 0x0f,
  stat = 0x10,
  set_quiet = 0x11,
  add_quiet = 0x12,
  replace_quiet = 0x13,
  remove_quiet = 0x14,
  increment_quiet = 0x15,
  decrement_quiet = 0x16,
  quit_quiet = 0x17,
  flush_quiet = 0x18,
  append_quiet = 0x19,
  prepend_quiet = 0x1a,
  touch = 0x1c,
  get_and_touch = 0x1d,
  get_and_touch_quiet = 0x1e,
  get_key_and_touch = 0x23,
  get_key_and_touch_quiet = 0x24,
};
}  // namespace op

/// For each command with a quiet form: the opcode of the quiet form, then that of the ordinary form.
constexpr std::array<std::uint8_t, 2> quiet_forms[] = {
    {op::get_quiet, op::get},
    {op::get_key_quiet, op::get_key},
    {op::set_quiet, op::set},
    {op::add_quiet, op::add},
    {op::replace_quiet, op::replace},
    {op::remove_quiet, op::remove},
    {op::increment_quiet, op::increment},
    {op::decrement_quiet, op::decrement},
    {op::quit_quiet, op::quit},
    {op::flush_quiet, op::flush},
    {op::append_quiet, op::append},
    {op::prepend_quiet, op::prepend},
    {op::get_and_touch_quiet, op::get_and_touch},
    {op::get_key_and_touch_quiet, op::get_key_and_touch},
};
constexpr auto loud_forms = [] {
  std::array<std::uint8_t, 256> forms{};
  for (unsigned opcode = 0; opcode < forms.size(); ++opcode) forms[opcode] = static_cast<std::uint8_t>(opcode);
  for (const auto& [quiet, loud] : quiet_forms) forms[quiet] = loud;
  return forms;
}();
constexpr std::uint8_t loud_form(std::uint8_t opcode) noexcept { return loud_forms[opcode]; }

using binary::read_big;
using binary::write_big;

constexpr std::uint32_t expiry_means_no_creation = 0xffffffff;

}  // namespace

// --- Bytes to requests -------------------------------------------------------------------------------------------------------------------
BinaryProtocol::Header BinaryProtocol::read_header(std::string_view input) noexcept {
  require(input.size() >= header_bytes, "memcached: a header is read once it is complete", input.size());
  const char* const at = input.data();
  Header header;
  header.opcode = static_cast<std::uint8_t>(at[1]);
  header.key_bytes = read_big<std::uint16_t>(at + 2);
  header.extras_bytes = static_cast<std::uint8_t>(at[4]);
  header.body_bytes = read_big<std::uint32_t>(at + 8);
  std::memcpy(&header.opaque, at + 12, 4);
  header.cas = read_big<std::uint64_t>(at + 16);
  return header;
}

std::size_t BinaryProtocol::item_bytes_needed(std::string_view input, const Store& store) const noexcept {
  if (input.size() < header_bytes) return 0;
  const Header header = read_header(input);
  const std::size_t head_bytes = std::size_t{header.extras_bytes} + header.key_bytes;
  if (header.key_bytes > key_bytes_max || head_bytes > header.body_bytes) return 0;
  if (input.size() < header_bytes + head_bytes) return 0;
  const std::size_t value_bytes = header.body_bytes - head_bytes;
  switch (loud_form(header.opcode)) {
    case op::set:
    case op::add:
    case op::replace:
    case op::append:
    case op::prepend:
      return value_bytes <= store.value_bytes_max() ? Store::footprint(header.key_bytes, value_bytes) : 0;
    case op::increment:
    case op::decrement: {
      const Key key = store.key(input.substr(header_bytes + header.extras_bytes, header.key_bytes));
      return Store::footprint(header.key_bytes, std::max(store.stored_value_bytes(key), number_bytes_max));
    }
    default:
      return 0;
  }
}

std::size_t BinaryProtocol::step(std::string_view input, Context& context) noexcept {
  if (input.front() != request_magic) {
    context.statistics.add(Count::protocol_errors);
    context.closing = true;
    return input.size();
  }
  if (input.size() < header_bytes) return 0;
  Request request{.header = read_header(input)};
  const Header& header = request.header;
  if (std::uint32_t{header.key_bytes} + header.extras_bytes > header.body_bytes) {
    say_error(header, context, Status::unknown_command);
    context.statistics.add(Count::protocol_errors);
    context.closing = true;
    return input.size();
  }
  if (header.key_bytes > key_bytes_max) {
    refuse(header, context);
    return input.size();
  }
  const std::size_t bytes = header_bytes + header.extras_bytes + header.key_bytes;
  if (input.size() < bytes) return 0;
  request.extras = input.substr(header_bytes, header.extras_bytes);
  request.key = input.substr(header_bytes + header.extras_bytes, header.key_bytes);
  request.command = loud_form(header.opcode);
  request.quiet = request.command != header.opcode;
  try {
    execute(request, context);
  } catch (...) {  // only `stat` allocates; without memory the connection is closed
    context.closing = true;
  }
  return bytes;
}

std::size_t BinaryProtocol::wants(std::string_view input, std::string_view more) const noexcept {
  std::size_t bytes = header_bytes;
  if (input.size() >= header_bytes) {
    const Header header = read_header(input);
    bytes += std::size_t{header.extras_bytes} + std::min<std::size_t>(header.key_bytes, key_bytes_max);
  }
  require(input.size() <= bytes, "memcached: more input than one request's head is kept", input.size());
  return std::min(bytes - input.size(), more.size());
}

// --- Requests ----------------------------------------------------------------------------------------------------------------------------
void BinaryProtocol::execute(const Request& request, Context& context) {
  context.statistics.add(Count::requests);
  switch (request.command) {
    case op::get:
    case op::get_key:
      if (!request.has_only(0, true)) break;
      return get(request, request.command == op::get_key, false, context);
    case op::get_and_touch:
    case op::get_key_and_touch:
      if (!request.has_only(4, true)) break;
      return get(request, request.command == op::get_key_and_touch, true, context);
    case op::touch:
      if (!request.has_only(4, true)) break;
      return touch(request, context);
    case op::set:
    case op::add:
    case op::replace:
      if (request.extras.size() != 8 || request.key.empty()) break;
      return store(request, request.command == op::set ? Mode::set : request.command == op::add ? Mode::add : Mode::replace, context);
    case op::append:
    case op::prepend:
      if (!request.extras.empty() || request.key.empty()) break;
      return store(request, request.command == op::append ? Mode::append : Mode::prepend, context);
    case op::remove:
      if (!request.has_only(0, true)) break;
      return remove(request, context);
    case op::increment:
    case op::decrement:
      if (!request.has_only(20, true)) break;
      return count(request, request.command == op::increment, context);
    case op::flush:
      if (!request.has_only(0, false) && !request.has_only(4, false)) break;
      return flush(request, context);
    case op::noop:
      if (!request.has_only(0, false)) break;
      return answer(request.header, context, Status::ok, {}, {}, {}, 0);
    case op::version:
      if (!request.has_only(0, false)) break;
      return answer(request.header, context, Status::ok, {}, {}, context.service.settings.version, 0);
    case op::stat:
      if (!request.extras.empty()) break;
      context.transfer.discard(request.value_bytes());
      return statistics(request, context);
    case op::quit:
      if (!request.has_only(0, false)) break;
      if (!request.quiet) answer(request.header, context, Status::ok, {}, {}, {}, 0);
      context.closing = context.quit = true;
      return;
    default:
      context.statistics.add(Count::protocol_errors);
      say_error(request.header, context, Status::unknown_command);
      context.transfer.discard(request.value_bytes());
      return;
  }
  refuse(request.header, context);
}

void BinaryProtocol::get(const Request& request, bool with_key, bool with_touch, Context& context) noexcept {
  const Key key = context.store().key(request.key);
  Store::Found found;
  context.statistics.add(Count::cmd_get);
  if (with_touch) {
    const auto asked = read_big<std::uint32_t>(request.extras.data());
    found = context.store().touch(key, context.service.clock.expiry(asked, context.now), context.now);
    context.statistics.add(Count::cmd_touch);
    context.statistics.add(found.item != nullptr ? Count::touch_hits : Count::touch_misses);
  } else {
    found = context.store().find(key, context.now);
  }
  observation::note_get(context, request.key, found);
  if (found.item == nullptr) {
    context.statistics.add(Count::get_misses);
    if (found.expired) context.statistics.add(Count::get_expired);
    if (found.flushed) context.statistics.add(Count::get_flushed);
    if (request.quiet) return;
    if (with_key) return answer(request.header, context, Status::not_found, {}, request.key, {}, 0);
    return say_error(request.header, context, Status::not_found);
  }
  context.statistics.add(Count::get_hits);
  Item& item = *found.item;
  const std::size_t value_bytes = item.value_bytes;
  const std::string_view key_text = with_key ? request.key : std::string_view{};
  const bool copied = value_bytes <= Reply::copy_bytes_max;
  const std::size_t head_bytes = header_bytes + 4 + key_text.size();
  char* const to = context.reply.room(head_bytes + (copied ? value_bytes : 0));
  if (to == nullptr) return;
  write_head(to, request.header, Status::ok, key_text.size(), 4, 4 + key_text.size() + value_bytes, item.client_cas());
  write_big(to + header_bytes, item.flags);
  if (with_key) std::memcpy(to + header_bytes + 4, key_text.data(), key_text.size());
  if (copied) {
    std::memcpy(to + head_bytes, item.key_data() + item.key_bytes, value_bytes);
    context.reply.advance(head_bytes + value_bytes);
  } else {
    context.reply.advance(head_bytes);
    context.reply.refer(item, value_bytes);
  }
}

void BinaryProtocol::touch(const Request& request, Context& context) noexcept {
  const auto asked = read_big<std::uint32_t>(request.extras.data());
  const auto found = context.store().touch(context.store().key(request.key), context.service.clock.expiry(asked, context.now), context.now);
  context.statistics.add(Count::cmd_touch);
  context.statistics.add(found.item != nullptr ? Count::touch_hits : Count::touch_misses);
  if (found.item == nullptr) return say_error(request.header, context, Status::not_found);
  char flags[4];
  write_big(flags, found.item->flags);
  answer(request.header, context, Status::ok, {flags, sizeof flags}, {}, {}, found.item->client_cas());
}

void BinaryProtocol::store(const Request& request, Mode mode, Context& context) noexcept {
  std::uint32_t flags = 0;
  Seconds expires = expires_never;
  require(request.extras.empty() || request.extras.size() == 8, "memcached: extras of a request that stores", request.extras.size());
  if (!request.extras.empty()) {
    flags = read_big<std::uint32_t>(request.extras.data());
    const auto asked = read_big<std::uint32_t>(request.extras.data() + 4);
    expires = context.service.clock.expiry(asked, context.now);
  }
  context.statistics.add(Count::cmd_set);
  const Key key = context.store().key(request.key);
  observation::note_set_begins(context, key);
  auto [item, outcome] = context.store().allocate(key, flags, expires, request.value_bytes(), context.now);
  if (!item) {
    const bool too_large = outcome == Outcome::too_large;
    context.statistics.add(too_large ? Count::store_too_large : Count::store_no_memory);
    say_error(request.header, context, too_large ? Status::too_large : Status::out_of_memory);
    observation::note_refused_store(context, mode, request.key, outcome, expires, request.value_bytes());
    context.transfer.discard(request.value_bytes());
    if (mode == Mode::set) (void)context.store().remove(key, 0, context.now);  // after a refused set, no get may return the old value
    return;
  }
  storing_ = request.header;
  context.transfer.fill(std::move(item), request.value_bytes());
  context.transfer.mode = mode;
  context.transfer.expected_cas = request.header.cas;
  context.transfer.quiet = request.quiet;
  if (context.transfer.bytes_left == 0) transfer_done(context);
}

void BinaryProtocol::transfer_done(Context& context) noexcept {
  Transfer& transfer = context.transfer;
  require(transfer.item && transfer.bytes_left == 0, "memcached: a received value is complete");
  // If a CAS id is given, memcached treats set, add and replace as cas.
  const bool is_cas = transfer.expected_cas != 0 && transfer.mode != Mode::append && transfer.mode != Mode::prepend;
  const Mode mode = is_cas ? Mode::cas : transfer.mode;
  const observation::StoreReport report(context, mode, *transfer.item.get());
  const Store::Done done = context.store().commit(mode, std::move(transfer.item), transfer.expected_cas, context.now);
  const Outcome outcome = done.outcome;
  context.copied_bytes += done.copied_bytes;
  report.end(context, outcome);
  if (is_cas) {
    context.statistics.add(outcome == Outcome::stored   ? Count::cas_hits
                           : outcome == Outcome::exists ? Count::cas_badval
                                                        : Count::cas_misses);
  }
  switch (outcome) {
    case Outcome::stored:
      if (!transfer.quiet) answer(storing_, context, Status::ok, {}, {}, {}, done.cas);
      return;
    case Outcome::exists:
      return say_error(storing_, context, Status::exists);
    case Outcome::not_found:
      return say_error(storing_, context, Status::not_found);
    case Outcome::not_stored:
    case Outcome::not_numeric:
      return say_error(storing_, context,
                       mode == Mode::add       ? Status::exists
                       : mode == Mode::replace ? Status::not_found
                                               : Status::not_stored);
    case Outcome::too_large:
      context.statistics.add(Count::store_too_large);
      return say_error(storing_, context, Status::too_large);
    case Outcome::out_of_memory:
      context.statistics.add(Count::store_no_memory);
      return say_error(storing_, context, Status::out_of_memory);
  }
}

void BinaryProtocol::remove(const Request& request, Context& context) noexcept {
  const Key key = context.store().key(request.key);
  const observation::DeleteReport report(context, key);
  const Outcome outcome = context.store().remove(key, request.header.cas, context.now).outcome;
  report.end(context, "delete", request.key, outcome == Outcome::stored);
  context.statistics.add(outcome == Outcome::not_found ? Count::delete_misses : Count::delete_hits);
  if (outcome == Outcome::stored) return say_ok(request, context, 0);
  say_error(request.header, context, outcome == Outcome::exists ? Status::exists : Status::not_found);
}

void BinaryProtocol::count(const Request& request, bool up, Context& context) noexcept {
  require(request.extras.size() == 20, "memcached: extras of a request that counts", request.extras.size());
  const char* const extras = request.extras.data();
  const auto delta = read_big<std::uint64_t>(extras);
  const auto initial = read_big<std::uint64_t>(extras + 8);
  const auto expiry = read_big<std::uint32_t>(extras + 16);
  const Key key = context.store().key(request.key);
  Store::Done done = context.store().arithmetic(key, up, delta, request.header.cas, context.now);
  context.copied_bytes += done.copied_bytes;
  context.statistics.add(done.outcome == Outcome::not_found ? (up ? Count::incr_misses : Count::decr_misses)
                                                            : (up ? Count::incr_hits : Count::decr_hits));
  if (done.outcome == Outcome::not_found && expiry != expiry_means_no_creation) {
    const Seconds expires = context.service.clock.expiry(expiry, context.now);
    done = context.store().create_number(key, initial, expires, context.now);
  }
  switch (done.outcome) {
    case Outcome::stored: {
      if (request.quiet) return;
      char value[8];
      write_big(value, done.value);
      return answer(request.header, context, Status::ok, {}, {}, {value, sizeof value}, done.cas);
    }
    case Outcome::not_found:
      return say_error(request.header, context, Status::not_found);
    case Outcome::exists:
      return say_error(request.header, context, Status::exists);
    case Outcome::not_numeric:
      return say_error(request.header, context, Status::not_numeric);
    case Outcome::not_stored:
      return say_error(request.header, context, Status::not_stored);
    case Outcome::too_large:
    case Outcome::out_of_memory:
      context.statistics.add(Count::store_no_memory);
      return say_error(request.header, context, Status::out_of_memory);
  }
}

void BinaryProtocol::flush(const Request& request, Context& context) noexcept {
  Seconds when = 0;
  if (!request.extras.empty()) {
    const auto asked = read_big<std::uint32_t>(request.extras.data());
    if (asked > 0) when = context.service.clock.expiry(asked, context.now);
  }
  context.statistics.add(Count::cmd_flush);
  if (!context.service.settings.flush_enabled) return say_error(request.header, context, Status::not_allowed);
  context.store().flush(when, context.now);
  say_ok(request, context, 0);
}

/// Returns false for an unknown word, and if dumps are not allowed.
bool BinaryProtocol::detail(const Request& request, Context& context) {
  Service& service = context.service;
  const std::string_view how = request.key.substr(request.key.find(' ') + 1);
  if (!service.settings.dump_enabled || (how != "on" && how != "off" && how != "dump")) return false;
  if (how == "dump") {
    const std::string text = service.details.text();
    // A reply's chunk bounds an answer, so a long list is cut.
    answer(request.header, context, Status::ok, {}, "detailed", std::string_view(text).substr(0, ReplyPool::chunk_bytes / 2), 0);
    return true;
  }
  service.details.turn(how == "on");
  service.settle_observation();
  return true;
}

void BinaryProtocol::statistics(const Request& request, Context& context) {
  const StatisticSink sink = [&](std::string_view name, std::string_view value) {
    answer(request.header, context, Status::ok, {}, name, value, 0);
  };
  if (request.key.starts_with("detail ")) {
    if (!detail(request, context)) return say_error(request.header, context, Status::not_found);
  } else if (show_statistics(context.service, request.key, sink) == StatisticsAnswer::unknown) {
    return say_error(request.header, context, Status::not_found);
  }
  answer(request.header, context, Status::ok, {}, {}, {}, 0);  // an answer without name and value ends the list
}

// --- Answers -----------------------------------------------------------------------------------------------------------------------------
void BinaryProtocol::write_head(char* to, const Header& request, Status status, std::size_t key_bytes, std::size_t extras_bytes,
                                std::size_t body_bytes, std::uint64_t cas) noexcept {
  to[0] = static_cast<char>(0x81);
  to[1] = static_cast<char>(request.opcode);
  write_big(to + 2, static_cast<std::uint16_t>(key_bytes));
  to[4] = static_cast<char>(extras_bytes);
  to[5] = 0;  // data type: raw bytes
  write_big(to + 6, static_cast<std::uint16_t>(status));
  write_big(to + 8, static_cast<std::uint32_t>(body_bytes));
  std::memcpy(to + 12, &request.opaque, 4);
  write_big(to + 16, cas);
}

void BinaryProtocol::answer(const Header& request, Context& context, Status status, std::string_view extras, std::string_view key,
                            std::string_view value, std::uint64_t cas) noexcept {
  const std::size_t body_bytes = extras.size() + key.size() + value.size();
  char* to = context.reply.room(header_bytes + body_bytes);
  if (to == nullptr) return;
  const char* const end = to + header_bytes + body_bytes;
  write_head(to, request, status, key.size(), extras.size(), body_bytes, cas);
  to += header_bytes;
  for (const std::string_view part : {extras, key, value}) {
    if (part.empty()) continue;
    require(part.size() <= static_cast<std::size_t>(end - to), "memcached: a part of a reply exceeds its room", part.size());
    std::memcpy(to, part.data(), part.size());
    to += part.size();
  }
  context.reply.advance(header_bytes + body_bytes);
}

void BinaryProtocol::say_ok(const Request& request, Context& context, std::uint64_t cas) noexcept {
  if (!request.quiet) answer(request.header, context, Status::ok, {}, {}, {}, cas);
}

void BinaryProtocol::say_error(const Header& request, Context& context, Status status) noexcept {
  const auto text = [status]() -> std::string_view {
    switch (status) {
      case Status::ok:
        return {};
      case Status::not_found:
        return "Not found";
      case Status::exists:
        return "Data exists for key.";
      case Status::too_large:
        return "Too large.";
      case Status::invalid:
        return "Invalid arguments";
      case Status::not_stored:
        return "Not stored.";
      case Status::not_allowed:
        return "Auth failure.";
      case Status::not_numeric:
        return "Non-numeric server-side value for incr or decr";
      case Status::unknown_command:
        return "Unknown command";
      case Status::out_of_memory:
        return "Out of memory";
    }
    return {};
  };
  answer(request, context, status, {}, {}, text(), 0);
}

void BinaryProtocol::refuse(const Header& request, Context& context) noexcept {
  context.statistics.add(Count::protocol_errors);
  say_error(request, context, Status::invalid);
  context.closing = true;
}

}  // namespace neap::memcached
