// SPDX-License-Identifier: BSL-1.0
// The first script of each engine: makes the globals of Node that JavaScript itself does not have.
//
// An engine is made on each core at boot, and many applications use few globals. So most of them load their script at the first use.
'use strict';

const { builtins } = internalBinding('modules');
const timers = internalBinding('timers');
const present = new Set(builtins());

function define(name, value) {
  Object.defineProperty(globalThis, name, { value, writable: true, enumerable: false, configurable: true });
}

/// A global that is made at its first use. An assignment replaces it.
function lazy(name, make) {
  Object.defineProperty(globalThis, name, {
    get() {
      const value = make();
      define(name, value);
      return value;
    },
    set(value) {
      define(name, value);
    },
    enumerable: false,
    configurable: true,
  });
}

function lazyAll(names, module) {
  for (const name of names) lazy(name, () => require(module)[name]);
}

define('global', globalThis);
for (const name of ['setTimeout', 'setInterval', 'setImmediate', 'clearTimeout', 'clearInterval', 'clearImmediate'])
  define(name, timers[name]);

lazy('process', () => require(present.has('process') ? 'process' : 'internal/process'));
lazy('console', () => {
  const module = require(present.has('console') ? 'console' : 'internal/console');
  return module.log ? module : module.console;
});
lazy('Buffer', () => require('buffer').Buffer);
lazy('performance', () => require('internal/performance'));
lazy('structuredClone', () => require('internal/structured_clone'));
lazyAll(['URL', 'URLSearchParams'], 'internal/url');
lazyAll(['TextEncoder', 'TextDecoder'], 'internal/encoding');
lazyAll(['Event', 'EventTarget', 'CustomEvent', 'AbortController', 'AbortSignal'], 'internal/event_target');

// For code that other code evaluates with import(): it finds its files by the loader of the application.
require('internal/modules');

// Buffer functions, streams and fetch classes of the web: getters that load their module at the first use.
require('_bootstrap');
