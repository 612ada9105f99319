// SPDX-License-Identifier: BSL-1.0
// StringDecoder: text from chunks whose borders cut characters.
//
// The bytes of an incomplete character wait for the next chunk. `end` turns them into what the decoder of whole buffers would make of them.
'use strict';

const { Buffer } = require('buffer');
const { withCode, argumentType } = require('_errors');
const { normalize } = require('_encoding');

function StringDecoder(encoding) {
  const name = normalize(encoding);
  if (name === undefined) throw withCode(TypeError, 'ERR_UNKNOWN_ENCODING', `Unknown encoding: ${encoding}`);
  this.encoding = name;
  this._kept = Buffer.alloc(0);
}

// The number of bytes at the end of `bytes` that begin a character which the next chunk may complete.
function incompleteBytes(bytes, encoding) {
  const length = bytes.length;
  if (encoding === 'base64' || encoding === 'base64url') return length % 3;
  if (encoding === 'utf16le') {
    const odd = length % 2;
    const high = length - odd >= 2 ? bytes[length - odd - 1] : 0;
    return high >= 0xd8 && high <= 0xdb ? odd + 2 : odd;
  }
  if (encoding !== 'utf8') return 0;
  for (let back = 1; back <= Math.min(3, length); back++) {
    const byte = bytes[length - back];
    if (byte < 0x80) return 0;
    if (byte < 0xc0) continue;
    const needed = byte >= 0xc2 && byte <= 0xdf ? 2 : byte >= 0xe0 && byte <= 0xef ? 3 : byte >= 0xf0 && byte <= 0xf4 ? 4 : 0;
    if (needed <= back) return 0;
    if (back === 1) return 1;
    // The second byte of some characters has a narrower range; outside of it the sequence is invalid already.
    const second = bytes[length - back + 1];
    const low = byte === 0xe0 ? 0xa0 : byte === 0xf0 ? 0x90 : 0x80;
    const high = byte === 0xed ? 0x9f : byte === 0xf4 ? 0x8f : 0xbf;
    return second >= low && second <= high ? back : 0;
  }
  return 0;
}

StringDecoder.prototype.write = function write(chunk) {
  if (typeof chunk === 'string') return chunk;
  if (!ArrayBuffer.isView(chunk)) throw argumentType('buf', ['Buffer', 'TypedArray', 'DataView'], chunk);
  let bytes = Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength);
  if (this._kept.length > 0) bytes = Buffer.concat([this._kept, bytes]);
  const kept = incompleteBytes(bytes, this.encoding);
  // A copy: the chunk's memory may be used again.
  this._kept = Buffer.from(bytes.subarray(bytes.length - kept));
  return bytes.toString(this.encoding, 0, bytes.length - kept);
};

StringDecoder.prototype.end = function end(chunk) {
  let text = chunk === undefined ? '' : this.write(chunk);
  if (this._kept.length > 0) {
    text += this._kept.toString(this.encoding);
    this._kept = Buffer.alloc(0);
  }
  return text;
};

StringDecoder.prototype.text = function text(chunk, offset) {
  this._kept = Buffer.alloc(0);
  return this.write(chunk.slice(offset));
};

Object.defineProperty(StringDecoder.prototype, 'lastNeed', {
  configurable: true,
  get() {
    return this._kept.length;
  },
});

module.exports = { StringDecoder };
