// SPDX-License-Identifier: BSL-1.0
'use strict';
const stream = require('stream');
const { Readable, Writable, Duplex, Transform, PassThrough, pipeline, finished } = stream;
const { Buffer } = require('buffer');

const wait = (time_ms) => new Promise((resolve) => setTimeout(resolve, time_ms));
const show = (value) =>
  value instanceof Uint8Array
    ? `<${Buffer.from(value).toString()}>`
    : value instanceof Error
      ? `${value.name} ${value.code} ${value.message}`
      : JSON.stringify(value);
// Prints all events of a stream, with its name.
function watch(
  name,
  object,
  types = ['data', 'readable', 'end', 'finish', 'close', 'error', 'drain', 'pipe', 'unpipe', 'pause', 'resume', 'prefinish'],
) {
  for (const type of types) object.on(type, (value) => print(name, type, type === 'pipe' || type === 'unpipe' ? '' : (show(value) ?? '')));
  return object;
}
const passive = ['end', 'finish', 'close', 'error', 'drain', 'pipe', 'unpipe', 'pause', 'resume', 'prefinish'];
const slowSink = (name, options = {}) => {
  const result = [];
  const sink = new Writable({
    ...options,
    write(chunk, encoding, callback) {
      print(name, 'write', show(chunk), encoding);
      result.push(chunk);
      setTimeout(callback, 5);
    },
  });
  sink.result = result;
  return sink;
};
const source = (chunks, options) => {
  let index = 0;
  return new Readable({
    ...options,
    read(size) {
      print('read', size, index);
      this.push(index < chunks.length ? chunks[index++] : null);
    },
  });
};

