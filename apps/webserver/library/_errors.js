// SPDX-License-Identifier: BSL-1.0
// Errors with Node's codes.
//
// Programs tell errors apart by `error.code`, and logs show "TypeError [ERR_X]: text" as in Node. This module makes such errors and checks
// arguments.
'use strict';

function withCode(Base, code, message) {
  const error = new Base(message);
  error.code = code;
  // The stack begins with "Name [CODE]: message", as in Node. In an engine whose stack has frames alone there is nothing to change.
  const { stack } = error;
  if (typeof stack === 'string' && stack.startsWith(`${error.name}:`))
    error.stack = `${error.name} [${code}]${stack.slice(error.name.length)}`;
  Object.defineProperty(error, 'toString', {
    value() {
      return `${this.name} [${code}]: ${this.message}`;
    },
    enumerable: false,
    writable: true,
    configurable: true,
  });
  return error;
}

function describe(value) {
  if (value === null || value === undefined) return `${value}`;
  if (typeof value === 'function') return value.name ? `function ${value.name}` : 'function ';
  if (typeof value === 'object') {
    if (value.constructor && value.constructor.name) return `an instance of ${value.constructor.name}`;
    return '[Object: null prototype] {}';
  }
  let text = typeof value === 'string' ? `'${value.length > 28 ? value.slice(0, 25) + '...' : value}'` : String(value);
  if (typeof value === 'bigint') text += 'n';
  return `type ${typeof value} (${text})`;
}

// "of type string", "an instance of Buffer", "one of type string or function": the words that Node uses for lists of expected types.
function expectedWords(expected) {
  const list = Array.isArray(expected) ? expected : [expected];
  const types = [];
  const classes = [];
  for (const item of list) {
    if (/^[A-Z]/.test(item) && item !== 'Function' && item !== 'Object') classes.push(item);
    else types.push(item === 'Object' ? 'object' : item.toLowerCase());
  }
  const join = (items) => {
    if (items.length <= 2) return items.join(' or ');
    return `${items.slice(0, -1).join(', ')}, or ${items[items.length - 1]}`;
  };
  let words = '';
  if (types.length > 0) words = `${types.length > 1 ? 'one of type' : 'of type'} ${join(types)}`;
  if (classes.length > 0) words += `${words ? ' or ' : ''}an instance of ${join(classes)}`;
  return words;
}

function argumentType(name, expected, value) {
  const what = name.includes('.') ? 'property' : 'argument';
  const subject = name.endsWith(' argument') ? `The ${name}` : `The "${name}" ${what}`;
  return withCode(TypeError, 'ERR_INVALID_ARG_TYPE', `${subject} must be ${expectedWords(expected)}. Received ${describe(value)}`);
}

function argumentValue(name, value, reason = 'is invalid') {
  const { inspect } = require('util');
  const what = name.includes('.') ? 'property' : 'argument';
  return withCode(TypeError, 'ERR_INVALID_ARG_VALUE', `The ${what} '${name}' ${reason}. Received ${inspect(value)}`);
}

// 1234567 -> "1_234_567", as Node writes large numbers in range errors.
function groupDigits(text) {
  let result = '';
  let end = text.length;
  const start = text[0] === '-' ? 1 : 0;
  for (; end >= start + 4; end -= 3) result = `_${text.slice(end - 3, end)}${result}`;
  return `${text.slice(0, end)}${result}`;
}

function outOfRange(name, range, value) {
  let received;
  if (typeof value === 'number' && Number.isInteger(value) && Math.abs(value) > 2 ** 32) received = groupDigits(String(value));
  else if (typeof value === 'bigint') {
    received = String(value);
    if (value > 2n ** 32n || value < -(2n ** 32n)) received = groupDigits(received);
    received += 'n';
  } else received = require('util').inspect(value);
  return withCode(RangeError, 'ERR_OUT_OF_RANGE', `The value of "${name}" is out of range. It must be ${range}. Received ${received}`);
}

function checkFunction(value, name) {
  if (typeof value !== 'function') throw argumentType(name, 'Function', value);
}

function checkString(value, name) {
  if (typeof value !== 'string') throw argumentType(name, 'string', value);
}

function checkNumber(value, name, minimum, maximum) {
  if (typeof value !== 'number') throw argumentType(name, 'number', value);
  if ((minimum !== undefined && value < minimum) || (maximum !== undefined && value > maximum) || Number.isNaN(value)) {
    let range = minimum !== undefined ? `>= ${minimum}` : '';
    if (maximum !== undefined) range += `${range ? ' && ' : ''}<= ${maximum}`;
    throw outOfRange(name, range, value);
  }
}

function checkInteger(value, name, minimum = Number.MIN_SAFE_INTEGER, maximum = Number.MAX_SAFE_INTEGER) {
  if (typeof value !== 'number') throw argumentType(name, 'number', value);
  if (!Number.isInteger(value)) throw outOfRange(name, 'an integer', value);
  if (value < minimum || value > maximum) throw outOfRange(name, `>= ${minimum} && <= ${maximum}`, value);
}

function notImplemented(name) {
  return withCode(Error, 'ERR_METHOD_NOT_IMPLEMENTED', `${name} is not available: this server has no outgoing connections`);
}

class AbortError extends Error {
  constructor(message = 'The operation was aborted', options = undefined) {
    super(message, options);
    this.code = 'ABORT_ERR';
    this.name = 'AbortError';
  }
}

module.exports = {
  withCode,
  argumentType,
  argumentValue,
  outOfRange,
  checkFunction,
  checkString,
  checkNumber,
  checkInteger,
  describe,
  notImplemented,
  AbortError,
};
