// SPDX-License-Identifier: BSL-1.0
// Readable: a source of chunks with back-pressure.
//
// A source calls `push` when it likes; a program reads when it likes. Between them is a buffer, and `_read` is called only while the buffer
// holds less than the high watermark. A Readable is paused (read() and 'readable') or flowing ('data', pipe, resume). The state is made on
// first use: the server's request objects are made by natives, without a constructor.
'use strict';

const EventEmitter = require('events');
const { Buffer } = require('buffer');
const { Stream } = require('_stream_legacy');
const { withCode, argumentType } = require('_errors');
const destruction = require('_stream_destroy');
const nextTick = require('_ticks');

function Readable(options) {
  if (!(this instanceof Readable)) return new Readable(options);
  this._readableState = makeState(this, options, false);
  if (options) {
    if (typeof options.read === 'function') this._read = options.read;
    if (typeof options.destroy === 'function') this._destroy = options.destroy;
    if (typeof options.construct === 'function') this._construct = options.construct;
    if (options.signal) require('_stream_utilities').addAbortSignal(options.signal, this);
  }
  Stream.call(this, options);
  destruction.construct(this, () => {
    if (this._readableState.needReadable) maybeReadMore(this, this._readableState);
  });
}
Object.setPrototypeOf(Readable.prototype, Stream.prototype);
Object.setPrototypeOf(Readable, Stream);

let defaultBytes = 16 * 1024;
let defaultObjects = 16;

/// The high watermark of one side: the option, or 16 KiB, or 16 objects.
function watermark(options, isDuplex, key, objectMode) {
  let value = options && options.highWaterMark;
  if (value == null && isDuplex) value = options && options[key];
  if (value == null) return objectMode ? defaultObjects : defaultBytes;
  if (!Number.isInteger(value) || value < 0) {
    const { inspect } = require('util');
    const name = isDuplex ? `options.${key}` : 'options.highWaterMark';
    throw withCode(TypeError, 'ERR_INVALID_ARG_VALUE', `The property '${name}' is invalid. Received ${inspect(value)}`);
  }
  return value;
}

function makeState(stream, options, isDuplex) {
  const objectMode = !!(options && (options.objectMode || (isDuplex && options.readableObjectMode)));
  const state = {
    objectMode,
    highWaterMark: watermark(options, isDuplex, 'readableHighWaterMark', objectMode),
    buffer: [],
    length: 0,
    pipes: [],
    flowing: null,
    paused: false,
    ended: false,
    endEmitted: false,
    reading: false,
    sync: true, // `_read` is running: a chunk is announced in a later tick
    needReadable: false,
    emittedReadable: false,
    readableListening: false,
    resumeScheduled: false,
    readingMore: false,
    dataEmitted: false,
    readable: !options || options.readable !== false,
    awaitingDrain: new Set(),
    defaultEncoding: (options && options.defaultEncoding) || 'utf8',
    decoder: null,
    encoding: null,
  };
  destruction.initialize(state, options);
  if (options && options.encoding) {
    const { StringDecoder } = require('string_decoder');
    state.decoder = new StringDecoder(options.encoding);
    state.encoding = options.encoding;
  }
  return state;
}

function stateOf(stream) {
  return stream._readableState ?? (stream._readableState = makeState(stream, undefined, false));
}

Readable.prototype._readableState = undefined;
Readable.makeState = makeState;
Readable.watermark = watermark;
Readable.setDefaults = (bytes, objects) => {
  defaultBytes = bytes;
  defaultObjects = objects;
};
Readable.prototype.destroy = function destroy(error, callback) {
  stateOf(this);
  return destruction.destroy.call(this, error, callback);
};
Readable.prototype._destroy = function _destroy(error, callback) {
  callback(error);
};
Readable.prototype._read = function _read() {
  throw withCode(Error, 'ERR_METHOD_NOT_IMPLEMENTED', 'The _read() method is not implemented');
};

Readable.prototype.push = function push(chunk, encoding) {
  return addChunk(this, chunk, encoding, false);
};

Readable.prototype.unshift = function unshift(chunk, encoding) {
  return addChunk(this, chunk, encoding, true);
};

