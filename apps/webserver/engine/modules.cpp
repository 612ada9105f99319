// SPDX-License-Identifier: BSL-1.0
#include "apps/webserver/engine/modules.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "apps/webserver/engine/engine_state.hpp"
#include "apps/webserver/engine/module_exports.hpp"

extern "C" {
extern const std::byte neap_webserver_library_begin[];
extern const std::byte neap_webserver_library_end[];
}

namespace neap::webserver {

namespace {

constexpr std::string_view builtin_parameters = "exports, require, module, internalBinding";
constexpr std::string_view commonjs_parameters = "exports, require, module, __filename, __dirname";

Archive library_archive() {
  const auto library =
      Archive::open({neap_webserver_library_begin, static_cast<std::size_t>(neap_webserver_library_end - neap_webserver_library_begin)});
  require(library.has_value(), "the library of scripts is no archive");
  return *library;
}

JSValue require_builtin(JSContext* context, JSValueConst, int count, JSValueConst* arguments) {
  const Utf8View name(context, count > 0 ? arguments[0] : JS_UNDEFINED);
  if (!name) return JS_EXCEPTION;
  std::string_view plain = *name;
  if (plain.starts_with("node:")) plain.remove_prefix(5);
  return Engine::of(context).modules().builtin(plain);
}

}  // namespace

Modules::Modules(Engine& engine)
    : engine_(engine),
      library_(library_archive()),
      resolver_(engine.context(), engine.scripts(), [this](std::string_view name) { return is_public_builtin(name); }) {
  JS_SetModuleLoaderFunc2(engine.runtime(), &normalize, &load, &check_attributes, this);
}

void Modules::release() noexcept {
  for (auto& [name, module] : builtins_) JS_FreeValue(engine_.context(), module);
  builtins_.clear();
  resolver_.release();
}

// --- The library's scripts ---------------------------------------------------------------------------------------------------------------

/// `fs/promises` is in `fs/promises.js` or `fs_promises.js`. Empty: there is no such module.
std::string Modules::builtin_file(std::string_view name) const {
  std::string file(name);
  file += ".js";
  if (library_.find(file)) return file;
  std::ranges::replace(file, '/', '_');
  return library_.find(file) ? file : std::string();
}

bool Modules::is_public_builtin(std::string_view name) const {
  constexpr std::array<std::string_view, 6> with_underscore = {"async_hooks", "child_process",  "diagnostics_channel",
                                                               "perf_hooks",  "string_decoder", "worker_threads"};
  if (name.starts_with("internal/") || builtin_file(name).empty()) return false;
  return name.find('_') == name.npos || std::ranges::find(with_underscore, name) != with_underscore.end();
}

std::vector<std::string> Modules::public_builtins() const {
  std::vector<std::string> names;
  for (std::size_t index = 0; index < library_.size(); ++index) {
    std::string_view name = library_.path(index);
    name.remove_suffix(3);
    if (is_public_builtin(name)) {
      names.emplace_back(name);
    } else if (const std::size_t line = name.find('_'); line != name.npos && line != 0 && name.find('/') == name.npos) {
      std::string path(name);
      path[line] = '/';
      if (is_public_builtin(path)) names.push_back(std::move(path));
    }
  }
  return names;
}

JSValue Modules::compile_function(std::string_view source, const std::string& path, std::string_view parameters) {
  JSContext* const context = engine_.context();
  std::string text = "(function (";
  text.reserve(source.size() + parameters.size() + 32);
  text += parameters;
  text += ") {";
  // The first line of a program for a shell.
  if (source.starts_with("#!")) text += "//";
  text += source;
  text += "\n})";
  return JS_Eval(context, text.c_str(), text.size(), path.c_str(), JS_EVAL_TYPE_GLOBAL);
}

JSValue Modules::builtin(std::string_view name) {
  JSContext* const context = engine_.context();
  const std::string file = builtin_file(name);
  if (file.empty()) {
    return throw_coded(context, ErrorClass::plain, "ERR_UNKNOWN_BUILTIN_MODULE", "No such built-in module: " + std::string(name));
  }
  if (const auto found = builtins_.find(file); found != builtins_.end()) return JS_GetPropertyStr(context, found->second, "exports");

  const JSValue module = JS_NewObject(context), exports = JS_NewObject(context);
  if (JS_IsException(module) || JS_IsException(exports)) return JS_EXCEPTION;
  JS_SetPropertyStr(context, module, "exports", JS_DupValue(context, exports));
  JS_SetPropertyStr(context, module, "id", new_utf8(context, name));
  builtins_.emplace(file, module);  // before it runs, for cycles
  const Value function(context, compile_function(*library_.find(file), "node:" + std::string(name), builtin_parameters));
  const Value require(context, JS_NewCFunction(context, &require_builtin, "require", 1));
  const Value binding(context, engine_.new_internal_binding());
  JSValueConst arguments[] = {exports, require.get(), module, binding.get()};
  Value result(context, JS_IsException(function.get()) ? JS_EXCEPTION : JS_Call(context, function.get(), exports, 4, arguments));
  JS_FreeValue(context, exports);
  if (JS_IsException(result.get())) {
    builtins_.erase(file);
    JS_FreeValue(context, module);
    return JS_EXCEPTION;
  }
  return JS_GetPropertyStr(context, module, "exports");
}

bool Modules::start() {
  const Value exports(engine_.context(), builtin("internal/bootstrap"));
  return !JS_IsException(exports.get());
}

// --- The application's scripts -----------------------------------------------------------------------------------------------------------

/// A function of internal/modules.js.
JSValue Modules::loader_function(const char* name) {
  const Value loader(engine_.context(), builtin("internal/modules"));
  if (JS_IsException(loader.get())) return JS_EXCEPTION;
  return JS_GetPropertyStr(engine_.context(), loader.get(), name);
}

bool Modules::run_main(std::string_view entry) {
  JSContext* const context = engine_.context();
  const std::string path = "/" + std::string(entry);
  const auto source = resolver_.read(path);
  require(source.has_value(), "an entry that is not in the archive");
  if (resolver_.kind(path) == ModuleKind::module) return run_module(*source, path);
  const Value function(context, loader_function("runMain"));
  const Value name(context, new_utf8(context, path));
  JSValueConst arguments[] = {name.get()};
  if (JS_IsException(function.get()) || JS_IsException(name.get())) return false;
  const Value result(context, JS_Call(context, function.get(), JS_UNDEFINED, 1, arguments));
  return !JS_IsException(result.get());
}

bool Modules::run_source(std::string_view source, std::string_view path) {
  JSContext* const context = engine_.context();
  if (path.ends_with(".mjs")) return run_module(std::string(source), std::string(path));
  const Value function(context, loader_function("runSource"));
  const Value text(context, new_utf8(context, source)), name(context, new_utf8(context, path));
  JSValueConst arguments[] = {text.get(), name.get()};
  if (JS_IsException(function.get()) || JS_IsException(text.get()) || JS_IsException(name.get())) return false;
  const Value result(context, JS_Call(context, function.get(), JS_UNDEFINED, 2, arguments));
  return !JS_IsException(result.get());
}

/// A rejection of the main module's promise: an uncaught error, now or later.
JSValue Modules::main_failed(JSContext* context, JSValueConst, int count, JSValueConst* arguments) {
  JS_Throw(context, JS_DupValue(context, count > 0 ? arguments[0] : JS_UNDEFINED));
  Engine::of(context).uncaught();
  return JS_UNDEFINED;
}

/// Compiles and starts a module. A top-level await may keep it waiting.
bool Modules::run_module(std::string_view source, const std::string& path) {
  JSContext* const context = engine_.context();
  const std::string text(source);  // JS_Eval needs a zero byte after it
  const JSValue compiled = JS_Eval(context, text.c_str(), text.size(), path.c_str(), JS_EVAL_TYPE_MODULE | JS_EVAL_FLAG_COMPILE_ONLY);
  if (JS_IsException(compiled)) return false;
  auto* const module = static_cast<JSModuleDef*>(JS_VALUE_GET_PTR(compiled));
  if (!set_meta(module, path)) {
    JS_FreeValue(context, compiled);
    return false;
  }
  const Value promise(context, JS_EvalFunction(context, compiled));
  if (JS_IsException(promise.get())) return false;
  if (!JS_IsPromise(promise.get())) return true;
  const Value failed(context, JS_NewCFunction(context, &main_failed, "", 1));
  const Value chained(context, JS_PromiseThen(context, promise.get(), JS_UNDEFINED, failed.get()));
  return !JS_IsException(chained.get());
}

// --- ES modules --------------------------------------------------------------------------------------------------------------------------

char* Modules::normalize(JSContext* context, const char* base, const char* name, void* self) {
  const auto path = static_cast<Modules*>(self)->resolver_.resolve(name, base, Resolver::Use::import);
  return path ? js_strdup(context, path->c_str()) : nullptr;
}

int Modules::check_attributes(JSContext* context, void*, JSValueConst attributes) {
  JSPropertyEnum* properties = nullptr;
  std::uint32_t count = 0;
  if (JS_GetOwnPropertyNames(context, &properties, &count, attributes, JS_GPN_STRING_MASK | JS_GPN_ENUM_ONLY) != 0) return -1;
  bool valid = true;
  for (std::uint32_t index = 0; index < count; ++index) {
    const Value name(context, JS_AtomToString(context, properties[index].atom));
    const Value value(context, JS_GetProperty(context, attributes, properties[index].atom));
    const auto name_text = latin1_view(context, name.get()), value_text = latin1_view(context, value.get());
    valid = valid && name_text == "type" && value_text == "json";
  }
  JS_FreePropertyEnum(context, properties, count);
  if (valid) return 0;
  throw_coded(context, ErrorClass::type, "ERR_IMPORT_ATTRIBUTE_UNSUPPORTED", "Only the import attribute { type: 'json' } is supported");
  return -1;
}

JSModuleDef* Modules::load(JSContext*, const char* name, void* self, JSValueConst) {
  auto& modules = *static_cast<Modules*>(self);
  const std::string path(name);
  const ModuleKind kind = modules.resolver_.kind(path);
  return kind == ModuleKind::module ? modules.load_module(path) : modules.load_foreign(path, kind);
}

JSModuleDef* Modules::load_module(const std::string& path) {
  JSContext* const context = engine_.context();
  const auto source = resolver_.read(path);
  require(source.has_value(), "a resolved module that is not in the archive");
  const JSValue compiled = JS_Eval(context, source->data(), source->size(), path.c_str(), JS_EVAL_TYPE_MODULE | JS_EVAL_FLAG_COMPILE_ONLY);
  if (JS_IsException(compiled)) return nullptr;
  auto* const module = static_cast<JSModuleDef*>(JS_VALUE_GET_PTR(compiled));
  const bool ready = set_meta(module, path);
  JS_FreeValue(context, compiled);  // the context's list of modules keeps it
  return ready ? module : nullptr;
}

bool Modules::set_meta(JSModuleDef* module, const std::string& path) {
  JSContext* const context = engine_.context();
  const Value meta(context, JS_GetImportMeta(context, module));
  const Value fill(context, loader_function("fillMeta"));
  const Value name(context, new_utf8(context, path));
  if (JS_IsException(meta.get()) || JS_IsException(fill.get()) || JS_IsException(name.get())) return false;
  JSValueConst arguments[] = {meta.get(), name.get()};
  const Value result(context, JS_Call(context, fill.get(), JS_UNDEFINED, 2, arguments));
  return !JS_IsException(result.get());
}

/// The exports of a file that is no ES module. It runs if it has not run yet.
JSValue Modules::exports_of(const std::string& path, ModuleKind kind) {
  JSContext* const context = engine_.context();
  if (kind == ModuleKind::builtin) return builtin(std::string_view(path).substr(5));
  const Value function(context, loader_function("load"));
  const Value name(context, new_utf8(context, path));
  if (JS_IsException(function.get()) || JS_IsException(name.get())) return JS_EXCEPTION;
  JSValueConst arguments[] = {name.get()};
  return JS_Call(context, function.get(), JS_UNDEFINED, 1, arguments);
}

/// Adds the names of a CommonJS file and of the files that it exports as its own.
bool Modules::add_names(const std::string& path, std::set<std::string>& names, std::set<std::string>& seen) {
  const auto source = resolver_.read(path);
  if (!source || !seen.insert(path).second || resolver_.kind(path) != ModuleKind::commonjs) return true;
  const CommonJsExports found = find_commonjs_exports(*source);
  names.insert(found.names.begin(), found.names.end());
  for (const std::string& specifier : found.reexports) {
    if (const auto other = resolver_.resolve(specifier, path, Resolver::Use::require)) {
      add_names(*other, names, seen);
    } else {
      // The file itself will report it when it runs.
      JS_FreeValue(engine_.context(), JS_GetException(engine_.context()));
    }
  }
  return true;
}

JSModuleDef* Modules::load_foreign(const std::string& path, ModuleKind kind) {
  JSContext* const context = engine_.context();
  std::set<std::string> names;
  if (kind == ModuleKind::commonjs) {
    std::set<std::string> seen;
    add_names(path, names, seen);
    names.insert("module.exports");
  } else if (kind == ModuleKind::builtin) {
    // A module of the library has no effects, so it may run before other modules.
    const Value exports(context, exports_of(path, kind));
    if (JS_IsException(exports.get())) return nullptr;
    JSPropertyEnum* properties = nullptr;
    std::uint32_t count = 0;
    if (JS_IsObject(exports.get()) &&
        JS_GetOwnPropertyNames(context, &properties, &count, exports.get(), JS_GPN_STRING_MASK | JS_GPN_ENUM_ONLY) == 0) {
      for (std::uint32_t index = 0; index < count; ++index) {
        if (const char* const name = JS_AtomToCString(context, properties[index].atom); name != nullptr) {
          names.insert(name);
          JS_FreeCString(context, name);
        }
      }
      JS_FreePropertyEnum(context, properties, count);
    }
  }
  names.insert("default");
  JSModuleDef* const module = JS_NewCModule(context, path.c_str(), &run_foreign);
  if (module == nullptr) return nullptr;
  for (const std::string& name : names) {
    if (JS_AddModuleExport(context, module, name.c_str()) != 0) return nullptr;
  }
  foreign_names_[path].assign(names.begin(), names.end());
  return module;
}

int Modules::run_foreign(JSContext* context, JSModuleDef* module) {
  Modules& self = Engine::of(context).modules();
  const JSAtom atom = JS_GetModuleName(context, module);
  const char* const name = JS_AtomToCString(context, atom);
  JS_FreeAtom(context, atom);
  if (name == nullptr) return -1;
  const std::string path(name);
  JS_FreeCString(context, name);

  const Value exports(context, self.exports_of(path, self.resolver_.kind(path)));
  if (JS_IsException(exports.get())) return -1;
  for (const std::string& each : self.foreign_names_[path]) {
    JSValue value = JS_UNDEFINED;
    if (each == "default" || each == "module.exports") {
      value = JS_DupValue(context, exports.get());
    } else if (JS_IsObject(exports.get())) {
      value = JS_GetPropertyStr(context, exports.get(), each.c_str());
      if (JS_IsException(value)) return -1;
    }
    if (JS_SetModuleExport(context, module, each.c_str(), value) != 0) return -1;
  }
  return 0;
}

}  // namespace neap::webserver
