// SPDX-License-Identifier: BSL-1.0
// CommonJS: Node's Module objects, their cache, and `require`.
//
// Paths are found and files are compiled by natives (engine/resolver.hpp, engine/modules.hpp). ES modules that import a CommonJS file come
// here through `load`.
'use strict';

const binding = internalBinding('modules');

const cache = Object.create(null);
const loading = [];
let mainModule;

function folderOf(path) {
  const slash = path.lastIndexOf('/');
  return slash <= 0 ? '/' : path.slice(0, slash);
}

/// The folders node_modules in which a file's packages are searched.
function foldersOf(path) {
  const folders = [];
  for (let folder = folderOf(path); ; folder = folderOf(folder)) {
    if (!folder.endsWith('/node_modules')) folders.push(`${folder === '/' ? '' : folder}/node_modules`);
    if (folder === '/') return folders;
  }
}

function Module(id = '', parent) {
  this.id = id;
  this.path = folderOf(id);
  this.exports = {};
  this.filename = id;
  this.loaded = false;
  this.children = [];
  this.paths = foldersOf(id);
  Object.defineProperty(this, 'parent', { value: parent, writable: true, enumerable: false, configurable: true });
  parent?.children.push(this);
}

Module.prototype.require = function (specifier) {
  if (typeof specifier !== 'string') {
    throw Object.assign(new TypeError(`The "id" argument must be of type string. Received ${typeof specifier}`), {
      code: 'ERR_INVALID_ARG_TYPE',
    });
  }
  if (specifier === '')
    throw Object.assign(new TypeError("The argument 'id' must be a non-empty string. Received ''"), { code: 'ERR_INVALID_ARG_VALUE' });
  const path = resolve(specifier, this);
  return path.startsWith('node:') ? binding.builtin(path.slice(5)) : loadFile(path, this);
};

Module.prototype._compile = function (source, path) {
  return run(this, binding.compile(path, source));
};

function resolve(specifier, parent) {
  try {
    return binding.resolve(specifier, parent.filename, false);
  } catch (error) {
    if (error.code === 'MODULE_NOT_FOUND') {
      error.requireStack = [];
      for (let each = parent; each; each = each.parent) error.requireStack.push(each.filename);
    }
    throw error;
  }
}

function makeRequire(module) {
  const require = (specifier) => module.require(specifier);
  require.resolve = (specifier) => {
    const path = resolve(specifier, module);
    // Node returns the name as it was given.
    return path.startsWith('node:') ? specifier : path;
  };
  require.resolve.paths = () => module.paths;
  require.main = mainModule;
  require.cache = cache;
  return require;
}

function run(module, compiled) {
  return compiled.call(module.exports, module.exports, makeRequire(module), module, module.filename, folderOf(module.filename));
}

function loadFile(path, parent) {
  const present = cache[path];
  if (present !== undefined) {
    if (parent && !parent.children.includes(present)) parent.children.push(present);
    return present.exports;
  }
  const kind = binding.kind(path);
  if (kind === 'module') {
    throw Object.assign(
      new Error(
        `require() of ES Module ${path} from ${parent?.filename ?? 'import'} not supported.\n` +
          'Instead change the require to a dynamic import() which is available in all CommonJS modules.',
      ),
      { code: 'ERR_REQUIRE_ESM' },
    );
  }
  const module = new Module(path, parent);
  if (mainModule === undefined) {
    mainModule = module;
    module.id = '.';
  }
  cache[path] = module;
  loading.push(path);
  let complete = false;
  try {
    if (kind === 'json') module.exports = binding.json(path);
    else run(module, binding.compile(path));
    module.loaded = true;
    complete = true;
  } finally {
    loading.pop();
    if (!complete) delete cache[path];
  }
  return module.exports;
}

Module.Module = Module;
Module._cache = cache;
Module._load = (specifier, parent) => (parent ?? new Module('/')).require(specifier);
Module._resolveFilename = (specifier, parent) => resolve(specifier, parent);
Module._nodeModulePaths = (folder) => foldersOf(`${folder}/x`);
Module.builtinModules = binding.builtins();
Module.isBuiltin = (name) => Module.builtinModules.includes(name.replace(/^node:/, ''));
Module.createRequire = (path) => {
  path = String(path).replace(/^file:\/\//, '');
  if (!path.startsWith('/')) {
    throw Object.assign(new TypeError("The argument 'filename' must be a file URL object, file URL string, or absolute path string."), {
      code: 'ERR_INVALID_ARG_VALUE',
    });
  }
  return makeRequire(new Module(path));
};

module.exports = {
  Module,
  load: (path) => loadFile(path),
  runMain: (path) => loadFile(path),
  /// Runs a text as if it were a file of the archive. It is not in the cache.
  runSource(source, path) {
    const module = new Module(path);
    mainModule ??= module;
    module._compile(source, path);
    module.loaded = true;
    return module.exports;
  },
  fillMeta(meta, path) {
    meta.url = `file://${encodeURI(path).replace(/[?#]/g, encodeURIComponent)}`;
    meta.filename = path;
    meta.dirname = folderOf(path);
    meta.resolve = (specifier) => {
      const found = binding.resolve(String(specifier), path, true);
      return found.startsWith('node:') ? found : `file://${found}`;
    };
  },
};
