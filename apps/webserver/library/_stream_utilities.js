// SPDX-License-Identifier: BSL-1.0
// finished, pipeline, addAbortSignal: what programs do with whole streams.
//
// `finished` reports the end of a stream once, good or bad. `pipeline` joins streams, generators and iterables, and destroys all of them if
// one fails. Streams are recognised by their properties, because the server's responses have no Writable state.
'use strict';

const { withCode, argumentType, argumentValue, checkFunction, AbortError } = require('_errors');
const nextTick = require('_ticks');

function isStream(value) {
  return (
    !!value &&
    typeof value === 'object' &&
    typeof value.on === 'function' &&
    (typeof value.pipe === 'function' || typeof value.write === 'function')
  );
}

function hasReadableSide(stream) {
  return (
    !!stream._readableState && (stream._readableState.readable !== false || !stream._writableState) && typeof stream.read === 'function'
  );
}

function hasWritableSide(stream) {
  return typeof stream.write === 'function' && (!stream._writableState || stream._writableState.writable !== false);
}

function isIterable(value) {
  return !!value && (typeof value[Symbol.asyncIterator] === 'function' || typeof value[Symbol.iterator] === 'function');
}

// Touches the property whose getter makes the state of objects that natives created.
function ensureState(stream) {
  if (typeof stream.read === 'function') stream.readableLength;
}

// True if 'close' will come by itself after the end.
function closesByItself(stream) {
  if (stream._isServerResponse) return true;
  const state = stream._writableState || stream._readableState;
  return !!state && state.autoDestroy && state.emitClose && !state.closed;
}

function readSideOver(stream, strict) {
  const state = stream._readableState;
  if (!state) return false;
  return state.endEmitted || (!strict && state.ended && state.length === 0);
}

function writeSideOver(stream) {
  if (stream._writableState) return stream._writableState.finished;
  return stream.writableFinished === true;
}

/// Calls `callback(error)` once when the stream has ended, failed or closed too early. Returns a function that removes the listeners.
function finished(stream, options, callback) {
  if (typeof options === 'function') {
    callback = options;
    options = {};
  }
  options = options ?? {};
  checkFunction(callback, 'callback');
  if (stream && typeof stream.getReader === 'function') return require('_stream_web').finishedWeb(stream, callback);
  if (!isStream(stream)) throw argumentType('stream', ['ReadableStream', 'WritableStream', 'Stream'], stream);
  ensureState(stream);
  let called = false;
  const report = (...args) => {
    if (called) return;
    called = true;
    callback.apply(stream, args);
  };
  const readable = options.readable ?? hasReadableSide(stream);
  const writable = options.writable ?? hasWritableSide(stream);
  let waitsForClose = closesByItself(stream) && hasReadableSide(stream) === readable && hasWritableSide(stream) === writable;
  let readOver = readSideOver(stream, false);
  let writeOver = writeSideOver(stream);
  const states = [stream._readableState, stream._writableState].filter(Boolean);
  const errorOf = () => states.map((state) => state.errored).find(Boolean) ?? (states.length === 0 ? stream.errored : undefined);

  const onFinish = () => {
    writeOver = true;
    if (stream.destroyed) waitsForClose = false;
    if (waitsForClose && (!stream.writable || readable)) return;
    if (!readable || readOver) report();
  };
  const onEnd = () => {
    readOver = true;
    if (stream.destroyed) waitsForClose = false;
    if (waitsForClose && (!stream.readable || writable)) return;
    if (!writable || writeOver) report();
  };
  const onError = (error) => report(error);
  const onClose = () => {
    const error = errorOf();
    if (error) report(error);
    else if ((readable && !readOver && !readSideOver(stream, false)) || (writable && !writeOver && !writeSideOver(stream))) {
      report(withCode(Error, 'ERR_STREAM_PREMATURE_CLOSE', 'Premature close'));
    } else report();
  };
  stream.on('end', onEnd);
  stream.on('finish', onFinish);
  if (options.error !== false) stream.on('error', onError);
  stream.on('close', onClose);

  const closed = states.length > 0 ? states.some((state) => state.closed) : stream.closed === true;
  const failed = states.some((state) => state.errorEmitted);
  if (closed) nextTick(onClose);
  else if (failed) {
    if (!waitsForClose) nextTick(onClose);
  } else if (!readable && (!waitsForClose || stream.readable) && (writeOver || stream.writable === false)) nextTick(onClose);
  else if (!writable && (!waitsForClose || stream.writable) && (readOver || stream.readable === false)) nextTick(onClose);

  const cleanup = () => {
    callback = () => {};
    stream.removeListener('end', onEnd);
    stream.removeListener('finish', onFinish);
    stream.removeListener('error', onError);
    stream.removeListener('close', onClose);
  };
  if (options.signal && !closed) {
    const abort = () => {
      const end = callback;
      cleanup();
      end.call(stream, new AbortError(undefined, { cause: options.signal.reason }));
    };
    if (options.signal.aborted) nextTick(abort);
    else options.signal.addEventListener('abort', abort, { once: true });
  }
  return cleanup;
}

