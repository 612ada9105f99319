// SPDX-License-Identifier: BSL-1.0
#include "apps/webserver/engine/module_exports.hpp"

#include <algorithm>
#include <array>
#include <cstdint>

namespace neap::webserver {

namespace {

struct Token {
  enum class Kind : std::uint8_t { end, word, text, mark } kind = Kind::end;
  std::string_view text;    // of a string literal: without quotes
  std::uint32_t depth = 0;  // of braces, brackets and parentheses around it
  [[nodiscard]] bool is(std::string_view other) const noexcept { return kind != Kind::text && text == other; }
};

bool word_character(char letter) noexcept {
  return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') || (letter >= '0' && letter <= '9') || letter == '_' ||
         letter == '$' || static_cast<std::uint8_t>(letter) >= 0x80;
}

/// Splits a script into words, string literals and single marks. Comments, templates and regular expressions are skipped. A slash is taken
/// for a division after a word, a number or a closing mark; a wrong guess loses names, nothing else.
class Tokens {
 public:
  explicit Tokens(std::string_view text) : text_(text) {
    if (text_.starts_with("#!")) skip_line();
  }

  Token next() noexcept {
    previous_ = read();
    return previous_;
  }

 private:
  Token read() noexcept {
    for (;;) {
      if (at_ >= text_.size()) return {};
      const char letter = text_[at_];
      if (letter == ' ' || letter == '\t' || letter == '\n' || letter == '\r') {
        ++at_;
      } else if (text_.substr(at_).starts_with("//")) {
        skip_line();
      } else if (text_.substr(at_).starts_with("/*")) {
        const std::size_t end = text_.find("*/", at_ + 2);
        at_ = end == text_.npos ? text_.size() : end + 2;
      } else if (letter == '\'' || letter == '"') {
        return string_literal(letter);
      } else if (letter == '`') {
        ++at_;
        skip_template();
        return {Token::Kind::text, {}, depth_};
      } else if (word_character(letter)) {
        const std::size_t begin = at_;
        while (at_ < text_.size() && word_character(text_[at_])) ++at_;
        return {Token::Kind::word, text_.substr(begin, at_ - begin), depth_};
      } else if (letter == '/' && regular_expression_may_begin()) {
        skip_regular_expression();
        return {Token::Kind::text, {}, depth_};
      } else {
        return mark(letter);
      }
    }
  }

  Token mark(char letter) noexcept {
    const std::string_view text = text_.substr(at_++, 1);
    if (letter == '}' && templates_ != 0 && template_depths_[templates_ - 1] == depth_) {
      --templates_;
      --depth_;
      skip_template();
      return {Token::Kind::text, {}, depth_};
    }
    if (letter == '{' || letter == '(' || letter == '[') return {Token::Kind::mark, text, depth_++};
    if ((letter == '}' || letter == ')' || letter == ']') && depth_ != 0) --depth_;
    return {Token::Kind::mark, text, depth_};
  }

  void skip_line() noexcept { at_ = std::min(text_.find('\n', at_), text_.size()); }

  Token string_literal(char quote) noexcept {
    const std::size_t begin = ++at_;
    while (at_ < text_.size() && text_[at_] != quote && text_[at_] != '\n') at_ += text_[at_] == '\\' ? 2 : 1;
    at_ = std::min(at_, text_.size());
    const Token token{Token::Kind::text, text_.substr(begin, at_ - begin), depth_};
    if (at_ < text_.size()) ++at_;
    return token;
  }

  /// Skips to the end of a template, or to the expression in its next `${`.
  void skip_template() noexcept {
    while (at_ < text_.size()) {
      if (text_[at_] == '`') {
        ++at_;
        return;
      }
      if (text_.substr(at_).starts_with("${") && templates_ < template_depths_.size()) {
        at_ += 2;
        template_depths_[templates_++] = ++depth_;
        return;
      }
      at_ += text_[at_] == '\\' ? 2 : 1;
    }
    at_ = std::min(at_, text_.size());
  }

  [[nodiscard]] bool regular_expression_may_begin() const noexcept {
    if (previous_.kind == Token::Kind::text) return false;
    if (previous_.kind == Token::Kind::mark) return previous_.text != ")" && previous_.text != "]" && previous_.text != "}";
    constexpr std::array<std::string_view, 12> before = {"",     "return", "typeof", "case", "in",   "of",
                                                         "void", "delete", "throw",  "new",  "else", "do"};
    return std::ranges::find(before, previous_.text) != before.end();
  }

  void skip_regular_expression() noexcept {
    bool in_class = false;
    for (++at_; at_ < text_.size() && text_[at_] != '\n'; ++at_) {
      if (text_[at_] == '\\') {
        ++at_;
      } else if (text_[at_] == '[') {
        in_class = true;
      } else if (text_[at_] == ']') {
        in_class = false;
      } else if (text_[at_] == '/' && !in_class) {
        break;
      }
    }
    at_ = std::min(at_ + 1, text_.size());
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::uint32_t depth_ = 0;
  Token previous_;
  std::array<std::uint32_t, 32> template_depths_{};
  std::size_t templates_ = 0;
};

/// Recognises patterns in the last tokens.
class ExportFinder {
 public:
  explicit ExportFinder(std::string_view text) : tokens_(text) {}

