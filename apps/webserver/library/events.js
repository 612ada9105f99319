// SPDX-License-Identifier: BSL-1.0
// EventEmitter, as in Node.
//
// Each HTTP request makes two emitters, and most programs add no listener to them. So an emitter has no state until the first `on`: natives
// create the objects without a constructor. One listener of an event is stored as the function itself, more as an array; `emit` with up to
// three arguments makes no array of arguments.
'use strict';

const { withCode, argumentType, checkNumber, checkFunction, AbortError } = require('_errors');

const errorMonitor = Symbol('events.errorMonitor');
const captureRejectionSymbol = Symbol.for('nodejs.rejection');
let defaultMaxListeners = 10;

function EventEmitter(options) {
  EventEmitter.init.call(this, options);
}

EventEmitter.init = function () {
  // A subclass's prototype may have inherited `_events`: only an own table counts.
  if (this._events === undefined || this._events === Object.getPrototypeOf(this)._events) {
    this._events = Object.create(null);
    this._eventsCount = 0;
  }
};

EventEmitter.prototype._events = undefined;
EventEmitter.prototype._eventsCount = 0;
EventEmitter.prototype._maxListeners = undefined;

EventEmitter.prototype.setMaxListeners = function setMaxListeners(count) {
  checkNumber(count, 'setMaxListeners', 0);
  this._maxListeners = count;
  return this;
};

EventEmitter.prototype.getMaxListeners = function getMaxListeners() {
  return this._maxListeners === undefined ? defaultMaxListeners : this._maxListeners;
};

function emitError(emitter, args) {
  const events = emitter._events;
  if (events !== undefined && events[errorMonitor] !== undefined) emitter.emit(errorMonitor, ...args);
  if (events !== undefined && events.error !== undefined) return false;
  const error = args[0];
  if (error instanceof Error) throw error;
  let text;
  try {
    text = require('util').inspect(error);
  } catch {
    text = String(error);
  }
  const unhandled = withCode(Error, 'ERR_UNHANDLED_ERROR', `Unhandled error. (${text})`);
  unhandled.context = error;
  throw unhandled;
}

EventEmitter.prototype.emit = function emit(type, first, second, third) {
  const count = arguments.length;
  if (type === 'error') emitError(this, Array.prototype.slice.call(arguments, 1));
  const events = this._events;
  if (events === undefined) return false;
  const handler = events[type];
  if (handler === undefined) return false;
  if (typeof handler === 'function') {
    if (count === 1) handler.call(this);
    else if (count === 2) handler.call(this, first);
    else if (count === 3) handler.call(this, first, second);
    else if (count === 4) handler.call(this, first, second, third);
    else handler.apply(this, Array.prototype.slice.call(arguments, 1));
    return true;
  }
  const args = Array.prototype.slice.call(arguments, 1);
  const copy = handler.slice();
  for (let index = 0; index < copy.length; index++) copy[index].apply(this, args);
  return true;
};

function checkListener(listener) {
  if (typeof listener !== 'function') throw argumentType('listener', 'Function', listener);
}

function warnOfLeak(emitter, type, list) {
  list.warned = true;
  const name = emitter.constructor && emitter.constructor.name ? emitter.constructor.name : 'EventEmitter';
  const warning = new Error(
    `Possible EventEmitter memory leak detected. ${list.length} ${String(type)} listeners added to [${name}]. ` +
      'Use emitter.setMaxListeners() to increase limit',
  );
  warning.name = 'MaxListenersExceededWarning';
  warning.emitter = emitter;
  warning.type = type;
  warning.count = list.length;
  if (typeof process === 'object' && process !== null && process.emitWarning) process.emitWarning(warning);
}

function ownEvents(emitter) {
  let events = emitter._events;
  if (events === undefined) {
    events = emitter._events = Object.create(null);
    emitter._eventsCount = 0;
  }
  return events;
}

function add(emitter, type, listener, prepend) {
  checkListener(listener);
  let events = ownEvents(emitter);
  if (events.newListener !== undefined) {
    emitter.emit('newListener', type, listener.listener ?? listener);
    events = ownEvents(emitter);
  }
  const existing = events[type];
  if (existing === undefined) {
    events[type] = listener;
    emitter._eventsCount++;
    return emitter;
  }
  let list = existing;
  if (typeof existing === 'function') list = events[type] = prepend ? [listener, existing] : [existing, listener];
  else if (prepend) existing.unshift(listener);
  else existing.push(listener);
  const maximum = emitter.getMaxListeners();
  if (maximum > 0 && list.length > maximum && !list.warned) warnOfLeak(emitter, type, list);
  return emitter;
}