function addAbortSignal(signal, stream) {
  if (!signal || typeof signal !== 'object' || !('aborted' in signal)) throw argumentType('signal', 'AbortSignal', signal);
  const abort = () => stream.destroy(new AbortError(undefined, { cause: signal.reason }));
  if (signal.aborted) abort();
  else {
    signal.addEventListener('abort', abort, { once: true });
    finished(stream, () => signal.removeEventListener('abort', abort));
  }
  return stream;
}

// Writes each value of an iterable to a stream, with back-pressure.
async function pump(iterable, target, done, ends) {
  let failure = null;
  let wake = null;
  const resume = (error) => {
    if (error) failure = error;
    if (wake) {
      const call = wake;
      wake = null;
      call();
    }
  };
  const room = () =>
    new Promise((resolve, reject) => {
      if (failure) reject(failure);
      else wake = () => (failure ? reject(failure) : resolve());
    });
  target.on('drain', resume);
  const cleanup = finished(target, { readable: false }, resume);
  try {
    if (target.writableNeedDrain) await room();
    for await (const chunk of iterable) if (!target.write(chunk)) await room();
    if (ends) {
      target.end();
      await room();
    }
    done();
  } catch (error) {
    done(failure ?? error);
  } finally {
    cleanup();
    target.off('drain', resume);
  }
}

function join(source, target, done, ends) {
  let ended = false;
  target.on('close', () => {
    if (!ended) done(withCode(Error, 'ERR_STREAM_PREMATURE_CLOSE', 'Premature close'));
  });
  source.pipe(target, { end: false });
  if (ends) {
    const end = () => {
      ended = true;
      target.end();
    };
    if (readSideOver(source, true)) nextTick(end);
    else source.once('end', end);
  } else done();
  finished(source, { readable: true, writable: false }, (error) => {
    const state = source._readableState;
    if (error && error.code === 'ERR_STREAM_PREMATURE_CLOSE' && state && state.ended && !state.errored && !state.errorEmitted) {
      source.once('end', done).once('error', done);
    } else done(error);
  });
  return finished(target, { readable: false, writable: true }, done);
}

/// pipeline(source, ...steps, target, callback). Each of them is a stream, an iterable (source only) or a function of an async iterable.
function pipeline(...streams) {
  const callback = streams.pop();
  checkFunction(callback, 'streams[stream.length - 1]');
  let called = false;
  return runPipeline(streams, (...args) => {
    if (called) return;
    called = true;
    callback(...args);
  });
}

