// SPDX-License-Identifier: BSL-1.0
// Writable: a sink for chunks with back-pressure.
//
// One chunk is in `_write` at a time; later chunks wait in a buffer. `write` returns false when the high watermark is reached; 'drain' says
// when to go on. After `end`, `_final` may delay 'finish'.
'use strict';

const { Buffer } = require('buffer');
const { Stream } = require('_stream_legacy');
const { withCode, argumentType } = require('_errors');
const { normalize } = require('_encoding');
const destruction = require('_stream_destroy');
const nextTick = require('_ticks');

function Writable(options) {
  if (!(this instanceof Writable)) return new Writable(options);
  this._writableState = makeState(this, options, false);
  adoptOptions(this, options);
  Stream.call(this, options);
  destruction.construct(this, () => resumeWriting(this));
}
Object.setPrototypeOf(Writable.prototype, Stream.prototype);
Object.setPrototypeOf(Writable, Stream);

// A Duplex is a Writable too, though its prototype chain leads to Readable.
Object.defineProperty(Writable, Symbol.hasInstance, {
  value(object) {
    if (Function.prototype[Symbol.hasInstance].call(this, object)) return true;
    return this === Writable && !!object && object._writableState instanceof WritableState;
  },
});

function WritableState(stream, options, isDuplex) {
  const { watermark } = require('_stream_readable');
  this.objectMode = !!(options && (options.objectMode || (isDuplex && options.writableObjectMode)));
  this.highWaterMark = watermark(options, isDuplex, 'writableHighWaterMark', this.objectMode);
  this.decodeStrings = !options || options.decodeStrings !== false;
  this.defaultEncoding = (options && options.defaultEncoding) || 'utf8';
  this.writable = !options || options.writable !== false;
  this.length = 0;
  this.writing = false;
  this.corked = 0;
  this.sync = true; // `_write` is running
  this.current = null; // {length, callback} of the chunk in `_write`
  this.buffered = []; // {chunk, encoding, callback}
  this.flushing = false;
  this.ending = false;
  this.ended = false;
  this.finished = false;
  this.finalCalled = false;
  this.prefinished = false;
  this.pendingCallbacks = 0;
  this.needDrain = false;
  this.afterWrite = null; // callbacks that one tick will call
  this.finishCallbacks = [];
  destruction.initialize(this, options);
}

function makeState(stream, options, isDuplex) {
  return new WritableState(stream, options, isDuplex);
}

function adoptOptions(stream, options) {
  if (!options) return;
  if (typeof options.write === 'function') stream._write = options.write;
  if (typeof options.writev === 'function') stream._writev = options.writev;
  if (typeof options.destroy === 'function') stream._destroy = options.destroy;
  if (typeof options.final === 'function') stream._final = options.final;
  if (typeof options.construct === 'function') stream._construct = options.construct;
  if (options.signal) require('_stream_utilities').addAbortSignal(options.signal, stream);
}

Writable.WritableState = WritableState;
Writable.makeState = makeState;
Writable.adoptOptions = adoptOptions;
Writable.resumeWriting = resumeWriting;

function resumeWriting(stream) {
  const state = stream._writableState;
  if (!state.writing) flushBuffered(stream, state);
  finishIfDone(stream, state);
}

function noCallback() {}

