// SPDX-License-Identifier: BSL-1.0
// The module `util`.
'use strict';

const { inspect, formatNumber } = require('_inspect');
const { types, isError } = require('_types');
const { withCode, argumentType, checkFunction } = require('_errors');

// Objects with a toString of their own are shown by it in %s; plain objects are inspected.
function hasOwnToString(value) {
  if (typeof value.toString !== 'function') return false;
  if (Object.hasOwn(value, 'toString')) return true;
  for (let prototype = Object.getPrototypeOf(value); prototype; prototype = Object.getPrototypeOf(prototype)) {
    if (Object.hasOwn(prototype, 'toString')) {
      return (
        ![Object.prototype, Array.prototype, Map.prototype, Set.prototype, Function.prototype].includes(prototype) && !isBuiltIn(prototype)
      );
    }
  }
  return false;
}

function isBuiltIn(prototype) {
  const maker = prototype.constructor;
  return typeof maker === 'function' && globalThis[maker.name] === maker;
}

function formatOne(letter, value, options) {
  switch (letter) {
    case 's':
      if (typeof value === 'number') return formatNumber(value);
      if (typeof value === 'bigint') return `${value}n`;
      if (typeof value !== 'object' || value === null) return String(value);
      return hasOwnToString(value) ? String(value) : inspect(value, { ...options, depth: 0, colors: false, compact: 3 });
    case 'd':
      if (typeof value === 'bigint') return `${value}n`;
      return typeof value === 'symbol' ? 'NaN' : formatNumber(Number(value));
    case 'i':
      if (typeof value === 'bigint') return `${value}n`;
      return typeof value === 'symbol' ? 'NaN' : formatNumber(Number.parseInt(value, 10));
    case 'f':
      return typeof value === 'symbol' ? 'NaN' : formatNumber(Number.parseFloat(value));
    case 'j':
      try {
        return JSON.stringify(value);
      } catch (error) {
        if (/circular/i.test(error.message)) return '[Circular]';
        throw error;
      }
    case 'O':
      return inspect(value, options);
    case 'o':
      return inspect(value, { ...options, showHidden: true, showProxy: true, depth: 4 });
    default:
      return '';
  }
}

function formatWithOptions(options, ...args) {
  if (options === null || typeof options !== 'object') throw argumentType('inspectOptions', 'object', options);
  const [first] = args;
  if (args.length === 1 && typeof first === 'string') return first;
  let next = 0;
  let text = '';
  let separator = '';
  if (typeof first === 'string') {
    next = 1;
    text = first.replace(/%([sdijfoOc%])/g, (whole, letter) => {
      if (letter === '%') return args.length > 1 ? '%' : whole;
      if (next >= args.length) return whole;
      return formatOne(letter, args[next++], options);
    });
    separator = ' ';
  }
  for (; next < args.length; next++) {
    const value = args[next];
    text += `${separator}${typeof value === 'string' ? value : inspect(value, { ...options, compact: 3, colors: false })}`;
    separator = ' ';
  }
  return text;
}

function format(...args) {
  return formatWithOptions({}, ...args);
}

const customPromisify = Symbol.for('nodejs.util.promisify.custom');

function promisify(original) {
  checkFunction(original, 'original');
  const own = original[customPromisify];
  if (own !== undefined) {
    checkFunction(own, 'util.promisify.custom');
    return Object.defineProperty(own, customPromisify, { value: own, enumerable: false, writable: false, configurable: true });
  }
  function promised(...args) {
    return new Promise((resolve, reject) => {
      original.call(this, ...args, (error, ...values) => {
        if (error) reject(error);
        else resolve(values[0]);
      });
    });
  }
  Object.setPrototypeOf(promised, Object.getPrototypeOf(original));
  Object.defineProperty(promised, customPromisify, { value: promised, enumerable: false, writable: false, configurable: true });
  return Object.defineProperties(promised, Object.getOwnPropertyDescriptors(original));
}
promisify.custom = customPromisify;

