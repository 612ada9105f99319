// SPDX-License-Identifier: BSL-1.0
#include "apps/webserver/engine/resolver.hpp"

#include <algorithm>
#include <utility>

#include "apps/webserver/engine/module_exports.hpp"
#include "apps/webserver/engine/strings.hpp"

namespace neap::webserver {

namespace {

constexpr unsigned nesting_max = 16;  // of conditions in `exports`

std::string text_of(JSContext* context, JSValueConst object, const char* name) {
  const Value value(context, JS_GetPropertyStr(context, object, name));
  if (!JS_IsString(value.get())) return {};
  const Utf8View text(context, value.get());
  return text ? std::string(*text) : std::string();
}

/// The names of an object's own properties, in order.
std::vector<std::string> keys_of(JSContext* context, JSValueConst object) {
  JSPropertyEnum* properties = nullptr;
  std::uint32_t count = 0;
  std::vector<std::string> keys;
  if (JS_GetOwnPropertyNames(context, &properties, &count, object, JS_GPN_STRING_MASK | JS_GPN_ENUM_ONLY) != 0) return keys;
  for (std::uint32_t index = 0; index < count; ++index) {
    if (const char* const key = JS_AtomToCString(context, properties[index].atom); key != nullptr) {
      keys.emplace_back(key);
      JS_FreeCString(context, key);
    }
  }
  JS_FreePropertyEnum(context, properties, count);
  return keys;
}

std::string under(const std::string& folder, std::string_view name) { return (folder == "/" ? "" : folder) + "/" + std::string(name); }

/// The package's name at the begin of a specifier: `a` of `a/b`, `@a/b` of `@a/b/c`. Empty: not a name.
std::string_view package_name(std::string_view specifier) noexcept {
  if (specifier.empty() || specifier.front() == '.' || specifier.find_first_of("\\%") != specifier.npos) return {};
  std::size_t end = specifier.find('/');
  if (specifier.front() == '@') {
    if (end == specifier.npos) return {};
    end = specifier.find('/', end + 1);
  }
  return specifier.substr(0, end);
}

bool leaves_package(std::string_view target) noexcept {
  for (std::size_t begin = 0; begin <= target.size();) {
    const std::size_t end = std::min(target.find('/', begin), target.size());
    const std::string_view part = target.substr(begin, end - begin);
    if (part == ".." || part == "node_modules" || (part == "." && begin != 0)) return true;
    begin = end + 1;
  }
  return false;
}

}  // namespace

std::string_view folder_of(std::string_view path) noexcept {
  const std::size_t slash = path.rfind('/');
  return slash == path.npos || slash == 0 ? std::string_view("/") : path.substr(0, slash);
}

std::string join_paths(std::string_view folder, std::string_view path) {
  std::vector<std::string_view> parts;
  const auto add = [&parts](std::string_view from) {
    for (std::size_t begin = 0; begin <= from.size();) {
      const std::size_t end = std::min(from.find('/', begin), from.size());
      const std::string_view part = from.substr(begin, end - begin);
      begin = end + 1;
      if (part == "..") {
        if (!parts.empty()) parts.pop_back();
      } else if (!part.empty() && part != ".") {
        parts.push_back(part);
      }
    }
  };
  if (!path.starts_with('/')) add(folder);
  add(path);
  std::string joined;
  for (const std::string_view part : parts) (joined += '/') += part;
  return joined.empty() ? "/" : joined;
}

void Resolver::release() noexcept {
  for (auto& [folder, package] : packages_) JS_FreeValue(context_, package.json);
  packages_.clear();
}

std::optional<std::string_view> Resolver::read(std::string_view path) const noexcept {
  if (!path.starts_with('/')) return std::nullopt;
  return scripts_.find(path.substr(1));
}

bool Resolver::is_folder(std::string_view path) const noexcept { return path.starts_with('/') && scripts_.has_folder(path.substr(1)); }

/// Null: an exception is pending, because the file is not JSON.
const Resolver::Package* Resolver::package_at(const std::string& folder) {
  if (const auto found = packages_.find(folder); found != packages_.end()) return &found->second;
  Package package{.json = JS_UNDEFINED};
  const std::string path = under(folder, "package.json");
  if (const auto text = read(path)) {
    package.json = JS_ParseJSON(context_, text->data(), text->size(), path.c_str());
    if (JS_IsException(package.json)) {
      const Value error(context_, JS_GetException(context_));
      fail("ERR_INVALID_PACKAGE_CONFIG", "Invalid package config " + path + ".");
      return nullptr;
    }
    package.name = text_of(context_, package.json, "name");
    package.type = text_of(context_, package.json, "type");
    package.main = text_of(context_, package.json, "main");
    const Value exports(context_, JS_GetPropertyStr(context_, package.json, "exports"));
    package.has_exports = !JS_IsUndefined(exports.get()) && !JS_IsNull(exports.get());
  }
  return &packages_.emplace(folder, std::move(package)).first->second;
}

/// The folder of the package to which a file belongs; empty if it belongs to none.
std::string Resolver::scope_of(std::string_view path) {
  std::string folder(folder_of(path));
  for (;;) {
    if (folder.ends_with("/node_modules")) return {};
    if (is_file(under(folder, "package.json"))) return folder;
    if (folder == "/") return {};
    folder = folder_of(folder);
  }
}

ModuleKind Resolver::kind(std::string_view path) {
  if (path.starts_with("node:")) return ModuleKind::builtin;
  if (path.ends_with(".json")) return ModuleKind::json;
  if (path.ends_with(".mjs")) return ModuleKind::module;
  if (path.ends_with(".cjs")) return ModuleKind::commonjs;
  if (const std::string folder = scope_of(path); !folder.empty()) {
    const Package* const package = package_at(folder);
    if (package == nullptr) {
      JS_FreeValue(context_, JS_GetException(context_));
    } else if (package->type == "module") {
      return ModuleKind::module;
    } else if (package->type == "commonjs") {
      return ModuleKind::commonjs;
    }
  }
  const auto text = read(path);
  return text && has_module_syntax(*text) ? ModuleKind::module : ModuleKind::commonjs;
}

std::optional<std::string> Resolver::resolve(std::string_view specifier, std::string_view from, Use use) {
  Request request{.specifier = specifier, .from = from, .use = use, .tried = {}};
  if (specifier.starts_with("node:")) {
    if (is_builtin_(specifier.substr(5))) return std::string(specifier);
    return fail("ERR_UNKNOWN_BUILTIN_MODULE", "No such built-in module: " + std::string(specifier));
  }
  if (is_builtin_(specifier)) return "node:" + std::string(specifier);
  if (specifier.starts_with("file://")) specifier.remove_prefix(7);
  if (specifier.starts_with('/') || specifier == "." || specifier == ".." || specifier.starts_with("./") || specifier.starts_with("../")) {
    std::string path = join_paths(folder_of(from), specifier);
    if (specifier.ends_with('/') && path != "/") path += '/';
    return resolve_path(request, path);
  }
  if (specifier.starts_with('#')) return resolve_imports(request);
  return resolve_package(request);
}

bool Resolver::try_file(Request& request, const std::string& path) const {
  if (is_file(path)) return true;
  request.tried.push_back(path);
  return false;
}

std::optional<std::string> Resolver::as_file(Request& request, const std::string& path) const {
  if (path.ends_with('/')) return std::nullopt;
  for (const char* const ending : {"", ".js", ".json", ".cjs", ".mjs"}) {
    if (std::string file = path + ending; try_file(request, file)) return file;
  }
  return std::nullopt;
}

/// The main file of a folder, as packages without `exports` name it.
std::optional<std::string> Resolver::main_of(Request& request, const std::string& folder) {
  const Package* const package = package_at(folder);
  if (package == nullptr) return std::nullopt;
  if (!package->main.empty()) {
    const std::string main = join_paths(folder, "./" + package->main);
    if (auto file = as_file(request, main)) return file;
    if (auto file = as_file(request, under(main, "index"))) return file;
  }
  return as_file(request, under(folder, "index"));
}

std::optional<std::string> Resolver::as_folder(Request& request, const std::string& path) {
  std::string folder = path;
  if (folder.size() > 1 && folder.ends_with('/')) folder.pop_back();
  if (!is_folder(folder)) return std::nullopt;
  return main_of(request, folder);
}

std::optional<std::string> Resolver::resolve_path(Request& request, const std::string& path) {
  if (request.use == Use::import) {
    if (try_file(request, path)) return path;
    if (is_folder(path.ends_with('/') ? path.substr(0, path.size() - 1) : path)) {
      return fail("ERR_UNSUPPORTED_DIR_IMPORT",
                  "Directory import '" + path + "' is not supported resolving ES modules imported from " + std::string(request.from));
    }
    return not_found(request, false);
  }
  if (auto file = as_file(request, path)) return file;
  if (auto file = as_folder(request, path)) return file;
  if (JS_HasException(context_)) return std::nullopt;
  return not_found(request, false);
}

std::optional<std::string> Resolver::resolve_package(Request& request) {
  const std::string_view name = package_name(request.specifier);
  if (name.empty()) {
    return fail("ERR_INVALID_MODULE_SPECIFIER", "Invalid module \"" + std::string(request.specifier) + "\" is not a valid package name");
  }
  const std::string rest(request.specifier.substr(name.size()));
  const std::string key = "." + rest;
  const auto exports_of = [&](const std::string& folder, const Package& package) {
    const Value exports(context_, JS_GetPropertyStr(context_, package.json, "exports"));
    return resolve_map(request, folder, exports.get(), key, false);
  };
  // A package may name itself, if it has exports.
  if (const std::string own = scope_of(request.from); !own.empty()) {
    const Package* const package = package_at(own);
    if (package == nullptr) return std::nullopt;
    if (package->has_exports && package->name == name) return exports_of(own, *package);
  }
  for (std::string folder(folder_of(request.from));; folder = folder_of(folder)) {
    if (!folder.ends_with("/node_modules")) {
      const std::string package_folder = under(folder, "node_modules/" + std::string(name));
      if (is_folder(package_folder)) {
        const Package* const package = package_at(package_folder);
        if (package == nullptr) return std::nullopt;
        if (package->has_exports) return exports_of(package_folder, *package);
        if (rest.empty()) {
          if (auto file = main_of(request, package_folder)) return file;
        } else {
          const std::string path = join_paths(package_folder, key);
          if (request.use == Use::import) return resolve_path(request, path);
          if (auto file = as_file(request, path)) return file;
          if (auto file = as_folder(request, path)) return file;
        }
        if (JS_HasException(context_)) return std::nullopt;
      } else if (request.use == Use::require && rest.empty()) {
        if (auto file = as_file(request, package_folder)) return file;
      } else {
        request.tried.push_back(package_folder);
      }
    }
    if (folder == "/") break;
  }
  return not_found(request, true);
}

std::optional<std::string> Resolver::resolve_imports(Request& request) {
  const std::string folder = scope_of(request.from);
  const Package* const package = folder.empty() ? nullptr : package_at(folder);
  if (!folder.empty() && package == nullptr) return std::nullopt;
  if (package != nullptr && request.specifier != "#" && !request.specifier.starts_with("#/")) {
    const Value imports(context_, JS_GetPropertyStr(context_, package->json, "imports"));
    if (JS_IsObject(imports.get())) return resolve_map(request, folder, imports.get(), std::string(request.specifier), true);
  }
  return fail("ERR_PACKAGE_IMPORT_NOT_DEFINED", "Package import specifier \"" + std::string(request.specifier) +
                                                    "\" is not defined imported from " + std::string(request.from));
}

/// Looks `key` up in the field `exports` or `imports` of a package: an exact key, or the pattern with the longest text before its star.
std::optional<std::string> Resolver::resolve_map(Request& request, const std::string& folder, JSValueConst map, const std::string& key,
                                                 bool imports) {
  const std::vector<std::string> keys = JS_IsObject(map) && !JS_IsArray(map) ? keys_of(context_, map) : std::vector<std::string>();
  const bool is_map = imports || (!keys.empty() && keys.front().starts_with('.'));
  std::optional<std::string> found;
  if (!is_map) {
    if (key == ".") found = resolve_target(request, folder, map, {}, false, 0);
  } else if (std::ranges::find(keys, key) != keys.end() && key.find('*') == key.npos) {
    const Value target(context_, JS_GetPropertyStr(context_, map, key.c_str()));
    found = resolve_target(request, folder, target.get(), {}, imports, 0);
  } else {
    const std::string* best = nullptr;
    std::size_t best_prefix = 0;
    for (const std::string& pattern : keys) {
      const std::size_t star = pattern.find('*');
      if (star == pattern.npos || pattern.find('*', star + 1) != pattern.npos) continue;
      const std::string_view before = std::string_view(pattern).substr(0, star), after = std::string_view(pattern).substr(star + 1);
      if (key.size() < pattern.size() || !key.starts_with(before) || !key.ends_with(after)) continue;
      if (best == nullptr || star > best_prefix || (star == best_prefix && pattern.size() > best->size())) {
        best = &pattern;
        best_prefix = star;
      }
    }
    if (best != nullptr) {
      const Value target(context_, JS_GetPropertyStr(context_, map, best->c_str()));
      const std::string star = key.substr(best_prefix, key.size() - (best->size() - 1));
      found = resolve_target(request, folder, target.get(), star, imports, 0);
    }
  }
  if (found || JS_HasException(context_)) return found;
  if (imports) {
    return fail("ERR_PACKAGE_IMPORT_NOT_DEFINED", "Package import specifier \"" + key + "\" is not defined in package " +
                                                      under(folder, "package.json") + " imported from " + std::string(request.from));
  }
  return fail("ERR_PACKAGE_PATH_NOT_EXPORTED", (key == "." ? std::string("No \"exports\" main defined in ")
                                                           : "Package subpath '" + key + "' is not defined by \"exports\" in ") +
                                                   under(folder, "package.json"));
}

/// A target: a path in the package, an object of conditions, or a list of which the first usable one counts. Nothing without an exception:
/// the target does not apply.
std::optional<std::string> Resolver::resolve_target(Request& request, const std::string& folder, JSValueConst target, std::string_view star,
                                                    bool imports, unsigned depth) {
  if (depth > nesting_max) return fail("ERR_INVALID_PACKAGE_CONFIG", "Too many conditions in " + under(folder, "package.json"));
  if (JS_IsString(target)) {
    const Utf8View text(context_, target);
    if (!text) return std::nullopt;
    std::string path(*text);
    if (star.data() != nullptr) {
      for (std::size_t at = path.find('*'); at != path.npos; at = path.find('*', at + star.size())) path.replace(at, 1, star);
    }
    if (!path.starts_with("./")) {
      if (imports && !path.starts_with("../") && !path.starts_with('/') && !path.starts_with('#')) {
        return resolve(path, under(folder, "package.json"), request.use);
      }
      return fail("ERR_INVALID_PACKAGE_TARGET", "Invalid target \"" + path + "\" in " + under(folder, "package.json"));
    }
    if (leaves_package(path)) {
      return fail("ERR_INVALID_PACKAGE_TARGET", "Invalid target \"" + path + "\" in " + under(folder, "package.json"));
    }
    std::string file = join_paths(folder, path);
    if (try_file(request, file)) return file;
    return not_found(request, false);
  }
  if (JS_IsArray(target)) {
    std::int64_t count = 0;
    if (JS_GetLength(context_, target, &count) != 0) return std::nullopt;
    for (std::int64_t index = 0; index < count; ++index) {
      const Value one(context_, JS_GetPropertyInt64(context_, target, index));
      auto found = resolve_target(request, folder, one.get(), star, imports, depth + 1);
      if (found || JS_HasException(context_)) return found;
    }
    return std::nullopt;
  }
  if (!JS_IsObject(target)) return std::nullopt;
  for (const std::string& condition : keys_of(context_, target)) {
    const bool applies = condition == "default" || condition == "node" || condition == (request.use == Use::import ? "import" : "require");
    if (!applies) continue;
    const Value one(context_, JS_GetPropertyStr(context_, target, condition.c_str()));
    auto found = resolve_target(request, folder, one.get(), star, imports, depth + 1);
    if (found || JS_HasException(context_)) return found;
    if (JS_IsNull(one.get())) return std::nullopt;
  }
  return std::nullopt;
}

std::nullopt_t Resolver::not_found(const Request& request, bool package) {
  std::string message;
  if (request.use == Use::require) {
    message = "Cannot find module '" + std::string(request.specifier) + "'\nRequire stack:\n- " + std::string(request.from);
  } else {
    const std::string name =
        package ? std::string(package_name(request.specifier)) : join_paths(folder_of(request.from), request.specifier);
    message =
        std::string(package ? "Cannot find package '" : "Cannot find module '") + name + "' imported from " + std::string(request.from);
  }
  if (!request.tried.empty()) {
    message += "\nTried:";
    for (const std::string& path : request.tried) message += "\n- " + path;
  }
  return fail(request.use == Use::require ? "MODULE_NOT_FOUND" : "ERR_MODULE_NOT_FOUND", message);
}

std::nullopt_t Resolver::fail(const char* code, const std::string& message) {
  throw_coded(context_, ErrorClass::plain, code, message);
  return std::nullopt;
}

}  // namespace neap::webserver
