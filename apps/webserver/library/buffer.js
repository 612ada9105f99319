// SPDX-License-Identifier: BSL-1.0
// Buffer: bytes, as in Node.
//
// A Buffer is a Uint8Array with more methods. Work that touches each byte is done by natives, `internalBinding('text')`:
//   encode(string, encoding) -> Uint8Array
//   decode(bytes, encoding, start, end) -> string
//   byteLength(string) -> bytes in UTF-8
//   writeInto(target, string, offset, length, encoding) -> bytes written, whole characters only
//   compare(first, second) -> -1, 0 or 1
//   indexOf(haystack, needle, from, forward, step) -> index or -1
//   fill(target, pattern, start, end)
// `encoding` is a name of `_encoding.js`; offsets are checked here. There is no pool: each Buffer has its own memory, except slices.
'use strict';

const text = internalBinding('text');
const { withCode, argumentType, argumentValue, outOfRange, checkNumber, checkInteger } = require('_errors');
const { normalize, names } = require('_encoding');

const kMaxLength = 2 ** 32;
const kStringMaxLength = 2 ** 29 - 24;

class FastBuffer extends Uint8Array {}

function Buffer(value, encodingOrOffset, length) {
  if (typeof value === 'number') {
    if (typeof encodingOrOffset === 'string') throw argumentType('string', 'string', value);
    return Buffer.alloc(value);
  }
  return Buffer.from(value, encodingOrOffset, length);
}
Buffer.prototype = FastBuffer.prototype;
Object.setPrototypeOf(Buffer, Uint8Array);
Object.defineProperty(Buffer.prototype, 'constructor', { value: Buffer, writable: true, enumerable: false, configurable: true });
Object.defineProperty(Buffer, Symbol.species, { configurable: true, get: () => FastBuffer });
Buffer.poolSize = 8192;

function known(encoding) {
  const name = normalize(encoding);
  if (name === undefined) throw withCode(TypeError, 'ERR_UNKNOWN_ENCODING', `Unknown encoding: ${encoding}`);
  return name;
}

function wrap(bytes) {
  return new FastBuffer(bytes.buffer, bytes.byteOffset, bytes.length);
}

function isAnyArrayBuffer(value) {
  const tag = Object.prototype.toString.call(value);
  return tag === '[object ArrayBuffer]' || tag === '[object SharedArrayBuffer]';
}

function fromString(string, encoding) {
  return wrap(text.encode(string, encoding === undefined ? 'utf8' : known(encoding)));
}

function fromArrayLike(list) {
  if (!(list.length > 0)) return new FastBuffer();
  const buffer = new FastBuffer(list.length);
  buffer.set(list);
  return buffer;
}

function fromTypeError(value) {
  const { describe } = require('_errors');
  return withCode(
    TypeError,
    'ERR_INVALID_ARG_TYPE',
    'The first argument must be of type string or an instance of Buffer, ArrayBuffer, or Array or an Array-like Object. ' +
      `Received ${describe(value)}`,
  );
}

function fromArrayBuffer(value, byteOffset, length) {
  byteOffset = byteOffset === undefined ? 0 : +byteOffset || 0;
  const maximum = value.byteLength - byteOffset;
  if (maximum < 0) throw withCode(RangeError, 'ERR_BUFFER_OUT_OF_BOUNDS', '"offset" is outside of buffer bounds');
  if (length === undefined) length = maximum;
  else {
    length = +length;
    if (!(length > 0)) length = 0;
    else if (length > maximum) throw withCode(RangeError, 'ERR_BUFFER_OUT_OF_BOUNDS', '"length" is outside of buffer bounds');
  }
  return new FastBuffer(value, byteOffset, length);
}

Buffer.from = function from(value, encodingOrOffset, length) {
  if (typeof value === 'string') return fromString(value, encodingOrOffset);
  if (typeof value === 'object' && value !== null) {
    if (isAnyArrayBuffer(value)) return fromArrayBuffer(value, encodingOrOffset, length);
    const primitive = value.valueOf && value.valueOf();
    if (primitive != null && primitive !== value && (typeof primitive === 'string' || typeof primitive === 'object')) {
      return from(primitive, encodingOrOffset, length);
    }
    if (value.length !== undefined) return typeof value.length === 'number' ? fromArrayLike(value) : new FastBuffer();
    if (value.type === 'Buffer' && Array.isArray(value.data)) return fromArrayLike(value.data);
    if (typeof value[Symbol.toPrimitive] === 'function') {
      const converted = value[Symbol.toPrimitive]('string');
      if (typeof converted === 'string') return fromString(converted, encodingOrOffset);
    }
  }
  throw fromTypeError(value);
};

