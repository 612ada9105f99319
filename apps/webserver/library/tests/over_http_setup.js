// SPDX-License-Identifier: BSL-1.0
// `exchange` over simulated connections: run_over_http.cpp gives `clientCommand` and calls `clientReceived`.
//
// The text of a connection is a string of bytes, as characters up to 255. Each request has a connection of its own.
'use strict';

const { Buffer } = require('buffer');

const clients = new Map();
let nextClient = 0;

globalThis.print = (...items) => console.log(items.join(' '));
globalThis.testLibrary = {};

const bytesText = (text) => Buffer.from(text, 'utf8').toString('latin1');
const wait = (time_ms) => new Promise((resolve) => setTimeout(resolve, time_ms));

async function send(client, { method = 'GET', url = '/', headers = {}, body, abortAfter, stall }) {
  const names = Object.keys(headers).map((name) => name.toLowerCase());
  const chunked = body !== undefined && !names.includes('content-length');
  let head = `${method} ${url} HTTP/1.1\r\nConnection: close\r\n`;
  for (const [name, value] of Object.entries({ Host: 'example', ...headers })) head += `${name}: ${value}\r\n`;
  if (chunked) head += 'Transfer-Encoding: chunked\r\n';
  clientCommand('send', client, `${head}\r\n`);
  let sent = 0;
  for (const piece of body ?? []) {
    if (sent++ === abortAfter) break;
    const text = bytesText(piece);
    clientCommand('send', client, chunked ? `${text.length.toString(16)}\r\n${text}\r\n` : text);
    await wait(5);
  }
  if (abortAfter !== undefined) {
    await wait(20);
    clientCommand('close', client, '');
  } else if (chunked && !stall) clientCommand('send', client, '0\r\n\r\n');
}

globalThis.exchange = (server, request) =>
  new Promise((resolve) => {
    const client = nextClient++;
    clients.set(client, { text: '', resolve, method: request.method });
    clientCommand('open', client, `${server.address().port}`);
    send(client, request);
  });

function joinChunks(text) {
  let body = '';
  for (;;) {
    const end = text.indexOf('\r\n');
    const size = parseInt(text.slice(0, end), 16);
    if (end === -1 || Number.isNaN(size) || text.length < end + 2 + size) return undefined;
    if (size === 0) return body;
    body += text.slice(end + 2, end + 2 + size);
    text = text.slice(end + 4 + size);
  }
}

function parse({ text, method }) {
  let end = text.indexOf('\r\n\r\n');
  if (end === -1) return { aborted: true };
  const [line, ...lines] = text.slice(0, end).split('\r\n');
  const [, status, reason] = /^HTTP\/1\.1 (\d+) (.*)$/.exec(line);
  if (status[0] === '1') return parse({ text: text.slice(end + 4), method });
  const headers = {};
  for (const field of lines) {
    const colon = field.indexOf(':');
    const name = field.slice(0, colon).toLowerCase();
    const value = field.slice(colon + 1).trim();
    if (name === 'set-cookie') (headers[name] ??= []).push(value);
    else headers[name] = headers[name] === undefined ? value : `${headers[name]}, ${value}`;
  }
  let body = text.slice(end + 4);
  if (headers['transfer-encoding'] === 'chunked') body = joinChunks(body);
  else if (method !== 'HEAD' && headers['content-length'] !== undefined && body.length !== +headers['content-length']) body = undefined;
  if (body === undefined) return { aborted: true };
  return { status: +status, reason, headers, body: Buffer.from(body, 'latin1').toString('utf8'), aborted: false };
}

globalThis.clientReceived = (client, text, over) => {
  const own = clients.get(client);
  own.text += text;
  if (!over) return;
  clients.delete(client);
  own.resolve(parse(own));
};
