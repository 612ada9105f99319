// SPDX-License-Identifier: BSL-1.0
// Numbers in a Buffer: readInt16LE, writeDoubleBE and the others.
//
// One DataView for each access would cost an object. Integers up to 32 bits are put together from bytes; floats pass through one shared
// DataView.
'use strict';

const { withCode, argumentType, outOfRange, checkInteger } = require('_errors');

const scratch = new DataView(new ArrayBuffer(8));
const scratchBytes = new Uint8Array(scratch.buffer);

function checkOffset(offset, length, size) {
  if (typeof offset !== 'number') throw argumentType('offset', 'number', offset);
  if (!Number.isInteger(offset)) throw outOfRange('offset', 'an integer', offset);
  if (length < size) throw withCode(RangeError, 'ERR_BUFFER_OUT_OF_BOUNDS', 'Attempt to access memory outside buffer bounds');
  throw outOfRange('offset', `>= 0 and <= ${length - size}`, offset);
}

// True integers in range take one comparison; all the rest is sorted out by checkOffset.
function at(buffer, offset, size) {
  if (offset === undefined) offset = 0;
  if (!(Number.isInteger(offset) && offset >= 0 && offset + size <= buffer.length)) checkOffset(offset, buffer.length, size);
  return offset;
}

function readUnsigned(buffer, offset, size, little) {
  offset = at(buffer, offset, size);
  let value = 0;
  if (little) for (let index = size - 1; index >= 0; index--) value = value * 256 + buffer[offset + index];
  else for (let index = 0; index < size; index++) value = value * 256 + buffer[offset + index];
  return value;
}

function readSigned(buffer, offset, size, little) {
  const value = readUnsigned(buffer, offset, size, little);
  const limit = 2 ** (size * 8);
  return value >= limit / 2 ? value - limit : value;
}

function rangeText(size, signed, bigint) {
  const n = bigint ? 'n' : '';
  const bits = size * 8;
  if (size > 4 || bigint) {
    if (signed) return `>= -(2${n} ** ${bits - 1}${n}) and < 2${n} ** ${bits - 1}${n}`;
    return `>= 0${n} and < 2${n} ** ${bits}${n}`;
  }
  if (signed) return `>= -${2 ** (bits - 1)} and <= ${2 ** (bits - 1) - 1}`;
  return `>= 0 and <= ${2 ** bits - 1}`;
}

function write(buffer, value, offset, size, little, signed) {
  value = +value;
  const limit = 2 ** (size * 8);
  const minimum = signed ? -limit / 2 : 0;
  const maximum = signed ? limit / 2 - 1 : limit - 1;
  if (size > 4 && typeof offset !== 'number' && offset !== undefined) throw argumentType('offset', 'number', offset);
  if (value > maximum || value < minimum) throw outOfRange('value', rangeText(size, signed, false), value);
  offset = at(buffer, offset, size);
  value = Number.isNaN(value) ? 0 : Math.trunc(value);
  if (value < 0) value += limit;
  for (let index = 0; index < size; index++) {
    buffer[little ? offset + index : offset + size - 1 - index] = value % 256;
    value = Math.floor(value / 256);
  }
  return offset + size;
}

function readScratch(buffer, offset, size, reader, little) {
  offset = at(buffer, offset, size);
  for (let index = 0; index < size; index++) scratchBytes[index] = buffer[offset + index];
  return scratch[reader](0, little);
}

function writeScratch(buffer, value, offset, size, writer, little) {
  offset = at(buffer, offset, size);
  scratch[writer](0, value, little);
  for (let index = 0; index < size; index++) buffer[offset + index] = scratchBytes[index];
  return offset + size;
}

const methods = {};

for (const [suffix, little] of [
  ['LE', true],
  ['BE', false],
]) {
  for (const size of [1, 2, 4]) {
    // The 8-bit methods have no byte order in their names.
    const bits = size === 1 ? '8' : `${size * 8}${suffix}`;
    if (size === 1 && !little) continue;
    methods[`readUInt${bits}`] = function (offset) {
      return readUnsigned(this, offset, size, little);
    };
    methods[`readInt${bits}`] = function (offset) {
      return readSigned(this, offset, size, little);
    };
    methods[`writeUInt${bits}`] = function (value, offset) {
      return write(this, value, offset, size, little, false);
    };
    methods[`writeInt${bits}`] = function (value, offset) {
      return write(this, value, offset, size, little, true);
    };
  }
  const checkLength = (byteLength) => {
    if (byteLength === undefined) throw argumentType('byteLength', 'number', byteLength);
    checkInteger(byteLength, 'byteLength');
    if (byteLength < 1 || byteLength > 6) throw outOfRange('byteLength', '>= 1 and <= 6', byteLength);
  };
  const checkGiven = (offset) => {
    if (offset === undefined) throw argumentType('offset', 'number', offset);
  };
  methods[`readUInt${suffix}`] = function (offset, byteLength) {
    checkGiven(offset);
    checkLength(byteLength);
    return readUnsigned(this, offset, byteLength, little);
  };
  methods[`readInt${suffix}`] = function (offset, byteLength) {
    checkGiven(offset);
    checkLength(byteLength);
    return readSigned(this, offset, byteLength, little);
  };
  methods[`writeUInt${suffix}`] = function (value, offset, byteLength) {
    checkLength(byteLength);
    return write(this, value, offset, byteLength, little, false);
  };
  methods[`writeInt${suffix}`] = function (value, offset, byteLength) {
    checkLength(byteLength);
    return write(this, value, offset, byteLength, little, true);
  };
  for (const [name, size, type] of [
    ['Float', 4, 'Float32'],
    ['Double', 8, 'Float64'],
  ]) {
    methods[`read${name}${suffix}`] = function (offset) {
      return readScratch(this, offset, size, `get${type}`, little);
    };
    methods[`write${name}${suffix}`] = function (value, offset) {
      return writeScratch(this, +value, offset, size, `set${type}`, little);
    };
  }
  for (const signed of [true, false]) {
    const name = signed ? 'BigInt64' : 'BigUInt64';
    const type = signed ? 'BigInt64' : 'BigUint64';
    const minimum = signed ? -(2n ** 63n) : 0n;
    const maximum = signed ? 2n ** 63n - 1n : 2n ** 64n - 1n;
    methods[`read${name}${suffix}`] = function (offset) {
      return readScratch(this, offset, 8, `get${type}`, little);
    };
    methods[`write${name}${suffix}`] = function (value, offset) {
      if (typeof value === 'bigint' && (value > maximum || value < minimum)) throw outOfRange('value', rangeText(8, signed, true), value);
      return writeScratch(this, value, offset, 8, `set${type}`, little);
    };
  }
}

// Each method with UInt or BigUInt in its name has a second name with Uint.
for (const name of Object.keys(methods)) {
  if (name.includes('UInt')) methods[name.replace('UInt', 'Uint')] = methods[name];
}

module.exports = methods;
