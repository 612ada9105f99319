// SPDX-License-Identifier: BSL-1.0
// Uncaught errors: their text, and the reports of them.
#include <algorithm>
#include <utility>

#include "apps/webserver/engine/engine_state.hpp"

namespace neap::webserver {

namespace {

constexpr std::size_t report_bytes_max = 8 << 10;
constexpr unsigned causes_max = 4;

/// A property as text; empty if it is missing or no string. A getter's error is dropped.
std::string text_property(JSContext* context, JSValueConst object, const char* name) {
  const Value property(context, JS_GetPropertyStr(context, object, name));
  if (JS_IsString(property.get())) {
    if (const Utf8View text(context, property.get()); text) return std::string(*text);
  }
  if (JS_HasException(context)) JS_FreeValue(context, JS_GetException(context));
  return {};
}

bool is_out_of_memory(JSContext* context, JSValueConst error) {
  if (JS_IsNull(error)) return true;  // not even the error could be made
  return JS_IsError(error) && text_property(context, error, "message") == "out of memory" &&
         text_property(context, error, "name") == "InternalError";
}

}  // namespace

Engine::Outcome Engine::worse(Outcome first, Outcome second) noexcept {
  if (first == Outcome::timeout || second == Outcome::timeout) return Outcome::timeout;
  return first == Outcome::ok ? second : first;
}

std::string Engine::describe(JSValueConst error) {
  std::string text;
  if (!JS_IsError(error)) {
    if (JS_IsObject(error)) text = text_property(context_, error, "stack");
    if (text.empty()) {
      if (const Utf8View string(context_, error); string) text = *string;
    }
    if (JS_HasException(context_)) JS_FreeValue(context_, JS_GetException(context_));
    return text.empty() ? std::string("(a value without text)") : text;
  }
  Value current(context_, JS_DupValue(context_, error));
  for (unsigned depth = 0;; ++depth) {
    const std::string stack = text_property(context_, current.get(), "stack");
    const std::string name = text_property(context_, current.get(), "name"), message = text_property(context_, current.get(), "message");
    // A script may change the message after the error was made.
    if (message.empty() ? !stack.empty() : stack.find(message) != stack.npos) {
      text += stack;
    } else {
      text += name + ": " + message;
      if (const auto frames = stack.find("\n    at "); frames != stack.npos) text += stack.substr(frames);
    }
    if (const std::string code = text_property(context_, current.get(), "code"); !code.empty()) text += "\n    code: " + code;
    if (depth == causes_max || text.size() > report_bytes_max) break;
    Value cause(context_, JS_GetPropertyStr(context_, current.get(), "cause"));
    if (JS_HasException(context_)) JS_FreeValue(context_, JS_GetException(context_));
    if (!JS_IsError(cause.get())) break;
    text += "\n  [cause]: ";
    current = std::move(cause);
  }
  if (text.size() > report_bytes_max) {
    text.resize(report_bytes_max);
    text += "...";
  }
  return text;
}

Engine::Outcome Engine::uncaught() noexcept {
  const Value error(context_, JS_GetException(context_));
  ++statistics_.exceptions;
  if (JS_IsUncatchableError(error.get())) {
    ++statistics_.timeouts;
    // Otherwise the report itself would be interrupted.
    JS_ClearUncatchableError(context_, error.get());
    deadline_ = 0;
    report("The watchdog ended a turn: ", error.get());
    // If this call is a part of another one, that one ends, too: its next check finds the deadline long past.
    deadline_ = 1;
    if (depth_ > 1) JS_RequestInterrupt(context_);
    return Outcome::timeout;
  }
  if (is_out_of_memory(context_, error.get())) {
    ++statistics_.out_of_memory;
    collect();
    report("The limit of memory was reached: ", error.get());
    return Outcome::out_of_memory;
  }
  if (!call_handler(state_->uncaught_handler, error.get(), JS_UNDEFINED)) report("Uncaught ", error.get());
  return Outcome::exception;
}

/// Calls a script's handler. False: there is none, or it fails, or it returned false. An error of a handler goes to no handler.
bool Engine::call_handler(JSValueConst handler, JSValueConst error, JSValueConst promise) noexcept {
  if (!JS_IsFunction(context_, handler) || state_->in_handler) return false;
  state_->in_handler = true;
  JSValueConst arguments[] = {error, promise};
  const Value function(context_, JS_DupValue(context_, handler));
  const JSValue result = JS_Call(context_, function.get(), JS_UNDEFINED, 2, arguments);
  bool handled = false;
  if (JS_IsException(result)) {
    uncaught();
  } else {
    handled = JS_ToBool(context_, result) > 0;
    free_value(result);
  }
  state_->in_handler = false;
  return handled;
}

void Engine::report(std::string_view what, JSValueConst error) noexcept {
  std::string text(what);
  text += describe(error);
  if (state_->entry_error != nullptr && state_->entry_error->empty()) *state_->entry_error = text;
  write_console(ConsoleLevel::error, text);
}

JSValue throw_coded(JSContext* context, ErrorClass error_class, const char* code, std::string_view message) noexcept {
  const int bytes = static_cast<int>(std::min<std::size_t>(message.size(), 4096));
  JSValue error = error_class == ErrorClass::type    ? JS_NewTypeError(context, "%.*s", bytes, message.data())
                  : error_class == ErrorClass::range ? JS_NewRangeError(context, "%.*s", bytes, message.data())
                                                     : JS_NewPlainError(context, "%.*s", bytes, message.data());
  if (JS_IsException(error)) return error;
  if (JS_DefinePropertyValueStr(context, error, "code", JS_NewString(context, code), JS_PROP_C_W_E) < 0) {
    JS_FreeValue(context, error);
    return JS_EXCEPTION;
  }
  return JS_Throw(context, error);
}

}  // namespace neap::webserver
