// SPDX-License-Identifier: BSL-1.0
// An exchange and its two objects of JavaScript. Internal to binding/.
#pragma once

#include <cstdint>
#include <vector>

#include "apps/webserver/binding/header_lines.hpp"
#include "apps/webserver/binding/http_binding.hpp"

namespace neap::webserver {

/// A field that the script has set by `setHeader`, as it gave it.
struct StoredHeader {
  JSValue name, value;
};

/// The part of a message that begins anew with each request.
struct MessageState {
  std::int32_t status = 200;
  bool head_made = false;   ///< `lines` is complete: by writeHead, or before the first byte
  bool started = false;     ///< the exchange has the head
  bool finished = false;    ///< the script has ended the response
  bool sent = false;        ///< the network has it
  bool closed = false;      ///< the exchange was closed
  bool aborted = false;     ///< and was not complete then
  bool kept = false;        ///< counted in `messages_kept`
  bool observed = false;    ///< the response's events have listeners
  bool wants_body = false;  ///< the request's body goes to `_onBody`
  bool send_date = true;
  bool keep_alive = true;   ///< the script's shouldKeepAlive
  bool corked = false;      ///< `end` goes to the library
  bool failed = false;      ///< the handler has failed: further writes of the script are ignored
  bool in_handler = false;  ///< the handler's turn is not over
};

struct Message : MessageState {
  HttpBinding* binding = nullptr;
  ExchangeReference exchange;             ///< empty after `HttpBinding::copy_request`
  JSValue request = JS_UNDEFINED;         ///< held until the exchange is closed
  JSValue response = JS_UNDEFINED;        ///< the same
  JSValue request_object = JS_UNDEFINED;  ///< the same objects without a reference; undefined when the object is freed
  JSValue response_object = JS_UNDEFINED;
  JSValue url = JS_UNDEFINED;        ///< made at its first use
  JSValue headers = JS_UNDEFINED;    ///< the same
  JSValue reason = JS_UNDEFINED;     ///< the script's statusMessage
  std::vector<StoredHeader> stored;  ///< of setHeader
  HeaderLines lines;                 ///< the head's fields, once `head_made`
  HeaderLines trailers;
  Message* next_spare = nullptr;
  std::uint8_t holders = 0;  ///< the request object, the response object, the open exchange, and the call of the handler
};

/// The index of a stored field, without regard to case; -1: none.
[[nodiscard]] int find_stored(JSContext* context, const Message& message, std::string_view name) noexcept;

/// Adds a function to an object, as built-in functions are: writable, configurable, not enumerable. False: out of memory.
[[nodiscard]] bool define_function(JSContext* context, JSValueConst object, const char* name, JSCFunction* function, int length) noexcept;
/// Adds a property with a getter and a setter, a function or undefined, which is taken over.
[[nodiscard]] bool define_accessor(JSContext* context, JSValueConst object, const char* name, JSCFunction* get, JSValue setter) noexcept;

/// The natives of IncomingMessage.prototype.
struct RequestNatives {
  [[nodiscard]] static bool install(HttpBinding& binding, JSValueConst prototype) noexcept;
  static Message* of(JSContext* context, JSValueConst self) noexcept;
};
/// The natives of ServerResponse.prototype.
struct ResponseNatives {
  [[nodiscard]] static bool install(HttpBinding& binding, JSValueConst prototype) noexcept;
  static Message* of(JSContext* context, JSValueConst self) noexcept;
};

}  // namespace neap::webserver
