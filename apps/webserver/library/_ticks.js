// SPDX-License-Identifier: BSL-1.0
// process.nextTick for the library's own use, without the cost of loading `process`.
'use strict';

const binding = internalBinding('process');

module.exports =
  binding && binding.nextTick
    ? binding.nextTick
    : function nextTick(callback, ...args) {
        queueMicrotask(() => callback(...args));
      };
