// SPDX-License-Identifier: BSL-1.0
// Helpers of the natives.
#include "apps/webserver/binding/message.hpp"

namespace neap::webserver {

bool define_function(JSContext* context, JSValueConst object, const char* name, JSCFunction* function, int length) noexcept {
  const JSValue made = JS_NewCFunction(context, function, name, length);
  return !JS_IsException(made) && JS_DefinePropertyValueStr(context, object, name, made, JS_PROP_WRITABLE | JS_PROP_CONFIGURABLE) >= 0;
}

bool define_accessor(JSContext* context, JSValueConst object, const char* name, JSCFunction* get, JSValue setter) noexcept {
  const Atom atom(context, name);
  const JSValue getter = JS_NewCFunction(context, get, name, 0);
  if (JS_IsException(getter) || JS_IsException(setter)) {
    JS_FreeValue(context, getter);
    JS_FreeValue(context, setter);
    return false;
  }
  return JS_DefinePropertyGetSet(context, object, atom, getter, setter, JS_PROP_CONFIGURABLE | JS_PROP_ENUMERABLE) >= 0;
}

int find_stored(JSContext* context, const Message& message, std::string_view name) noexcept {
  for (std::size_t at = 0; at < message.stored.size(); ++at) {
    const auto stored = latin1_view(context, message.stored[at].name);
    if (stored && stored->size() == name.size() && http::equal_ignoring_case(*stored, name)) return static_cast<int>(at);
  }
  return -1;
}

}  // namespace neap::webserver
