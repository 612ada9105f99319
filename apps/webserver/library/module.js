// SPDX-License-Identifier: BSL-1.0
// node:module: createRequire, builtinModules, and the class of CommonJS modules.
'use strict';

module.exports = require('internal/modules').Module;