EventEmitter.prototype.addListener = function addListener(type, listener) {
  return add(this, type, listener, false);
};
EventEmitter.prototype.on = EventEmitter.prototype.addListener;

EventEmitter.prototype.prependListener = function prependListener(type, listener) {
  return add(this, type, listener, true);
};

function wrapOnce(emitter, type, listener) {
  checkListener(listener);
  let fired = false;
  const wrapper = function (...args) {
    if (fired) return undefined;
    emitter.removeListener(type, wrapper);
    fired = true;
    return listener.apply(emitter, args);
  };
  wrapper.listener = listener;
  return wrapper;
}

EventEmitter.prototype.once = function once(type, listener) {
  this.on(type, wrapOnce(this, type, listener));
  return this;
};

EventEmitter.prototype.prependOnceListener = function prependOnceListener(type, listener) {
  this.prependListener(type, wrapOnce(this, type, listener));
  return this;
};

EventEmitter.prototype.removeListener = function removeListener(type, listener) {
  checkListener(listener);
  const events = this._events;
  if (events === undefined) return this;
  const list = events[type];
  if (list === undefined) return this;
  let removed = listener;
  if (list === listener || list.listener === listener) {
    delete events[type];
    this._eventsCount--;
    removed = list.listener || listener;
  } else if (typeof list !== 'function') {
    let position = list.length - 1;
    while (position >= 0 && list[position] !== listener && list[position].listener !== listener) position--;
    if (position < 0) return this;
    removed = list[position].listener || listener;
    list.splice(position, 1);
    if (list.length === 1) events[type] = list[0];
  } else {
    return this;
  }
  if (events.removeListener !== undefined) this.emit('removeListener', type, removed);
  return this;
};
EventEmitter.prototype.off = EventEmitter.prototype.removeListener;

EventEmitter.prototype.removeAllListeners = function removeAllListeners(type) {
  const events = this._events;
  if (events === undefined) return this;
  if (events.removeListener === undefined) {
    if (arguments.length === 0) {
      this._events = Object.create(null);
      this._eventsCount = 0;
    } else if (events[type] !== undefined) {
      delete events[type];
      this._eventsCount--;
    }
    return this;
  }
  if (arguments.length === 0) {
    for (const key of Reflect.ownKeys(events)) if (key !== 'removeListener') this.removeAllListeners(key);
    this.removeAllListeners('removeListener');
    this._events = Object.create(null);
    this._eventsCount = 0;
    return this;
  }
  const list = events[type];
  if (typeof list === 'function') this.removeListener(type, list);
  else if (list !== undefined) for (const listener of list.slice().reverse()) this.removeListener(type, listener);
  return this;
};

function listOf(emitter, type, unwrap) {
  const events = emitter._events;
  const list = events === undefined ? undefined : events[type];
  if (list === undefined) return [];
  const copy = typeof list === 'function' ? [list] : list.slice();
  return unwrap ? copy.map((listener) => listener.listener || listener) : copy;
}

EventEmitter.prototype.listeners = function listeners(type) {
  return listOf(this, type, true);
};

EventEmitter.prototype.rawListeners = function rawListeners(type) {
  return listOf(this, type, false);
};

function listenerCount(type, listener) {
  const list = listOf(this, type, false);
  if (listener === undefined || listener === null) return list.length;
  return list.filter((item) => item === listener || item.listener === listener).length;
}
EventEmitter.prototype.listenerCount = listenerCount;

EventEmitter.prototype.eventNames = function eventNames() {
  return this._events === undefined ? [] : Reflect.ownKeys(this._events);
};

