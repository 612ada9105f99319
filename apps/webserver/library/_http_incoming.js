// SPDX-License-Identifier: BSL-1.0
// IncomingMessage: a request as a Readable.
//
// Natives make the object, without a constructor, and answer `method`, `url`, `headers` and so on. Most programs read no body, so the
// stream's state is made at its first use. The body begins to arrive when `_read` asks for it; a full buffer pauses the client (back-
// pressure).
'use strict';

const Readable = require('_stream_readable');
const { Buffer } = require('buffer');
const { withCode } = require('_errors');
const nextTick = require('_ticks');

function IncomingMessage(socket) {
  Readable.call(this, { highWaterMark: socket && socket.readableHighWaterMark });
}
Object.setPrototypeOf(IncomingMessage.prototype, Readable.prototype);
Object.setPrototypeOf(IncomingMessage, Readable);

const { prototype } = IncomingMessage;
prototype.aborted = false;
prototype.statusCode = null;
prototype.statusMessage = null;
prototype.upgrade = false;
prototype._bodyStarted = false;
prototype._bodyPaused = false;
prototype._dumped = false;
prototype._socket = undefined;

prototype._read = function _read() {
  if (!this._bodyStarted) {
    this._bodyStarted = true;
    this._startBody();
  } else if (this._bodyPaused) {
    this._bodyPaused = false;
    this._resumeBody();
  }
};

/// Called by natives with each piece of the body, and with null at its end.
prototype._onBody = function _onBody(bytes) {
  if (this._dumped) return;
  if (bytes === null) {
    this.push(null);
    return;
  }
  const more = this.push(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength));
  // Without room the client waits. A read that asks for more resumes it.
  if (!more && !this._bodyPaused) {
    this._bodyPaused = true;
    this._pauseBody();
  }
};

/// Natives report here that the body will not be complete. `_onClose` of the response follows, and calls `_abort`.
prototype._onAborted = function _onAborted() {};

/// Called when the connection ended before the body, or the response, was complete.
prototype._abort = function _abort() {
  if ((this._events === undefined && this._readableState === undefined) || this.destroyed) return;
  this.destroy(withCode(Error, 'ECONNRESET', 'aborted'));
};

/// Called when the response is complete. Natives discard what is left of the body; here 'end' and 'close' are emitted if a program listens.
prototype._dump = function _dump() {
  if ((this._events === undefined && this._readableState === undefined) || this._dumped || this.destroyed) return;
  this._dumped = true;
  this._bodyStarted = true;
  if (this.readableEnded) return;
  this.push(null);
  this.resume();
};

function report(stream, error, callback) {
  // An abort that no listener waits for is not an uncaught error.
  if (stream.listenerCount('error') === 0) callback();
  else callback(error);
}

/// Called once by http.js, after natives have defined `_destroy`, which resets the connection and takes no arguments, on the prototype.
function wrapNativeDestroy() {
  prototype._resetConnection = prototype._destroy;
  prototype._destroy = function _destroy(error, callback) {
    if (!this._dumped && (!this.readableEnded || !this.complete)) {
      this.aborted = true;
      this.emit('aborted');
      this._resetConnection();
    }
    nextTick(report, this, error, callback);
  };
}

// These events may come with the end of the response, so natives must report that end.
const ofResponse = new Set(['close', 'aborted', 'error']);
const { on, prependListener } = Readable.prototype;
prototype.on = function (type, listener) {
  if (ofResponse.has(type)) this._observe();
  return on.call(this, type, listener);
};
prototype.addListener = prototype.on;
prototype.prependListener = function (type, listener) {
  if (ofResponse.has(type)) this._observe();
  return prependListener.call(this, type, listener);
};
prototype._observe = () => {}; // natives replace it

prototype.setTimeout = function (delay_ms, callback) {
  if (callback) this.on('timeout', callback);
  this.socket.setTimeout(delay_ms);
  return this;
};

for (const name of ['socket', 'connection']) {
  Object.defineProperty(prototype, name, {
    configurable: true,
    get() {
      return this._socket ?? (this._socket = new (require('_http_socket').Socket)(this));
    },
    set(value) {
      this._socket = value;
    },
  });
}
Object.defineProperty(prototype, 'signal', {
  configurable: true,
  get() {
    const controller = new AbortController();
    this.once('aborted', () => controller.abort());
    Object.defineProperty(this, 'signal', { value: controller.signal, configurable: true, writable: true });
    return controller.signal;
  },
});

module.exports = { IncomingMessage, wrapNativeDestroy };
