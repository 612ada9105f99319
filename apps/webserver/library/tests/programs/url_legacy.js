// SPDX-License-Identifier: BSL-1.0
'use strict';
// The library's functions under their own name, or as a part of the module `url`.
let url;
try {
  url = require('_url_legacy');
} catch {
  url = require('url');
}

const texts = [
  '/',
  '/path?query=1#hash',
  '/a b?c d',
  'http://user:pa%20ss@Host.Example:8080/p/a/t/h?query=string#hash',
  'http://host',
  'http://host?x',
  'https://host/',
  '//host/path',
  'path/only',
  '?a=1&b=2',
  '#h',
  '',
  'mailto:a@b.c',
  'http://[::1]:80/x',
  'file:///etc/passwd',
  '/a\\b?c\\d',
  'x:y',
  '/path/?',
  '/<script>',
];
const show = (parsed) =>
  JSON.stringify({ ...parsed, query: typeof parsed.query === 'object' && parsed.query !== null ? { ...parsed.query } : parsed.query });
for (const text of texts) {
  print(show(url.parse(text)));
  print(show(url.parse(text, true)));
  print(url.parse(text, false, true).host, url.format(url.parse(text)), url.format(text));
}
const bases = ['http://a/b/c/d?q', '/one/two/three', 'http://example.com/one'];
const references = [
  'g',
  './g',
  'g/',
  '/g',
  '//g',
  '?y',
  'g?y',
  '#s',
  '',
  '.',
  './',
  '..',
  '../',
  '../g',
  '../../g',
  '../../../g',
  'http://other/x',
  'https://a/z',
];
for (const base of bases) for (const reference of references) print(base, reference, url.resolve(base, reference));
print(
  url.format({ protocol: 'http', host: 'h', pathname: 'p', query: { a: [1, 2] }, hash: 'x' }),
  url.format({ hostname: 'h', port: 80, pathname: '/p', search: 'a=1' }),
);
print(url.format(new URL('http://u:p@h/p?q#f'), { fragment: false, auth: false, search: false }));
