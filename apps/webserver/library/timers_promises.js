// SPDX-License-Identifier: BSL-1.0
// The module `timers/promises`.
'use strict';

const timers = require('timers');
const { AbortError } = require('_errors');

// A promise that `start(resolve)` settles, or an abort of the signal.
function abortable(options, start, stop) {
  const signal = options?.signal;
  return new Promise((resolve, reject) => {
    if (signal?.aborted) {
      reject(new AbortError(undefined, { cause: signal.reason }));
      return;
    }
    const onAbort = () => {
      stop(timer);
      reject(new AbortError(undefined, { cause: signal.reason }));
    };
    const timer = start((value) => {
      signal?.removeEventListener('abort', onAbort);
      resolve(value);
    });
    if (options?.ref === false) timer.unref?.();
    signal?.addEventListener('abort', onAbort, { once: true });
  });
}

function setTimeout(delay_ms, value, options) {
  return abortable(options, (resolve) => timers.setTimeout(() => resolve(value), delay_ms), timers.clearTimeout);
}

function setImmediate(value, options) {
  return abortable(options, (resolve) => timers.setImmediate(() => resolve(value)), timers.clearImmediate);
}

async function* setInterval(delay_ms, value, options) {
  const signal = options?.signal;
  if (signal?.aborted) throw new AbortError(undefined, { cause: signal.reason });
  let due = 0;
  let wake = () => {};
  const timer = timers.setInterval(() => {
    due++;
    wake();
  }, delay_ms);
  const onAbort = () => wake();
  signal?.addEventListener('abort', onAbort, { once: true });
  try {
    for (;;) {
      if (signal?.aborted) throw new AbortError(undefined, { cause: signal.reason });
      if (due === 0) await new Promise((resolve) => (wake = resolve));
      for (; due > 0; due--) yield value;
    }
  } finally {
    timers.clearInterval(timer);
    signal?.removeEventListener('abort', onAbort);
  }
}

module.exports = {
  setTimeout,
  setImmediate,
  setInterval,
  scheduler: { wait: (delay_ms, options) => setTimeout(delay_ms, undefined, options), yield: () => setImmediate() },
};
