// SPDX-License-Identifier: BSL-1.0
// OutgoingMessage and ServerResponse: the part of a response that natives do not do.
//
// `writeHead` and `end(text)` are natives, so the usual response runs no code of this file. Here are `write`, callbacks, events and time-
// outs. Natives report 'finish', 'drain' and 'close' only after `_observe()`, which the first listener calls. Writes of one event are
// gathered by natives, so cork and uncork only count.
'use strict';

const { Stream } = require('_stream_legacy');
const EventEmitter = require('events');
const { Buffer } = require('buffer');
const { withCode, argumentType } = require('_errors');
const { normalize } = require('_encoding');
const nextTick = require('_ticks');

function OutgoingMessage(options) {
  Stream.call(this, options);
}
Object.setPrototypeOf(OutgoingMessage.prototype, Stream.prototype);
Object.setPrototypeOf(OutgoingMessage, Stream);

function ServerResponse(request, options) {
  OutgoingMessage.call(this, options);
}
Object.setPrototypeOf(ServerResponse.prototype, OutgoingMessage.prototype);
Object.setPrototypeOf(ServerResponse, OutgoingMessage);

const { prototype } = OutgoingMessage;
prototype.writable = true;
prototype._destroyed = false;
prototype.errored = null;
prototype.writableCorked = 0;
prototype.writableObjectMode = false;
prototype.writableHighWaterMark = 65536;
prototype.writableNeedDrain = false;
prototype.closed = false;
prototype.strictContentLength = false;
prototype._isServerResponse = true;

// --- Events ---

const observed = new Set(['finish', 'close', 'drain', 'error', 'prefinish', 'timeout']);

for (const name of ['on', 'prependListener']) {
  const original = EventEmitter.prototype[name];
  prototype[name] = function (type, listener) {
    if (observed.has(type)) this._observe();
    return original.call(this, type, listener);
  };
}
prototype.addListener = prototype.on;
prototype._observe = () => {}; // natives replace it on ServerResponse

prototype._onFinish = function _onFinish() {
  this.emit('prefinish');
  this.emit('finish');
  const request = this.req;
  if (request) request._dump();
  nextTick(emitClose, this);
};

prototype._onDrain = function _onDrain() {
  if (this.writableNeedDrain) {
    this.writableNeedDrain = false;
    this.emit('drain');
  }
};

prototype._onClose = function _onClose(aborted) {
  const request = this.req;
  if (aborted) this._destroyed = true;
  else if (request) request._dump();
  // In a later tick, because natives may call within `destroy`. As in Node, 'aborted' of the request comes first, its 'error' last.
  nextTick(() => {
    if (aborted && request) request._abort();
    emitClose(this);
  });
};

function emitClose(response) {
  if (response.closed) return;
  response.closed = true;
  response._destroyed = true;
  response.emit('close');
}

// --- Writing ---

function checkChunk(chunk) {
  if (typeof chunk === 'string' || chunk instanceof Uint8Array) return chunk;
  if (chunk === null) throw withCode(TypeError, 'ERR_STREAM_NULL_VALUES', 'May not write null values to stream');
  throw argumentType('chunk', ['string', 'Buffer', 'Uint8Array'], chunk);
}

// Natives take bytes, and strings as UTF-8. Other encodings are rare.
function encode(chunk, encoding) {
  if (typeof chunk !== 'string' || encoding === undefined || encoding === null || encoding === 'buffer') return chunk;
  const name = normalize(encoding);
  if (name === undefined) throw withCode(TypeError, 'ERR_UNKNOWN_ENCODING', `Unknown encoding: ${encoding}`);
  return name === 'utf8' ? chunk : Buffer.from(chunk, name);
}

function refuse(response, error, callback) {
  if (typeof callback === 'function') nextTick(callback, error);
  nextTick(() => {
    if (!response.destroyed) {
      response.errored ??= error;
      // As in Node, a late write is reported only to programs that listen; others would lose the whole server by it.
      if (response.listenerCount('error') > 0) response.emit('error', error);
    }
  });
  return false;
}

// Middleware replaces `writeHead` on the object, to add headers at the last moment.
function sendReplacedHead(response) {
  if (!response.headersSent && Object.hasOwn(response, 'writeHead')) response._implicitHeader();
}

prototype._implicitHeader = function _implicitHeader() {
  this.writeHead(this.statusCode);
};

prototype.write = function write(chunk, encoding, callback) {
  if (typeof encoding === 'function') {
    callback = encoding;
    encoding = undefined;
  }
  chunk = encode(checkChunk(chunk), encoding);
  if (this.writableEnded) return refuse(this, withCode(Error, 'ERR_STREAM_WRITE_AFTER_END', 'write after end'), callback);
  if (this.destroyed)
    return refuse(this, withCode(Error, 'ERR_STREAM_DESTROYED', 'Cannot call write after a stream was destroyed'), callback);
  sendReplacedHead(this);
  const below = this._write(chunk);
  if (typeof callback === 'function') nextTick(callback);
  if (!below) {
    this.writableNeedDrain = true;
    this._observe();
  }
  return below;
};

