// SPDX-License-Identifier: BSL-1.0
// The module `assert`.
'use strict';

const { argumentType, checkFunction } = require('_errors');
const { isDeepEqual } = require('_deep_equal');

const inspect = (value) => require('util').inspect(value, { depth: 1000, maxArrayLength: Infinity, sorted: true });

class AssertionError extends Error {
  constructor(options) {
    const { message, operator = 'fail', actual, expected } = options ?? {};
    super(message ?? `${inspect(actual)} ${operator} ${inspect(expected)}`);
    this.generatedMessage = message === undefined;
    this.code = 'ERR_ASSERTION';
    this.actual = actual;
    this.expected = expected;
    this.operator = operator;
    Object.defineProperty(this, 'name', { value: 'AssertionError', enumerable: false, writable: true, configurable: true });
  }

  toString() {
    return `${this.name} [${this.code}]: ${this.message}`;
  }
}

function raise(options) {
  if (options.message instanceof Error) throw options.message;
  const error = new AssertionError({ ...options, message: options.message ?? options.text });
  error.generatedMessage = options.message === undefined;
  throw error;
}

function assert(value, message) {
  if (!value) raise({ actual: value, expected: true, operator: '==', message, text: 'The expression evaluated to a falsy value' });
}

function ok(value, message) {
  assert(value, message);
}

// equal(actual, expected, message) and the like, from a test and the words of its failure.
function comparison(operator, test, text) {
  return (actual, expected, message) => {
    if (!test(actual, expected)) raise({ actual, expected, operator, message, text: text(inspect(actual), inspect(expected)) });
  };
}
const looseEqual = (first, second) => first == second || (Number.isNaN(first) && Number.isNaN(second));
const equal = comparison('==', looseEqual, (actual, expected) => `${actual} == ${expected}`);
const notEqual = comparison(
  '!=',
  (first, second) => !looseEqual(first, second),
  (actual, expected) => `${actual} != ${expected}`,
);
const strictEqual = comparison(
  'strictEqual',
  Object.is,
  (actual, expected) => `Expected values to be strictly equal:\n\n${actual} !== ${expected}\n`,
);
const notStrictEqual = comparison(
  'notStrictEqual',
  (first, second) => !Object.is(first, second),
  (actual) => `Expected "actual" to be strictly unequal to: ${actual}`,
);
const deepEqual = comparison(
  'deepEqual',
  (first, second) => isDeepEqual(first, second, false),
  (actual, expected) => `Expected values to be loosely deep-equal:\n\n${actual}\n\nshould loosely deep-equal\n\n${expected}`,
);
const deepStrictEqual = comparison(
  'deepStrictEqual',
  (first, second) => isDeepEqual(first, second, true),
  (actual, expected) => `Expected values to be strictly deep-equal:\n${actual}\n\nshould equal\n\n${expected}`,
);
const notDeepEqual = comparison(
  'notDeepEqual',
  (first, second) => !isDeepEqual(first, second, false),
  (actual) => `Expected "actual" not to be loosely deep-equal to: ${actual}`,
);
const notDeepStrictEqual = comparison(
  'notDeepStrictEqual',
  (first, second) => !isDeepEqual(first, second, true),
  (actual) => `Expected "actual" not to be strictly deep-equal to: ${actual}`,
);

function fail(message = 'Failed') {
  if (message instanceof Error) throw message;
  raise({ operator: 'fail', message });
}

// True if the thrown value is as `expected` says: a class, a regular expression, a function or an object of properties.
function checkThrown(actual, expected, message, operator) {
  if (expected === undefined) return;
  const wrong = (text) => raise({ actual, expected, operator, message, text });
  if (expected instanceof RegExp) {
    if (!expected.test(String(actual)))
      wrong(`The input did not match the regular expression ${inspect(expected)}. Input:\n\n${inspect(String(actual))}\n`);
  } else if (typeof expected === 'function') {
    if (expected.prototype !== undefined && actual instanceof expected) return;
    if (Error.isPrototypeOf(expected) || expected === Error) {
      const received = actual?.constructor?.name ?? inspect(actual);
      wrong(
        `The error is expected to be an instance of "${expected.name}". Received "${received}"\n\nError message:\n\n${actual?.message}`,
      );
    }
    if (Reflect.apply(expected, {}, [actual]) !== true)
      wrong(`The ${expected.name ? `"${expected.name}"` : ''} validation function is expected to return "true".`);
  } else {
    const keys = Object.keys(expected);
    if (expected instanceof Error) keys.push('name', 'message');
    for (const key of keys) {
      if (typeof actual[key] === 'string' && expected[key] instanceof RegExp && expected[key].test(actual[key])) continue;
      if (!(key in Object(actual)) || !isDeepEqual(actual[key], expected[key], true)) {
        wrong(`Expected values to be strictly deep-equal: property ${key}: ${inspect(actual[key])} should equal ${inspect(expected[key])}`);
      }
    }
  }
}

