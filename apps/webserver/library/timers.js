// SPDX-License-Identifier: BSL-1.0
// The module `timers`. Natives keep the timers; this file gives them Node's functions.
'use strict';

const binding = internalBinding('timers');
const { checkFunction } = require('_errors');

const custom = Symbol.for('nodejs.util.promisify.custom');

// Natives that provide the global functions themselves are used as they are.
const setTimeout =
  binding.setTimeout ??
  function setTimeout(callback, delay_ms, ...args) {
    checkFunction(callback, 'callback');
    return binding.start(callback, delay_ms, false, ...args);
  };
const setInterval =
  binding.setInterval ??
  function setInterval(callback, delay_ms, ...args) {
    checkFunction(callback, 'callback');
    return binding.start(callback, delay_ms, true, ...args);
  };
const setImmediate = binding.setImmediate;
const stop = (timer) => {
  if (timer !== null && typeof timer === 'object') binding.stop(timer);
};
const clearTimeout = binding.clearTimeout ?? stop;
const clearInterval = binding.clearInterval ?? stop;
const clearImmediate = binding.clearImmediate ?? stop;

for (const [action, name] of [
  [setTimeout, 'setTimeout'],
  [setImmediate, 'setImmediate'],
]) {
  if (!Object.hasOwn(action, custom))
    Object.defineProperty(action, custom, { enumerable: true, configurable: true, get: () => require('timers/promises')[name] });
}

module.exports = {
  setTimeout,
  setInterval,
  setImmediate,
  clearTimeout,
  clearInterval,
  clearImmediate,
  get promises() {
    return require('timers/promises');
  },
};
