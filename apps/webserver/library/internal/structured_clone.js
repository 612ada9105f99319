// SPDX-License-Identifier: BSL-1.0
// structuredClone: a deep copy of data, with cycles. Functions, symbols and other objects with native state are refused.
'use strict';

const { className } = internalBinding('util');

const errorTypes = { Error, EvalError, RangeError, ReferenceError, SyntaxError, TypeError, URIError };

function refuse(value) {
  let name;
  try {
    name = typeof value === 'symbol' ? value.toString() : typeof value === 'function' ? `${value}`.slice(0, 100) : '#<Object>';
  } catch {
    name = 'The object';
  }
  throw new DOMException(`${name} could not be cloned.`, 'DataCloneError');
}

function cloneView(value, copies, transferred) {
  const buffer = clone(value.buffer, copies, transferred);
  if (className(value) === 'DataView') return new DataView(buffer, value.byteOffset, value.byteLength);
  const constructors = {
    Int8Array,
    Uint8Array,
    Uint8ClampedArray,
    Int16Array,
    Uint16Array,
    Int32Array,
    Uint32Array,
    Float32Array,
    Float64Array,
    BigInt64Array,
    BigUint64Array,
  };
  return new constructors[className(value)](buffer, value.byteOffset, value.length);
}

function cloneError(value, copies, transferred) {
  const type = errorTypes[value.name] ?? Error;
  const made = new type(Object.hasOwn(value, 'message') ? String(value.message) : undefined);
  copies.set(value, made);
  if (typeof value.stack === 'string') made.stack = value.stack;
  if (Object.hasOwn(value, 'cause')) made.cause = clone(value.cause, copies, transferred);
  return made;
}

function cloneProperties(value, copy, copies, transferred) {
  for (const key of Object.keys(value)) {
    Object.defineProperty(copy, key, {
      value: clone(value[key], copies, transferred),
      writable: true,
      enumerable: true,
      configurable: true,
    });
  }
  return copy;
}

function clone(value, copies, transferred) {
  if (typeof value === 'symbol' || typeof value === 'function') refuse(value);
  if (typeof value !== 'object' || value === null) return value;
  const present = copies.get(value);
  if (present !== undefined) return present;
  const remember = (copy) => {
    copies.set(value, copy);
    return copy;
  };
  const kind = className(value);
  switch (kind) {
    case 'Object':
    case 'Arguments':
      return cloneProperties(value, remember({}), copies, transferred);
    case 'Array': {
      const copy = remember([]);
      copy.length = value.length;
      return cloneProperties(value, copy, copies, transferred);
    }
    case 'Map': {
      const copy = remember(new Map());
      for (const [key, item] of [...value]) copy.set(clone(key, copies, transferred), clone(item, copies, transferred));
      return copy;
    }
    case 'Set': {
      const copy = remember(new Set());
      for (const item of [...value]) copy.add(clone(item, copies, transferred));
      return copy;
    }
    case 'Date':
      return remember(new Date(value.getTime()));
    case 'RegExp':
      return remember(new RegExp(value.source, value.flags));
    case 'Error':
      return cloneError(value, copies, transferred);
    case 'ArrayBuffer':
      return remember(transferred.has(value) ? value.transfer() : value.slice(0));
    case 'Boolean':
    case 'Number':
    case 'String':
    case 'BigInt':
      return remember(Object(value.valueOf()));
    default:
      if (ArrayBuffer.isView(value)) return remember(cloneView(value, copies, transferred));
      return refuse(value);
  }
}

module.exports = function structuredClone(value, options) {
  if (arguments.length === 0) throw new TypeError('The "value" argument must be specified');
  const transferred = new Set(options?.transfer ?? []);
  for (const each of transferred) {
    if (className(each) !== 'ArrayBuffer' || each.detached) throw new DOMException('Value could not be transferred.', 'DataCloneError');
  }
  const copies = new Map();
  const copy = clone(value, copies, transferred);
  // Buffers of the list that the value does not contain are detached, too.
  for (const each of transferred) if (!each.detached) each.transfer();
  return copy;
};
