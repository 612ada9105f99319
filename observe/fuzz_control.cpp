// SPDX-License-Identifier: BSL-1.0
// A fuzzer of all parsers for a control client's input.
//
// One input is a client's stream and its division into pieces. The stream is read twice, in these pieces and as a whole, and both readings
// must give the same lines and results. No access may be out of bounds (build the fuzzer with the sanitizers), and accepted words must
// match the command's usage.
//
// With clang the fuzzer is a libFuzzer target (-DNEAP_LIBFUZZER=ON). With other compilers its `main` makes inputs from the table of
// commands: `fuzz_control [SECONDS] [SEED]`. Half of the time is used for many clients at once (fuzz_clients.hpp).
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "kernel/policy_rows.hpp"
#include "observe/allow_list.hpp"
#include "observe/command_syntax.hpp"
#include "observe/ebbrt_lines.hpp"
#include "observe/line.hpp"
#include "tests/host/fuzzing.hpp"

namespace neap::observe {
namespace {

constexpr unsigned cores = 4;

[[noreturn]] void fail(const char* what, std::string_view line) {
  std::fprintf(stderr, "%s: %s\n", what, fuzzing::printable(line.substr(0, 200)).c_str());
  std::abort();
}

/// Returns the usage of a command or of a setting; empty if there is none of this name.
std::string usage_of(std::string_view name) {
  for (const Command& command : built_in_commands()) {
    if (command.name() == name) return std::string(command.usage);
  }
  const policy::Row* const row = policy::find_row(name);
  return row == nullptr ? std::string() : policy::usage(*row);
}

/// Returns the result for a line in the dialect of EbbRT; empty if Neap's commands answer it there, too.
std::string ebbrt_verdict(std::span<const std::string_view> words, std::string_view line) {
  const auto parsed = ebbrt::parse_line(words);
  if (!parsed) return {};
  if (!*parsed) return parsed->error() + ' ';
  if (words.size() != 2) fail("EbbRT's lines have one number", line);
  const auto [action, number] = **parsed;
  if (action == ebbrt::Action::moderation && number > ebbrt::moderation_units_max) fail("more units than EITR has", line);
  if (action == ebbrt::Action::idle && ebbrt::idle_state_of_hint(number).empty()) fail("a hint without a state", line);
  return "ebbrt " + std::to_string(static_cast<unsigned>(action)) + ' ' + std::to_string(number) + ' ';
}

/// Returns the server's result for a line, without executing it.
std::string verdict(std::string_view line) {
  if (const auto list = AllowList::parse(line)) (void)list->to_string({}, {});
  const auto words = split_words(line);
  if (!words) return words.error();
  if (words->empty()) fail("no words and no error", line);
  for (const std::string_view word : *words) {
    if (word.empty() || word != trimmed(word) || word.find_first_of(",\n") != std::string_view::npos) fail("not a word", line);
    if (word.data() < line.data() || word.data() + word.size() > line.data() + line.size()) fail("a word outside the line", line);
  }
  const std::string in_dialect = ebbrt_verdict(*words, line);
  const std::string usage = usage_of(words->front());
  if (usage.empty()) return in_dialect + "unknown " + shown(words->front());
  const std::string_view name = words->front();
  const auto checked = check_words(usage, *words, cores);
  if (!checked) return in_dialect + checked.error();
  const Shape shape = shape_of(usage);
  if (checked->words.size() > shape.words_max || (checked->core && *checked->core >= cores)) fail("more than the usage allows", line);
  std::string text = in_dialect + std::string(name);
  text += ' ' + std::to_string(checked->words.size());
  if (name == "start") {
    const auto bounds = parse_run_bounds(checked->words);
    if (bounds && bounds->time_ns > 0 && bounds->requests > 0) fail("two bounds", line);
    text += bounds ? std::to_string(bounds->time_ns + bounds->requests) : bounds.error();
  } else if (name == "stream") {
    const auto wanted = parse_stream_request(checked->words, cores);
    if (wanted && wanted->positions.size() != cores) fail("positions of other cores", line);
    text += wanted ? std::to_string(wanted->positions[0]) : wanted.error();
  }
  return text;
}

std::vector<std::string> read(std::string_view stream, std::uint32_t cuts) {
  LineReader reader;
  fuzzing::Pieces pieces(cuts);
  std::vector<std::string> verdicts;
  while (!stream.empty()) {
    const std::string_view piece = pieces.take(stream);
    // The copy has exactly the piece's size, so that a sanitizer detects an access beyond its end.
    const std::vector<char> copy(piece.begin(), piece.end());
    std::string_view bytes(copy.data(), copy.size());
    while (!bytes.empty()) {
      const std::size_t before = bytes.size();
      switch (reader.take(bytes)) {
        case LineReader::Outcome::incomplete:
          if (!bytes.empty()) fail("bytes left over", bytes);
          break;
        case LineReader::Outcome::too_long:
          verdicts.emplace_back("too long");
          break;
        case LineReader::Outcome::line:
          if (reader.text().size() > line_bytes_max) fail("too long a line", reader.text());
          verdicts.push_back(verdict(reader.text()));
          break;
      }
      if (bytes.size() == before) fail("no progress", bytes);
    }
  }
  verdicts.emplace_back(reader.halfway() ? "half a line" : "whole");
  if (reader.halfway()) verdicts.push_back(reader.end() == LineReader::Outcome::line ? verdict(reader.text()) : "too long");
  return verdicts;
}

void check(std::string_view stream, std::uint32_t cuts) {
  if (read(stream, 0) != read(stream, cuts | 1)) fail("the answers depend on the stream's pieces", stream);
}

}  // namespace
}  // namespace neap::observe

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return neap::fuzzing::check_divided(data, size, &neap::observe::check);
}

