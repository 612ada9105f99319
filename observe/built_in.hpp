// SPDX-License-Identifier: BSL-1.0
// What the commands do that every image has. One file each for what they are about; commands.cpp has the table.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "kernel/task.hpp"
#include "observe/admission.hpp"
#include "observe/command.hpp"
#include "observe/control.hpp"

namespace neap::observe {

// reports.cpp: what the machine is and does.
[[nodiscard]] task<std::string> tell_status(const Request& request);
[[nodiscard]] task<std::string> tell_policy(const Request& request);
[[nodiscard]] task<std::string> tell_statistics(const Request& request);
[[nodiscard]] task<std::string> tell_card(const Request& request);
[[nodiscard]] task<std::string> tell_cores(const Request& request);
[[nodiscard]] task<std::string> tell_timers(const Request& request);
[[nodiscard]] task<std::string> tell_time(const Request& request);
/// The counters of kernel, log, network, driver and control, under dotted names.
void tell_own_statistics(const Server& server, std::optional<unsigned> core, const Emit& emit);

// boot_reports.cpp: what was booted, and what it said.
[[nodiscard]] task<std::string> tell_boot(const Request& request);
[[nodiscard]] task<std::string> tell_boot_log(const Request& request);
[[nodiscard]] task<std::string> tell_last_panic(const Request& request);

// log_sending.cpp: the log's way out.
[[nodiscard]] task<std::string> send_log_file(const Request& request);
[[nodiscard]] task<std::string> send_log_stream(const Request& request);

/// Why a client that has proven itself has to go.
constexpr std::string_view all_places_taken = "all 16 places are taken by clients at work";
static_assert(clients_max == 16);

/// Fields of an answer: "name=value; name=value".
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

/// The lines of all cores' logs, and those that found them full (reports.cpp).
void tell_lines(Fields& fields);

}  // namespace neap::observe
