// SPDX-License-Identifier: BSL-1.0
// The module `fs/promises`.
'use strict';

module.exports = require('fs').promises;