const methods = {
  pipe() {
    destruction.fail(this, withCode(Error, 'ERR_STREAM_CANNOT_PIPE', 'Cannot pipe, not readable'));
  },

  write(chunk, encoding, callback) {
    return write(this, chunk, encoding, callback) === true;
  },

  cork() {
    this._writableState.corked++;
  },

  uncork() {
    const state = this._writableState;
    if (state.corked === 0) return;
    state.corked--;
    if (!state.writing) flushBuffered(this, state);
  },

  setDefaultEncoding(encoding) {
    const name = normalize(encoding);
    if (name === undefined) throw withCode(TypeError, 'ERR_UNKNOWN_ENCODING', `Unknown encoding: ${encoding}`);
    this._writableState.defaultEncoding = name;
    return this;
  },

  _write(chunk, encoding, callback) {
    if (!this._writev) throw withCode(Error, 'ERR_METHOD_NOT_IMPLEMENTED', 'The _write() method is not implemented');
    this._writev([{ chunk, encoding }], callback);
  },

  end(chunk, encoding, callback) {
    const state = this._writableState;
    if (typeof chunk === 'function') {
      callback = chunk;
      chunk = null;
      encoding = null;
    } else if (typeof encoding === 'function') {
      callback = encoding;
      encoding = null;
    }
    let error;
    if (chunk !== null && chunk !== undefined) {
      const result = write(this, chunk, encoding);
      if (result instanceof Error) error = result;
    }
    if (state.corked) {
      state.corked = 1;
      this.uncork();
    }
    if (!error) {
      if (!state.errored && !state.ending) {
        state.ending = true;
        finishIfDone(this, state, true);
        state.ended = true;
      } else if (state.finished) {
        error = withCode(Error, 'ERR_STREAM_ALREADY_FINISHED', 'Cannot call end after a stream was finished');
      } else if (state.destroyed) {
        error = withCode(Error, 'ERR_STREAM_DESTROYED', 'Cannot call end after a stream was destroyed');
      }
    }
    if (typeof callback === 'function') {
      if (error) nextTick(callback, error);
      else if (state.finished) nextTick(callback);
      else if (state.destroyed && state.errored) nextTick(callback, state.errored);
      else state.finishCallbacks.push(callback);
    }
    return this;
  },

  destroy(error, callback) {
    const state = this._writableState;
    if (!state.destroyed && (state.buffered.length > 0 || state.finishCallbacks.length > 0)) nextTick(failBuffered, state);
    destruction.destroy.call(this, error, callback);
    return this;
  },

  _destroy(error, callback) {
    callback(error);
  },
};

function write(stream, chunk, encoding, callback) {
  const state = stream._writableState;
  if (typeof encoding === 'function') {
    callback = encoding;
    encoding = state.defaultEncoding;
  } else {
    if (!encoding) encoding = state.defaultEncoding;
    else if (encoding !== 'buffer' && !Buffer.isEncoding(encoding)) {
      throw withCode(TypeError, 'ERR_UNKNOWN_ENCODING', `Unknown encoding: ${encoding}`);
    }
    if (typeof callback !== 'function') callback = noCallback;
  }
  if (chunk === null) throw withCode(TypeError, 'ERR_STREAM_NULL_VALUES', 'May not write null values to stream');
  if (!state.objectMode) {
    if (typeof chunk === 'string') {
      if (state.decodeStrings) {
        chunk = Buffer.from(chunk, encoding);
        encoding = 'buffer';
      }
    } else if (chunk instanceof Buffer) {
      encoding = 'buffer';
    } else if (ArrayBuffer.isView(chunk)) {
      chunk = Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength);
      encoding = 'buffer';
    } else {
      throw argumentType('chunk', ['string', 'Buffer', 'TypedArray', 'DataView'], chunk);
    }
  }
  let error;
  if (state.ending) error = withCode(Error, 'ERR_STREAM_WRITE_AFTER_END', 'write after end');
  else if (state.destroyed) error = withCode(Error, 'ERR_STREAM_DESTROYED', 'Cannot call write after a stream was destroyed');
  if (error) {
    nextTick(callback, error);
    destruction.fail(stream, error, true);
    return error;
  }
  state.pendingCallbacks++;
  return accept(stream, state, chunk, encoding, callback);
}

function accept(stream, state, chunk, encoding, callback) {
  const length = state.objectMode ? 1 : chunk.length;
  state.length += length;
  const below = state.length < state.highWaterMark;
  if (!below) state.needDrain = true;
  if (state.writing || state.corked || state.errored || !state.constructed) state.buffered.push({ chunk, encoding, callback });
  else startWrite(stream, state, length, callback, () => stream._write(chunk, encoding, stateCallback(stream, state)));
  return below && !state.errored && !state.destroyed;
}

