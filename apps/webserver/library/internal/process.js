// SPDX-License-Identifier: BSL-1.0
// A small `process`, for an image whose library has no module of that name.
'use strict';

const binding = internalBinding('process');

module.exports = {
  argv: binding.argv,
  env: binding.env,
  nextTick: binding.nextTick,
  uptime: binding.uptime,
  memoryUsage: binding.memoryUsage,
  hrtime: { bigint: binding.hrtime },
  platform: 'neap',
};
