// SPDX-License-Identifier: BSL-1.0
// ReadableStream of the web, with its default reader and controller.
//
// Programs for the fetch interface (Request, Response) carry bodies in these streams. A source is pulled while fewer chunks wait than the
// high watermark. Byte streams (`type: 'bytes'`) are accepted; their chunks are read by the default reader. WritableStream and
// TransformStream: _web_sinks.js.
'use strict';

const { withCode } = require('_errors');
const state = Symbol('state');

function deferred() {
  const result = {};
  result.promise = new Promise((resolve, reject) => {
    result.resolve = resolve;
    result.reject = reject;
  });
  return result;
}

/// Marks a promise whose rejection needs no handler.
function quiet(promise) {
  promise.catch(() => {});
  return promise;
}

function illegal(what) {
  return withCode(TypeError, 'ERR_INVALID_THIS', `Value of "this" must be of type ${what}`);
}

function invalidState(text) {
  return withCode(TypeError, 'ERR_INVALID_STATE', `Invalid state: ${text}`);
}

function strategyOf(strategy, watermark) {
  const highWaterMark = strategy?.highWaterMark === undefined ? watermark : Number(strategy.highWaterMark);
  if (Number.isNaN(highWaterMark) || highWaterMark < 0) throw new RangeError('Invalid highWaterMark');
  return { highWaterMark, size: strategy?.size };
}

class ReadableStreamDefaultController {
  constructor(key, stream, source, strategy) {
    if (key !== state) throw new TypeError('Illegal constructor');
    this[state] = { stream, source, ...strategy, queue: [], queued: 0, pulling: false, pullAgain: false, closing: false, started: false };
  }

  get desiredSize() {
    const own = this[state];
    const { status } = own.stream[state];
    if (status === 'errored') return null;
    if (status === 'closed') return 0;
    return own.highWaterMark - own.queued;
  }

  get byobRequest() {
    return null;
  }

  enqueue(chunk) {
    const own = this[state];
    const stream = own.stream[state];
    if (own.closing || stream.status !== 'readable') throw invalidState('Controller is already closed');
    if (stream.requests.length > 0) {
      stream.requests.shift().resolve({ value: chunk, done: false });
    } else {
      let size = 1;
      try {
        if (own.size) size = own.size(chunk);
      } catch (error) {
        fail(own.stream, error);
        throw error;
      }
      own.queue.push({ chunk, size });
      own.queued += size;
    }
    pullIfNeeded(this);
  }

  close() {
    const own = this[state];
    if (own.closing || own.stream[state].status !== 'readable') throw invalidState('Controller is already closed');
    own.closing = true;
    if (own.queue.length === 0) finish(own.stream);
  }

  error(reason) {
    fail(this[state].stream, reason);
  }

  get [Symbol.toStringTag]() {
    return 'ReadableStreamDefaultController';
  }
}

function pullIfNeeded(controller) {
  const own = controller[state];
  const stream = own.stream[state];
  if (stream.status !== 'readable' || own.closing || !own.started || !own.source.pull) return;
  if (stream.requests.length === 0 && own.highWaterMark - own.queued <= 0) return;
  if (own.pulling) {
    own.pullAgain = true;
    return;
  }
  own.pulling = true;
  let result;
  try {
    result = own.source.pull.call(own.source.object, controller);
  } catch (error) {
    fail(own.stream, error);
    return;
  }
  Promise.resolve(result).then(
    () => {
      own.pulling = false;
      if (own.pullAgain) {
        own.pullAgain = false;
        pullIfNeeded(controller);
      }
    },
    (error) => fail(own.stream, error),
  );
}

function finish(stream) {
  const own = stream[state];
  own.status = 'closed';
  for (const request of own.requests.splice(0)) request.resolve({ value: undefined, done: true });
  own.reader?.[state].closed.resolve();
}

function fail(stream, error) {
  const own = stream[state];
  if (own.status !== 'readable') return;
  own.status = 'errored';
  own.error = error;
  const controller = own.controller[state];
  controller.queue = [];
  controller.queued = 0;
  for (const request of own.requests.splice(0)) request.reject(error);
  own.reader?.[state].closed.reject(error);
}

