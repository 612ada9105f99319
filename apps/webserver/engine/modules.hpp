// SPDX-License-Identifier: BSL-1.0
// Loading of scripts: the library's own ones, CommonJS, and ES modules.
//
// Three kinds of files meet. The library's scripts (Node's API) are in an archive inside the image, and each is a function of `exports`,
// `require`, `module` and `internalBinding`. The application's CommonJS files are run by internal/modules.js, which keeps Node's cache of
// Module objects. ES modules are linked by QuickJS, which asks here for each file. To QuickJS, a file of another kind is a module that is
// made in C++: its exports are the properties of the object that the file exported.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "apps/webserver/engine/archive.hpp"
#include "apps/webserver/engine/quickjs.hpp"
#include "apps/webserver/engine/resolver.hpp"

namespace neap::webserver {

class Engine;

class Modules {
 public:
  explicit Modules(Engine& engine);
  Modules& operator=(Modules&&) = delete;

  // False, null or JS_EXCEPTION: an exception is pending.
  /// Runs the library's first script, which makes the globals.
  bool start();
  /// Runs an application's script by its path in the archive.
  bool run_main(std::string_view path);
  bool run_source(std::string_view source, std::string_view path);
  /// The exports of a module of the library, which is run at its first use. `name` has no `node:`.
  [[nodiscard]] JSValue builtin(std::string_view name);
  /// True for a name that scripts may use; the library's own parts begin with `_` or `internal/`.
  [[nodiscard]] bool is_public_builtin(std::string_view name) const;
  [[nodiscard]] std::vector<std::string> public_builtins() const;
  [[nodiscard]] Resolver& resolver() noexcept { return resolver_; }
  /// Compiles a CommonJS file to its function (exports, require, module, __filename, __dirname).
  [[nodiscard]] JSValue compile_function(std::string_view source, const std::string& path, std::string_view parameters);
  /// Frees all values, before the engine's context is freed.
  void release() noexcept;

 private:
  static char* normalize(JSContext* context, const char* base, const char* name, void* self);
  static JSModuleDef* load(JSContext* context, const char* name, void* self, JSValueConst attributes);
  static int check_attributes(JSContext* context, void* self, JSValueConst attributes);
  static int run_foreign(JSContext* context, JSModuleDef* module);
  static JSValue main_failed(JSContext* context, JSValueConst self, int count, JSValueConst* arguments);

  [[nodiscard]] std::string builtin_file(std::string_view name) const;
  JSModuleDef* load_module(const std::string& path);
  JSModuleDef* load_foreign(const std::string& path, ModuleKind kind);
  bool add_names(const std::string& path, std::set<std::string>& names, std::set<std::string>& seen);
  bool set_meta(JSModuleDef* module, const std::string& path);
  bool run_module(std::string_view source, const std::string& path);
  JSValue exports_of(const std::string& path, ModuleKind kind);
  JSValue loader_function(const char* name);

  Engine& engine_;
  Archive library_;
  Resolver resolver_;
  std::map<std::string, JSValue, std::less<>> builtins_;                        // module objects, by file
  std::map<std::string, std::vector<std::string>, std::less<>> foreign_names_;  // of modules that QuickJS does not compile, by path
};

}  // namespace neap::webserver
