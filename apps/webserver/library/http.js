// SPDX-License-Identifier: BSL-1.0
// The module `http`: a server. There is no client.
//
// `request`, `get` and connections of an Agent throw ERR_METHOD_NOT_IMPLEMENTED. An Agent can be made, because libraries make one when they
// are loaded.
'use strict';

const EventEmitter = require('events');
const { IncomingMessage, wrapNativeDestroy } = require('_http_incoming');
const { OutgoingMessage, ServerResponse } = require('_http_outgoing');
const { Server } = require('_http_server');
const { withCode, notImplemented, checkInteger } = require('_errors');
const { STATUS_CODES, METHODS } = require('_http_names');

const binding = internalBinding('http');
binding.install({ IncomingMessage, ServerResponse });
wrapNativeDestroy();

const token = /^[\^_`a-zA-Z\-0-9!#$%&'*+.|~]+$/;
const invalidContent = /[^\t\x20-\x7e\x80-\xff]/;

function validateHeaderName(name, label = 'Header name') {
  if (typeof name !== 'string' || !token.test(name)) {
    throw withCode(TypeError, 'ERR_INVALID_HTTP_TOKEN', `${label || 'Header name'} must be a valid HTTP token ["${name}"]`);
  }
}

function validateHeaderValue(name, value) {
  if (value === undefined) throw withCode(TypeError, 'ERR_HTTP_INVALID_HEADER_VALUE', `Invalid value "${value}" for header "${name}"`);
  if (invalidContent.test(value)) throw withCode(TypeError, 'ERR_INVALID_CHAR', `Invalid character in header content ["${name}"]`);
}

class Agent extends EventEmitter {
  constructor(options) {
    super();
    this.options = { ...options };
    this.requests = {};
    this.sockets = {};
    this.freeSockets = {};
    this.maxSockets = this.options.maxSockets ?? Infinity;
    this.maxFreeSockets = this.options.maxFreeSockets ?? 256;
    this.keepAlive = !!this.options.keepAlive;
  }

  createConnection() {
    throw notImplemented('http.Agent.createConnection');
  }

  addRequest() {
    throw notImplemented('http.Agent.addRequest');
  }

  destroy() {}
}

class ClientRequest extends OutgoingMessage {
  constructor() {
    throw notImplemented('http.ClientRequest');
  }
}

let globalAgent;

module.exports = {
  METHODS,
  STATUS_CODES,
  Agent,
  ClientRequest,
  IncomingMessage,
  OutgoingMessage,
  Server,
  ServerResponse,
  createServer: (options, listener) => new Server(options, listener),
  validateHeaderName,
  validateHeaderValue,
  get() {
    throw notImplemented('http.get');
  },
  request() {
    throw notImplemented('http.request');
  },
  setMaxIdleHTTPParsers: (count) => checkInteger(count, 'max', 1),
  maxHeaderSize: 16384,
  get globalAgent() {
    return (globalAgent ??= new Agent({ keepAlive: true }));
  },
  set globalAgent(agent) {
    globalAgent = agent;
  },
};
