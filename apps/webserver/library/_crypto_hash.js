// SPDX-License-Identifier: BSL-1.0
// MD5 (RFC 1321), SHA-1 and SHA-256 (FIPS 180-4), HMAC (RFC 2104), in plain JavaScript.
//
// They serve ETags, cache keys and signed cookies of small size. All three process blocks of 64 bytes into words of 32 bits.
'use strict';

const { withCode, argumentType } = require('_errors');
const { Buffer } = require('buffer');
const { Transform } = require('stream');

const rotate = (word, bits) => (word << bits) | (word >>> (32 - bits));

// The first 32 bits of the fraction of |sin(i)|.
const md5Constants = Int32Array.from({ length: 64 }, (_, index) => Math.floor(Math.abs(Math.sin(index + 1)) * 2 ** 32) | 0);
const md5Shifts = [7, 12, 17, 22, 5, 9, 14, 20, 4, 11, 16, 23, 6, 10, 15, 21];

function md5Block(state, words) {
  let [a, b, c, d] = state;
  for (let step = 0; step < 64; step++) {
    let mixed;
    let index;
    if (step < 16) [mixed, index] = [(b & c) | (~b & d), step];
    else if (step < 32) [mixed, index] = [(d & b) | (~d & c), (5 * step + 1) % 16];
    else if (step < 48) [mixed, index] = [b ^ c ^ d, (3 * step + 5) % 16];
    else [mixed, index] = [c ^ (b | ~d), (7 * step) % 16];
    const sum = (a + mixed + md5Constants[step] + words[index]) | 0;
    a = d;
    d = c;
    c = b;
    b = (b + rotate(sum, md5Shifts[(step >> 4) * 4 + (step % 4)])) | 0;
  }
  state[0] += a;
  state[1] += b;
  state[2] += c;
  state[3] += d;
}

function sha1Block(state, words) {
  for (let step = 16; step < 80; step++) words[step] = rotate(words[step - 3] ^ words[step - 8] ^ words[step - 14] ^ words[step - 16], 1);
  let [a, b, c, d, e] = state;
  for (let step = 0; step < 80; step++) {
    let mixed;
    if (step < 20) mixed = ((b & c) | (~b & d)) + 0x5a827999;
    else if (step < 40) mixed = (b ^ c ^ d) + 0x6ed9eba1;
    else if (step < 60) mixed = ((b & c) | (b & d) | (c & d)) + 0x8f1bbcdc;
    else mixed = (b ^ c ^ d) + 0xca62c1d6;
    const sum = (rotate(a, 5) + mixed + e + words[step]) | 0;
    e = d;
    d = c;
    c = rotate(b, 30);
    b = a;
    a = sum;
  }
  state[0] += a;
  state[1] += b;
  state[2] += c;
  state[3] += d;
  state[4] += e;
}

// The first 32 bits of the fractions of the roots of the first primes. Powers by Math.pow are exact enough: 53 bits are more than 32 + 4.
function rootsOfPrimes(count, power) {
  const result = [];
  for (let number = 2; result.length < count; number++) {
    let isPrime = true;
    for (let factor = 2; factor * factor <= number && isPrime; factor++) isPrime = number % factor !== 0;
    if (isPrime) result.push(Math.floor((number ** power % 1) * 2 ** 32) | 0);
  }
  return result;
}
const sha256Constants = rootsOfPrimes(64, 1 / 3);

function sha256Block(state, words) {
  for (let step = 16; step < 64; step++) {
    const before = words[step - 15];
    const late = words[step - 2];
    const first = rotate(before, 25) ^ rotate(before, 14) ^ (before >>> 3);
    const second = rotate(late, 15) ^ rotate(late, 13) ^ (late >>> 10);
    words[step] = words[step - 16] + first + words[step - 7] + second;
  }
  let [a, b, c, d, e, f, g, h] = state;
  for (let step = 0; step < 64; step++) {
    const first = (h + (rotate(e, 26) ^ rotate(e, 21) ^ rotate(e, 7)) + ((e & f) ^ (~e & g)) + sha256Constants[step] + words[step]) | 0;
    const second = ((rotate(a, 30) ^ rotate(a, 19) ^ rotate(a, 10)) + ((a & b) ^ (a & c) ^ (b & c))) | 0;
    h = g;
    g = f;
    f = e;
    e = (d + first) | 0;
    d = c;
    c = b;
    b = a;
    a = (first + second) | 0;
  }
  for (const [index, word] of [a, b, c, d, e, f, g, h].entries()) state[index] += word;
}