Buffer.of = function of(...items) {
  return fromArrayLike(items);
};

Buffer.copyBytesFrom = function copyBytesFrom(view, offset = 0, length = view.length - offset) {
  const part = view.subarray(offset, offset + length);
  return new FastBuffer(part.buffer.slice(part.byteOffset, part.byteOffset + part.byteLength));
};

function checkSize(size) {
  checkNumber(size, 'size', 0, kMaxLength);
}

Buffer.alloc = function alloc(size, fill, encoding) {
  checkSize(size);
  const buffer = new FastBuffer(size);
  if (fill !== undefined && fill !== 0 && size > 0) fillBuffer(buffer, fill, 0, buffer.length, encoding);
  return buffer;
};

Buffer.allocUnsafe = function allocUnsafe(size) {
  checkSize(size);
  return new FastBuffer(size);
};
Buffer.allocUnsafeSlow = Buffer.allocUnsafe;

Buffer.isBuffer = function isBuffer(value) {
  return value instanceof Buffer;
};

Buffer.isEncoding = function isEncoding(encoding) {
  return typeof encoding === 'string' && encoding.length !== 0 && normalize(encoding) !== undefined;
};

Buffer.byteLength = function byteLength(value, encoding) {
  if (typeof value !== 'string') {
    if (ArrayBuffer.isView(value) || isAnyArrayBuffer(value)) return value.byteLength;
    throw argumentType('string', ['string', 'Buffer', 'ArrayBuffer'], value);
  }
  switch (normalize(encoding) ?? 'utf8') {
    case 'latin1':
    case 'ascii':
      return value.length;
    case 'utf16le':
      return value.length * 2;
    case 'hex':
      return value.length >>> 1;
    case 'base64':
    case 'base64url': {
      let length = value.length;
      if (length > 0 && value.charCodeAt(length - 1) === 0x3d) length--;
      if (length > 1 && value.charCodeAt(length - 1) === 0x3d) length--;
      return (length * 3) >>> 2;
    }
    default:
      return text.byteLength(value);
  }
};

function checkBytes(value, name) {
  if (!(value instanceof Uint8Array)) throw argumentType(name, ['Buffer', 'Uint8Array'], value);
}

Buffer.compare = function compare(first, second) {
  checkBytes(first, 'buf1');
  checkBytes(second, 'buf2');
  return first === second ? 0 : text.compare(first, second);
};

Buffer.concat = function concat(list, length) {
  if (!Array.isArray(list)) throw argumentType('list', 'Array', list);
  if (list.length === 0) return new FastBuffer();
  if (length === undefined) {
    length = 0;
    for (const item of list) if (item.length) length += item.length;
  } else {
    checkInteger(length, 'length', 0);
  }
  const buffer = new FastBuffer(length);
  let position = 0;
  for (let index = 0; index < list.length; index++) {
    let item = list[index];
    checkBytes(item, `list[${index}]`);
    if (position >= length) break;
    if (item.length > length - position) item = item.subarray(0, length - position);
    buffer.set(item, position);
    position += item.length;
  }
  return buffer;
};

