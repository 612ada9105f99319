// SPDX-License-Identifier: BSL-1.0
// Scripts that go wrong, and servers with small limits: for web_hostile_test.py.
//
// Ports after the first one: 1 has short time-outs, 2 few connections, 3 answers with its own number.
'use strict';
const http = require('node:http');

const port = Number(process.env.PORT || 8080);
const identity = `${Math.random()}`;
const kept = [];
const unanswered = new Set();
const ended = { aborted: 0, closed: 0, completed: 0 };

function number(req, name) {
  return Number(new URL(req.url, 'http://test').searchParams.get(name));
}

function recurse(depth) {
  return 1 + recurse(depth + 1);
}

const routes = {
  '/hello': (req, res) => res.end('hello\n'),
  '/number': (req, res) => res.end(`${number(req, 'n')}`),
  '/identity': (req, res) => res.end(identity),
  '/length': (req, res) => {
    let length = 0;
    req.on('data', (piece) => {
      length += piece.length;
    });
    req.on('end', () => res.end(`${length}`));
  },

  // ---- loops ----
  '/loop': () => {
    for (;;);
  },
  '/loop-late': (req, res) => {
    res.write('begun');
    for (;;);
  },
  '/loop-async': async () => {
    await null;
    for (;;);
  },
  '/loop-expression': (req, res) => res.end(`${/^(a+)+$/.test(`${'a'.repeat(40)}b`)}`),
  '/loop-timer': (req, res) => {
    setTimeout(() => {
      for (;;);
    }, 1);
    res.end('soon');
  },
  '/loop-promises': (req, res) => {
    // Returns nothing: a chain of promises that wait for each other would run out of memory before time.
    const next = () => {
      Promise.resolve().then(next);
    };
    next();
    res.end('maybe');
  },
  '/loop-catches': () => {
    for (;;) {
      try {
        for (;;);
      } catch {
        // The end of a turn must not be caught.
      } finally {
        kept.length = 0;
      }
    }
  },

  // ---- errors ----
  '/throw': () => {
    throw new Error('on purpose');
  },
  '/throw-nothing': () => {
    throw undefined;
  },
  '/throw-getter': () => {
    throw {
      get message() {
        throw new Error('within the message');
      },
      get stack() {
        throw new Error('within the stack');
      },
    };
  },
  '/throw-late': (req, res) => {
    res.write('begun');
    throw new Error('on purpose, late');
  },
  '/throw-async': async () => {
    await new Promise((resolve) => setTimeout(resolve, 1));
    throw new Error('on purpose, async');
  },
  '/throw-data': (req) => {
    req.on('data', () => {
      throw new Error('on purpose, in data');
    });
  },
  '/throw-end': (req) => {
    req.resume();
    req.on('end', () => {
      throw new Error('on purpose, at the end');
    });
  },
  '/throw-timer': (req, res) => {
    setTimeout(() => {
      throw new Error('on purpose, in a timer');
    }, 1);
    res.end('soon');
  },
  '/reject': (req, res) => {
    Promise.reject(new Error('on purpose, alone'));
    res.end('rejected');
  },
  '/recurse': () => recurse(0),
  '/recurse-json': (req, res) => res.end(`${JSON.parse('['.repeat(200000))}`),
  '/recurse-expression': (req, res) => res.end(`${new RegExp(`${'('.repeat(100000)}a${')'.repeat(100000)}`).test('a')}`),
  '/exit': (req, res) => {
    process.exit(3);
    res.end('not reached');
  },
  '/print': (req, res) => {
    for (let line = 0; line < 1000; line++) console.log(`line ${line} ${'-'.repeat(200)}`);
    res.end('printed');
  },

  // ---- memory ----
  '/allocate-bytes': () => {
    const all = [];
    for (;;) all.push(Buffer.alloc(1 << 20, 1));
  },
  '/allocate-objects': () => {
    const all = [];
    for (;;) all.push(new Array(4000).fill(all));
  },
  '/allocate-text': () => {
    let text = 'long';
    for (;;) text += text + text;
  },
  '/allocate-response': (req, res) => {
    const piece = Buffer.alloc(1 << 16, 'r');
    for (;;) res.write(piece);
  },
  '/cycles': (req, res) => {
    for (let at = 0; at < 20000; at++) {
      const one = { at };
      one.self = { one };
    }
    res.end('cycles');
  },
  '/timers': (req, res) => {
    let set = 0;
    try {
      for (; set < 150000; set++) setTimeout(() => {}, 2000);
    } catch {
      // The number of timers has a limit.
    }
    res.end(`${set}`);
  },
  '/keep': (req, res) => {
    kept.push(req, res);
    res.end(`${kept.length}`);
  },
  // Drops all references, and leaves so much garbage that the core collects it when it is idle.
  '/release': (req, res) => {
    kept.length = 0;
    for (const one of unanswered) one.destroy();
    for (let at = 0; at < 20000; at++) {
      const one = { at };
      one.self = { one };
    }
    res.end(identity);
  },

  // ---- bodies ----
  '/large': (req, res) => res.end(Buffer.alloc(number(req, 'bytes'), 'large ')),
  '/endless': (req, res) => {
    const piece = Buffer.alloc(16384, 'endless ');
    const go = () => {
      while (res.write(piece));
      res.once('drain', go);
    };
    go();
  },
  '/never-reads': (req, res) => {
    kept.push(req);
    unanswered.add(res);
    res.on('close', () => unanswered.delete(res));
  },
  '/pauses': (req, res) => {
    req.once('data', () => {
      req.pause();
      setTimeout(() => req.resume(), 300);
    });
    let length = 0;
    req.on('data', (piece) => {
      length += piece.length;
    });
    req.on('end', () => res.end(`${length}`));
  },
  '/answers-early': (req, res) => res.end('no'),
  '/never-answers': (req, res) => {
    unanswered.add(res);
    res.on('close', () => {
      unanswered.delete(res);
      ended.closed++;
    });
    req.on('aborted', () => {
      ended.aborted++;
    });
  },
  '/ended': (req, res) => res.end(JSON.stringify({ identity, ...ended })),
  '/many-servers': (req, res) => {
    let failed = 0;
    const servers = [];
    for (let at = 0; at < 100; at++) {
      try {
        const one = http.createServer((_req, answer) => answer.end());
        one.on('error', () => {
          failed++;
        });
        one.listen(20000 + at);
        servers.push(one);
      } catch {
        failed++;
      }
    }
    setTimeout(() => {
      for (const one of servers) one.close();
      res.end(JSON.stringify({ opened: servers.length - failed }));
    }, 200);
  },
};

const server = http.createServer((req, res) => {
  const route = routes[req.url.split('?')[0]];
  if (!route) {
    res.writeHead(404);
    return res.end();
  }
  return route(req, res);
});
// A test with a thousand connections uses each of them rarely.
server.keepAliveTimeout = 600_000;
server.listen(port);

const hurried = http.createServer(
  { headersTimeout: 1000, requestTimeout: 2000, keepAliveTimeout: 1000, connectionsCheckingInterval: 200 },
  (req, res) => {
    req.resume();
    req.on('end', () => res.end('in time'));
  },
);
hurried.listen(port + 1);

const small = http.createServer((req, res) => res.end('room'));
small.maxConnections = 10;
small.listen(port + 2);

http.createServer((req, res) => res.end('3')).listen(port + 3, () => console.log('all listen'));
