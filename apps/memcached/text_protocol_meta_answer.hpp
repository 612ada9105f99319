// SPDX-License-Identifier: BSL-1.0
// What the answers of all meta commands share. Internal to the meta commands.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "apps/memcached/base64.hpp"
#include "apps/memcached/numbers.hpp"
#include "apps/memcached/protocol.hpp"
#include "apps/memcached/text_protocol_answers.hpp"
#include "apps/memcached/text_protocol_meta.hpp"
#include "apps/memcached/text_protocol_meta_line.hpp"

namespace neap::memcached::text {

constexpr std::string_view error_too_many_flags = "CLIENT_ERROR options flags too long\r\n";
constexpr std::string_view error_flags = "CLIENT_ERROR invalid or duplicate flag\r\n";
constexpr std::string_view error_opaque = "CLIENT_ERROR opaque token too long\r\n";
constexpr std::string_view error_memory = "SERVER_ERROR out of memory\r\n";

/// A bound of every answer without the value: the code with a length, every field once, and the line end. Each number of a field may be
/// followed by up to 4 bytes that are overwritten (`put_number`).
constexpr std::size_t answer_bytes_max = 3 + 11 + 2 + base64::text_bytes(key_bytes_max) + 2 + 8 * (3 + number_bytes_max) + 33 + 6 + 2 + 4;
static_assert(answer_bytes_max <= ReplyPool::chunk_bytes);

/// Writes an answer of at most `answer_bytes_max` bytes, and the bytes behind it. The reply is not changed before `end`.
class Answer {
 public:
  explicit Answer(Reply& reply, std::size_t more_bytes = 0) noexcept
      : reply_(reply), begin_(reply.room(answer_bytes_max + more_bytes)), at_(begin_ != nullptr ? begin_ : dropped_) {}
  /// True if there is no memory for the answer; the connection is then aborted.
  [[nodiscard]] bool failed() const noexcept { return begin_ == nullptr; }
  void code(std::string_view text) noexcept { at_ = put_text(at_, text); }
  void number(std::uint64_t value) noexcept { at_ = put_number(at_, value); }
  void field(char flag) noexcept {
    *at_++ = ' ';
    *at_++ = flag;
  }
  void field(char flag, std::uint64_t value) noexcept {
    field(flag);
    number(value);
  }
  /// `flag`: with its letter.
  void opaque(std::string_view flag) noexcept {
    *at_++ = ' ';
    at_ = put_text(at_, flag);
  }
  void plain_key(std::string_view bytes, bool encoded) noexcept { at_ = encoded ? base64::encode(at_, bytes) : put_text(at_, bytes); }
  void key(std::string_view bytes, bool encoded) noexcept {
    field('k');
    plain_key(bytes, encoded);
    if (encoded) field('b');
  }
  void time_to_live(Seconds expires, Seconds now) noexcept {
    field('t');
    if (expires == expires_never) {
      code("-1");
    } else {
      number(expires > now ? expires - now : 0);
    }
  }
  void line_end() noexcept { code("\r\n"); }
  void value(std::string_view bytes) noexcept { at_ = put_value(at_, bytes); }
  void end() noexcept {
    if (begin_ != nullptr) reply_.advance(static_cast<std::size_t>(at_ - begin_));
  }

 private:
  Reply& reply_;
  char* begin_;
  char dropped_[answer_bytes_max + 64];  // without memory the answer is written here
  char* at_;
};

/// The flags of a line, which begin at word `first`.
[[nodiscard]] inline std::span<const std::string_view> flags_of(const MetaLine& line, std::size_t first) noexcept {
  return std::span(line.words).subspan(first, line.count - first);
}

/// Writes the fields that show what the client has sent.
inline void echo(Answer& answer, const MetaLine& line, const MetaFlags& flags) noexcept {
  for (const std::string_view flag : flags_of(line, 2)) {
    if (flag.front() == 'O') answer.opaque(flag);
    if (flag.front() == 'k') answer.key(flags.key, flags.binary_key);
  }
}

// The commands that change items, in text_protocol_meta_store.cpp. As `execute_meta`.
void execute_ms(const MetaLine& line, Context& context, MetaSet& answer) noexcept;
void execute_md(const MetaLine& line, Context& context) noexcept;
void execute_ma(const MetaLine& line, Context& context) noexcept;

}  // namespace neap::memcached::text