const sha1Start = [0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0];
const algorithms = {
  md5: { block: md5Block, start: sha1Start.slice(0, 4), little: true },
  sha1: { block: sha1Block, start: sha1Start, little: false },
  sha256: { block: sha256Block, start: rootsOfPrimes(8, 1 / 2), little: false },
};

class Digest {
  constructor(algorithm) {
    this.algorithm = algorithm;
    this.state = Int32Array.from(algorithm.start);
    this.words = new Int32Array(80);
    this.block = new Uint8Array(64);
    this.view = new DataView(this.block.buffer);
    this.filled_bytes = 0;
    this.total_bytes = 0;
  }

  add(bytes) {
    this.total_bytes += bytes.length;
    for (let position = 0; position < bytes.length;) {
      const count = Math.min(64 - this.filled_bytes, bytes.length - position);
      this.block.set(bytes.subarray(position, position + count), this.filled_bytes);
      this.filled_bytes += count;
      position += count;
      if (this.filled_bytes === 64) this.process();
    }
  }

  process() {
    for (let index = 0; index < 16; index++) this.words[index] = this.view.getInt32(index * 4, this.algorithm.little);
    this.algorithm.block(this.state, this.words);
    this.filled_bytes = 0;
  }

  finish() {
    const bits = BigInt(this.total_bytes) * 8n;
    this.add(Uint8Array.of(0x80));
    if (this.filled_bytes > 56) this.add(new Uint8Array(64 - this.filled_bytes));
    this.block.fill(0, this.filled_bytes, 56);
    this.view.setBigUint64(56, bits, this.algorithm.little);
    this.process();
    const result = Buffer.alloc(this.state.length * 4);
    const output = new DataView(result.buffer, result.byteOffset);
    this.state.forEach((word, index) => output.setInt32(index * 4, word, this.algorithm.little));
    return result;
  }

  copy() {
    const result = new Digest(this.algorithm);
    result.state.set(this.state);
    result.block.set(this.block);
    result.filled_bytes = this.filled_bytes;
    result.total_bytes = this.total_bytes;
    return result;
  }
}

function toBytes(data, encoding, name = 'data') {
  if (typeof data === 'string') return Buffer.from(data, encoding === 'buffer' ? undefined : encoding);
  if (ArrayBuffer.isView(data)) return new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  throw argumentType(name, ['string', 'Buffer', 'TypedArray', 'DataView'], data);
}

function algorithmOf(name) {
  const algorithm = algorithms[`${name}`.toLowerCase().replace('-', '')];
  if (!algorithm) throw withCode(Error, 'ERR_CRYPTO_INVALID_DIGEST', `Digest ${name} is not available: only md5, sha1 and sha256`);
  return algorithm;
}

/// A hash or an HMAC; also a stream, as in Node.
class Hash extends Transform {
  constructor(inner, finish) {
    super();
    Object.defineProperty(this, '_hash', { value: { inner, finish, done: false } });
  }

  update(data, encoding) {
    if (this._hash.done) throw withCode(Error, 'ERR_CRYPTO_HASH_FINALIZED', 'Digest already called');
    this._hash.inner.add(toBytes(data, encoding));
    return this;
  }

  digest(encoding) {
    if (this._hash.done) throw withCode(Error, 'ERR_CRYPTO_HASH_FINALIZED', 'Digest already called');
    this._hash.done = true;
    const result = this._hash.finish(this._hash.inner);
    return encoding && encoding !== 'buffer' ? result.toString(encoding) : result;
  }

  copy() {
    if (this._hash.done) throw withCode(Error, 'ERR_CRYPTO_HASH_FINALIZED', 'Digest already called');
    return new Hash(this._hash.inner.copy(), this._hash.finish);
  }

  _transform(chunk, encoding, callback) {
    this._hash.inner.add(toBytes(chunk, encoding));
    callback();
  }

  _flush(callback) {
    this.push(this.digest());
    callback();
  }
}

function createHash(name) {
  return new Hash(new Digest(algorithmOf(name)), (inner) => inner.finish());
}

function createHmac(name, key) {
  const algorithm = algorithmOf(name);
  let bytes = toBytes(key, 'utf8', 'key');
  if (bytes.length > 64) {
    const digest = new Digest(algorithm);
    digest.add(bytes);
    bytes = digest.finish();
  }
  const padded = new Uint8Array(64);
  padded.set(bytes);
  const inner = new Digest(algorithm);
  inner.add(padded.map((byte) => byte ^ 0x36));
  return new Hash(inner, (digest) => {
    const outer = new Digest(algorithm);
    outer.add(padded.map((byte) => byte ^ 0x5c));
    outer.add(digest.finish());
    return outer.finish();
  });
}

module.exports = { createHash, createHmac };
