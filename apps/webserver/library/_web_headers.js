// SPDX-License-Identifier: BSL-1.0
// Headers of the fetch interface.
//
// Names are kept in lower case in the order of their first use; iteration is sorted. Only set-cookie has several values, all others are
// joined.
'use strict';

const { withCode } = require('_errors');

const token = /^[\^_`a-zA-Z\-0-9!#$%&'*+.|~]+$/;
const fields = Symbol('fields');

function checkName(name) {
  name = `${name}`;
  if (!token.test(name)) throw new TypeError(`Headers: "${name}" is an invalid header name.`);
  return name.toLowerCase();
}

function checkValue(value) {
  value = `${value}`.replace(/^[\t\n\r ]+|[\t\n\r ]+$/g, '');
  if (/[\0\r\n]|[^\0-\xff]/.test(value)) throw new TypeError(`Headers: "${value}" is an invalid header value.`);
  return value;
}

class Headers {
  constructor(init = undefined) {
    this[fields] = new Map();
    if (init === undefined) return;
    if (init === null || (typeof init !== 'object' && typeof init !== 'function')) {
      throw withCode(TypeError, 'ERR_INVALID_ARG_TYPE', 'Headers: the argument must be an object or a sequence of pairs.');
    }
    if (init instanceof Headers && init[fields]) {
      for (const [name, value] of init[fields]) this[fields].set(name, Array.isArray(value) ? value.slice() : value);
    } else if (typeof init[Symbol.iterator] === 'function') {
      for (const pair of init) {
        const [name, value, ...rest] = [...pair];
        if (value === undefined || rest.length > 0) throw new TypeError('Headers: each pair must have a name and a value.');
        this.append(name, value);
      }
    } else {
      for (const name of Reflect.ownKeys(init)) {
        if (typeof name === 'symbol') throw new TypeError('Headers: a name must not be a symbol.');
        if (Object.prototype.propertyIsEnumerable.call(init, name)) this.append(name, init[name]);
      }
    }
  }

  append(name, value) {
    name = checkName(name);
    value = checkValue(value);
    const before = this[fields].get(name);
    if (name === 'set-cookie') {
      if (before) before.push(value);
      else this[fields].set(name, [value]);
    } else {
      this[fields].set(name, before === undefined ? value : `${before}${name === 'cookie' ? '; ' : ', '}${value}`);
    }
  }

  delete(name) {
    this[fields].delete(checkName(name));
  }

  get(name) {
    const value = this[fields].get(checkName(name));
    if (value === undefined) return null;
    return Array.isArray(value) ? value.join(', ') : value;
  }

  getSetCookie() {
    return [...(this[fields].get('set-cookie') ?? [])];
  }

  has(name) {
    return this[fields].has(checkName(name));
  }

  set(name, value) {
    name = checkName(name);
    value = checkValue(value);
    this[fields].set(name, name === 'set-cookie' ? [value] : value);
  }

  *entries() {
    for (const name of [...this[fields].keys()].sort()) {
      const value = this[fields].get(name);
      if (Array.isArray(value)) for (const each of value) yield [name, each];
      else if (value !== undefined) yield [name, value];
    }
  }

  *keys() {
    for (const [name] of this.entries()) yield name;
  }

  *values() {
    for (const [, value] of this.entries()) yield value;
  }

  forEach(callback, self) {
    for (const [name, value] of this.entries()) callback.call(self, value, name, this);
  }

  [Symbol.iterator]() {
    return this.entries();
  }

  get [Symbol.toStringTag]() {
    return 'Headers';
  }

  [Symbol.for('nodejs.util.inspect.custom')](depth, options, inspect) {
    return `Headers ${inspect(Object.fromEntries(this[fields] ? this : []), options)}`;
  }
}

module.exports = { Headers };