function stateCallback(stream, state) {
  return (error) => written(stream, state, error);
}

function startWrite(stream, state, length, callback, action) {
  state.current = { length, callback };
  state.writing = true;
  state.sync = true;
  if (state.destroyed) written(stream, state, withCode(Error, 'ERR_STREAM_DESTROYED', 'Cannot call write after a stream was destroyed'));
  else action();
  state.sync = false;
}

function written(stream, state, error) {
  const { current, sync } = state;
  if (current === null) {
    destruction.fail(stream, withCode(Error, 'ERR_MULTIPLE_CALLBACK', 'Callback called multiple times'));
    return;
  }
  state.writing = false;
  state.current = null;
  state.length -= current.length;
  if (error) {
    if (!state.errored) state.errored = error;
    if (stream._readableState && !stream._readableState.errored) stream._readableState.errored = error;
    if (sync) nextTick(writeFailed, stream, state, error, current.callback);
    else writeFailed(stream, state, error, current.callback);
    return;
  }
  if (state.buffered.length > 0) flushBuffered(stream, state);
  if (!sync) {
    afterWrite(stream, state, [current.callback]);
  } else if (state.afterWrite !== null) {
    state.afterWrite.push(current.callback);
  } else {
    state.afterWrite = [current.callback];
    nextTick(() => {
      const callbacks = state.afterWrite;
      state.afterWrite = null;
      afterWrite(stream, state, callbacks);
    });
  }
}

function writeFailed(stream, state, error, callback) {
  state.pendingCallbacks--;
  callback(error);
  failBuffered(state);
  destruction.fail(stream, error);
}

function afterWrite(stream, state, callbacks) {
  if (!state.ending && !stream.destroyed && state.length === 0 && state.needDrain) {
    state.needDrain = false;
    stream.emit('drain');
  }
  for (const callback of callbacks) {
    state.pendingCallbacks--;
    callback(null);
  }
  if (state.destroyed) failBuffered(state);
  finishIfDone(stream, state);
}

// Calls the callbacks of chunks that will never be written.
function failBuffered(state) {
  if (state.writing) return;
  const error = () => state.errored ?? withCode(Error, 'ERR_STREAM_DESTROYED', 'Cannot call write after a stream was destroyed');
  for (const { chunk, callback } of state.buffered.splice(0)) {
    state.length -= state.objectMode ? 1 : chunk.length;
    callback(error());
  }
  const endError = () => state.errored ?? withCode(Error, 'ERR_STREAM_DESTROYED', 'Cannot call end after a stream was destroyed');
  for (const callback of state.finishCallbacks.splice(0)) callback(endError());
}

function flushBuffered(stream, state) {
  if (state.corked || state.flushing || state.destroyed || !state.constructed || state.buffered.length === 0) return;
  state.flushing = true;
  if (stream._writev && state.buffered.length > 1) {
    const all = state.buffered.splice(0);
    state.pendingCallbacks -= all.length - 1;
    const callback = (error) => {
      for (const item of all) item.callback(error);
    };
    const chunks = all.map(({ chunk, encoding }) => ({ chunk, encoding }));
    chunks.allBuffers = chunks.every(({ encoding }) => encoding === 'buffer');
    startWrite(stream, state, state.length, callback, () => stream._writev(chunks, stateCallback(stream, state)));
  } else {
    while (state.buffered.length > 0 && !state.writing) {
      const { chunk, encoding, callback } = state.buffered.shift();
      const length = state.objectMode ? 1 : chunk.length;
      startWrite(stream, state, length, callback, () => stream._write(chunk, encoding, stateCallback(stream, state)));
    }
  }
  state.flushing = false;
}

