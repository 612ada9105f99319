// SPDX-License-Identifier: BSL-1.0
// WritableStream and TransformStream of the web, and pipeTo.
//
// A sink gets one chunk at a time; others wait. `ready` is a promise that is pending while more waits than the high watermark.
'use strict';

const { withCode } = require('_errors');
const { ReadableStream, tools } = require('_web_streams');
const { deferred, quiet, invalidState, strategyOf } = tools;
const state = Symbol('state');

class WritableStreamDefaultController {
  constructor(key, stream) {
    if (key !== state) throw new TypeError('Illegal constructor');
    this[state] = stream;
    this.abortController = typeof AbortController === 'function' ? new AbortController() : undefined;
    Object.defineProperty(this, 'abortController', { enumerable: false });
  }

  get signal() {
    return this.abortController?.signal;
  }

  error(reason) {
    fail(this[state], reason);
  }
}

class WritableStream {
  constructor(sink = {}, strategy = {}) {
    this[state] = {
      status: 'writable', // closing, closed, errored
      error: undefined,
      sink,
      ...strategyOf(strategy, 1),
      queue: [], // {chunk, size, done}; a close is {close: true, done}
      queued: 0,
      working: true, // until `start` is done
      writer: null,
      controller: null,
    };
    const own = this[state];
    own.controller = new WritableStreamDefaultController(state, this);
    const result = sink.start ? sink.start(own.controller) : undefined;
    Promise.resolve(result).then(
      () => {
        own.working = false;
        work(this);
      },
      (error) => {
        own.working = false;
        fail(this, error);
      },
    );
  }

  get locked() {
    return this[state].writer !== null;
  }

  getWriter() {
    return new WritableStreamDefaultWriter(this);
  }

  abort(reason) {
    if (this.locked) return Promise.reject(invalidState('WritableStream is locked'));
    return abort(this, reason);
  }

  close() {
    if (this.locked) return Promise.reject(invalidState('WritableStream is locked'));
    return close(this);
  }

  get [Symbol.toStringTag]() {
    return 'WritableStream';
  }
}

function fail(stream, error) {
  const own = stream[state];
  if (own.status === 'errored' || own.status === 'closed') return;
  own.status = 'errored';
  own.error = error;
  for (const item of own.queue.splice(0)) item.done.reject(error);
  own.queued = 0;
  if (own.writer) {
    own.writer[state].ready.reject(error);
    // `ready` may have been resolved before; then a new rejected one takes its place.
    own.writer[state].ready = deferred();
    quiet(own.writer[state].ready.promise);
    own.writer[state].ready.reject(error);
    own.writer[state].closed.reject(error);
  }
}

async function work(stream) {
  const own = stream[state];
  if (own.working || own.queue.length === 0 || own.status === 'errored') return;
  own.working = true;
  const item = own.queue[0];
  try {
    if (item.close) await own.sink.close?.(own.controller);
    else await own.sink.write?.(item.chunk, own.controller);
  } catch (error) {
    own.working = false;
    fail(stream, error);
    return;
  }
  own.working = false;
  if (own.status === 'errored') return;
  own.queue.shift();
  if (item.close) {
    own.status = 'closed';
    own.writer?.[state].closed.resolve();
  } else {
    own.queued -= item.size;
    if (own.queued < own.highWaterMark) own.writer?.[state].ready.resolve();
  }
  item.done.resolve();
  work(stream);
}

function add(stream, item) {
  const own = stream[state];
  item.done = deferred();
  quiet(item.done.promise);
  own.queue.push(item);
  work(stream);
  return item.done.promise;
}

function write(stream, chunk) {
  const own = stream[state];
  if (own.status === 'errored') return Promise.reject(own.error);
  if (own.status !== 'writable') return Promise.reject(invalidState('WritableStream is closed'));
  const size = own.size ? own.size(chunk) : 1;
  own.queued += size;
  if (own.queued >= own.highWaterMark && own.writer) {
    const writer = own.writer[state];
    writer.ready = deferred();
    quiet(writer.ready.promise);
  }
  return add(stream, { chunk, size });
}

function close(stream) {
  const own = stream[state];
  if (own.status === 'errored') return Promise.reject(own.error);
  if (own.status !== 'writable') return Promise.reject(invalidState('WritableStream is closed'));
  own.status = 'closing';
  return add(stream, { close: true });
}

async function abort(stream, reason) {
  const own = stream[state];
  if (own.status === 'errored' || own.status === 'closed') return;
  own.controller.abortController?.abort(reason);
  fail(stream, reason);
  await own.sink.abort?.(reason);
}

class WritableStreamDefaultWriter {
  constructor(stream) {
    if (stream.locked) throw invalidState('WritableStream is locked');
    this[state] = { stream, ready: deferred(), closed: deferred() };
    const own = this[state];
    quiet(own.ready.promise);
    quiet(own.closed.promise);
    const { status, error, queued, highWaterMark } = stream[state];
    stream[state].writer = this;
    if (status === 'errored') {
      own.ready.reject(error);
      own.closed.reject(error);
    } else if (status === 'closed') own.closed.resolve();
    if (status !== 'errored' && (status !== 'writable' || queued < highWaterMark)) own.ready.resolve();
  }

  get closed() {
    return this[state].closed.promise;
  }

  get ready() {
    return this[state].ready.promise;
  }

