// SPDX-License-Identifier: BSL-1.0
'use strict';
const EventEmitter = require('events');
const { once, on, errorMonitor } = EventEmitter;

const emitter = new EventEmitter();
const log =
  (name) =>
  (...args) =>
    print(name, JSON.stringify(args));
emitter.on('newListener', (type) => print('new', String(type)));
emitter.on('removeListener', (type) => print('removed', String(type)));
const first = log('first');
emitter.on('a', first);
emitter.once('a', log('once'));
emitter.prependListener('a', log('before'));
emitter.prependOnceListener('a', log('before once'));
print(emitter.listenerCount('a'), emitter.rawListeners('a').length, emitter.listeners('a').includes(first));
for (const count of [0, 1, 2, 3, 4, 5]) print(emitter.emit('a', ...Array.from({ length: count }, (_, index) => index)));
emitter.off('a', first);
emitter.off('a', () => {});
print(emitter.emit('a'), emitter.emit('nothing'));
print(emitter.eventNames().map(String).join());
emitter.removeAllListeners('a');
emitter.on('a', () => {
  print('adds');
  emitter.on('a', log('added during the event'));
});
emitter.emit('a');
emitter.removeAllListeners();
print(emitter.eventNames().length, emitter.getMaxListeners(), emitter.setMaxListeners(3).getMaxListeners());

for (const bad of [
  () => emitter.on('x', 5),
  () => emitter.setMaxListeners(-1),
  () => emitter.emit('error', new Error('plain')),
  () => emitter.emit('error', { a: 1 }),
  () => emitter.emit('error'),
]) {
  try {
    bad();
    print('no error');
  } catch (error) {
    print(error.name, error.code, error.message);
  }
}
emitter.on(errorMonitor, (error) => print('monitor', error.message));
emitter.once('error', (error) => print('handler', error.message));
emitter.emit('error', new Error('handled'));
try {
  emitter.emit('error', new Error('again'));
} catch (error) {
  print('thrown', error.message);
}

class Sub extends EventEmitter {
  constructor() {
    super();
    this.own = 1;
  }
}
const sub = new Sub();
print(sub instanceof EventEmitter, sub.on('x', () => {}) === sub, sub.listenerCount('x'));
const lazy = Object.create(EventEmitter.prototype);
print(lazy.emit('x'), lazy.listenerCount('x'), lazy.eventNames().length);
lazy.on('x', (value) => print('lazy', value));
lazy.emit('x', 7);
print(EventEmitter.EventEmitter === EventEmitter, EventEmitter.defaultMaxListeners, EventEmitter.listenerCount(lazy, 'x'));
const symbol = Symbol('event');
lazy.on(symbol, () => print('symbol'));
lazy.emit(symbol);
function self() {
  print('this', this === lazy);
}
lazy.on('self', self);
lazy.emit('self');

(async () => {
  setTimeout(() => emitter.emit('later', 1, 2), 1);
  print(JSON.stringify(await once(emitter, 'later')));
  setTimeout(() => emitter.emit('error', new Error('by once')), 1);
  await once(emitter, 'never').catch((error) => print('rejected', error.message));
  print(emitter.listenerCount('never'), emitter.listenerCount('error'));
  setTimeout(() => {
    for (const item of [1, 2, 3]) emitter.emit('item', item);
  }, 1);
  for await (const [item] of on(emitter, 'item')) {
    print('item', item);
    if (item === 3) break;
  }
  print(emitter.listenerCount('item'));
  const controller = new AbortController();
  setTimeout(() => controller.abort(), 1);
  try {
    for await (const item of on(emitter, 'item', { signal: controller.signal })) print(item);
  } catch (error) {
    print(error.name, error.code, error.message);
  }
})();
