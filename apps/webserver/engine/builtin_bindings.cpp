// SPDX-License-Identifier: BSL-1.0
// The bindings of each engine, and the small ones: console, random, util.
#include <algorithm>
#include <cstring>
#include <string>

#include "apps/webserver/engine/engine_state.hpp"
#include "kernel/machine.hpp"

namespace neap::webserver {

namespace {

JSValueConst argument(int count, JSValueConst* arguments, int index) noexcept { return index < count ? arguments[index] : JS_UNDEFINED; }

/// The level of a name such as 'error' or 'warn', or of a number from 0 (debug) to 3 (error).
ConsoleLevel level_of(JSContext* context, JSValueConst value) {
  if (JS_IsNumber(value)) {
    std::int32_t number = 1;
    JS_ToInt32(context, &number, value);
    return static_cast<ConsoleLevel>(std::clamp(number, 0, 3));
  }
  const auto name = latin1_view(context, value);
  if (name == "debug" || name == "trace") return ConsoleLevel::debug;
  if (name == "warn" || name == "warning") return ConsoleLevel::warning;
  return name == "error" ? ConsoleLevel::error : ConsoleLevel::log;
}

/// write(level, text)
JSValue write(JSContext* context, JSValueConst, int count, JSValueConst* arguments) {
  const Utf8View text(context, argument(count, arguments, 1));
  if (!text) return JS_EXCEPTION;
  Engine::of(context).write_console(level_of(context, argument(count, arguments, 0)), *text);
  return JS_UNDEFINED;
}

/// fill(bytes): random bits of the machine
JSValue fill_random(JSContext* context, JSValueConst, int count, JSValueConst* arguments) {
  const auto bytes = bytes_of(context, argument(count, arguments, 0));
  if (!bytes) return JS_ThrowTypeError(context, "random bits need a buffer");
  for (std::size_t at = 0; at < bytes->size(); at += sizeof(std::uint64_t)) {
    const std::uint64_t bits = machine::random_bits();
    std::memcpy(bytes->data() + at, &bits, std::min(sizeof bits, bytes->size() - at));
  }
  return JS_DupValue(context, arguments[0]);
}

/// className(value) -> the name of its native class: 'Object', 'Map', 'Map Iterator', 'Promise', …; undefined for a value that is no object
JSValue class_name(JSContext* context, JSValueConst, int count, JSValueConst* arguments) {
  const JSClassID id = JS_GetClassID(argument(count, arguments, 0));
  if (id == JS_INVALID_CLASS_ID) return JS_UNDEFINED;
  const JSAtom atom = JS_GetClassName(JS_GetRuntime(context), id);
  const JSValue name = JS_AtomToString(context, atom);
  JS_FreeAtom(context, atom);
  return name;
}

/// getPromiseDetails(promise) -> [state, value]: 0 pending, 1 fulfilled, 2 rejected
JSValue promise_details(JSContext* context, JSValueConst, int count, JSValueConst* arguments) {
  JSValueConst promise = argument(count, arguments, 0);
  const JSPromiseStateEnum state = JS_PromiseState(context, promise);
  if (state == JS_PROMISE_NOT_A_PROMISE) return JS_UNDEFINED;
  const JSValue values[] = {JS_NewInt32(context, state), state == JS_PROMISE_PENDING ? JS_UNDEFINED : JS_PromiseResult(context, promise)};
  return JS_NewArrayFrom(context, 2, values);
}

/// proxyDetails(value) -> [target, handler], or undefined if it is no proxy
JSValue proxy_details(JSContext* context, JSValueConst, int count, JSValueConst* arguments) {
  JSValueConst proxy = argument(count, arguments, 0);
  if (!JS_IsProxy(proxy)) return JS_UNDEFINED;
  const JSValue values[] = {JS_GetProxyTarget(context, proxy), JS_GetProxyHandler(context, proxy)};
  return JS_NewArrayFrom(context, 2, values);
}

JSValue is_proxy(JSContext* context, JSValueConst, int count, JSValueConst* arguments) {
  return JS_NewBool(context, JS_IsProxy(argument(count, arguments, 0)));
}
JSValue is_promise(JSContext* context, JSValueConst, int count, JSValueConst* arguments) {
  return JS_NewBool(context, JS_IsPromise(argument(count, arguments, 0)));
}
JSValue is_async_function(JSContext* context, JSValueConst, int count, JSValueConst* arguments) {
  return JS_NewBool(context, JS_IsAsyncFunction(argument(count, arguments, 0)));
}
JSValue is_error(JSContext* context, JSValueConst, int count, JSValueConst* arguments) {
  return JS_NewBool(context, JS_IsError(argument(count, arguments, 0)));
}

const JSCFunctionListEntry console_functions[] = {JS_CFUNC_DEF("write", 2, write)};
const JSCFunctionListEntry random_functions[] = {JS_CFUNC_DEF("fill", 1, fill_random)};
const JSCFunctionListEntry util_functions[] = {
    JS_CFUNC_DEF("className", 1, class_name),       JS_CFUNC_DEF("getPromiseDetails", 1, promise_details),
    JS_CFUNC_DEF("proxyDetails", 1, proxy_details), JS_CFUNC_DEF("isProxy", 1, is_proxy),
    JS_CFUNC_DEF("isPromise", 1, is_promise),       JS_CFUNC_DEF("isAsyncFunction", 1, is_async_function),
    JS_CFUNC_DEF("isError", 1, is_error),
};

template <std::size_t count>
Engine::BindingFill functions(const JSCFunctionListEntry (&list)[count]) {
  return [&list](Engine& engine, JSValueConst target) {
    return JS_SetPropertyFunctionList(engine.context(), target, list, static_cast<int>(count)) == 0;
  };
}

}  // namespace

void add_builtin_bindings(Engine& engine) {
  engine.add_binding("console", functions(console_functions));
  engine.add_binding("random", functions(random_functions));
  engine.add_binding("util", functions(util_functions));
  engine.add_binding("modules", &fill_modules_binding);
  engine.add_binding("archive", &fill_archive_binding);
  engine.add_binding("process", &fill_process_binding);
  engine.add_binding("timers", &fill_timers_binding);
  engine.add_binding("text", &fill_text_binding);
  engine.add_binding("url", &fill_url_binding);
}

}  // namespace neap::webserver