function cancel(stream, reason) {
  const own = stream[state];
  own.disturbed = true;
  if (own.status === 'closed') return Promise.resolve();
  if (own.status === 'errored') return Promise.reject(own.error);
  finish(stream);
  const { source } = own.controller[state];
  own.controller[state].queue = [];
  if (!source.cancel) return Promise.resolve();
  try {
    return Promise.resolve(source.cancel.call(source.object, reason)).then(() => undefined);
  } catch (error) {
    return Promise.reject(error);
  }
}

function read(stream) {
  const own = stream[state];
  own.disturbed = true;
  if (own.status === 'closed') return Promise.resolve({ value: undefined, done: true });
  if (own.status === 'errored') return Promise.reject(own.error);
  const controller = own.controller[state];
  if (controller.queue.length > 0) {
    const { chunk, size } = controller.queue.shift();
    controller.queued -= size;
    if (controller.closing && controller.queue.length === 0) finish(stream);
    else pullIfNeeded(own.controller);
    return Promise.resolve({ value: chunk, done: false });
  }
  const request = deferred();
  own.requests.push(request);
  pullIfNeeded(own.controller);
  return request.promise;
}

class ReadableStreamDefaultReader {
  constructor(stream) {
    if (!(stream instanceof ReadableStream)) throw illegal('ReadableStream');
    if (stream.locked) throw invalidState('ReadableStream is locked');
    const closed = deferred();
    quiet(closed.promise);
    this[state] = { stream, closed };
    const own = stream[state];
    own.reader = this;
    if (own.status === 'closed') closed.resolve();
    else if (own.status === 'errored') closed.reject(own.error);
  }

  get closed() {
    return this[state].closed.promise;
  }

  read() {
    const { stream } = this[state];
    if (!stream) return Promise.reject(invalidState('The reader is not attached to a stream'));
    return read(stream);
  }

  cancel(reason) {
    const { stream } = this[state];
    if (!stream) return Promise.reject(invalidState('The reader is not attached to a stream'));
    return cancel(stream, reason);
  }

  releaseLock() {
    const own = this[state];
    if (!own.stream) return;
    const error = invalidState('Reader released');
    const stream = own.stream[state];
    for (const request of stream.requests.splice(0)) request.reject(error);
    if (stream.status === 'readable') own.closed.reject(error);
    else {
      own.closed = deferred();
      quiet(own.closed.promise);
      own.closed.reject(error);
    }
    stream.reader = null;
    own.stream = null;
  }

  get [Symbol.toStringTag]() {
    return 'ReadableStreamDefaultReader';
  }
}

class ReadableStream {
  constructor(source = {}, strategy = {}) {
    if (source === null || typeof source !== 'object')
      throw withCode(TypeError, 'ERR_INVALID_ARG_TYPE', 'The "source" argument must be of type object');
    const isBytes = source.type !== undefined;
    if (isBytes && `${source.type}` !== 'bytes')
      throw withCode(RangeError, 'ERR_INVALID_ARG_VALUE', `The property 'source.type' is invalid. Received '${source.type}'`);
    const methods = { object: source, start: source.start, pull: source.pull, cancel: source.cancel };
    this[state] = { status: 'readable', error: undefined, reader: null, requests: [], disturbed: false, controller: null };
    const controller = new ReadableStreamDefaultController(state, this, methods, strategyOf(strategy, isBytes ? 0 : 1));
    this[state].controller = controller;
    const result = methods.start ? methods.start.call(source, controller) : undefined;
    Promise.resolve(result).then(
      () => {
        controller[state].started = true;
        pullIfNeeded(controller);
      },
      (error) => fail(this, error),
    );
  }

  get locked() {
    return this[state].reader !== null;
  }

  /// True once something was read or cancelled. Not a part of the standard's interface; Request and Response need it.
  get _disturbed() {
    return this[state].disturbed;
  }

  /// True if a read waits for a chunk.
  _wanted() {
    return this[state].requests.length > 0;
  }

  cancel(reason) {
    if (this.locked) return Promise.reject(invalidState('ReadableStream is locked'));
    return cancel(this, reason);
  }

  getReader(options) {
    if (options?.mode !== undefined) throw withCode(TypeError, 'ERR_INVALID_ARG_VALUE', 'Readers of mode "byob" are not available');
    return new ReadableStreamDefaultReader(this);
  }

