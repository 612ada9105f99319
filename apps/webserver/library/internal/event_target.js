// SPDX-License-Identifier: BSL-1.0
// Event, EventTarget, AbortController and AbortSignal of the DOM Standard, without a tree of targets.
'use strict';

const kTarget = Symbol('target');
const kStop = Symbol('stop');
const kAbort = Symbol('abort');

class Event {
  #type;
  #bubbles;
  #cancelable;
  #composed;
  #prevented = false;
  #passive = false;
  #timeStamp = performance.now();

  constructor(type, { bubbles = false, cancelable = false, composed = false } = {}) {
    if (arguments.length === 0) throw new TypeError('The "type" argument must be specified');
    this.#type = `${type}`;
    this.#bubbles = Boolean(bubbles);
    this.#cancelable = Boolean(cancelable);
    this.#composed = Boolean(composed);
    this[kTarget] = null;
    this[kStop] = false;
    for (const key of [kTarget, kStop]) Object.defineProperty(this, key, { enumerable: false });
  }
  get type() {
    return this.#type;
  }
  get bubbles() {
    return this.#bubbles;
  }
  get cancelable() {
    return this.#cancelable;
  }
  get composed() {
    return this.#composed;
  }
  get defaultPrevented() {
    return this.#prevented;
  }
  get timeStamp() {
    return this.#timeStamp;
  }
  get target() {
    return this[kTarget];
  }
  get currentTarget() {
    return this[kTarget];
  }
  get srcElement() {
    return this[kTarget];
  }
  get eventPhase() {
    return this[kTarget] === null ? 0 : 2;
  }
  get isTrusted() {
    return false;
  }
  composedPath() {
    return this[kTarget] === null ? [] : [this[kTarget]];
  }
  preventDefault() {
    if (this.#cancelable && !this.#passive) this.#prevented = true;
  }
  stopPropagation() {}
  stopImmediatePropagation() {
    this[kStop] = true;
  }
}
Object.assign(Event, { NONE: 0, CAPTURING_PHASE: 1, AT_TARGET: 2, BUBBLING_PHASE: 3 });

class CustomEvent extends Event {
  #detail;
  constructor(type, options = {}) {
    super(type, options);
    this.#detail = options.detail ?? null;
  }
  get detail() {
    return this.#detail;
  }
}

class EventTarget {
  #listeners = new Map();

  addEventListener(type, listener, options) {
    const { once = false, capture = false, signal } = typeof options === 'boolean' ? { capture: options } : (options ?? {});
    if (listener === null || listener === undefined) return;
    if (typeof listener !== 'function' && typeof listener !== 'object')
      throw new TypeError('The "listener" argument must be a function or an object');
    if (signal?.aborted) return;
    type = `${type}`;
    const list = this.#listeners.get(type) ?? [];
    if (list.some((each) => each.listener === listener && each.capture === Boolean(capture))) return;
    // A new list, because a dispatch may be going through the present one.
    this.#listeners.set(type, [...list, { listener, once: Boolean(once), capture: Boolean(capture), removed: false }]);
    signal?.addEventListener('abort', () => this.removeEventListener(type, listener, capture), { once: true });
  }

  removeEventListener(type, listener, options) {
    const capture = Boolean(typeof options === 'object' && options !== null ? options.capture : options);
    const list = this.#listeners.get(`${type}`) ?? [];
    const found = list.find((each) => each.listener === listener && each.capture === capture);
    if (found === undefined) return;
    found.removed = true;
    this.#listeners.set(
      `${type}`,
      list.filter((each) => each !== found),
    );
  }

  dispatchEvent(event) {
    if (!(event instanceof Event)) throw new TypeError('The "event" argument must be an instance of Event');
    event[kTarget] = this;
    event[kStop] = false;
    for (const each of this.#listeners.get(event.type) ?? []) {
      if (each.removed) continue;
      if (each.once) this.removeEventListener(event.type, each.listener, each.capture);
      try {
        if (typeof each.listener === 'function') each.listener.call(this, event);
        else each.listener.handleEvent(event);
      } catch (error) {
        // An error of a listener does not stop the others.
        process.nextTick(() => {
          throw error;
        });
      }
      if (event[kStop]) break;
    }
    return !event.defaultPrevented;
  }
}

/// A property such as `onabort`, which is a listener that can be replaced.
function defineHandler(prototype, type) {
  const handlers = new WeakMap();
  Object.defineProperty(prototype, `on${type}`, {
    get() {
      return handlers.get(this)?.handler ?? null;
    },
    set(handler) {
      const present = handlers.get(this);
      if (present) this.removeEventListener(type, present.listener);
      handlers.delete(this);
      if (typeof handler !== 'function') return;
      const listener = (event) => handler.call(this, event);
      handlers.set(this, { handler, listener });
      this.addEventListener(type, listener);
    },
    enumerable: true,
    configurable: true,
  });
}

let maySignal = false;

class AbortSignal extends EventTarget {
  #aborted = false;
  #reason;
  #sources = [];

  constructor() {
    super();
    if (!maySignal) throw Object.assign(new TypeError('Illegal constructor'), { code: 'ERR_ILLEGAL_CONSTRUCTOR' });
  }
  get aborted() {
    return this.#aborted;
  }
  get reason() {
    return this.#reason;
  }
  throwIfAborted() {
    if (this.#aborted) throw this.#reason;
  }
  [kAbort](reason) {
    if (this.#aborted) return;
    this.#aborted = true;
    this.#reason = reason === undefined ? new DOMException('This operation was aborted', 'AbortError') : reason;
    this.#sources = [];
    this.dispatchEvent(new Event('abort'));
  }

  static abort(reason) {
    const signal = newSignal();
    signal[kAbort](reason);
    return signal;
  }
  static timeout(delay) {
    const signal = newSignal();
    setTimeout(() => signal[kAbort](new DOMException('The operation was aborted due to timeout', 'TimeoutError')), delay).unref();
    return signal;
  }
  static any(signals) {
    const result = newSignal();
    const sources = [...signals];
    const done = sources.find((each) => each.aborted);
    if (done) {
      result[kAbort](done.reason);
      return result;
    }
    result.#sources = sources;
    for (const source of sources) source.addEventListener('abort', () => result[kAbort](source.reason), { once: true });
    return result;
  }
}
defineHandler(AbortSignal.prototype, 'abort');

function newSignal() {
  maySignal = true;
  try {
    return new AbortSignal();
  } finally {
    maySignal = false;
  }
}

class AbortController {
  #signal = newSignal();
  get signal() {
    return this.#signal;
  }
  abort(reason) {
    this.#signal[kAbort](reason);
  }
}

for (const each of [Event, CustomEvent, EventTarget, AbortSignal, AbortController]) {
  Object.defineProperty(each.prototype, Symbol.toStringTag, { value: each.name, configurable: true });
}

module.exports = { Event, CustomEvent, EventTarget, AbortSignal, AbortController, defineHandler };
