// SPDX-License-Identifier: BSL-1.0
// The syntax of commands.
//
// A command is described once, by its usage ("itr,VALUE[,CORE]"). `help` shows the usage, a test compares it with docs/control.md, and the
// parser derives from it the number of words and whether the last word is a core. So the accepted words and the shown usage always agree.
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

/// A parsed line.
struct Request {
  Server& server;
  Client& client;
  std::string_view name;                    ///< as received, possibly an alias
  std::span<const std::string_view> words;  ///< words after the name, without the core
  std::optional<unsigned> core;             ///< none: all cores
};

struct Command {
  std::string_view usage;
  std::string_view help;  ///< one sentence
  /// Returns the answer, which is empty if the command has sent its output itself. A refusal begins with "error: ".
  std::function<task<std::string>(const Request&)> run;
  bool before_token = false;  ///< allowed before the token was sent
  bool last = false;          ///< ends the conversation, even after a refusal

  [[nodiscard]] std::string_view name() const noexcept { return usage.substr(0, usage.find_first_of(",[")); }
};

/// The words that a usage accepts.
struct Shape {
  std::size_t words_min = 0, words_max = 0;
  bool core_last = false;  ///< the last word (number `words_max`), if present, is a core
};
constexpr std::size_t any_number = std::numeric_limits<std::size_t>::max();
[[nodiscard]] Shape shape_of(std::string_view usage) noexcept;

struct Checked {
  std::span<const std::string_view> words;
  std::optional<unsigned> core;
};
/// Checks `words` (the name first) against `usage`. Returns the words after the name, and the core. The error is the reason to report.
[[nodiscard]] std::expected<Checked, std::string> check_words(std::string_view usage, std::span<const std::string_view> words,
                                                              unsigned cores);
/// Parses a core's number, or `all`, which gives no value.
[[nodiscard]] std::expected<std::optional<unsigned>, std::string> parse_core(std::string_view text, unsigned cores);

/// Another name for a command. If `value` is not null, it converts the first word after the name. An empty result refuses the word;
/// `accepts` is then the text of the refusal.
struct Alias {
  std::string_view name, stands_for;
  std::string (*value)(std::string_view word) = nullptr;
  std::string_view accepts;
};

/// Returns the commands of every image, without those of the settings, in the order of `help`.
[[nodiscard]] std::span<const Command> built_in_commands();
/// Returns the command names of the library operating system EbbRT, which published scripts use.
[[nodiscard]] std::vector<Alias> aliases();

/// The bound of a run, as `start` accepts it: none, a time with its unit, or a number of requests.
struct RunBounds {
  std::uint64_t time_ns = 0, requests = 0;
};
[[nodiscard]] std::expected<RunBounds, std::string> parse_run_bounds(std::span<const std::string_view> words);

/// The arguments of `stream`. The log entries of core i are sent from position `positions[i]` on.
struct StreamRequest {
  bool live = false;
  std::optional<std::uint32_t> run;
  std::vector<std::uint64_t> positions;  ///< by core; 0 by default
};
[[nodiscard]] std::expected<StreamRequest, std::string> parse_stream_request(std::span<const std::string_view> words, unsigned cores);

}  // namespace neap::observe
