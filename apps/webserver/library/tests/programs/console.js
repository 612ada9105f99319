// SPDX-License-Identifier: BSL-1.0
'use strict';
// Node writes to its output, the library calls print for each piece of text.
console.log('plain');
console.log('%s is %d', 'x', 5, { a: 1 });
console.info([1, 2], 'text');
console.debug(new Map([[1, 2]]));
console.log();
console.group('group');
console.log('inside\ntwo lines');
console.group();
console.log('deeper');
console.groupEnd();
console.groupEnd();
console.log('outside');
console.count();
console.count('named');
console.count();
console.countReset();
console.count();
console.table([
  { a: 1, b: 'x' },
  { a: 2, c: true },
]);
console.table([
  [1, 2],
  [3, 4],
]);
console.table([1, 'two', { three: 3 }]);
console.table({ row: { x: 1 }, other: { x: 2 } }, ['x']);
console.table(5);
console.dir({ a: { b: { c: { d: 1 } } } }, { depth: 0 });
process.stdout.write('written\n');
