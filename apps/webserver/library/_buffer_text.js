// SPDX-License-Identifier: BSL-1.0
// The functions of the module `buffer` that are no methods: atob, btoa, isUtf8, isAscii.
'use strict';

const text = internalBinding('text');
const { withCode } = require('_errors');

function invalidCharacter(message) {
  const Failure = typeof DOMException === 'function' ? DOMException : Error;
  return new Failure(message, 'InvalidCharacterError');
}

function atob(input) {
  if (arguments.length === 0) throw withCode(TypeError, 'ERR_MISSING_ARGS', 'The "input" argument must be specified');
  let data = `${input}`.replace(/[\t\n\f\r ]/g, '');
  if (data.length % 4 === 0) data = data.replace(/==?$/, '');
  if (/[^A-Za-z0-9+/]/.test(data)) throw invalidCharacter('Invalid character');
  if (data.length % 4 === 1) throw invalidCharacter('The string to be decoded is not correctly encoded.');
  const bytes = text.encode(data, 'base64');
  return text.decode(bytes, 'latin1', 0, bytes.length);
}

function btoa(input) {
  if (arguments.length === 0) throw withCode(TypeError, 'ERR_MISSING_ARGS', 'The "input" argument must be specified');
  const string = `${input}`;
  for (let index = 0; index < string.length; index++) {
    if (string.charCodeAt(index) > 255) throw invalidCharacter('Invalid character');
  }
  const bytes = text.encode(string, 'latin1');
  return text.decode(bytes, 'base64', 0, bytes.length);
}

function isUtf8(bytes) {
  const view = ArrayBuffer.isView(bytes) ? new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength) : new Uint8Array(bytes);
  return text.compare(text.encode(text.decode(view, 'utf8', 0, view.length), 'utf8'), view) === 0;
}

function isAscii(bytes) {
  const view = ArrayBuffer.isView(bytes) ? new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength) : new Uint8Array(bytes);
  return view.every((byte) => byte < 128);
}

module.exports = { atob, btoa, isUtf8, isAscii };
