// SPDX-License-Identifier: BSL-1.0
// path, querystring, assert, string_decoder, crypto, timers, process and console: each line must be that of Node.
'use strict';
const path = require('path');
const querystring = require('querystring');
const assert = require('assert');
const { StringDecoder } = require('string_decoder');
const crypto = require('crypto');
const { Buffer } = require('buffer');

const attempt = (name, action) => {
  try {
    const value = action();
    print(name, typeof value === 'string' ? value : JSON.stringify(value));
  } catch (error) {
    print(name, error.name, error.code);
  }
};

const paths = [
  '',
  '/',
  '//',
  '.',
  '..',
  './',
  '../',
  'a',
  'a/',
  '/a',
  '/a/',
  '//a',
  'a//b',
  'a/b/../c',
  '/a/b/../../..',
  '../../x',
  './a/./b',
  'file.txt',
  '.hidden',
  '.hidden.x',
  'a.b.c',
  'a.',
  '..a',
  '/x/y.z/',
  'a/..',
  '/a/b//',
  '///a///b',
  'a/.',
  'x/.y',
];
for (const name of paths) {
  print(
    JSON.stringify([
      name,
      path.normalize(name),
      path.isAbsolute(name),
      path.dirname(name),
      path.basename(name),
      path.extname(name),
      path.basename(name, '.txt'),
      path.basename(name, 'a'),
    ]),
    JSON.stringify(path.parse(name)),
    path.format(path.parse(name)),
  );
  for (const other of paths) print(path.join(name, other), path.resolve('/base', name, other), path.relative(`/r/${name}`, `/r/${other}`));
}
attempt('join', () => path.join('a', 5));
attempt('basename', () => path.basename());
print(
  path.sep,
  path.delimiter,
  path.posix === path,
  path.join(),
  path.format({ dir: '/d', name: 'n', ext: 'e' }),
  path.format({ root: '/', base: 'b' }),
);

const queries = [
  '',
  'a=1',
  'a=1&b=2',
  'a=1&a=2&a=3',
  'a',
  '=b',
  'a=',
  '&&a=1&',
  'a=b=c',
  'a%20b=c%2Bd+e',
  'a=%',
  'a=%zz',
  'a=%e2%82%ac',
  'a=%e2%82',
  '%C3%A9=x',
  'a=+',
  'toString=1',
  'é=€',
];
for (const query of queries) print(JSON.stringify([query, Object.entries(querystring.parse(query))]));
print(
  JSON.stringify(Object.entries(querystring.parse('a:1;b:2', ';', ':'))),
  JSON.stringify(Object.entries(querystring.parse('a=1&b=2&c=3', null, null, { maxKeys: 2 }))),
);
for (const object of [
  {},
  { a: 1 },
  { a: [1, 2], b: 'x y&z', c: true, d: null, e: undefined, f: NaN, g: {} },
  { é: '€', "!'()*~": "!'()*~-._" },
  null,
  'text',
  { a: [] },
  { a: 5n },
])
  print(querystring.stringify(object));
print(querystring.stringify({ a: 1, b: [2, 3] }, ';', ':'), querystring.escape('a b/ü'), querystring.unescape('%41%zz'));

const cases = [
  ['ok', [true], [0], ['', 'message']],
  ['equal', [1, '1'], [1, 2], [NaN, NaN]],
  ['strictEqual', [1, 1], [1, '1'], [NaN, NaN], [0, -0]],
  ['notStrictEqual', [1, 2], [1, 1]],
  ['deepEqual', [{ a: 1 }, { a: '1' }], [[1], [2]], [new Set([1]), new Set(['1'])]],
  ['deepStrictEqual', [{ a: [1] }, { a: [1] }], [{ a: 1 }, { a: '1' }]],
  ['notDeepStrictEqual', [{ a: 1 }, { a: 2 }], [{ a: 1 }, { a: 1 }]],
  ['match', ['abc', /b/], ['abc', /x/]],
  ['doesNotMatch', ['abc', /x/], ['abc', /b/]],
  ['ifError', [null], [new Error('x')]],
  ['fail', [], ['message']],
];
for (const [name, ...calls] of cases) for (const args of calls) attempt(name, () => assert[name](...args) ?? 'passes');
const thrower = () => {
  throw Object.assign(new TypeError('wrong value'), { code: 'X' });
};
for (const expected of [
  undefined,
  TypeError,
  RangeError,
  /wrong/,
  /right/,
  { message: 'wrong value', code: 'X' },
  { code: 'Y' },
  (error) => error.code === 'X',
  () => false,
  'message',
])
  attempt('throws', () => assert.throws(thrower, expected) ?? 'passes');
