// SPDX-License-Identifier: BSL-1.0
// The module `stream`: Node's stream classes and what works on them.
'use strict';

const { Stream } = require('_stream_legacy');
const Readable = require('_stream_readable');
const Writable = require('_stream_writable');
const { Duplex, Transform, PassThrough } = require('_stream_duplex');
const { finished, pipeline, addAbortSignal, promises } = require('_stream_utilities');

// `promisify` finds the variants that return a promise by this symbol.
const custom = Symbol.for('nodejs.util.promisify.custom');
Object.defineProperty(finished, custom, { enumerable: true, get: () => promises.finished });
Object.defineProperty(pipeline, custom, { enumerable: true, get: () => promises.pipeline });

const isDisturbed = (stream) => !!(stream && (stream.readableDidRead || stream.readableAborted || stream._disturbed));
const isErrored = (stream) => !!(stream && (stream.errored || stream._readableState?.errored || stream._writableState?.errored));
const isReadable = (stream) => (stream && stream.readable !== undefined ? !!stream.readable && !stream.destroyed : null);
const isWritable = (stream) => (stream && stream.writable !== undefined ? !!stream.writable && !stream.destroyed : null);

let defaultBytes = 16 * 1024;
let defaultObjects = 16;

module.exports = Stream;
Object.assign(Stream, {
  Stream,
  Readable,
  Writable,
  Duplex,
  Transform,
  PassThrough,
  finished,
  pipeline,
  addAbortSignal,
  isDisturbed,
  isErrored,
  isReadable,
  isWritable,
  destroy: (stream, error) => stream.destroy(error),
  getDefaultHighWaterMark: (objectMode) => (objectMode ? defaultObjects : defaultBytes),
  setDefaultHighWaterMark(objectMode, value) {
    if (objectMode) defaultObjects = value;
    else defaultBytes = value;
    Readable.setDefaults(defaultBytes, defaultObjects);
  },
  _uint8ArrayToBuffer: (bytes) => require('buffer').Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength),
  _isUint8Array: (value) => value instanceof Uint8Array,
});
Object.defineProperty(Stream, 'promises', { configurable: true, enumerable: true, get: () => promises });
