// SPDX-License-Identifier: BSL-1.0
// The methods of a response that send it: writeHead, write, end. Node's checks and errors, in Node's order.
#include <optional>
#include <span>
#include <string_view>

#include "apps/webserver/binding/message.hpp"
#include "apps/webserver/binding/response_fields.hpp"

namespace neap::webserver {

namespace {

JSValue refuse_sent(JSContext* context, const char* what) noexcept {
  return throw_coded(context, ErrorClass::plain, "ERR_HTTP_HEADERS_SENT", what);
}

/// True if the script may still answer. After a failure the client has its answer, and calls of the script have no effect.
bool answerable(const Message& message) noexcept { return !message.failed && !message.closed && message.exchange; }

http::ResponseHead head_of(JSContext* context, const Message& message) noexcept {
  http::ResponseHead head{
      .status = static_cast<unsigned>(message.status), .lines = message.lines.text(), .contained = message.lines.contained()};
  head.date = message.send_date;
  head.length = message.lines.length();
  if (!JS_IsUndefined(message.reason)) [[unlikely]]
    head.reason = latin1_view(context, message.reason).value_or(std::string_view());
  return head;
}

/// Makes the lines of a head that the script has not made by writeHead. Returns false if an exception was thrown.
bool make_head(JSContext* context, Message& message) noexcept {
  if (message.head_made) return true;
  if (!check_status(context, message.status)) return false;
  if (!message.stored.empty() && !add_stored_lines(context, message)) return false;
  message.head_made = true;
  return true;
}

/// Sends the head. The body follows in pieces.
bool start(JSContext* context, Message& message) noexcept {
  if (message.started) return true;
  if (!make_head(context, message)) return false;
  message.started = true;
  if (!answerable(message)) return true;
  if (!message.keep_alive) message.exchange->set_close();
  (void)message.exchange->start(head_of(context, message));
  return true;
}

/// The bytes of a chunk: a string's UTF-8, or those of a typed array. A string of ASCII, and a typed array, are used in place.
class Chunk {
 public:
  Chunk(JSContext* context, JSValueConst chunk, JSValueConst encoding) noexcept {
    if (JS_IsString(chunk)) {
      bool one_byte = false;
      if (!JS_IsUndefined(encoding) && !JS_IsNull(encoding)) {
        const auto name = latin1_view(context, encoding);
        if (name && (*name == "latin1" || *name == "binary")) {
          one_byte = true;
        } else if (name && *name != "utf8" && *name != "utf-8") {
          throw_coded(context, ErrorClass::type, "ERR_UNKNOWN_ENCODING", "Unknown encoding");
          return;
        }
      }
      if (one_byte) {
        if (const auto text = latin1_view(context, chunk))
          set(std::as_bytes(std::span(*text)));
        else
          throw_coded(context, ErrorClass::type, "ERR_INVALID_ARG_VALUE", "The string has characters beyond latin1");
        return;
      }
      text_.emplace(context, chunk);
      if (*text_) set(std::as_bytes(std::span(**text_)));
      return;
    }
    if (const auto bytes = bytes_of(context, chunk)) {
      set(*bytes);
      return;
    }
    throw_coded(context, ErrorClass::type, "ERR_INVALID_ARG_TYPE",
                "The \"chunk\" argument must be of type string or an instance of Buffer, TypedArray, or DataView");
  }
  /// False: an exception was thrown.
  [[nodiscard]] explicit operator bool() const noexcept { return valid_; }
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return bytes_; }

