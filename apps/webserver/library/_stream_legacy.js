// SPDX-License-Identifier: BSL-1.0
// The base class of all streams: an EventEmitter.
'use strict';

const EventEmitter = require('events');

function Stream(options) {
  EventEmitter.call(this, options);
}
Object.setPrototypeOf(Stream.prototype, EventEmitter.prototype);
Object.setPrototypeOf(Stream, EventEmitter);

module.exports = { Stream };