  pipeThrough(pair, options) {
    quiet(this.pipeTo(pair.writable, options));
    return pair.readable;
  }

  pipeTo(target, options) {
    return require('_web_sinks').pipeTo(this, target, options);
  }

  tee() {
    const reader = this.getReader();
    const branches = [];
    const cancelled = [undefined, undefined];
    let reading = false;
    let again = false;
    const cancellation = deferred();
    const pull = async () => {
      if (reading) {
        again = true;
        return;
      }
      reading = true;
      try {
        const { value, done } = await reader.read();
        for (const [index, branch] of branches.entries()) {
          if (cancelled[index] !== undefined) continue;
          if (done) branch.close();
          else branch.enqueue(value);
        }
        if (done) cancellation.resolve();
      } catch (error) {
        for (const branch of branches) branch.error(error);
        cancellation.resolve();
      }
      reading = false;
      if (again) {
        again = false;
        pull();
      }
    };
    const make = (index) =>
      new ReadableStream({
        start: (controller) => {
          branches[index] = controller;
        },
        pull,
        cancel: (reason) => {
          cancelled[index] = [reason];
          if (cancelled[1 - index] !== undefined)
            reader.cancel([cancelled[0][0], cancelled[1][0]]).then(cancellation.resolve, cancellation.reject);
          return cancellation.promise;
        },
      });
    const streams = [make(0), make(1)];
    quiet(reader.closed);
    reader.closed.catch((error) => branches.forEach((branch) => branch.error(error)));
    return streams;
  }

  values(options) {
    const reader = this.getReader();
    const keep = options?.preventCancel === true;
    let over = false;
    const iterator = {
      async next() {
        if (over) return { value: undefined, done: true };
        try {
          const result = await reader.read();
          if (result.done) {
            over = true;
            reader.releaseLock();
          }
          return result;
        } catch (error) {
          over = true;
          reader.releaseLock();
          throw error;
        }
      },
      async return(value) {
        if (!over) {
          over = true;
          const done = keep ? undefined : reader.cancel(value);
          reader.releaseLock();
          await done;
        }
        return { value, done: true };
      },
      [Symbol.asyncIterator]() {
        return iterator;
      },
    };
    return iterator;
  }

  [Symbol.asyncIterator](options) {
    return this.values(options);
  }

  static from(iterable) {
    const iterator = iterable[Symbol.asyncIterator]?.() ?? iterable[Symbol.iterator]?.();
    if (!iterator) throw withCode(TypeError, 'ERR_ARG_NOT_ITERABLE', 'The argument must be iterable');
    return new ReadableStream(
      {
        async pull(controller) {
          const { value, done } = await iterator.next();
          if (done) controller.close();
          else controller.enqueue(await value);
        },
        async cancel(reason) {
          await iterator.return?.(reason);
        },
      },
      { highWaterMark: 0 },
    );
  }

  get [Symbol.toStringTag]() {
    return 'ReadableStream';
  }

  [Symbol.for('nodejs.util.inspect.custom')](depth, options, inspect) {
    return `ReadableStream ${inspect({ locked: this.locked, state: this[state].status, supportsBYOB: false }, options)}`;
  }
}

class CountQueuingStrategy {
  constructor({ highWaterMark }) {
    this.highWaterMark = highWaterMark;
  }

  get size() {
    return () => 1;
  }
}

class ByteLengthQueuingStrategy {
  constructor({ highWaterMark }) {
    this.highWaterMark = highWaterMark;
  }

  get size() {
    return (chunk) => chunk.byteLength;
  }
}

module.exports = {
  ReadableStream,
  ReadableStreamDefaultReader,
  ReadableStreamDefaultController,
  CountQueuingStrategy,
  ByteLengthQueuingStrategy,
  tools: { deferred, quiet, invalidState, strategyOf, cancel },
};
for (const name of [
  'WritableStream',
  'WritableStreamDefaultWriter',
  'WritableStreamDefaultController',
  'TransformStream',
  'TransformStreamDefaultController',
  'TextEncoderStream',
  'TextDecoderStream',
]) {
  Object.defineProperty(module.exports, name, { enumerable: true, get: () => require('_web_sinks')[name] });
}
