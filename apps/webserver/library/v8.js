// SPDX-License-Identifier: BSL-1.0
// The module `v8`: numbers of the heap, for programs that report them. The engine is QuickJS.
'use strict';

function getHeapStatistics() {
  const memory = require('process').memoryUsage();
  return {
    total_heap_size: memory.heapTotal,
    total_heap_size_executable: 0,
    total_physical_size: memory.rss,
    total_available_size: Math.max(0, memory.heapTotal - memory.heapUsed),
    used_heap_size: memory.heapUsed,
    heap_size_limit: memory.heapTotal,
    malloced_memory: memory.heapUsed,
    peak_malloced_memory: memory.heapUsed,
    does_zap_garbage: 0,
    number_of_native_contexts: 1,
    number_of_detached_contexts: 0,
    external_memory: memory.external,
  };
}

module.exports = {
  getHeapStatistics,
  getHeapSpaceStatistics: () => [],
  setFlagsFromString() {},
  cachedDataVersionTag: () => 0,
};