  CommonJsExports find() {
    // `window_` holds the tokens from `at(0)` on, so that patterns can look ahead.
    for (std::size_t index = 0; index < ahead; ++index) window_[index] = tokens_.next();
    while (at(0).kind != Token::Kind::end) {
      look();
      advance(1);
    }
    return std::move(result_);
  }

 private:
  static constexpr std::size_t ahead = 8;

  [[nodiscard]] const Token& at(std::size_t index) const noexcept { return window_[index]; }
  void advance(std::size_t count) noexcept {
    for (; count > 0; --count) {
      before_ = window_[0];
      std::ranges::move(window_.begin() + 1, window_.end(), window_.begin());
      window_[ahead - 1] = tokens_.next();
    }
  }

  void add(std::string_view name) {
    if (name.empty() || name == "default" || name.find('\\') != name.npos) return;
    if (std::ranges::find(result_.names, name) == result_.names.end()) result_.names.emplace_back(name);
  }
  void add_reexport(std::string_view specifier) { result_.reexports.emplace_back(specifier); }

  /// The number of tokens of `exports` or `module.exports` at `index`; 0: neither.
  [[nodiscard]] std::size_t exports_at(std::size_t index) const noexcept {
    if (at(index).is("exports")) return 1;
    return at(index).is("module") && at(index + 1).is(".") && at(index + 2).is("exports") ? 3 : 0;
  }

  void look() {
    if (before_.is(".")) {
      // `tslib.__exportStar(…)`, `Object.defineProperty(…)` begin at the name before the dot; only the first matters here.
      if (at(0).is("__exportStar") || at(0).is("__export")) look_for_star();
      return;
    }
    if (at(0).is("__exportStar") || at(0).is("__export")) return look_for_star();
    if (at(0).is("Object") && at(1).is(".") && at(2).is("defineProperty") && at(3).is("(")) {
      advance(4);
      const std::size_t used = exports_at(0);
      if (used != 0 && at(used).is(",") && at(used + 1).kind == Token::Kind::text && at(used + 2).is(",")) {
        if (at(used + 1).text != "__esModule") add(at(used + 1).text);
        if (at(used + 1).text == "__esModule") add("__esModule");
      }
      return;
    }
    const std::size_t used = exports_at(0);
    if (used == 0) return;
    if (at(used).is(".") && at(used + 1).kind == Token::Kind::word && at(used + 2).is("=") && !at(used + 3).is("=")) {
      add(at(used + 1).text);
    } else if (at(used).is("[") && at(used + 1).kind == Token::Kind::text && at(used + 2).is("]") && at(used + 3).is("=")) {
      add(at(used + 1).text);
    } else if (used == 3 && at(3).is("=") && at(4).is("require") && at(5).is("(") && at(6).kind == Token::Kind::text) {
      result_.reexports.clear();
      add_reexport(at(6).text);
    } else if (used == 3 && at(3).is("=") && at(4).is("{")) {
      advance(5);
      look_at_object();
    }
  }

  void look_for_star() {
    if (at(1).is("(") && at(2).is("require") && at(3).is("(") && at(4).kind == Token::Kind::text) add_reexport(at(4).text);
  }

  /// The names of an object literal; `at(0)` is the first token after its brace. Spread objects of `require` are re-exported.
  void look_at_object() {
    const std::uint32_t depth = at(0).is("}") ? at(0).depth + 1 : at(0).depth;
    bool key = true;
    while (at(0).kind != Token::Kind::end && !(at(0).is("}") && at(0).depth < depth)) {
      if (at(0).depth > depth) {
        advance(1);
        continue;
      }
      if (at(0).is(",")) {
        key = true;
      } else if (key && at(0).is(".") && at(1).is(".") && at(2).is(".") && at(3).is("require") && at(4).is("(") &&
                 at(5).kind == Token::Kind::text) {
        add_reexport(at(5).text);
        key = false;
      } else if (key && (at(0).kind == Token::Kind::word || at(0).kind == Token::Kind::text)) {
        const bool prefix = (at(0).is("get") || at(0).is("set") || at(0).is("async")) && at(1).kind == Token::Kind::word;
        if (!prefix) {
          if (at(1).is(",") || at(1).is(":") || at(1).is("(") || at(1).is("}")) add(at(0).text);
          key = false;
        }
      } else {
        key = key && at(0).is("*");
      }
      advance(1);
    }
  }

  Tokens tokens_;
  std::array<Token, ahead> window_;
  Token before_;
  CommonJsExports result_;
};

}  // namespace

CommonJsExports find_commonjs_exports(std::string_view text) { return ExportFinder(text).find(); }

bool has_module_syntax(std::string_view text) {
  Tokens tokens(text);
  Token before, token = tokens.next();
  while (token.kind != Token::Kind::end) {
    const Token after = tokens.next();
    const bool property = before.is(".") || after.is(":");
    if (!property && token.is("import") && after.is(".")) return true;
    if (!property && token.depth == 0 && token.is("import") && !after.is("(") && !after.is("=")) return true;
    if (!property && token.depth == 0 && token.is("export") && !after.is("=") && !after.is(".")) return true;
    before = token;
    token = after;
  }
  return false;
}

}  // namespace neap::webserver
