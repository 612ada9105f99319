// SPDX-License-Identifier: BSL-1.0
// The functions of the commands that every image has, one file for each subject. command_table.cpp has the table.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "kernel/log.hpp"
#include "kernel/task.hpp"
#include "observe/admission.hpp"
#include "observe/command_syntax.hpp"
#include "observe/control.hpp"

namespace neap::observe {

// reports.cpp: settings, state and counters.
[[nodiscard]] task<std::string> report_status(const Request& request);
[[nodiscard]] task<std::string> report_policy(const Request& request);
[[nodiscard]] task<std::string> report_statistics(const Request& request);
[[nodiscard]] task<std::string> report_card(const Request& request);
[[nodiscard]] task<std::string> report_cores(const Request& request);
[[nodiscard]] task<std::string> report_timers(const Request& request);
[[nodiscard]] task<std::string> report_time(const Request& request);
/// Emits the counters of kernel, log, network, driver and control. Their names are dotted, such as `net.bytes_sent`.
void report_own_statistics(const Server& server, std::optional<unsigned> core, const Emit& emit);

// boot_reports.cpp: the booted image and the console's text.
[[nodiscard]] task<std::string> report_boot(const Request& request);
[[nodiscard]] task<std::string> report_boot_log(const Request& request);
[[nodiscard]] task<std::string> report_last_panic(const Request& request);

// machine_list.cpp: the facts that decide whether two runs may be compared.
[[nodiscard]] task<std::string> report_machine_list(const Request& request);

// log_sending.cpp: the transfer of logs.
[[nodiscard]] task<std::string> send_log_file(const Request& request);
[[nodiscard]] task<std::string> send_log_stream(const Request& request);
/// The position of the first entry to send. With `log_full=overwrite`, a run in progress overwrites the oldest entries during the transfer.
/// So a log's oldest eighth is not sent then.
[[nodiscard]] std::uint64_t first_to_keep(const log::Extent& extent, bool running) noexcept;

/// The text for a client that has proven itself (admission.hpp) and gets no place.
constexpr std::string_view places_taken = "all 16 places are taken by clients at work";
static_assert(clients_max == 16);

/// The fields of an answer: "name=value; name=value".
class Fields {
 public:
  explicit Fields(std::string_view between = "; ") : between_(between) {}
  void text(std::string_view name, std::string_view value) {
    if (!text_.empty()) text_ += between_;
    text_ += name;
    text_ += '=';
    text_ += value;
  }
  void number(std::string_view name, std::uint64_t value) { text(name, std::to_string(value)); }
  [[nodiscard]] const std::string& all() const noexcept { return text_; }

 private:
  std::string_view between_;
  std::string text_;
};

/// Adds the number of entries in all cores' logs, and the number of entries that full logs dropped (reports.cpp).
void report_line_counts(Fields& fields);

}  // namespace neap::observe
