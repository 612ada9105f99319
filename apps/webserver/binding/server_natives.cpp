// SPDX-License-Identifier: BSL-1.0
// The functions of the binding `http`: classes, listening servers and their limits.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <new>

#include "apps/webserver/binding/message.hpp"

namespace neap::webserver {

namespace {

JSValue argument(int count, JSValueConst* arguments, int at) noexcept { return at < count ? arguments[at] : JS_UNDEFINED; }

/// Reads a number of an options object into `to`, if the property is there. Numbers beyond the range take its end. False: an exception.
bool read_number(JSContext* context, JSValueConst options, const char* name, std::uint32_t& to) noexcept {
  const Value value(context, JS_GetPropertyStr(context, options, name));
  if (JS_IsException(value.get())) return false;
  if (JS_IsUndefined(value.get()) || JS_IsNull(value.get())) return true;
  double number = 0;
  if (JS_ToFloat64(context, &number, value.get()) < 0) return false;
  if (std::isnan(number)) return true;
  constexpr double most = std::numeric_limits<std::uint32_t>::max();
  to = static_cast<std::uint32_t>(std::clamp(number, 0.0, most));
  return true;
}

}  // namespace

struct ServerNatives {
  static JSValue install(JSContext* context, JSValueConst, int count, JSValueConst* arguments) {
    HttpBinding& binding = HttpBinding::here();
    const JSValueConst classes = argument(count, arguments, 0);
    if (!JS_IsUndefined(binding.request_prototype_)) return JS_ThrowTypeError(context, "the classes are installed already");
    for (const auto& [name, prototype] :
         {std::pair{"IncomingMessage", &binding.request_prototype_}, std::pair{"ServerResponse", &binding.response_prototype_}}) {
      const Value made(context, JS_GetPropertyStr(context, classes, name));
      if (JS_IsException(made.get())) return JS_EXCEPTION;
      const JSValue found = JS_GetPropertyStr(context, made.get(), "prototype");
      if (JS_IsException(found)) return JS_EXCEPTION;
      *prototype = found;
    }
    return RequestNatives::install(binding, binding.request_prototype_) && ResponseNatives::install(binding, binding.response_prototype_)
               ? JS_UNDEFINED
               : JS_EXCEPTION;
  }

  /// The record of a server object, which is made if it does not exist.
  static ScriptServer* known(JSContext* context, JSValueConst object) noexcept {
    HttpBinding& binding = HttpBinding::here();
    if (!JS_IsObject(object)) {
      JS_ThrowTypeError(context, "a server is needed");
      return nullptr;
    }
    if (ScriptServer* const server = binding.find(object)) return server;
    constexpr std::size_t servers_max = 256;
    binding.sweep_servers();
    if (binding.servers_.size() >= servers_max) {
      throw_coded(context, ErrorClass::plain, "EMFILE", "too many servers");
      return nullptr;
    }
    try {
      binding.servers_.push_back(std::make_unique<ScriptServer>(binding.core_, binding));
    } catch (const std::bad_alloc&) {
      JS_ThrowOutOfMemory(context);
      return nullptr;
    }
    binding.servers_.back()->object = JS_DupValue(context, object);
    return binding.servers_.back().get();
  }

  static JSValue listen(JSContext* context, JSValueConst, int count, JSValueConst* arguments) {
    HttpBinding& binding = HttpBinding::here();
    std::int32_t port = 0;
    if (JS_ToInt32(context, &port, argument(count, arguments, 1)) < 0) return JS_EXCEPTION;
    if (port < 1 || port > 65'535) {
      return throw_coded(context, ErrorClass::range, "ERR_SOCKET_BAD_PORT",
                         "A port from 1 to 65535 is needed: there is no free port to choose");
    }
    ScriptServer* const server = known(context, argument(count, arguments, 0));
    if (server == nullptr) return JS_EXCEPTION;
    if (server->port != 0) {
      return throw_coded(context, ErrorClass::plain, "ERR_SERVER_ALREADY_LISTEN",
                         "Listen method has been called more than once without closing.");
    }
    const auto wanted = static_cast<std::uint16_t>(port);
    if (binding.find(wanted) != nullptr) return throw_coded(context, ErrorClass::plain, "EADDRINUSE", "address already in use");
    server->port = wanted;
    binding.opener_.open(binding, wanted);
    return JS_UNDEFINED;
  }

  static JSValue close(JSContext* context, JSValueConst, int count, JSValueConst* arguments) {
    HttpBinding& binding = HttpBinding::here();
    ScriptServer* const server = binding.find(argument(count, arguments, 0));
    if (server == nullptr || server->port == 0) {
      return throw_coded(context, ErrorClass::plain, "ERR_SERVER_NOT_RUNNING", "Server is not running.");
    }
    server->port = 0;
    server->listening = false;
    server->http.drain();
    server->http.close_connections(false);
    binding.report_closed_servers();
    return JS_UNDEFINED;
  }

  static JSValue close_connections(JSContext* context, JSValueConst, int count, JSValueConst* arguments) {
    HttpBinding& binding = HttpBinding::here();
    if (ScriptServer* const server = binding.find(argument(count, arguments, 0))) {
      server->http.close_connections(JS_ToBool(context, argument(count, arguments, 1)) > 0);
    }
    return JS_UNDEFINED;
  }

  static JSValue connections(JSContext* context, JSValueConst, int count, JSValueConst* arguments) {
    const ScriptServer* const server = HttpBinding::here().find(argument(count, arguments, 0));
    return JS_NewInt32(context, server == nullptr ? 0 : static_cast<int>(server->http.connections()));
  }

