// SPDX-License-Identifier: BSL-1.0
// Behaviour that differs from Node on purpose: what is absent says so. Each line begins with "ok" or "FAILED".
'use strict';

const check = (name, condition) => print(condition ? 'ok' : 'FAILED', name);
const throws = (name, action, code) => {
  let found;
  try {
    action();
  } catch (error) {
    found = error.code;
  }
  check(`${name}: ${found}`, found === code);
};

const http = require('http');
const fs = require('fs');
const { loaded } = testLibrary;

throws('http.request', () => http.request('http://a/'), 'ERR_METHOD_NOT_IMPLEMENTED');
throws('http.get', () => http.get('http://a/'), 'ERR_METHOD_NOT_IMPLEMENTED');
throws('an agent connects', () => new http.Agent().createConnection(), 'ERR_METHOD_NOT_IMPLEMENTED');
throws('https', () => require('https'), 'MODULE_NOT_FOUND');
throws('AsyncLocalStorage', () => new (require('async_hooks').AsyncLocalStorage)(), 'ERR_METHOD_NOT_IMPLEMENTED');
throws('process.exit', () => process.exit(1), 'ERR_METHOD_NOT_IMPLEMENTED');
throws('ciphers', () => require('crypto').createCipheriv('x'), 'ERR_METHOD_NOT_IMPLEMENTED');
throws('other hashes', () => require('crypto').createHash('sha3-256'), 'ERR_CRYPTO_INVALID_DIGEST');
throws('http2 server', () => require('http2').createServer(), 'ERR_METHOD_NOT_IMPLEMENTED');
check('no fetch', typeof fetch === 'undefined');

check('a file of the archive', fs.readFileSync('/hello.txt', 'utf8') === 'hello, archive\n' && fs.readFileSync('hello.txt').length === 15);
check('existsSync', fs.existsSync('/hello.txt') && !fs.existsSync('/none'));
check('statSync', fs.statSync('/hello.txt').isFile() && fs.statSync('/hello.txt').size === 15 && fs.statSync('/').isDirectory());
check('readdirSync', fs.readdirSync('/').includes('hello.txt') && fs.readdirSync('/', { withFileTypes: true })[0].isFile());
throws('a missing file', () => fs.readFileSync('/none'), 'ENOENT');
throws('writing', () => fs.writeFileSync('/x', 'y'), 'EROFS');
throws('a folder as a file', () => fs.readFileSync('/'), 'EISDIR');
fs.readFile('/hello.txt', 'utf8', (error, text) => check('readFile', error === null && text.startsWith('hello')));
fs.createReadStream('/hello.txt', { encoding: 'utf8' }).on('data', (text) => check('createReadStream', text === 'hello, archive\n'));

check('platform', process.platform === 'neap' && require('os').platform() === 'neap' && require('os').EOL === '\n');
// Only the mock's loader tells what it has loaded.
check(
  'streams of the web and assert are loaded only at their use',
  !loaded || (!loaded.has('_web_streams') && !loaded.has('assert') && !loaded.has('_web_fetch')),
);

if (!loaded) {
  // Only the engine can look into promises and proxies.
  const { inspect } = require('util');
  const rejected = Promise.reject(new Error('x'));
  rejected.catch(() => {});
  const proxy = new Proxy({ a: 1 }, { get: () => check('a trap ran', false), ownKeys: () => check('a trap ran', false) });
  check('promises', inspect([Promise.resolve(5), new Promise(() => {})]) === '[ Promise { 5 }, Promise { <pending> } ]');
  check('a rejected promise', inspect(rejected).includes('<rejected> Error: x'));
  check('proxies', inspect(proxy) === '{ a: 1 }' && inspect(proxy, { showProxy: true }).startsWith('Proxy [ { a: 1 }, {'));
}

// The hot path: natives call the only listener of a server itself.
const handler = (request, response) => response.end('hello');
const server = http.createServer(handler).listen(8080);
const { handler: installed } = testLibrary.bindings.http.state(server);
check('the handler is called directly', installed === handler);
server.on('request', () => {});
check('two listeners are called by an event', testLibrary.bindings.http.state(server).handler !== handler);
server.keepAliveTimeout = 1234;
check('options reach natives', testLibrary.bindings.http.state(server).options.keepAliveTimeout === 1234);
server.on('clientError', () => {});
check('natives know of clientError', testLibrary.bindings.http.state(server).reportsClientErrors === true);

const refusing = http.createServer(() => {});
check('without a listener natives answer a bad request', refusing._clientError('HPE_INVALID_METHOD', 'bad') === undefined);
refusing.on('clientError', (error, socket) => socket.end(`HTTP/1.1 400 Bad Request\r\n\r\n${error.code}`));
check('clientError answers', refusing._clientError('HPE_X', 'bad') === 'HTTP/1.1 400 Bad Request\r\n\r\nHPE_X');

(async () => {
  const plain = http.createServer((request, response) => {
    response.end('hello');
    check('a plain response has no state in JavaScript', Object.keys(request).length === 0 && Object.keys(response).length === 0);
  });
  plain.listen(8081);
  const answer = await exchange(plain, {});
  check('and is answered', answer.body === 'hello');

  // A slow reader of a body: natives are asked to pause.
  let paused = 0;
  const slow = http.createServer((request, response) => {
    const { _pauseBody } = request;
    Object.defineProperty(request, '_pauseBody', {
      value() {
        paused++;
        _pauseBody.call(request);
      },
    });
    let size = 0;
    request.on('readable', () => {
      setTimeout(() => {
        let chunk;
        while ((chunk = request.read()) !== null) size += chunk.length;
      }, 3);
    });
    request.on('end', () => response.end(`${size}`));
  });
  slow.listen(8082);
  const result = await exchange(slow, { method: 'POST', body: Array.from({ length: 10 }, () => 'x'.repeat(10000)) });
  check(`back-pressure: paused ${paused} times`, result.body === '100000' && paused > 0);

  const expecting = http.createServer((request, response) => response.end('unasked'));
  expecting.on('checkContinue', (request, response) => {
    response.writeContinue();
    response.end('asked');
  });
  expecting.listen(8083);
  check('checkContinue', (await exchange(expecting, { headers: { Expect: '100-continue' } })).body === 'asked');
  check('without Expect', (await exchange(expecting, {})).body === 'unasked');

  const events = [];
  const careless = http.createServer((request, response) => {
    for (const type of ['end', 'close', 'aborted', 'error']) request.on(type, () => events.push(type));
    response.end('not read');
  });
  careless.listen(8086);
  await exchange(careless, { method: 'POST', body: ['abc'] });
  setTimeout(() => check(`a request with an unread body ends with its response: ${events}`, events.join() === 'end,close'), 5);

  const late = http.createServer((request, response) => {
    response.setTimeout(10, () => {
      response.statusCode = 503;
      response.end('late');
    });
  });
  late.listen(8084);
  check('response.setTimeout', (await exchange(late, {})).status === 503);

  const iterated = http.createServer(async (request, response) => {
    try {
      for await (const chunk of request) check('a piece', chunk.length === 1);
    } catch (error) {
      check(
        `an aborted request ends the iteration: ${error.code} ${error.message}`,
        error.code === 'ECONNRESET' && request.aborted && request.destroyed,
      );
    }
  });
  iterated.listen(8085);
  await exchange(iterated, { method: 'POST', body: ['a', 'b', 'c'], abortAfter: 2 });
})();
