// SPDX-License-Identifier: BSL-1.0
// internalBinding('modules') for internal/modules.js, and internalBinding('archive') for the modules fs and path of the library.
#include <set>
#include <string>

#include "apps/webserver/engine/engine_state.hpp"
#include "apps/webserver/engine/modules.hpp"

namespace neap::webserver {

namespace {

JSValueConst argument(int count, JSValueConst* arguments, int index) noexcept { return index < count ? arguments[index] : JS_UNDEFINED; }

/// resolve(specifier, from, isImport) -> path or 'node:NAME'
JSValue resolve(JSContext* context, JSValueConst, int count, JSValueConst* arguments) {
  const Utf8View specifier(context, argument(count, arguments, 0));
  if (!specifier) return JS_EXCEPTION;
  const Utf8View from(context, argument(count, arguments, 1));
  if (!from) return JS_EXCEPTION;
  const auto use = JS_ToBool(context, argument(count, arguments, 2)) > 0 ? Resolver::Use::import : Resolver::Use::require;
  const auto path = Engine::of(context).modules().resolver().resolve(*specifier, *from, use);
  return path ? new_utf8(context, *path) : JS_EXCEPTION;
}

/// kind(path) -> 'builtin' | 'commonjs' | 'module' | 'json'
JSValue kind(JSContext* context, JSValueConst, int count, JSValueConst* arguments) {
  const Utf8View path(context, argument(count, arguments, 0));
  if (!path) return JS_EXCEPTION;
  switch (Engine::of(context).modules().resolver().kind(*path)) {
    case ModuleKind::builtin:
      return new_latin1(context, "builtin");
    case ModuleKind::commonjs:
      return new_latin1(context, "commonjs");
    case ModuleKind::module:
      return new_latin1(context, "module");
    case ModuleKind::json:
      return new_latin1(context, "json");
  }
  return JS_UNDEFINED;
}

/// builtin(name) -> exports
JSValue builtin(JSContext* context, JSValueConst, int count, JSValueConst* arguments) {
  const Utf8View name(context, argument(count, arguments, 0));
  return name ? Engine::of(context).modules().builtin(*name) : JS_EXCEPTION;
}

/// builtins() -> array of names
JSValue builtins(JSContext* context, JSValueConst, int, JSValueConst*) {
  const JSValue list = JS_NewArray(context);
  std::uint32_t index = 0;
  for (const std::string& name : Engine::of(context).modules().public_builtins()) {
    JS_SetPropertyUint32(context, list, index++, new_utf8(context, name));
  }
  return list;
}

/// compile(path, source | undefined) -> function (exports, require, module, __filename, __dirname)
JSValue compile(JSContext* context, JSValueConst, int count, JSValueConst* arguments) {
  constexpr std::string_view parameters = "exports, require, module, __filename, __dirname";
  const Utf8View path(context, argument(count, arguments, 0));
  if (!path) return JS_EXCEPTION;
  Modules& modules = Engine::of(context).modules();
  if (JSValueConst source = argument(count, arguments, 1); !JS_IsUndefined(source)) {
    const Utf8View text(context, source);
    return text ? modules.compile_function(*text, std::string(*path), parameters) : JS_EXCEPTION;
  }
  const auto text = modules.resolver().read(*path);
  if (!text) return throw_coded(context, ErrorClass::plain, "ENOENT", "no such file: " + std::string(*path));
  return modules.compile_function(*text, std::string(*path), parameters);
}

/// json(path) -> value
JSValue json(JSContext* context, JSValueConst, int count, JSValueConst* arguments) {
  const Utf8View path(context, argument(count, arguments, 0));
  if (!path) return JS_EXCEPTION;
  auto text = Engine::of(context).modules().resolver().read(*path);
  if (!text) return throw_coded(context, ErrorClass::plain, "ENOENT", "no such file: " + std::string(*path));
  if (text->starts_with("\xEF\xBB\xBF")) text->remove_prefix(3);
  return JS_ParseJSON(context, text->data(), text->size(), std::string(*path).c_str());
}

// --- internalBinding('archive') ----------------------------------------------------------------------------------------------------------

/// The path of an argument without its leading slash, cleaned.
std::optional<std::string> archive_path(JSContext* context, JSValueConst value) {
  const Utf8View path(context, value);
  if (!path) return std::nullopt;
  return join_paths("/", *path).substr(1);
}

/// readFile(path) -> Uint8Array, or undefined if there is no such file
JSValue read_file(JSContext* context, JSValueConst, int count, JSValueConst* arguments) {
  const auto path = archive_path(context, argument(count, arguments, 0));
  if (!path) return JS_EXCEPTION;
  const auto content = Engine::of(context).scripts().find(*path);
  if (!content) return JS_UNDEFINED;
  return JS_NewUint8ArrayCopy(context, reinterpret_cast<const std::uint8_t*>(content->data()), content->size());
}

/// stat(path) -> { size, directory } or undefined
JSValue stat(JSContext* context, JSValueConst, int count, JSValueConst* arguments) {
  const auto path = archive_path(context, argument(count, arguments, 0));
  if (!path) return JS_EXCEPTION;
  const Archive& scripts = Engine::of(context).scripts();
  const auto content = scripts.find(*path);
  if (!content && !scripts.has_folder(*path)) return JS_UNDEFINED;
  const JSValue result = JS_NewObject(context);
  JS_SetPropertyStr(context, result, "size", JS_NewInt64(context, content ? static_cast<std::int64_t>(content->size()) : 0));
  JS_SetPropertyStr(context, result, "directory", JS_NewBool(context, !content));
  return result;
}

/// list(path) -> names in a folder, in order, or undefined
JSValue list(JSContext* context, JSValueConst, int count, JSValueConst* arguments) {
  const auto path = archive_path(context, argument(count, arguments, 0));
  if (!path) return JS_EXCEPTION;
  const Archive& scripts = Engine::of(context).scripts();
  if (!scripts.has_folder(*path)) return JS_UNDEFINED;
  const std::string prefix = path->empty() ? "" : *path + "/";
  std::set<std::string> names;
  for (std::size_t index = 0; index < scripts.size(); ++index) {
    const std::string_view each = scripts.path(index);
    if (!each.starts_with(prefix)) continue;
    const std::string_view rest = each.substr(prefix.size());
    names.emplace(rest.substr(0, rest.find('/')));
  }
  const JSValue result = JS_NewArray(context);
  std::uint32_t index = 0;
  for (const std::string& name : names) JS_SetPropertyUint32(context, result, index++, new_utf8(context, name));
  return result;
}

const JSCFunctionListEntry modules_functions[] = {
    JS_CFUNC_DEF("resolve", 3, resolve),   JS_CFUNC_DEF("kind", 1, kind),       JS_CFUNC_DEF("builtin", 1, builtin),
    JS_CFUNC_DEF("builtins", 0, builtins), JS_CFUNC_DEF("compile", 2, compile), JS_CFUNC_DEF("json", 1, json),
};
const JSCFunctionListEntry archive_functions[] = {
    JS_CFUNC_DEF("readFile", 1, read_file),
    JS_CFUNC_DEF("stat", 1, stat),
    JS_CFUNC_DEF("list", 1, list),
};

}  // namespace

bool fill_modules_binding(Engine& engine, JSValueConst target) {
  return JS_SetPropertyFunctionList(engine.context(), target, modules_functions, std::size(modules_functions)) == 0;
}

bool fill_archive_binding(Engine& engine, JSValueConst target) {
  return JS_SetPropertyFunctionList(engine.context(), target, archive_functions, std::size(archive_functions)) == 0;
}

}  // namespace neap::webserver
