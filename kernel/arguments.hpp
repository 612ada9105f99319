// SPDX-License-Identifier: BSL-1.0
// The command line: `key=value` words.
//
// A typing error in a boot option must stop the boot, because a measurement with wrong settings is worthless. Each part of the kernel and
// of the application queries its keys by the functions below. `finish()` then stops the boot if the command line has a bad value or a key
// that was not queried, and prints the accepted keys. A query also gives the key's help text, so every accepted key is documented.
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
    std::uint64_t min = 0;
    std::uint64_t max = ~std::uint64_t{0};
  };

  /// The value of `key`, decimal or 0x hexadecimal. This and the next five functions return `otherwise` if the key is missing or bad.
  [[nodiscard]] std::uint64_t number(std::string_view key, std::uint64_t otherwise, Range range, std::string_view help);
  /// A number with an optional suffix K, M or G (powers of 1024).
  [[nodiscard]] std::uint64_t bytes(std::string_view key, std::uint64_t otherwise, Range range, std::string_view help);
  /// A number with a unit: ns, us, ms or s. A number without a unit is refused.
  [[nodiscard]] std::chrono::nanoseconds duration(std::string_view key, std::chrono::nanoseconds otherwise, std::string_view help);
  /// `on` or `off`.
  [[nodiscard]] bool flag(std::string_view key, bool otherwise, std::string_view help);
  [[nodiscard]] std::string text(std::string_view key, std::string_view otherwise, std::string_view help);
  /// The value of `key` MUST be one of `choices`. Returns its index.
  [[nodiscard]] std::size_t choice(std::string_view key, std::initializer_list<std::string_view> choices, std::size_t otherwise,
                                   std::string_view help);
  /// True if the command line has the word `key=...`.
  [[nodiscard]] bool has(std::string_view key) const;
  /// Adds a complaint about the value of `key`, which was queried earlier. `why` is the reason.
  void reject(std::string_view key, std::string_view why);
  /// Names a key that is never accepted, although users of a similar program may expect it. If the command line has the key, with or
  /// without a value, adds the complaint `why`. The key is not among the accepted keys.
  void refuse(std::string_view key, std::string_view why);
  /// From now on, printed command lines show the value of `key` as `***`. May be called before or after the query of the key.
  void mark_secret(std::string_view key);
  /// The command line with `***` in place of secret values.
  [[nodiscard]] std::string shown() const;

  /// All complaints so far, and the words of the command line that were not queried. Empty if every word is good.
  [[nodiscard]] std::string complaints() const;
  /// All keys that were queried: one line for each key, with default, range and help.
  [[nodiscard]] std::string accepted() const;
  /// If there is a complaint, prints the complaints and the keys, and stops the boot (`ExitStatus::bad_command_line`). Otherwise prints the
  /// command line.
  void finish() const;

 private:
  struct Word {
    std::string key, value;
    bool has_value = false, taken = false, repeated = false;
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
