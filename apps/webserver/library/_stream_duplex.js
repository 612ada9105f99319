// SPDX-License-Identifier: BSL-1.0
// Duplex: a Readable and a Writable in one object. Transform: a Duplex that computes its output from its input.
'use strict';

const Readable = require('_stream_readable');
const Writable = require('_stream_writable');
const { Stream } = require('_stream_legacy');
const { withCode } = require('_errors');
const destruction = require('_stream_destroy');

function Duplex(options) {
  if (!(this instanceof Duplex)) return new Duplex(options);
  this._readableState = Readable.makeState(this, options, true);
  this._writableState = Writable.makeState(this, options, true);
  this.allowHalfOpen = true;
  if (options) {
    this.allowHalfOpen = options.allowHalfOpen !== false;
    if (options.readable === false) {
      this._readableState.readable = false;
      this._readableState.ended = true;
      this._readableState.endEmitted = true;
    }
    if (options.writable === false) {
      const state = this._writableState;
      state.writable = false;
      state.ending = state.ended = state.finished = true;
    }
    if (typeof options.read === 'function') this._read = options.read;
    Writable.adoptOptions(this, options);
  }
  Stream.call(this, options);
  destruction.construct(this, () => {
    if (this._readableState.needReadable) this.read(0);
    Writable.resumeWriting(this);
  });
}
Object.setPrototypeOf(Duplex.prototype, Readable.prototype);
Object.setPrototypeOf(Duplex, Readable);
for (const [name, descriptor] of Object.entries(Writable.descriptors)) {
  if (!['pipe', 'errored', 'closed', 'destroyed', '_destroy'].includes(name)) Object.defineProperty(Duplex.prototype, name, descriptor);
}
Object.defineProperty(Duplex.prototype, 'destroyed', {
  get() {
    return this._readableState.destroyed && this._writableState.destroyed;
  },
  set(value) {
    this._readableState.destroyed = value;
    this._writableState.destroyed = value;
  },
  configurable: true,
});

Duplex.from = function from(body) {
  if (body instanceof Duplex) return body;
  if (body && body.readable && body.writable && typeof body.readable === 'object') return pair(body.readable, body.writable);
  const source = body instanceof Readable ? body : Readable.from(body);
  return pair(source, undefined);
};
Duplex.fromWeb = (streams, options) => {
  const { readableFromWeb, writableFromWeb } = require('_stream_web');
  return pair(readableFromWeb(streams.readable, options), writableFromWeb(streams.writable, options));
};
Duplex.toWeb = (stream) => {
  const { readableToWeb, writableToWeb } = require('_stream_web');
  return { readable: readableToWeb(stream), writable: writableToWeb(stream) };
};

// One Duplex over a separate source and sink.
function pair(source, sink) {
  const duplex = new Duplex({
    objectMode: true,
    readable: !!source,
    writable: !!sink,
    read() {
      source.resume();
    },
    write(chunk, encoding, callback) {
      sink.write(chunk, encoding, callback);
    },
    final(callback) {
      sink.end(callback);
    },
    destroy(error, callback) {
      if (source) source.destroy(error);
      if (sink) sink.destroy(error);
      callback(error);
    },
  });
  if (source) {
    source.on('data', (chunk) => {
      if (!duplex.push(chunk)) source.pause();
    });
    source.on('end', () => duplex.push(null));
    source.on('error', (error) => duplex.destroy(error));
    source.pause();
  }
  if (sink) sink.on('error', (error) => duplex.destroy(error));
  return duplex;
}

function Transform(options) {
  if (!(this instanceof Transform)) return new Transform(options);
  // The writable side must not read ahead on behalf of a reader that asked for 0.
  Duplex.call(this, options);
  this._readableState.sync = false;
  this._waiting = null; // the callback of a write that waits for room on the readable side
  if (options) {
    if (typeof options.transform === 'function') this._transform = options.transform;
    if (typeof options.flush === 'function') this._flush = options.flush;
  }
  this.on('prefinish', function () {
    if (this._final !== Transform.prototype._final) Transform.prototype._final.call(this);
  });
}
Object.setPrototypeOf(Transform.prototype, Duplex.prototype);
Object.setPrototypeOf(Transform, Duplex);

Transform.prototype._transform = function _transform() {
  throw withCode(Error, 'ERR_METHOD_NOT_IMPLEMENTED', 'The _transform() method is not implemented');
};

Transform.prototype._final = function _final(callback) {
  const end = (error, data) => {
    if (error) {
      if (callback) callback(error);
      else this.destroy(error);
      return;
    }
    if (data != null) this.push(data);
    this.push(null);
    if (callback) callback();
  };
  if (typeof this._flush === 'function' && !this.destroyed) this._flush(end);
  else end();
};

Transform.prototype._write = function _write(chunk, encoding, callback) {
  const readable = this._readableState;
  const writable = this._writableState;
  const before = readable.length;
  this._transform(chunk, encoding, (error, data) => {
    if (error) {
      callback(error);
      return;
    }
    if (data != null) this.push(data);
    if (writable.ended || before === readable.length || readable.length < readable.highWaterMark) callback();
    else this._waiting = callback;
  });
};

Transform.prototype._read = function _read() {
  const waiting = this._waiting;
  if (!waiting) return;
  this._waiting = null;
  waiting();
};

function PassThrough(options) {
  if (!(this instanceof PassThrough)) return new PassThrough(options);
  Transform.call(this, options);
}
Object.setPrototypeOf(PassThrough.prototype, Transform.prototype);
Object.setPrototypeOf(PassThrough, Transform);
PassThrough.prototype._transform = function _transform(chunk, encoding, callback) {
  callback(null, chunk);
};

module.exports = { Duplex, Transform, PassThrough };
