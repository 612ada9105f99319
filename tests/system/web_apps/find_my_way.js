// SPDX-License-Identifier: BSL-1.0
// find-my-way, the router of Fastify, on node:http.
'use strict';
const http = require('node:http');
const router = require('find-my-way')({ defaultRoute: (req, res) => res.writeHead(404).end('no such route') });

const answer = (res, value) => res.writeHead(200, { 'Content-Type': 'application/json' }).end(JSON.stringify(value));

router.on('GET', '/', (req, res) => res.end('found my way'));
router.on('GET', '/hello', (req, res) => res.end('hello\n'));
router.on('GET', '/users/:id(^\\d+$)', (req, res, params) => answer(res, params));
router.on('GET', '/files/*', (req, res, params) => answer(res, params));
router.on(['PUT', 'DELETE'], '/users/:id', (req, res, params, store, query) => answer(res, { method: req.method, params, query }));

http.createServer((req, res) => router.lookup(req, res)).listen(Number(process.env.PORT));
