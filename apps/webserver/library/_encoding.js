// SPDX-License-Identifier: BSL-1.0
// Names of encodings.
//
// Programs write 'UTF-8', 'utf8', 'binary' or 'ucs2'. The natives know seven names. `normalize` gives the native's name, or undefined for
// an unknown one.
'use strict';

const names = {
  __proto__: null,
  utf8: 'utf8',
  'utf-8': 'utf8',
  ucs2: 'utf16le',
  'ucs-2': 'utf16le',
  utf16le: 'utf16le',
  'utf-16le': 'utf16le',
  latin1: 'latin1',
  binary: 'latin1',
  ascii: 'ascii',
  hex: 'hex',
  base64: 'base64',
  base64url: 'base64url',
};

function normalize(encoding) {
  if (encoding === undefined || encoding === null || encoding === '') return 'utf8';
  return names[encoding] ?? names[String(encoding).toLowerCase()];
}

module.exports = { names, normalize };
