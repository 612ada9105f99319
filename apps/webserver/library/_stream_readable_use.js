// SPDX-License-Identifier: BSL-1.0
// Ways to consume a Readable: pipe, `for await`, the small helpers, and conversion from iterables and web streams.
'use strict';

const Readable = require('_stream_readable');
const { Stream } = require('_stream_legacy');
const { withCode, argumentType, checkFunction, AbortError } = require('_errors');
const { fail } = require('_stream_destroy');
const nextTick = require('_ticks');

Readable.prototype.pipe = function pipe(target, options) {
  const source = this;
  this.readableLength; // creates the state of an object that natives made
  const state = this._readableState;
  state.pipes.push(target);
  const ends = (!options || options.end !== false) && target !== globalThis.process?.stdout && target !== globalThis.process?.stderr;

  let drainListener;
  let cleaned = false;
  const pause = () => {
    if (!cleaned) {
      state.awaitingDrain.add(target);
      source.pause();
    }
    if (!drainListener) {
      drainListener = () => {
        state.awaitingDrain.delete(target);
        if (state.awaitingDrain.size === 0 && source.listenerCount('data') > 0) source.resume();
      };
      target.on('drain', drainListener);
    }
  };
  const onData = (chunk) => {
    if (target.write(chunk) === false) pause();
  };
  const onEnd = () => target.end();
  const unpipe = () => source.unpipe(target);
  const onUnpipe = (from, details) => {
    if (from === source && details && details.cleaned === false) {
      details.cleaned = true;
      clean();
    }
  };
  const onError = (error) => {
    unpipe();
    target.removeListener('error', onError);
    if (target.listenerCount('error') === 0) {
      const targetState = target._writableState || target._readableState;
      if (targetState && !targetState.errorEmitted) target.destroy(error);
      else target.emit('error', error);
    }
  };
  const onClose = () => {
    target.removeListener('finish', onFinish);
    unpipe();
  };
  const onFinish = () => {
    target.removeListener('close', onClose);
    unpipe();
  };
  function clean() {
    target.removeListener('close', onClose);
    target.removeListener('finish', onFinish);
    if (drainListener) target.removeListener('drain', drainListener);
    target.removeListener('error', onError);
    target.removeListener('unpipe', onUnpipe);
    source.removeListener('end', onEnd);
    source.removeListener('end', unpipe);
    source.removeListener('data', onData);
    cleaned = true;
    if (drainListener && state.awaitingDrain.has(target)) drainListener();
  }

  const whenEnded = ends ? onEnd : unpipe;
  if (state.endEmitted) nextTick(whenEnded);
  else source.once('end', whenEnded);
  target.on('unpipe', onUnpipe);
  source.on('data', onData);
  target.prependListener('error', onError);
  target.once('close', onClose);
  target.once('finish', onFinish);
  target.emit('pipe', source);
  if (target.writableNeedDrain === true) pause();
  else if (!state.flowing) source.resume();
  return target;
};

Readable.prototype.unpipe = function unpipe(target) {
  this.readableLength;
  const state = this._readableState;
  if (state.pipes.length === 0) return this;
  if (!target) {
    const targets = state.pipes;
    state.pipes = [];
    this.pause();
    for (const each of targets) each.emit('unpipe', this, { cleaned: false });
    return this;
  }
  const index = state.pipes.indexOf(target);
  if (index === -1) return this;
  state.pipes.splice(index, 1);
  if (state.pipes.length === 0) this.pause();
  target.emit('unpipe', this, { cleaned: false });
  return this;
};

async function* iterate(stream, options) {
  const { finished } = require('_stream_utilities');
  let wake = () => {};
  let end; // undefined: not ended; null: ended well; else the error
  const onReadable = () => wake();
  stream.on('readable', onReadable);
  const cleanup = finished(stream, { writable: false }, (error) => {
    end = error ?? null;
    wake();
  });
  try {
    for (;;) {
      const chunk = stream.destroyed ? null : stream.read();
      if (chunk !== null) yield chunk;
      else if (end) throw end;
      else if (end === null) return;
      else await new Promise((resolve) => (wake = resolve));
    }
  } catch (error) {
    end = error;
    throw error;
  } finally {
    if ((end || options?.destroyOnReturn !== false) && (end === undefined || stream._readableState.autoDestroy)) {
      // The listener for 'error' stays: it takes the AbortError of an iteration that was left early.
      const over = stream._readableState.endEmitted || stream._readableState.errored;
      stream.destroy(over ? null : new AbortError());
    } else {
      stream.removeListener('readable', onReadable);
      cleanup();
    }
  }
}

