// SPDX-License-Identifier: BSL-1.0
// The module `net`: tests of addresses. Connections of TCP are not available to scripts; `http` serves them.
'use strict';

const { Socket } = require('_http_socket');
const { withCode } = require('_errors');

function isIPv4(text) {
  return /^(?:(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)(?:\.(?!$)|$)){4}$/.test(`${text}`);
}

function isIPv6(text) {
  text = `${text}`.replace(/%[0-9a-zA-Z-.:]+$/, '');
  if (!/^[0-9a-f:.]+$/i.test(text)) return false;
  const halves = text.split('::');
  if (halves.length > 2) return false;
  let groups = 0;
  for (const [index, half] of halves.entries()) {
    if (half === '') continue;
    const parts = half.split(':');
    for (const [position, part] of parts.entries()) {
      const last = index === halves.length - 1 && position === parts.length - 1;
      if (last && part.includes('.')) {
        if (!isIPv4(part)) return false;
        groups += 2;
      } else {
        if (!/^[0-9a-f]{1,4}$/i.test(part)) return false;
        groups++;
      }
    }
  }
  return halves.length === 2 ? groups <= 7 : groups === 8;
}

function absent() {
  throw withCode(Error, 'ERR_METHOD_NOT_IMPLEMENTED', 'net has no connections here: use http.createServer');
}

module.exports = {
  isIP: (text) => (isIPv4(text) ? 4 : isIPv6(text) ? 6 : 0),
  isIPv4,
  isIPv6,
  Socket,
  Stream: Socket,
  get Server() {
    return require('http').Server;
  },
  createServer: absent,
  connect: absent,
  createConnection: absent,
  setDefaultAutoSelectFamily() {},
  getDefaultAutoSelectFamily: () => false,
};