function callbackify(original) {
  checkFunction(original, 'original');
  const nextTick = require('_ticks');
  function callbackified(...args) {
    const callback = args.pop();
    checkFunction(callback, 'last argument');
    Reflect.apply(original, this, args).then(
      (value) => nextTick(callback.bind(this), null, value),
      (reason) => {
        if (!reason) {
          const error = withCode(Error, 'ERR_FALSY_VALUE_REJECTION', 'Promise was rejected with falsy value');
          error.reason = reason;
          reason = error;
        }
        nextTick(callback.bind(this), reason);
      },
    );
  }
  Object.defineProperty(callbackified, 'name', { value: `${original.name}Callbackified`, configurable: true });
  return callbackified;
}

function inherits(constructor, parent) {
  if (typeof constructor !== 'function') throw argumentType('ctor', 'Function', constructor);
  if (typeof parent !== 'function') throw argumentType('superCtor', 'Function', parent);
  if (parent.prototype === undefined) throw argumentType('superCtor.prototype', 'Object', parent.prototype);
  Object.defineProperty(constructor, 'super_', { value: parent, writable: true, configurable: true });
  Object.setPrototypeOf(constructor.prototype, parent.prototype);
}

const shownCodes = new Set();

function deprecate(action, message, code) {
  let warned = false;
  function deprecated(...args) {
    if (!warned && !process.noDeprecation) {
      warned = true;
      if (code === undefined || !shownCodes.has(code)) {
        if (code !== undefined) shownCodes.add(code);
        process.emitWarning(message, 'DeprecationWarning', code);
      }
    }
    if (new.target) return Reflect.construct(action, args, new.target);
    return Reflect.apply(action, this, args);
  }
  Object.setPrototypeOf(deprecated, action);
  if (action.prototype) deprecated.prototype = action.prototype;
  return deprecated;
}

function debuglog() {
  const log = () => {};
  log.enabled = false;
  return log;
}

function stripVTControlCharacters(text) {
  return `${text}`.replace(/[\u001b\u009b][[\]()#;?]*(?:\d{1,4}(?:[;:]\d{0,4})*)?[\dA-PR-TZcf-nq-uy=><~]/g, '');
}

function toUSVString(text) {
  return `${text}`.toWellFormed();
}

function aborted(signal, resource) {
  if (signal.aborted) return Promise.resolve();
  return new Promise((resolve) => signal.addEventListener('abort', () => resolve(resource && undefined), { once: true }));
}

const isType = (type) => (value) => typeof value === type;

module.exports = {
  inspect,
  format,
  formatWithOptions,
  promisify,
  callbackify,
  inherits,
  deprecate,
  debuglog,
  debug: debuglog,
  types,
  stripVTControlCharacters,
  toUSVString,
  aborted,
  isDeepStrictEqual: (first, second) => require('_deep_equal').isDeepEqual(first, second, true),
  isArray: Array.isArray,
  isBoolean: isType('boolean'),
  isNumber: isType('number'),
  isString: isType('string'),
  isSymbol: isType('symbol'),
  isUndefined: isType('undefined'),
  isFunction: isType('function'),
  isNull: (value) => value === null,
  isNullOrUndefined: (value) => value === null || value === undefined,
  isObject: (value) => value !== null && typeof value === 'object',
  isPrimitive: (value) => value === null || (typeof value !== 'object' && typeof value !== 'function'),
  isDate: types.isDate,
  isRegExp: types.isRegExp,
  isError,
  isBuffer: (value) => require('buffer').Buffer.isBuffer(value),
  log: (...args) => console.log('%s - %s', new Date().toTimeString().slice(0, 8), format(...args)),
  _extend: (target, source) => (source === null || typeof source !== 'object' ? target : Object.assign(target, source)),
  getSystemErrorName: (number) => `Unknown system error ${number}`,
  get TextEncoder() {
    return globalThis.TextEncoder;
  },
  get TextDecoder() {
    return globalThis.TextDecoder;
  },
};