const cases = {
  async flowing() {
    watch('flow', source(['a', 'b', Buffer.from('c')]), ['data', ...passive]);
    print('after on');
  },
  async paused() {
    const readable = source(['abc', 'def', 'ghi'], { highWaterMark: 4 });
    watch('paused', readable, passive);
    readable.on('readable', () => {
      let chunk;
      print('readable', readable.readableLength);
      while ((chunk = readable.read(2)) !== null) print('got', show(chunk));
    });
  },
  async readAll() {
    const readable = source(['abc', 'def']);
    readable.on('readable', () => print('chunk', show(readable.read())));
    watch('all', readable, passive);
  },
  async asynchronous() {
    let count = 0;
    const readable = new Readable({
      read() {
        setTimeout(() => this.push(count < 3 ? `n${count++}` : null), 2);
      },
    });
    watch('async', readable, ['data', ...passive]);
  },
  async pushOutside() {
    const readable = new Readable({ read() {} });
    watch('outside', readable, ['data', ...passive]);
    print(readable.push('one'), readable.push('two'));
    await wait(1);
    print('pause', readable.pause() === readable, readable.isPaused(), readable.readableFlowing);
    readable.push('three');
    await wait(1);
    readable.resume();
    readable.push(null);
  },
  async encoding() {
    const readable = source([Buffer.from([0xe2, 0x82]), Buffer.from([0xac, 0x41]), Buffer.from([0xc3])]);
    readable.setEncoding('utf8');
    watch('enc', readable, ['data', ...passive]);
  },
  async objects() {
    const readable = source([{ a: 1 }, 2, 'three'], { objectMode: true, highWaterMark: 1 });
    for await (const item of readable) print('item', show(item));
    print(readable.destroyed, readable.readableEnded);
  },
  async breakLoop() {
    const readable = source(['a', 'b', 'c']);
    watch('break', readable, passive);
    for await (const item of readable) {
      print('item', show(item));
      break;
    }
    print('destroyed', readable.destroyed);
  },
  async errorInLoop() {
    const readable = new Readable({
      read() {
        this.destroy(new Error('broken source'));
      },
    });
    try {
      for await (const item of readable) print(item);
    } catch (error) {
      print('caught', error.message);
    }
  },
  async pipe() {
    const from = watch('from', source(['aaaa', 'bbbb', 'cccc', 'dddd']), passive);
    const to = watch('to', slowSink('sink', { highWaterMark: 6 }), passive);
    print(from.pipe(to) === to);
  },
  async unpipe() {
    const from = watch('from', source(['a', 'b', 'c']), passive);
    const to = watch('to', slowSink('sink'), passive);
    from.pipe(to, { end: false });
    await wait(3);
    from.unpipe(to);
    print(from.readableFlowing);
    await wait(20);
  },
  async writable() {
    const sink = watch('w', slowSink('w', { highWaterMark: 3 }), passive);
    print(
      sink.write('a', () => print('cb a')),
      sink.write('bc', 'latin1', () => print('cb bc')),
      sink.writableLength,
      sink.writableNeedDrain,
    );
    await wait(20);
    print(sink.write(new Uint8Array([65])));
    sink.end('last', () => print('cb end'));
    print(sink.writableEnded, sink.writableFinished, sink.writable);
    sink.on('error', () => {});
    sink.write('late', (error) => print('cb late', show(error)));
    await wait(20);
    print(sink.writableFinished, sink.destroyed, sink.closed);
  },
  async synchronousWritable() {
    const sink = new Writable({
      write(chunk, encoding, callback) {
        print('write', show(chunk));
        callback();
      },
      final(callback) {
        print('final');
        callback();
      },
    });
    watch('sync', sink, passive);
    sink.write('a', () => print('cb a'));
    sink.write('b', () => print('cb b'));
    sink.end(() => print('cb end'));
    print('end called');
    process.nextTick(() => print('tick'));
    Promise.resolve().then(() => print('micro'));
  },
  async corked() {
    const sink = new Writable({
      writev(chunks, callback) {
        print('writev', chunks.map(({ chunk }) => show(chunk)).join());
        callback();
      },
    });
    watch('cork', sink, passive);
    sink.cork();
    sink.write('a');
    sink.write('b');
    sink.cork();
    sink.write('c');
    sink.uncork();
    print('half', sink.writableCorked);
    sink.uncork();
    sink.cork();
    sink.write('d');
    sink.end('e');
  },
  async failingWrite() {
    const sink = new Writable({
      write(chunk, encoding, callback) {
        callback(new Error(`no ${chunk}`));
      },
    });
    watch('bad', sink, passive);
    sink.write('x', (error) => print('cb x', show(error)));
    sink.write('y', (error) => print('cb y', show(error)));
    sink.end((error) => print('cb end', show(error)));
  },
  async failingFinal() {
    const sink = watch(
      'final',
      new Writable({ write: (chunk, encoding, callback) => callback(), final: (callback) => callback(new Error('final failed')) }),
      passive,
    );
    sink.end((error) => print('cb end', show(error)));
  },
  async destroyed() {
    const sink = watch('destroyed', slowSink('d'), passive);
    sink.write('a', (error) => print('cb a', show(error)));
    sink.write('b', (error) => print('cb b', show(error)));
    sink.destroy(new Error('gone'));
    sink.write('c', (error) => print('cb c', show(error)));
    print(sink.destroyed, sink.writable, show(sink.errored));
    const readable = watch('r', new Readable({ read() {}, destroy: (error, callback) => setTimeout(callback, 1, error) }), passive);
    readable.destroy();
    readable.destroy(new Error('second'));
    print(readable.push('x'), readable.readable, readable.readableAborted);
  },
  async misuse() {
    const sink = new Writable({ write: (chunk, encoding, callback) => callback() });
    for (const bad of [
      () => sink.write(null),
      () => sink.write(5),
      () => sink.write({}),
      () => sink.write('a', 'nothing'),
      () => new Readable({ highWaterMark: -1 }),
      () => Readable.from(5),
      () => new Writable().write('x'),
    ]) {
      try {
        bad();
        print('no error');
      } catch (error) {
        print(show(error));
      }
    }
    const readable = watch('misuse', new Readable({ read() {} }), passive);
    readable.push(null);
    readable.push('x');
    watch('no read', new Readable(), passive).resume();
    watch('bad push', new Readable({ read() {} }), passive).push(5);
  },
  async transform() {
    const upper = new Transform({
      transform(chunk, encoding, callback) {
        callback(null, chunk.toString().toUpperCase());
      },
      flush(callback) {
        this.push('!');
        callback();
      },
    });
    watch('t', upper, ['data', ...passive]);
    upper.write('abc');
    upper.write('def');
    upper.end('g');
  },
  async transformBackPressure() {
    const through = new PassThrough({ highWaterMark: 4 });
    watch('p', through, passive);
    for (const word of ['one', 'two', 'three', 'four'])
      print(
        word,
        through.write(word, () => print('cb', word)),
      );
    await wait(1);
    print(show(through.read()));
    await wait(1);
    print(show(through.read()));
    through.end();
    through.resume();
  },
  async transformError() {
    const bad = watch('te', new Transform({ transform: (chunk, encoding, callback) => callback(new Error('transform failed')) }), passive);
    bad.write('x', (error) => print('cb', show(error)));
  },
  async duplex() {
    const both = new Duplex({
      read() {
        this.push('from source');
        this.push(null);
      },
      write(chunk, encoding, callback) {
        print('to sink', show(chunk));
        callback();
      },
    });
    watch('dup', both, ['data', ...passive]);
    both.end('word');
    print(both instanceof Readable, both instanceof Writable, both instanceof Duplex, both instanceof stream);
  },
  async halfOpen() {
    const both = watch('half', new Duplex({ allowHalfOpen: false, read() {}, write: (chunk, encoding, callback) => callback() }), [
      'data',
      ...passive,
    ]);
    both.push(null);
  },
  async from() {
    for await (const item of Readable.from(['a', Promise.resolve('b'), 'c'])) print('from', item);
    async function* generate() {
      try {
        yield 1;
        yield 2;
        yield 3;
      } finally {
        print('generator closed');
      }
    }
    for await (const item of Readable.from(generate())) {
      print('gen', item);
      if (item === 2) break;
    }
    print(show(await Readable.from('whole string').toArray()));
    print(
      show(
        await Readable.from([1, 2, 3, 4])
          .filter((value) => value % 2)
          .map((value) => value * 10)
          .toArray(),
      ),
    );
  },
  async pipeline() {
    const upper = new Transform({ transform: (chunk, encoding, callback) => callback(null, chunk.toString().toUpperCase()) });
    const sink = slowSink('pl');
    await new Promise((resolve) => {
      pipeline(Readable.from(['x', 'y']), upper, sink, (error) => {
        print('done', show(error));
        resolve();
      });
    });
    print(sink.destroyed, upper.destroyed);
    const failing = new Transform({ transform: (chunk, encoding, callback) => callback(new Error('in the middle')) });
    const from = source(['a', 'b']);
    await new Promise((resolve) => {
      pipeline(from, failing, slowSink('never'), (error) => {
        print('failed', show(error));
        resolve();
      });
    });
    print(from.destroyed, failing.destroyed);
    await stream.promises.pipeline(
      async function* () {
        yield 'g1';
        yield 'g2';
      },
      async function* (input) {
        for await (const chunk of input) yield `${chunk}!`;
      },
      slowSink('generators'),
    );
    print(
      await stream.promises.pipeline(Readable.from(['1', '2']), async (input) => {
        let sum = 0;
        for await (const chunk of input) sum += Number(chunk);
        return sum;
      }),
    );
    const controller = new AbortController();
    setTimeout(() => controller.abort(), 3);
    await stream.promises
      .pipeline(new Readable({ read() {} }), slowSink('aborted'), { signal: controller.signal })
      .catch((error) => print(show(error)));
  },
  async finished() {
    const done = (name) => (error) => print(name, show(error) ?? 'fine');
    const readable = source(['a']);
    finished(readable, done('readable'));
    readable.resume();
    const sink = slowSink('f');
    finished(sink, done('sink'));
    sink.end('z');
    const early = new Readable({ read() {} });
    finished(early, done('early'));
    early.destroy();
    const broken = new Writable({ write: (chunk, encoding, callback) => callback(new Error('bad')) });
    finished(broken, done('broken'));
    broken.write('x');
    await wait(20);
    finished(sink, done('sink later'));
    finished(readable, done('readable later'));
    await stream.promises.finished(early).catch((error) => print('promise', show(error)));
    await require('stream/promises').finished(sink);
  },
  async unshift() {
    const readable = new Readable({ read() {} });
    readable.push('body');
    readable.unshift('head ');
    readable.push(null);
    readable.setEncoding('latin1');
    let text = '';
    for await (const chunk of readable) text += chunk;
    print(text);
  },
  async construct() {
    const sink = new Writable({
      construct(callback) {
        print('constructing');
        setTimeout(callback, 2);
      },
      write(chunk, encoding, callback) {
        print('written', show(chunk));
        callback();
      },
    });
    watch('constructed', sink, passive);
    sink.write('early');
    sink.end();
  },
  async removeReadable() {
    const readable = source(['a', 'b']);
    const listener = () => {};
    readable.on('readable', listener);
    readable.on('data', (chunk) => print('data', show(chunk)));
    print(readable.readableFlowing);
    readable.off('readable', listener);
    await wait(1);
    print(readable.readableFlowing);
  },
  async subclass() {
    class Counter extends Readable {
      constructor() {
        super({ objectMode: true });
        this.count = 0;
      }
      _read() {
        this.push(this.count < 3 ? this.count++ : null);
      }
    }
    class Collect extends Writable {
      constructor() {
        super({ objectMode: true });
        this.items = [];
      }
      _write(chunk, encoding, callback) {
        this.items.push(chunk);
        callback();
      }
      _final(callback) {
        print('collected', this.items.join());
        callback();
      }
    }
    await stream.promises.pipeline(new Counter(), new Collect());
  },
};

(async () => {
  for (const [name, action] of Object.entries(cases)) {
    print(`== ${name}`);
    await new Promise((resolve) => setTimeout(() => resolve(action()), 1));
    await wait(60);
  }
})();
