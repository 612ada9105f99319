// SPDX-License-Identifier: BSL-1.0
'use strict';

module.exports = require('_types').types;
