// SPDX-License-Identifier: BSL-1.0
// Status lines, dates, numbers, and the checks of an application's texts.
#include "apps/webserver/http/response_head.hpp"

#include <gtest/gtest.h>

#include <ctime>
#include <string>

#include "apps/webserver/http/header.hpp"

namespace neap::webserver::http {
namespace {

std::string date(std::int64_t unix_s) {
  std::string text(date_bytes, '\0');
  write_date(text.data(), unix_s);
  return text;
}

TEST(Date, IsAsTheStandardLibrarys) {
  EXPECT_EQ(date(784'111'777), "Sun, 06 Nov 1994 08:49:37 GMT");  // RFC 9110, 5.6.7
  EXPECT_EQ(date(0), "Thu, 01 Jan 1970 00:00:00 GMT");
  EXPECT_EQ(date(-5), date(0));
  EXPECT_EQ(date(253'402'300'799), "Fri, 31 Dec 9999 23:59:59 GMT");
  EXPECT_EQ(date(253'402'300'800), date(253'402'300'799));
  for (std::int64_t unix_s = 0; unix_s < 16'000'000'000; unix_s += 86'399 * 5 + 61) {
    const std::time_t time = unix_s;
    char expected[64];
    std::strftime(expected, sizeof expected, "%a, %d %b %Y %H:%M:%S GMT", std::gmtime(&time));
    ASSERT_EQ(date(unix_s), expected);
  }
}

TEST(StatusLine, HasTheUsualReason) {
  EXPECT_EQ(status_line(200), "HTTP/1.1 200 OK\r\n");
  EXPECT_EQ(status_line(511), "HTTP/1.1 511 Network Authentication Required\r\n");
  EXPECT_EQ(usual_reason(404), "Not Found");
  for (const unsigned status : {0U, 99U, 104U, 299U, 600U, 999U, ~0U}) {
    EXPECT_EQ(status_line(status), "") << status;
    EXPECT_EQ(usual_reason(status), "unknown") << status;
  }
  for (unsigned status = 100; status < 600; ++status) {
    const std::string line(status_line(status));
    if (line.empty()) continue;
    EXPECT_EQ(line, "HTTP/1.1 " + std::to_string(status) + " " + std::string(usual_reason(status)) + "\r\n");
    EXPECT_LT(line.size(), 60U);
  }
}

TEST(Number, DecimalAndHexadecimal) {
  for (const std::uint64_t number : {0UL, 9UL, 10UL, 99UL, 100UL, 4096UL, 18'446'744'073'709'551'615UL}) {
    char text[24], expected[24];
    EXPECT_EQ(std::string(text, write_decimal(text, number)), std::to_string(number));
    std::snprintf(expected, sizeof expected, "%lx", number);
    EXPECT_EQ(std::string(text, write_hexadecimal(text, number)), expected);
  }
}

// A line break in a name, a value or a reason would let its author write fields or a whole response.
TEST(Validation, RefusesControlCharacters) {
  const std::string separators = "\"(),/:;<=>?@[\\]{} \t";
  for (unsigned code = 0; code < 256; ++code) {
    const std::string letter(1, static_cast<char>(code)), inside = "a" + letter + "b";
    const bool control = code < 0x20 || code == 0x7F;
    EXPECT_EQ(valid_header_name(inside), !control && code < 0x80 && separators.find(letter) == std::string::npos) << code;
    EXPECT_EQ(valid_header_value(inside), !control || code == '\t') << code;
    EXPECT_EQ(valid_reason(inside), !control || code == '\t') << code;
  }
  EXPECT_FALSE(valid_header_name(""));
  EXPECT_TRUE(valid_header_value(""));
}

TEST(Names, IgnoreCase) {
  EXPECT_TRUE(equal_ignoring_case("Content-TYPE", "content-type"));
  EXPECT_FALSE(equal_ignoring_case("content-type", "content-typ"));
  EXPECT_FALSE(equal_ignoring_case("a@", "a`"));
  EXPECT_TRUE(is_name("HoSt", "host"));
  EXPECT_FALSE(is_name("hosT2", "host"));
  EXPECT_FALSE(is_name("most", "host"));
  EXPECT_TRUE(is_name("EXPECT", "expect"));
  EXPECT_FALSE(is_name("expecu", "expect"));
  EXPECT_TRUE(is_name("Transfer-Encoding", "transfer-encoding"));
  const std::string name = "transfer-encoding";
  for (std::size_t at = 0; at < name.size(); ++at) {
    std::string changed = name;
    changed[at] = 'x';
    EXPECT_FALSE(is_name(changed, "transfer-encoding")) << changed;
  }
  const HeaderField fields[] = {{.name = "A", .value = "1"}, {.name = "a", .value = "2"}};
  EXPECT_EQ(find_field(fields, fields + 2, "a")->value, "1");
  EXPECT_EQ(find_field(fields, fields + 2, "b"), nullptr);
}

TEST(Methods, HaveNames) {
  EXPECT_EQ(method_name(Method::get), "GET");
  EXPECT_EQ(method_name(Method::delete_), "DELETE");
  EXPECT_EQ(method_name(Method::patch), "PATCH");
  EXPECT_EQ(method_name(static_cast<Method>(24)), "M-SEARCH");
  EXPECT_EQ(method_name(static_cast<Method>(200)), "");
}

}  // namespace
}  // namespace neap::webserver::http
