// SPDX-License-Identifier: BSL-1.0
// What a line asks for.
//
// A command is described once, by its usage ("itr,VALUE[,CORE]"): that line is what `help` shows, what docs/control.md is checked against,
// and what decides how many words are accepted and whether the last one is a core. So no command can forget to check, and what is shown is
// what holds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <expected>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernel/task.hpp"

namespace neap::observe {

class Client;
class Server;

/// One line, understood.
struct Request {
  Server& server;
  Client& client;
  std::string_view name;                    ///< as it was written, so perhaps an alias
  std::span<const std::string_view> words;  ///< after the name, without the core
  std::optional<unsigned> core;             ///< none: all
};

struct Command {
  std::string_view usage;
  std::string_view help;  ///< one sentence
  /// Gives the answer; empty: it has said all itself. A refusal begins with "error: ".
  std::function<task<std::string>(const Request&)> run;
  bool before_token = false;  ///< may be used before the token was sent
  bool last = false;          ///< no further line is answered, even if this one is refused

  [[nodiscard]] std::string_view name() const noexcept { return usage.substr(0, usage.find_first_of(",[")); }
};

/// What a usage line demands.
struct Shape {
  std::size_t words_least = 0;
  std::size_t words_most = 0;
  bool core_last = false;  ///< a word number `words_most` is a core
};
constexpr std::size_t any_number = std::numeric_limits<std::size_t>::max();
[[nodiscard]] Shape shape_of(std::string_view usage) noexcept;

/// The words after the name, checked.
struct Checked {
  std::span<const std::string_view> words;
  std::optional<unsigned> core;
};
/// `words`: all of the line. The error is a whole reason.
[[nodiscard]] std::expected<Checked, std::string> check_words(std::string_view usage, std::span<const std::string_view> words,
                                                              unsigned cores);
/// A core's number or `all`.
[[nodiscard]] std::expected<std::optional<unsigned>, std::string> parse_core(std::string_view text, unsigned cores);

/// Another name for a command. `value`: what its first word becomes; null: as it is; an empty result: it was no good, `accepts` says why.
struct Alias {
  std::string_view name;
  std::string_view stands_for;
  std::string (*value)(std::string_view word) = nullptr;
  std::string_view accepts;
};

/// Those that every image has, in the order in which `help` shows them.
[[nodiscard]] std::span<const Command> built_in_commands();
/// The ancestor's names.
[[nodiscard]] std::span<const Alias> aliases() noexcept;

/// When a run ends by itself, as `start` takes it: nothing, a time with its unit, or a number of requests.
struct RunBounds {
  std::uint64_t time_ns = 0;
  std::uint64_t requests = 0;
};
[[nodiscard]] std::expected<RunBounds, std::string> parse_run_bounds(std::span<const std::string_view> words);

/// What `stream` takes. A core's position is where its lines go on.
struct StreamWish {
  bool live = false;
  std::optional<std::uint32_t> run;
  std::vector<std::uint64_t> positions;  ///< by core; 0 where none was said
};
[[nodiscard]] std::expected<StreamWish, std::string> parse_stream_wish(std::span<const std::string_view> words, unsigned cores);

}  // namespace neap::observe
