// SPDX-License-Identifier: BSL-1.0
// A server that uses nearly all of node:http, for the comparison of the image with Node, and for strangers' clients.
//
// Each route is one use of the interface. What a client cannot see (the order of events, codes of errors) is part of a response's body.
// The second server has the options of a server that are numbers, and answers refused requests itself.
'use strict';
const http = require('node:http');
const { Readable, Transform } = require('node:stream');
const { pipeline } = require('node:stream/promises');

const port = Number(process.env.PORT || 8080);

function json(res, value, status = 200) {
  res.writeHead(status, { 'Content-Type': 'application/json' });
  res.end(JSON.stringify(value));
}

function bodyOf(req) {
  return new Promise((resolve, reject) => {
    const pieces = [];
    req.on('data', (piece) => pieces.push(piece));
    req.on('end', () => resolve(Buffer.concat(pieces)));
    req.on('error', reject);
  });
}

function codeOf(call) {
  try {
    call();
    return 'none';
  } catch (error) {
    return `${error.name} ${error.code}`;
  }
}

// It repeats after these bytes.
const pattern = Buffer.alloc(65536);
for (let at = 0; at < pattern.length; at++) pattern[at] = (at * 7 + (at >> 8)) & 255;

let events = [];
let counter = 0;

const routes = {
  '/hello': (req, res) => res.end('hello\n'),
  '/count': (req, res) => res.end(`${++counter}`),
  '/nothing': (req, res) => res.end(),
  '/json': (req, res) => json(res, { answer: 42, text: 'Grüße' }),
  '/no-content': (req, res) => {
    res.writeHead(204);
    res.end();
  },
  '/no-content-with-body': (req, res) => {
    res.statusCode = 204;
    res.end('dropped');
  },
  '/not-modified': (req, res) => {
    res.writeHead(304, { ETag: '"v1"' });
    res.end();
  },
  '/status': (req, res) => {
    res.statusCode = 418;
    res.end('teapot');
  },
  '/unnamed-status': (req, res) => {
    res.writeHead(299);
    res.end();
  },
  '/message': (req, res) => {
    res.statusMessage = 'Very Well';
    res.end('a');
  },
  '/write-head-message': (req, res) => {
    res.writeHead(201, 'Made Here', { 'X-Kind': 'object' });
    res.end('made');
  },
  '/write-head-array': (req, res) => {
    res.writeHead(200, ['X-Pair', '1', 'X-Pair', '2', 'X-Other', 'o']);
    res.end('pairs');
  },
  '/write-head-merges': (req, res) => {
    res.setHeader('X-First', 'set');
    res.setHeader('X-Second', 'set');
    res.writeHead(200, { 'x-second': 'replaced', 'X-Third': 'new' });
    res.end();
  },
  '/set-headers': (req, res) => {
    res.setHeader('Set-Cookie', ['a=1', 'b=2; Path=/']);
    res.setHeader('X-Number', 17);
    res.setHeader('X-Gone', 'gone');
    res.removeHeader('x-gone');
    res.appendHeader('X-More', 'one');
    res.appendHeader('X-More', 'two');
    json(res, {
      cookie: res.getHeader('SET-COOKIE'),
      number: res.getHeader('x-number'),
      gone: res.hasHeader('X-Gone'),
      names: res.getHeaderNames(),
      all: res.getHeaders(),
      more: res.getHeader('x-more'),
    });
  },
  '/content-length': (req, res) => {
    res.writeHead(200, { 'Content-Length': '9' });
    res.write('four');
    res.end('fiver');
  },
  '/chunks': (req, res) => {
    res.write('one ');
    res.write(Buffer.from('two '));
    res.write('', 'utf8');
    res.end('three');
  },
  '/encodings': (req, res) => {
    res.write('4772c3bcc39f65', 'hex');
    res.write('IQ==', 'base64');
    res.end('\xe4', 'latin1');
  },
  '/unicode': (req, res) => res.end('Grüße, 世界 🌍'),
  '/close': (req, res) => {
    res.setHeader('Connection', 'close');
    res.end('the end');
  },
  '/should-keep-alive': (req, res) => {
    res.shouldKeepAlive = false;
    res.end('the end');
  },
  '/keep-alive-header': (req, res) => {
    res.setHeader('Connection', 'keep-alive');
    res.end('on');
  },
  '/no-date': (req, res) => {
    res.sendDate = false;
    res.end('timeless');
  },
  '/own-date': (req, res) => {
    res.setHeader('Date', 'Thu, 01 Jan 1970 00:00:00 GMT');
    res.end('long ago');
  },
  '/own-chunked': (req, res) => {
    res.setHeader('Transfer-Encoding', 'chunked');
    res.end('mine');
  },
  '/trailers': (req, res) => {
    res.writeHead(200, { Trailer: 'X-Sum' });
    res.write('body');
    res.addTrailers({ 'X-Sum': '4', 'X-Late': 'yes' });
    res.end();
  },
  '/flush': (req, res) => {
    res.setHeader('X-Early', '1');
    res.flushHeaders();
    setTimeout(() => res.end(`sent ${res.headersSent}`), 5);
  },
  '/later': (req, res) => {
    setTimeout(() => res.end('later'), 10);
  },
  '/immediate': (req, res) => {
    setImmediate(() => process.nextTick(() => queueMicrotask(() => res.end('soon'))));
  },
  '/async': async (req, res) => {
    await new Promise((resolve) => setTimeout(resolve, 5));
    json(res, { waited: true });
  },
  '/early-hints': (req, res) => {
    res.writeEarlyHints({ link: '</style.css>; rel=preload; as=style' });
    res.end('hinted');
  },
  '/processing': (req, res) => {
    res.writeProcessing();
    res.end('processed');
  },
  '/request': (req, res) =>
    json(res, {
      method: req.method,
      url: req.url,
      version: [req.httpVersion, req.httpVersionMajor, req.httpVersionMinor],
      headers: req.headers,
      raw: req.rawHeaders,
      distinct: req.headersDistinct,
      peer: [typeof req.socket.remoteAddress, typeof req.socket.remotePort, typeof req.socket.localPort],
    }),
  '/query': (req, res) => {
    const url = new URL(req.url, `http://${req.headers.host}`);
    json(res, { path: url.pathname, pairs: [...url.searchParams], href: url.href });
  },
  '/echo': async (req, res) => {
    const body = await bodyOf(req);
    res.writeHead(200, { 'Content-Type': 'application/octet-stream', 'Content-Length': body.length });
    res.end(body);
  },
  '/describe': async (req, res) => {
    const body = await bodyOf(req);
    json(res, {
      method: req.method,
      text: body.toString(),
      length: body.length,
      trailers: req.trailers,
      rawTrailers: req.rawTrailers,
      complete: req.complete,
      ended: req.readableEnded,
    });
  },
  '/sum': async (req, res) => {
    let length = 0;
    let sum = 0;
    for await (const piece of req) {
      length += piece.length;
      for (const byte of piece) sum = (sum * 31 + byte) % 1000003;
    }
    json(res, { length, sum });
  },
  '/text': (req, res) => {
    req.setEncoding('utf8');
    let text = '';
    req.on('data', (piece) => {
      text += piece;
    });
    req.on('end', () => json(res, { text, letters: text.length }));
  },
  '/readable': (req, res) => {
    const pieces = [];
    req.on('readable', () => {
      for (let piece = req.read(); piece !== null; piece = req.read()) pieces.push(piece);
    });
    req.on('end', () => res.end(Buffer.concat(pieces)));
  },
  '/pipe': (req, res) => req.pipe(res),
  '/upper': (req, res) => {
    const upper = new Transform({
      transform(piece, _encoding, done) {
        done(null, piece.toString('latin1').toUpperCase());
      },
    });
    pipeline(req, upper, res).catch((error) => res.destroy(error));
  },
  '/stream': (req, res) => Readable.from(['a', 'bc', 'def']).pipe(res),
  '/unread': (req, res) => res.end('not read'),
  '/bytes': (req, res) => {
    const count = Number(new URL(req.url, 'http://test').searchParams.get('count'));
    res.writeHead(200, { 'Content-Type': 'application/octet-stream' });
    res.end(Buffer.alloc(count, pattern));
  },
  // 1 MiB in pieces of 16 KiB, each after the last one was accepted.
  '/drain': (req, res) => {
    const piece = Buffer.alloc(16384, 'drain/');
    let left = 64;
    let waits = 0;
    const go = () => {
      while (left > 0) {
        left--;
        if (!res.write(piece)) {
          waits++;
          res.once('drain', go);
          return;
        }
      }
      res.end(waits > 0 ? 'waited' : 'went on');
    };
    go();
  },
  '/cork': (req, res) => {
    res.cork();
    res.write('a');
    res.write('b');
    res.uncork();
    res.end('c');
  },
  '/callbacks': (req, res) => {
    events = ['begin'];
    res.on('finish', () => events.push(`finish ${res.writableFinished} ${res.writableEnded}`));
    res.on('close', () => events.push('close'));
    req.on('close', () => events.push('request close'));
    res.write('x', () => events.push('written'));
    res.end('y', () => events.push('ended'));
  },
  '/events': (req, res) => json(res, events),
  '/errors': (req, res) => {
    const found = {
      name: codeOf(() => res.setHeader('bad name', '1')),
      value: codeOf(() => res.setHeader('X-Bad', 'a\r\nb')),
      missing: codeOf(() => res.setHeader('X-Bad', undefined)),
      status: codeOf(() => res.writeHead(99)),
      chunk: codeOf(() => res.write(17)),
      validateName: codeOf(() => http.validateHeaderName('')),
      validateValue: codeOf(() => http.validateHeaderValue('a', '\u0001')),
    };
    found.message = codeOf(() => res.writeHead(200, 'bad\nmessage'));
    res.statusMessage = 'Fine';
    res.write('[');
    found.sent = codeOf(() => res.setHeader('X-Late', '1'));
    found.sentRemove = codeOf(() => res.removeHeader('X-Late'));
    found.sentHead = codeOf(() => res.writeHead(200));
    res.end(`${JSON.stringify(found)}]`);
  },
  '/after-end': (req, res) => {
    events = [];
    res.on('error', (error) => events.push(error.code));
    res.end('ended');
    res.write('more', (error) => events.push(`callback ${error && error.code}`));
    res.end('again', (error) => events.push(`end ${error && error.code}`));
  },
  '/state': (req, res) => {
    const states = [];
    const note = () => states.push([res.headersSent, res.writableEnded, res.finished, res.statusCode]);
    note();
    res.writeHead(202);
    note();
    res.write(JSON.stringify(states));
    states.length = 0;
    note();
    res.end(JSON.stringify(states));
  },
  '/destroy': (req, res) => res.destroy(),
  '/destroy-late': (req, res) => {
    res.write('part');
    setTimeout(() => res.destroy(), 20);
  },
  '/short': (req, res) => {
    res.writeHead(200, { 'Content-Length': 10 });
    res.end('short');
  },
  '/names': (req, res) =>
    json(res, { methods: http.METHODS.includes('PATCH'), text: http.STATUS_CODES[404], server: http.createServer().constructor.name }),
};

const server = http.createServer((req, res) => {
  const path = req.url.replace(/^http:\/\/[^/]*/, '').split('?')[0];
  const route = routes[path];
  if (!route) return json(res, { error: 'not found', path }, 404);
  return route(req, res);
});
server.listen(port);

const second = http.createServer({ keepAliveTimeout: 7000, maxHeaderSize: 4096 });
second.maxRequestsPerSocket = 3;
second.on('request', (req, res) => res.setHeader('X-First', '1'));
second.on('request', (req, res) => res.end('two listeners'));
second.on('checkContinue', (req, res) => {
  if (req.url === '/refuses') {
    res.writeHead(417);
    res.end('not wanted');
  } else {
    res.writeContinue();
    second.emit('request', req, res);
  }
});
second.on('clientError', (error, socket) => {
  if (socket.writable) socket.end(`HTTP/1.1 400 Own Answer\r\nX-Code: ${error.code}\r\nConnection: close\r\n\r\n`);
});
second.listen(port + 1, () => console.log(`both listen, ${typeof second.address().port}`));
