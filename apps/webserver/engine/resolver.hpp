// SPDX-License-Identifier: BSL-1.0
// From the specifier of `require` or `import` to a file of the archive.
//
// The rules are Node's: names of its own modules, relative paths, packages in node_modules with `main`, `exports` and `imports`. All
// packages are files of one archive, so a look-up costs no waiting. Results are paths with a leading slash, or `node:NAME`.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apps/webserver/engine/archive.hpp"
#include "apps/webserver/engine/quickjs.hpp"

namespace neap::webserver {

enum class ModuleKind : std::uint8_t { builtin, commonjs, module, json };

class Resolver {
 public:
  enum class Use : std::uint8_t { require, import };

  /// `is_builtin` tells if a name without `node:` is a module of the library.
  Resolver(JSContext* context, const Archive& scripts, std::function<bool(std::string_view)> is_builtin)
      : context_(context), scripts_(scripts), is_builtin_(std::move(is_builtin)) {}
  Resolver& operator=(Resolver&&) = delete;
  ~Resolver() { release(); }

  /// The file that `specifier` names in the file `from`. Nothing: an exception with Node's code is pending.
  [[nodiscard]] std::optional<std::string> resolve(std::string_view specifier, std::string_view from, Use use);
  /// The kind of a resolved file, by its name's ending, the `type` of its package, or else its text.
  [[nodiscard]] ModuleKind kind(std::string_view path);
  [[nodiscard]] std::optional<std::string_view> read(std::string_view path) const noexcept;
  /// Frees what was read of packages.
  void release() noexcept;

 private:
  /// A package.json, read once. `json` is undefined if there is none.
  struct Package {
    JSValue json;
    std::string name, type, main;
    bool has_exports = false;
  };
  struct Request {
    std::string_view specifier, from;
    Use use;
    std::vector<std::string> tried;
  };

  const Package* package_at(const std::string& folder);
  std::string scope_of(std::string_view path);
  bool is_file(std::string_view path) const noexcept { return read(path).has_value(); }
  bool is_folder(std::string_view path) const noexcept;
  bool try_file(Request& request, const std::string& path) const;
  std::optional<std::string> as_file(Request& request, const std::string& path) const;
  std::optional<std::string> as_folder(Request& request, const std::string& path);
  std::optional<std::string> main_of(Request& request, const std::string& folder);
  std::optional<std::string> resolve_path(Request& request, const std::string& path);
  std::optional<std::string> resolve_package(Request& request);
  std::optional<std::string> resolve_imports(Request& request);
  std::optional<std::string> resolve_map(Request& request, const std::string& folder, JSValueConst map, const std::string& key,
                                         bool imports);
  std::optional<std::string> resolve_target(Request& request, const std::string& folder, JSValueConst target, std::string_view star,
                                            bool imports, unsigned depth);
  std::nullopt_t not_found(const Request& request, bool package);
  std::nullopt_t fail(const char* code, const std::string& message);

  JSContext* context_;
  const Archive& scripts_;
  std::function<bool(std::string_view)> is_builtin_;
  std::map<std::string, Package, std::less<>> packages_;
};

/// The folder of a path: `/lib` of `/lib/users.js`, `/` of `/server.js`.
[[nodiscard]] std::string_view folder_of(std::string_view path) noexcept;
/// `path` relative to `folder`, without `.` and `..`. It does not leave the root.
[[nodiscard]] std::string join_paths(std::string_view folder, std::string_view path);

}  // namespace neap::webserver
