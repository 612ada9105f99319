// SPDX-License-Identifier: BSL-1.0
// Runs with Node's http over loopback, and with the library over the mock. `exchange` sends one request and resolves with the answer.
'use strict';
const http = require('http');
const { pipeline, Readable } = require('stream');

const isNode = typeof exchange !== 'function';
// Node chooses a free port; the library has no sockets of others to avoid.
let nextPort = 20000;
const freePort = () => (isNode ? 0 : nextPort++);
const wait = (time_ms) => new Promise((resolve) => setTimeout(resolve, time_ms));

function nodeExchange(server, { method = 'GET', url = '/', headers = {}, body, abortAfter, stall }) {
  return new Promise((resolve) => {
    const request = http.request(
      { port: server.address().port, method, path: url, headers: { Host: 'example', ...headers }, agent: false },
      (response) => {
        let text = '';
        response.setEncoding('utf8');
        response.on('data', (chunk) => (text += chunk));
        response.on('close', () =>
          resolve({
            status: response.statusCode,
            reason: response.statusMessage,
            headers: response.headers,
            body: text,
            aborted: !response.complete,
          }),
        );
      },
    );
    request.on('error', () => resolve({ aborted: true }));
    (async () => {
      let sent = 0;
      for (const piece of body ?? []) {
        if (sent++ === abortAfter) break;
        request.write(piece);
        await wait(5);
      }
      if (abortAfter !== undefined) {
        await wait(20);
        request.destroy();
      } else if (!stall) request.end();
      else request.flushHeaders();
    })();
  });
}
const send = isNode ? nodeExchange : exchange;

const show = ({ status, reason, headers, body, aborted }) => {
  if (aborted) return 'aborted';
  const shown = Object.entries(headers).filter(([name]) => name.startsWith('x-') || name === 'content-type' || name === 'set-cookie');
  const text = body.length > 100 ? body.length : JSON.stringify(body);
  return `${status} ${reason ?? http.STATUS_CODES[status]} ${JSON.stringify(shown.sort())} ${text}`;
};

async function serve(name, handler, ...requests) {
  print(`== ${name}`);
  const server = http.createServer(handler);
  await new Promise((resolve) => server.listen(freePort(), '127.0.0.1', resolve));
  for (const request of requests) {
    const answer = await send(server, request);
    await wait(50); // the server's last events come before the answer
    print(show(answer));
  }
  await new Promise((resolve) => server.close(resolve));
}

const log = (name) => (value) =>
  print(name, value instanceof Error ? `${value.code} ${value.message}` : value instanceof Uint8Array ? `<${value}>` : '');
const watch = (name, object, types) => types.forEach((type) => object.on(type, log(`${name} ${type}`)));

