// SPDX-License-Identifier: BSL-1.0
// FormData, and its two forms on the wire: multipart/form-data and application/x-www-form-urlencoded.
'use strict';

const { Blob, File, bytesOf } = require('_web_blob');
const text = internalBinding('text');
const entries = Symbol('entries');

class FormData {
  constructor() {
    this[entries] = [];
  }

  append(name, value, fileName) {
    this[entries].push([`${name}`, toEntry(value, fileName)]);
  }

  set(name, value, fileName) {
    const entry = [`${name}`, toEntry(value, fileName)];
    const index = this[entries].findIndex(([other]) => other === entry[0]);
    if (index === -1) this[entries].push(entry);
    else {
      this[entries][index] = entry;
      this[entries] = this[entries].filter(([other], position) => position <= index || other !== entry[0]);
    }
  }

  delete(name) {
    this[entries] = this[entries].filter(([other]) => other !== `${name}`);
  }

  get(name) {
    const found = this[entries].find(([other]) => other === `${name}`);
    return found ? found[1] : null;
  }

  getAll(name) {
    return this[entries].filter(([other]) => other === `${name}`).map(([, value]) => value);
  }

  has(name) {
    return this[entries].some(([other]) => other === `${name}`);
  }

  forEach(callback, self) {
    for (const [name, value] of this[entries]) callback.call(self, value, name, this);
  }

  *entries() {
    yield* this[entries];
  }

  *keys() {
    for (const [name] of this[entries]) yield name;
  }

  *values() {
    for (const [, value] of this[entries]) yield value;
  }

  [Symbol.iterator]() {
    return this.entries();
  }

  get [Symbol.toStringTag]() {
    return 'FormData';
  }
}

function toEntry(value, fileName) {
  if (!(value instanceof Blob)) return `${value}`;
  if (value instanceof File && fileName === undefined) return value;
  return new File([value], fileName ?? 'blob', { type: value.type });
}

const quoted = (name) => name.replace(/\r?\n|\r/g, '%0D%0A').replace(/"/g, '%22');

/// The body of a form, as {bytes, type}.
function encode(form) {
  const boundary = `----neap-${Math.random().toString(36).slice(2).padEnd(12, '0')}${Date.now().toString(36)}`;
  const parts = [];
  for (const [name, value] of form) {
    const isFile = typeof value !== 'string';
    let head = `--${boundary}\r\nContent-Disposition: form-data; name="${quoted(name)}"`;
    if (isFile) head += `; filename="${quoted(value.name)}"\r\nContent-Type: ${value.type || 'application/octet-stream'}`;
    parts.push(`${head}\r\n\r\n`, isFile ? value : value.replace(/\r?\n|\r/g, '\r\n'), '\r\n');
  }
  parts.push(`--${boundary}--\r\n`);
  return { bytes: new Blob(parts)[bytesOf], type: `multipart/form-data; boundary=${boundary}` };
}

function parseMultipart(bytes, boundary) {
  const form = new FormData();
  const mark = text.encode(`--${boundary}`, 'utf8');
  const find = (needle, from) => (from > bytes.length ? -1 : text.indexOf(bytes, needle, from, true, 1));
  const headEnd = text.encode('\r\n\r\n', 'latin1');
  const next = text.encode(`\r\n--${boundary}`, 'utf8');
  let position = find(mark, 0);
  if (position === -1) throw new TypeError('Failed to parse body as FormData: no boundary.');
  position += mark.length;
  // After a boundary come "--" at the end of the form, or a line end and a part.
  while (!(bytes[position] === 0x2d && bytes[position + 1] === 0x2d)) {
    const bodyStart = find(headEnd, position);
    const end = bodyStart === -1 ? -1 : find(next, bodyStart + 2);
    if (end === -1) throw new TypeError('Failed to parse body as FormData: a part does not end.');
    const head = text.decode(bytes, 'utf8', position, bodyStart);
    const name = /content-disposition:[^\r\n]*[; ]name="([^"]*)"/i.exec(head);
    if (!name) throw new TypeError('Failed to parse body as FormData: a part has no name.');
    const fileName = /content-disposition:[^\r\n]*filename="([^"]*)"/i.exec(head);
    const type = /content-type:\s*([^\r\n]*)/i.exec(head);
    const unquoted = (value) => value.replace(/%22/g, '"').replace(/%0D%0A/gi, '\r\n');
    const content = bytes.slice(bodyStart + 4, Math.max(end, bodyStart + 4));
    if (fileName)
      form.append(unquoted(name[1]), new File([content], unquoted(fileName[1]), { type: type ? type[1] : 'application/octet-stream' }));
    else form.append(unquoted(name[1]), text.decode(content, 'utf8', 0, content.length));
    position = end + next.length;
    if (position >= bytes.length) throw new TypeError('Failed to parse body as FormData: no final boundary.');
  }
  return form;
}

/// Parses a body by its content type.
function parse(bytes, contentType) {
  const type = `${contentType ?? ''}`;
  if (/^multipart\/form-data/i.test(type)) {
    const boundary = /boundary=(?:"([^"]+)"|([^;\s]+))/i.exec(type);
    if (!boundary) throw new TypeError('Failed to parse body as FormData: no boundary.');
    return parseMultipart(bytes, boundary[1] ?? boundary[2]);
  }
  if (/^application\/x-www-form-urlencoded/i.test(type)) {
    const form = new FormData();
    for (const [name, value] of new URLSearchParams(text.decode(bytes, 'utf8', 0, bytes.length))) form.append(name, value);
    return form;
  }
  throw new TypeError('Content-Type was not one of "multipart/form-data" or "application/x-www-form-urlencoded".');
}

module.exports = { FormData, encode, parse };