 private:
  void set(std::span<const std::byte> bytes) noexcept {
    bytes_ = bytes;
    valid_ = true;
  }
  std::optional<Utf8View> text_;
  std::span<const std::byte> bytes_;
  bool valid_ = false;
};

/// Ends the response. Returns false if an exception was thrown.
bool finish(JSContext* context, Message& message, std::span<const std::byte> last) noexcept {
  if (!make_head(context, message)) return false;
  message.finished = true;
  if (!answerable(message)) return true;
  Exchange& exchange = *message.exchange;
  if (!message.started && message.trailers.empty()) [[likely]] {
    const http::FieldFlags contained = message.lines.contained();
    message.started = true;
    if (!message.keep_alive) [[unlikely]]
      exchange.set_close();
    // A length of the script that is not the body's, as for HEAD, and a body that the script wants chunked.
    const bool other_length = contained.content_length && message.lines.length() != last.size();
    if (!other_length && !contained.transfer_encoding) [[likely]] {
      (void)exchange.respond(head_of(context, message), last);
      return true;
    }
    (void)exchange.start(head_of(context, message));
    (void)exchange.end(last);
    return true;
  }
  if (!start(context, message)) return false;
  if (message.trailers.empty()) {
    (void)exchange.end(last);
  } else {
    if (!last.empty()) (void)exchange.write(last);
    (void)exchange.end_with_trailers(message.trailers.text());
  }
  return true;
}

bool is_nothing(JSValueConst value) noexcept { return JS_IsUndefined(value) || JS_IsNull(value); }

/// end([chunk[, encoding]][, callback]). A callback, and the encodings that only the library knows, are left to `_endSlow`.
JSValue end(JSContext* context, JSValueConst self, int count, JSValueConst* arguments) {
  Message* const message = ResponseNatives::of(context, self);
  if (message == nullptr) return JS_ThrowTypeError(context, "not a response");
  bool slow = message->corked || message->finished;
  // Middleware such as on-headers replaces `writeHead` of the object, to add fields at the last moment. The library calls that function.
  if (!message->head_made) slow = slow || JS_GetOwnProperty(context, nullptr, self, HttpBinding::here().write_head()) > 0;
  for (int at = 0; at < count && at < 3; ++at) slow = slow || JS_IsFunction(context, arguments[at]);
  if (slow || (count > 1 && !is_nothing(arguments[1]))) [[unlikely]]
    return JS_Invoke(context, self, HttpBinding::here().end_slow(), count, arguments);
  if (count == 0 || is_nothing(arguments[0])) {
    if (!finish(context, *message, {})) return JS_EXCEPTION;
  } else {
    const Chunk chunk(context, arguments[0], JS_UNDEFINED);
    if (!chunk || !finish(context, *message, chunk.bytes())) return JS_EXCEPTION;
  }
  return JS_DupValue(context, self);
}

/// _end([chunk[, encoding]]): the end without any event or callback.
JSValue end_raw(JSContext* context, JSValueConst self, int count, JSValueConst* arguments) {
  Message* const message = ResponseNatives::of(context, self);
  if (message == nullptr) return JS_ThrowTypeError(context, "not a response");
  if (message->finished) return JS_UNDEFINED;
  if (count == 0 || is_nothing(arguments[0])) return finish(context, *message, {}) ? JS_UNDEFINED : JS_EXCEPTION;
  const Chunk chunk(context, arguments[0], count > 1 ? arguments[1] : JS_UNDEFINED);
  return chunk && finish(context, *message, chunk.bytes()) ? JS_UNDEFINED : JS_EXCEPTION;
}

/// _write(chunk[, encoding]): true if more may be written, false if `_onDrain` follows.
JSValue write_raw(JSContext* context, JSValueConst self, int count, JSValueConst* arguments) {
  Message* const message = ResponseNatives::of(context, self);
  if (message == nullptr || count == 0) return JS_ThrowTypeError(context, "not a response, or no chunk");
  if (message->finished) return throw_coded(context, ErrorClass::plain, "ERR_STREAM_WRITE_AFTER_END", "write after end");
  const Chunk chunk(context, arguments[0], count > 1 ? arguments[1] : JS_UNDEFINED);
  if (!chunk || !start(context, *message)) return JS_EXCEPTION;
  if (!answerable(*message)) return JS_TRUE;
  const Exchange::Written written = message->exchange->write(chunk.bytes());
  return JS_NewBool(context, written != Exchange::Written::wait);
}

JSValue flush_headers(JSContext* context, JSValueConst self, int, JSValueConst*) {
  Message* const message = ResponseNatives::of(context, self);
  if (message == nullptr || message->finished) return JS_UNDEFINED;
  return start(context, *message) ? JS_UNDEFINED : JS_EXCEPTION;
}

/// writeHead(status[, reason][, headers])
JSValue write_head(JSContext* context, JSValueConst self, int count, JSValueConst* arguments) {
  Message* const message = ResponseNatives::of(context, self);
  if (message == nullptr || count == 0) return JS_ThrowTypeError(context, "not a response, or no status");
  if (message->head_made) return refuse_sent(context, "Cannot write headers after they are sent to the client");
  std::int32_t status = 0;
  if (JS_ToInt32(context, &status, arguments[0]) < 0 || !check_status(context, status)) return JS_EXCEPTION;
  int at = 1;
  if (count > at && JS_IsString(arguments[at])) {
    const auto reason = latin1_view(context, arguments[at]);
    if (!reason || !http::valid_reason(*reason)) {
      return throw_coded(context, ErrorClass::type, "ERR_INVALID_CHAR", "Invalid character in statusMessage");
    }
    JS_FreeValue(context, message->reason);
    message->reason = JS_DupValue(context, arguments[at]);
    ++at;
  } else if (count > at + 1 && is_nothing(arguments[at])) {
    ++at;
  }
  if (count > at && JS_IsObject(arguments[at])) {
    if (!add_given_lines(context, *message, arguments[at])) {
      message->lines.clear();
      return JS_EXCEPTION;
    }
  } else if (!message->stored.empty() && !add_stored_lines(context, *message)) {
    message->lines.clear();
    return JS_EXCEPTION;
  }
  message->status = status;
  message->head_made = true;
  return JS_DupValue(context, self);
}

JSValue add_trailers(JSContext* context, JSValueConst self, int count, JSValueConst* arguments) {
  Message* const message = ResponseNatives::of(context, self);
  if (message == nullptr || count == 0 || !JS_IsObject(arguments[0])) return JS_UNDEFINED;
  return add_lines_of(context, message->trailers, arguments[0]) ? JS_UNDEFINED : JS_EXCEPTION;
}

JSValue write_continue(JSContext* context, JSValueConst self, int, JSValueConst*) {
  Message* const message = ResponseNatives::of(context, self);
  if (message != nullptr && answerable(*message)) message->exchange->send_continue();
  return JS_UNDEFINED;
}

/// _takeContinue(): the body's first read sends no 100 Continue by itself.
JSValue take_continue(JSContext* context, JSValueConst self, int, JSValueConst*) {
  Message* const message = ResponseNatives::of(context, self);
  if (message != nullptr && answerable(*message)) message->exchange->take_continue();
  return JS_UNDEFINED;
}

/// _inform(status, headers): an informational response.
JSValue inform(JSContext* context, JSValueConst self, int count, JSValueConst* arguments) {
  Message* const message = ResponseNatives::of(context, self);
  if (message == nullptr || message->started || !answerable(*message)) return JS_UNDEFINED;
  std::int32_t status = 0;
  if (count == 0 || JS_ToInt32(context, &status, arguments[0]) < 0) return JS_EXCEPTION;
  HeaderLines lines;
  if (count > 1 && JS_IsObject(arguments[1]) && !add_lines_of(context, lines, arguments[1])) return JS_EXCEPTION;
  (void)message->exchange->inform(static_cast<unsigned>(status), lines.text());
  return JS_UNDEFINED;
}

JSValue destroy(JSContext* context, JSValueConst self, int, JSValueConst*) {
  Message* const message = ResponseNatives::of(context, self);
  if (message != nullptr && message->exchange && message->exchange->connected()) message->exchange->destroy();
  return JS_UNDEFINED;
}

JSValue observe(JSContext* context, JSValueConst self, int, JSValueConst*) {
  if (Message* const message = ResponseNatives::of(context, self)) message->binding->observe(*message);
  return JS_UNDEFINED;
}

/// _cork(on): while corked, `end` goes to the library.
JSValue cork(JSContext* context, JSValueConst self, int count, JSValueConst* arguments) {
  Message* const message = ResponseNatives::of(context, self);
  if (message != nullptr && count != 0) message->corked = JS_ToBool(context, arguments[0]) > 0;
  return JS_UNDEFINED;
}

}  // namespace

Message* ResponseNatives::of(JSContext*, JSValueConst self) noexcept {
  return static_cast<Message*>(JS_GetOpaque(self, HttpBinding::here().response_class_));
}

bool ResponseNatives::install(HttpBinding& binding, JSValueConst prototype) noexcept {
  JSContext* const js = binding.context();
  struct Function {
    const char* name;
    JSCFunction* function;
    int length;
  };
  constexpr Function functions[] = {
      {"writeHead", &write_head, 1},
      {"end", &end, 2},
      {"_end", &end_raw, 2},
      {"_write", &write_raw, 2},
      {"flushHeaders", &flush_headers, 0},
      {"addTrailers", &add_trailers, 1},
      {"_writeContinue", &write_continue, 0},
      {"_takeContinue", &take_continue, 0},
      {"_inform", &inform, 2},
      {"_destroy", &destroy, 0},
      {"_observe", &observe, 0},
      {"_cork", &cork, 1},
  };
  for (const Function& each : functions) {
    if (!define_function(js, prototype, each.name, each.function, each.length)) return false;
  }
  return install_response_fields(js, prototype);
}

}  // namespace neap::webserver
