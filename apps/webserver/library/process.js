// SPDX-License-Identifier: BSL-1.0
// The object `process`.
//
// There is no process and no operating system around the script: the image runs one program until the machine stops. So `exit` throws,
// streams of input are absent, and users, groups and signals have constant answers.
'use strict';

const EventEmitter = require('events');
const { withCode, argumentType } = require('_errors');
const binding = internalBinding('process');

const process = Object.create(
  Object.create(EventEmitter.prototype, {
    constructor: { value: function process() {}, configurable: true, writable: true },
    [Symbol.toStringTag]: { value: 'process', configurable: true },
  }),
);
EventEmitter.call(process);

const version = 'v20.20.2'; // of the Node whose behaviour this library follows

Object.assign(process, {
  title: 'neap',
  version,
  versions: { node: version.slice(1), neap: '0.1.0', modules: '115' },
  arch: 'x64',
  platform: 'neap',
  release: { name: 'node' },
  argv: binding.argv ? [...binding.argv] : ['neap'],
  execArgv: [],
  execPath: '/neap',
  argv0: 'neap',
  env: { ...binding.env },
  pid: 1,
  ppid: 0,
  exitCode: undefined,
  features: { inspector: false, debug: false, uv: false, ipv6: false, tls: false },
  config: { target_defaults: {}, variables: {} },
  nextTick: require('_ticks'),
  noDeprecation: false,
  connected: false,
  allowedNodeEnvironmentFlags: new Set(),
});

function now_ns() {
  const value = binding.hrtime();
  return typeof value === 'bigint' ? value : BigInt(Math.round(value));
}

process.hrtime = function hrtime(before) {
  if (before !== undefined && !Array.isArray(before)) throw argumentType('time', 'Array', before);
  const value = now_ns();
  let seconds = Number(value / 1000000000n);
  let rest_ns = Number(value % 1000000000n);
  if (before !== undefined) {
    seconds -= before[0];
    rest_ns -= before[1];
    if (rest_ns < 0) {
      seconds--;
      rest_ns += 1e9;
    }
  }
  return [seconds, rest_ns];
};
process.hrtime.bigint = now_ns;

process.uptime = () => binding.uptime();
process.memoryUsage = function memoryUsage() {
  return { rss: 0, heapTotal: 0, heapUsed: 0, external: 0, arrayBuffers: 0, ...binding.memoryUsage?.() };
};
process.memoryUsage.rss = () => process.memoryUsage().rss;
process.cpuUsage = () => ({ user: Math.round(process.uptime() * 1e6), system: 0 });
process.resourceUsage = () => ({ userCPUTime: Math.round(process.uptime() * 1e6), systemCPUTime: 0, maxRSS: 0 });
process.constrainedMemory = () => process.memoryUsage().heapTotal;
process.cwd = () => '/';
process.chdir = () => {
  throw withCode(Error, 'ENOENT', 'process.chdir is not available: there is one folder, /');
};
process.umask = () => 0o22;
process.getuid = process.geteuid = process.getgid = process.getegid = () => 0;
process.getgroups = () => [0];
process.getActiveResourcesInfo = () => [];
process.setUncaughtExceptionCaptureCallback = () => {};
process.hasUncaughtExceptionCaptureCallback = () => false;
process.setSourceMapsEnabled = () => {};

process.exit = function exit() {
  throw withCode(
    Error,
    'ERR_METHOD_NOT_IMPLEMENTED',
    'process.exit is not available: the machine runs this script until it is switched off',
  );
};
process.reallyExit = process.exit;
process.abort = process.exit;
process.kill = function kill() {
  throw withCode(Error, 'ERR_METHOD_NOT_IMPLEMENTED', 'process.kill is not available: there is one process');
};
process.dlopen = process.binding = function binding() {
  throw withCode(Error, 'ERR_METHOD_NOT_IMPLEMENTED', 'native modules are not available');
};

/// Prints a warning once for each code of a deprecation, and emits 'warning'.
process.emitWarning = function emitWarning(warning, type, code) {
  if (type !== null && typeof type === 'object') {
    ({ type, code } = type);
  }
  if (typeof warning === 'string') {
    const message = warning;
    warning = new Error(message);
    warning.name = String(type || 'Warning');
    if (code !== undefined) warning.code = code;
  } else if (!(warning instanceof Error)) throw argumentType('warning', ['string', 'Error'], warning);
  if (warning.name === 'DeprecationWarning' && process.noDeprecation) return;
  process.nextTick(() => {
    const shown = warning.code ? `[${warning.code}] ` : '';
    internalBinding('console').write('warn', `${shown}${warning.name}: ${warning.message}`);
    process.emit('warning', warning);
  });
};

// --- Uncaught errors: natives ask the listeners only if there are any ---

function handleUncaught(error, origin = 'uncaughtException') {
  process.emit('uncaughtExceptionMonitor', error, origin);
  return process.emit('uncaughtException', error, origin);
}

function handleRejection(reason, promise) {
  if (process.emit('unhandledRejection', reason, promise)) return true;
  return process.listenerCount('uncaughtException') > 0 && handleUncaught(reason, 'unhandledRejection');
}

let handlersSet = false;

for (const name of ['on', 'prependListener']) {
  const original = EventEmitter.prototype[name];
  Object.defineProperty(process, name, {
    configurable: true,
    writable: true,
    value(type, listener) {
      if (!handlersSet && (type === 'uncaughtException' || type === 'unhandledRejection') && binding.setHandlers) {
        handlersSet = true;
        binding.setHandlers(handleUncaught, handleRejection);
      }
      return original.call(this, type, listener);
    },
  });
}
Object.defineProperty(process, 'addListener', { value: process.on, configurable: true, writable: true });

// --- stdout and stderr: lines go to the console ---

function makeOutput(level, fd) {
  const { Writable } = require('stream');
  let pending = '';
  const output = new Writable({
    decodeStrings: false,
    write(chunk, encoding, callback) {
      pending += typeof chunk === 'string' ? chunk : chunk.toString('utf8');
      const end = pending.lastIndexOf('\n');
      if (end !== -1) {
        internalBinding('console').write(level, pending.slice(0, end));
        pending = pending.slice(end + 1);
      } else if (pending.length > 4096) {
        // A line without end must not fill the memory.
        internalBinding('console').write(level, pending);
        pending = '';
      }
      callback();
    },
  });
  output.fd = fd;
  output.isTTY = false;
  output.columns = 80;
  output.hasColors = () => false;
  output.getColorDepth = () => 1;
  output._type = 'fs';
  output.destroy = () => output;
  return output;
}

function lazy(name, make) {
  Object.defineProperty(process, name, {
    configurable: true,
    enumerable: true,
    get() {
      const value = make();
      Object.defineProperty(process, name, { value, configurable: true, enumerable: true, writable: true });
      return value;
    },
    set(value) {
      Object.defineProperty(process, name, { value, configurable: true, enumerable: true, writable: true });
    },
  });
}
lazy('stdout', () => makeOutput('log', 1));
lazy('stderr', () => makeOutput('error', 2));
lazy('stdin', () => {
  const { Readable } = require('stream');
  const input = new Readable({ read() {} });
  input.push(null);
  input.fd = 0;
  input.isTTY = false;
  return input;
});

module.exports = process;
