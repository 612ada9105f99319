// SPDX-License-Identifier: BSL-1.0
// The object `console`: text for people, formatted as by util.format.
//
// A line of one string, the usual case, needs no formatting and does not load `util`.
'use strict';

const binding = internalBinding('console');
let indentation = '';
const counts = new Map();
const timers = new Map();

function text(args) {
  if (args.length === 1 && typeof args[0] === 'string') return args[0];
  return require('util').format(...args);
}

function write(level, args) {
  let line = text(args);
  if (indentation !== '') line = `${indentation}${line.replaceAll('\n', `\n${indentation}`)}`;
  binding.write(level, line);
}

function now_ms() {
  return Number(require('process').hrtime.bigint()) / 1e6;
}

function duration(label) {
  const start_ms = timers.get(label);
  if (start_ms === undefined) {
    require('process').emitWarning(`No such label '${label}' for console.time()`);
    return undefined;
  }
  const elapsed_ms = now_ms() - start_ms;
  return elapsed_ms >= 1000 ? `${(elapsed_ms / 1000).toFixed(3)}s` : `${Number(elapsed_ms.toFixed(3))}ms`;
}

function Console() {
  return Object.create(console);
}

const console = {
  log: (...args) => write('log', args),
  info: (...args) => write('info', args),
  debug: (...args) => write('debug', args),
  warn: (...args) => write('warn', args),
  error: (...args) => write('error', args),
  dir: (value, options) => write('log', [require('util').inspect(value, { customInspect: false, ...options })]),
  dirxml: (...args) => write('log', args),
  trace(...args) {
    const stack = String(new Error().stack).split('\n');
    const frames = stack.filter((line) => /^\s+at /.test(line)).slice(1);
    write('error', [`Trace${args.length > 0 ? `: ${text(args)}` : ''}\n${frames.join('\n')}`]);
  },
  assert(condition, ...args) {
    if (condition) return;
    if (typeof args[0] === 'string') args[0] = `Assertion failed: ${args[0]}`;
    else args.unshift('Assertion failed');
    write('warn', args);
  },
  group(...args) {
    if (args.length > 0) write('log', args);
    indentation += '  ';
  },
  groupEnd() {
    indentation = indentation.slice(2);
  },
  count(label = 'default') {
    const count = (counts.get(`${label}`) ?? 0) + 1;
    counts.set(`${label}`, count);
    write('log', [`${label}: ${count}`]);
  },
  countReset(label = 'default') {
    counts.delete(`${label}`);
  },
  time(label = 'default') {
    timers.set(`${label}`, now_ms());
  },
  timeEnd(label = 'default') {
    const elapsed = duration(`${label}`);
    if (elapsed !== undefined) write('log', [`${label}: ${elapsed}`]);
    timers.delete(`${label}`);
  },
  timeLog(label = 'default', ...args) {
    const elapsed = duration(`${label}`);
    if (elapsed !== undefined) write('log', [`${label}: ${elapsed}`, ...args]);
  },
  table(data, columns) {
    if (data === null || typeof data !== 'object') write('log', [data]);
    else write('log', [require('_console_table').table(data, columns)]);
  },
  clear() {},
  profile() {},
  profileEnd() {},
  timeStamp() {},
  Console,
};
console.groupCollapsed = console.group;

module.exports = console;
