// SPDX-License-Identifier: BSL-1.0
// The commands of an administrator: flush_all, cache_memlimit, verbosity, shutdown, watch, stats, and those of slabs and of the LRU.
//
// memcached's names, arguments and answers. A command about a mechanism that this store does not have gets the answer that memcached gives
// if the mechanism is off. docs/memcached.md has the list.
#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "apps/memcached/dump.hpp"
#include "apps/memcached/numbers.hpp"
#include "apps/memcached/text_protocol.hpp"
#include "apps/memcached/text_protocol_answers.hpp"
#include "apps/memcached/watch.hpp"

namespace neap::memcached {

namespace {

using namespace text;

constexpr std::uint64_t mebibyte = 1 << 20;

std::optional<std::uint32_t> read_32(std::string_view word) noexcept {
  const auto number = read_unsigned(word);
  if (!number || *number > ~std::uint32_t{0}) return std::nullopt;
  return static_cast<std::uint32_t>(*number);
}

/// A long answer is not mixed with the replies to requests that arrived together with its command.
bool begins_alone(Context& context, std::string_view error) noexcept {
  if (context.long_answer != nullptr && context.reply.empty()) return true;
  context.reply.put(context.long_answer == nullptr ? error_unknown : error);
  return false;
}

/// The parts of a list of class numbers, or "all". Returns false for anything else.
bool are_classes(std::string_view text) noexcept {
  if (text == "all") return true;
  for (;;) {
    const std::size_t end = text.find(',');
    const auto number = read_32(text.substr(0, end));
    if (!number || *number == 0 || *number >= Store::size_classes) return false;
    if (end == std::string_view::npos) return true;
    text.remove_prefix(end + 1);
  }
}

}  // namespace

bool TextProtocol::operate(const Line& line, Context& context) {
  struct Command {
    std::string_view word;
    std::size_t words_min, words_max;
    void (*run)(const Line&, Context&);
  };
  static constexpr std::size_t any = ~std::size_t{0};
  static constexpr Command commands[] = {
      {"stats", 1, any, &TextProtocol::statistics},
      {"flush_all", 1, 3, [](const Line& words, Context& self) { flush_all(words, self); }},
      {"cache_memlimit", 2, 3, [](const Line& words, Context& self) { memory_limit(words, self); }},
      {"verbosity", 2, 3, [](const Line& words, Context& self) { verbosity(words, self); }},
      {"shutdown", 1, any, [](const Line& words, Context& self) { shut_down(words, self); }},
      {"watch", 1, any, &TextProtocol::watch},
      {"lru_crawler", 1, any, &TextProtocol::lru_crawler},
      {"lru", 2, any, [](const Line& words, Context& self) { lru(words, self); }},
      {"slabs", 1, any, [](const Line& words, Context& self) { slabs(words, self); }},
  };
  for (const Command& command : commands) {
    if (line.words[0] != command.word || line.count < command.words_min || line.count > command.words_max) continue;
    command.run(line, context);
    return true;
  }
  return false;
}

void TextProtocol::flush_all(const Line& line, Context& context) noexcept {
  const bool quiet = line.quiet();
  context.statistics.add(Count::cmd_flush);
  if (!context.service.settings.flush_enabled) return say(context, quiet, "CLIENT_ERROR flush_all not allowed\r\n");
  Seconds when = 0;
  if (line.count != (quiet ? 2U : 1U)) {
    const auto delay = read_signed(line.words[1]);
    if (!delay) return refuse(context, quiet, error_expiry);
    const auto asked = static_cast<std::int32_t>(*delay);
    if (asked > 0) when = context.service.clock.expiry(asked, context.now);
  }
  context.store().flush(when, context.now);
  say(context, quiet, "OK\r\n");
}

/// Keeps the number, which has no effect: requests are not printed.
void TextProtocol::verbosity(const Line& line, Context& context) noexcept {
  const auto level = read_32(line.words[1]);
  if (!level) return refuse(context, line.quiet(), error_format);
  constexpr std::uint32_t level_max = 3;
  context.service.verbosity.store(std::min(*level, level_max), std::memory_order_relaxed);
  say(context, line.quiet(), "OK\r\n");
}

void TextProtocol::memory_limit(const Line& line, Context& context) noexcept {
  const bool quiet = line.quiet();
  constexpr std::uint32_t megabytes_min = 8, megabytes_max = 1'000'000'000;
  const auto megabytes = read_32(line.words[1]);
  if (!megabytes) return refuse(context, quiet, error_unknown);
  if (*megabytes < megabytes_min) return say(context, quiet, "MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m\r\n");
  if (*megabytes > megabytes_max) return say(context, quiet, "MEMLIMIT_ADJUST_FAILED input value is megabytes not bytes\r\n");
  if (!context.store().set_memory_bytes(*megabytes * mebibyte))
    return say(context, quiet, "MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust\r\n");
  context.service.reply_memory.follow_limit();
  say(context, quiet, "OK\r\n");
}

/// The machine has one program, so it switches itself off. The two forms are the same, because no memory is kept.
void TextProtocol::shut_down(const Line& line, Context& context) noexcept {
  if (!context.service.settings.shutdown_enabled) return refuse(context, false, "ERROR: shutdown not enabled\r\n");
  if (line.count > 2 || (line.count == 2 && line.words[1] != "graceful"))
    return refuse(context, false, "CLIENT_ERROR invalid shutdown mode\r\n");
  context.closing = context.quit = true;
  if (context.service.shut_down != nullptr) context.service.shut_down(context.service);
}

/// Items of all sizes share the kernel's heap, which moves empty slabs between sizes by itself, whatever the level of `automove` is.
void TextProtocol::slabs(const Line& line, Context& context) noexcept {
  if (line.count == 4 && line.words[1] == "reassign") return refuse(context, false, "CLIENT_ERROR slab reassignment disabled\r\n");
  if (line.count >= 3 && line.words[1] == "automove") {
    const auto level = read_32(line.words[2]);
    if (!level) return refuse(context, line.quiet(), error_format);
    if (*level > 2) return refuse(context, line.quiet(), error_unknown);
    return say(context, line.quiet(), "OK\r\n");
  }
  refuse(context, false, error_unknown);
}

/// There is one kind of LRU: memcached's answers with its maintainer off.
void TextProtocol::lru(const Line& line, Context& context) noexcept {
  if (line.count >= 2 && line.words[1] == "tune") return refuse(context, line.quiet(), "ERROR lru tune is not supported\r\n");
  refuse(context, line.quiet(), error_unknown);
}

void TextProtocol::lru_crawler(const Line& line, Context& context) {
  const std::string_view what = line.count > 1 ? line.words[1] : std::string_view{};
  if (line.count == 3 && what == "metadump") return dump(line, false, context);
  if (line.count == 3 && what == "mgdump") return dump(line, true, context);
  Service& service = context.service;
  if (line.count == 2 && (what == "enable" || what == "disable")) {
    service.crawler_on.store(what == "enable");
    if (service.settle_crawler != nullptr) service.settle_crawler();
    return say(context, false, "OK\r\n");
  }
  if (line.count == 3 && what == "crawl") {
    if (!service.crawler_on.load()) return refuse(context, false, "CLIENT_ERROR lru crawler disabled\r\n");
    if (!are_classes(line.words[2])) return refuse(context, false, "BADCLASS invalid class id\r\n");
    context.store().request_crawl();  // of all classes, because the items of all sizes are in one table
    return say(context, false, "OK\r\n");
  }
  if (line.count == 3 && (what == "sleep" || what == "tocrawl")) {  // without an effect: the crawler works in idle time
    const auto number = read_32(line.words[2]);
    if (!number) return refuse(context, false, error_format);
    constexpr std::uint32_t sleep_us_max = 1'000'000;
    if (what == "sleep" && *number > sleep_us_max) return refuse(context, false, "CLIENT_ERROR sleep must be one second or less\r\n");
    return say(context, false, "OK\r\n");
  }
  refuse(context, false, error_unknown);
}

void TextProtocol::dump(const Line& line, bool as_requests, Context& context) {
  if (!context.service.settings.dump_enabled)
    return refuse(context, false, as_requests ? "ERROR key dump not allowed\r\n" : "ERROR metadump not allowed\r\n");
  if (!begins_alone(context, as_requests ? "ERROR cannot pipeline other commands before mgdump\r\n"
                                         : "ERROR cannot pipeline other commands before metadump\r\n"))
    return;
  const std::string_view classes = line.words[2];
  if (classes != "hash" && !are_classes(classes)) return refuse(context, false, "BADCLASS invalid class id\r\n");
  *context.long_answer = std::make_unique<Dump>(context.service, as_requests, class_bits(classes));
}

void TextProtocol::watch(const Line& line, Context& context) {
  if (!context.service.settings.watch_enabled) return refuse(context, line.quiet(), "CLIENT_ERROR watch commands not allowed\r\n");
  if (!begins_alone(context, "ERROR cannot pipeline other commands before watch\r\n")) return;
  std::uint32_t kinds = line.count > 1 ? 0 : watched::fetchers;
  if (line.count > Line::kept) return refuse(context, false, error_unknown);
  for (std::size_t at = 1; at < line.count; ++at) {
    const std::uint32_t kind = Watchers::kind_of(line.words[at]);
    if (kind == 0) return refuse(context, line.quiet(), error_unknown);
    kinds |= kind;
  }
  auto watcher = std::make_unique<Watcher>(context.service, context.service.core(this_core()), kinds);
  if (!watcher->begin()) return refuse(context, false, "WATCHER_TOO_MANY log watcher limit reached\r\n");
  context.reply.put("OK\r\n");
  *context.long_answer = std::move(watcher);
}

// --- Statistics --------------------------------------------------------------------------------------------------------------------------
void TextProtocol::statistics(const Line& line, Context& context) {
  Reply& reply = context.reply;
  Service& service = context.service;
  const std::string_view topic = line.count > 1 ? line.words[1] : std::string_view{};
  if (topic == "detail") return detail(line, context);
  if (topic == "cachedump") {
    if (!service.settings.dump_enabled) return reply.put("CLIENT_ERROR stats cachedump not allowed\r\n");
    if (line.count < 4) return reply.put("CLIENT_ERROR bad command line\r\n");
    const auto id = read_32(line.words[2]), limit = read_32(line.words[3]);
    if (!id || !limit) return reply.put(error_format);
    if (*id >= Store::size_classes) return reply.put("CLIENT_ERROR Illegal slab id\r\n");
    if (context.long_answer == nullptr) return reply.put(error_unknown);
    *context.long_answer = std::make_unique<CacheDump>(service, *id, *limit);
    return;
  }
  if (topic == "conns") {
    if (context.long_answer == nullptr || service.list_connections == nullptr) return reply.put(error_unknown);
    *context.long_answer = service.list_connections(service, context.connection_id);
    return;
  }
  const StatisticSink sink = [&reply](std::string_view name, std::string_view value) {
    reply.put("STAT ");
    reply.put(name);
    reply.put(" ");
    reply.put(value);
    reply.put("\r\n");
  };
  switch (show_statistics(service, topic, sink)) {
    case StatisticsAnswer::shown:
      return reply.put("END\r\n");
    case StatisticsAnswer::reset:
      return reply.put("RESET\r\n");
    case StatisticsAnswer::unknown:
      context.statistics.add(Count::protocol_errors);
      return reply.put(error_unknown);
  }
}

void TextProtocol::detail(const Line& line, Context& context) {
  Service& service = context.service;
  if (!service.settings.dump_enabled) return context.reply.put("CLIENT_ERROR stats detail not allowed\r\n");
  const std::string_view how = line.count > 2 ? line.words[2] : std::string_view{};
  if (how == "on" || how == "off") {
    service.details.turn(how == "on");
    service.settle_observation();
    return context.reply.put("OK\r\n");
  }
  if (how != "dump") return context.reply.put("CLIENT_ERROR usage: stats detail on|off|dump\r\n");
  context.reply.put(service.details.text());
}

}  // namespace neap::memcached
