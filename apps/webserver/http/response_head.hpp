// SPDX-License-Identifier: BSL-1.0
// The head of a response as bytes.
//
// A short response is mostly head. So the lines that never change are made once: the status line of each code at compile time, and the
// lines Date, Connection and Keep-Alive once a second. A typical head is four copies and a number.
#pragma once

#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

#include "apps/webserver/http/header.hpp"
#include "kernel/short_copy.hpp"

namespace neap::webserver::http {

/// Which of the fields that the server would add are contained in an application's lines. The server then leaves its own out.
struct FieldFlags {
  bool date : 1 = false;
  bool connection : 1 = false;         ///< any Connection line
  bool connection_close : 1 = false;   ///< a Connection line with the option `close`; `connection` MUST be set too
  bool keep_alive : 1 = false;         ///< a Keep-Alive line
  bool content_length : 1 = false;     ///< its value MUST also be given as `ResponseHead::length`
  bool transfer_encoding : 1 = false;  ///< any Transfer-Encoding line. With `chunked` as its last coding, set `chunked` too.
  bool chunked : 1 = false;
};

/// The application's part of a response's head. The texts are valid during the call only.
struct ResponseHead {
  unsigned status = 200;      ///< 200 to 999; 1xx: see `Exchange::inform`
  std::string_view reason{};  ///< empty: the usual one of the status; MUST be valid (`valid_reason`)
  std::string_view lines{};   ///< "Name: value\r\n" each; names and values MUST be valid (`valid_header_name`, `valid_header_value`)
  FieldFlags contained{};     ///< of `lines`
  bool date = true;           ///< false: no Date (Node's `sendDate`)
  /// The length of the body, if the application knows it. Without it the body is chunked in HTTP/1.1, and ends with the connection in
  /// HTTP/1.0. `Exchange::respond` sets it by itself.
  std::optional<std::uint64_t> length{};
};

/// Returns "OK" and so on; "unknown" for a code without a usual reason, as Node does.
[[nodiscard]] std::string_view usual_reason(unsigned status) noexcept;
/// Returns "HTTP/1.1 200 OK\r\n" and so on; empty for a code without a usual reason.
[[nodiscard]] std::string_view status_line(unsigned status) noexcept;

/// The text of Date, such as "Sun, 06 Nov 1994 08:49:37 GMT" (RFC 9110, 5.6.7).
constexpr std::size_t date_bytes = 29;
void write_date(char* to, std::int64_t unix_s) noexcept;

/// Writes `number` in decimal (at most 20 characters) and returns the end.
inline char* write_decimal(char* to, std::uint64_t number) noexcept {
  if (number < 100) {  // often the length of a short body
    if (number >= 10) *to++ = static_cast<char>('0' + number / 10);
    *to++ = static_cast<char>('0' + number % 10);
    return to;
  }
  return std::to_chars(to, to + 20, number).ptr;
}
/// Writes `number` in hexadecimal (at most 16 characters) and returns the end.
char* write_hexadecimal(char* to, std::uint64_t number) noexcept;

/// An upper bound of the bytes that the server adds to `reason` and `lines`: the status line and each field of its own.
constexpr std::size_t head_overhead_bytes_max = 320;

}  // namespace neap::webserver::http
