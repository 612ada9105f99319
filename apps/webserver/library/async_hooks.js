// SPDX-License-Identifier: BSL-1.0
// The module `async_hooks`.
//
// The engine cannot follow a context through await, so an AsyncLocalStorage would lose its value without notice. Its constructor throws
// instead. AsyncResource works: without contexts, running a function in a scope is to call it.
'use strict';

const { withCode } = require('_errors');

class AsyncLocalStorage {
  constructor() {
    throw withCode(
      Error,
      'ERR_METHOD_NOT_IMPLEMENTED',
      'AsyncLocalStorage is not available: the engine does not follow contexts through await',
    );
  }

  static bind(action) {
    return action;
  }

  static snapshot() {
    return (action, ...args) => action(...args);
  }
}

class AsyncResource {
  constructor(type) {
    this.type = type;
  }

  runInAsyncScope(action, self, ...args) {
    return Reflect.apply(action, self, args);
  }

  bind(action, self) {
    return action.bind(self);
  }

  emitDestroy() {
    return this;
  }

  asyncId() {
    return 1;
  }

  triggerAsyncId() {
    return 0;
  }

  static bind(action, type, self) {
    return action.bind(self);
  }
}

const hook = {
  enable: () => hook,
  disable: () => hook,
};

module.exports = {
  AsyncLocalStorage,
  AsyncResource,
  createHook: () => hook,
  executionAsyncId: () => 1,
  triggerAsyncId: () => 0,
  executionAsyncResource: () => ({}),
  asyncWrapProviders: {},
};
