// SPDX-License-Identifier: BSL-1.0
// TextEncoder and TextDecoder of the WHATWG Encoding Standard, for UTF-8, UTF-16LE and Latin-1 (windows-1252 is decoded as Latin-1).
'use strict';

const text = internalBinding('text');

const labels = new Map();
for (const label of ['unicode-1-1-utf-8', 'unicode11utf8', 'unicode20utf8', 'utf-8', 'utf8', 'x-unicode20utf8']) labels.set(label, 'utf-8');
for (const label of ['csunicode', 'iso-10646-ucs-2', 'ucs-2', 'unicode', 'unicodefeff', 'utf-16', 'utf-16le'])
  labels.set(label, 'utf-16le');
for (const label of [
  'ansi_x3.4-1968',
  'ascii',
  'cp1252',
  'iso-8859-1',
  'iso8859-1',
  'l1',
  'latin1',
  'us-ascii',
  'windows-1252',
  'x-cp1252',
]) {
  labels.set(label, 'windows-1252');
}

function bytesOf(input) {
  if (input === undefined) return new Uint8Array(0);
  if (ArrayBuffer.isView(input)) return new Uint8Array(input.buffer, input.byteOffset, input.byteLength);
  if (input instanceof ArrayBuffer) return new Uint8Array(input);
  throw Object.assign(new TypeError('The "list" argument must be an instance of SharedArrayBuffer, ArrayBuffer or ArrayBufferView.'), {
    code: 'ERR_INVALID_ARG_TYPE',
  });
}

function join(first, second) {
  const joined = new Uint8Array(first.length + second.length);
  joined.set(first);
  joined.set(second, first.length);
  return joined;
}

class TextEncoder {
  get encoding() {
    return 'utf-8';
  }
  encode(input = '') {
    return text.encode(`${input}`, 'utf8');
  }
  encodeInto(source, target) {
    if (!(target instanceof Uint8Array))
      throw Object.assign(new TypeError('The "dest" argument must be an instance of Uint8Array.'), { code: 'ERR_INVALID_ARG_TYPE' });
    const [read, written] = text.encodeInto(`${source}`, target);
    return { read, written };
  }
}

class TextDecoder {
  #encoding;
  #fatal;
  #ignoreBOM;
  #rest = new Uint8Array(0); // the begin of a character whose end has not come yet
  #seenStart = false;

  constructor(label = 'utf-8', { fatal = false, ignoreBOM = false } = {}) {
    this.#encoding = labels.get(`${label}`.trim().toLowerCase());
    if (this.#encoding === undefined) {
      throw Object.assign(new RangeError(`The "${label}" encoding is not supported`), { code: 'ERR_ENCODING_NOT_SUPPORTED' });
    }
    this.#fatal = Boolean(fatal);
    this.#ignoreBOM = Boolean(ignoreBOM);
  }
  get encoding() {
    return this.#encoding;
  }
  get fatal() {
    return this.#fatal;
  }
  get ignoreBOM() {
    return this.#ignoreBOM;
  }

  decode(input, { stream = false } = {}) {
    let bytes = bytesOf(input);
    if (this.#rest.length !== 0) bytes = join(this.#rest, bytes);
    const partial = this.#partialBytes(bytes);
    const whole = stream && partial !== 0 ? bytes.subarray(0, bytes.length - partial) : bytes;
    const rest = stream && partial !== 0 ? bytes.slice(bytes.length - partial) : new Uint8Array(0);
    let result;
    try {
      result = this.#decodeWhole(whole);
    } finally {
      this.#rest = rest;
      if (!stream) this.#rest = new Uint8Array(0);
    }
    if (!this.#seenStart && result.length !== 0) {
      if (!this.#ignoreBOM && this.#encoding !== 'windows-1252' && result.charCodeAt(0) === 0xfeff) result = result.slice(1);
      this.#seenStart = true;
    }
    if (!stream) this.#seenStart = false;
    return result;
  }

  #partialBytes(bytes) {
    if (this.#encoding === 'utf-8') return text.partialUtf8(bytes);
    if (this.#encoding === 'windows-1252') return 0;
    const odd = bytes.length % 2;
    const last = bytes.length - odd;
    // A high surrogate waits for its low one.
    return last >= 2 && (bytes[last - 1] & 0xfc) === 0xd8 ? odd + 2 : odd;
  }

  #decodeWhole(bytes) {
    if (this.#encoding === 'utf-8') {
      const result = text.decodeUtf8(bytes, 0, bytes.length, this.#fatal);
      if (result === undefined) this.#invalid();
      return result;
    }
    if (this.#encoding === 'windows-1252') return text.decode(bytes, 'latin1', 0, bytes.length);
    let result = text.decode(bytes, 'utf16le', 0, bytes.length);
    if (bytes.length % 2 !== 0) result += '\ufffd';
    const wellFormed = result.toWellFormed();
    if (this.#fatal && (wellFormed !== result || bytes.length % 2 !== 0)) this.#invalid();
    return wellFormed;
  }

  #invalid() {
    throw Object.assign(new TypeError(`The encoded data was not valid for encoding ${this.#encoding}`), {
      code: 'ERR_ENCODING_INVALID_ENCODED_DATA',
    });
  }
}

for (const each of [TextEncoder, TextDecoder]) {
  Object.defineProperty(each.prototype, Symbol.toStringTag, { value: each.name, configurable: true });
}

module.exports = { TextEncoder, TextDecoder };