#ifndef NEAP_LIBFUZZER

#include "observe/fuzz_clients.hpp"

namespace {

class InputGenerator : public neap::fuzzing::InputGenerator {
 public:
  using neap::fuzzing::InputGenerator::InputGenerator;

  std::string stream() {
    std::string text = any(4);
    for (unsigned lines = 1 + below(30); lines-- > 0;) text += line() + (below(10) == 0 ? "\r\n" : "\n");
    return damaged(std::move(text));
  }

 private:
  std::string word() {
    static const char* const words[] = {"0",          "3",
                                        "4",          "all",
                                        "8us",        "10s",
                                        "500ms",      "-1",
                                        "0x1800",     "18446744073709551616",
                                        "live",       "after",
                                        "run=3",      "0=17",
                                        "3=9",        "1=",
                                        "=",          "2=18446744073709551615",
                                        "10.0.0.0/8", "any",
                                        "halt",       "on",
                                        " x ",        ""};
    if (below(400) == 0) return std::string(below(9000), 'w');
    const unsigned kind = below(12);
    if (kind == 0) return any(below(20));
    return kind == 1 ? std::to_string(bits() >> below(64)) : words[below(std::size(words))];
  }
  std::string name() {
    const auto commands = neap::observe::built_in_commands();
    const auto settings = neap::policy::kernel_rows();
    static const char* const ebbrts[] = {"rx_usecs", "dvfs", "rapl", "sleep_state", "getcounters", "ixgbe_switch_send", "print"};
    if (below(5) == 0) return ebbrts[below(std::size(ebbrts))];
    const unsigned at = below(static_cast<unsigned>(commands.size() + settings.size()));
    return std::string(at < commands.size() ? commands[at].name() : settings[at - commands.size()].name);
  }
  std::string line() {
    std::string text = below(10) == 0 ? word() : name();
    for (unsigned more = below(below(20) == 0 ? 300 : 5); more > 0; --more) text += (below(10) == 0 ? " , " : ",") + word();
    return text;
  }
};

}  // namespace

int main(int count, char** words) {
  const double seconds = (count > 1 ? std::atof(words[1]) : 10) / 2;
  neap::observe::testing::fuzz_clients(seconds, count > 2 ? std::strtoull(words[2], nullptr, 10) : 1);
  std::string half = std::to_string(seconds);
  char* parsers[] = {words[0], half.data(), count > 2 ? words[2] : nullptr};
  return neap::fuzzing::run<InputGenerator>("fuzz_control", count > 2 ? 3 : 2, parsers);
}

#endif
