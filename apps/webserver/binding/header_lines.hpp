// SPDX-License-Identifier: BSL-1.0
// The field lines of a response, made from values of JavaScript.
//
// A script gives names and values of any type. A line break among them would let a client's text forge fields (response splitting), so each
// name and value is checked before it is copied. The server adds fields of its own only if the script gave none, so those are noted here.
// Nearly all responses have few and short fields, which fit the memory inside the object.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "apps/webserver/engine/strings.hpp"
#include "apps/webserver/http/response_head.hpp"

namespace neap::webserver {

class HeaderLines {
 public:
  static constexpr std::size_t bytes_max = 64 * 1024;

  /// Appends a line, or one line for each element if `value` is an array. Returns false if an exception was thrown: ERR_INVALID_HTTP_TOKEN,
  /// ERR_INVALID_CHAR, ERR_HTTP_INVALID_HEADER_VALUE, or ERR_OUT_OF_RANGE beyond `bytes_max`.
  [[nodiscard]] bool add(JSContext* context, std::string_view name, JSValueConst value) noexcept;
  /// Throws the exception that `add` would throw for these, without appending anything. Returns false if it did.
  [[nodiscard]] static bool check(JSContext* context, std::string_view name, JSValueConst value) noexcept;

  [[nodiscard]] std::string_view text() const noexcept { return {data(), bytes_}; }
  [[nodiscard]] http::FieldFlags contained() const noexcept { return contained_; }
  /// The value of Content-Length, if there is one.
  [[nodiscard]] std::optional<std::uint64_t> length() const noexcept { return length_; }
  [[nodiscard]] bool empty() const noexcept { return bytes_ == 0; }
  void clear() noexcept {
    bytes_ = 0;
    contained_ = {};
    length_.reset();
    if (heap_bytes_ != 0) [[unlikely]]
      give_back();
  }

 private:
  [[nodiscard]] bool add_line(JSContext* context, std::string_view name, JSValueConst value) noexcept;
  [[nodiscard]] bool add_text(JSContext* context, std::string_view name, std::string_view value) noexcept;
  [[nodiscard]] bool note(JSContext* context, std::string_view name, std::string_view value) noexcept;
  [[nodiscard]] char* room(JSContext* context, std::size_t bytes) noexcept;
  void give_back() noexcept;
  [[nodiscard]] const char* data() const noexcept { return heap_bytes_ != 0 ? heap_.get() : inside_.data(); }

  std::uint32_t bytes_ = 0, heap_bytes_ = 0;
  http::FieldFlags contained_{};
  std::optional<std::uint64_t> length_;
  std::unique_ptr<char[]> heap_;
  std::array<char, 512> inside_;
};

}  // namespace neap::webserver