// Returns the chunk as the buffer stores it, or throws.
function convert(state, chunk, encoding, front) {
  if (state.objectMode) return chunk;
  if (typeof chunk === 'string') {
    encoding = encoding || state.defaultEncoding;
    if (state.encoding && state.encoding === encoding) return front || state.decoder ? chunk : Buffer.from(chunk, encoding);
    chunk = Buffer.from(chunk, encoding);
    return front && state.encoding ? chunk.toString(state.encoding) : chunk;
  }
  if (chunk instanceof Buffer) return chunk;
  if (ArrayBuffer.isView(chunk)) return Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength);
  throw argumentType('chunk', ['string', 'Buffer', 'TypedArray', 'DataView'], chunk);
}

function addChunk(stream, chunk, encoding, front) {
  const state = stateOf(stream);
  if (chunk === null) {
    state.reading = false;
    endOfSource(stream, state);
    return false;
  }
  try {
    if (chunk === undefined && !state.objectMode) throw argumentType('chunk', ['string', 'Buffer', 'TypedArray', 'DataView'], chunk);
    chunk = convert(state, chunk, encoding, front);
  } catch (error) {
    destruction.fail(stream, error);
    return false;
  }
  if (!state.objectMode && chunk.length === 0) {
    if (!front) {
      state.reading = false;
      maybeReadMore(stream, state);
    }
    return canTakeMore(state);
  }
  if (front) {
    if (state.endEmitted) {
      destruction.fail(stream, withCode(Error, 'ERR_STREAM_UNSHIFT_AFTER_END_EVENT', 'stream.unshift() after end event'));
    } else if (!state.destroyed && !state.errored) deliver(stream, state, chunk, true);
  } else if (state.ended) {
    destruction.fail(stream, withCode(Error, 'ERR_STREAM_PUSH_AFTER_EOF', 'stream.push() after EOF'));
    return false;
  } else if (state.destroyed || state.errored) {
    return false;
  } else {
    state.reading = false;
    if (state.decoder && !(typeof chunk === 'string' && !state.objectMode)) {
      chunk = state.decoder.write(chunk);
      if (state.objectMode || chunk.length !== 0) deliver(stream, state, chunk, false);
      else maybeReadMore(stream, state);
    } else {
      deliver(stream, state, chunk, false);
    }
  }
  return canTakeMore(state);
}

const canTakeMore = (state) => !state.ended && (state.length < state.highWaterMark || state.length === 0);

function deliver(stream, state, chunk, front) {
  if (state.flowing && state.length === 0 && !state.sync && stream.listenerCount('data') > 0) {
    state.awaitingDrain.clear();
    state.dataEmitted = true;
    stream.emit('data', chunk);
  } else {
    state.length += state.objectMode ? 1 : chunk.length;
    if (front) state.buffer.unshift(chunk);
    else state.buffer.push(chunk);
    if (state.needReadable) announce(stream, state);
  }
  maybeReadMore(stream, state);
}

function endOfSource(stream, state) {
  if (state.ended) return;
  if (state.decoder) {
    const rest = state.decoder.end();
    if (rest && rest.length) {
      state.buffer.push(rest);
      state.length += state.objectMode ? 1 : rest.length;
    }
  }
  state.ended = true;
  if (state.sync) {
    announce(stream, state);
  } else {
    state.needReadable = false;
    state.emittedReadable = true;
    announceNow(stream, state);
  }
}

function announce(stream, state) {
  state.needReadable = false;
  if (state.emittedReadable) return;
  state.emittedReadable = true;
  nextTick(announceNow, stream, state);
}

function announceNow(stream, state) {
  if (!state.destroyed && !state.errored && (state.length > 0 || state.ended)) {
    stream.emit('readable');
    state.emittedReadable = false;
  }
  state.needReadable = !state.flowing && !state.ended && state.length <= state.highWaterMark;
  flow(stream);
}

function maybeReadMore(stream, state) {
  if (state.readingMore || !state.constructed) return;
  state.readingMore = true;
  nextTick(readMore, stream, state);
}

function readMore(stream, state) {
  while (!state.reading && !state.ended && (state.length < state.highWaterMark || (state.flowing && state.length === 0))) {
    const before = state.length;
    stream.read(0);
    if (before === state.length) break;
  }
  state.readingMore = false;
}

