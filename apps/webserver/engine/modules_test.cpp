// SPDX-License-Identifier: BSL-1.0
#include "apps/webserver/engine/modules.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "apps/webserver/engine/module_exports.hpp"
#include "apps/webserver/engine/test_engine.hpp"

namespace neap::webserver {
namespace {

using Files = std::vector<ArchiveFile>;

std::string run(Files files, std::string_view entry = "server.js") {
  TestEngine engine(std::move(files), entry);
  std::string lines = engine.run_entry();
  return lines.empty() ? engine.error() : lines;
}

TEST(Modules, RequireFindsFilesFoldersJsonAndPackages) {
  EXPECT_EQ(run({{"server.js", R"(#!/usr/bin/env node
      const users = require('./lib/users'), folder = require('./folder'), { a } = require('./data.json'), pkg = require('pkg');
      console.log(users.name, folder, a, pkg, require('pkg/sub'), require('@scope/x').y, __filename, __dirname);
      console.log(require.resolve('./lib/users'), module.id, require.main === module,
      module.children.length, require.cache[__filename] === module);
      console.log(require('./lib/users') === users, this === module.exports, typeof exports);)"},
                 {"lib/users.js", "exports.name = __filename; module.exports.up = require('..' + '/data');"},
                 {"folder/index.js", "module.exports = 'folder of ' + __dirname;"},
                 {"data.json", "\xEF\xBB\xBF{\"a\": 1}"},
                 {"node_modules/pkg/package.json", R"({"main": "./dist"})"},
                 {"node_modules/pkg/dist/index.js", "module.exports = require('dep');"},
                 {"node_modules/pkg/sub.js", "module.exports = 'sub';"},
                 {"node_modules/pkg/node_modules/dep/index.js", "module.exports = 'nested';"},
                 {"node_modules/dep/index.js", "module.exports = 'outer';"},
                 {"node_modules/@scope/x/index.js", "exports.y = 'scoped';"}}),
            "/lib/users.js folder of /folder 1 nested sub scoped /server.js /\n"
            "/lib/users.js . true 6 true\ntrue true object\n");
}

TEST(Modules, RequireKeepsCyclesAndForgetsFailures) {
  EXPECT_EQ(run({{"server.js", R"(const a = require('./a'); console.log(a.done, a.seen);
      for (let i = 0; i < 2; i++) { try { require('./bad'); } catch (error) { console.log(error.message); } })"},
                 {"a.js", "exports.done = false; const b = require('./b'); exports.done = true; exports.seen = b.seen;"},
                 {"b.js", "exports.seen = require('./a').done;"},
                 {"bad.js", "globalThis.count = (globalThis.count ?? 0) + 1; throw new Error('attempt ' + count);"}}),
            "true false\nattempt 1\nattempt 2\n");
}

TEST(Modules, AMissingFileNamesWhatWasTried) {
  EXPECT_EQ(run({{"server.js", R"(
      try { require('./none'); } catch (error) { console.log(error.code, error.message, error.requireStack.join()); }
      try { require('nothing'); } catch (error) { console.log(error.code); }
      try { require('node:none'); } catch (error) { console.log(error.code); }
      try { require(''); } catch (error) { console.log(error.code); }
      import('./none.js').catch((error) => console.log(error.code, error.message));
      import('nothing').catch((error) => console.log(error.code, error.message.split('\n')[0]));
      import('./folder').catch((error) => console.log(error.code));)"},
                 {"folder/index.js", ""}}),
            "MODULE_NOT_FOUND Cannot find module './none'\nRequire stack:\n- /server.js\nTried:\n- /none\n- /none.js\n- /none.json\n"
            "- /none.cjs\n- /none.mjs /server.js\nMODULE_NOT_FOUND\nERR_UNKNOWN_BUILTIN_MODULE\nERR_INVALID_ARG_VALUE\n"
            "ERR_MODULE_NOT_FOUND Cannot find module '/none.js' imported from /server.js\nTried:\n- /none.js\n"
            "ERR_MODULE_NOT_FOUND Cannot find package 'nothing' imported from /server.js\nERR_UNSUPPORTED_DIR_IMPORT\n");
}

TEST(Modules, ModulesImportEachOtherAndAwait) {
  EXPECT_EQ(run({{"server.mjs", R"(
      import value, { name, later } from './lib/a.js';
      import * as all from './lib/a.js';
      import data from './data.json' with { type: 'json' };
      console.log(value, name, later(), Object.keys(all).join(), data.x);
      console.log(import.meta.url, import.meta.filename, import.meta.dirname, import.meta.resolve('./lib/a.js'));
      const other = await import('./lib/b.mjs');
      console.log(other.default, await Promise.resolve('awaited'), typeof require);)"},
                 {"lib/package.json", R"({"type": "module"})"},
                 {"lib/a.js", "import b from './b.mjs'; export const name = 'a'; export function later() { return b; } export default 1;"},
                 {"lib/b.mjs", "import { name } from './a.js'; export default 'b'; globalThis.probe = () => name;"},
                 {"data.json", R"({"x": 42})"}},
                "server.mjs"),
            "1 a b default,later,name 42\nfile:///server.mjs /server.mjs / file:///lib/a.js\nb awaited undefined\n");
}

TEST(Modules, ModulesImportCommonJs) {
  EXPECT_EQ(run({{"server.mjs", R"(
      import './first.mjs';
      import common, { named, reexported, __esModule } from './common.cjs';
      import * as space from './common.cjs';
      import { first as one } from 'pkg';
      console.log(common.named, named, reexported, one, __esModule, space.default === common, space['module.exports'] === common);
      console.log((await import('./common.cjs')).default === common);)"},
                 {"first.mjs", "console.log('first');"},
                 {"common.cjs", R"(console.log('common');
      Object.defineProperty(exports, '__esModule', { value: true });
      exports.named = 'named'; Object.assign(exports, require('./more.cjs')); __exportStar(require('./more.cjs'), exports);
      function __exportStar() {})"},
                 {"more.cjs", "module.exports = { reexported: 'more', 'quoted-name': 2, method() {}, get x() { return 1; } };"},
                 {"node_modules/pkg/index.js", "exports.first = 1;"}},
                "server.mjs"),
            "first\ncommon\nnamed named more 1 true true true\ntrue\n");
}

TEST(Modules, ASyntaxOrRunTimeErrorOfTheEntryIsReturned) {
  EXPECT_NE(run({{"server.js", "let x = ;"}}).find("SyntaxError"), std::string::npos);
  EXPECT_NE(run({{"server.mjs", "import { none } from './a.mjs';"}, {"a.mjs", ""}}, "server.mjs").find("SyntaxError"), std::string::npos);
  EXPECT_NE(run({{"server.mjs", "await null; throw new Error('after await');"}}, "server.mjs").find("Error: after await\n    at "),
            std::string::npos);
  EXPECT_NE(run({{"server.js", "require('./a.mjs')"}, {"a.mjs", ""}}).find("ERR_REQUIRE_ESM"), std::string::npos);
  EXPECT_NE(run({{"server.js", "require('a')"}, {"node_modules/a/package.json", "{"}}).find("ERR_INVALID_PACKAGE_CONFIG"),
            std::string::npos);
  TestEngine engine({{"server.mjs", "await new Promise(() => {});"}}, "server.mjs");
  EXPECT_TRUE(engine->run_entry());
}

TEST(Modules, ExportsAndImportsOfPackagesHaveConditionsAndPatterns) {
  const Files files = {
      {"server.js", R"(
      console.log(require('pkg'), require('pkg/feature'), require('pkg/lib/deep/x.js'),
      require('self/inner'), require('#internal'), require('#dep'));
      for (const name of ['pkg/private', 'pkg/lib/hidden/x.js', '#none', 'pkg/bad']) {
        try { require(name); } catch (error) { console.log(error.code); }
      }
      import('pkg').then((pkg) => console.log(pkg.default, pkg.kind));)"},
      {"package.json",
       R"({"name": "self", "exports": {"./inner": "./inner.js"}, "imports": {"#internal": {"node": "./inner.js"}, "#dep": "pkg"}})"},
      {"inner.js", "module.exports = 'inner';"},
      {"node_modules/pkg/package.json", R"({"main": "./ignored.js", "exports": {
        ".": {"browser": "./no.js", "import": "./main.mjs", "require": "./main.cjs"},
        "./feature": ["./feature.js"],
        "./lib/*.js": "./src/*.js", "./lib/hidden/*": null, "./bad": "../outside.js"}})"},
      {"node_modules/pkg/main.mjs", "export default 'esm'; export const kind = 'module';"},
      {"node_modules/pkg/main.cjs", "module.exports = 'cjs';"},
      {"node_modules/pkg/feature.js", "module.exports = 'feature';"},
      {"node_modules/pkg/private.js", ""},
      {"node_modules/pkg/src/deep/x.js", "module.exports = 'deep';"},
      {"node_modules/pkg/src/hidden/x.js", ""}};
  EXPECT_EQ(run(files),
            "cjs feature deep inner inner cjs\nERR_PACKAGE_PATH_NOT_EXPORTED\nERR_PACKAGE_PATH_NOT_EXPORTED\n"
            "ERR_PACKAGE_IMPORT_NOT_DEFINED\nERR_INVALID_PACKAGE_TARGET\nesm module\n");
}

TEST(Modules, TheLibraryIsReachedByBothNamesAndItsPartsAreNot) {
  EXPECT_EQ(run({{"server.js", R"(
      const Module = require('module');
      console.log(require('node:module') === Module, Module.isBuiltin('fs') === Module.builtinModules.includes('fs'));
      for (const name of ['internal/modules', '_errors']) { try { require(name); } catch (error) { console.log(error.code); } }
      console.log(Module.createRequire('/lib/x.js')('./y'), typeof internalBinding);)"},
                 {"lib/y.js", "module.exports = 'y';"}}),
            "true true\nMODULE_NOT_FOUND\nMODULE_NOT_FOUND\ny undefined\n");
}

TEST(ModuleText, NamesOfCommonJsAreFound) {
  const auto names = [](std::string_view text) {
    std::string joined;
    const CommonJsExports found = find_commonjs_exports(text);
    for (const std::string& name : found.names) joined += name + " ";
    for (const std::string& specifier : found.reexports) joined += "<" + specifier + "> ";
    return joined;
  };
  EXPECT_EQ(names("exports.a = 1; module.exports.b = 2; exports['c-d'] = 3; exports.a = 4; if (exports.x == 1) y;"), "a b c-d ");
  EXPECT_EQ(names("module.exports = { a, b: c, 'd': 1, [e]: 2, f() { return { g: 1 }; }, async h() {}, get i() {}, ...require('./j') }; "
                  "exports.k = 1;"),
            "a b d f h i k <./j> ");
  EXPECT_EQ(names("module.exports = require('./x');"), "<./x> ");
  EXPECT_EQ(names("Object.defineProperty(exports, \"a\", { enumerable: true }); tslib_1.__exportStar(require(\"./b\"), exports);"),
            "a <./b> ");
  EXPECT_EQ(names("// exports.a = 1\n/* exports.b = 1 */ 'exports.c = 1'; `exports.d = 1 ${exports.e = 1} x`; /exports.f = 1/.test(s); "
                  "o.exports.g = 1; 4 / 2; exports.h = 1"),
            "e h ");
  EXPECT_EQ(names("exports.a = exports.b = void 0;"), "a b ");
  for (const char* const broken : {"'", "`${", "/*", "/", "module.exports = {", "exports[", "\"\\", "`${`${`"})
    EXPECT_EQ(names(broken), "");
}

TEST(ModuleText, SyntaxOfModulesIsFound) {
  for (const char* const text : {"import 'x';", "import a from 'x'", "import { b } from 'x'", "export default 1", "export { a };",
                                 "a(); export const x = 1", "import.meta.url"}) {
    EXPECT_TRUE(has_module_syntax(text)) << text;
  }
  for (const char* const text : {"import('x')", "exports.a = 1", "const o = { import: 1, export: 2 }", "'import x'", "// export default 1",
                                 "o.import.x", "o.export", "`\nimport x from 'y'\n`", ""}) {
    EXPECT_FALSE(has_module_syntax(text)) << text;
  }
}

}  // namespace
}  // namespace neap::webserver
