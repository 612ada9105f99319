// SPDX-License-Identifier: BSL-1.0
// The body of a Request or Response.
//
// A body of text or bytes is kept as it is: it becomes a stream only if a program asks for `body`. It can be read once.
'use strict';

const text = internalBinding('text');
const content = Symbol('content');

const isBuffer = (value) => Object.prototype.toString.call(value) === '[object ArrayBuffer]';
const isStream = (value) => value !== null && typeof value === 'object' && typeof value.getReader === 'function';

/// {source: string | Uint8Array | null, stream, type}: what a body's initial value means. `type` is the default content type.
function extract(body) {
  if (body === null || body === undefined) return { source: null, stream: null, type: null, used: false };
  const made = { source: null, stream: null, type: null, used: false };
  if (typeof body === 'string') {
    made.source = body;
    made.type = 'text/plain;charset=UTF-8';
  } else if (isStream(body)) {
    if (body.locked || body._disturbed) throw new TypeError('Response body object should not be disturbed or locked');
    made.stream = body;
  } else if (ArrayBuffer.isView(body)) made.source = new Uint8Array(body.buffer, body.byteOffset, body.byteLength).slice();
  else if (isBuffer(body)) made.source = new Uint8Array(body.slice(0));
  else if (typeof URLSearchParams === 'function' && body instanceof URLSearchParams) {
    made.source = body.toString();
    made.type = 'application/x-www-form-urlencoded;charset=UTF-8';
  } else if (typeof body === 'object' && body[Symbol.toStringTag] === 'FormData') {
    const encoded = require('_web_form').encode(body);
    made.source = encoded.bytes;
    made.type = encoded.type;
  } else if (body instanceof require('_web_blob').Blob) {
    made.source = body[require('_web_blob').bytesOf];
    made.type = body.type || null;
  } else if (typeof body === 'object' && typeof body[Symbol.asyncIterator] === 'function') {
    made.stream = require('_web_streams').ReadableStream.from(body);
  } else {
    made.source = `${body}`;
    made.type = 'text/plain;charset=UTF-8';
  }
  return made;
}

function toBytes(source) {
  return typeof source === 'string' ? text.encode(source, 'utf8') : source;
}

function streamOf(object) {
  const own = object[content];
  if (own.stream === null && own.source !== null) {
    const { ReadableStream } = require('_web_streams');
    const { source, used } = own;
    own.stream = new ReadableStream({
      type: 'bytes',
      pull(controller) {
        const bytes = toBytes(source);
        if (bytes.length > 0) controller.enqueue(bytes.slice());
        controller.close();
      },
    });
    if (used) own.stream.cancel();
    own.source = null;
  }
  return own.stream;
}

function isUsed(object) {
  const own = object[content];
  return own.used || (own.stream !== null && !!own.stream._disturbed);
}

// The whole body: a string if it was made of one, else bytes.
async function consume(object) {
  const own = object[content];
  if (isUsed(object) || own.stream?.locked) throw new TypeError('Body is unusable: Body has already been read');
  if (own.source === null && own.stream === null) return '';
  own.used = true;
  if (own.stream === null) return own.source;
  const { Buffer } = require('buffer');
  const pieces = [];
  for await (const piece of own.stream) {
    if (!(piece instanceof Uint8Array)) throw new TypeError('Received non-Uint8Array chunk');
    pieces.push(piece);
  }
  const whole = Buffer.concat(pieces);
  return new Uint8Array(whole.buffer, whole.byteOffset, whole.length);
}

function toText(whole) {
  if (typeof whole === 'string') return whole.toWellFormed();
  const start = whole.length >= 3 && whole[0] === 0xef && whole[1] === 0xbb && whole[2] === 0xbf ? 3 : 0;
  return text.decode(whole, 'utf8', start, whole.length);
}

const methods = {
  get body() {
    return streamOf(this);
  },

  get bodyUsed() {
    return isUsed(this);
  },

  async text() {
    return toText(await consume(this));
  },

  async json() {
    return JSON.parse(toText(await consume(this)));
  },

  async bytes() {
    return toBytes(await consume(this)).slice();
  },

  async arrayBuffer() {
    return toBytes(await consume(this)).slice().buffer;
  },

  async blob() {
    const bytes = toBytes(await consume(this));
    const { Blob } = require('_web_blob');
    return new Blob([bytes], { type: this.headers.get('content-type') ?? '' });
  },

  async formData() {
    const bytes = toBytes(await consume(this));
    return require('_web_form').parse(bytes, this.headers.get('content-type'));
  },
};

/// Gives a class the methods of a body; its constructor sets `this[content]`.
function mixIn(Class) {
  for (const [name, descriptor] of Object.entries(Object.getOwnPropertyDescriptors(methods))) {
    Object.defineProperty(Class.prototype, name, { ...descriptor, enumerable: true });
  }
}

/// A second body with the same content. A stream is split in two.
function cloneBody(object) {
  const own = object[content];
  if (isUsed(object) || own.stream?.locked) throw new TypeError('Response.clone: Body has already been consumed.');
  if (own.stream === null) return { ...own };
  const [first, second] = own.stream.tee();
  own.stream = first;
  return { ...own, stream: second };
}

module.exports = { content, extract, mixIn, cloneBody, isUsed };
