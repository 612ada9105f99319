// SPDX-License-Identifier: BSL-1.0
// The older functions of the module `url`: parse, format, resolve.
//
// Middleware calls url.parse(req.url, true) for the path and the query. These functions cut a text into its parts and do not judge it.
'use strict';

const { withCode, argumentType } = require('_errors');

const withSlashes = new Set(['http:', 'https:', 'ftp:', 'gopher:', 'file:', 'ws:', 'wss:']);

function Url() {
  this.protocol = null;
  this.slashes = null;
  this.auth = null;
  this.host = null;
  this.port = null;
  this.hostname = null;
  this.hash = null;
  this.search = null;
  this.query = null;
  this.pathname = null;
  this.path = null;
  this.href = null;
}

// Characters that must not stand in a URL are escaped.
function escapePart(text) {
  return text.replace(/[\t\n\r "'<>\\^`{|}]/g, (character) => `%${character.charCodeAt(0).toString(16).toUpperCase().padStart(2, '0')}`);
}

function splitAuthority(url, rest) {
  const end = rest.search(/[/?#]/);
  let authority = end === -1 ? rest : rest.slice(0, end);
  const at = authority.lastIndexOf('@');
  if (at !== -1) {
    try {
      url.auth = decodeURIComponent(authority.slice(0, at));
    } catch {
      throw withCode(URIError, 'ERR_INVALID_URL', 'URI malformed');
    }
    authority = authority.slice(at + 1);
  }
  const port = /:(\d*)$/.exec(authority);
  if (port && !/\[[^\]]*$/.test(authority)) {
    if (port[1] !== '') [, url.port] = port;
    authority = authority.slice(0, port.index);
  }
  const isBracketed = authority[0] === '[' && authority.endsWith(']');
  if (!isBracketed && /[\0-\x20"#%/:;<>?@[\\\]^`{|}]/.test(authority)) throw withCode(TypeError, 'ERR_INVALID_URL', 'Invalid URL');
  url.hostname = isBracketed ? authority.slice(1, -1).toLowerCase() : authority.toLowerCase();
  url.host = `${isBracketed ? `[${url.hostname}]` : url.hostname}${url.port === null ? '' : `:${url.port}`}`;
  return end === -1 ? '' : rest.slice(end);
}

function parse(text, parseQuery = false, slashesDenoteHost = false) {
  if (text instanceof Url) return text;
  if (typeof text !== 'string') throw argumentType('url', 'string', text);
  const url = new Url();
  let rest = text.trim();
  // Backslashes count as slashes before the query.
  const tail = rest.search(/[?#]/);
  const head = tail === -1 ? rest : rest.slice(0, tail);
  rest = head.replaceAll('\\', '/') + rest.slice(head.length);
  const scheme = /^([a-z0-9.+-]+):/i.exec(rest);
  if (scheme) {
    url.protocol = scheme[0].toLowerCase();
    rest = rest.slice(scheme[0].length);
  }
  const hasHost = rest.startsWith('//') && (scheme || slashesDenoteHost) && url.protocol !== 'javascript:';
  if (hasHost || (scheme && !withSlashes.has(url.protocol) && url.protocol !== 'javascript:')) {
    if (hasHost) {
      url.slashes = true;
      rest = rest.slice(2);
    }
    rest = splitAuthority(url, rest);
  }
  // Node leaves the characters of a path alone if there is nothing else in the text.
  const isPath =
    !slashesDenoteHost && !text.includes('#') && !text.includes('@') && /^\/\/?(?!\/)[^?\s]*(\?[^\s]*)?$/.test(rest) && !scheme;
  if (!isPath) rest = escapePart(rest);
  const hash = rest.indexOf('#');
  if (hash !== -1) {
    url.hash = rest.slice(hash);
    rest = rest.slice(0, hash);
  }
  const question = rest.indexOf('?');
  if (question !== -1) {
    url.search = rest.slice(question);
    url.query = url.search.slice(1);
    rest = rest.slice(0, question);
  } else if (parseQuery) {
    url.search = null;
    url.query = '';
  }
  if (parseQuery) url.query = require('querystring').parse(url.query ?? '');
  if (rest !== '') url.pathname = rest;
  if (withSlashes.has(url.protocol) && url.hostname && !url.pathname) url.pathname = '/';
  if (url.pathname || url.search) url.path = `${url.pathname ?? ''}${url.search ?? ''}`;
  url.href = url.format();
  return url;
}

Url.prototype.format = function format() {
  const auth = this.auth ? `${encodeURIComponent(this.auth).replace(/%3A/i, ':')}@` : '';
  let protocol = this.protocol || '';
  let host = '';
  if (this.host) host = auth + this.host;
  else if (this.hostname) {
    host = auth + (this.hostname.includes(':') && this.hostname[0] !== '[' ? `[${this.hostname}]` : this.hostname);
    if (this.port) host += `:${this.port}`;
  }
  let search = this.search || '';
  if (!search && this.query !== null && typeof this.query === 'object') {
    const query = require('querystring').stringify(this.query);
    if (query) search = `?${query}`;
  }
  let pathname = (this.pathname || '').replace(/[?#]/g, encodeURIComponent);
  let hash = this.hash || '';
  if (protocol && !protocol.endsWith(':')) protocol += ':';
  if (this.slashes || withSlashes.has(protocol)) {
    if (this.slashes || host) {
      if (pathname && pathname[0] !== '/') pathname = `/${pathname}`;
      host = `//${host}`;
    } else if (protocol === 'file:') host = '//';
  }
  if (hash && hash[0] !== '#') hash = `#${hash}`;
  if (search && search[0] !== '?') search = `?${search}`;
  return protocol + host + pathname + search.replaceAll('#', '%23') + hash;
};

// A URL object with options, a text, or an object with the parts.
function format(value, options) {
  if (typeof value === 'string') return parse(value).format();
  if (value === null || typeof value !== 'object') throw argumentType('urlObject', ['Object', 'string'], value);
  if (typeof URL === 'function' && value instanceof URL) {
    const url = new URL(value.href);
    if (options?.fragment === false) url.hash = '';
    if (options?.search === false) url.search = '';
    if (options?.auth === false) url.username = url.password = '';
    return url.href;
  }
  return Url.prototype.format.call(value);
}

// Removes the segments "." and ".." of a path; a path that begins with a slash does not go above its root.
function removeDots(path) {
  const absolute = path[0] === '/';
  const result = [];
  const segments = path.split('/');
  segments.forEach((segment, index) => {
    const last = index === segments.length - 1;
    if (segment === '..') {
      if (result.length > (absolute ? 1 : 0) && result[result.length - 1] !== '..') result.pop();
      else if (!absolute) result.push('..');
      if (last) result.push('');
    } else if (segment === '.') {
      if (last) result.push('');
    } else result.push(segment);
  });
  const joined = result.join('/');
  return absolute && joined[0] !== '/' ? `/${joined}` : joined;
}

/// The reference `to` seen from `from` (RFC 3986 5.2).
function resolve(from, to) {
  const base = parse(from, false, true);
  const reference = parse(to, false, true);
  const result = new Url();
  Object.assign(result, base);
  result.hash = reference.hash;
  if (to === '') {
    result.href = result.format();
    return result.href;
  }
  if (reference.protocol && reference.protocol !== base.protocol) {
    Object.assign(result, reference);
    if (result.pathname) result.pathname = removeDots(result.pathname);
    return result.format();
  }
  if (reference.host) {
    Object.assign(result, reference, { protocol: base.protocol });
    result.pathname = removeDots(reference.pathname || (base.protocol ? '/' : ''));
    return result.format();
  }
  const path = reference.pathname;
  if (path) {
    if (path[0] === '/') result.pathname = removeDots(path);
    else {
      const folder = (base.pathname || (base.host ? '/' : '')).replace(/[^/]*$/, '');
      result.pathname = removeDots(folder + path);
    }
    result.search = reference.search;
  } else if (reference.search) result.search = reference.search;
  return result.format();
}

module.exports = { Url, parse, format, resolve, resolveObject: (from, to) => parse(resolve(from, to)) };
