// SPDX-License-Identifier: BSL-1.0
// Blob and File: bytes that do not change.
'use strict';

const bytesOf = Symbol('bytes');
const typeOf = Symbol('type');

function partBytes(part) {
  if (part instanceof Blob) return part[bytesOf];
  if (ArrayBuffer.isView(part)) return new Uint8Array(part.buffer, part.byteOffset, part.byteLength);
  if (Object.prototype.toString.call(part) === '[object ArrayBuffer]') return new Uint8Array(part);
  return internalBinding('text').encode(`${part}`.toWellFormed(), 'utf8');
}

class Blob {
  constructor(parts = [], options = {}) {
    if (parts === null || typeof parts !== 'object' || typeof parts[Symbol.iterator] !== 'function') {
      throw new TypeError('Blob: the parts must be a sequence.');
    }
    const pieces = [...parts].map(partBytes);
    const bytes = new Uint8Array(pieces.reduce((sum, piece) => sum + piece.length, 0));
    let position = 0;
    for (const piece of pieces) {
      bytes.set(piece, position);
      position += piece.length;
    }
    this[bytesOf] = bytes;
    const type = `${options?.type ?? ''}`;
    this[typeOf] = /[^\x20-\x7e]/.test(type) ? '' : type.toLowerCase();
  }

  get size() {
    return this[bytesOf].length;
  }

  get type() {
    return this[typeOf];
  }

  async arrayBuffer() {
    return this[bytesOf].slice().buffer;
  }

  async bytes() {
    return this[bytesOf].slice();
  }

  async text() {
    const bytes = this[bytesOf];
    return internalBinding('text').decode(bytes, 'utf8', 0, bytes.length);
  }

  slice(start = 0, end = this.size, type = '') {
    const result = new Blob([], { type });
    result[bytesOf] = this[bytesOf].slice(start, end);
    return result;
  }

  stream() {
    const bytes = this[bytesOf];
    const { ReadableStream } = require('_web_streams');
    return new ReadableStream({
      start(controller) {
        if (bytes.length > 0) controller.enqueue(bytes.slice());
        controller.close();
      },
    });
  }

  get [Symbol.toStringTag]() {
    return 'Blob';
  }

  [Symbol.for('nodejs.util.inspect.custom')](depth, options, inspect) {
    return `Blob ${inspect({ size: this.size, type: this.type }, options)}`;
  }
}

class File extends Blob {
  constructor(parts, name, options = {}) {
    super(parts, options);
    this.name = `${name}`;
    this.lastModified = options.lastModified ?? Date.now();
  }

  get [Symbol.toStringTag]() {
    return 'File';
  }
}

module.exports = { Blob, File, bytesOf };