function arrange(expected, message) {
  return typeof expected === 'string' ? [undefined, expected] : [expected, message];
}

function missing(operator, expected, message) {
  const name = expected && expected.name ? ` (${expected.name})` : '';
  const kind = operator === 'rejects' ? 'rejection' : 'exception';
  raise({
    actual: undefined,
    expected,
    operator,
    message: undefined,
    text: `Missing expected ${kind}${name}${message ? `: ${message}` : '.'}`,
  });
}

function throws(action, expected, message) {
  checkFunction(action, 'fn');
  [expected, message] = arrange(expected, message);
  try {
    action();
  } catch (error) {
    checkThrown(error, expected, message, 'throws');
    return;
  }
  missing('throws', expected, message);
}

async function settle(action) {
  const promise = typeof action === 'function' ? action() : action;
  if (typeof promise?.then !== 'function') throw argumentType('promiseFn', ['Function', 'Promise'], promise);
  await promise;
}

async function rejects(action, expected, message) {
  [expected, message] = arrange(expected, message);
  try {
    await settle(action);
  } catch (error) {
    checkThrown(error, expected, message, 'rejects');
    return;
  }
  missing('rejects', expected, message);
}

function unwanted(error, operator, message) {
  const kind = operator === 'doesNotReject' ? 'rejection' : 'exception';
  raise({
    actual: error,
    operator,
    message: undefined,
    text: `Got unwanted ${kind}${message ? `: ${message}` : '.'}\nActual message: "${error?.message}"`,
  });
}

function doesNotThrow(action, expected, message) {
  checkFunction(action, 'fn');
  [expected, message] = arrange(expected, message);
  try {
    action();
  } catch (error) {
    if (typeof expected === 'function' && !(error instanceof expected)) throw error;
    unwanted(error, 'doesNotThrow', message);
  }
}

async function doesNotReject(action, expected, message) {
  [expected, message] = arrange(expected, message);
  try {
    await settle(action);
  } catch (error) {
    if (typeof expected === 'function' && !(error instanceof expected)) throw error;
    unwanted(error, 'doesNotReject', message);
  }
}

function matching(operator, wanted) {
  return (string, pattern, message) => {
    if (!(pattern instanceof RegExp)) throw argumentType('regexp', 'RegExp', pattern);
    if (typeof string === 'string' && pattern.test(string) === wanted) return;
    const text = wanted ? 'The input did not match' : 'The input was expected to not match';
    raise({
      actual: string,
      expected: pattern,
      operator,
      message,
      text: `${text} the regular expression ${inspect(pattern)}. Input:\n\n${inspect(string)}\n`,
    });
  };
}

function ifError(error) {
  if (error === null || error === undefined) return;
  const text = `ifError got unwanted exception: ${error?.message ?? inspect(error)}`;
  raise({ actual: error, expected: null, operator: 'ifError', text });
}

const methods = {
  ok,
  equal,
  notEqual,
  strictEqual,
  notStrictEqual,
  deepEqual,
  notDeepEqual,
  deepStrictEqual,
  notDeepStrictEqual,
  fail,
  throws,
  rejects,
  doesNotThrow,
  doesNotReject,
  match: matching('match', true),
  doesNotMatch: matching('doesNotMatch', false),
  ifError,
  AssertionError,
};
Object.assign(assert, methods);

const strict = (value, message) => assert(value, message);
Object.assign(strict, methods, {
  equal: strictEqual,
  notEqual: notStrictEqual,
  deepEqual: deepStrictEqual,
  notDeepEqual: notDeepStrictEqual,
  strict,
});
assert.strict = strict;

module.exports = assert;