const methods = {
  get parent() {
    return this instanceof Buffer ? this.buffer : undefined;
  },

  get offset() {
    return this instanceof Buffer ? this.byteOffset : undefined;
  },

  toString(encoding, start, end) {
    const length = this.length;
    if (arguments.length === 0) return text.decode(this, 'utf8', 0, length);
    if (start === undefined || start <= 0) start = 0;
    else if (start >= length) return '';
    else start = Math.trunc(start) || 0;
    if (end === undefined || end > length) end = length;
    else end = Math.trunc(end) || 0;
    if (end <= start) return '';
    return text.decode(this, encoding === undefined ? 'utf8' : known(encoding), start, end);
  },

  toJSON() {
    return { type: 'Buffer', data: Array.from(this) };
  },

  equals(other) {
    if (!(other instanceof Uint8Array)) throw argumentType('otherBuffer', ['Buffer', 'Uint8Array'], other);
    if (this === other) return true;
    return this.length === other.length && text.compare(this, other) === 0;
  },

  compare(target, targetStart = 0, targetEnd = target?.length, start = 0, end = this.length) {
    checkBytes(target, 'target');
    checkInteger(targetStart, 'targetStart', 0);
    checkInteger(targetEnd, 'targetEnd', 0, target.length);
    checkInteger(start, 'sourceStart', 0);
    checkInteger(end, 'sourceEnd', 0, this.length);
    if (start >= end) return targetStart >= targetEnd ? 0 : -1;
    if (targetStart >= targetEnd) return 1;
    return text.compare(this.subarray(start, end), target.subarray(targetStart, targetEnd));
  },

  copy(target, targetStart, start, end) {
    checkBytes(target, 'target');
    const position = targetStart === undefined ? 0 : toInteger(targetStart, 0);
    if (position < 0) throw outOfRange('targetStart', '>= 0', position);
    const from = start === undefined ? 0 : toInteger(start, 0);
    if (from < 0 || from > this.length) throw outOfRange('sourceStart', `>= 0 && <= ${this.length}`, from);
    const to = end === undefined ? this.length : toInteger(end, 0);
    if (to < 0) throw outOfRange('sourceEnd', '>= 0', to);
    if (position >= target.length || from >= to) return 0;
    const count = Math.min(to - from, target.length - position, this.length - from);
    target.set(this.subarray(from, from + count), position);
    return count;
  },

  slice(start, end) {
    return this.subarray(start, end);
  },

  subarray(start, end) {
    const length = this.length;
    start = clampIndex(start, 0, length);
    end = clampIndex(end, length, length);
    return new FastBuffer(this.buffer, this.byteOffset + start, end > start ? end - start : 0);
  },

  write(string, offset, length, encoding) {
    if (typeof string !== 'string') throw withCode(TypeError, 'ERR_INVALID_ARG_TYPE', 'argument must be a string');
    if (offset === undefined) return text.writeInto(this, string, 0, this.length, 'utf8');
    if (length === undefined && typeof offset === 'string') {
      return text.writeInto(this, string, 0, this.length, known(offset));
    }
    checkInteger(offset, 'offset', 0, this.length);
    const remaining = this.length - offset;
    if (length === undefined) length = remaining;
    else if (typeof length === 'string') {
      encoding = length;
      length = remaining;
    } else {
      checkInteger(length, 'length', 0, this.length);
      if (length > remaining) length = remaining;
    }
    return text.writeInto(this, string, offset, length, known(encoding));
  },

  fill(value, offset, end, encoding) {
    return fillBuffer(this, value, offset, end, encoding);
  },

  indexOf(value, byteOffset, encoding) {
    return search(this, value, byteOffset, encoding, true);
  },

  lastIndexOf(value, byteOffset, encoding) {
    return search(this, value, byteOffset, encoding, false);
  },

  includes(value, byteOffset, encoding) {
    return search(this, value, byteOffset, encoding, true) !== -1;
  },

  swap16() {
    return swap(this, 2);
  },

  swap32() {
    return swap(this, 4);
  },

  swap64() {
    return swap(this, 8);
  },

  [Symbol.for('nodejs.util.inspect.custom')](depth, options) {
    const maximum = module.exports.INSPECT_MAX_BYTES;
    const shown = Math.min(maximum, this.length);
    let result = text.decode(this, 'hex', 0, shown).replace(/(.{2})(?=.)/g, '$1 ');
    const remaining = this.length - maximum;
    if (remaining > 0) result += ` ... ${remaining} more byte${remaining > 1 ? 's' : ''}`;
    const extras = Object.keys(this).filter((key) => !/^\d+$/.test(key));
    if (extras.length > 0) {
      const { inspect } = require('util');
      const rest = extras.map((key) => `${key}: ${inspect(this[key], options)}`).join(', ');
      result += `${this.length !== 0 ? ', ' : ''}${rest}`;
    }
    return `<${this.constructor.name} ${result}>`;
  },
};

function toInteger(value, otherwise) {
  value = +value;
  return Number.isNaN(value) ? otherwise : Math.trunc(value);
}

function clampIndex(value, otherwise, length) {
  if (value === undefined) return otherwise;
  value = Math.trunc(+value) || 0;
  if (value < 0) return Math.max(0, value + length);
  return Math.min(value, length);
}

