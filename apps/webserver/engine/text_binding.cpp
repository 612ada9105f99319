// SPDX-License-Identifier: BSL-1.0
// internalBinding('text'): the natives of Buffer, TextEncoder and TextDecoder.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <utility>

#include "apps/webserver/engine/engine_state.hpp"
#include "apps/webserver/engine/text_codecs.hpp"

namespace neap::webserver {

namespace {

using Bytes = std::span<std::uint8_t>;

JSValueConst argument(int count, JSValueConst* arguments, int index) noexcept { return index < count ? arguments[index] : JS_UNDEFINED; }

std::optional<Characters> characters_of(JSContext* context, JSValueConst value) {
  std::size_t count = 0;
  if (const std::uint8_t* const narrow = JS_GetLatin1(context, &count, value); narrow != nullptr) {
    return Characters{.narrow = narrow, .wide = nullptr, .count = count};
  }
  if (const std::uint16_t* const wide = JS_GetUTF16(context, &count, value); wide != nullptr) {
    return Characters{.narrow = nullptr, .wide = reinterpret_cast<const char16_t*>(wide), .count = count};
  }
  JS_ThrowTypeError(context, "not a string");
  return std::nullopt;
}

std::optional<Bytes> bytes_argument(JSContext* context, JSValueConst value) {
  const auto bytes = bytes_of(context, value);
  if (!bytes) {
    JS_ThrowTypeError(context, "not a buffer");
    return std::nullopt;
  }
  return Bytes(reinterpret_cast<std::uint8_t*>(bytes->data()), bytes->size());
}

std::optional<Encoding> encoding_argument(JSContext* context, JSValueConst value) {
  if (JS_IsUndefined(value)) return Encoding::utf8;
  const auto name = latin1_view(context, value);
  const auto encoding = name ? encoding_of(*name) : std::nullopt;
  if (!encoding) throw_coded(context, ErrorClass::type, "ERR_UNKNOWN_ENCODING", "Unknown encoding");
  return encoding;
}

/// An index from 0 to `max`. `missing` is its value if it is undefined. Nothing: an exception is pending.
std::optional<std::size_t> index_argument(JSContext* context, JSValueConst value, std::size_t max, std::size_t missing) {
  if (JS_IsUndefined(value)) return missing;
  double number = 0;
  if (JS_ToFloat64(context, &number, value) != 0) return std::nullopt;
  if (!(number >= 0 && number <= static_cast<double>(max))) {
    throw_coded(context, ErrorClass::range, "ERR_OUT_OF_RANGE", "The offset is out of range");
    return std::nullopt;
  }
  return static_cast<std::size_t>(number);
}

void* resize(JSRuntime* runtime, void*, void* memory, std::size_t bytes) { return js_realloc_rt(runtime, memory, bytes); }

/// A Uint8Array of `used` of the `room` bytes at `memory`, which it takes over.
JSValue new_bytes(JSContext* context, std::uint8_t* memory, std::size_t used, std::size_t room) {
  if (used == 0) {
    js_free(context, memory);
    static constexpr std::uint8_t none = 0;
    return JS_NewUint8ArrayCopy(context, &none, 0);
  }
  if (used < room / 2) {
    if (void* const smaller = js_realloc(context, memory, used); smaller != nullptr) memory = static_cast<std::uint8_t*>(smaller);
  }
  return JS_NewUint8Array(context, memory, used, &resize, nullptr, false);
}

/// encode(string, encoding) -> Uint8Array
JSValue encode(JSContext* context, JSValueConst, int count, JSValueConst* arguments) {
  const auto characters = characters_of(context, argument(count, arguments, 0));
  if (!characters) return JS_EXCEPTION;
  const auto encoding = encoding_argument(context, argument(count, arguments, 1));
  if (!encoding) return JS_EXCEPTION;
  const std::size_t room = encoded_bytes_max(*characters, *encoding);
  if (room == 0) return new_bytes(context, nullptr, 0, 0);
  auto* const memory = static_cast<std::uint8_t*>(js_malloc(context, room));
  if (memory == nullptr) return JS_EXCEPTION;
  return new_bytes(context, memory, webserver::encode(*characters, *encoding, {memory, room}), room);
}

/// A string of a known number of characters, which `write` fills.
template <typename Unit, typename Write>
JSValue new_string(JSContext* context, std::size_t units, Write write) {
  if (units == 0) return new_latin1(context, {});
  auto* const memory = static_cast<Unit*>(js_malloc(context, units * sizeof(Unit)));
  if (memory == nullptr) return JS_EXCEPTION;
  write(memory);
  JSValue text;
  if constexpr (sizeof(Unit) == 1) {
    text = JS_NewStringLatin1(context, memory, units);
  } else {
    text = JS_NewStringUTF16(context, reinterpret_cast<const std::uint16_t*>(memory), units);
  }
  js_free(context, memory);
  return text;
}

JSValue utf8_string(JSContext* context, std::span<const std::uint8_t> bytes, const Utf8Facts& facts) {
  if (facts.units == bytes.size() && facts.narrow) return JS_NewStringLatin1(context, bytes.data(), bytes.size());  // ASCII
  if (facts.narrow) return new_string<std::uint8_t>(context, facts.units, [bytes](std::uint8_t* to) { decode_utf8(bytes, to); });
  return new_string<char16_t>(context, facts.units, [bytes](char16_t* to) { decode_utf8(bytes, to); });
}

JSValue decode_bytes(JSContext* context, std::span<const std::uint8_t> bytes, Encoding encoding) {
  switch (encoding) {
    case Encoding::utf8:
      return utf8_string(context, bytes, inspect_utf8(bytes));
    case Encoding::latin1:
      return JS_NewStringLatin1(context, bytes.data(), bytes.size());
    case Encoding::ascii:
      return new_string<std::uint8_t>(context, bytes.size(), [bytes](std::uint8_t* to) {
        for (const std::uint8_t byte : bytes) *to++ = byte & 0x7F;
      });
    case Encoding::utf16le: {
      const std::size_t units = bytes.size() / 2;
      const auto unit = [bytes](std::size_t at) { return static_cast<char16_t>(bytes[2 * at] | (bytes[2 * at + 1] << 8)); };
      bool narrow = true;
      for (std::size_t at = 0; at < units; ++at) narrow = narrow && unit(at) < 256;
      if (narrow) {
        return new_string<std::uint8_t>(context, units, [units, unit](std::uint8_t* to) {
          for (std::size_t at = 0; at < units; ++at) to[at] = static_cast<std::uint8_t>(unit(at));
        });
      }
      return new_string<char16_t>(context, units, [units, unit](char16_t* to) {
        for (std::size_t at = 0; at < units; ++at) to[at] = unit(at);
      });
    }
    case Encoding::base64:
    case Encoding::base64url:
    case Encoding::hex:
      return new_string<std::uint8_t>(context, digits_of(bytes.size(), encoding),
                                      [bytes, encoding](std::uint8_t* to) { write_digits(bytes, encoding, to); });
  }
  return JS_UNDEFINED;
}

/// The part of the bytes from argument `first` to the next one.
std::optional<std::span<const std::uint8_t>> part(JSContext* context, int count, JSValueConst* arguments, int first) {
  const auto bytes = bytes_argument(context, argument(count, arguments, 0));
  if (!bytes) return std::nullopt;
  const auto begin = index_argument(context, argument(count, arguments, first), bytes->size(), 0);
  if (!begin) return std::nullopt;
  const auto end = index_argument(context, argument(count, arguments, first + 1), bytes->size(), bytes->size());
  if (!end) return std::nullopt;
  // The arguments' conversion may have run a script that changed the buffer.
  const auto again = bytes_argument(context, arguments[0]);
  if (!again) return std::nullopt;
  const std::size_t last = std::min(*end, again->size());
  return std::span<const std::uint8_t>(*again).subspan(std::min(*begin, last), last - std::min(*begin, last));
}

/// decode(bytes, encoding, start, end) -> string
JSValue decode(JSContext* context, JSValueConst, int count, JSValueConst* arguments) {
  const auto encoding = encoding_argument(context, argument(count, arguments, 1));
  if (!encoding) return JS_EXCEPTION;
  const auto bytes = part(context, count, arguments, 2);
  return bytes ? decode_bytes(context, *bytes, *encoding) : JS_EXCEPTION;
}

/// decodeUtf8(bytes, start, end, fatal) -> string; undefined if the bytes are invalid and `fatal` is set
JSValue decode_utf8_checked(JSContext* context, JSValueConst, int count, JSValueConst* arguments) {
  const bool fatal = JS_ToBool(context, argument(count, arguments, 3)) > 0;
  const auto bytes = part(context, count, arguments, 1);
  if (!bytes) return JS_EXCEPTION;
  const Utf8Facts facts = inspect_utf8(*bytes);
  return fatal && !facts.valid ? JS_UNDEFINED : utf8_string(context, *bytes, facts);
}

/// partialUtf8(bytes) -> the number of bytes at the end that may begin a character, 0 to 3
JSValue partial_utf8(JSContext* context, JSValueConst, int count, JSValueConst* arguments) {
  const auto bytes = bytes_argument(context, argument(count, arguments, 0));
  if (!bytes) return JS_EXCEPTION;
  // A partial character has at most 3 bytes. The bytes before it do not matter.
  const std::size_t tail = std::min<std::size_t>(bytes->size(), 3);
  std::size_t begin = bytes->size() - tail;
  while (begin < bytes->size() && ((*bytes)[begin] & 0xC0) == 0x80) ++begin;
  return JS_NewUint32(context, static_cast<std::uint32_t>(inspect_utf8(bytes->subspan(begin)).partial));
}

/// byteLength(string) -> bytes in UTF-8
JSValue byte_length(JSContext* context, JSValueConst, int count, JSValueConst* arguments) {
  const auto characters = characters_of(context, argument(count, arguments, 0));
  if (!characters) return JS_EXCEPTION;
  return JS_NewInt64(context, static_cast<std::int64_t>(utf8_bytes(*characters)));
}

/// writeInto(target, string, offset, length, encoding) -> bytes written
JSValue write_into(JSContext* context, JSValueConst, int count, JSValueConst* arguments) {
  const auto encoding = encoding_argument(context, argument(count, arguments, 4));
  if (!encoding) return JS_EXCEPTION;
  double length = 0;
  if (JS_ToFloat64(context, &length, argument(count, arguments, 3)) != 0) return JS_EXCEPTION;
  double offset = 0;
  if (JS_ToFloat64(context, &offset, argument(count, arguments, 2)) != 0) return JS_EXCEPTION;
  const auto target = bytes_argument(context, argument(count, arguments, 0));
  const auto characters = target ? characters_of(context, argument(count, arguments, 1)) : std::nullopt;
  if (!characters) return JS_EXCEPTION;
  if (!(offset >= 0 && offset <= static_cast<double>(target->size()))) {
    return throw_coded(context, ErrorClass::range, "ERR_BUFFER_OUT_OF_BOUNDS", "\"offset\" is outside of buffer bounds");
  }
  Bytes to = target->subspan(static_cast<std::size_t>(offset));
  if (length >= 0 && length < static_cast<double>(to.size())) to = to.first(static_cast<std::size_t>(length));
  return JS_NewInt64(context, static_cast<std::int64_t>(webserver::encode(*characters, *encoding, to)));
}

/// encodeInto(string, target) -> [units read, bytes written], for TextEncoder
JSValue encode_into(JSContext* context, JSValueConst, int count, JSValueConst* arguments) {
  const auto characters = characters_of(context, argument(count, arguments, 0));
  const auto target = characters ? bytes_argument(context, argument(count, arguments, 1)) : std::nullopt;
  if (!target) return JS_EXCEPTION;
  const std::size_t written = webserver::encode(*characters, Encoding::utf8, *target);
  const std::size_t read = inspect_utf8(target->first(written)).units;
  const JSValue values[] = {JS_NewInt64(context, static_cast<std::int64_t>(read)),
                            JS_NewInt64(context, static_cast<std::int64_t>(written))};
  return JS_NewArrayFrom(context, 2, values);
}

/// compare(first, second) -> -1, 0 or 1
JSValue compare(JSContext* context, JSValueConst, int count, JSValueConst* arguments) {
  const auto first = bytes_argument(context, argument(count, arguments, 0));
  const auto second = first ? bytes_argument(context, argument(count, arguments, 1)) : std::nullopt;
  if (!second) return JS_EXCEPTION;
  const std::size_t common = std::min(first->size(), second->size());
  int order = common == 0 ? 0 : std::memcmp(first->data(), second->data(), common);
  if (order == 0) order = first->size() < second->size() ? -1 : first->size() > second->size() ? 1 : 0;
  return JS_NewInt32(context, order < 0 ? -1 : order > 0 ? 1 : 0);
}

/// indexOf(haystack, needle, from, forward, step) -> index or -1. `step` 2 finds only even distances (UTF-16).
JSValue index_of(JSContext* context, JSValueConst, int count, JSValueConst* arguments) {
  double from = 0;
  if (JS_ToFloat64(context, &from, argument(count, arguments, 2)) != 0) return JS_EXCEPTION;
  const bool forward = JS_ToBool(context, argument(count, arguments, 3)) > 0;
  std::int32_t step = 1;
  if (count > 4 && JS_ToInt32(context, &step, arguments[4]) != 0) return JS_EXCEPTION;
  const auto haystack = bytes_argument(context, argument(count, arguments, 0));
  const auto needle = haystack ? bytes_argument(context, argument(count, arguments, 1)) : std::nullopt;
  if (!needle) return JS_EXCEPTION;
  const JSValue none = JS_NewInt32(context, -1);
  if (needle->empty() || needle->size() > haystack->size() || !(from >= 0)) return none;
  const auto last = static_cast<std::int64_t>(haystack->size() - needle->size());
  std::int64_t at = from > static_cast<double>(last) ? (forward ? last + 1 : last) : static_cast<std::int64_t>(from);
  const std::int64_t move = step == 2 ? 2 : 1;
  if (move == 2 && at % 2 != 0) at += forward ? 1 : -1;
  while (at >= 0 && at <= last) {
    if (forward && move == 1) {
      // memchr skips to the next possible begin.
      const void* const found = std::memchr(haystack->data() + at, (*needle)[0], static_cast<std::size_t>(last - at + 1));
      if (found == nullptr) return none;
      at = static_cast<const std::uint8_t*>(found) - haystack->data();
    }
    if (std::memcmp(haystack->data() + at, needle->data(), needle->size()) == 0) return JS_NewInt64(context, at);
    at += forward ? move : -move;
  }
  return none;
}

/// fill(target, pattern, start, end)
JSValue fill(JSContext* context, JSValueConst, int count, JSValueConst* arguments) {
  const auto pattern_length = bytes_argument(context, argument(count, arguments, 1));
  const auto part_of = pattern_length ? part(context, count, arguments, 2) : std::nullopt;
  if (!part_of) return JS_EXCEPTION;
  const auto pattern = bytes_argument(context, arguments[1]);
  if (!pattern) return JS_EXCEPTION;
  const Bytes to(const_cast<std::uint8_t*>(part_of->data()), part_of->size());
  if (pattern->empty() || to.empty()) return JS_UNDEFINED;
  if (pattern->size() == 1) {
    std::memset(to.data(), (*pattern)[0], to.size());
    return JS_UNDEFINED;
  }
  // Each step doubles what is there. The pattern may overlap with the target, so its first copy is a move.
  std::size_t done = std::min(pattern->size(), to.size());
  std::memmove(to.data(), pattern->data(), done);
  while (done < to.size()) {
    const std::size_t more = std::min(done, to.size() - done);
    std::memcpy(to.data() + done, to.data(), more);
    done += more;
  }
  return JS_UNDEFINED;
}

const JSCFunctionListEntry text_functions[] = {
    JS_CFUNC_DEF("encode", 2, encode),
    JS_CFUNC_DEF("decode", 4, decode),
    JS_CFUNC_DEF("decodeUtf8", 4, decode_utf8_checked),
    JS_CFUNC_DEF("partialUtf8", 1, partial_utf8),
    JS_CFUNC_DEF("byteLength", 1, byte_length),
    JS_CFUNC_DEF("writeInto", 5, write_into),
    JS_CFUNC_DEF("encodeInto", 2, encode_into),
    JS_CFUNC_DEF("compare", 2, compare),
    JS_CFUNC_DEF("indexOf", 5, index_of),
    JS_CFUNC_DEF("fill", 4, fill),
};

}  // namespace

bool fill_text_binding(Engine& engine, JSValueConst target) {
  return JS_SetPropertyFunctionList(engine.context(), target, text_functions, std::size(text_functions)) == 0;
}

}  // namespace neap::webserver
