// SPDX-License-Identifier: BSL-1.0
// The module `perf_hooks`: `performance`, and observers that never see an entry.
'use strict';

class PerformanceObserver {
  observe() {}

  disconnect() {}

  takeRecords() {
    return [];
  }

  static get supportedEntryTypes() {
    return [];
  }
}

module.exports = {
  get performance() {
    return globalThis.performance;
  },
  PerformanceObserver,
  constants: {},
};
