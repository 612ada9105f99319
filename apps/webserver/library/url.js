// SPDX-License-Identifier: BSL-1.0
// node:url: the classes of the URL Standard, paths of files as URLs, and the older functions.
'use strict';

const { URL, URLSearchParams, domainToASCII, domainToUnicode } = require('internal/url');
const legacy = require('_url_legacy');
const { withCode, argumentType } = require('_errors');

function fileURLToPath(url) {
  if (typeof url === 'string') url = new URL(url);
  else if (!(url instanceof URL)) throw argumentType('path', ['string', 'URL'], url);
  if (url.protocol !== 'file:') throw withCode(TypeError, 'ERR_INVALID_URL_SCHEME', 'The URL must be of scheme file');
  if (url.hostname !== '') throw withCode(TypeError, 'ERR_INVALID_FILE_URL_HOST', 'File URL host must be "localhost" or empty on neap');
  if (/%2f/i.test(url.pathname)) {
    throw withCode(TypeError, 'ERR_INVALID_FILE_URL_PATH', 'File URL path must not include encoded / characters');
  }
  return decodeURIComponent(url.pathname);
}

function pathToFileURL(path) {
  if (typeof path !== 'string') throw argumentType('path', 'string', path);
  // A slash at the end is kept, unlike by path.resolve.
  const resolved = require('path').resolve(path) + (path.endsWith('/') && path !== '/' ? '/' : '');
  return new URL(`file://${resolved.replace(/[%\\\n\r\t?#]/g, encodeURIComponent)}`);
}

function urlToHttpOptions(url) {
  const { protocol, hostname, hash, search, pathname, href, port, username, password } = url;
  const options = {
    __proto__: null,
    ...url,
    protocol,
    hostname: hostname?.startsWith('[') ? hostname.slice(1, -1) : hostname,
    hash,
    search,
    pathname,
    path: `${pathname || ''}${search || ''}`,
    href,
  };
  if (port !== '') options.port = Number(port);
  if (username || password) options.auth = `${decodeURIComponent(username)}:${decodeURIComponent(password)}`;
  return options;
}

/// The text of a URL, without the parts that the options leave out; or the older function for its own objects.
function format(url, { fragment = true, unicode = false, search = true, auth = true } = {}) {
  if (!(url instanceof URL)) return legacy.format(url);
  const shown = new URL(url.href);
  if (!fragment) shown.hash = '';
  if (!search) shown.search = '';
  if (!auth) shown.username = shown.password = '';
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
