// SPDX-License-Identifier: BSL-1.0
// The module `stream/web`.
'use strict';

module.exports = require('_web_streams');