function isDone(state) {
  return (
    state.ending &&
    !state.destroyed &&
    state.constructed &&
    state.length === 0 &&
    !state.errored &&
    state.buffered.length === 0 &&
    !state.finished &&
    !state.writing &&
    !state.errorEmitted &&
    !state.closeEmitted
  );
}

function finishIfDone(stream, state, sync) {
  if (!isDone(state)) return;
  prepareFinish(stream, state);
  if (state.pendingCallbacks !== 0) return;
  if (sync) {
    state.pendingCallbacks++;
    nextTick(() => {
      if (isDone(state)) finish(stream, state);
      else state.pendingCallbacks--;
    });
  } else if (isDone(state)) {
    state.pendingCallbacks++;
    finish(stream, state);
  }
}

function prepareFinish(stream, state) {
  if (state.prefinished || state.finalCalled) return;
  if (typeof stream._final !== 'function' || state.destroyed) {
    state.prefinished = true;
    stream.emit('prefinish');
    return;
  }
  state.finalCalled = true;
  state.sync = true;
  state.pendingCallbacks++;
  let called = false;
  const done = (error) => {
    if (called) {
      destruction.fail(stream, error ?? withCode(Error, 'ERR_MULTIPLE_CALLBACK', 'Callback called multiple times'));
      return;
    }
    called = true;
    state.pendingCallbacks--;
    if (error) {
      for (const callback of state.finishCallbacks.splice(0)) callback(error);
      destruction.fail(stream, error, state.sync);
    } else if (isDone(state)) {
      state.prefinished = true;
      stream.emit('prefinish');
      state.pendingCallbacks++;
      nextTick(finish, stream, state);
    }
  };
  try {
    stream._final(done);
  } catch (error) {
    done(error);
  }
  state.sync = false;
}

function finish(stream, state) {
  state.pendingCallbacks--;
  state.finished = true;
  for (const callback of state.finishCallbacks.splice(0)) callback();
  stream.emit('finish');
  if (!state.autoDestroy) return;
  const readable = stream._readableState;
  if (!readable || (readable.autoDestroy && (readable.endEmitted || readable.readable === false))) stream.destroy();
}

const getters = {
  writable() {
    const state = this._writableState;
    return !!state && state.writable !== false && !state.destroyed && !state.errored && !state.ending && !state.ended;
  },
  writableFinished: (state) => state.finished,
  writableObjectMode: (state) => state.objectMode,
  writableBuffer: (state) => state.buffered,
  writableEnded: (state) => state.ending,
  writableNeedDrain: (state) => !state.destroyed && !state.ending && state.needDrain,
  writableHighWaterMark: (state) => state.highWaterMark,
  writableCorked: (state) => state.corked,
  writableLength: (state) => state.length,
  errored: (state) => state.errored,
  closed: (state) => state.closed,
  destroyed: (state) => state.destroyed,
  writableAborted: (state) => state.writable !== false && (state.destroyed || !!state.errored) && !state.finished,
};

const descriptors = {};
for (const name of Object.keys(methods)) {
  descriptors[name] = { value: methods[name], writable: true, enumerable: false, configurable: true };
}
for (const name of Object.keys(getters)) {
  const getter = getters[name];
  descriptors[name] = {
    get() {
      return name === 'writable' ? getter.call(this) : this._writableState ? getter(this._writableState) : undefined;
    },
    set: undefined,
    enumerable: false,
    configurable: true,
  };
}
descriptors.writable.set = function (value) {
  if (this._writableState) this._writableState.writable = !!value;
};
descriptors.destroyed.set = function (value) {
  if (this._writableState) this._writableState.destroyed = value;
};
Object.defineProperties(Writable.prototype, descriptors);

Writable.descriptors = descriptors; // for Duplex
Writable.toWeb = (stream) => require('_stream_web').writableToWeb(stream);
Writable.fromWeb = (stream, options) => require('_stream_web').writableFromWeb(stream, options);

module.exports = Writable;