/// A promise of the next event, as an array of its arguments; rejected by 'error' or by the signal.
function once(emitter, name, options = {}) {
  const signal = options && options.signal;
  return new Promise((resolve, reject) => {
    if (signal && signal.aborted) {
      reject(new AbortError(undefined, { cause: signal.reason }));
      return;
    }
    const isTarget = typeof emitter.addEventListener === 'function' && typeof emitter.on !== 'function';
    const listen = (type, listener) => (isTarget ? emitter.addEventListener(type, listener, { once: true }) : emitter.once(type, listener));
    const ignore = (type, listener) => (isTarget ? emitter.removeEventListener(type, listener) : emitter.removeListener(type, listener));
    const onAbort = () => {
      ignore(name, onEvent);
      ignore('error', onError);
      reject(new AbortError(undefined, { cause: signal.reason }));
    };
    const onError = (error) => {
      ignore(name, onEvent);
      if (signal) signal.removeEventListener('abort', onAbort);
      reject(error);
    };
    const onEvent = (...args) => {
      ignore('error', onError);
      if (signal) signal.removeEventListener('abort', onAbort);
      resolve(args);
    };
    listen(name, onEvent);
    if (name !== 'error' && !isTarget) emitter.once('error', onError);
    if (signal) signal.addEventListener('abort', onAbort, { once: true });
  });
}

/// An endless async iterator over the arguments of an event. `options.close` lists the events that end it. Events wait in a queue until
/// they are read.
function on(emitter, name, options = {}) {
  const signal = options && options.signal;
  if (signal && signal.aborted) throw new AbortError(undefined, { cause: signal.reason });
  const closeEvents = (options && options.close) || [];
  const waitingEvents = [];
  const waitingReaders = [];
  let failure = null;
  let finished = false;

  const onEvent = (...args) => {
    const reader = waitingReaders.shift();
    if (reader) reader.resolve({ value: args, done: false });
    else waitingEvents.push(args);
  };
  const onError = (error) => {
    const reader = waitingReaders.shift();
    if (reader) reader.reject(error);
    else failure = { error };
    finish();
  };
  const onAbort = () => onError(new AbortError(undefined, { cause: signal.reason }));
  function finish() {
    if (finished) return;
    finished = true;
    emitter.removeListener(name, onEvent);
    emitter.removeListener('error', onError);
    for (const type of closeEvents) emitter.removeListener(type, finish);
    if (signal) signal.removeEventListener('abort', onAbort);
    for (const reader of waitingReaders.splice(0)) reader.resolve({ value: undefined, done: true });
  }
  emitter.on(name, onEvent);
  if (name !== 'error') emitter.on('error', onError);
  for (const type of closeEvents) emitter.on(type, finish);
  if (signal) signal.addEventListener('abort', onAbort, { once: true });

  return {
    next() {
      if (waitingEvents.length > 0) return Promise.resolve({ value: waitingEvents.shift(), done: false });
      if (failure) {
        const { error } = failure;
        failure = null;
        return Promise.reject(error);
      }
      if (finished) return Promise.resolve({ value: undefined, done: true });
      return new Promise((resolve, reject) => waitingReaders.push({ resolve, reject }));
    },
    return() {
      waitingEvents.length = 0;
      finish();
      return Promise.resolve({ value: undefined, done: true });
    },
    throw(error) {
      onError(error);
      return Promise.resolve({ value: undefined, done: true });
    },
    [Symbol.asyncIterator]() {
      return this;
    },
  };
}

EventEmitter.once = once;
EventEmitter.on = on;
EventEmitter.EventEmitter = EventEmitter;
EventEmitter.errorMonitor = errorMonitor;
EventEmitter.captureRejectionSymbol = captureRejectionSymbol;
EventEmitter.captureRejections = false;
EventEmitter.usingDomains = false;
EventEmitter.listenerCount = (emitter, type) => emitter.listenerCount(type);
EventEmitter.getEventListeners = (emitter, type) => emitter.listeners(type);
EventEmitter.getMaxListeners = (emitter) => emitter.getMaxListeners();
EventEmitter.setMaxListeners = (count = defaultMaxListeners, ...emitters) => {
  checkNumber(count, 'setMaxListeners', 0);
  if (emitters.length === 0) defaultMaxListeners = count;
  for (const emitter of emitters) if (emitter.setMaxListeners) emitter.setMaxListeners(count);
};
EventEmitter.addAbortListener = (signal, listener) => {
  checkFunction(listener, 'listener');
  if (signal.aborted) queueMicrotask(() => listener());
  else signal.addEventListener('abort', listener, { once: true });
  return {
    [Symbol.dispose ?? Symbol.for('Symbol.dispose')]() {
      signal.removeEventListener('abort', listener);
    },
  };
};
Object.defineProperty(EventEmitter, 'defaultMaxListeners', {
  enumerable: true,
  get: () => defaultMaxListeners,
  set(count) {
    checkNumber(count, 'defaultMaxListeners', 0);
    defaultMaxListeners = count;
  },
});

module.exports = EventEmitter;
