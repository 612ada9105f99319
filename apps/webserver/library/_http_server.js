// SPDX-License-Identifier: BSL-1.0
// http.Server.
//
// Natives call the request listener directly, without an event: `setHandler`. So this file keeps natives informed of the listeners. With
// one listener of 'request' they call that function, with several a function that emits the event. Time-outs and limits are natives' too;
// their properties are passed on.
'use strict';

const EventEmitter = require('events');
const { withCode, argumentType, checkFunction, checkInteger } = require('_errors');
const nextTick = require('_ticks');
const binding = internalBinding('http');

// Node's defaults. Natives have the same.
const defaults = {
  keepAliveTimeout: 5000,
  requestTimeout: 300000,
  headersTimeout: 60000,
  timeout: 0,
  maxHeaderSize: 16384,
  maxRequestsPerSocket: 0,
  maxHeadersCount: null,
  maxConnections: undefined,
};

// Listeners of these events change what natives do.
const significant = new Set(['request', 'checkContinue', 'clientError']);

function Server(options, listener) {
  if (!(this instanceof Server)) return new Server(options, listener);
  if (typeof options === 'function') {
    listener = options;
    options = {};
  } else if (options !== undefined && options !== null && typeof options !== 'object') {
    throw argumentType('options', 'object', options);
  }
  options = options ?? {};
  EventEmitter.call(this);
  Object.defineProperty(this, '_options', { value: { ...defaults }, enumerable: false });
  for (const name of Object.keys(defaults)) {
    if (options[name] === undefined) continue;
    checkInteger(options[name], name, 0);
    this._options[name] = options[name];
  }
  if (options.requestTimeout !== undefined && options.headersTimeout === undefined && options.requestTimeout > 0) {
    this._options.headersTimeout = Math.min(defaults.headersTimeout, options.requestTimeout);
  }
  this.listening = false;
  this._started = false;
  this._address = null;
  this.httpAllowHalfOpen = false;
  if (listener) {
    checkFunction(listener, 'listener');
    this.on('request', listener);
  }
}
Object.setPrototypeOf(Server.prototype, EventEmitter.prototype);
Object.setPrototypeOf(Server, EventEmitter);

for (const name of Object.keys(defaults)) {
  Object.defineProperty(Server.prototype, name, {
    configurable: true,
    enumerable: true,
    get() {
      return this._options[name];
    },
    set(value) {
      this._options[name] = value;
      passOptions(this);
    },
  });
}

function passOptions(server) {
  if (!server._started) return;
  binding.setOptions(server, server._options);
  binding.setClientError(server, server.listenerCount('clientError') > 0);
}

// --- Listeners ---

function passHandler(server) {
  if (server._started) binding.setHandler(server, handlerOf(server));
}

function handlerOf(server) {
  if (server.listenerCount('checkContinue') > 0) return continueHandler;
  const listeners = server.rawListeners('request');
  return listeners.length === 1 ? listeners[0] : emitRequest;
}

function emitRequest(request, response) {
  this.emit('request', request, response);
}

// Natives refuse other expectations with 417 by themselves.
function continueHandler(request, response) {
  if (response._expectsContinue) {
    response._takeContinue();
    this.emit('checkContinue', request, response);
  } else this.emit('request', request, response);
}

for (const name of ['on', 'prependListener', 'removeListener', 'removeAllListeners']) {
  const original = EventEmitter.prototype[name];
  Server.prototype[name] = function (...args) {
    const result = original.apply(this, args);
    if (args.length === 0 || significant.has(args[0])) {
      passHandler(this);
      passOptions(this);
    }
    return result;
  };
}
Server.prototype.addListener = Server.prototype.on;
Server.prototype.off = Server.prototype.removeListener;

/// Called by natives for a request that they refuse, if 'clientError' has listeners. Returns the bytes to answer, as a string of characters
/// up to 255, or undefined for the usual answer. The listener MUST answer before it returns.
Server.prototype._clientError = function _clientError(code, text) {
  const socket = new (require('_http_socket').RefusedSocket)();
  this.emit('clientError', withCode(Error, code, text), socket);
  return socket.answer;
};

// --- Listening ---