function fillBuffer(buffer, value, offset, end, encoding) {
  if (typeof offset === 'string') {
    encoding = offset;
    offset = 0;
    end = buffer.length;
  } else if (typeof end === 'string') {
    encoding = end;
    end = buffer.length;
  }
  if (offset === undefined) offset = 0;
  else checkNumber(offset, 'offset', 0);
  if (end === undefined) end = buffer.length;
  else checkNumber(end, 'end', 0, buffer.length);
  if (encoding !== undefined && typeof encoding !== 'string') throw argumentType('encoding', 'string', encoding);
  offset = Math.trunc(offset);
  end = Math.trunc(end);
  let pattern = value;
  const name = typeof value === 'string' ? known(encoding) : undefined;
  if (offset >= end) return buffer;
  if (typeof value === 'string') {
    if (value.length === 0) {
      Uint8Array.prototype.fill.call(buffer, 0, offset, end);
      return buffer;
    }
    pattern = text.encode(value, name);
    if (pattern.length === 0) throw argumentValue('value', value);
  } else if (!(value instanceof Uint8Array)) {
    Uint8Array.prototype.fill.call(buffer, typeof value === 'boolean' ? +value : value & 255, offset, end);
    return buffer;
  } else if (value.length === 0) throw argumentValue('value', value);
  text.fill(buffer, pattern, offset, end);
  return buffer;
}

function search(buffer, value, byteOffset, encoding, forward) {
  if (typeof byteOffset === 'string') {
    encoding = byteOffset;
    byteOffset = undefined;
  }
  const length = buffer.length;
  let from = +byteOffset;
  if (Number.isNaN(from)) from = forward ? 0 : length;
  from = Math.trunc(from);
  if (from < 0) from += length;
  const before = from < 0 && !forward;
  if (from < 0) from = 0;
  if (typeof value === 'number') {
    if (before) return -1;
    value &= 255;
    if (forward) return Uint8Array.prototype.indexOf.call(buffer, value, from);
    return length === 0 ? -1 : Uint8Array.prototype.lastIndexOf.call(buffer, value, Math.min(from, length - 1));
  }
  let step = 1;
  let needle = value;
  if (typeof value === 'string') {
    const name = known(encoding);
    if (name === 'utf16le') step = 2;
    needle = text.encode(value, name);
  } else if (!(value instanceof Uint8Array)) {
    throw argumentType('value', ['number', 'string', 'Buffer', 'Uint8Array'], value);
  } else if (encoding !== undefined && normalize(encoding) === 'utf16le') step = 2;
  if (from > length) {
    if (forward) return needle.length === 0 ? length : -1;
    from = length;
  }
  if (needle.length === 0) return from;
  if (before || (forward && from + needle.length > length)) return -1;
  if (step === 2) from -= from % 2;
  return text.indexOf(buffer, needle, from, forward, step);
}

function swap(buffer, size) {
  if (buffer.length % size !== 0) {
    throw withCode(RangeError, 'ERR_INVALID_BUFFER_SIZE', `Buffer size must be a multiple of ${size * 8}-bits`);
  }
  for (let position = 0; position < buffer.length; position += size) {
    Uint8Array.prototype.reverse.call(Uint8Array.prototype.subarray.call(buffer, position, position + size));
  }
  return buffer;
}

function define(source) {
  for (const key of Reflect.ownKeys(source)) {
    const descriptor = Object.getOwnPropertyDescriptor(source, key);
    descriptor.enumerable = false;
    Object.defineProperty(Buffer.prototype, key, descriptor);
  }
}
define(methods);
define(require('_buffer_numbers'));
Object.defineProperty(Buffer.prototype, 'toLocaleString', {
  value: Buffer.prototype.toString,
  writable: true,
  enumerable: false,
  configurable: true,
});
Object.defineProperty(Buffer.prototype, 'inspect', {
  value: methods[Symbol.for('nodejs.util.inspect.custom')],
  writable: true,
  enumerable: false,
  configurable: true,
});
for (const name of new Set(Object.values(names))) {
  Object.defineProperty(Buffer.prototype, `${name}Slice`, {
    enumerable: false,
    value(start = 0, end = this.length) {
      return text.decode(this, name, start, end);
    },
  });
  Object.defineProperty(Buffer.prototype, `${name}Write`, {
    enumerable: false,
    value(string, offset = 0, length = this.length - offset) {
      return text.writeInto(this, string, offset, length, name);
    },
  });
}

module.exports = {
  Buffer,
  SlowBuffer: Buffer.allocUnsafeSlow,
  INSPECT_MAX_BYTES: 50,
  kMaxLength,
  kStringMaxLength,
  constants: { MAX_LENGTH: kMaxLength, MAX_STRING_LENGTH: kStringMaxLength },
  ...require('_buffer_text'),
  get Blob() {
    return require('_web_blob').Blob;
  },
  get File() {
    return require('_web_blob').File;
  },
};
