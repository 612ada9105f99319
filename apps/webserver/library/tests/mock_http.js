// SPDX-License-Identifier: BSL-1.0
// The natives of internalBinding('http'), in plain JavaScript, for tests of the library without sockets.
//
// `exchange(server, request)` plays one request: {method, url, headers, body: [pieces], abortAfter, stall}. It resolves with what the
// client would see: {status, reason, headers, body, aborted}. The natives follow apps/webserver's interface between HTTP and JavaScript.
'use strict';

(function (global) {
  const coded = (Base, code, message) => Object.assign(new Base(message), { code });
  const joinable = (name) => !['content-type', 'content-length', 'host', 'user-agent', 'authorization', 'from', 'etag'].includes(name);

  global.makeHttp = function makeHttp(bindings, timers) {
    const text = bindings.text;
    const later = (action) => timers.binding.setImmediate(action);
    const servers = new Map();
    let prototypes;
    const exchanges = new WeakMap();
    const of = (object) => exchanges.get(object);
    const toBytes = (chunk, encoding) => (typeof chunk === 'string' ? text.encode(chunk, encoding ?? 'utf8') : chunk);

    function flatHeaders(exchange) {
      const result = {};
      for (const [name, value] of exchange.requestHeaders) {
        const key = name.toLowerCase();
        if (key === 'set-cookie') (result[key] ??= []).push(value);
        else if (result[key] === undefined) result[key] = value;
        else if (joinable(key)) result[key] += `${key === 'cookie' ? '; ' : ', '}${value}`;
      }
      return result;
    }

    const requestGetters = {
      method: (exchange) => exchange.request.method ?? 'GET',
      url: (exchange) => exchange.request.url ?? '/',
      httpVersion: () => '1.1',
      httpVersionMajor: () => 1,
      httpVersionMinor: () => 1,
      headers: (exchange) => (exchange.headers ??= flatHeaders(exchange)),
      rawHeaders: (exchange) => exchange.requestHeaders.flat(),
      headersDistinct: (exchange) => {
        const result = {};
        for (const [name, value] of exchange.requestHeaders) (result[name.toLowerCase()] ??= []).push(value);
        return result;
      },
      trailers: () => ({}),
      rawTrailers: () => [],
      complete: (exchange) => exchange.bodyComplete,
      _hasBody: (exchange) => !!exchange.request.body,
    };
    const requestMethods = {
      _startBody() {
        const exchange = of(this);
        exchange.bodyWanted = true;
        if (exchange.bodyComplete) later(() => this._onBody(null));
        else later(() => feed(exchange));
      },
      _pauseBody() {
        of(this).paused = true;
      },
      _resumeBody() {
        const exchange = of(this);
        exchange.paused = false;
        later(() => feed(exchange));
      },
      _observe() {
        observe(of(this));
      },
      _peer: () => ({ remoteAddress: '127.0.0.1', remotePort: 40000, localAddress: '127.0.0.1', localPort: 8080, family: 'IPv4' }),
      _destroy() {
        abort(of(this));
      },
    };

    function feed(exchange) {
      if (exchange.over || !exchange.bodyWanted || exchange.paused || exchange.bodyComplete) return;
      if (exchange.request.abortAfter !== undefined && exchange.fed >= exchange.request.abortAfter) {
        abort(exchange);
        return;
      }
      const pieces = exchange.request.body ?? [];
      if (exchange.fed < pieces.length) {
        exchange.incoming._onBody(text.encode(pieces[exchange.fed++], 'utf8'));
        later(() => feed(exchange));
      } else if (!exchange.request.stall) {
        exchange.bodyComplete = true;
        exchange.incoming._onBody(null);
      }
    }

    function abort(exchange) {
      if (exchange.over) return;
      exchange.over = true;
      exchange.aborted = true;
      if (!exchange.bodyComplete && (exchange.observed || exchange.bodyWanted)) exchange.incoming._onAborted();
      if (exchange.observed || exchange.bodyWanted) exchange.response._onClose(true);
      exchange.resolve(seen(exchange));
    }

    // As natives do, for a listener that comes after the end, too.
    function observe(exchange) {
      if (exchange.observed) return;
      exchange.observed = true;
      if (!exchange.over) return;
      later(() => {
        if (!exchange.aborted) exchange.response._onFinish();
        exchange.response._onClose(exchange.aborted);
      });
    }

    function seen(exchange) {
      const headers = {};
      for (const { name, value } of exchange.fields.values()) headers[name.toLowerCase()] = Array.isArray(value) ? value : `${value}`;
      let length = 0;
      for (const piece of exchange.output) length += piece.length;
      const bytes = new Uint8Array(length);
      length = 0;
      for (const piece of exchange.output) {
        bytes.set(piece, length);
        length += piece.length;
      }
      return {
        status: exchange.status,
        reason: exchange.reason,
        headers,
        body: text.decode(bytes, 'utf8', 0, length),
        aborted: exchange.aborted,
      };
    }

    const responseGetters = {
      statusCode: [(exchange) => exchange.status, (exchange, value) => (exchange.status = value)],
      statusMessage: [(exchange) => exchange.reason, (exchange, value) => (exchange.reason = value)],
      headersSent: [(exchange) => exchange.headSent],
      writableEnded: [(exchange) => exchange.ended],
      writableFinished: [(exchange) => exchange.finished],
      sendDate: [() => true, () => {}],
      shouldKeepAlive: [() => true, () => {}],
      _bytesInFlight: [() => 0],
      _request: [(exchange) => exchange.incoming],
      _closed: [(exchange) => exchange.over],
      _expectsContinue: [(exchange) => /^100-continue$/i.test(exchange.request.headers?.Expect ?? '')],
    };
    const checkOpen = (exchange, action) => {
      if (exchange.headSent) throw coded(Error, 'ERR_HTTP_HEADERS_SENT', `Cannot ${action} headers after they are sent to the client`);
    };
    const setField = (exchange, name, value) => {
      if (typeof name !== 'string' || !/^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/.test(name)) {
        throw coded(TypeError, 'ERR_INVALID_HTTP_TOKEN', `Header name must be a valid HTTP token ["${name}"]`);
      }
      if (value === undefined) throw coded(TypeError, 'ERR_HTTP_INVALID_HEADER_VALUE', `Invalid value "${value}" for header "${name}"`);
      if (/[^\t\x20-\x7e\x80-\xff]/.test(value))
        throw coded(TypeError, 'ERR_INVALID_CHAR', `Invalid character in header content ["${name}"]`);
      exchange.fields.set(name.toLowerCase(), { name, value });
    };
    const finishLater = (exchange) => {
      later(() => {
        if (exchange.over) return;
        exchange.over = true;
        exchange.finished = true;
        if (exchange.observed) {
          exchange.response._onFinish();
          exchange.response._onClose(false);
        }
        exchange.resolve(seen(exchange));
      });
    };
    const responseMethods = {
      setHeader(name, value) {
        checkOpen(of(this), 'set');
        setField(of(this), name, value);
        return this;
      },
      appendHeader(name, value) {
        const before = of(this).fields.get(name.toLowerCase());
        setField(of(this), name, before ? [before.value, value].flat() : value);
        return this;
      },
      getHeader: function (name) {
        return of(this).fields.get(name.toLowerCase())?.value;
      },
      getHeaders() {
        const result = Object.create(null);
        for (const [key, { value }] of of(this).fields) result[key] = value;
        return result;
      },
      getHeaderNames() {
        return [...of(this).fields.keys()];
      },
      hasHeader(name) {
        return of(this).fields.has(name.toLowerCase());
      },
      removeHeader(name) {
        checkOpen(of(this), 'remove');
        of(this).fields.delete(name.toLowerCase());
      },
      writeHead(status, reason, fields) {
        const exchange = of(this);
        checkOpen(exchange, 'write');
        if (!Number.isInteger(status) || status < 100 || status > 999) {
          throw coded(RangeError, 'ERR_HTTP_INVALID_STATUS_CODE', `Invalid status code: ${status}`);
        }
        if (typeof reason !== 'string') [reason, fields] = [undefined, reason];
        exchange.status = status;
        exchange.reason = reason;
        if (Array.isArray(fields))
          for (let index = 0; index < fields.length; index += 2) setField(exchange, fields[index], fields[index + 1]);
        else for (const key of Object.keys(fields ?? {})) setField(exchange, key, fields[key]);
        exchange.headSent = true;
        return this;
      },
      flushHeaders() {
        of(this).headSent = true;
      },
      _write(chunk, encoding) {
        const exchange = of(this);
        exchange.headSent = true;
        const bytes = toBytes(chunk, encoding);
        if (exchange.request.method !== 'HEAD') exchange.output.push(bytes.slice());
        exchange.queued += bytes.length;
        if (exchange.queued < 65536) return true;
        later(() => {
          exchange.queued = 0;
          if (exchange.observed && !exchange.over) exchange.response._onDrain();
        });
        return false;
      },
      _end(chunk, encoding) {
        const exchange = of(this);
        if (chunk !== undefined) this._write(chunk, encoding);
        exchange.headSent = true;
        exchange.ended = true;
        finishLater(exchange);
      },
      end(chunk, encoding, callback) {
        const plain = chunk === undefined || chunk === null || typeof chunk === 'string' || chunk instanceof Uint8Array;
        const slow =
          !plain || callback !== undefined || typeof encoding === 'function' || Object.hasOwn(this, 'writeHead') || of(this).ended;
        if (slow) return this._endSlow(chunk, encoding, callback);
        this._end(chunk ?? undefined, encoding);
        return this;
      },
      _destroy() {
        abort(of(this));
      },
      _observe() {
        observe(of(this));
      },
      _writeContinue() {},
      _takeContinue() {},
      _inform() {},
      _cork() {},
      addTrailers() {},
    };

    const record = (server) => {
      if (!servers.has(server)) servers.set(server, {});
      return servers.get(server);
    };
    const binding = {
      handlers: [],
      install(all) {
        prototypes = all;
        for (const [name, get] of Object.entries(requestGetters)) {
          Object.defineProperty(all.IncomingMessage.prototype, name, {
            configurable: true,
            get() {
              return get(of(this));
            },
            set(value) {
              Object.defineProperty(this, name, { value, writable: true, enumerable: true, configurable: true });
            },
          });
        }
        Object.assign(all.IncomingMessage.prototype, requestMethods);
        for (const [name, [get, set]] of Object.entries(responseGetters)) {
          Object.defineProperty(all.ServerResponse.prototype, name, {
            configurable: true,
            get() {
              return get(of(this));
            },
            set:
              set &&
              function (value) {
                set(of(this), value);
              },
          });
        }
        Object.assign(all.ServerResponse.prototype, responseMethods);
      },
      listen(server, port) {
        for (const other of servers.values()) if (other.port === port) throw coded(Error, 'EADDRINUSE', 'address already in use');
        record(server).port = port;
        later(() => server._listening());
      },
      close(server) {
        servers.delete(server);
        later(() => server._closed());
      },
      setHandler(server, handler) {
        record(server).handler = handler;
      },
      setOptions(server, options) {
        record(server).options = { ...options };
      },
      setClientError(server, wanted) {
        record(server).reportsClientErrors = wanted;
      },
      closeConnections() {},
      connections: () => 0,
      state: (server) => servers.get(server),
    };

    global.exchange = (server, request) =>
      new Promise((resolve) => {
        const exchange = {
          request,
          requestHeaders: Object.entries({ Host: 'example', ...request.headers }),
          status: 200,
          reason: undefined,
          fields: new Map(),
          output: [],
          queued: 0,
          fed: 0,
          headSent: false,
          ended: false,
          finished: false,
          over: false,
          aborted: false,
          observed: false,
          bodyWanted: false,
          paused: false,
          bodyComplete: !(request.body || request.stall),
          resolve,
        };
        exchange.incoming = Object.create(prototypes.IncomingMessage.prototype);
        exchange.response = Object.create(prototypes.ServerResponse.prototype);
        exchanges.set(exchange.incoming, exchange);
        exchanges.set(exchange.response, exchange);
        later(() => servers.get(server).handler.call(server, exchange.incoming, exchange.response));
      });
    return binding;
  };
})(globalThis);
