// SPDX-License-Identifier: BSL-1.0
// Reports of the booted image and of the console's text.
//
// An answer is one line, but the boot log has many lines. So the text is the answer's last field, with line feeds written as `\n`. An
// answer contains a piece of limited size, and its other fields name the position of the next piece.
#include <vector>

#include "kernel/application.hpp"
#include "kernel/boot_log.hpp"
#include "kernel/events.hpp"
#include "kernel/kept_panic.hpp"
#include "kernel/machine.hpp"
#include "kernel/numbers.hpp"
#include "kernel/panic.hpp"
#include "observe/built_in.hpp"
#include "observe/server.hpp"

namespace neap::observe {
namespace {

/// The maximum length of an answer's text before escaping. Escaping may make the text four times as long.
constexpr std::size_t text_bytes_max = 8192;

/// Escapes text for one field: LF as \n, a backslash as two backslashes, `;` and all but printable ASCII as \xNN.
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

task<std::string> report_boot(const Request& request) {
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

task<std::string> report_boot_log(const Request& request) {
  std::uint64_t from = 0;
  if (!request.words.empty()) {
    const auto position = parse_number(request.words[0]);
    if (!position) co_return "error: dmesg takes a position: bytes since boot, as `next` of an earlier answer says it";
    from = *position;
  }
  std::vector<char> text(text_bytes_max);
  const boot_log::Part part = boot_log::read(from, text);
  require(part.bytes <= text.size(), "a part of the boot log fits into its memory", part.bytes);
  Fields fields;
  fields.number("first", part.first);
  fields.number("next", part.first + part.bytes);
  fields.number("end", part.end);
  fields.text("text", escaped({text.data(), part.bytes}));
  co_return "ok " + fields.all();
}

task<std::string> report_last_panic(const Request&) {
  Fields fields;
  fields.number("boot", kept_panic::boot_number());
  fields.text("text", escaped(kept_panic::text()));
  co_return "ok " + fields.all();
}

}  // namespace neap::observe