  get desiredSize() {
    const { status, highWaterMark, queued } = this[state].stream[state];
    if (status === 'errored') return null;
    return status === 'closed' ? 0 : highWaterMark - queued;
  }

  write(chunk) {
    const { stream } = this[state];
    return stream ? write(stream, chunk) : Promise.reject(invalidState('The writer is not attached to a stream'));
  }

  close() {
    const { stream } = this[state];
    return stream ? close(stream) : Promise.reject(invalidState('The writer is not attached to a stream'));
  }

  abort(reason) {
    const { stream } = this[state];
    return stream ? abort(stream, reason) : Promise.reject(invalidState('The writer is not attached to a stream'));
  }

  releaseLock() {
    const own = this[state];
    if (!own.stream) return;
    own.stream[state].writer = null;
    own.stream = null;
    own.closed.reject(invalidState('Writer released'));
  }
}

async function pipeTo(source, target, options = {}) {
  const { signal, preventClose, preventAbort, preventCancel } = options ?? {};
  const reader = source.getReader();
  const writer = target.getWriter();
  let stop;
  const stopped = new Promise((resolve) => (stop = resolve));
  const onAbort = () => stop({ error: signal.reason, abort: true });
  if (signal?.aborted) onAbort();
  else signal?.addEventListener('abort', onAbort, { once: true });
  writer.closed.catch((error) => stop({ error, target: true }));
  let end;
  try {
    for (;;) {
      const next = await Promise.race([stopped, writer.ready.then(() => reader.read()).then((result) => ({ result }))]);
      if (!next.result) {
        end = next;
        break;
      }
      if (next.result.done) break;
      quiet(writer.write(next.result.value));
    }
  } catch (error) {
    end = { error, source: true };
  }
  signal?.removeEventListener('abort', onAbort);
  try {
    if (!end) {
      if (!preventClose) await writer.close();
      return;
    }
    if (!end.target && !preventAbort) await writer.abort(end.error);
    if (!end.source && !preventCancel) await reader.cancel(end.error);
    throw end.error;
  } finally {
    reader.releaseLock();
    writer.releaseLock();
  }
}

class TransformStreamDefaultController {
  constructor(key, own) {
    if (key !== state) throw new TypeError('Illegal constructor');
    this[state] = own;
  }

  get desiredSize() {
    return this[state].output.desiredSize;
  }

  enqueue(chunk) {
    this[state].output.enqueue(chunk);
  }

  error(reason) {
    this[state].output.error(reason);
    this[state].input.error(reason);
  }

  terminate() {
    this[state].output.close();
    this[state].input.error(withCode(TypeError, 'ERR_INVALID_STATE', 'Invalid state: TransformStream terminated'));
  }
}

class TransformStream {
  constructor(transformer = {}, writableStrategy = {}, readableStrategy = {}) {
    const own = { input: null, output: null, room: deferred() };
    const controller = new TransformStreamDefaultController(state, own);
    const started = deferred();
    this[state] = own;
    this.readable = new ReadableStream(
      {
        start: (output) => {
          own.output = output;
        },
        pull: () => own.room.resolve(),
        cancel: async (reason) => {
          own.room.resolve();
          await transformer.cancel?.(reason);
          own.input.error(reason);
        },
      },
      { highWaterMark: 0, ...readableStrategy },
    );
    this.writable = new WritableStream(
      {
        start: (input) => {
          own.input = input;
          return started.promise;
        },
        // A chunk is transformed when the reader wants one: back-pressure goes through.
        write: async (chunk) => {
          if (own.output.desiredSize <= 0) {
            own.room = deferred();
            if (!this.readable._wanted()) await own.room.promise;
          }
          try {
            if (transformer.transform) await transformer.transform(chunk, controller);
            else controller.enqueue(chunk);
          } catch (error) {
            own.output.error(error);
            throw error;
          }
        },
        close: async () => {
          try {
            await transformer.flush?.(controller);
          } catch (error) {
            own.output.error(error);
            throw error;
          }
          if (own.output.desiredSize !== null) {
            try {
              own.output.close();
            } catch {
              // terminate() has closed it.
            }
          }
        },
        abort: async (reason) => {
          own.output.error(reason);
          await transformer.cancel?.(reason);
        },
      },
      writableStrategy,
    );
    Promise.resolve(transformer.start?.(controller)).then(started.resolve, (error) => {
      controller.error(error);
      started.reject(error);
    });
  }

  get [Symbol.toStringTag]() {
    return 'TransformStream';
  }
}

class TextEncoderStream extends TransformStream {
  constructor() {
    const encoder = new TextEncoder();
    super({ transform: (chunk, controller) => controller.enqueue(encoder.encode(`${chunk}`)) });
  }

  get encoding() {
    return 'utf-8';
  }
}

class TextDecoderStream extends TransformStream {
  constructor(label = 'utf-8', options = {}) {
    const decoder = new TextDecoder(label, options);
    super({
      transform: (chunk, controller) => {
        const text = decoder.decode(chunk, { stream: true });
        if (text !== '') controller.enqueue(text);
      },
      flush: (controller) => {
        const text = decoder.decode();
        if (text !== '') controller.enqueue(text);
      },
    });
  }
}

module.exports = {
  WritableStream,
  WritableStreamDefaultWriter,
  WritableStreamDefaultController,
  TransformStream,
  TransformStreamDefaultController,
  TextEncoderStream,
  TextDecoderStream,
  pipeTo,
};
