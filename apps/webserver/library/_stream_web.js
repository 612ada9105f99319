// SPDX-License-Identifier: BSL-1.0
// Bridges between Node's streams and the web's.
'use strict';

const { AbortError } = require('_errors');
const web = require('_web_streams');

/// A ReadableStream that pulls from a Readable. Cancelling it destroys the source.
function readableToWeb(source, options) {
  const { finished } = require('_stream_utilities');
  source.readableLength;
  const objects = source.readableObjectMode;
  if (source.destroyed || source.readable === false) {
    const empty = new web.ReadableStream();
    empty.cancel();
    return empty;
  }
  let controller;
  let over = false;
  const onData = (chunk) => {
    if (over) return;
    // A Buffer of the source is passed on as plain bytes.
    if (!objects && typeof chunk !== 'string') chunk = new Uint8Array(chunk.buffer, chunk.byteOffset, chunk.byteLength);
    controller.enqueue(chunk);
    if (controller.desiredSize <= 0) source.pause();
  };
  const cleanup = finished(source, { writable: false }, (error) => {
    if (over) return;
    over = true;
    source.removeListener('data', onData);
    source.on('error', () => {});
    if (error) controller.error(error.code === 'ERR_STREAM_PREMATURE_CLOSE' ? new AbortError(undefined, { cause: error }) : error);
    else controller.close();
  });
  const strategy = options?.strategy ?? { highWaterMark: objects ? 16 : 16384, size: objects ? undefined : (chunk) => chunk.length };
  return new web.ReadableStream(
    {
      start(made) {
        controller = made;
        source.pause();
        source.on('data', onData);
      },
      pull() {
        source.resume();
      },
      cancel(reason) {
        over = true;
        cleanup();
        source.on('error', () => {});
        source.destroy(reason instanceof Error ? reason : undefined);
      },
    },
    strategy,
  );
}

function readableFromWeb(stream, options = {}) {
  const Readable = require('_stream_readable');
  const reader = stream.getReader();
  let over = false;
  return new Readable({
    ...options,
    read() {
      reader.read().then(
        ({ value, done }) => {
          over = over || done;
          this.push(done ? null : value);
        },
        (error) => {
          over = true;
          this.destroy(error);
        },
      );
    },
    destroy(error, callback) {
      if (over) {
        callback(error);
        return;
      }
      over = true;
      reader.cancel(error).then(
        () => callback(error),
        (failure) => callback(error ?? failure),
      );
    },
  });
}

function writableToWeb(target) {
  return new web.WritableStream({
    write: (chunk) => new Promise((resolve, reject) => target.write(chunk, (error) => (error ? reject(error) : resolve()))),
    close: () => new Promise((resolve, reject) => target.end((error) => (error ? reject(error) : resolve()))),
    abort: (reason) => {
      target.on('error', () => {});
      target.destroy(reason instanceof Error ? reason : new AbortError());
    },
  });
}

function writableFromWeb(stream, options = {}) {
  const Writable = require('_stream_writable');
  const writer = stream.getWriter();
  const settle = (promise, callback) =>
    promise.then(
      () => callback(),
      (error) => callback(error),
    );
  return new Writable({
    ...options,
    write: (chunk, encoding, callback) =>
      settle(
        writer.ready.then(() => writer.write(chunk)),
        callback,
      ),
    final: (callback) => settle(writer.close(), callback),
    destroy: (error, callback) => {
      if (!error) {
        callback(null);
        return;
      }
      settle(writer.abort(error), () => callback(error));
    },
  });
}

/// stream.finished for a web stream.
function finishedWeb(stream, callback) {
  const handle = stream.getReader ? stream.getReader() : stream.getWriter();
  handle.closed.then(
    () => callback(),
    (error) => callback(error),
  );
  handle.releaseLock();
  return () => {};
}

module.exports = { readableToWeb, readableFromWeb, writableToWeb, writableFromWeb, finishedWeb };
