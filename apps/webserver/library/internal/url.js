// SPDX-License-Identifier: BSL-1.0
// URL and URLSearchParams of the WHATWG URL Standard. The parser is Ada (engine/url_binding.cpp).
'use strict';

const binding = internalBinding('url');

// The order of the natives' list.
const HREF = 0,
  ORIGIN = 1,
  PROTOCOL = 2,
  USERNAME = 3,
  PASSWORD = 4,
  HOST = 5,
  HOSTNAME = 6,
  PORT = 7,
  PATHNAME = 8,
  SEARCH = 9,
  HASH = 10;

let connect; // sets the URL of a URLSearchParams
let replace; // replaces the pairs of a URLSearchParams by those of a query

function invalid(input, base) {
  const error = Object.assign(new TypeError('Invalid URL'), { code: 'ERR_INVALID_URL', input });
  if (base !== undefined) error.base = base;
  return error;
}

class URL {
  #parts;
  #params;

  constructor(input, base) {
    if (arguments.length === 0) throw Object.assign(new TypeError('The "url" argument must be specified'), { code: 'ERR_MISSING_ARGS' });
    input = `${input}`;
    if (base !== undefined) base = `${base}`;
    this.#parts = binding.parse(input, base);
    if (this.#parts === undefined) throw invalid(input, base);
  }

  static canParse(input, base) {
    return binding.canParse(`${input}`, base === undefined ? undefined : `${base}`);
  }
  static parse(input, base) {
    return URL.canParse(input, base) ? new URL(input, base) : null;
  }

  #set(part, value) {
    const parts = binding.set(this.#parts[HREF], part, `${value}`);
    if (parts === undefined) return false;
    this.#parts = parts;
    return true;
  }

  get href() {
    return this.#parts[HREF];
  }
  set href(value) {
    if (!this.#set(HREF, value)) throw invalid(`${value}`);
    if (this.#params) replace(this.#params, this.#parts[SEARCH]);
  }
  get origin() {
    return this.#parts[ORIGIN];
  }
  get protocol() {
    return this.#parts[PROTOCOL];
  }
  set protocol(value) {
    this.#set(PROTOCOL, value);
  }
  get username() {
    return this.#parts[USERNAME];
  }
  set username(value) {
    this.#set(USERNAME, value);
  }
  get password() {
    return this.#parts[PASSWORD];
  }
  set password(value) {
    this.#set(PASSWORD, value);
  }
  get host() {
    return this.#parts[HOST];
  }
  set host(value) {
    this.#set(HOST, value);
  }
  get hostname() {
    return this.#parts[HOSTNAME];
  }
  set hostname(value) {
    this.#set(HOSTNAME, value);
  }
  get port() {
    return this.#parts[PORT];
  }
  set port(value) {
    this.#set(PORT, value);
  }
  get pathname() {
    return this.#parts[PATHNAME];
  }
  set pathname(value) {
    this.#set(PATHNAME, value);
  }
  get search() {
    return this.#parts[SEARCH];
  }
  set search(value) {
    this.#set(SEARCH, value);
    if (this.#params) replace(this.#params, this.#parts[SEARCH]);
  }
  get hash() {
    return this.#parts[HASH];
  }
  set hash(value) {
    this.#set(HASH, value);
  }
  get searchParams() {
    if (this.#params === undefined) {
      this.#params = new URLSearchParams(this.#parts[SEARCH]);
      connect(this.#params, (query) => this.#set(SEARCH, query));
    }
    return this.#params;
  }
  toString() {
    return this.#parts[HREF];
  }
  toJSON() {
    return this.#parts[HREF];
  }
}

// --- URLSearchParams ---------------------------------------------------------------------------------------------------------------------

/// Decodes a piece of application/x-www-form-urlencoded.
function decode(piece) {
  if (piece.includes('+')) piece = piece.replaceAll('+', ' ');
  if (!piece.includes('%')) return piece;
  try {
    return decodeURIComponent(piece);
  } catch {
    return decodeBytes(piece);
  }
}

/// The same for invalid UTF-8 or invalid percent signs.
function decodeBytes(piece) {
  const { encode, decode: decodeText } = internalBinding('text');
  const bytes = encode(piece, 'utf8');
  const result = [];
  for (let index = 0; index < bytes.length; index++) {
    const pair = bytes[index] === 0x25 ? String.fromCharCode(bytes[index + 1], bytes[index + 2]) : '';
    if (/^[0-9a-fA-F]{2}$/.test(pair)) {
      result.push(parseInt(pair, 16));
      index += 2;
    } else {
      result.push(bytes[index]);
    }
  }
  return decodeText(new Uint8Array(result), 'utf8', 0, result.length);
}

function encode(piece) {
  return encodeURIComponent(piece.toWellFormed())
    .replace(/[!'()~]/g, (letter) => `%${letter.charCodeAt(0).toString(16).toUpperCase()}`)
    .replaceAll('%20', '+');
}

function parseQuery(query) {
  const list = [];
  for (const piece of query.split('&')) {
    if (piece === '') continue;
    const equals = piece.indexOf('=');
    if (equals === -1) list.push([decode(piece), '']);
    else list.push([decode(piece.slice(0, equals)), decode(piece.slice(equals + 1))]);
  }
  return list;
}

const string = (value) => `${value}`.toWellFormed();

function required(count, given, names) {
  if (given < count) {
    throw Object.assign(new TypeError(`The ${names} argument${count > 1 ? 's' : ''} must be specified`), { code: 'ERR_MISSING_ARGS' });
  }
}

function pairsOf(init) {
  if (typeof init === 'function' || (typeof init === 'object' && init !== null)) {
    const method = init[Symbol.iterator];
    if (method === undefined || method === null) return Object.keys(init).map((key) => [string(key), string(init[key])]);
    if (typeof method !== 'function') {
      throw Object.assign(new TypeError('Query pairs must be iterable'), { code: 'ERR_ARG_NOT_ITERABLE' });
    }
    return Array.from(init, (pair) => {
      const items = typeof pair === 'object' && pair !== null && typeof pair[Symbol.iterator] === 'function' ? [...pair] : [];
      if (items.length !== 2) {
        throw Object.assign(new TypeError('Each query pair must be an iterable [name, value] tuple'), { code: 'ERR_INVALID_TUPLE' });
      }
      return items.map(string);
    });
  }
  const text = string(init);
  return parseQuery(text.startsWith('?') ? text.slice(1) : text);
}

class URLSearchParams {
  #list;
  #changed;

  static {
    connect = (params, changed) => {
      params.#changed = changed;
    };
    replace = (params, query) => {
      params.#list = parseQuery(query.startsWith('?') ? query.slice(1) : query);
    };
  }

  constructor(init = undefined) {
    this.#list = init === undefined || init === null ? [] : pairsOf(init);
  }

  #update() {
    this.#changed?.(this.toString());
  }

  get size() {
    return this.#list.length;
  }
  append(name, value) {
    required(2, arguments.length, '"name" and "value"');
    this.#list.push([string(name), string(value)]);
    this.#update();
  }
  delete(name, value) {
    required(1, arguments.length, '"name"');
    name = string(name);
    if (value !== undefined) value = string(value);
    this.#list = this.#list.filter((pair) => pair[0] !== name || (value !== undefined && pair[1] !== value));
    this.#update();
  }
  get(name) {
    required(1, arguments.length, '"name"');
    name = string(name);
    return this.#list.find((pair) => pair[0] === name)?.[1] ?? null;
  }
  getAll(name) {
    required(1, arguments.length, '"name"');
    name = string(name);
    return this.#list.filter((pair) => pair[0] === name).map((pair) => pair[1]);
  }
  has(name, value) {
    required(1, arguments.length, '"name"');
    name = string(name);
    if (value !== undefined) value = string(value);
    return this.#list.some((pair) => pair[0] === name && (value === undefined || pair[1] === value));
  }
  set(name, value) {
    required(2, arguments.length, '"name" and "value"');
    name = string(name);
    value = string(value);
    const first = this.#list.find((pair) => pair[0] === name);
    if (first === undefined) {
      this.#list.push([name, value]);
    } else {
      first[1] = value;
      this.#list = this.#list.filter((pair) => pair === first || pair[0] !== name);
    }
    this.#update();
  }
  sort() {
    // In the order of UTF-16 units; equal names stay in their order.
    this.#list.sort((first, second) => (first[0] < second[0] ? -1 : first[0] > second[0] ? 1 : 0));
    this.#update();
  }
  forEach(callback, self) {
    if (typeof callback !== 'function') {
      throw Object.assign(new TypeError('The "callback" argument must be of type function.'), { code: 'ERR_INVALID_ARG_TYPE' });
    }
    for (const [name, value] of this) callback.call(self, value, name, this);
  }
  // An iterator sees changes that are made while it runs.
  *entries() {
    for (let index = 0; index < this.#list.length; index++) yield [this.#list[index][0], this.#list[index][1]];
  }
  *keys() {
    for (let index = 0; index < this.#list.length; index++) yield this.#list[index][0];
  }
  *values() {
    for (let index = 0; index < this.#list.length; index++) yield this.#list[index][1];
  }
  toString() {
    return this.#list.map(([name, value]) => `${encode(name)}=${encode(value)}`).join('&');
  }
}
Object.defineProperty(URLSearchParams.prototype, Symbol.iterator, {
  value: URLSearchParams.prototype.entries,
  writable: true,
  enumerable: false,
  configurable: true,
});

for (const each of [URL, URLSearchParams]) {
  Object.defineProperty(each.prototype, Symbol.toStringTag, { value: each.name, configurable: true });
  for (const name of Object.getOwnPropertyNames(each.prototype)) {
    if (name !== 'constructor') Object.defineProperty(each.prototype, name, { enumerable: true });
  }
}

module.exports = {
  URL,
  URLSearchParams,
  domainToASCII: (domain) => binding.domainToASCII(`${domain}`),
  domainToUnicode: (domain) => binding.domainToUnicode(`${domain}`),
};
