// SPDX-License-Identifier: BSL-1.0
// What was booted, and what it said.
//
// An answer is one line, and the boot log has many. So the text is the answer's last field, with its line feeds written as `\n`, a bounded
// piece at a time; the fields in front say where the next piece begins.
#include <algorithm>
#include <vector>

#include "kernel/application.hpp"
#include "kernel/boot_log.hpp"
#include "kernel/events.hpp"
#include "kernel/kept_panic.hpp"
#include "kernel/machine.hpp"
#include "kernel/numbers.hpp"
#include "observe/built_in.hpp"
#include "observe/server.hpp"

namespace neap::observe {
namespace {

/// What an answer carries at most, before it is escaped (up to four times as long then).
constexpr std::size_t text_bytes_max = 8192;

/// On one line, and without what separates fields: LF as \n, a backslash twice, `;` and what is no printable ASCII as \xNN.
std::string escaped(std::string_view text) {
  constexpr const char* digits = "0123456789abcdef";
  std::string result;
  result.reserve(text.size() + text.size() / 16);
  for (const char letter : text) {
    const auto code = static_cast<unsigned char>(letter);
    if (letter == '\n') {
      result += "\\n";
    } else if (letter == '\\') {
      result += "\\\\";
    } else if (letter == ';' || code < ' ' || code > '~') {
      result += "\\x";
      result += digits[code >> 4];
      result += digits[code & 15];
    } else {
      result += letter;
    }
  }
  return result;
}

}  // namespace

task<std::string> tell_boot(const Request& request) {
  const PowerAbilities& abilities = machine::power_abilities();
  Fields fields;
  fields.text("application", application_name);
  fields.text("version", neap_version);
  fields.text("commit", neap_commit);
  fields.text("build", neap_build);
  fields.text("boot_id", hex_id(request.server.boot_id()));
  fields.number("cores", core_count());
  fields.number("packages", machine::package_count());
  fields.text("cpu", abilities.cpu);
  fields.number("tsc_hz", machine::timestamp_hz());
  fields.number("wall_clock_at_boot_ns", machine::wall_clock_at_boot_ns());
  fields.number("boot", kept_panic::boot_number());
  fields.text("panic_before", kept_panic::text().empty() ? "no" : "yes");
  const Arguments* const arguments = request.server.options().arguments;
  fields.text("words", arguments == nullptr ? std::string() : arguments->shown());
  co_return "ok " + fields.all();
}

task<std::string> tell_boot_log(const Request& request) {
  std::uint64_t from = 0;
  if (!request.words.empty()) {
    const auto position = parse_number(request.words[0]);
    if (!position) co_return "error: dmesg takes a position: bytes since boot, as `next` of an earlier answer says it";
    from = *position;
  }
  std::vector<char> text(text_bytes_max);
  const boot_log::Part part = boot_log::read(from, text);
  Fields fields;
  fields.number("first", part.first);
  fields.number("next", part.first + part.bytes);
  fields.number("end", part.end);
  fields.text("text", escaped({text.data(), part.bytes}));
  co_return "ok " + fields.all();
}

task<std::string> tell_last_panic(const Request&) {
  Fields fields;
  fields.number("boot", kept_panic::boot_number());
  fields.text("text", escaped(kept_panic::text()));
  co_return "ok " + fields.all();
}

}  // namespace neap::observe
