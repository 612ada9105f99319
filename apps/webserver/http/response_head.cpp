// SPDX-License-Identifier: BSL-1.0
#include "apps/webserver/http/response_head.hpp"

#include <algorithm>
#include <charconv>

namespace neap::webserver::http {

namespace {
struct StatusLine {
  std::string_view line;  ///< with the line's end
  [[nodiscard]] std::string_view reason() const noexcept { return line.substr(13, line.size() - 15); }
};

#define NEAP_STATUS(code, reason) \
  case code:                      \
    return {"HTTP/1.1 " #code " " reason "\r\n"}

/// The registered codes (IANA, HTTP Status Code Registry), with Node's reasons.
constexpr StatusLine line_of(unsigned status) noexcept {
  switch (status) {
    NEAP_STATUS(100, "Continue");
    NEAP_STATUS(101, "Switching Protocols");
    NEAP_STATUS(102, "Processing");
    NEAP_STATUS(103, "Early Hints");
    NEAP_STATUS(200, "OK");
    NEAP_STATUS(201, "Created");
    NEAP_STATUS(202, "Accepted");
    NEAP_STATUS(203, "Non-Authoritative Information");
    NEAP_STATUS(204, "No Content");
    NEAP_STATUS(205, "Reset Content");
    NEAP_STATUS(206, "Partial Content");
    NEAP_STATUS(207, "Multi-Status");
    NEAP_STATUS(208, "Already Reported");
    NEAP_STATUS(226, "IM Used");
    NEAP_STATUS(300, "Multiple Choices");
    NEAP_STATUS(301, "Moved Permanently");
    NEAP_STATUS(302, "Found");
    NEAP_STATUS(303, "See Other");
    NEAP_STATUS(304, "Not Modified");
    NEAP_STATUS(305, "Use Proxy");
    NEAP_STATUS(307, "Temporary Redirect");
    NEAP_STATUS(308, "Permanent Redirect");
    NEAP_STATUS(400, "Bad Request");
    NEAP_STATUS(401, "Unauthorized");
    NEAP_STATUS(402, "Payment Required");
    NEAP_STATUS(403, "Forbidden");
    NEAP_STATUS(404, "Not Found");
    NEAP_STATUS(405, "Method Not Allowed");
    NEAP_STATUS(406, "Not Acceptable");
    NEAP_STATUS(407, "Proxy Authentication Required");
    NEAP_STATUS(408, "Request Timeout");
    NEAP_STATUS(409, "Conflict");
    NEAP_STATUS(410, "Gone");
    NEAP_STATUS(411, "Length Required");
    NEAP_STATUS(412, "Precondition Failed");
    NEAP_STATUS(413, "Payload Too Large");
    NEAP_STATUS(414, "URI Too Long");
    NEAP_STATUS(415, "Unsupported Media Type");
    NEAP_STATUS(416, "Range Not Satisfiable");
    NEAP_STATUS(417, "Expectation Failed");
    NEAP_STATUS(418, "I'm a Teapot");
    NEAP_STATUS(421, "Misdirected Request");
    NEAP_STATUS(422, "Unprocessable Entity");
    NEAP_STATUS(423, "Locked");
    NEAP_STATUS(424, "Failed Dependency");
    NEAP_STATUS(425, "Too Early");
    NEAP_STATUS(426, "Upgrade Required");
    NEAP_STATUS(428, "Precondition Required");
    NEAP_STATUS(429, "Too Many Requests");
    NEAP_STATUS(431, "Request Header Fields Too Large");
    NEAP_STATUS(451, "Unavailable For Legal Reasons");
    NEAP_STATUS(500, "Internal Server Error");
    NEAP_STATUS(501, "Not Implemented");
    NEAP_STATUS(502, "Bad Gateway");
    NEAP_STATUS(503, "Service Unavailable");
    NEAP_STATUS(504, "Gateway Timeout");
    NEAP_STATUS(505, "HTTP Version Not Supported");
    NEAP_STATUS(506, "Variant Also Negotiates");
    NEAP_STATUS(507, "Insufficient Storage");
    NEAP_STATUS(508, "Loop Detected");
    NEAP_STATUS(509, "Bandwidth Limit Exceeded");
    NEAP_STATUS(510, "Not Extended");
    NEAP_STATUS(511, "Network Authentication Required");
    default:
      return {};
  }
}
#undef NEAP_STATUS

constexpr unsigned first_status = 100, statuses = 500;
consteval std::array<StatusLine, statuses> make_lines() {
  std::array<StatusLine, statuses> lines{};
  for (unsigned status = 0; status < statuses; ++status) lines[status] = line_of(first_status + status);
  return lines;
}
constexpr std::array<StatusLine, statuses> lines = make_lines();

void write_two(char* to, unsigned number) noexcept {
  to[0] = static_cast<char>('0' + number / 10);
  to[1] = static_cast<char>('0' + number % 10);
}
}  // namespace

std::string_view status_line(unsigned status) noexcept {
  return status - first_status < statuses ? lines[status - first_status].line : std::string_view();
}

std::string_view usual_reason(unsigned status) noexcept {
  const std::string_view line = status_line(status);
  return line.empty() ? std::string_view("unknown") : StatusLine{line}.reason();
}

/// The civil date of a day count, by Howard Hinnant's algorithm for years that begin in March.
void write_date(char* to, std::int64_t unix_s) noexcept {
  constexpr std::int64_t last_s = 253'402'300'799;  // 9999-12-31
  unix_s = std::clamp<std::int64_t>(unix_s, 0, last_s);
  const auto days = static_cast<unsigned>(unix_s / 86'400), second = static_cast<unsigned>(unix_s % 86'400);
  const unsigned shifted = days + 719'468;  // days since 0000-03-01
  const unsigned era = shifted / 146'097, of_era = shifted % 146'097;
  const unsigned year_of_era = (of_era - of_era / 1460 + of_era / 36'524 - of_era / 146'096) / 365;
  const unsigned day_of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
  const unsigned month_from_march = (5 * day_of_year + 2) / 153, day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
  const unsigned month = month_from_march < 10 ? month_from_march + 2 : month_from_march - 10;  // 0: January
  const unsigned year = year_of_era + era * 400 + (month < 2 ? 1 : 0);
  std::memcpy(to, "Thu, 01 Jan 1970 00:00:00 GMT", date_bytes);
  std::memcpy(to, &"ThuFriSatSunMonTueWed"[days % 7 * 3], 3);
  write_two(to + 5, day);
  std::memcpy(to + 8, &"JanFebMarAprMayJunJulAugSepOctNovDec"[month * 3], 3);
  write_two(to + 12, year / 100);
  write_two(to + 14, year % 100);
  write_two(to + 17, second / 3600);
  write_two(to + 20, second / 60 % 60);
  write_two(to + 23, second % 60);
}

char* write_hexadecimal(char* to, std::uint64_t number) noexcept { return std::to_chars(to, to + 16, number, 16).ptr; }

}  // namespace neap::webserver::http