function available(state, count) {
  if (count <= 0 || (state.length === 0 && state.ended)) return 0;
  if (state.objectMode) return 1;
  if (Number.isNaN(count)) return state.flowing && state.length > 0 ? state.buffer[0].length : state.length;
  if (count <= state.length) return count;
  return state.ended ? state.length : 0;
}

function take(state, count) {
  if (state.length === 0) return null;
  const { buffer } = state;
  if (state.objectMode) return buffer.shift();
  if (count >= state.length) {
    const all = buffer.length === 1 ? buffer[0] : state.decoder ? buffer.join('') : Buffer.concat(buffer, state.length);
    state.buffer = [];
    return all;
  }
  const parts = [];
  let missing = count;
  while (missing > 0) {
    const first = buffer[0];
    if (first.length <= missing) {
      parts.push(buffer.shift());
      missing -= first.length;
    } else {
      parts.push(first.slice(0, missing));
      buffer[0] = first.slice(missing);
      missing = 0;
    }
  }
  if (parts.length === 1) return parts[0];
  return state.decoder ? parts.join('') : Buffer.concat(parts, count);
}

Readable.prototype.read = function read(count) {
  const state = stateOf(this);
  if (count === undefined) count = NaN;
  else if (!Number.isInteger(count)) count = Number.parseInt(count, 10);
  const asked = count;
  if (count > state.highWaterMark) state.highWaterMark = 2 ** Math.ceil(Math.log2(count));
  if (count !== 0) state.emittedReadable = false;

  const enough = state.highWaterMark !== 0 ? state.length >= state.highWaterMark : state.length > 0;
  if (count === 0 && state.needReadable && (enough || state.ended)) {
    if (state.length === 0 && state.ended) finishReading(this);
    else announce(this, state);
    return null;
  }
  count = available(state, count);
  if (count === 0 && state.ended) {
    if (state.length === 0) finishReading(this);
    return null;
  }
  let ask = state.needReadable || state.length === 0 || state.length - count < state.highWaterMark;
  if (state.ended || state.reading || state.destroyed || state.errored || !state.constructed) ask = false;
  if (ask) {
    state.reading = true;
    state.sync = true;
    if (state.length === 0) state.needReadable = true;
    try {
      this._read(state.highWaterMark);
    } catch (error) {
      destruction.fail(this, error);
    }
    state.sync = false;
    if (!state.reading) count = available(state, asked);
  }
  const chunk = count > 0 ? take(state, count) : null;
  if (chunk === null) {
    state.needReadable = state.length <= state.highWaterMark;
    count = 0;
  } else {
    state.length -= count;
    state.awaitingDrain.clear();
  }
  if (state.length === 0) {
    if (!state.ended) state.needReadable = true;
    if (asked !== count && state.ended) finishReading(this);
  }
  if (chunk !== null && !state.errored && !state.closeEmitted) {
    state.dataEmitted = true;
    this.emit('data', chunk);
  }
  return chunk;
};

function finishReading(stream) {
  const state = stream._readableState;
  if (state.endEmitted) return;
  state.ended = true;
  nextTick(emitEnd, stream, state);
}

function emitEnd(stream, state) {
  if (state.errored || state.closeEmitted || state.endEmitted || state.length > 0) return;
  state.endEmitted = true;
  stream.emit('end');
  const writable = stream._writableState;
  if (writable && stream.allowHalfOpen === false) {
    nextTick(() => {
      if (stream.writable && !stream.writableEnded && !stream.destroyed) stream.end();
    });
  } else if (state.autoDestroy) {
    if (!writable || (writable.autoDestroy && (writable.finished || writable.writable === false))) stream.destroy();
  }
}

function flow(stream) {
  const state = stream._readableState;
  while (state.flowing && stream.read() !== null);
}

Readable.prototype.resume = function resume() {
  const state = stateOf(this);
  if (!state.flowing) {
    // With a 'readable' listener the program reads by itself; 'data' listeners get what it reads.
    state.flowing = !state.readableListening;
    if (!state.resumeScheduled) {
      state.resumeScheduled = true;
      nextTick(resumeNow, this, state);
    }
  }
  state.paused = false;
  return this;
};

