// SPDX-License-Identifier: BSL-1.0
// The module `stream/promises`.
'use strict';

module.exports = require('_stream_utilities').promises;
