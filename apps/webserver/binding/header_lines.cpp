// SPDX-License-Identifier: BSL-1.0
#include "apps/webserver/binding/header_lines.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <new>
#include <utility>

namespace neap::webserver {

namespace {

/// Throws an error whose text quotes the begin of a name. The text is made on the stack, because the heap may be empty.
bool refuse(JSContext* context, const char* code, std::string_view before, std::string_view name, std::string_view behind) noexcept {
  std::array<char, 256> text;
  char* at = text.data();
  for (const std::string_view part : {before.substr(0, 64), name.substr(0, 100), behind.substr(0, 64)})
    at = std::ranges::copy(part, at).out;
  throw_coded(context, ErrorClass::type, code, std::string_view(text.data(), at));
  return false;
}

bool refuse_name(JSContext* context, std::string_view name) noexcept {
  return refuse(context, "ERR_INVALID_HTTP_TOKEN", "Header name must be a valid HTTP token [\"", name, "\"]");
}

bool refuse_characters(JSContext* context, std::string_view name) noexcept {
  return refuse(context, "ERR_INVALID_CHAR", "Invalid character in header content [\"", name, "\"]");
}

bool refuse_value(JSContext* context, std::string_view name, std::string_view why) noexcept {
  return refuse(context, "ERR_HTTP_INVALID_HEADER_VALUE", why, name, "\"");
}

/// True if `option` is among the comma-separated elements of `list` (RFC 9110, 5.6.1).
bool has_option(std::string_view list, std::string_view option) noexcept {
  while (!list.empty()) {
    const std::size_t comma = list.find(',');
    std::string_view element = list.substr(0, comma);
    while (!element.empty() && (element.front() == ' ' || element.front() == '\t')) element.remove_prefix(1);
    while (!element.empty() && (element.back() == ' ' || element.back() == '\t')) element.remove_suffix(1);
    if (http::equal_ignoring_case(element, option)) return true;
    if (comma == list.npos) break;
    list.remove_prefix(comma + 1);
  }
  return false;
}

std::string_view last_element(std::string_view list) noexcept {
  const std::size_t comma = list.rfind(',');
  if (comma != list.npos) list.remove_prefix(comma + 1);
  while (!list.empty() && (list.front() == ' ' || list.front() == '\t')) list.remove_prefix(1);
  while (!list.empty() && (list.back() == ' ' || list.back() == '\t')) list.remove_suffix(1);
  return list;
}

/// Calls `use` with the characters of a value: of a string in place, of a number in decimal, of another value those of its string.
template <typename Use>
bool with_text(JSContext* context, std::string_view name, JSValueConst value, Use&& use) noexcept {
  if (const auto text = latin1_view(context, value)) [[likely]]
    return use(*text);
  if (JS_VALUE_GET_TAG(value) == JS_TAG_INT && JS_VALUE_GET_INT(value) >= 0) {
    std::array<char, 24> digits;
    return use(std::string_view(digits.data(), http::write_decimal(digits.data(), static_cast<std::uint64_t>(JS_VALUE_GET_INT(value)))));
  }
  if (JS_IsString(value)) return refuse_characters(context, name);  // characters from U+0100 on
  if (JS_IsUndefined(value)) return refuse_value(context, name, "Invalid value \"undefined\" for header \"");
  const Value text(context, JS_ToString(context, value));
  if (JS_IsException(text.get())) return false;
  const auto view = latin1_view(context, text.get());
  return view ? use(*view) : refuse_characters(context, name);
}

/// Calls `each` with the value, or with each element if it is an array.
template <typename Each>
bool for_each_value(JSContext* context, JSValueConst value, Each&& each) noexcept {
  if (!JS_IsArray(value)) [[likely]]
    return each(value);
  std::int64_t count = 0;
  if (JS_GetLength(context, value, &count) < 0) return false;
  for (std::int64_t at = 0; at < count; ++at) {
    const Value element(context, JS_GetPropertyInt64(context, value, at));
    if (JS_IsException(element.get()) || !each(element.get())) return false;
  }
  return true;
}

}  // namespace

bool HeaderLines::add(JSContext* context, std::string_view name, JSValueConst value) noexcept {
  if (!http::valid_header_name(name)) return refuse_name(context, name);
  return for_each_value(context, value, [&](JSValueConst one) { return add_line(context, name, one); });
}

bool HeaderLines::check(JSContext* context, std::string_view name, JSValueConst value) noexcept {
  if (!http::valid_header_name(name)) return refuse_name(context, name);
  return for_each_value(context, value, [&](JSValueConst one) {
    return with_text(context, name, one,
                     [&](std::string_view text) { return http::valid_header_value(text) || refuse_characters(context, name); });
  });
}

bool HeaderLines::add_line(JSContext* context, std::string_view name, JSValueConst value) noexcept {
  return with_text(context, name, value, [&](std::string_view text) { return add_text(context, name, text); });
}

bool HeaderLines::add_text(JSContext* context, std::string_view name, std::string_view value) noexcept {
  if (!http::valid_header_value(value)) return refuse_characters(context, name);
  if (!note(context, name, value)) return false;
  char* at = room(context, name.size() + value.size() + 4);
  if (at == nullptr) return false;
  std::memcpy(at, name.data(), name.size());
  at += name.size();
  *at++ = ':';
  *at++ = ' ';
  std::memcpy(at, value.data(), value.size());
  at += value.size();
  *at++ = '\r';
  *at = '\n';
  bytes_ += static_cast<std::uint32_t>(name.size() + value.size() + 4);
  return true;
}

// The length of a name already excludes nearly all fields.
bool HeaderLines::note(JSContext* context, std::string_view name, std::string_view value) noexcept {
  switch (name.size()) {
    case 4:
      if (http::equal_ignoring_case(name, "date")) contained_.date = true;
      break;
    case 10:
      if (http::equal_ignoring_case(name, "connection")) {
        contained_.connection = true;
        if (has_option(value, "close")) contained_.connection_close = true;
      } else if (http::equal_ignoring_case(name, "keep-alive")) {
        contained_.keep_alive = true;
      }
      break;
    case 14:
      if (http::equal_ignoring_case(name, "content-length")) {
        std::uint64_t length = 0;
        const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), length);
        // A wrong length would let the client read the next response as a part of this one.
        if (error != std::errc() || end != value.data() + value.size())
          return refuse_value(context, name, "A number is needed for header \"");
        if (contained_.content_length) return refuse_value(context, name, "Two values for header \"");
        if (contained_.transfer_encoding) return refuse_value(context, name, "Transfer-Encoding excludes header \"");
        contained_.content_length = true;
        length_ = length;
      }
      break;
    case 17:
      if (http::equal_ignoring_case(name, "transfer-encoding")) {
        if (contained_.content_length) return refuse_value(context, name, "Content-Length excludes header \"");
        contained_.transfer_encoding = true;
        contained_.chunked = http::equal_ignoring_case(last_element(value), "chunked");
      }
      break;
    default:
      break;
  }
  return true;
}

char* HeaderLines::room(JSContext* context, std::size_t bytes) noexcept {
  const std::size_t capacity = heap_bytes_ != 0 ? heap_bytes_ : inside_.size();
  if (capacity - bytes_ >= bytes) [[likely]]
    return (heap_bytes_ != 0 ? heap_.get() : inside_.data()) + bytes_;
  if (bytes_ + bytes > bytes_max) {
    throw_coded(context, ErrorClass::range, "ERR_OUT_OF_RANGE", "The fields of a response are longer than 64 KiB together");
    return nullptr;
  }
  const std::size_t larger = std::min(bytes_max, std::max(2 * capacity, bytes_ + bytes));
  std::unique_ptr<char[]> memory(new (std::nothrow) char[larger]);
  if (memory == nullptr) {
    JS_ThrowOutOfMemory(context);
    return nullptr;
  }
  std::memcpy(memory.get(), data(), bytes_);
  heap_ = std::move(memory);
  heap_bytes_ = static_cast<std::uint32_t>(larger);
  return heap_.get() + bytes_;
}

void HeaderLines::give_back() noexcept {
  heap_.reset();
  heap_bytes_ = 0;
}

}  // namespace neap::webserver
