// SPDX-License-Identifier: BSL-1.0
// The module `querystring`.
'use strict';

const text = internalBinding('text');
const { withCode } = require('_errors');

function escape(value) {
  if (typeof value !== 'string') value = typeof value === 'object' ? String(value) : `${value}`;
  // encodeURIComponent leaves exactly the characters that Node leaves.
  try {
    return encodeURIComponent(value);
  } catch {
    throw withCode(URIError, 'ERR_INVALID_URI', 'URI malformed');
  }
}

/// The bytes of a text with %XX, where invalid escapes stay as they are.
function unescapeBuffer(string, plusIsSpace) {
  const { Buffer } = require('buffer');
  const bytes = Buffer.from(string, 'utf8');
  const hex = (byte) => {
    if (byte >= 48 && byte <= 57) return byte - 48;
    const lower = byte | 32;
    return lower >= 97 && lower <= 102 ? lower - 87 : -1;
  };
  let length = 0;
  for (let index = 0; index < bytes.length; index++) {
    let byte = bytes[index];
    if (byte === 43 && plusIsSpace) byte = 32;
    if (byte === 37 && index + 2 < bytes.length) {
      const high = hex(bytes[index + 1]);
      const low = hex(bytes[index + 2]);
      if (high >= 0 && low >= 0) {
        byte = high * 16 + low;
        index += 2;
      }
    }
    bytes[length++] = byte;
  }
  return bytes.subarray(0, length);
}

function unescape(string) {
  try {
    return decodeURIComponent(string);
  } catch {
    const bytes = unescapeBuffer(string);
    return text.decode(bytes, 'utf8', 0, bytes.length);
  }
}

function primitive(value) {
  if (typeof value === 'string') return value;
  if (typeof value === 'number') return Number.isFinite(value) ? `${value}` : '';
  if (typeof value === 'bigint' || typeof value === 'boolean') return `${value}`;
  return '';
}

function stringify(object, separator, equals, options) {
  separator = separator || '&';
  equals = equals || '=';
  if (object === null || typeof object !== 'object') return '';
  const encode = typeof options?.encodeURIComponent === 'function' ? options.encodeURIComponent : module.exports.escape;
  const parts = [];
  for (const key of Object.keys(object)) {
    const name = encode(primitive(key)) + equals;
    const value = object[key];
    if (Array.isArray(value)) for (const item of value) parts.push(name + encode(primitive(item)));
    else parts.push(name + encode(primitive(value)));
  }
  return parts.join(separator);
}

function parse(string, separator, equals, options) {
  const result = Object.create(null);
  if (typeof string !== 'string' || string.length === 0) return result;
  separator = separator ? `${separator}` : '&';
  equals = equals ? `${equals}` : '=';
  const decode = typeof options?.decodeURIComponent === 'function' ? options.decodeURIComponent : module.exports.unescape;
  const limit = typeof options?.maxKeys === 'number' ? options.maxKeys : 1000;
  const safe = (part) => {
    part = part.replaceAll('+', decode === unescape ? ' ' : '%20');
    if (decode === unescape && !part.includes('%')) return part;
    try {
      return decode(part);
    } catch {
      return unescape(part);
    }
  };
  let count = 0;
  for (const pair of string.split(separator)) {
    if (pair === '') continue;
    if (limit > 0 && count++ >= limit) break;
    const position = pair.indexOf(equals);
    const name = safe(position === -1 ? pair : pair.slice(0, position));
    const value = position === -1 ? '' : safe(pair.slice(position + equals.length));
    const before = result[name];
    if (before === undefined) result[name] = value;
    else if (Array.isArray(before)) before.push(value);
    else result[name] = [before, value];
  }
  return result;
}

module.exports = { escape, unescape, unescapeBuffer, stringify, encode: stringify, parse, decode: parse };
