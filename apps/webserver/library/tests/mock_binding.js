// SPDX-License-Identifier: BSL-1.0
// The natives that the library needs, in plain JavaScript, with virtual time.
//
// `makeLibrary(host)` loads the library as the engine does: each file is wrapped in a function of (exports, require, module,
// internalBinding). The host gives `read(name)` and `compile(text, name)`. Timers fire in `runTimers`, in order of their deadlines, without
// any waiting.
'use strict';

(function (global) {
  function makeTimers() {
    let now_ms = 0;
    let sequence = 0;
    let pending = [];
    const add = (callback, delay, repeat, args) => {
      const delay_ms = delay >= 1 && delay < 2 ** 31 ? Math.trunc(delay) : 1;
      const timer = { callback, args, delay_ms, repeat, due_ms: now_ms + delay_ms, sequence: sequence++ };
      timer.hasRef = () => true;
      timer.ref = timer.unref = () => timer;
      timer.refresh = () => {
        timer.due_ms = now_ms + delay_ms;
        if (!pending.includes(timer)) pending.push(timer);
        return timer;
      };
      pending.push(timer);
      return timer;
    };
    const binding = {
      start: (callback, delay_ms, repeat, ...args) => add(callback, delay_ms, repeat, args),
      stop: (timer) => {
        pending = pending.filter((other) => other !== timer);
      },
      ref: (timer) => timer,
      unref: (timer) => timer,
      setImmediate(callback, ...args) {
        const timer = add(callback, 1, false, args);
        timer.due_ms = now_ms;
        return timer;
      },
    };
    binding.clearImmediate = binding.stop;
    const runOne = () => {
      if (pending.length === 0) return false;
      pending.sort((first, second) => first.due_ms - second.due_ms || first.sequence - second.sequence);
      const timer = pending.shift();
      now_ms = Math.max(now_ms, timer.due_ms);
      if (timer.repeat) {
        timer.due_ms = now_ms + timer.delay_ms;
        timer.sequence = sequence++;
        pending.push(timer);
      }
      timer.callback(...timer.args);
      return true;
    };
    return { binding, runOne, now: () => now_ms };
  }

  // As in Node, ticks run when no microtask is left, and microtasks run after each tick.
  function makeTicks(host) {
    if (host.nextTick) return { nextTick: host.nextTick, runTicks: () => false };
    const queue = [];
    return {
      runTicks() {
        if (queue.length === 0) return false;
        const { callback, args } = queue.shift();
        callback(...args);
        return true;
      },
      nextTick(callback, ...args) {
        queue.push({ callback, args });
      },
    };
  }

  global.makeLibrary = function makeLibrary(host) {
    const timers = makeTimers();
    const ticks = makeTicks(host);
    let seed = 1;
    const bindings = {
      text: global.mockText,
      timers: timers.binding,
      console: { write: (level, text) => host.print(text) },
      process: {
        hrtime: () => BigInt(timers.now()) * 1000000n,
        uptime: () => timers.now() / 1000,
        memoryUsage: () => ({ rss: 1, heapTotal: 2, heapUsed: 1, external: 0 }),
        argv: ['neap', '/server.js'],
        env: { LANGUAGE: 'none' },
        nextTick: ticks.nextTick,
      },
      random: {
        fill(bytes) {
          for (let index = 0; index < bytes.length; index++) {
            seed = (seed * 1103515245 + 12345) % 2147483648;
            bytes[index] = seed >> 16;
          }
        },
      },
      archive: {
        readFile: (path) => (path === '/hello.txt' ? global.mockText.encode('hello, archive\n', 'utf8') : undefined),
        stat: (path) => {
          if (path === '/') return { size: 0, directory: true };
          return path === '/hello.txt' ? { size: 15, directory: false } : undefined;
        },
        list: (path) => (path === '/' ? ['hello.txt'] : undefined),
      },
    };
    const internalBinding = (name) => {
      if (name === 'http') return (bindings.http ??= global.makeHttp(bindings, timers));
      return bindings[name];
    };
    const loaded = new Map();
    const load = (name) => {
      name = name.replace(/^node:/, '');
      if (loaded.has(name)) return loaded.get(name).exports;
      const text = host.read(`${name.replace('/', '_')}.js`);
      if (text === undefined) {
        const error = new Error(`Cannot find module '${name}'`);
        error.code = 'MODULE_NOT_FOUND';
        throw error;
      }
      const module = { exports: {} };
      loaded.set(name, module);
      const wrapper = host.compile(`(function (exports, require, module, internalBinding) {${text}\n})`, name);
      wrapper.call(module.exports, module.exports, load, module, internalBinding);
      return module.exports;
    };
    return { require: load, internalBinding, bindings, runOneTimer: timers.runOne, runTicks: ticks.runTicks, loaded };
  };
})(globalThis);
