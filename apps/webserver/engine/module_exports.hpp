// SPDX-License-Identifier: BSL-1.0
// What the text of a script says about its exports, without running it.
//
// `import { name } from './commonjs.js'` must know the names before the file runs. They are found in the text, as in Node: assignments to
// `exports.NAME` and `module.exports.NAME`, definitions of properties of `exports`, and the names in `module.exports = { … }`. A name that
// is made in another way is missing; the default export has it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace neap::webserver {

struct CommonJsExports {
  std::vector<std::string> names;      ///< in the order of the text, each once, without `default`
  std::vector<std::string> reexports;  ///< specifiers of `module.exports = require('…')` and of `__exportStar(require('…'), exports)`
};
[[nodiscard]] CommonJsExports find_commonjs_exports(std::string_view text);

/// True if the text has a statement `import` or `export`, or uses `import.meta`: it is a module, not CommonJS.
[[nodiscard]] bool has_module_syntax(std::string_view text);

}  // namespace neap::webserver
