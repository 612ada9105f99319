// SPDX-License-Identifier: BSL-1.0
// Strings between C++ and JavaScript, without copies or checks that the caller knows to be unnecessary.
//
// JS_ToCString copies a string to UTF-8, and JS_NewStringLen checks its bytes. Both cost several instructions a byte. Almost all strings of
// HTTP are ASCII. QuickJS stores them with one byte a character, so their bytes can be used in place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "apps/webserver/engine/quickjs.hpp"

namespace neap::webserver {

/// True if no byte is above 127.
[[nodiscard]] inline bool is_ascii(std::string_view text) noexcept {
  const char* at = text.data();
  std::size_t left = text.size();
  std::uint64_t seen = 0;
  for (; left >= 8; at += 8, left -= 8) {
    std::uint64_t word;
    std::memcpy(&word, at, 8);
    seen |= word;
  }
  for (; left != 0; ++at, --left) seen |= static_cast<std::uint8_t>(*at);
  return (seen & 0x8080808080808080U) == 0;
}

/// The characters of a string whose characters are all below 256, one byte each (Latin-1), in place. Nothing if the value is no string or
/// has other characters. The bytes are valid as long as the string lives. A rope is flattened first.
[[nodiscard]] inline std::optional<std::string_view> latin1_view(JSContext* context, JSValueConst value) noexcept {
  std::size_t bytes = 0;
  const std::uint8_t* const at = JS_GetLatin1(context, &bytes, value);
  if (at == nullptr) return std::nullopt;
  return std::string_view(reinterpret_cast<const char*>(at), bytes);
}

/// A string from bytes, one character each. The bytes are not checked: bytes above 127 become U+0080 to U+00FF.
[[nodiscard]] inline JSValue new_latin1(JSContext* context, std::string_view bytes) noexcept {
  return JS_NewStringLatin1(context, reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
}
/// A string from UTF-8. Invalid bytes become U+FFFD.
[[nodiscard]] inline JSValue new_utf8(JSContext* context, std::string_view text) noexcept {
  return is_ascii(text) ? new_latin1(context, text) : JS_NewStringLen(context, text.data(), text.size());
}

/// The UTF-8 bytes of a value's string: in place for an ASCII string, otherwise a copy that ends with this object. Lone surrogates become
/// U+FFFD. Empty optional-like state (`!view`): an exception is pending.
class Utf8View {
 public:
  Utf8View(JSContext* context, JSValueConst value) noexcept : context_(context) {
    if (const auto flat = latin1_view(context, value); flat && is_ascii(*flat)) {
      text_ = *flat;
      valid_ = true;
      return;
    }
    std::size_t bytes = 0;
    copy_ = JS_ToCStringLen(context, &bytes, value);
    if (copy_ != nullptr) {
      text_ = {copy_, bytes};
      valid_ = true;
    }
  }
  Utf8View& operator=(Utf8View&&) = delete;
  ~Utf8View() {
    if (copy_ != nullptr) JS_FreeCString(context_, copy_);
  }
  explicit operator bool() const noexcept { return valid_; }
  [[nodiscard]] std::string_view operator*() const noexcept { return text_; }
  [[nodiscard]] const std::string_view* operator->() const noexcept { return &text_; }

 private:
  JSContext* context_;
  const char* copy_ = nullptr;
  std::string_view text_;
  bool valid_ = false;
};

/// The bytes of a Uint8Array (a Buffer too), of another typed array, of a DataView or of an ArrayBuffer, in place. Nothing for another
/// value; no exception is pending then. The bytes are valid until JavaScript runs.
[[nodiscard]] inline std::optional<std::span<std::byte>> bytes_of(JSContext* context, JSValueConst value) noexcept {
  std::size_t bytes = 0;
  std::uint8_t* at = nullptr;
  if (!JS_GetBytes(context, &at, &bytes, value)) return std::nullopt;
  return std::span<std::byte>(reinterpret_cast<std::byte*>(at), bytes);
}

/// An atom that lives as long as this object: the name of a property that is used often.
class Atom {
 public:
  Atom() = default;
  Atom(JSContext* context, const char* name) noexcept : context_(context), atom_(JS_NewAtom(context, name)) {}
  Atom(Atom&& other) noexcept : context_(other.context_), atom_(other.atom_) { other.atom_ = JS_ATOM_NULL; }
  Atom& operator=(Atom&& other) noexcept {
    if (this != &other) {
      reset();
      context_ = other.context_;
      atom_ = other.atom_;
      other.atom_ = JS_ATOM_NULL;
    }
    return *this;
  }
  ~Atom() { reset(); }
  void reset() noexcept {
    if (atom_ != JS_ATOM_NULL) JS_FreeAtom(context_, atom_);
    atom_ = JS_ATOM_NULL;
  }
  operator JSAtom() const noexcept { return atom_; }

 private:
  JSContext* context_ = nullptr;
  JSAtom atom_ = JS_ATOM_NULL;
};

/// A reference to a value that ends with this object.
class Value {
 public:
  Value() = default;
  /// Takes over the caller's reference.
  Value(JSContext* context, JSValue value) noexcept : context_(context), value_(value) {}
  Value(Value&& other) noexcept : context_(other.context_), value_(other.release()) {}
  Value& operator=(Value&& other) noexcept {
    if (this != &other) {
      reset();
      context_ = other.context_;
      value_ = other.release();
    }
    return *this;
  }
  ~Value() { reset(); }
  [[nodiscard]] JSValueConst get() const noexcept { return value_; }
  [[nodiscard]] JSValue release() noexcept {
    const JSValue value = value_;
    value_ = JS_UNDEFINED;
    return value;
  }
  void reset() noexcept {
    if (JS_VALUE_HAS_REF_COUNT(value_)) JS_FreeValue(context_, value_);
    value_ = JS_UNDEFINED;
  }

 private:
  JSContext* context_ = nullptr;
  JSValue value_ = JS_UNDEFINED;
};

/// Throws an error of class `TypeError` (or `RangeError`, `Error`) with Node's property `code`. Returns JS_EXCEPTION.
enum class ErrorClass : std::uint8_t { plain, type, range };
JSValue throw_coded(JSContext* context, ErrorClass error_class, const char* code, std::string_view message) noexcept;

}  // namespace neap::webserver
