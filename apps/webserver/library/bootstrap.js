'use strict';
globalThis.process ??= {nextTick: require('_ticks'), emitWarning(){}};
globalThis.setTimeout = (f, ms, ...a) => internalBinding('timers').start(f, ms, false, ...a);
globalThis.setImmediate = (f, ...a) => internalBinding('timers').setImmediate(f, ...a);
globalThis.Buffer = require('buffer').Buffer;
