// SPDX-License-Identifier: BSL-1.0
// Request and Response of the fetch interface. `fetch` itself is absent: the server makes no connections.
'use strict';

const { Headers } = require('_web_headers');
const { content, extract, mixIn, cloneBody, isUsed } = require('_web_body');

const state = Symbol('state');
const standardMethods = new Set(['DELETE', 'GET', 'HEAD', 'OPTIONS', 'POST', 'PUT']);
const token = /^[\^_`a-zA-Z\-0-9!#$%&'*+.|~]+$/;

function normalizeMethod(method) {
  method = `${method}`;
  if (!token.test(method)) throw new TypeError(`'${method}' is not a valid HTTP method.`);
  const upper = method.toUpperCase();
  if (upper === 'CONNECT' || upper === 'TRACE' || upper === 'TRACK') throw new TypeError(`'${method}' HTTP method is unsupported.`);
  return standardMethods.has(upper) ? upper : method;
}

class Request {
  constructor(input, init = {}) {
    init = init ?? {};
    const source = input instanceof Request && input[state] ? input : null;
    let url;
    if (source) url = source.url;
    else {
      try {
        const parsed = new URL(`${input}`);
        if (parsed.username || parsed.password)
          throw new TypeError(`Request cannot be constructed from a URL that includes credentials: ${input}`);
        url = parsed.href;
      } catch (error) {
        if (/credentials/.test(error.message)) throw error;
        throw new TypeError(`Failed to parse URL from ${input}`, { cause: error });
      }
    }
    const method = init.method === undefined ? (source?.method ?? 'GET') : normalizeMethod(init.method);
    const hasBody = init.body !== undefined && init.body !== null;
    if ((hasBody || (source?.[content].source ?? source?.[content].stream ?? null) !== null) && (method === 'GET' || method === 'HEAD')) {
      throw new TypeError('Request with GET/HEAD method cannot have body.');
    }
    this[state] = {
      method,
      url,
      headers: new Headers(init.headers ?? source?.headers),
      signal: init.signal ?? source?.[state].signal ?? null,
      mode: init.mode ?? source?.mode ?? 'cors',
      credentials: init.credentials ?? source?.credentials ?? 'same-origin',
      cache: init.cache ?? source?.cache ?? 'default',
      redirect: init.redirect ?? source?.redirect ?? 'follow',
      referrer: init.referrer ?? source?.referrer ?? 'about:client',
      referrerPolicy: init.referrerPolicy ?? source?.referrerPolicy ?? '',
      integrity: init.integrity ?? source?.integrity ?? '',
      keepalive: init.keepalive ?? source?.keepalive ?? false,
      destination: '',
      duplex: 'half',
    };
    if (hasBody) {
      this[content] = extract(init.body);
      if (this[content].stream && init.duplex === undefined) {
        throw new TypeError('RequestInit: duplex option is required when sending a body.');
      }
      const { type } = this[content];
      if (type && !this.headers.has('content-type')) this.headers.append('content-type', type);
    } else if (source) {
      if (isUsed(source)) throw new TypeError('Cannot construct a Request with a Request object that has already been used.');
      // The body moves to the new object.
      this[content] = { ...source[content] };
      if (source[content].source !== null || source[content].stream !== null) source[content].used = true;
    } else this[content] = extract(null);
  }

  get signal() {
    return (this[state].signal ??= new AbortController().signal);
  }

  get isReloadNavigation() {
    return false;
  }

  get isHistoryNavigation() {
    return false;
  }

  clone() {
    const copy = Object.create(Request.prototype);
    copy[content] = cloneBody(this);
    copy[state] = { ...this[state], headers: new Headers(this.headers) };
    return copy;
  }

  get [Symbol.toStringTag]() {
    return 'Request';
  }

  [Symbol.for('nodejs.util.inspect.custom')](depth, options, inspect) {
    return `Request ${inspect({ method: this.method, url: this.url, headers: this.headers }, options)}`;
  }
}
for (const name of [
  'method',
  'url',
  'headers',
  'mode',
  'credentials',
  'cache',
  'redirect',
  'referrer',
  'referrerPolicy',
  'integrity',
  'keepalive',
  'destination',
  'duplex',
]) {
  Object.defineProperty(Request.prototype, name, {
    configurable: true,
    enumerable: true,
    get() {
      return this[state][name];
    },
  });
}
mixIn(Request);

const nullBodyStatus = new Set([101, 204, 205, 304]);

class Response {
  constructor(body = null, init = {}) {
    init = init ?? {};
    const status = init.status === undefined ? 200 : Number(init.status);
    if (!Number.isInteger(status) || status < 200 || status > 599)
      throw new RangeError('init["status"] must be in the range of 200 to 599, inclusive.');
    const statusText = init.statusText === undefined ? '' : `${init.statusText}`;
    if (/[^\t\x20-\x7e\x80-\xff]/.test(statusText)) throw new TypeError('Invalid statusText');
    this[state] = { status, statusText, headers: new Headers(init.headers), type: 'default', url: '', redirected: false };
    if (body !== null && body !== undefined && nullBodyStatus.has(status))
      throw new TypeError(`Response with null body status cannot have body: ${status}`);
    this[content] = extract(body);
    const { type } = this[content];
    if (type && !this.headers.has('content-type')) this.headers.append('content-type', type);
  }

  static json(data, init = {}) {
    const text = JSON.stringify(data);
    if (text === undefined) throw new TypeError('Value is not JSON serializable');
    const response = new Response(text, init);
    if (!new Headers(init?.headers).has('content-type')) response.headers.set('content-type', 'application/json');
    return response;
  }

  static redirect(url, status = 302) {
    if (![301, 302, 303, 307, 308].includes(status)) throw new RangeError(`Invalid status code ${status}`);
    let location;
    try {
      location = new URL(`${url}`).href;
    } catch (error) {
      throw new TypeError(`Failed to parse URL from ${url}`, { cause: error });
    }
    return new Response(null, { status, headers: { location } });
  }

  static error() {
    const response = new Response();
    response[state].type = 'error';
    response[state].status = 0;
    return response;
  }

  get ok() {
    return this.status >= 200 && this.status <= 299;
  }

  clone() {
    const copy = Object.create(Response.prototype);
    copy[content] = cloneBody(this);
    copy[state] = { ...this[state], headers: new Headers(this.headers) };
    return copy;
  }

  get [Symbol.toStringTag]() {
    return 'Response';
  }

  [Symbol.for('nodejs.util.inspect.custom')](depth, options, inspect) {
    return `Response ${inspect({ status: this.status, statusText: this.statusText, headers: this.headers }, options)}`;
  }
}
for (const name of ['status', 'statusText', 'headers', 'type', 'url', 'redirected']) {
  Object.defineProperty(Response.prototype, name, {
    configurable: true,
    enumerable: true,
    get() {
      return this[state][name];
    },
  });
}
mixIn(Response);

module.exports = { Request, Response };
