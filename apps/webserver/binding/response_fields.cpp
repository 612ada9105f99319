// SPDX-License-Identifier: BSL-1.0
#include "apps/webserver/binding/response_fields.hpp"

#include <algorithm>
#include <array>
#include <new>
#include <string_view>
#include <type_traits>

namespace neap::webserver {

namespace {

/// Calls `use(name, value)` for each field of an object's own properties, of a flat array of names and values, or of an array of pairs.
/// Stops, and returns false, when `use` returns false or an exception was thrown.
template <typename Use>
bool for_each_field(JSContext* context, JSValueConst given, Use&& use) noexcept {
  if (JS_IsArray(given)) {
    std::int64_t count = 0;
    if (JS_GetLength(context, given, &count) < 0) return false;
    for (std::int64_t at = 0; at < count; ++at) {
      const Value first(context, JS_GetPropertyInt64(context, given, at));
      if (JS_IsException(first.get())) return false;
      if (JS_IsArray(first.get())) {
        const Value name(context, JS_GetPropertyUint32(context, first.get(), 0));
        const Value value(context, JS_GetPropertyUint32(context, first.get(), 1));
        if (JS_IsException(name.get()) || JS_IsException(value.get()) || !use(name.get(), value.get())) return false;
        continue;
      }
      if (++at == count) {
        throw_coded(context, ErrorClass::type, "ERR_INVALID_ARG_VALUE", "The argument 'headers' has a name without a value");
        return false;
      }
      const Value value(context, JS_GetPropertyInt64(context, given, at));
      if (JS_IsException(value.get()) || !use(first.get(), value.get())) return false;
    }
    return true;
  }
  // The usual object is visited in place, which saves a list of names and some 400 instructions.
  using UseType = std::remove_reference_t<Use>;
  const auto visit = [](JSContext*, void* opaque, JSValueConst name, JSValueConst value) -> int {
    return (*static_cast<UseType*>(opaque))(name, value) ? 0 : -1;
  };
  if (const int visited = JS_VisitStringProperties(context, given, visit, &use); visited != 0) return visited > 0;
  JSPropertyEnum* names = nullptr;
  std::uint32_t count = 0;
  if (JS_GetOwnPropertyNames(context, &names, &count, given, JS_GPN_STRING_MASK | JS_GPN_ENUM_ONLY) < 0) return false;
  bool good = true;
  for (std::uint32_t at = 0; at < count && good; ++at) {
    const Value name(context, JS_AtomToString(context, names[at].atom));
    const Value value(context, JS_GetProperty(context, given, names[at].atom));
    good = !JS_IsException(name.get()) && !JS_IsException(value.get()) && use(name.get(), value.get());
  }
  JS_FreePropertyEnum(context, names, count);
  return good;
}

/// Calls `use` with the characters of a name.
template <typename Use>
bool with_name(JSContext* context, JSValueConst name, Use&& use) noexcept {
  if (const auto text = latin1_view(context, name)) return use(*text);
  throw_coded(context, ErrorClass::type, "ERR_INVALID_HTTP_TOKEN", "Header name must be a valid HTTP token");
  return false;
}

Message* settable(JSContext* context, JSValueConst self, const char* refusal) noexcept {
  Message* const message = ResponseNatives::of(context, self);
  if (message == nullptr) {
    JS_ThrowTypeError(context, "not a response");
    return nullptr;
  }
  if (message->head_made) {
    throw_coded(context, ErrorClass::plain, "ERR_HTTP_HEADERS_SENT", refusal);
    return nullptr;
  }
  return message;
}

bool store(JSContext* context, Message& message, JSValueConst name, JSValueConst value) noexcept {
  return with_name(context, name, [&](std::string_view text) {
    if (!HeaderLines::check(context, text, value)) return false;
    if (const int at = find_stored(context, message, text); at >= 0) {
      StoredHeader& present = message.stored[static_cast<std::size_t>(at)];
      JS_FreeValue(context, present.name);
      JS_FreeValue(context, present.value);
      present = {.name = JS_DupValue(context, name), .value = JS_DupValue(context, value)};
      return true;
    }
    constexpr std::size_t stored_max = 1000;
    if (message.stored.size() >= stored_max) {
      throw_coded(context, ErrorClass::range, "ERR_OUT_OF_RANGE", "A response has at most 1000 fields");
      return false;
    }
    try {
      message.stored.push_back({.name = JS_UNDEFINED, .value = JS_UNDEFINED});
    } catch (const std::bad_alloc&) {
      JS_ThrowOutOfMemory(context);
      return false;
    }
    message.stored.back() = {.name = JS_DupValue(context, name), .value = JS_DupValue(context, value)};
    return true;
  });
}

/// A stored name in lower case.
JSValue lower_name(JSContext* context, JSValueConst name) noexcept {
  const auto text = latin1_view(context, name);
  if (!text) return JS_UNDEFINED;
  std::array<char, 256> lower;
  const std::size_t bytes = std::min(text->size(), lower.size());
  for (std::size_t at = 0; at < bytes; ++at) {
    const char letter = (*text)[at];
    lower[at] = static_cast<char>(letter >= 'A' && letter <= 'Z' ? letter + ('a' - 'A') : letter);
  }
  return new_latin1(context, {lower.data(), bytes});
}

// --- Methods ---

JSValue set_header(JSContext* context, JSValueConst self, int count, JSValueConst* arguments) {
  Message* const message = settable(context, self, "Cannot set headers after they are sent to the client");
  if (message == nullptr) return JS_EXCEPTION;
  const JSValueConst name = count > 0 ? arguments[0] : JS_UNDEFINED, value = count > 1 ? arguments[1] : JS_UNDEFINED;
  return store(context, *message, name, value) ? JS_DupValue(context, self) : JS_EXCEPTION;
}

JSValue append_header(JSContext* context, JSValueConst self, int count, JSValueConst* arguments) {
  Message* const message = settable(context, self, "Cannot append headers after they are sent to the client");
  if (message == nullptr) return JS_EXCEPTION;
  if (count < 2) return JS_ThrowTypeError(context, "a name and a value are needed");
  int present = -1;
  if (!with_name(context, arguments[0], [&](std::string_view text) {
        present = find_stored(context, *message, text);
        return HeaderLines::check(context, text, arguments[1]);
      })) {
    return JS_EXCEPTION;
  }
  if (present < 0) return store(context, *message, arguments[0], arguments[1]) ? JS_DupValue(context, self) : JS_EXCEPTION;
  // The values so far and the new ones become one array.
  const Value all(context, JS_NewArray(context));
  if (JS_IsException(all.get())) return JS_EXCEPTION;
  std::int64_t end = 0;
  for (const JSValueConst part : {message->stored[static_cast<std::size_t>(present)].value, arguments[1]}) {
    std::int64_t parts = 1;
    const bool list = JS_IsArray(part);
    if (list && JS_GetLength(context, part, &parts) < 0) return JS_EXCEPTION;
    for (std::int64_t at = 0; at < parts; ++at) {
      const JSValue one = list ? JS_GetPropertyInt64(context, part, at) : JS_DupValue(context, part);
      if (JS_IsException(one) || JS_SetPropertyInt64(context, all.get(), end++, one) < 0) return JS_EXCEPTION;
    }
  }
  return store(context, *message, arguments[0], all.get()) ? JS_DupValue(context, self) : JS_EXCEPTION;
}

JSValue get_header(JSContext* context, JSValueConst self, int count, JSValueConst* arguments) {
  Message* const message = ResponseNatives::of(context, self);
  const auto name = count > 0 ? latin1_view(context, arguments[0]) : std::nullopt;
  if (message == nullptr || !name) return JS_UNDEFINED;
  const int at = find_stored(context, *message, *name);
  return at < 0 ? JS_UNDEFINED : JS_DupValue(context, message->stored[static_cast<std::size_t>(at)].value);
}

JSValue has_header(JSContext* context, JSValueConst self, int count, JSValueConst* arguments) {
  Message* const message = ResponseNatives::of(context, self);
  const auto name = count > 0 ? latin1_view(context, arguments[0]) : std::nullopt;
  return JS_NewBool(context, message != nullptr && name && find_stored(context, *message, *name) >= 0);
}

JSValue remove_header(JSContext* context, JSValueConst self, int count, JSValueConst* arguments) {
  Message* const message = settable(context, self, "Cannot remove headers after they are sent to the client");
  if (message == nullptr) return JS_EXCEPTION;
  const auto name = count > 0 ? latin1_view(context, arguments[0]) : std::nullopt;
  const int at = name ? find_stored(context, *message, *name) : -1;
  if (at < 0) return JS_UNDEFINED;
  const StoredHeader removed = message->stored[static_cast<std::size_t>(at)];
  message->stored.erase(message->stored.begin() + at);
  JS_FreeValue(context, removed.name);
  JS_FreeValue(context, removed.value);
  return JS_UNDEFINED;
}

JSValue get_headers(JSContext* context, JSValueConst self, int, JSValueConst*) {
  Message* const message = ResponseNatives::of(context, self);
  Value object(context, JS_NewObjectProto(context, JS_NULL));
  if (message == nullptr || JS_IsException(object.get())) return object.release();
  for (const StoredHeader& header : message->stored) {
    const Value name(context, lower_name(context, header.name));
    const JSAtom atom = JS_ValueToAtom(context, name.get());
    const int done =
        atom == JS_ATOM_NULL ? -1 : JS_DefinePropertyValue(context, object.get(), atom, JS_DupValue(context, header.value), JS_PROP_C_W_E);
    JS_FreeAtom(context, atom);
    if (done < 0) return JS_EXCEPTION;
  }
  return object.release();
}

template <bool lower>
JSValue get_names(JSContext* context, JSValueConst self, int, JSValueConst*) {
  Message* const message = ResponseNatives::of(context, self);
  Value array(context, JS_NewArray(context));
  if (message == nullptr || JS_IsException(array.get())) return array.release();
  std::uint32_t at = 0;
  for (const StoredHeader& header : message->stored) {
    const JSValue name = lower ? lower_name(context, header.name) : JS_DupValue(context, header.name);
    if (JS_IsException(name) || JS_SetPropertyUint32(context, array.get(), at++, name) < 0) return JS_EXCEPTION;
  }
  return array.release();
}

// --- Accessors ---

JSValue get_status(JSContext* context, JSValueConst self, int, JSValueConst*) {
  Message* const message = ResponseNatives::of(context, self);
  return message == nullptr ? JS_UNDEFINED : JS_NewInt32(context, message->status);
}
JSValue set_status(JSContext* context, JSValueConst self, int, JSValueConst* arguments) {
  Message* const message = ResponseNatives::of(context, self);
  std::int32_t status = 0;
  if (JS_ToInt32(context, &status, arguments[0]) < 0) return JS_EXCEPTION;
  if (message != nullptr && !message->started) message->status = status;
  return JS_UNDEFINED;
}

JSValue get_reason(JSContext* context, JSValueConst self, int, JSValueConst*) {
  Message* const message = ResponseNatives::of(context, self);
  if (message == nullptr) return JS_UNDEFINED;
  if (!JS_IsUndefined(message->reason) || !message->head_made) return JS_DupValue(context, message->reason);
  return new_latin1(context, http::usual_reason(static_cast<unsigned>(message->status)));
}
JSValue set_reason(JSContext* context, JSValueConst self, int, JSValueConst* arguments) {
  Message* const message = ResponseNatives::of(context, self);
  if (message == nullptr) return JS_UNDEFINED;
  if (!JS_IsUndefined(arguments[0])) {
    const auto text = latin1_view(context, arguments[0]);
    if (!text || !http::valid_reason(*text)) {
      return throw_coded(context, ErrorClass::type, "ERR_INVALID_CHAR", "Invalid character in statusMessage");
    }
  }
  JS_FreeValue(context, message->reason);
  message->reason = JS_DupValue(context, arguments[0]);
  return JS_UNDEFINED;
}

template <bool MessageState::* member>
JSValue get_flag(JSContext* context, JSValueConst self, int, JSValueConst*) {
  Message* const message = ResponseNatives::of(context, self);
  return message == nullptr ? JS_UNDEFINED : JS_NewBool(context, message->*member);
}
template <bool MessageState::* member>
JSValue set_flag(JSContext* context, JSValueConst self, int, JSValueConst* arguments) {
  Message* const message = ResponseNatives::of(context, self);
  if (message != nullptr) message->*member = JS_ToBool(context, arguments[0]) > 0;
  return JS_UNDEFINED;
}

JSValue get_writable_finished(JSContext* context, JSValueConst self, int, JSValueConst*) {
  Message* const message = ResponseNatives::of(context, self);
  return message == nullptr ? JS_UNDEFINED
                            : JS_NewBool(context, message->finished && (message->sent || message->closed) && !message->aborted);
}
JSValue get_destroyed(JSContext* context, JSValueConst self, int, JSValueConst*) {
  Message* const message = ResponseNatives::of(context, self);
  return message == nullptr ? JS_UNDEFINED : JS_NewBool(context, message->closed);
}
JSValue get_length(JSContext* context, JSValueConst self, int, JSValueConst*) {
  Message* const message = ResponseNatives::of(context, self);
  if (message == nullptr || !message->exchange || !message->exchange->connected()) return JS_NewInt32(context, 0);
  return JS_NewInt64(context, static_cast<std::int64_t>(message->exchange->bytes_in_flight()));
}
JSValue get_expects_continue(JSContext* context, JSValueConst self, int, JSValueConst*) {
  Message* const message = ResponseNatives::of(context, self);
  return JS_NewBool(context, message != nullptr && message->exchange && message->exchange->expects_continue());
}
JSValue get_request(JSContext* context, JSValueConst self, int, JSValueConst*) {
  Message* const message = ResponseNatives::of(context, self);
  return message == nullptr ? JS_UNDEFINED : JS_DupValue(context, message->request_object);
}

}  // namespace

bool check_status(JSContext* context, std::int32_t status) noexcept {
  if (status >= 200 && status <= 999) return true;
  throw_coded(context, ErrorClass::range, "ERR_HTTP_INVALID_STATUS_CODE",
              status >= 100 && status < 200
                  ? "A status from 100 to 199 does not end a request: writeContinue, writeProcessing, writeEarlyHints"
                  : "Invalid status code");
  return false;
}

bool add_stored_lines(JSContext* context, Message& message) noexcept {
  for (const StoredHeader& header : message.stored) {
    const bool good =
        with_name(context, header.name, [&](std::string_view name) { return message.lines.add(context, name, header.value); });
    if (!good) return false;
  }
  return true;
}

bool add_lines_of(JSContext* context, HeaderLines& lines, JSValueConst given) noexcept {
  return for_each_field(context, given, [&](JSValueConst name, JSValueConst value) {
    return with_name(context, name, [&](std::string_view text) { return lines.add(context, text, value); });
  });
}

bool add_given_lines(JSContext* context, Message& message, JSValueConst given) noexcept {
  if (message.stored.empty()) return add_lines_of(context, message.lines, given);
  return for_each_field(context, given, [&](JSValueConst name, JSValueConst value) { return store(context, message, name, value); }) &&
         add_stored_lines(context, message);
}

bool install_response_fields(JSContext* context, JSValueConst prototype) noexcept {
  struct Function {
    const char* name;
    JSCFunction* function;
    int length;
  };
  constexpr Function functions[] = {
      {"setHeader", &set_header, 2},           {"appendHeader", &append_header, 2},         {"getHeader", &get_header, 1},
      {"hasHeader", &has_header, 1},           {"removeHeader", &remove_header, 1},         {"getHeaders", &get_headers, 0},
      {"getHeaderNames", &get_names<true>, 0}, {"getRawHeaderNames", &get_names<false>, 0},
  };
  for (const Function& each : functions) {
    if (!define_function(context, prototype, each.name, each.function, each.length)) return false;
  }
  struct Property {
    const char* name;
    JSCFunction *get, *set;
  };
  constexpr Property properties[] = {
      {"statusCode", &get_status, &set_status},
      {"statusMessage", &get_reason, &set_reason},
      {"headersSent", &get_flag<&MessageState::head_made>, nullptr},
      {"writableEnded", &get_flag<&MessageState::finished>, nullptr},
      {"finished", &get_flag<&MessageState::finished>, nullptr},
      {"writableFinished", &get_writable_finished, nullptr},
      {"sendDate", &get_flag<&MessageState::send_date>, &set_flag<&MessageState::send_date>},
      {"shouldKeepAlive", &get_flag<&MessageState::keep_alive>, &set_flag<&MessageState::keep_alive>},
      {"_closed", &get_destroyed, nullptr},
      {"_bytesInFlight", &get_length, nullptr},
      {"_expectsContinue", &get_expects_continue, nullptr},
      {"_request", &get_request, nullptr},
  };
  for (const Property& each : properties) {
    const JSValue setter = each.set == nullptr ? JS_UNDEFINED : JS_NewCFunction(context, each.set, each.name, 1);
    if (!define_accessor(context, prototype, each.name, each.get, setter)) return false;
  }
  return true;
}

}  // namespace neap::webserver