function resumeNow(stream, state) {
  if (!state.reading) stream.read(0);
  state.resumeScheduled = false;
  stream.emit('resume');
  flow(stream);
  if (state.flowing && !state.reading) stream.read(0);
}

Readable.prototype.pause = function pause() {
  const state = stateOf(this);
  if (state.flowing !== false) {
    state.flowing = false;
    this.emit('pause');
  }
  state.paused = true;
  return this;
};

Readable.prototype.isPaused = function isPaused() {
  const state = stateOf(this);
  return state.paused === true || state.flowing === false;
};

Readable.prototype.setEncoding = function setEncoding(encoding) {
  const { StringDecoder } = require('string_decoder');
  const state = stateOf(this);
  const decoder = new StringDecoder(encoding);
  state.decoder = decoder;
  state.encoding = decoder.encoding;
  const content = state.buffer.map((chunk) => decoder.write(chunk)).join('');
  state.buffer = content === '' ? [] : [content];
  state.length = content.length;
  return this;
};

Readable.prototype.on = function on(type, listener) {
  EventEmitter.prototype.on.call(this, type, listener);
  if (type === 'data') {
    const state = stateOf(this);
    state.readableListening = this.listenerCount('readable') > 0;
    if (state.flowing !== false) this.resume();
  } else if (type === 'readable') {
    const state = stateOf(this);
    if (!state.endEmitted && !state.readableListening) {
      state.readableListening = true;
      state.needReadable = true;
      state.flowing = false;
      state.emittedReadable = false;
      if (state.length > 0) announce(this, state);
      else if (!state.reading) nextTick(() => this.read(0));
    }
  }
  return this;
};
Readable.prototype.addListener = Readable.prototype.on;

Readable.prototype.removeListener = function removeListener(type, listener) {
  EventEmitter.prototype.removeListener.call(this, type, listener);
  if (type === 'readable') nextTick(updateListening, this);
  return this;
};
Readable.prototype.off = Readable.prototype.removeListener;

Readable.prototype.removeAllListeners = function removeAllListeners(...types) {
  EventEmitter.prototype.removeAllListeners.apply(this, types);
  if (types.length === 0 || types[0] === 'readable') nextTick(updateListening, this);
  return this;
};

function updateListening(stream) {
  const state = stateOf(stream);
  state.readableListening = stream.listenerCount('readable') > 0;
  if (state.resumeScheduled && !state.paused) state.flowing = true;
  else if (stream.listenerCount('data') > 0) stream.resume();
  else if (!state.readableListening) state.flowing = null;
}

const getters = {
  readable() {
    const state = stateOf(this);
    return state.readable && !state.destroyed && !state.errorEmitted && !state.endEmitted;
  },
  readableDidRead() {
    return stateOf(this).dataEmitted;
  },
  readableAborted() {
    const state = stateOf(this);
    return state.readable && (state.destroyed || !!state.errored) && !state.endEmitted;
  },
  readableHighWaterMark() {
    return stateOf(this).highWaterMark;
  },
  readableBuffer() {
    return stateOf(this).buffer;
  },
  readableLength() {
    return stateOf(this).length;
  },
  readableObjectMode() {
    return stateOf(this).objectMode;
  },
  readableEncoding() {
    return stateOf(this).encoding;
  },
  readableEnded() {
    return stateOf(this).endEmitted;
  },
  errored() {
    return stateOf(this).errored;
  },
  closed() {
    return stateOf(this).closed;
  },
  destroyed() {
    return stateOf(this).destroyed;
  },
  readableFlowing() {
    return stateOf(this).flowing;
  },
};
const setters = {
  readable(value) {
    stateOf(this).readable = !!value;
  },
  destroyed(value) {
    stateOf(this).destroyed = value;
  },
  readableFlowing(value) {
    stateOf(this).flowing = value;
  },
};
for (const [name, get] of Object.entries(getters)) {
  Object.defineProperty(Readable.prototype, name, { get, set: setters[name], configurable: true, enumerable: false });
}
module.exports = Readable;
require('_stream_readable_use');
