// SPDX-License-Identifier: BSL-1.0
// Runs one test program, with Node's own modules or with the library in a fresh realm of Node.
//
//   node run.js node PROGRAM        node run.js library PROGRAM
//
// The program prints lines; the test compares the lines of both runs.
'use strict';

const fs = require('node:fs');
const path = require('node:path');
const vm = require('node:vm');

const [mode, program] = process.argv.slice(2);
const text = fs.readFileSync(program, 'utf8');
const wrap = (body) => `(function (exports, require, module, print) {${body}\n})`;

if (mode === 'node') {
  vm.runInThisContext(wrap(text), { filename: program })({}, require, { exports: {} }, (...items) =>
    process.stdout.write(`${items.join(' ')}\n`),
  );
} else {
  const library = path.join(__dirname, '..');
  const context = vm.createContext({});
  vm.runInContext('delete globalThis.console;', context);
  // Natives of the engine that the library expects as globals. They are Node's own here.
  const engine = [
    'AbortController',
    'URL',
    'URLSearchParams',
    'Event',
    'EventTarget',
    'AbortSignal',
    'DOMException',
    'performance',
    'structuredClone',
  ];
  for (const name of engine) context[name] = globalThis[name];
  vm.runInContext('globalThis.queueMicrotask = (callback) => { Promise.resolve().then(callback); };', context);
  for (const name of ['mock_text.js', 'mock_encoder.js', 'mock_http.js', 'mock_binding.js']) {
    const file = path.join(__dirname, name);
    vm.runInContext(fs.readFileSync(file, 'utf8'), context, { filename: file });
  }
  const print = (...items) => process.stdout.write(`${items.join(' ')}\n`);
  const made = context.makeLibrary({
    read: (name) => (fs.existsSync(path.join(library, name)) ? fs.readFileSync(path.join(library, name), 'utf8') : undefined),
    compile: (body, name) => vm.runInContext(body, context, { filename: path.join(library, `${name.replace('/', '_')}.js`) }),
    print,
    nextTick: process.nextTick,
  });
  made.require('_bootstrap');
  context.testLibrary = made;
  vm.runInContext(wrap(text), context, { filename: program })({}, made.require, { exports: {} }, print);
  const step = () => setImmediate(() => made.runOneTimer() && step());
  step();
}
