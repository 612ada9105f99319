// SPDX-License-Identifier: BSL-1.0
// The command line: `key=value` words.
//
// A typing error in a boot option must not become a machine that measures something else than was meant. So every part asks for its own
// keys, and `finish()` stops the boot if a word was left over or a value was bad, with the list of all that is accepted. A key that is
// asked for is a key that is documented: the list is made of the same calls.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace neap {

class Arguments {
 public:
  explicit Arguments(std::string_view command_line);

  struct Range {
    std::uint64_t least = 0;
    std::uint64_t most = ~std::uint64_t{0};
  };

  /// Decimal or 0x hexadecimal.
  [[nodiscard]] std::uint64_t number(std::string_view key, std::uint64_t otherwise, Range range, std::string_view help);
  /// A number with an optional suffix K, M or G (1024's).
  [[nodiscard]] std::uint64_t bytes(std::string_view key, std::uint64_t otherwise, Range range, std::string_view help);
  /// A number with a unit: ns, us, ms or s (no unit: not accepted).
  [[nodiscard]] std::chrono::nanoseconds duration(std::string_view key, std::chrono::nanoseconds otherwise, std::string_view help);
  /// `on` or `off`.
  [[nodiscard]] bool flag(std::string_view key, bool otherwise, std::string_view help);
  [[nodiscard]] std::string text(std::string_view key, std::string_view otherwise, std::string_view help);
  /// One of `choices`; returns its index.
  [[nodiscard]] std::size_t choice(std::string_view key, std::initializer_list<std::string_view> choices, std::size_t otherwise,
                                   std::string_view help);
  /// Says that the value of `key`, already asked for, is not acceptable after all.
  void reject(std::string_view key, std::string_view why);
  /// Values of such keys are shown as `***` wherever a command line is printed. May be said before or after the key is asked for.
  void mark_secret(std::string_view key);
  /// The command line as it may be printed.
  [[nodiscard]] std::string shown() const;

  /// Every complaint so far, and leftover words, as text; empty when all is well.
  [[nodiscard]] std::string complaints() const;
  /// Everything that was asked for: one line a key, with default, range and help.
  [[nodiscard]] std::string accepted() const;
  /// Stops the boot (`ExitStatus::bad_command_line`) with both of the above if there is any complaint; else prints the command line.
  void finish() const;

 private:
  struct Word {
    std::string key, value;
    bool has_value = false;
    bool taken = false;
    bool repeated = false;
  };
  struct Key {
    std::string name, otherwise, accepts, help;
  };
  struct Complaint {
    std::string key, value, why;
  };
  const std::string* take(std::string_view key, std::string_view otherwise, std::string_view accepts, std::string_view help);
  void complain(std::string_view key, std::string_view value, std::string why);
  [[nodiscard]] bool secret(std::string_view key) const;
  [[nodiscard]] std::string shown_value(std::string_view key, std::string_view value) const;
  std::uint64_t scaled(std::string_view key, std::uint64_t otherwise, Range range, std::string_view help, bool suffixes);
  std::vector<Word> words_;
  std::vector<Key> keys_;
  std::vector<std::string> secrets_;
  std::vector<Complaint> complaints_;
};

}  // namespace neap
