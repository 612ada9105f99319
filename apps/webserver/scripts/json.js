// SPDX-License-Identifier: BSL-1.0
// A server that reads and writes JSON: the body of each POST is parsed, and the reply is the same value as text. The load's preset `json`
// compares both (bench/load).

'use strict';

const http = require('node:http');

const server = http.createServer((request, response) => {
  let text = '';
  request.setEncoding('utf8');
  request.on('data', (piece) => {
    text += piece;
  });
  request.on('end', () => {
    let value;
    try {
      value = JSON.parse(text);
    } catch {
      response.writeHead(400, { 'Content-Type': 'text/plain' });
      response.end('The body is no JSON.\n');
      return;
    }
    const reply = JSON.stringify(value);
    response.writeHead(200, { 'Content-Type': 'application/json', 'Content-Length': Buffer.byteLength(reply) });
    response.end(reply);
  });
});

server.listen(8080);
