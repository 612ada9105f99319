// SPDX-License-Identifier: BSL-1.0
// Deep equality, strict and loose, for `util` and `assert`.
//
// Pairs of objects under comparison are remembered: a circular object equals another one of the same shape. Members of sets and keys of
// maps that are objects have no order, so they are matched by search.
'use strict';

const { classOf } = require('_types');

function isDeepEqual(first, second, strict) {
  return equal(first, second, strict, []);
}

function equal(first, second, strict, memory) {
  if (first === second) return first !== 0 || !strict || Object.is(first, second);
  const firstIsObject = first !== null && typeof first === 'object';
  const secondIsObject = second !== null && typeof second === 'object';
  if (strict) {
    if (typeof first !== 'object') return typeof first === 'number' && Number.isNaN(first) && Number.isNaN(second);
    if (!firstIsObject || !secondIsObject) return false;
    if (Object.getPrototypeOf(first) !== Object.getPrototypeOf(second)) return false;
  } else {
    if (!firstIsObject) return !secondIsObject && (first == second || (Number.isNaN(first) && Number.isNaN(second)));
    if (!secondIsObject) return false;
  }
  return equalObjects(first, second, strict, memory);
}

function equalObjects(first, second, strict, memory) {
  const kind = classOf(first);
  if (kind !== classOf(second) || Array.isArray(first) !== Array.isArray(second)) return false;
  if (Object.prototype.toString.call(first) !== Object.prototype.toString.call(second)) return false;
  switch (kind) {
    case 'Date':
      if (Date.prototype.getTime.call(first) !== Date.prototype.getTime.call(second)) return false;
      break;
    case 'RegExp':
      if (String(first) !== String(second) || first.lastIndex !== second.lastIndex) return false;
      break;
    case 'Error':
      if (first.message !== second.message || first.name !== second.name) return false;
      if (!equal(first.cause, second.cause, strict, memory) || !equal(first.errors, second.errors, strict, memory)) return false;
      break;
    case 'TypedArray':
    case 'DataView':
    case 'ArrayBuffer':
      return equalBytes(first, second, strict) && equalProperties(first, second, strict, memory, true);
    case 'Number':
    case 'String':
    case 'Boolean':
    case 'BigInt':
    case 'Symbol':
      if (!Object.is(first.valueOf(), second.valueOf())) return false;
      break;
    case 'WeakMap':
    case 'WeakSet':
    case 'Promise':
      return false;
    default:
  }
  for (const [left, right] of memory) if (left === first && right === second) return true;
  memory.push([first, second]);
  let result = equalProperties(first, second, strict, memory, false);
  if (result && kind === 'Set') result = equalSets(first, second, strict, memory);
  if (result && kind === 'Map') result = equalMaps(first, second, strict, memory);
  memory.pop();
  return result;
}

function equalBytes(first, second, strict) {
  if (first.byteLength !== second.byteLength) return false;
  if (!strict && (first instanceof Float32Array || first instanceof Float64Array)) {
    return (
      first.length === second.length &&
      first.every((value, index) => value === second[index] || (Number.isNaN(value) && Number.isNaN(second[index])))
    );
  }
  const bytes = (value) =>
    ArrayBuffer.isView(value) ? new Uint8Array(value.buffer, value.byteOffset, value.byteLength) : new Uint8Array(value);
  const right = bytes(second);
  return bytes(first).every((byte, index) => byte === right[index]);
}

function keysOf(value, strict, withoutIndices) {
  let keys = Object.keys(value);
  if (withoutIndices) keys = keys.filter((key) => !/^\d+$/.test(key));
  if (strict) {
    for (const symbol of Object.getOwnPropertySymbols(value)) {
      if (Object.prototype.propertyIsEnumerable.call(value, symbol)) keys.push(symbol);
    }
  }
  return keys;
}

function equalProperties(first, second, strict, memory, withoutIndices) {
  if (Array.isArray(first) && first.length !== second.length) return false;
  const keys = keysOf(first, strict, withoutIndices);
  if (keys.length !== keysOf(second, strict, withoutIndices).length) return false;
  for (const key of keys) {
    if (!Object.prototype.propertyIsEnumerable.call(second, key)) return false;
    if (!equal(first[key], second[key], strict, memory)) return false;
  }
  return true;
}

function equalSets(first, second, strict, memory) {
  if (first.size !== second.size) return false;
  const unmatched = [];
  for (const value of second) if (!first.has(value)) unmatched.push(value);
  for (const value of first) {
    if (second.has(value)) continue;
    if (strict && typeof value !== 'object') return false;
    const index = unmatched.findIndex((other) => equal(value, other, strict, memory));
    if (index === -1) return false;
    unmatched.splice(index, 1);
  }
  return unmatched.length === 0;
}

function equalMaps(first, second, strict, memory) {
  if (first.size !== second.size) return false;
  const unmatched = [];
  for (const key of second.keys()) if (!first.has(key)) unmatched.push(key);
  for (const [key, value] of first) {
    if (second.has(key)) {
      if (!equal(value, second.get(key), strict, memory)) return false;
      continue;
    }
    if (strict && typeof key !== 'object') return false;
    const index = unmatched.findIndex((other) => equal(key, other, strict, memory) && equal(value, second.get(other), strict, memory));
    if (index === -1) return false;
    unmatched.splice(index, 1);
  }
  return unmatched.length === 0;
}

module.exports = { isDeepEqual };