Readable.prototype[Symbol.asyncIterator] = function () {
  return iterate(this);
};
Readable.prototype.iterator = function iterator(options) {
  return iterate(this, options);
};

const helpers = {
  async toArray() {
    const result = [];
    for await (const chunk of this) result.push(chunk);
    return result;
  },
  async forEach(callback) {
    checkFunction(callback, 'fn');
    for await (const chunk of this) await callback(chunk);
  },
  map(callback) {
    checkFunction(callback, 'fn');
    const source = this;
    return Readable.from(
      (async function* () {
        for await (const chunk of source) yield await callback(chunk);
      })(),
    );
  },
  filter(callback) {
    checkFunction(callback, 'fn');
    const source = this;
    return Readable.from(
      (async function* () {
        for await (const chunk of source) if (await callback(chunk)) yield chunk;
      })(),
    );
  },
  async reduce(callback, ...initial) {
    checkFunction(callback, 'reducer');
    let started = initial.length > 0;
    let value = initial[0];
    for await (const chunk of this) {
      value = started ? await callback(value, chunk) : chunk;
      started = true;
    }
    if (!started) throw new TypeError('Reduce of an empty stream requires an initial value');
    return value;
  },
};
for (const [name, value] of Object.entries(helpers)) {
  Object.defineProperty(Readable.prototype, name, { value, writable: true, configurable: true, enumerable: false });
}

Readable.from = function from(iterable, options) {
  const { Buffer } = require('buffer');
  if (typeof iterable === 'string' || iterable instanceof Buffer) {
    return new Readable({
      objectMode: true,
      ...options,
      read() {
        this.push(iterable);
        this.push(null);
      },
    });
  }
  let iterator;
  if (iterable && iterable[Symbol.asyncIterator]) iterator = iterable[Symbol.asyncIterator]();
  else if (iterable && iterable[Symbol.iterator]) iterator = iterable[Symbol.iterator]();
  else throw argumentType('iterable', ['Iterable'], iterable);

  let reading = false;
  const stream = new Readable({ objectMode: true, highWaterMark: 1, ...options });
  stream._read = function () {
    if (reading) return;
    reading = true;
    pump();
  };
  stream._destroy = function (error, callback) {
    close(error).then(
      () => nextTick(callback, error),
      (failure) => nextTick(callback, failure || error),
    );
  };
  async function close(error) {
    if (error !== undefined && error !== null && typeof iterator.throw === 'function') {
      const { value, done } = await iterator.throw(error);
      await value;
      if (done) return;
    }
    if (typeof iterator.return === 'function') await (await iterator.return()).value;
  }
  async function pump() {
    for (;;) {
      try {
        const step = iterator.next();
        const { value, done } = step && typeof step.then === 'function' ? await step : step;
        if (done) {
          stream.push(null);
          return;
        }
        const chunk = value && typeof value.then === 'function' ? await value : value;
        if (chunk === null) {
          reading = false;
          throw withCode(TypeError, 'ERR_STREAM_NULL_VALUES', 'May not write null values to stream');
        }
        if (stream.push(chunk)) continue;
        reading = false;
      } catch (error) {
        stream.destroy(error);
      }
      return;
    }
  }
  return stream;
};

Readable.prototype.wrap = function wrap(old) {
  old.on('data', (chunk) => {
    if (!this.push(chunk) && old.pause) old.pause();
  });
  old.on('end', () => this.push(null));
  old.on('error', (error) => fail(this, error));
  old.on('close', () => this.destroy());
  this._read = () => old.resume && old.resume();
  return this;
};

Readable.toWeb = function toWeb(stream, options) {
  return require('_stream_web').readableToWeb(stream, options);
};
Readable.fromWeb = function fromWeb(stream, options) {
  return require('_stream_web').readableFromWeb(stream, options);
};

Stream.prototype.pipe = function pipe(target, options) {
  this.on('data', (chunk) => {
    if (target.writable && target.write(chunk) === false && this.pause) this.pause();
  });
  target.on('drain', () => this.readable && this.resume && this.resume());
  if (!options || options.end !== false) this.on('end', () => target.end());
  target.emit('pipe', this);
  return target;
};
