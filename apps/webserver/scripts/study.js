// SPDX-License-Identifier: BSL-1.0
// The server of the published studies: the reply to each GET has 148 bytes on the wire, with its head. The load's preset `study` checks
// that (bench/load). Node adds the line Date of 37 bytes. `Connection` is set here, because Node would add Keep-Alive to its own.

'use strict';

const http = require('node:http');

const BODY = 'Hello from a server.\r\n';
const HEAD = { 'Content-Type': 'text/plain', 'Content-Length': String(BODY.length), Connection: 'keep-alive' };

const server = http.createServer((request, response) => {
  response.writeHead(200, HEAD);
  response.end(BODY);
});

server.listen(8080);
