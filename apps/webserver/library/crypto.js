// SPDX-License-Identifier: BSL-1.0
// The module `crypto`: random numbers, the hashes md5, sha1 and sha256, and HMAC with them.
//
// Random bytes come from natives. Ciphers, keys and certificates are absent: a function that needs them throws ERR_METHOD_NOT_IMPLEMENTED.
'use strict';

const { withCode, argumentType, outOfRange, checkInteger } = require('_errors');
const { Buffer } = require('buffer');
const nextTick = require('_ticks');
const random = internalBinding('random');

function randomBytes(size, callback) {
  checkInteger(size, 'size', 0, 2 ** 31 - 1);
  const bytes = Buffer.alloc(size);
  random.fill(bytes);
  if (callback === undefined) return bytes;
  nextTick(callback, null, bytes);
  return undefined;
}

function randomFillSync(target, offset = 0, size = undefined) {
  const bytes = ArrayBuffer.isView(target) ? new Uint8Array(target.buffer, target.byteOffset, target.byteLength) : new Uint8Array(target);
  checkInteger(offset, 'offset', 0, bytes.length);
  random.fill(bytes.subarray(offset, size === undefined ? bytes.length : offset + size));
  return target;
}

function getRandomValues(target) {
  if (!ArrayBuffer.isView(target) || target instanceof Float32Array || target instanceof Float64Array || target instanceof DataView) {
    throw argumentType('typedArray', 'TypedArray', target);
  }
  if (target.byteLength > 65536) {
    const Failure = typeof DOMException === 'function' ? DOMException : Error;
    throw new Failure('The requested length exceeds 65,536 bytes', 'QuotaExceededError');
  }
  return randomFillSync(target);
}

/// UUID version 4 (RFC 9562 5.4).
function randomUUID() {
  const bytes = randomBytes(16);
  bytes[6] = (bytes[6] & 0x0f) | 0x40;
  bytes[8] = (bytes[8] & 0x3f) | 0x80;
  const hex = bytes.toString('hex');
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`;
}

/// A uniform integer in [minimum, maximum), by rejection of the uneven rest.
function randomInt(minimum, maximum, callback) {
  if (maximum === undefined || typeof maximum === 'function') {
    callback = maximum;
    maximum = minimum;
    minimum = 0;
  }
  checkInteger(minimum, 'min');
  checkInteger(maximum, 'max');
  const range = maximum - minimum;
  if (!(range > 0)) throw outOfRange('max', `greater than the value of "min" (${minimum})`, maximum);
  if (range > 2 ** 48 - 1) throw outOfRange('max - min', '<= 281474976710655', range);
  const limit = 2 ** 48 - (2 ** 48 % range);
  let value;
  do {
    value = randomBytes(6).readUIntBE(0, 6);
  } while (value >= limit);
  value = minimum + (value % range);
  if (typeof callback !== 'function') return value;
  nextTick(callback, null, value);
  return undefined;
}

/// Compares without a branch on the content.
function timingSafeEqual(first, second) {
  const bytes = (value) =>
    ArrayBuffer.isView(value) ? new Uint8Array(value.buffer, value.byteOffset, value.byteLength) : new Uint8Array(value);
  const left = bytes(first);
  const right = bytes(second);
  if (left.length !== right.length)
    throw withCode(RangeError, 'ERR_CRYPTO_TIMING_SAFE_EQUAL_LENGTH', 'Input buffers must have the same byte length');
  let difference = 0;
  for (let index = 0; index < left.length; index++) difference |= left[index] ^ right[index];
  return difference === 0;
}

const absent = {};
for (const name of [
  'createCipheriv',
  'createDecipheriv',
  'createSign',
  'createVerify',
  'createDiffieHellman',
  'createECDH',
  'createPrivateKey',
  'createPublicKey',
  'createSecretKey',
  'generateKeyPair',
  'generateKeyPairSync',
  'pbkdf2',
  'pbkdf2Sync',
  'scrypt',
  'scryptSync',
  'hkdf',
  'hkdfSync',
  'sign',
  'verify',
]) {
  absent[name] = () => {
    throw withCode(Error, 'ERR_METHOD_NOT_IMPLEMENTED', `crypto.${name} is not available`);
  };
}

const subtle = {
  async digest(algorithm, data) {
    const name = `${algorithm?.name ?? algorithm}`.toLowerCase().replace('-', '');
    const view = ArrayBuffer.isView(data) ? new Uint8Array(data.buffer, data.byteOffset, data.byteLength) : new Uint8Array(data);
    const bytes = require('_crypto_hash').createHash(name).update(view).digest();
    return bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length);
  },
};
const webcrypto = { getRandomValues, randomUUID, subtle };

module.exports = {
  randomBytes,
  pseudoRandomBytes: randomBytes,
  randomFillSync,
  randomFill(target, ...rest) {
    const callback = rest.pop();
    randomFillSync(target, ...rest);
    nextTick(callback, null, target);
  },
  randomUUID,
  randomInt,
  getRandomValues,
  timingSafeEqual,
  createHash: (name) => require('_crypto_hash').createHash(name),
  createHmac: (name, key) => require('_crypto_hash').createHmac(name, key),
  hash(name, data, encoding = 'hex') {
    return require('_crypto_hash').createHash(name).update(data).digest(encoding);
  },
  getHashes: () => ['md5', 'sha1', 'sha256'],
  getCiphers: () => [],
  getCurves: () => [],
  webcrypto,
  subtle,
  constants: {},
  ...absent,
};
