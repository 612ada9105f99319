// SPDX-License-Identifier: BSL-1.0
// The table of settings: one row for each setting.
//
// The command line, control, reports, the log's header and the documents all need a setting's name, range, help and default. All of them
// read this table, so a new setting needs only one row. The rows of cores and of the network are the kernel's (policy_settings.cpp). The
// rows of a network card belong to its driver, which returns them by `policy::Device::settings`.
#pragma once

#include <cstdint>
#include <expected>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernel/error.hpp"

namespace neap {
struct PowerAbilities;
}

namespace neap::policy {

/// A setting; its number identifies it in the log's change records. A number MUST NOT be given to another setting later. A network card's
/// settings have numbers that are not named here.
enum class Setting : std::uint8_t {
  idle = 0,
  itr = 1,
  pstate = 2,
  power_limit = 3,
  turbo = 4,
  poll_budget = 5,
  epp = 17,
  segmentation = 21,
  monitor_state = 22,
  adaptive_poll = 23,
  // The network's, of scope `machine`. `network_settings` has their number.
  tcp_congestion = 32,
  tcp_ecn = 33,
  tcp_pacing = 34,
  tcp_rto_min = 35,
  tcp_keep_alive = 36,
  tcp_zero_window = 37,
  tcp_receive = 38,
  tcp_send = 39,
};
constexpr unsigned network_settings = 8;

/// The text form of a value, and the meaning of its number.
enum class Kind : std::uint8_t {
  on_off,  ///< 0 off, 1 on
  number,  ///< `value_min` to `value_max`
  choice,  ///< a position in `choices`
  time,    ///< microseconds, `value_min` to `value_max`
  custom,  ///< the row's functions `parse` and `print` define the text and the number
};

/// The part of the machine to which one value applies.
enum class Scope : std::uint8_t {
  core,
  named_core,  ///< one core, which the caller MUST name; the command line has no word for such a setting
  package,
  card,     ///< all queues of the network card; the caller MUST NOT name a core
  machine,  ///< all cores, each with the same value; the caller MUST NOT name a core
};

using Value = std::uint64_t;

struct Refusal {
  ErrorCode code;
  std::string why;  ///< the reason in one line, with the accepted values
};

/// Another name that control accepts for a setting.
struct OtherName {
  std::string_view name;
  /// Converts the value's text; null: the text is used as it is. An empty result refuses the text, and `accepts` states the reason.
  std::string (*convert)(std::string_view text) = nullptr;
  std::string_view accepts{};
};

struct Row {
  Setting setting{};
  std::string_view name;
  std::string_view value_name = "N";  ///< stands for the value in the usage line of control
  Kind kind = Kind::number;
  Scope scope = Scope::core;
  std::uint32_t value_min = 0, value_max = 0;
  std::string_view unit{};                      ///< unit of a `number` or `time`
  bool off = false;                             ///< `number`: "off" is accepted too, and means 0
  std::span<const std::string_view> choices{};  ///< the texts of the values 0, 1, ...
  std::string_view accepts{};                   ///< the accepted values in words; empty: the members above state them
  Value initial = 0;
  std::string_view initial_text{};  ///< the default in words, if it is not `initial`
  bool preset = false;              ///< sets several settings: it has no value of its own, and at boot it is applied before those settings
  std::string_view help;            ///< one sentence
  std::span<const OtherName> other_names{};
  /// The field of a log's Settings entry that holds the value.
  std::string_view log_field = "card_value";
  std::string_view log_value{};    ///< the value's "kind:unit:choices" in a log's header; empty: follows from `kind`
  std::string_view report_name{};  ///< the name in reports; empty: `name`
  // If a function is null, the conversion follows from `kind`. Reports show plain numbers, without a unit.
  std::expected<Value, Refusal> (*parse)(const Row& row, std::string_view text, const PowerAbilities& abilities) = nullptr;
  std::string (*print)(Value value) = nullptr;
  std::string (*report)(Value value) = nullptr;
};

/// The kernel's own rows: settings of cores and of the network.
[[nodiscard]] std::span<const Row> kernel_rows() noexcept;
/// The kernel's rows, then those of the device in use.
[[nodiscard]] std::vector<const Row*> rows();
/// Null if neither the kernel nor the device in use has the setting.
[[nodiscard]] const Row* find_row(Setting setting) noexcept;
[[nodiscard]] const Row* find_row(std::string_view name) noexcept;

/// Returns the value that `text` means. Checks everything that does not depend on a core or a card.
[[nodiscard]] std::expected<Value, Refusal> parse(const Row& row, std::string_view text, const PowerAbilities& abilities);
/// The setting and `value` as an answer of control shows them: "itr=8us".
[[nodiscard]] std::string print(const Row& row, Value value);
/// `value` as a report shows it: "8".
[[nodiscard]] std::string report(const Row& row, Value value);
/// The accepted values in words: "64 to 4096", "on off".
[[nodiscard]] std::string accepted_values(const Row& row);
/// The default as text: "8us", "deepest".
[[nodiscard]] std::string default_value(const Row& row);
/// The control command that changes the setting: "itr,TIME[,CORE]".
[[nodiscard]] std::string usage(const Row& row);
/// The help sentence and the accepted values.
[[nodiscard]] std::string help(const Row& row);
/// The description of the setting in a log's header (docs/log-format.md): "name:field:kind:unit:choices", without empty members at the end
/// and without the field `card_value`.
[[nodiscard]] std::string log_description(const Row& row);

/// A refusal with the text "poll_budget: why".
[[nodiscard]] std::unexpected<Refusal> refuse(ErrorCode code, const Row& row, std::string_view why);
/// A refusal with the text "poll_budget: "text" is not accepted; accepted here: accepted".
[[nodiscard]] std::unexpected<Refusal> refuse_text(const Row& row, std::string_view text, std::string_view accepted);

/// Parses a decimal number with at most as many decimal places as `scale` (a power of ten) has zeros. Returns the number times `scale`.
[[nodiscard]] std::optional<std::uint64_t> parse_decimal(std::string_view text, std::uint64_t scale = 1);

}  // namespace neap::policy