function runPipeline(streams, callback, options = {}) {
  if (streams.length === 1 && Array.isArray(streams[0])) [streams] = streams;
  if (streams.length < 2) throw withCode(TypeError, 'ERR_MISSING_ARGS', 'The "streams" argument must be specified');
  const { Duplex, PassThrough } = require('_stream_duplex');
  const controller = typeof AbortController === 'function' ? new AbortController() : { signal: undefined, abort() {} };
  const outer = options.signal;
  let failure;
  let value;
  let openEnds = 0;
  const destroyers = [];
  const cleanups = [];

  const settle = (error, last) => {
    if (error && (!failure || failure.code === 'ERR_STREAM_PREMATURE_CLOSE')) failure = error;
    if (!failure && !last) return;
    while (destroyers.length > 0) destroyers.shift()(failure);
    if (outer) outer.removeEventListener('abort', onAbort);
    controller.abort();
    if (last) {
      if (!failure) for (const cleanup of cleanups) cleanup();
      nextTick(callback, failure, value);
    }
  };
  const done = (error) => settle(error, --openEnds === 0);
  const onAbort = () => settle(new AbortError(undefined, { cause: outer.reason }), false);
  if (outer) {
    if (outer.aborted) nextTick(onAbort);
    else outer.addEventListener('abort', onAbort, { once: true });
  }

  const guard = (stream, reading, writing) => {
    let over = false;
    stream.on('close', () => (over = true));
    const cleanup = finished(stream, { readable: reading, writable: writing }, (error) => (over = !error));
    destroyers.push((error) => {
      if (over) return;
      over = true;
      stream.destroy(error || withCode(Error, 'ERR_STREAM_DESTROYED', 'Cannot call pipe after a stream was destroyed'));
    });
    const onError = (error) => {
      if (error && error.name !== 'AbortError' && error.code !== 'ERR_STREAM_PREMATURE_CLOSE') settle(error, false);
    };
    stream.on('error', onError);
    if (!reading) cleanups.push(() => (cleanup(), stream.removeListener('error', onError)));
  };

  let current;
  streams.forEach((step, index) => {
    const reading = index < streams.length - 1;
    const writing = index > 0;
    const ends = reading || options.end !== false;
    if (isStream(step)) {
      ensureState(step);
      if (ends) guard(step, reading, writing);
    }
    if (index === 0) {
      current = typeof step === 'function' ? step({ signal: controller.signal }) : step;
      if (!isIterable(current) && !isStream(current)) throw argumentType('source', ['Stream', 'Iterable', 'AsyncIterable'], current);
    } else if (typeof step === 'function') {
      const result = step(isStream(current) && !current[Symbol.asyncIterator] ? Duplex.from(current) : current, {
        signal: controller.signal,
      });
      if (reading) {
        if (!isIterable(result))
          throw withCode(
            TypeError,
            'ERR_INVALID_RETURN_VALUE',
            `Expected AsyncIterable to be returned from the "transform[${index - 1}]" function`,
          );
        current = result;
      } else {
        const output = new PassThrough({ objectMode: true });
        openEnds++;
        if (typeof result?.then === 'function') {
          result.then(
            (answer) => {
              value = answer;
              if (answer != null) output.write(answer);
              if (ends) output.end();
              nextTick(done);
            },
            (error) => {
              output.destroy(error);
              nextTick(done, error);
            },
          );
        } else if (isIterable(result)) pump(result, output, done, ends);
        else
          throw withCode(
            TypeError,
            'ERR_INVALID_RETURN_VALUE',
            'Expected AsyncIterable or Promise to be returned from the "destination" function',
          );
        guard(output, false, true);
        current = output;
      }
    } else if (isStream(step)) {
      if (isStream(current) && hasReadableSide(current)) {
        openEnds += 2;
        const cleanup = join(current, step, done, ends);
        if (!reading) cleanups.push(cleanup);
      } else if (isIterable(current)) {
        openEnds++;
        pump(current, step, done, ends);
      } else throw argumentValue('val', current);
      current = step;
    } else throw argumentType('destination', ['Stream', 'Function'], step);
  });
  return current;
}

const promises = {
  finished(stream, options) {
    return new Promise((resolve, reject) => {
      const cleanup = finished(stream, options ?? {}, (error) => {
        if (options && options.cleanup) cleanup();
        if (error) reject(error);
        else resolve();
      });
    });
  },
  pipeline(...streams) {
    return new Promise((resolve, reject) => {
      const last = streams[streams.length - 1];
      let options = {};
      if (last && typeof last === 'object' && !isStream(last) && !isIterable(last)) options = streams.pop();
      runPipeline(streams, (error, value) => (error ? reject(error) : resolve(value)), options);
    });
  },
};

module.exports = { finished, pipeline, addAbortSignal, promises, isStream };
