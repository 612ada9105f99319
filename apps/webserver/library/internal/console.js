// SPDX-License-Identifier: BSL-1.0
// A small `console`, for an image whose library has no module of that name.
'use strict';

const { write } = internalBinding('console');

function text(value) {
  if (typeof value === 'string') return value;
  if (value instanceof Error) return value.stack;
  if (typeof value === 'object' && value !== null) {
    try {
      return JSON.stringify(value) ?? String(value);
    } catch {
      return Object.prototype.toString.call(value);
    }
  }
  return typeof value === 'bigint' ? `${value}n` : String(value);
}

const at =
  (level) =>
  (...values) =>
    write(level, values.map(text).join(' '));

module.exports = { debug: at('debug'), log: at('log'), info: at('log'), warn: at('warn'), error: at('error'), trace: at('error') };
