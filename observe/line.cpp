// SPDX-License-Identifier: BSL-1.0
#include "observe/line.hpp"

#include <algorithm>

#include "kernel/panic.hpp"

namespace neap::observe {

LineReader::Outcome LineReader::take(std::string_view& bytes) {
  if (over_) {
    text_.clear();
    over_ = discarding_ = false;
  }
  require(text_.size() <= line_bytes_max, "at most one line is stored", text_.size());
  const std::size_t end = bytes.find('\n');
  const std::string_view part = bytes.substr(0, end);
  if (discarding_ || text_.size() + part.size() > line_bytes_max) {
    discarding_ = true;
    text_.clear();
  } else {
    text_ += part;
  }
  if (end == std::string_view::npos) {
    bytes = {};
    return Outcome::incomplete;
  }
  bytes.remove_prefix(end + 1);
  over_ = true;
  return discarding_ ? Outcome::too_long : Outcome::line;
}

LineReader::Outcome LineReader::end() {
  require(halfway(), "a line that ends has begun", text_.size());
  over_ = true;
  return discarding_ ? Outcome::too_long : Outcome::line;
}

std::string_view trimmed(std::string_view text) noexcept {
  const std::size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

std::expected<std::vector<std::string_view>, const char*> split_words(std::string_view line) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  const auto printable = [](char letter) { return (letter >= ' ' && letter <= '~') || letter == '\t'; };
  if (!std::all_of(line.begin(), line.end(), printable)) return std::unexpected("a line is printable ASCII");
  line = trimmed(line);
  if (line.empty()) return std::unexpected("an empty line (help lists the commands)");
  std::vector<std::string_view> words;
  for (;;) {
    const std::size_t comma = line.find(',');
    const std::string_view word = trimmed(line.substr(0, comma));
    if (word.empty()) return std::unexpected("an empty word (a line is name[,value[,value...]])");
    words.push_back(word);
    if (comma == std::string_view::npos) return words;
    line.remove_prefix(comma + 1);
  }
}

std::string shown(std::string_view text) {
  constexpr std::size_t shown_max = 40;
  std::string result(text.substr(0, shown_max));
  std::replace_if(result.begin(), result.end(), [](char letter) { return letter < ' ' || letter > '~'; }, '?');
  if (text.size() > shown_max) result += "...";
  return result;
}

}  // namespace neap::observe