attempt('no throw', () => assert.throws(() => {}) ?? 'passes');
attempt('doesNotThrow', () => assert.doesNotThrow(thrower));
attempt('strict', () => assert.strict.equal(1, '1'));
attempt('own error', () => assert.ok(false, new RangeError('own')));
try {
  assert.strictEqual(1, 2, 'the message');
} catch (error) {
  print(
    error.message.split('\n')[0],
    error.actual,
    error.expected,
    error.operator,
    error.generatedMessage,
    error instanceof assert.AssertionError,
    error instanceof Error,
  );
}

const bytes = Buffer.from('aé€😀z\u{10ffff}', 'utf8');
for (const encoding of ['utf8', 'base64', 'base64url', 'hex', 'latin1', 'ascii', 'utf16le']) {
  const input = encoding === 'utf16le' ? Buffer.from('aé😀z', 'utf16le') : bytes;
  // Node's own decoder cuts a pair of surrogates that comes byte by byte.
  for (let size = encoding === 'utf16le' ? 2 : 1; size < 6; size++) {
    const decoder = new StringDecoder(encoding);
    const parts = [];
    for (let index = 0; index < input.length; index += size) parts.push(decoder.write(input.subarray(index, index + size)));
    parts.push(decoder.end());
    print(encoding, size, JSON.stringify(parts));
  }
}
for (const broken of [[0xe2, 0x82], [0xf0, 0x9f], [0xc3], [0xff, 0x41], [0xe2, 0x41], [0xed, 0xa0, 0x80], [0xf0, 0x80, 0x41]]) {
  const decoder = new StringDecoder();
  print(JSON.stringify([broken.map((byte) => decoder.write(Buffer.from([byte]))).join(''), decoder.end()]));
}
attempt('decoder', () => new StringDecoder('nothing'));

for (const name of ['md5', 'sha1', 'sha256']) {
  for (const size of [0, 1, 3, 55, 56, 63, 64, 65, 119, 120, 200])
    print(name, size, crypto.createHash(name).update('x'.repeat(size)).digest('hex'));
  print(
    crypto.createHash(name).update('a').update(Buffer.from('b')).digest('base64'),
    crypto.createHmac(name, 'key').update('text').digest('hex'),
    crypto.createHmac(name, 'k'.repeat(100)).update('text').digest('hex'),
  );
}
print(
  crypto.randomUUID().length,
  /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/.test(crypto.randomUUID()),
  crypto.randomBytes(5).length,
  crypto.randomInt(1),
  crypto.timingSafeEqual(Buffer.from('a'), Buffer.from('a')),
);
attempt('lengths', () => crypto.timingSafeEqual(Buffer.from('a'), Buffer.from('ab')));
attempt('twice', () => {
  const hash = crypto.createHash('md5');
  hash.digest();
  hash.digest();
});

const real = setTimeout;
print(typeof real(() => {}, 0), typeof clearTimeout, require('timers').setTimeout === setTimeout);
(async () => {
  const timers = require('timers/promises');
  print(
    await timers.setTimeout(1, 'value'),
    await timers.setImmediate('now'),
    await require('util').promisify(setTimeout)(1, 'promisified'),
  );
  const controller = new AbortController();
  const waiting = timers.setTimeout(1000, null, { signal: controller.signal }).catch((error) => print(error.name, error.code));
  controller.abort();
  await waiting;
  let count = 0;
  for await (const tick of timers.setInterval(1, 'tick')) {
    print(tick);
    if (++count === 3) break;
  }
  await assert.rejects(Promise.reject(new Error('no')), /no/);
  await assert.rejects(Promise.resolve(1)).catch((error) => print(error.message));
  await assert.doesNotReject(async () => {});
  const order = [];
  setImmediate(() => order.push('immediate'));
  setTimeout(() => order.push('timer'), 5);
  process.nextTick((value) => order.push(value), 'tick');
  Promise.resolve().then(() => order.push('micro'));
  await timers.setTimeout(20);
  print(order.join());
  print(
    typeof process.version,
    process.cwd().startsWith('/'),
    Array.isArray(process.hrtime()),
    typeof process.hrtime.bigint(),
    process.uptime() >= 0,
    typeof process.memoryUsage().heapUsed,
    process.arch,
    String(process),
  );
  print(Array.isArray(process.argv), typeof process.env, process.title.length > 0, process.listenerCount('exit'));
})();