/// Natives call it for each `end` that is not simply a string or bytes.
prototype._endSlow = function _endSlow(chunk, encoding, callback) {
  if (typeof chunk === 'function') {
    callback = chunk;
    chunk = undefined;
    encoding = undefined;
  } else if (typeof encoding === 'function') {
    callback = encoding;
    encoding = undefined;
  }
  if (chunk === null) chunk = undefined;
  if (chunk !== undefined) chunk = encode(checkChunk(chunk), encoding);
  if (this.writableEnded) {
    if (typeof callback !== 'function' && chunk === undefined) return this;
    const error =
      chunk !== undefined
        ? withCode(Error, 'ERR_STREAM_WRITE_AFTER_END', 'write after end')
        : withCode(Error, 'ERR_STREAM_ALREADY_FINISHED', 'Cannot call end after a stream was finished');
    if (chunk === undefined && !this.writableFinished) this.once('finish', callback);
    else refuse(this, error, callback);
    return this;
  }
  if (typeof callback === 'function') this.once('finish', callback);
  if (this.destroyed) return this;
  sendReplacedHead(this);
  this._end(chunk);
  return this;
};

prototype.cork = function cork() {
  this.writableCorked++;
};

prototype.uncork = function uncork() {
  if (this.writableCorked > 0) this.writableCorked--;
};

prototype.destroy = function destroy(error) {
  if (this.destroyed) return this;
  this._destroyed = true;
  this.errored = error ?? null;
  this._destroy();
  nextTick(() => {
    if (error && this.listenerCount('error') > 0) this.emit('error', error);
    emitClose(this);
  });
  return this;
};

prototype.pipe = function pipe() {
  this.emit('error', withCode(Error, 'ERR_STREAM_CANNOT_PIPE', 'Cannot pipe, not readable'));
};

// --- Headers and the rest of Node's interface ---

prototype.setHeaders = function setHeaders(headers) {
  if (this.headersSent) throw withCode(Error, 'ERR_HTTP_HEADERS_SENT', 'Cannot set headers after they are sent to the client');
  if (!headers || Array.isArray(headers) || typeof headers.keys !== 'function' || typeof headers.get !== 'function') {
    throw argumentType('headers', ['Headers', 'Map'], headers);
  }
  const cookies = [];
  for (const [name, value] of headers) {
    if (String(name).toLowerCase() === 'set-cookie') cookies.push(...(Array.isArray(value) ? value : [value]));
    else this.setHeader(name, value);
  }
  if (cookies.length > 0) this.setHeader('set-cookie', cookies);
  return this;
};

prototype.setTimeout = function (delay_ms, callback) {
  if (callback) this.on('timeout', callback);
  this.socket?.setTimeout(delay_ms);
  return this;
};

prototype.writeContinue = function writeContinue(callback) {
  this._writeContinue();
  if (typeof callback === 'function') nextTick(callback);
};

prototype.writeProcessing = function writeProcessing(callback) {
  this._inform(102);
  if (typeof callback === 'function') nextTick(callback);
};

/// Sends a 103 response with `hints`, an object of header fields whose `link` is a string or an array.
prototype.writeEarlyHints = function writeEarlyHints(hints, callback) {
  if (hints === null || typeof hints !== 'object') throw argumentType('hints', 'Object', hints);
  const fields = { ...hints };
  if (Array.isArray(fields.link)) fields.link = fields.link.join(', ');
  if (fields.link !== undefined && fields.link !== '') this._inform(103, fields);
  if (typeof callback === 'function') nextTick(callback);
};

prototype.assignSocket = function assignSocket() {};
prototype.detachSocket = function detachSocket() {};

const getters = {
  req() {
    return this._request;
  },
  destroyed() {
    return this._destroyed || this._closed === true;
  },
  writableLength() {
    return this._bytesInFlight;
  },
  finished() {
    return !!this.writableEnded;
  },
  socket() {
    const request = this._request;
    if (!request || this.closed) return null;
    const { socket } = request;
    socket._response ??= this;
    return socket;
  },
  connection() {
    return this.socket;
  },
  writableAborted() {
    return this.destroyed && !this.writableFinished;
  },
  _header() {
    return this.headersSent ? `HTTP/1.1 ${this.statusCode} ${this.statusMessage ?? ''}\r\n` : null;
  },
};
for (const name of Object.keys(getters)) {
  Object.defineProperty(prototype, name, {
    configurable: true,
    get: getters[name],
    set(value) {
      Object.defineProperty(this, name, { value, writable: true, configurable: true, enumerable: true });
    },
  });
}
prototype.chunkedEncoding = false;
prototype.useChunkedEncodingByDefault = true;

module.exports = { OutgoingMessage, ServerResponse };
