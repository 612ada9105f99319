// SPDX-License-Identifier: BSL-1.0
// The smallest server: each request gets the same line. The load's preset `hello` expects this text (bench/load).

'use strict';

const http = require('node:http');

const server = http.createServer((request, response) => {
  response.writeHead(200, { 'Content-Type': 'text/plain' });
  response.end('Hello World\n');
});

server.listen(8080);
