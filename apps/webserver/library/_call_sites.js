// SPDX-License-Identifier: BSL-1.0
// Call sites of stack traces, completed to the interface of V8.
//
// Libraries for deprecations and logs (depd, which Express and Koa use) ask a call site if it is in `eval`. QuickJS's call sites know file,
// line, column and function; the other questions have constant answers.
'use strict';

const answers = {
  isEval: () => false,
  isNative: () => false,
  isToplevel: () => true,
  isConstructor: () => false,
  isAsync: () => false,
  isPromiseAll: () => false,
  getEvalOrigin: () => undefined,
  getThis: () => undefined,
  getFunction: () => undefined,
  getTypeName: () => null,
  getMethodName: () => null,
  getPromiseIndex: () => null,
  getFunctionName: () => null,
  getLineNumber: () => null,
  getColumnNumber: () => null,
  getFileName: () => undefined,
  getScriptNameOrSourceURL() {
    return this.getFileName();
  },
  toString() {
    const place = `${this.getFileName()}:${this.getLineNumber()}:${this.getColumnNumber()}`;
    const name = this.getFunctionName();
    return name ? `${name} (${place})` : place;
  },
};

/// Adds the missing methods. An engine without call sites is left as it is.
function complete() {
  // V8 has no such property at first; in QuickJS it is an accessor.
  const isPresent = Object.hasOwn(Error, 'prepareStackTrace');
  const before = Error.prepareStackTrace;
  let sites;
  try {
    Error.prepareStackTrace = (error, list) => list;
    sites = new Error().stack;
  } finally {
    if (isPresent) Error.prepareStackTrace = before;
    else delete Error.prepareStackTrace;
  }
  if (!Array.isArray(sites) || sites.length === 0) return;
  const prototype = Object.getPrototypeOf(sites[0]);
  for (const [name, value] of Object.entries(answers)) {
    if (!Object.hasOwn(prototype, name)) Object.defineProperty(prototype, name, { value, writable: true, configurable: true });
  }
}

module.exports = { complete };
