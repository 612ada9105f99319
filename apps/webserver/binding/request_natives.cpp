// SPDX-License-Identifier: BSL-1.0
// The properties of a request: IncomingMessage.prototype.
#include <algorithm>
#include <array>
#include <memory>
#include <new>
#include <span>
#include <string_view>

#include "apps/webserver/binding/message.hpp"
#include "net/address.hpp"

namespace neap::webserver {

namespace {

using Fields = std::span<const http::HeaderField>;

/// Node keeps the first value of these fields, and joins those of all others by ", ".
constexpr std::array<std::string_view, 18> single_fields{
    "age",           "authorization", "content-length", "content-type",        "etag",
    "expires",       "from",          "host",           "if-modified-since",   "if-unmodified-since",
    "last-modified", "location",      "max-forwards",   "proxy-authorization", "referer",
    "retry-after",   "server",        "user-agent"};

bool is_single(std::string_view lower) noexcept { return std::ranges::find(single_fields, lower) != single_fields.end(); }

/// The name of a field in lower case: in a buffer on the stack, as nearly all names are short.
class LowerName {
 public:
  explicit LowerName(std::string_view name) noexcept {
    const std::size_t bytes = std::min(name.size(), buffer_.size());
    for (std::size_t at = 0; at < bytes; ++at) {
      const char letter = name[at];
      buffer_[at] = static_cast<char>(letter >= 'A' && letter <= 'Z' ? letter + ('a' - 'A') : letter);
    }
    text_ = {buffer_.data(), bytes};
  }
  [[nodiscard]] std::string_view text() const noexcept { return text_; }

