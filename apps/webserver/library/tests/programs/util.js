// SPDX-License-Identifier: BSL-1.0
'use strict';
const util = require('util');

class Foo {
  constructor() {
    this.a = 1;
  }
}
class Bar extends Foo {}
class Mine extends Array {}
class MyMap extends Map {}
class Failure extends Error {}
class Tagged {
  get [Symbol.toStringTag]() {
    return 'tag';
  }
}
const circular = { name: 'circle', list: [] };
circular.self = circular;
circular.list.push(circular, { inner: circular.list });
const nul = Object.create(null);
nul.x = 1;
const noStack = new Error('no stack');
noStack.stack = '';
const sparse = [1, , , 4];
const extra = [1, 2];
extra.more = 'x';
const accessors = {
  get a() {
    return 1;
  },
  set b(value) {},
  get c() {
    return 1;
  },
  set c(value) {},
};
const bound = Object.assign(() => {}, { p: 1 });
const values = {
  plain: { a: 1, b: 'two', c: [1, 2, 3], d: { e: { f: { g: 1 } } } },
  primitives: [1, -0, 1.5, NaN, 10n, true, null, undefined, Symbol('s'), "it's", 'a"b\'c', 'x`\'"', '\n\t\x01\x7f\ud800é'],
  numbers: Array.from({ length: 150 }, (_, index) => index * 3),
  words: 'the quick brown fox jumps over the lazy dog and then some more words follow here'.split(' '),
  long: Array.from({ length: 8 }, (_, index) => 'word'.repeat(index)),
  foo: new Foo(),
  bar: new Bar(),
  empty: [{}, [], new Foo().constructor, new Map(), new Set(), '', Object.create(null)],
  mine: Mine.from([1, 2]),
  map: new Map([
    ['a', 1],
    [{ b: 1 }, [2]],
  ]),
  mymap: new MyMap([[1, 2]]),
  set: new Set([1, 'a', { b: 2 }]),
  weak: [new WeakMap(), new WeakSet()],
  typed: [new Uint8Array([1, 2, 3]), new Float64Array(2), new ArrayBuffer(3), new DataView(new ArrayBuffer(2))],
  buffer: require('buffer').Buffer.from('hello'),
  longBuffer: require('buffer').Buffer.alloc(60, 1),
  functions: [
    function named() {},
    () => {},
    async () => {},
    function* gen() {},
    async function* agen() {},
    Foo,
    Bar,
    class {},
    bound,
    Math.max,
  ],
  date: [new Date(0), new Date(NaN)],
  regexp: /a\/b/gi,
  boxed: [new Number(3), new String('abc'), new Boolean(false), Object(Symbol('q')), Object(10n)],
  circular,
  nul,
  sparse,
  extra,
  accessors,
  tagged: new Tagged(),
  noStack,
  symbolKey: { [Symbol('key')]: 1, 'odd-key': 2, 3: 4, ünï: 5 },
  deep: { a: { b: { c: { d: 1 } } }, f: [[[[1]]]], m: new Map([[1, { a: { b: {} } }]]) },
  wide: { alpha: 'aaaaaaaaaaaaaaaaaaaa', beta: 'bbbbbbbbbbbbbbbbbbbbbbbb', gamma: 'cccccccccccccccccccccc', delta: 1 },
  multiline: { text: 'first line of the text\nsecond line of the text\nthird line of the text and it is long enough' },
  many: Object.fromEntries(Array.from({ length: 30 }, (_, index) => [`key${index}`, index])),
  nested: [{ a: 1, b: { c: 2 } }, { a: 1, b: { c: 2 } }, [1, [2, [3, [4, [5]]]]]],
  generator: (function* () {})(),
  custom: { [util.inspect.custom]: (depth, options) => `custom ${depth} ${options.depth}` },
  customNested: [{ [util.inspect.custom]: () => ({ replaced: true }) }],
  global: Math,
  json: JSON,
  promise: Object.getPrototypeOf(Promise.resolve()) === Promise.prototype,
  args: (function () {
    return arguments;
  })(1, 2),
  objects: Array.from({ length: 10 }, (_, index) => ({ id: index, name: `n${index}` })),
  strings: Array.from({ length: 110 }, (_, index) => `s${index}`),
  unicode: ['日本語', 'é', '😀', 'a', 'b', 'c', 'd', 'e'],
  bigints: Array.from({ length: 9 }, (_, index) => BigInt(index) ** 5n),
};
for (const [name, value] of Object.entries(values)) {
  print(`-- ${name}`);
  print(util.inspect(value));
  print(util.inspect(value, { depth: 0 }));
  print(util.inspect(value, { depth: null, breakLength: 40 }));
  print(util.inspect(value, { compact: false }));
  print(util.inspect(value, { maxArrayLength: 2, maxStringLength: 5, sorted: true }));
}
const error = new Failure('broken');
const lines = util.inspect(error).split('\n');
print(lines[0], lines.length > 1);
const coded = new TypeError('with code');
coded.code = 'ERR_X';
coded.extra = { a: 1 };
print(util.inspect(coded).replace(/\n\s+at .*/g, ''));
const causal = new Error('outer', { cause: new Error('inner') });
print(util.inspect(causal).replace(/\n\s+(at|\.\.\.) .*/g, ''));
print(util.inspect({ error: new RangeError('in an object') }).replace(/\n\s+at .*?(?= \{|\n|$)/g, ''));

const formats = [
  ['%s %d %i %f %j %o %O %%', 'a', 1.5, 2.7, '3.5', { a: 1 }, [1], { b: { c: { d: {} } } }],
  ['%s', { a: { b: 1 } }],
  ['%s', new Foo()],
  ['%s', new Date(0)],
  ['%s', null, undefined, 5n, Symbol('x'), -0],
  ['%d', '42', 42n],
  ['%d', {}],
  ['%i', 'x'],
  ['%c styled', 'css'],
  ['only text %s'],
  ['100%', 1],
  ['%x', 1],
  ['a', 'b', { c: 1 }, ['d']],
  [1, 2, 'x'],
  ['%%'],
  ['%s%s', 'a'],
  [{ a: 1 }, '%s', 'x'],
  [],
  ['%j', circular],
  ['%s', () => {}],
  ['%s', class A {}],
  ['%s', { toString: () => 'own' }],
  ['%s', [1, [2, [3]]]],
];
for (const args of formats) print('>', util.format(...args));
print(
  util.types.isDate(new Date()),
  util.types.isRegExp(/x/),
  util.types.isMap(new Map()),
  util.types.isPromise(Promise.resolve()),
  util.types.isUint8Array(new Uint8Array()),
);
print(
  util.types.isAsyncFunction(async () => {}),
  util.types.isGeneratorFunction(function* () {}),
  util.types.isNativeError(new Error()),
  util.types.isBoxedPrimitive(Object(1)),
);
function Parent() {}
function Child() {}
util.inherits(Child, Parent);
print(Child.super_ === Parent, new Child() instanceof Parent);
print(util.stripVTControlCharacters('\u001b[31mred\u001b[0m'), util.toUSVString('a\ud800'));

const deep = util.isDeepStrictEqual;
const pairs = [
  [1, 1],
  [1, '1'],
  [NaN, NaN],
  [0, -0],
  [{ a: 1 }, { a: 1 }],
  [{ a: 1 }, { a: '1' }],
  [
    [1, 2],
    [1, 2],
  ],
  [
    [1, 2],
    [2, 1],
  ],
  [new Map([[1, { a: 1 }]]), new Map([[1, { a: 1 }]])],
  [new Set([1, { a: 1 }]), new Set([{ a: 1 }, 1])],
  [new Set([1]), new Set([2])],
  [new Date(1), new Date(1)],
  [new Date(1), new Date(2)],
  [/a/g, /a/g],
  [/a/g, /a/i],
  [new Foo(), new Foo()],
  [new Foo(), { a: 1 }],
  [new Error('a'), new Error('a')],
  [new Error('a'), new Error('b')],
  [new Uint8Array([1]), new Uint8Array([1])],
  [new Uint8Array([1]), [1]],
  [circular, circular],
  [null, undefined],
  [Object(1), Object(1)],
  [Object(1), Object(2)],
  [{ a: undefined }, {}],
  [
    [1, , 3],
    [1, undefined, 3],
  ],
  [Symbol.for('a'), Symbol.for('a')],
  [new Map([[{ k: 1 }, 1]]), new Map([[{ k: 1 }, 1]])],
  [() => {}, () => {}],
  [{ [Symbol.for('x')]: 1 }, { [Symbol.for('x')]: 2 }],
];
print(pairs.map(([first, second]) => deep(first, second)).join());

(async () => {
  const late = util.promisify((value, callback) => setTimeout(callback, 1, null, value + 1));
  print(await late(1));
  await util
    .promisify((callback) => callback(new Error('no')))()
    .catch((failure) => print(failure.message));
  util.callbackify(async (value) => value * 2)(4, (failure, value) => print(failure, value));
  util.callbackify(async () => {
    throw null;
  })((failure) => print(failure.code));
  process.emitWarning = (text, type) => print('warning', text, type);
  const old = util.deprecate((value) => value, 'old');
  print(old(3), old(4));
})();

// Call sites, as depd uses them.
const { prepareStackTrace } = Error;
Error.prepareStackTrace = (failure, sites) => sites;
const holder = {};
Error.captureStackTrace(holder);
const [site] = holder.stack;
Error.prepareStackTrace = prepareStackTrace;
print(site.isEval(), typeof site.getFileName(), typeof site.getLineNumber(), typeof site.getColumnNumber());
