// SPDX-License-Identifier: BSL-1.0
#include "apps/webserver/binding/http_binding.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include "apps/webserver/binding/message.hpp"
#include "apps/webserver/session.hpp"
#include "kernel/panic.hpp"

namespace neap::webserver {

namespace {

constexpr unsigned spare_max = 64;
constinit thread_local HttpBinding* binding_here = nullptr;

void free_values(JSContext* context, std::initializer_list<JSValue*> values) noexcept {
  for (JSValue* value : values) JS_FreeValue(context, std::exchange(*value, JS_UNDEFINED));
}

/// A microtask: calls the method `arguments[1]` of the object `arguments[0]` with the rest.
JSValue call_later(JSContext* context, int count, JSValueConst* arguments) {
  const JSAtom method = JS_ValueToAtom(context, arguments[1]);
  const Value function(context, JS_GetProperty(context, arguments[0], method));
  JS_FreeAtom(context, method);
  if (!JS_IsFunction(context, function.get())) return JS_UNDEFINED;
  return JS_Call(context, function.get(), arguments[0], count - 2, arguments + 2);
}

}  // namespace

HttpBinding::HttpBinding(Engine& engine, HttpCore& core, PortOpener& opener, const Settings& settings)
    : settings_(settings), engine_(engine), core_(core), opener_(opener) {
  binding_here = this;
  method_names_.fill(JS_UNDEFINED);
  JSContext* const js = context();
  on_body_ = Atom(js, "_onBody");
  on_aborted_ = Atom(js, "_onAborted");
  on_finish_ = Atom(js, "_onFinish");
  on_close_ = Atom(js, "_onClose");
  on_drain_ = Atom(js, "_onDrain");
  end_slow_ = Atom(js, "_endSlow");
  write_head_ = Atom(js, "writeHead");
  listening_name_ = Atom(js, "_listening");
  closed_name_ = Atom(js, "_closed");
  client_error_ = Atom(js, "_clientError");
  engine_.add_binding("http", [this](Engine&, JSValueConst target) { return fill(target); });
}

HttpBinding::~HttpBinding() {
  JSContext* const js = context();
  while (spare_ != nullptr) delete_message(*std::exchange(spare_, spare_->next_spare));
  for (auto& server : servers_) free_values(js, {&server->object, &server->handler});
  for (JSValue& name : method_names_) JS_FreeValue(js, name);
  free_values(js, {&request_prototype_, &response_prototype_});
  if (binding_here == this) binding_here = nullptr;
}

HttpBinding& HttpBinding::here() noexcept {
  require(binding_here != nullptr, "webserver: this core has no binding");
  return *binding_here;
}

JSValue HttpBinding::method_value(http::Method method) noexcept {
  JSValue& name = method_names_[static_cast<std::size_t>(method) % method_names_.size()];
  if (JS_IsUndefined(name)) {
    const JSValue made = new_latin1(context(), http::method_name(method));
    if (JS_IsException(made)) return made;
    name = made;
  }
  return JS_DupValue(context(), name);
}

// --- Messages ---

Message* HttpBinding::new_message(Exchange& exchange) noexcept {
  Message* message = spare_;
  if (message != nullptr) [[likely]] {
    spare_ = message->next_spare;
    --spare_count_;
  } else {
    message = new (std::nothrow) Message;
    if (message == nullptr) return nullptr;
    message->binding = this;
  }
  message->exchange = ExchangeReference(exchange);
  return message;
}

bool HttpBinding::make_objects(Message& message) noexcept {
  JSContext* const js = context();
  message.request = JS_NewObjectProtoClass(js, request_prototype_, request_class_);
  message.response = JS_NewObjectProtoClass(js, response_prototype_, response_class_);
  if (JS_IsException(message.request) || JS_IsException(message.response)) {
    free_values(js, {&message.request, &message.response});
    return false;
  }
  message.request_object = message.request;
  message.response_object = message.response;
  JS_SetOpaque(message.request, &message);
  JS_SetOpaque(message.response, &message);
  return true;
}

/// Gives up all that belongs to the message's request, but not its objects.
void HttpBinding::clear_message(Message& message) noexcept {
  JSContext* const js = context();
  if (!message.stored.empty()) [[unlikely]] {
    for (const StoredHeader& header : message.stored) {
      JS_FreeValue(js, header.name);
      JS_FreeValue(js, header.value);
    }
    message.stored.clear();
  }
  for (JSValue* value : {&message.url, &message.headers, &message.reason}) {
    if (!JS_IsUndefined(*value)) JS_FreeValue(js, std::exchange(*value, JS_UNDEFINED));
  }
  message.lines.clear();
  message.trailers.clear();
  message.exchange = {};
  static_cast<MessageState&>(message) = {};
}

void HttpBinding::keep_spare(Message& message) noexcept {
  if (spare_count_ >= spare_max || message.stored.capacity() > 64) return delete_message(message);
  message.next_spare = std::exchange(spare_, &message);
  ++spare_count_;
}

void HttpBinding::delete_message(Message& message) noexcept {
  JSContext* const js = context();
  for (JSValue* object : {&message.request, &message.response}) {
    if (JS_IsUndefined(*object)) continue;
    JS_SetOpaque(*object, nullptr);
    JS_FreeValue(js, std::exchange(*object, JS_UNDEFINED));
  }
  delete &message;
}

void HttpBinding::release(Message& message) noexcept {
  require(message.holders != 0, "webserver: a message without holders is released", message.holders);
  if (--message.holders != 0) return;
  if (message.kept) counters_.messages_kept.subtract(1);
  clear_message(message);
  keep_spare(message);
}

void HttpBinding::request(Exchange& exchange) {
  auto& server = *static_cast<ScriptServer*>(exchange.server().context);
  Message* const message = new_message(exchange);
  if (message == nullptr) return fail(exchange, Engine::Outcome::out_of_memory);
  exchange.context = message;
  message->holders = 1;
  if (JS_IsUndefined(message->request) && !make_objects(*message)) [[unlikely]]
    return fail(exchange, engine_.uncaught());
  message->holders = 4;
  message->in_handler = true;
  JSValueConst arguments[] = {message->request, message->response};
  const Engine::Outcome outcome = engine_.call_with(server.handler, server.object, arguments, [&](JSValueConst result) noexcept {
    if (JS_IsObject(result)) [[unlikely]]
      watch_promise(*message, result);
  });
  if (outcome != Engine::Outcome::ok) [[unlikely]]
    fail(exchange, outcome);
  message->in_handler = false;
  if (message->closed) {
    end_message(*message);
  } else {
    release(*message);
  }
}

/// The exchange is closed, and its handler has returned. Gives up the message's last holder beside the objects.
void HttpBinding::end_message(Message& message) noexcept {
  // Nearly always the script has given up both objects, and has not changed them. They then serve the next request.
  if (message.holders == 3 && JS_IsUntouchedObject(message.request, request_prototype_) &&
      JS_IsUntouchedObject(message.response, response_prototype_)) [[likely]] {
    clear_message(message);
    keep_spare(message);
    return;
  }
  free_values(context(), {&message.request, &message.response});
  if (message.holders > 1) note_kept(message);
  release(message);
}

/// From now on only the script holds the message's objects.
void HttpBinding::note_kept(Message& message) noexcept {
  message.kept = true;
  counters_.messages_kept.add();
  if (counters_.messages_kept.value() > kept_max) copy_request(message);
}

void HttpBinding::fail(Exchange& exchange, Engine::Outcome outcome) noexcept {
  auto* const message = static_cast<Message*>(exchange.context);
  if (message != nullptr && (message->failed || message->finished || message->closed)) return;
  if (message != nullptr) message->failed = true;
  counters_.handler_errors.add();
  if (outcome == Engine::Outcome::timeout) counters_.handler_timeouts.add();
  if (outcome == Engine::Outcome::out_of_memory) counters_.handler_no_memory.add();
  if (!exchange.connected()) return;
  if (message != nullptr && message->started) return exchange.destroy();
  constexpr std::string_view text = "Internal Server Error\n";
  if (message != nullptr) message->started = message->finished = true;
  (void)exchange.respond({.status = 500, .lines = "Content-Type: text/plain\r\n"}, std::as_bytes(std::span(text)));
}

// A rejection is an exception that comes later. Other results of a handler have no meaning.
void HttpBinding::watch_promise(Message& message, JSValueConst promise) noexcept {
  JSContext* const js = context();
  const JSPromiseStateEnum state = JS_PromiseState(js, promise);
  if (state != JS_PROMISE_PENDING && state != JS_PROMISE_REJECTED) return;
  const auto rejected = [](JSContext* in, JSValueConst, int count, JSValueConst* arguments, int, JSValueConst* data) -> JSValue {
    Message* const failed = ResponseNatives::of(in, data[0]);
    if (failed == nullptr) return JS_UNDEFINED;
    JS_Throw(in, JS_DupValue(in, count > 0 ? arguments[0] : JS_UNDEFINED));
    HttpBinding& binding = *failed->binding;
    const Engine::Outcome outcome = binding.engine_.uncaught();
    if (failed->exchange && !failed->closed) binding.fail(*failed->exchange, outcome);
    return JS_UNDEFINED;
  };
  const Value function(js, JS_NewCFunctionData(js, rejected, 1, 0, 1, &message.response));
  const Value then(js, JS_GetPropertyStr(js, promise, "then"));
  if (JS_IsException(function.get()) || JS_IsException(then.get())) return (void)engine_.uncaught();
  JSValueConst arguments[] = {JS_UNDEFINED, function.get()};
  const Value result(js, JS_Call(js, then.get(), promise, 2, arguments));
  if (JS_IsException(result.get())) (void)engine_.uncaught();
}

// --- Events of an exchange ---

Engine::Outcome HttpBinding::call_method(JSValueConst object, JSAtom method, std::span<JSValueConst> arguments) noexcept {
  const Engine::Turn turn = engine_.begin_turn();
  Engine::Outcome outcome = Engine::Outcome::ok;
  const Value result(context(), JS_Invoke(context(), object, method, static_cast<int>(arguments.size()), arguments.data()));
  if (JS_IsException(result.get())) outcome = engine_.uncaught();
  return engine_.end_turn(turn, outcome);
}

Engine::Outcome HttpBinding::notify(JSValueConst object, JSAtom method, std::span<JSValueConst> arguments) noexcept {
  if (!engine_.in_turn()) return call_method(object, method, arguments);
  JSContext* const js = context();
  require(arguments.size() <= 2, "webserver: a notification has at most two arguments", arguments.size());
  const Value name(js, JS_AtomToString(js, method));
  std::array<JSValueConst, 4> all{object, name.get()};
  std::ranges::copy(arguments, all.begin() + 2);
  if (JS_EnqueueJob(js, &call_later, static_cast<int>(2 + arguments.size()), all.data()) < 0) return engine_.uncaught();
  return Engine::Outcome::ok;
}

void HttpBinding::observe(Message& message) noexcept {
  if (message.observed) return;
  message.observed = true;
  if (!message.closed) {
    message.exchange->report_sent();
    return;
  }
  // The response was sent within the turn that adds the listener.
  if (JS_IsUndefined(message.response_object)) return;
  if (!message.aborted && !message.sent) {
    message.sent = true;
    (void)notify(message.response_object, on_finish_, {});
  }
  JSValueConst argument = message.aborted ? JS_TRUE : JS_FALSE;
  (void)notify(message.response_object, on_close_, {&argument, 1});
}

void HttpBinding::report_no_body(JSValueConst request) noexcept {
  JSValueConst argument = JS_NULL;
  (void)notify(request, on_body_, {&argument, 1});
}

void HttpBinding::body(Exchange& exchange, std::span<const std::byte> piece) {
  auto& message = *static_cast<Message*>(exchange.context);
  JSContext* const js = context();
  ++message.holders;
  const Value bytes(js, JS_NewUint8ArrayCopy(js, reinterpret_cast<const std::uint8_t*>(piece.data()), piece.size()));
  JSValueConst argument = bytes.get();
  const Engine::Outcome outcome = JS_IsException(argument) ? engine_.uncaught() : call_method(message.request, on_body_, {&argument, 1});
  if (outcome != Engine::Outcome::ok) fail(exchange, outcome);
  release(message);
}

void HttpBinding::body_end(Exchange& exchange) {
  auto& message = *static_cast<Message*>(exchange.context);
  ++message.holders;
  JSValueConst argument = JS_NULL;
  if (const auto outcome = notify(message.request, on_body_, {&argument, 1}); outcome != Engine::Outcome::ok) fail(exchange, outcome);
  release(message);
}

void HttpBinding::writable(Exchange& exchange) {
  auto& message = *static_cast<Message*>(exchange.context);
  if (!message.observed || message.failed) return;
  ++message.holders;
  if (const auto outcome = notify(message.response, on_drain_, {}); outcome != Engine::Outcome::ok) fail(exchange, outcome);
  release(message);
}

void HttpBinding::sent(Exchange& exchange) {
  auto& message = *static_cast<Message*>(exchange.context);
  if (message.sent || !message.observed) return;
  message.sent = true;
  (void)notify(message.response, on_finish_, {});
}

void HttpBinding::closed(Exchange& exchange, bool aborted) {
  auto* const message = static_cast<Message*>(exchange.context);
  if (message == nullptr) return;  // refused for lack of memory
  message->closed = true;
  message->aborted = aborted;
  if (message->observed || message->wants_body) [[unlikely]] {
    if (!aborted && message->observed && !message->sent) {
      message->sent = true;
      (void)notify(message->response, on_finish_, {});
    }
    if (aborted && !exchange.body_complete()) (void)notify(message->request, on_aborted_, {});
    JSValueConst argument = aborted ? JS_TRUE : JS_FALSE;
    (void)notify(message->response, on_close_, {&argument, 1});
  }
  if (message->in_handler) {
    release(*message);
  } else {
    end_message(*message);
  }
}

bool HttpBinding::client_error(Session& session, const http::ParseError& error) {
  auto& server = *static_cast<ScriptServer*>(session.server().context);
  if (!server.client_error) return false;
  JSContext* const js = context();
  const Value code(js, new_latin1(js, error.code)), text(js, new_latin1(js, error.text));
  JSValueConst arguments[] = {code.get(), text.get()};
  // The script's answer, a string of bytes, is the method's result; undefined stands for the usual one.
  const Engine::Turn turn = engine_.begin_turn();
  const Value result(js, JS_Invoke(js, server.object, client_error_, 2, arguments));
  Engine::Outcome outcome = Engine::Outcome::ok;
  if (JS_IsException(result.get())) outcome = engine_.uncaught();
  const auto answer = latin1_view(js, result.get());
  if (answer) session.send_error_response(std::as_bytes(std::span(*answer)));
  (void)engine_.end_turn(turn, outcome);
  return answer.has_value();
}

// --- Servers ---

std::unique_ptr<net::ConnectionHandler> HttpBinding::accept(std::uint16_t port, net::Connection& connection) {
  ScriptServer* const server = find(port);
  return server == nullptr ? nullptr : server->http.accept(connection);
}

ScriptServer* HttpBinding::find(std::uint16_t port) noexcept {
  for (const auto& server : servers_) {
    if (server->port == port) return server.get();
  }
  return nullptr;
}

ScriptServer* HttpBinding::find(JSValueConst object) noexcept {
  for (const auto& server : servers_) {
    if (JS_IsStrictEqual(context(), server->object, object)) return server.get();
  }
  return nullptr;
}

bool HttpBinding::wants_ports() const noexcept {
  return std::ranges::any_of(servers_, [](const auto& server) { return server->port != 0; });
}

void HttpBinding::port_opened(std::uint16_t port, const char* error) noexcept {
  ScriptServer* const server = find(port);
  if (server == nullptr || server->listening) return;
  server->listening = error == nullptr;
  if (error != nullptr) server->port = 0;
  JSContext* const js = context();
  const Value code(js, error == nullptr ? JS_UNDEFINED : JS_NewString(js, error));
  const Value object(js, JS_DupValue(js, server->object));
  JSValueConst argument = code.get();
  (void)call_method(object.get(), listening_name_, {&argument, 1});
}

// A server that has closed is freed with its last connection. Until then its sessions refer to it.
void HttpBinding::sweep_servers() noexcept {
  std::erase_if(servers_, [&](const std::unique_ptr<ScriptServer>& server) {
    if (server->port != 0 || server->http.connections() != 0) return false;
    free_values(context(), {&server->object, &server->handler});
    return true;
  });
}

void report_script_counters(const ScriptCounters& counters, const Emit& emit) {
  constexpr NamedCount<ScriptCounters, Counter> rows[] = {
      {"handler_errors", &ScriptCounters::handler_errors},       {"handler_timeouts", &ScriptCounters::handler_timeouts},
      {"handler_no_memory", &ScriptCounters::handler_no_memory}, {"messages_kept", &ScriptCounters::messages_kept},
      {"messages_copied", &ScriptCounters::messages_copied},
  };
  for (const auto& row : rows) emit(row.name, (counters.*row.count).value());
}

}  // namespace neap::webserver
