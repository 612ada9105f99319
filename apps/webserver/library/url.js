// SPDX-License-Identifier: BSL-1.0
// The module `url`: the URL class, the older functions, and paths of files as URLs.
'use strict';

const { URL, URLSearchParams, domainToASCII, domainToUnicode } = require('internal/url');
const { withCode, argumentType, checkString } = require('_errors');
const legacy = require('_url_legacy');

function fileURLToPath(url) {
  if (typeof url === 'string') url = new URL(url);
  else if (url === null || typeof url !== 'object' || typeof url.href !== 'string') throw argumentType('path', ['string', 'URL'], url);
  if (url.protocol !== 'file:') throw withCode(TypeError, 'ERR_INVALID_URL_SCHEME', 'The URL must be of scheme file');
  if (url.hostname !== '') {
    throw withCode(TypeError, 'ERR_INVALID_FILE_URL_HOST', 'File URL host must be "localhost" or empty on neap');
  }
  if (/%2f/i.test(url.pathname)) {
    throw withCode(TypeError, 'ERR_INVALID_FILE_URL_PATH', 'File URL path must not include encoded / characters');
  }
  return decodeURIComponent(url.pathname);
}

function pathToFileURL(path) {
  checkString(path, 'path');
  let resolved = require('path').resolve(path);
  if (path.endsWith('/') && !resolved.endsWith('/')) resolved += '/';
  const escapes = { '%': '%25', '\\': '%5C', '\n': '%0A', '\r': '%0D', '\t': '%09', '?': '%3F', '#': '%23' };
  return new URL(`file://${resolved.replace(/[%\\\n\r\t?#]/g, (character) => escapes[character])}`);
}

function urlToHttpOptions(url) {
  const options = {
    protocol: url.protocol,
    hostname: url.hostname.replace(/^\[|\]$/g, ''),
    hash: url.hash,
    search: url.search,
    pathname: url.pathname,
    path: `${url.pathname || ''}${url.search || ''}`,
    href: url.href,
  };
  if (url.port !== '') options.port = Number(url.port);
  if (url.username || url.password) options.auth = `${decodeURIComponent(url.username)}:${decodeURIComponent(url.password)}`;
  return options;
}

/// Of a URL with the options of the URL Standard's serialiser in Node; of another value as the older function.
function format(url, options) {
  if (!(url instanceof URL)) return legacy.format(url);
  const { fragment = true, unicode = false, search = true, auth = true } = options ?? {};
  const shown = new URL(url.href);
  if (!fragment) shown.hash = '';
  if (!search) shown.search = '';
  if (!auth) {
    shown.username = '';
    shown.password = '';
  }
  return unicode && shown.hostname !== '' ? shown.href.replace(shown.hostname, domainToUnicode(shown.hostname)) : shown.href;
}

module.exports = {
  ...legacy,
  format,
  URL,
  URLSearchParams,
  domainToASCII,
  domainToUnicode,
  fileURLToPath,
  pathToFileURL,
  urlToHttpOptions,
};
