// SPDX-License-Identifier: BSL-1.0
// Runs in the engine before mock_http.js and a test program: the functions that the program expects, and the parts for the mock of HTTP.
'use strict';

const { Buffer } = require('buffer');

globalThis.print = (...items) => console.log(items.join(' '));
globalThis.mockText = {
  encode: (string, encoding) => new Uint8Array(Buffer.from(string, encoding)),
  decode: (bytes, encoding, start, end) => Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString(encoding, start, end),
};
globalThis.makeHttpBinding = () => {
  const http = globalThis.makeHttp({ text: globalThis.mockText }, { binding: { setImmediate } });
  globalThis.testLibrary = { bindings: { http } };
  return http;
};
