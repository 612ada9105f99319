// SPDX-License-Identifier: BSL-1.0
// The script of `./neap soak web` (tools/web_soak.py). Only the soak's own clients know the names of the expensive routes, so that damaged
// requests do not reach them. The server on the next port has short time-outs.
'use strict';
const http = require('node:http');

const port = Number(process.env.PORT || 8080);

function bodyLength(req, res) {
  let length = 0;
  req.on('data', (piece) => {
    length += piece.length;
  });
  req.on('end', () => res.end(`${length}`));
}

const routes = {
  '/hello': (req, res) => res.end('hello\n'),
  '/length': bodyLength,
  '/echo': (req, res) => req.pipe(res),
  '/chunks': (req, res) => {
    res.write('one ');
    res.write('two ');
    res.end('three');
  },
  '/later': (req, res) => setTimeout(() => res.end('later'), 3),
  '/headers': (req, res) => res.end(JSON.stringify([req.headers, req.rawHeaders.length])),
  '/throw-7d1f': () => {
    throw new Error('on purpose');
  },
  '/loop-7d1f': () => {
    for (;;);
  },
  '/allocate-7d1f': () => {
    const all = [];
    for (;;) all.push(Buffer.alloc(1 << 20, 1));
  },
  // Leaves so much garbage that the core collects it when it is idle, and older garbage with it.
  '/collect-7d1f': (req, res) => {
    for (let at = 0; at < 20000; at++) {
      const one = { at };
      one.self = { one };
    }
    res.end('garbage');
  },
  '/endless-7d1f': (req, res) => {
    const piece = Buffer.alloc(8192, 'endless ');
    const go = () => {
      while (res.write(piece));
      res.once('drain', go);
    };
    go();
  },
};

const server = http.createServer((req, res) => {
  const [path, query] = req.url.split('?');
  if (path === '/number') return res.end(query);
  const route = Object.hasOwn(routes, path) ? routes[path] : undefined;
  if (!route) {
    res.writeHead(404);
    return res.end();
  }
  return route(req, res);
});
server.keepAliveTimeout = 3600_000;
server.listen(port);

http
  .createServer({ headersTimeout: 4000, requestTimeout: 8000, connectionsCheckingInterval: 500 }, bodyLength)
  .listen(port + 1);
