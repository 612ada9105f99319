// SPDX-License-Identifier: BSL-1.0
// The globals of Node that the library provides.
//
// Start-up time counts, and most scripts use few globals. Nothing is loaded here: each global is a getter that loads its module at the
// first use and replaces itself by the value. Globals that natives have set already are left alone.
'use strict';

function lazy(name, load, enumerable = false) {
  if (Object.hasOwn(globalThis, name)) return; // without calling a getter
  Object.defineProperty(globalThis, name, {
    configurable: true,
    enumerable,
    get() {
      const value = load();
      Object.defineProperty(globalThis, name, { value, configurable: true, enumerable, writable: true });
      return value;
    },
    set(value) {
      Object.defineProperty(globalThis, name, { value, configurable: true, enumerable, writable: true });
    },
  });
}

lazy('global', () => globalThis);
lazy('Buffer', () => require('buffer').Buffer);
lazy('atob', () => require('buffer').atob);
lazy('btoa', () => require('buffer').btoa);
lazy('process', () => require('process'));
lazy('console', () => require('console'));
for (const name of ['setTimeout', 'setInterval', 'setImmediate', 'clearTimeout', 'clearInterval', 'clearImmediate']) {
  lazy(name, () => require('timers')[name], true);
}
const classes = {
  _web_headers: ['Headers'],
  _web_fetch: ['Request', 'Response'],
  _web_blob: ['Blob', 'File'],
  _web_form: ['FormData'],
  _web_streams: [
    'ReadableStream',
    'ReadableStreamDefaultReader',
    'ReadableStreamDefaultController',
    'WritableStream',
    'WritableStreamDefaultWriter',
    'WritableStreamDefaultController',
    'TransformStream',
    'TransformStreamDefaultController',
    'ByteLengthQueuingStrategy',
    'CountQueuingStrategy',
    'TextEncoderStream',
    'TextDecoderStream',
  ],
};
for (const [module, names] of Object.entries(classes)) for (const name of names) lazy(name, () => require(module)[name]);
lazy('crypto', () => require('crypto').webcrypto);

require('_call_sites').complete();