(async () => {
  await serve(
    'hello',
    (req, res) => {
      res.writeHead(200, { 'Content-Type': 'text/plain' });
      res.end('hello');
    },
    {},
    { method: 'HEAD' },
  );

  await serve(
    'properties',
    (req, res) => {
      print(
        req.method,
        req.url,
        req.httpVersion,
        req.headers.host,
        req.headers['x-a'],
        typeof req.socket.remoteAddress,
        req.socket.encrypted ?? false,
      );
      print(
        req instanceof http.IncomingMessage,
        req instanceof Readable,
        res instanceof http.ServerResponse,
        res.req === req,
        res.headersSent,
        res.writableEnded,
        res.finished,
        res.writable,
      );
      res.statusCode = 201;
      res.setHeader('X-One', 1);
      res.setHeader('X-Two', ['a', 'b']);
      print(res.getHeader('x-one'), JSON.stringify(res.getHeaders()), res.getHeaderNames().join(), res.hasHeader('X-TWO'));
      res.removeHeader('x-two');
      res.end();
      print(res.headersSent, res.writableEnded, res.finished);
    },
    { url: '/path?query=1', headers: { 'X-A': 'b' } },
  );

  await serve(
    'writes',
    (req, res) => {
      watch('res', res, ['finish', 'close', 'error', 'drain']);
      print(
        res.write('one ', () => print('cb one')),
        res.write(new Uint8Array([65, 66])),
        res.write('w6k=', 'base64'),
      );
      res.end('last', () => print('cb end'));
      print(res.end() === res);
      setTimeout(() => res.write('late', (error) => print('cb late', error.code)), 20);
    },
    {},
  );

  await serve(
    'body by events',
    (req, res) => {
      let size = 0;
      req.on('data', (chunk) => {
        size += chunk.length;
        if (!(chunk instanceof Uint8Array)) print('not bytes');
      });
      watch('req', req, ['end', 'close', 'error', 'aborted']);
      req.on('end', () => res.end(`${size} bytes`));
    },
    { method: 'POST', body: ['abc', 'defg'] },
    { method: 'POST', body: [] },
    {},
  );

  await serve(
    'body by iteration',
    async (req, res) => {
      let text = '';
      req.setEncoding('utf8');
      for await (const chunk of req) text += chunk;
      res.end(text.toUpperCase());
      print(req.complete, req.readableEnded, req.aborted);
    },
    { method: 'POST', body: ['first ', 'second ', 'é€'] },
  );

  await serve(
    'pipe',
    (req, res) => {
      watch('res', res, ['pipe', 'unpipe', 'finish', 'close']);
      req.pipe(res);
    },
    { method: 'POST', body: ['to ', 'and ', 'fro'] },
  );

  await serve(
    'pipeline',
    (req, res) => {
      pipeline(Readable.from(['a', 'b', 'c']), res, (error) => print('done', error ?? ''));
    },
    {},
  );

  await serve(
    'large pipeline',
    (req, res) => {
      pipeline(Readable.from(Array.from({ length: 20 }, () => 'x'.repeat(20000))), res, (error) => print('done', error ?? ''));
    },
    {},
  );

  await serve(
    'abort',
    (req, res) => {
      watch('req', req, ['end', 'close', 'error', 'aborted']);
      res.on('close', () => print('res close', res.writableFinished, res.writableEnded));
      req.resume();
    },
    { method: 'POST', body: ['a', 'b', 'c'], headers: { 'content-length': '100' }, abortAfter: 2 },
  );

  await serve(
    'destroyed by the server',
    (req, res) => {
      watch('res', res, ['finish', 'close', 'error']);
      res.destroy();
      print(res.destroyed);
    },
    {},
  );

  await serve(
    'mistakes',
    (req, res) => {
      const attempt = (action) => {
        try {
          action();
          print('no error');
        } catch (error) {
          print(error.name, error.code);
        }
      };
      attempt(() => res.write(null));
      attempt(() => res.write(5));
      attempt(() => res.end(5));
      attempt(() => res.end({}));
      attempt(() => res.setHeader('bad name', 'x'));
      attempt(() => res.setHeader('x', 'a\nb'));
      attempt(() => res.setHeader('x'));
      attempt(() => res.writeHead(99));
      attempt(() => res.setHeaders([]));
      res.end('fine');
      attempt(() => res.setHeader('x-late', 'x'));
      attempt(() => res.writeHead(200));
    },
    {},
  );

  await serve(
    'asynchronous',
    (req, res) => {
      setTimeout(() => {
        res.setHeader('Set-Cookie', ['a=1', 'b=2']);
        res.end(JSON.stringify({ ok: true }));
      }, 5);
    },
    {},
  );

  await serve(
    'replaced writeHead',
    (req, res) => {
      const { writeHead } = res;
      res.writeHead = function (...args) {
        res.setHeader('X-Added', 'yes');
        return writeHead.apply(this, args);
      };
      res.statusCode = 202;
      res.end('patched');
    },
    {},
  );

  print('== server');
  const server = new http.Server();
  print(
    server.listening,
    server.address(),
    server.keepAliveTimeout,
    server.requestTimeout,
    server.headersTimeout,
    server.timeout,
    server.maxRequestsPerSocket,
  );
  server.on('request', (req, res) => res.setHeader('X-First', '1'));
  server.on('request', (req, res) => res.end('two listeners'));
  server.once('request', () => print('once'));
  watch('server', server, ['listening', 'close']);
  await new Promise((resolve) => server.listen({ port: freePort(), host: '127.0.0.1' }, resolve));
  print(server.listening, typeof server.address().port, server.address().address === '127.0.0.1' || !isNode, server.address().family);
  print(show(await send(server, {})));
  print(show(await send(server, {})));
  try {
    server.listen(0);
  } catch (error) {
    print(error.code, error.message);
  }
  server.close((error) => print('closed', error ?? ''));
  await wait(50);
  server.close((error) => print('closed again', error.code, error.message));
  await wait(10);
  for (const bad of [
    () => http.createServer().listen(70000),
    () => http.createServer(5),
    () => http.validateHeaderName('a b'),
    () => http.validateHeaderValue('a', undefined),
    () => http.validateHeaderValue('a', 'é€'),
  ]) {
    try {
      bad();
      print('no error');
    } catch (error) {
      print(error.name, error.code, error.message);
    }
  }
  print(http.METHODS.join(), JSON.stringify(http.STATUS_CODES), http.maxHeaderSize);
  const first = http.createServer();
  await new Promise((resolve) => first.listen(freePort(), '127.0.0.1', resolve));
  const second = http.createServer().on('error', (error) => {
    print('error', error.code, error.syscall ?? 'listen');
    first.close(() => print('first closed'));
  });
  second.listen(first.address().port, '127.0.0.1', () => print('listening'));
})();