  static JSValue set_handler(JSContext* context, JSValueConst, int count, JSValueConst* arguments) {
    ScriptServer* const server = known(context, argument(count, arguments, 0));
    if (server == nullptr) return JS_EXCEPTION;
    if (!JS_IsFunction(context, argument(count, arguments, 1))) return JS_ThrowTypeError(context, "a handler is needed");
    JS_FreeValue(context, server->handler);
    server->handler = JS_DupValue(context, arguments[1]);
    return JS_UNDEFINED;
  }

  static JSValue set_client_error(JSContext* context, JSValueConst, int count, JSValueConst* arguments) {
    ScriptServer* const server = known(context, argument(count, arguments, 0));
    if (server == nullptr) return JS_EXCEPTION;
    server->client_error = JS_ToBool(context, argument(count, arguments, 1)) > 0;
    return JS_UNDEFINED;
  }

  static JSValue set_options(JSContext* context, JSValueConst, int count, JSValueConst* arguments) {
    ScriptServer* const server = known(context, argument(count, arguments, 0));
    const JSValueConst options = argument(count, arguments, 1);
    if (server == nullptr) return JS_EXCEPTION;
    if (!JS_IsObject(options)) return JS_ThrowTypeError(context, "options are needed");
    Limits& limits = server->http.limits;
    const bool good = read_number(context, options, "keepAliveTimeout", limits.keep_alive_timeout_ms) &&
                      read_number(context, options, "headersTimeout", limits.head_timeout_ms) &&
                      read_number(context, options, "requestTimeout", limits.request_timeout_ms) &&
                      read_number(context, options, "maxHeaderSize", limits.request.head_bytes_max) &&
                      read_number(context, options, "maxRequestsPerSocket", limits.requests_per_connection_max) &&
                      read_number(context, options, "maxConnections", limits.connections_max);
    // The parser's memory for one head stays bounded, whatever a script says.
    constexpr std::uint32_t head_bytes_least = 512, head_bytes_most = 256 * 1024;
    limits.request.head_bytes_max = std::clamp(limits.request.head_bytes_max, head_bytes_least, head_bytes_most);
    if (const std::uint32_t most = HttpBinding::here().settings_.connections_max; most != 0) {
      limits.connections_max = limits.connections_max == 0 ? most : std::min(limits.connections_max, most);
    }
    limits.request.target_bytes_max = std::max<std::uint32_t>(8 * 1024, limits.request.head_bytes_max / 2);
    server->http.limits_changed();
    return good ? JS_UNDEFINED : JS_EXCEPTION;
  }
};

bool HttpBinding::fill(JSValueConst target) noexcept {
  JSContext* const js = context();
  // An object that is freed gives up its message. The values of `setHeader` may refer to the response, so the collector visits them.
  static constexpr JSClassDef request_class = {
      .class_name = "IncomingMessage",
      .finalizer =
          [](JSRuntime*, JSValueConst object) {
            HttpBinding& binding = here();
            if (auto* const message = static_cast<Message*>(JS_GetOpaque(object, binding.request_class_))) {
              message->request_object = JS_UNDEFINED;
              binding.release(*message);
            }
          },
      .gc_mark = nullptr,
      .call = nullptr,
      .exotic = nullptr};
  static constexpr JSClassDef response_class = {
      .class_name = "ServerResponse",
      .finalizer =
          [](JSRuntime*, JSValueConst object) {
            HttpBinding& binding = here();
            if (auto* const message = static_cast<Message*>(JS_GetOpaque(object, binding.response_class_))) {
              message->response_object = JS_UNDEFINED;
              binding.release(*message);
            }
          },
      .gc_mark =
          [](JSRuntime* runtime, JSValueConst object, JS_MarkFunc* mark) {
            if (const auto* const message = static_cast<Message*>(JS_GetOpaque(object, here().response_class_))) {
              for (const StoredHeader& header : message->stored) JS_MarkValue(runtime, header.value, mark);
            }
          },
      .call = nullptr,
      .exotic = nullptr};
  request_class_ = engine_.new_class(request_class);
  response_class_ = engine_.new_class(response_class);
  struct Function {
    const char* name;
    JSCFunction* function;
    int length;
  };
  constexpr Function functions[] = {
      {"install", &ServerNatives::install, 1},
      {"listen", &ServerNatives::listen, 3},
      {"close", &ServerNatives::close, 1},
      {"closeConnections", &ServerNatives::close_connections, 2},
      {"connections", &ServerNatives::connections, 1},
      {"setHandler", &ServerNatives::set_handler, 2},
      {"setOptions", &ServerNatives::set_options, 2},
      {"setClientError", &ServerNatives::set_client_error, 2},
  };
  return request_class_ != 0 && response_class_ != 0 && std::ranges::all_of(functions, [&](const Function& each) {
           return define_function(js, target, each.name, each.function, each.length);
         });
}

// A closed server's script is told when the last connection has ended. That is rare, so a timer looks once a second.
void HttpBinding::report_closed_servers() noexcept {
  bool waits = false;
  for (const auto& server : servers_) {
    if (server->port != 0 || !server->http.draining()) continue;
    if (server->http.connections() != 0) {
      waits = true;
    } else if (!server->close_reported) {
      server->close_reported = true;
      JSValueConst none = JS_UNDEFINED;
      (void)notify(server->object, closed_name_, {&none, 0});
    }
  }
  sweep_servers();
  using namespace std::chrono_literals;
  if (waits) closing_timer_.arm(1s, [this] { report_closed_servers(); });
}

}  // namespace neap::webserver
