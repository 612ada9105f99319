// SPDX-License-Identifier: BSL-1.0
// The text protocol (memcached's doc/protocol.txt), as memcached 1.6 answers it. The meta commands have files of their own
// (text_protocol_meta.hpp).
//
// A command is a line. A get may name any number of keys. Its line is handled key by key as it arrives, so the line needs no memory, and
// its length has no bound. Differences from memcached:
// - A line longer than `line_bytes_max`, except a get's, is answered by "CLIENT_ERROR line too long" and skipped. memcached
//   closes the connection without a reply, or answers "ERROR" if the whole line arrived at once.
// - An error in a get replaces only the values of that get. memcached also drops replies to earlier requests that arrived together with it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "apps/memcached/protocol.hpp"
#include "apps/memcached/text_protocol_meta.hpp"

namespace neap::memcached {

class TextProtocol {
 public:
  static constexpr std::size_t line_bytes_max = 2048;  ///< without the line end; as in memcached

  /// Executes one command at the front of `input`, or the part of a get that has arrived, and returns how many bytes were consumed. If the
  /// result is 0, more bytes are needed, at most `input_bytes_max` in all. The function stops early when the reply is full.
  [[nodiscard]] std::size_t step(std::string_view input, Context& context) noexcept;
  static constexpr std::size_t input_bytes_max = line_bytes_max + 2;
  /// Returns how many bytes of `more` the caller should append to an `input` for which `step` returned 0.
  [[nodiscard]] std::size_t wants(std::string_view input, std::string_view more) const noexcept;
  /// Returns how many bytes of the reply may be sent. An error in a get removes the get's values from the reply. So the values are sent
  /// only after the end of the get's line, or once `get_is_final`. The result is never 0 for a reply that is full.
  [[nodiscard]] std::size_t sendable_bytes(const Reply& reply) const noexcept {
    return reading_ == Reading::keys && !get_is_final(reply) ? reply.bytes_before(get_start_) : reply.bytes();
  }
  /// True if the next byte begins a command.
  [[nodiscard]] bool between_commands() const noexcept { return reading_ == Reading::line; }
  /// Returns the size of the item that `step` with this input allocates, 0 if none.
  [[nodiscard]] std::size_t item_bytes_needed(std::string_view input, const Store& store) const noexcept;
  static constexpr std::size_t values_held_bytes = 32 * 1024;
  /// Called when the value that a command announced is complete.
  void transfer_done(Context& context) noexcept;

 private:
  struct Line {
    static constexpr std::size_t kept = 8;
    std::array<std::string_view, kept> words;
    std::size_t count = 0;  ///< number of all words, including those not kept
    explicit Line(std::string_view text) noexcept;
    [[nodiscard]] bool quiet() const noexcept { return count > 0 && count <= kept && words[count - 1] == "noreply"; }
  };
  enum class Reading : std::uint8_t {
    line,
    keys,         ///< within the line of a get
    rest,         ///< the rest of a get's line is ignored; then the get ends
    failed_rest,  ///< the rest of a line that was answered by an error is ignored
  };

  void begin_get(bool with_cas, bool with_touch, Context& context) noexcept;
  /// True if the get's values can no longer be removed from the reply. This is the case if they exceed `values_held_bytes`, if some of them
  /// were sent, or if they alone fill the reply. In the last case the parser can continue only after values were sent.
  [[nodiscard]] bool get_is_final(const Reply& reply) const noexcept {
    return reply.position() - get_start_ > values_held_bytes || reply.taken() > get_start_ || (reply.full() && reply.taken() >= get_start_);
  }
  /// See text_protocol_whole.hpp.
  [[nodiscard]] static std::size_t whole_requests(std::string_view input, Context& context) noexcept;
  [[nodiscard]] std::size_t step_line(std::string_view input, Context& context) noexcept;
  [[nodiscard]] std::size_t try_begin_get(std::string_view input, Context& context) noexcept;
  [[nodiscard]] std::size_t step_keys(std::string_view input, Context& context) noexcept;
  [[nodiscard]] std::size_t step_rest(std::string_view input, Context& context) noexcept;
  /// Handles one word of a get's line. Returns false if the word was answered by an error.
  bool word_of_get(std::string_view word, Context& context) noexcept;
  void end_get(Context& context) noexcept;
  void fail_get(std::string_view error, Context& context) noexcept;

  void execute(std::string_view line, Context& context);
  void store(Mode mode, const Line& line, Context& context) noexcept;
  void remove(const Line& line, Context& context) noexcept;
  void count(bool up, const Line& line, Context& context) noexcept;
  void touch(const Line& line, Context& context) noexcept;
  // The commands of an administrator (text_protocol_operations.cpp).
  /// Returns false if the line is no such command.
  [[nodiscard]] static bool operate(const Line& line, Context& context);
  static void flush_all(const Line& line, Context& context) noexcept;
  static void verbosity(const Line& line, Context& context) noexcept;
  static void memory_limit(const Line& line, Context& context) noexcept;
  static void shut_down(const Line& line, Context& context) noexcept;
  static void slabs(const Line& line, Context& context) noexcept;
  static void lru(const Line& line, Context& context) noexcept;
  static void lru_crawler(const Line& line, Context& context);
  static void dump(const Line& line, bool as_requests, Context& context);
  static void watch(const Line& line, Context& context);
  static void statistics(const Line& line, Context& context);
  static void detail(const Line& line, Context& context);

  Reading reading_ = Reading::line;
  bool get_with_cas_ = false, get_with_touch_ = false, get_expiry_known_ = false, get_has_keys_ = false;
  Seconds get_expires_ = 0;
  std::uint64_t get_start_ = 0;  ///< position of the get's values in the reply
  text::MetaSet meta_set_;
};

}  // namespace neap::memcached