function parsePort(value) {
  const port = typeof value === 'string' && value.trim() !== '' ? Number(value) : value;
  if (!Number.isInteger(port) || port < 0 || port > 65535) {
    const { describe } = require('_errors');
    throw withCode(RangeError, 'ERR_SOCKET_BAD_PORT', `options.port should be >= 0 and < 65536. Received ${describe(value)}.`);
  }
  return port;
}

/// listen([port[, host[, backlog]]][, callback]) or listen({port, host, backlog}[, callback]).
Server.prototype.listen = function listen(...args) {
  const callback = typeof args[args.length - 1] === 'function' ? args.pop() : undefined;
  if (this._started) throw withCode(Error, 'ERR_SERVER_ALREADY_LISTEN', 'Listen method has been called more than once without closing.');
  let options = {};
  const [first] = args;
  if (first !== null && typeof first === 'object') {
    options = first;
    if (options.port === undefined || options.port === null) {
      throw withCode(
        TypeError,
        'ERR_INVALID_ARG_VALUE',
        'The argument \'options\' must have the property "port": only TCP ports are served',
      );
    }
  } else if (typeof first === 'string' && !/^\s*\d+\s*$/.test(first)) {
    throw withCode(TypeError, 'ERR_INVALID_ARG_VALUE', `The argument 'port' is invalid: only TCP ports are served. Received '${first}'`);
  } else {
    options.port = first ?? 0;
    if (typeof args[1] === 'string') options.host = args[1];
    const backlog = args.find((value, index) => index > 0 && typeof value === 'number');
    if (backlog !== undefined) options.backlog = backlog;
  }
  const port = parsePort(options.port);
  if (callback) this.once('listening', callback);
  this._started = true;
  this._address = { address: options.host ?? '0.0.0.0', family: 'IPv4', port };
  try {
    passHandler(this);
    passOptions(this);
    binding.listen(this, port);
  } catch (error) {
    this._started = false;
    nextTick(() => this.emit('error', Object.assign(error, { syscall: 'listen', address: options.host, port })));
  }
  if (options.signal) {
    if (options.signal.aborted) nextTick(() => this.close());
    else options.signal.addEventListener('abort', () => this.close(), { once: true });
  }
  return this;
};

/// Called by natives in a later event, with a code such as 'EADDRINUSE' if the port is not open.
Server.prototype._listening = function _listening(error) {
  if (error) {
    const { address, port } = this._address ?? {};
    this._started = false;
    this._address = null;
    const failure = withCode(Error, error, `listen ${error}: ${address}:${port}`);
    this.emit('error', Object.assign(failure, { syscall: 'listen', address, port }));
    return;
  }
  if (!this._started) return;
  this.listening = true;
  this.emit('listening');
};

Server.prototype.address = function address() {
  if (!this.listening) return null;
  return this._address;
};

Server.prototype.close = function close(callback) {
  const error = this._started ? undefined : withCode(Error, 'ERR_SERVER_NOT_RUNNING', 'Server is not running.');
  if (typeof callback === 'function') {
    if (error) this.once('close', () => callback(error));
    else this.once('close', callback);
  }
  if (error) {
    nextTick(() => this.emit('close'));
    return this;
  }
  this._started = false;
  this.listening = false;
  binding.close(this);
  return this;
};

/// Called by natives when the last connection has ended.
Server.prototype._closed = function _closed() {
  this.emit('close');
};

Server.prototype.closeAllConnections = function closeAllConnections() {
  binding.closeConnections(this, true);
};

Server.prototype.closeIdleConnections = function closeIdleConnections() {
  binding.closeConnections(this, false);
};

Server.prototype.getConnections = function getConnections(callback) {
  nextTick(callback, null, binding.connections(this));
  return this;
};

Server.prototype.setTimeout = function (delay_ms, callback) {
  this.timeout = delay_ms;
  if (callback) this.on('timeout', callback);
  return this;
};

Server.prototype.ref = function ref() {
  return this;
};
Server.prototype.unref = Server.prototype.ref;

if (Symbol.asyncDispose) {
  Server.prototype[Symbol.asyncDispose] = function () {
    return new Promise((resolve, reject) => this.close((error) => (error ? reject(error) : resolve())));
  };
}

module.exports = { Server };
