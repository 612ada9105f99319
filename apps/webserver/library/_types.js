// SPDX-License-Identifier: BSL-1.0
// util.types: the kind of a value by its internal slots, not by its prototype.
//
// A method or getter that needs the slot throws for all other values. Natives answer for the kinds without such a method.
'use strict';

const native = internalBinding('util') ?? {};

const tagOf = Object.getOwnPropertyDescriptor(Object.getPrototypeOf(Uint8Array.prototype), Symbol.toStringTag).get;
const typedArrayName = (value) => tagOf.call(value);

function hasSlot(prototype, name) {
  const descriptor = Object.getOwnPropertyDescriptor(prototype, name);
  const probe = descriptor.get ?? descriptor.value;
  return (value) => {
    if (value === null || (typeof value !== 'object' && typeof value !== 'function')) return false;
    try {
      probe.call(value);
      return true;
    } catch {
      return false;
    }
  };
}

const isMap = hasSlot(Map.prototype, 'size');
const isSet = hasSlot(Set.prototype, 'size');
const isDate = hasSlot(Date.prototype, 'getTime');
const isRegExp = (value) =>
  Object.prototype.toString.call(value) === '[object RegExp]' || (value instanceof RegExp && value !== RegExp.prototype);
const isArrayBuffer = hasSlot(ArrayBuffer.prototype, 'byteLength');
const isSharedArrayBuffer = typeof SharedArrayBuffer === 'function' ? hasSlot(SharedArrayBuffer.prototype, 'byteLength') : () => false;
const isDataView = (value) => ArrayBuffer.isView(value) && typedArrayName(value) === undefined;
const isTypedArray = (value) => ArrayBuffer.isView(value) && typedArrayName(value) !== undefined;
const isNumberObject = hasSlot(Number.prototype, 'valueOf');
const isStringObject = hasSlot(String.prototype, 'valueOf');
const isBooleanObject = hasSlot(Boolean.prototype, 'valueOf');
const isBigIntObject = hasSlot(BigInt.prototype, 'valueOf');
const isSymbolObject = hasSlot(Symbol.prototype, 'valueOf');
const tagIs = (tag) => (value) => Object.prototype.toString.call(value) === `[object ${tag}]`;

const isWeakMap = tagIs('WeakMap');
const isWeakSet = tagIs('WeakSet');
const isPromise = native.isPromise ?? ((value) => value instanceof Promise);
const isProxy = native.isProxy ?? (() => false);

function isNativeError(value) {
  if (typeof Error.isError === 'function') return Error.isError(value);
  return Object.prototype.toString.call(value) === '[object Error]';
}

function isError(value) {
  return isNativeError(value) || value instanceof Error;
}

/// The kind that `inspect` and deep comparison distinguish: 'Map', 'Date', 'TypedArray', ... or 'Object'.
function classOf(value) {
  if (typeof value === 'function') return 'Function';
  if (ArrayBuffer.isView(value)) return typedArrayName(value) === undefined ? 'DataView' : 'TypedArray';
  const tag = Object.prototype.toString.call(value).slice(8, -1);
  // Most objects: no probe throws for them.
  if (tag === 'Object' && Object.getPrototypeOf(value) === Object.prototype) return 'Object';
  if (isError(value)) return 'Error';
  if (tag === 'Arguments') return 'Arguments';
  if (isDate(value)) return 'Date';
  if (isRegExp(value)) return 'RegExp';
  if (isMap(value)) return 'Map';
  if (isSet(value)) return 'Set';
  if (isPromise(value)) return 'Promise';
  if (isArrayBuffer(value)) return 'ArrayBuffer';
  if (isSharedArrayBuffer(value)) return 'SharedArrayBuffer';
  if (tag === 'WeakMap' || tag === 'WeakSet' || tag === 'Map Iterator' || tag === 'Set Iterator') return tag;
  if (isNumberObject(value)) return 'Number';
  if (isStringObject(value)) return 'String';
  if (isBooleanObject(value)) return 'Boolean';
  if (isBigIntObject(value)) return 'BigInt';
  if (isSymbolObject(value)) return 'Symbol';
  return 'Object';
}

const types = {
  isExternal: () => false,
  isDate,
  isArgumentsObject: tagIs('Arguments'),
  isBigIntObject,
  isBooleanObject,
  isNumberObject,
  isStringObject,
  isSymbolObject,
  isBoxedPrimitive: (value) =>
    [isNumberObject, isStringObject, isBooleanObject, isBigIntObject, isSymbolObject].some((test) => test(value)),
  isNativeError,
  isRegExp,
  isAsyncFunction: (value) => typeof value === 'function' && /^Async/.test(Object.prototype.toString.call(value).slice(8)),
  isGeneratorFunction: (value) => typeof value === 'function' && /GeneratorFunction\]$/.test(Object.prototype.toString.call(value)),
  isGeneratorObject: tagIs('Generator'),
  isPromise,
  isMap,
  isSet,
  isMapIterator: tagIs('Map Iterator'),
  isSetIterator: tagIs('Set Iterator'),
  isWeakMap,
  isWeakSet,
  isArrayBuffer,
  isDataView,
  isSharedArrayBuffer,
  isProxy,
  isModuleNamespaceObject: tagIs('Module'),
  isAnyArrayBuffer: (value) => isArrayBuffer(value) || isSharedArrayBuffer(value),
  isCryptoKey: () => false,
  isKeyObject: () => false,
  isArrayBufferView: ArrayBuffer.isView,
  isTypedArray,
};
for (const name of [
  'Uint8Array',
  'Uint8ClampedArray',
  'Uint16Array',
  'Uint32Array',
  'Int8Array',
  'Int16Array',
  'Int32Array',
  'Float32Array',
  'Float64Array',
  'BigInt64Array',
  'BigUint64Array',
]) {
  types[`is${name}`] = (value) => ArrayBuffer.isView(value) && typedArrayName(value) === name;
}

module.exports = {
  types,
  classOf,
  typedArrayName,
  isError,
  isPromise,
  isProxy,
  getPromiseDetails: native.getPromiseDetails ?? native.promiseDetails,
  proxyDetails: native.proxyDetails,
};
