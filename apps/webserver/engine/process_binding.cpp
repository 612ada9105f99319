// SPDX-License-Identifier: BSL-1.0
// internalBinding('process') and internalBinding('timers').
#include <cmath>
#include <string>

#include "apps/webserver/engine/engine_state.hpp"
#include "apps/webserver/engine/timers.hpp"
#include "kernel/machine.hpp"

namespace neap::webserver {

namespace {

JSValueConst argument(int count, JSValueConst* arguments, int index) noexcept { return index < count ? arguments[index] : JS_UNDEFINED; }

JSValue no_function(JSContext* context, const char* name) {
  return throw_coded(context, ErrorClass::type, "ERR_INVALID_ARG_TYPE",
                     std::string("The \"") + name + "\" argument must be of type function.");
}

// --- Timers ------------------------------------------------------------------------------------------------------------------------------

JSValue start_timer(JSContext* context, int count, JSValueConst* arguments, bool repeat, int first_argument) {
  if (!JS_IsFunction(context, argument(count, arguments, 0))) return no_function(context, "callback");
  double delay_ms = 1;
  if (count > 1 && JS_ToFloat64(context, &delay_ms, arguments[1]) != 0) return JS_EXCEPTION;
  const int given = std::max(count - first_argument, 0);
  return Engine::of(context).timers().start(arguments[0], delay_ms, repeat, given, arguments + first_argument);
}

/// setTimeout(callback, delay_ms, ...arguments), setInterval (magic 1)
JSValue set_timer(JSContext* context, JSValueConst, int count, JSValueConst* arguments, int repeat) {
  return start_timer(context, count, arguments, repeat != 0, 2);
}
/// start(callback, delay_ms, repeat, ...arguments)
JSValue start(JSContext* context, JSValueConst, int count, JSValueConst* arguments) {
  return start_timer(context, count, arguments, JS_ToBool(context, argument(count, arguments, 2)) > 0, 3);
}
JSValue set_immediate(JSContext* context, JSValueConst, int count, JSValueConst* arguments) {
  if (!JS_IsFunction(context, argument(count, arguments, 0))) return no_function(context, "callback");
  return Engine::of(context).timers().start_immediate(arguments[0], count - 1, arguments + 1);
}
/// clearTimeout(timer), and all other functions that stop one
JSValue stop(JSContext* context, JSValueConst, int count, JSValueConst* arguments) {
  Engine::of(context).timers().stop(argument(count, arguments, 0));
  return JS_HasException(context) ? JS_EXCEPTION : JS_UNDEFINED;
}
/// ref(timer) and unref(timer): a server does not end, so this has no other effect than that of hasRef.
JSValue set_reference(JSContext* context, JSValueConst, int count, JSValueConst* arguments, int value) {
  JSValueConst timer = argument(count, arguments, 0);
  if (TimerEntry* const entry = Engine::of(context).timers().entry(timer); entry != nullptr) entry->has_reference = value != 0;
  return JS_DupValue(context, timer);
}

enum class Method : std::uint8_t { ref, unref, has_ref, refresh, close, number };
JSValue timer_method(JSContext* context, JSValueConst self, int, JSValueConst*, int magic) {
  Timers& timers = Engine::of(context).timers();
  TimerEntry* const entry = timers.entry(self);
  if (entry == nullptr) return JS_ThrowTypeError(context, "not a Timeout");
  switch (static_cast<Method>(magic)) {
    case Method::ref:
    case Method::unref:
      entry->has_reference = magic == static_cast<int>(Method::ref);
      break;
    case Method::has_ref:
      return JS_NewBool(context, entry->has_reference);
    case Method::refresh:
      timers.refresh(self);
      break;
    case Method::close:
      timers.stop(self);
      break;
    case Method::number:
      return JS_NewUint32(context, timers.number(*entry));
  }
  return JS_DupValue(context, self);
}

const JSCFunctionListEntry timer_methods[] = {
    JS_CFUNC_MAGIC_DEF("ref", 0, timer_method, static_cast<int>(Method::ref)),
    JS_CFUNC_MAGIC_DEF("unref", 0, timer_method, static_cast<int>(Method::unref)),
    JS_CFUNC_MAGIC_DEF("hasRef", 0, timer_method, static_cast<int>(Method::has_ref)),
    JS_CFUNC_MAGIC_DEF("refresh", 0, timer_method, static_cast<int>(Method::refresh)),
    JS_CFUNC_MAGIC_DEF("close", 0, timer_method, static_cast<int>(Method::close)),
    JS_CFUNC_MAGIC_DEF("[Symbol.toPrimitive]", 0, timer_method, static_cast<int>(Method::number)),
    JS_PROP_STRING_DEF("[Symbol.toStringTag]", "Timeout", JS_PROP_CONFIGURABLE),
};
const JSCFunctionListEntry timers_functions[] = {
    JS_CFUNC_DEF("start", 2, start),
    JS_CFUNC_DEF("stop", 1, stop),
    JS_CFUNC_MAGIC_DEF("ref", 1, set_reference, 1),
    JS_CFUNC_MAGIC_DEF("unref", 1, set_reference, 0),
    JS_CFUNC_MAGIC_DEF("setTimeout", 2, set_timer, 0),
    JS_CFUNC_MAGIC_DEF("setInterval", 2, set_timer, 1),
    JS_CFUNC_DEF("setImmediate", 1, set_immediate),
    JS_CFUNC_DEF("clearTimeout", 1, stop),
    JS_CFUNC_DEF("clearInterval", 1, stop),
    JS_CFUNC_DEF("clearImmediate", 1, stop),
};

// --- Process -----------------------------------------------------------------------------------------------------------------------------

JSValue hrtime(JSContext* context, JSValueConst, int, JSValueConst*) { return JS_NewBigUint64(context, machine::now_ns()); }
JSValue uptime(JSContext* context, JSValueConst, int, JSValueConst*) {
  return JS_NewFloat64(context, static_cast<double>(machine::now_ns()) / 1e9);
}
/// now() -> milliseconds since boot, with fractions
JSValue now(JSContext* context, JSValueConst, int, JSValueConst*) {
  return JS_NewFloat64(context, static_cast<double>(machine::now_ns()) / 1e6);
}
/// timeOrigin() -> the time of boot in milliseconds since 1970
JSValue time_origin(JSContext* context, JSValueConst, int, JSValueConst*) {
  return JS_NewFloat64(context, static_cast<double>(machine::wall_clock_at_boot_ns()) / 1e6);
}
JSValue memory_usage(JSContext* context, JSValueConst, int, JSValueConst*) {
  const EngineStatistics& statistics = Engine::of(context).statistics();
  const JSValue result = JS_NewObject(context);
  const auto set = [&](const char* name, std::uint64_t bytes) {
    JS_SetPropertyStr(context, result, name, JS_NewInt64(context, static_cast<std::int64_t>(bytes)));
  };
  set("rss", statistics.memory_bytes);
  set("heapTotal", statistics.memory_max_bytes);
  set("heapUsed", statistics.memory_bytes);
  set("external", 0);
  set("arrayBuffers", 0);
  return result;
}
/// collect(): for tests, and `global.gc`
JSValue collect(JSContext* context, JSValueConst, int, JSValueConst*) {
  Engine::of(context).collect();
  return JS_UNDEFINED;
}

}  // namespace

struct ProcessBinding {
  /// nextTick(callback, ...arguments)
  static JSValue next_tick(JSContext* context, JSValueConst, int count, JSValueConst* arguments) {
    if (!JS_IsFunction(context, argument(count, arguments, 0))) return no_function(context, "callback");
    return Engine::of(context).push_tick(arguments[0], count - 1, arguments + 1) ? JS_UNDEFINED : JS_EXCEPTION;
  }
  /// setHandlers(uncaught, rejection): functions (error, promise) -> true if the script has handled it
  static JSValue set_handlers(JSContext* context, JSValueConst, int count, JSValueConst* arguments) {
    Engine::State& state = *Engine::of(context).state_;
    const JSValue before[] = {state.uncaught_handler, state.rejection_handler};
    state.uncaught_handler = JS_DupValue(context, argument(count, arguments, 0));
    state.rejection_handler = JS_DupValue(context, argument(count, arguments, 1));
    for (const JSValue value : before) JS_FreeValue(context, value);
    return JS_UNDEFINED;
  }
  static bool fill(Engine& engine, JSValueConst target);
};

namespace {

const JSCFunctionListEntry process_functions[] = {
    JS_CFUNC_DEF("hrtime", 0, hrtime),
    JS_CFUNC_DEF("uptime", 0, uptime),
    JS_CFUNC_DEF("now", 0, now),
    JS_CFUNC_DEF("timeOrigin", 0, time_origin),
    JS_CFUNC_DEF("memoryUsage", 0, memory_usage),
    JS_CFUNC_DEF("collect", 0, collect),
    JS_CFUNC_DEF("nextTick", 1, ProcessBinding::next_tick),
    JS_CFUNC_DEF("setHandlers", 2, ProcessBinding::set_handlers),
};

}  // namespace

bool ProcessBinding::fill(Engine& engine, JSValueConst target) {
  JSContext* const context = engine.context();
  if (JS_SetPropertyFunctionList(context, target, process_functions, std::size(process_functions)) != 0) return false;
  const JSValue arguments = JS_NewArray(context), environment = JS_NewObject(context);
  std::uint32_t index = 0;
  JS_SetPropertyUint32(context, arguments, index++, new_latin1(context, "neap"));
  const std::string entry = engine.scripts().size() == 0 ? "" : "/" + std::string(engine.scripts().entry());
  JS_SetPropertyUint32(context, arguments, index++, new_utf8(context, entry));
  for (const std::string& each : engine.options().arguments) JS_SetPropertyUint32(context, arguments, index++, new_utf8(context, each));
  for (const auto& [name, value] : engine.options().environment) {
    JS_SetPropertyStr(context, environment, name.c_str(), new_utf8(context, value));
  }
  JS_SetPropertyStr(context, target, "argv", arguments);
  JS_SetPropertyStr(context, target, "env", environment);
  JS_SetPropertyStr(context, target, "core", JS_NewUint32(context, machine::this_core()));
  return !JS_HasException(context);
}

bool fill_process_binding(Engine& engine, JSValueConst target) { return ProcessBinding::fill(engine, target); }

bool fill_timers_binding(Engine& engine, JSValueConst target) {
  JSContext* const context = engine.context();
  const JSValue prototype = JS_NewObject(context);
  if (JS_IsException(prototype)) return false;
  if (JS_SetPropertyFunctionList(context, prototype, timer_methods, std::size(timer_methods)) != 0) {
    JS_FreeValue(context, prototype);
    return false;
  }
  JS_SetClassProto(context, engine.timers().object_class(), prototype);
  return JS_SetPropertyFunctionList(context, target, timers_functions, std::size(timers_functions)) == 0;
}

}  // namespace neap::webserver