 private:
  std::array<char, 1024> buffer_;
  std::string_view text_;
};

/// Joins two strings with text between them. Takes over `before`.
JSValue joined(JSContext* context, JSValue before, std::string_view between, std::string_view behind) noexcept {
  const Value held(context, before);
  const auto first = latin1_view(context, before);
  if (!first) return JS_ThrowTypeError(context, "a field is no text");
  const std::size_t bytes = first->size() + between.size() + behind.size();
  const std::unique_ptr<char[]> text(new (std::nothrow) char[bytes]);
  if (text == nullptr) return JS_ThrowOutOfMemory(context);
  char* at = text.get();
  for (const std::string_view part : {*first, between, behind}) at = std::ranges::copy(part, at).out;
  return new_latin1(context, {text.get(), bytes});
}

/// Adds a field to an object by Node's rules.
bool add_field(JSContext* context, JSValueConst to, const http::HeaderField& field, bool distinct) noexcept {
  const LowerName name(field.name);
  const JSAtom atom = JS_NewAtomLen(context, name.text().data(), name.text().size());
  if (atom == JS_ATOM_NULL) return false;
  const bool list = distinct || name.text() == "set-cookie";
  JSValue present = JS_GetProperty(context, to, atom);
  bool done = !JS_IsException(present);
  if (done && JS_IsUndefined(present)) {
    JSValue value = new_latin1(context, field.value);
    if (list && !JS_IsException(value)) {
      const JSValue array = JS_NewArray(context);
      if (JS_IsException(array) || JS_SetPropertyUint32(context, array, 0, value) < 0) {
        JS_FreeValue(context, array);
        value = JS_EXCEPTION;
      } else {
        value = array;
      }
    }
    done = !JS_IsException(value) && JS_DefinePropertyValue(context, to, atom, value, JS_PROP_C_W_E) >= 0;
  } else if (done && list) {
    std::int64_t count = 0;
    const JSValue value = new_latin1(context, field.value);
    done =
        !JS_IsException(value) && JS_GetLength(context, present, &count) >= 0 && JS_SetPropertyInt64(context, present, count, value) >= 0;
    JS_FreeValue(context, present);
  } else if (done && !is_single(name.text())) {
    const JSValue value = joined(context, present, name.text() == "cookie" ? "; " : ", ", field.value);
    done = !JS_IsException(value) && JS_SetProperty(context, to, atom, value) >= 0;
  } else {
    JS_FreeValue(context, present);
  }
  JS_FreeAtom(context, atom);
  return done;
}

JSValue fields_object(JSContext* context, Fields fields, bool distinct) noexcept {
  const JSValue object = JS_NewObject(context);
  if (JS_IsException(object)) return object;
  for (const http::HeaderField& field : fields) {
    if (!add_field(context, object, field, distinct)) {
      JS_FreeValue(context, object);
      return JS_EXCEPTION;
    }
  }
  return object;
}

JSValue fields_array(JSContext* context, Fields fields) noexcept {
  const JSValue array = JS_NewArray(context);
  if (JS_IsException(array)) return array;
  std::uint32_t at = 0;
  for (const http::HeaderField& field : fields) {
    for (const std::string_view text : {field.name, field.value}) {
      const JSValue value = new_latin1(context, text);
      if (JS_IsException(value) || JS_SetPropertyUint32(context, array, at++, value) < 0) {
        JS_FreeValue(context, array);
        return JS_EXCEPTION;
      }
    }
  }
  return array;
}

/// The message of an object; null without an exchange: undefined is returned then, because the property has been copied.
Message* readable(JSContext* context, JSValueConst self) noexcept {
  Message* const message = RequestNatives::of(context, self);
  return message != nullptr && message->exchange ? message : nullptr;
}

JSValue get_method(JSContext* context, JSValueConst self, int, JSValueConst*) {
  Message* const message = readable(context, self);
  return message == nullptr ? JS_UNDEFINED : message->binding->method_value(message->exchange->method());
}

JSValue get_url(JSContext* context, JSValueConst self, int, JSValueConst*) {
  Message* const message = readable(context, self);
  if (message == nullptr) return JS_UNDEFINED;
  if (JS_IsUndefined(message->url)) {
    const JSValue made = new_latin1(context, message->exchange->target());
    if (JS_IsException(made)) return made;
    message->url = made;
  }
  return JS_DupValue(context, message->url);
}

JSValue get_headers(JSContext* context, JSValueConst self, int, JSValueConst*) {
  Message* const message = readable(context, self);
  if (message == nullptr) return JS_UNDEFINED;
  if (JS_IsUndefined(message->headers)) {
    const JSValue made = fields_object(context, message->exchange->headers(), false);
    if (JS_IsException(made)) return made;
    message->headers = made;
  }
  return JS_DupValue(context, message->headers);
}

JSValue get_raw_headers(JSContext* context, JSValueConst self, int, JSValueConst*) {
  Message* const message = readable(context, self);
  return message == nullptr ? JS_UNDEFINED : fields_array(context, message->exchange->headers());
}
JSValue get_headers_distinct(JSContext* context, JSValueConst self, int, JSValueConst*) {
  Message* const message = readable(context, self);
  return message == nullptr ? JS_UNDEFINED : fields_object(context, message->exchange->headers(), true);
}
JSValue get_trailers(JSContext* context, JSValueConst self, int, JSValueConst*) {
  Message* const message = readable(context, self);
  return message == nullptr ? JS_UNDEFINED : fields_object(context, message->exchange->trailers(), false);
}
JSValue get_raw_trailers(JSContext* context, JSValueConst self, int, JSValueConst*) {
  Message* const message = readable(context, self);
  return message == nullptr ? JS_UNDEFINED : fields_array(context, message->exchange->trailers());
}
JSValue get_trailers_distinct(JSContext* context, JSValueConst self, int, JSValueConst*) {
  Message* const message = readable(context, self);
  return message == nullptr ? JS_UNDEFINED : fields_object(context, message->exchange->trailers(), true);
}

JSValue get_version(JSContext* context, JSValueConst self, int, JSValueConst*) {
  Message* const message = readable(context, self);
  return message == nullptr ? JS_UNDEFINED : new_latin1(context, message->exchange->minor_version() == 0 ? "1.0" : "1.1");
}
JSValue get_version_major(JSContext* context, JSValueConst self, int, JSValueConst*) {
  return readable(context, self) == nullptr ? JS_UNDEFINED : JS_NewInt32(context, 1);
}
JSValue get_version_minor(JSContext* context, JSValueConst self, int, JSValueConst*) {
  Message* const message = readable(context, self);
  return message == nullptr ? JS_UNDEFINED : JS_NewInt32(context, static_cast<int>(message->exchange->minor_version()));
}
JSValue get_complete(JSContext* context, JSValueConst self, int, JSValueConst*) {
  Message* const message = readable(context, self);
  return message == nullptr ? JS_UNDEFINED : JS_NewBool(context, message->exchange->body_complete());
}
JSValue get_has_body(JSContext* context, JSValueConst self, int, JSValueConst*) {
  Message* const message = readable(context, self);
  return message == nullptr ? JS_UNDEFINED : JS_NewBool(context, message->exchange->has_body());
}

struct Property {
  const char* name;
  JSCFunction* get;
};
constexpr Property properties[] = {
    {"method", &get_method},
    {"url", &get_url},
    {"httpVersion", &get_version},
    {"httpVersionMajor", &get_version_major},
    {"httpVersionMinor", &get_version_minor},
    {"headers", &get_headers},
    {"rawHeaders", &get_raw_headers},
    {"headersDistinct", &get_headers_distinct},
    {"trailers", &get_trailers},
    {"rawTrailers", &get_raw_trailers},
    {"trailersDistinct", &get_trailers_distinct},
    {"complete", &get_complete},
    {"_hasBody", &get_has_body},
};

/// A script may assign properties of a request, as middleware does. The value then hides the accessor.
JSValue assign(JSContext* context, JSValueConst self, int, JSValueConst* arguments, int property) {
  const int done = JS_DefinePropertyValueStr(context, self, properties[property].name, JS_DupValue(context, arguments[0]), JS_PROP_C_W_E);
  return done < 0 ? JS_EXCEPTION : JS_UNDEFINED;
}

// --- Methods ---

JSValue start_body(JSContext* context, JSValueConst self, int, JSValueConst*) {
  Message* const message = RequestNatives::of(context, self);
  if (message == nullptr || message->wants_body) return JS_UNDEFINED;
  message->wants_body = true;
  if (message->exchange && message->exchange->has_body() && message->exchange->connected()) {
    message->exchange->read_body();
  } else {
    message->binding->report_no_body(self);
  }
  return JS_UNDEFINED;
}

JSValue pause_body(JSContext* context, JSValueConst self, int, JSValueConst*) {
  Message* const message = readable(context, self);
  if (message != nullptr && message->wants_body) message->exchange->pause_body();
  return JS_UNDEFINED;
}

JSValue resume_body(JSContext* context, JSValueConst self, int, JSValueConst*) {
  Message* const message = readable(context, self);
  if (message != nullptr && message->wants_body && message->exchange->connected()) message->exchange->read_body();
  return JS_UNDEFINED;
}

bool set_text(JSContext* context, JSValueConst object, const char* name, std::string_view text) noexcept {
  return JS_DefinePropertyValueStr(context, object, name, new_latin1(context, text), JS_PROP_C_W_E) >= 0;
}

JSValue peer(JSContext* context, JSValueConst self, int, JSValueConst*) {
  Message* const message = readable(context, self);
  const JSValue object = JS_NewObject(context);
  if (message == nullptr || !message->exchange->connected() || JS_IsException(object)) return object;
  const net::Endpoint remote = message->exchange->remote(), local = message->exchange->local();
  const bool good = set_text(context, object, "remoteAddress", remote.address.to_string()) &&
                    set_text(context, object, "localAddress", local.address.to_string()) &&
                    set_text(context, object, "remoteFamily", remote.address.is_v4() ? "IPv4" : "IPv6") &&
                    JS_DefinePropertyValueStr(context, object, "remotePort", JS_NewInt32(context, remote.port), JS_PROP_C_W_E) >= 0 &&
                    JS_DefinePropertyValueStr(context, object, "localPort", JS_NewInt32(context, local.port), JS_PROP_C_W_E) >= 0;
  if (good) return object;
  JS_FreeValue(context, object);
  return JS_EXCEPTION;
}

JSValue destroy(JSContext* context, JSValueConst self, int, JSValueConst*) {
  Message* const message = readable(context, self);
  if (message != nullptr && message->exchange->connected()) message->exchange->destroy();
  return JS_UNDEFINED;
}

JSValue observe(JSContext* context, JSValueConst self, int, JSValueConst*) {
  if (Message* const message = RequestNatives::of(context, self)) message->binding->observe(*message);
  return JS_UNDEFINED;
}

}  // namespace

Message* RequestNatives::of(JSContext*, JSValueConst self) noexcept {
  return static_cast<Message*>(JS_GetOpaque(self, HttpBinding::here().request_class_));
}

bool RequestNatives::install(HttpBinding& binding, JSValueConst prototype) noexcept {
  JSContext* const js = binding.context();
  bool good = true;
  for (int at = 0; good && at < static_cast<int>(std::size(properties)); ++at) {
    good = define_accessor(js, prototype, properties[at].name, properties[at].get,
                           JS_NewCFunctionMagic(js, &assign, properties[at].name, 1, JS_CFUNC_generic_magic, at));
  }
  return good && define_function(js, prototype, "_startBody", &start_body, 0) &&
         define_function(js, prototype, "_pauseBody", &pause_body, 0) && define_function(js, prototype, "_resumeBody", &resume_body, 0) &&
         define_function(js, prototype, "_peer", &peer, 0) && define_function(js, prototype, "_destroy", &destroy, 0) &&
         define_function(js, prototype, "_observe", &observe, 0);
}

// Too many requests are kept: this one's properties become values of the script's own memory.
void HttpBinding::copy_request(Message& message) noexcept {
  counters_.messages_copied.add();
  JSContext* const js = context();
  const JSValueConst object = message.request_object;
  if (!JS_IsUndefined(object)) {
    for (const Property& each : properties) {
      const JSValue value = JS_GetPropertyStr(js, object, each.name);
      if (JS_IsException(value) || JS_DefinePropertyValueStr(js, object, each.name, value, JS_PROP_C_W_E) < 0) {
        (void)engine_.uncaught();
        break;
      }
    }
  }
  message.exchange = {};
}

}  // namespace neap::webserver
