// SPDX-License-Identifier: BSL-1.0
// The module `path`: POSIX paths. The archive of scripts has no other.
'use strict';

const { checkString, argumentType } = require('_errors');

// Removes "." and "..". `above` keeps ".." at the beginning, as relative paths need.
function reduce(path, above) {
  const parts = [];
  for (const part of path.split('/')) {
    if (part === '' || part === '.') continue;
    if (part !== '..') parts.push(part);
    else if (parts.length > 0 && parts[parts.length - 1] !== '..') parts.pop();
    else if (above) parts.push('..');
  }
  return parts.join('/');
}

function resolve(...paths) {
  let resolved = '';
  let absolute = false;
  for (let index = paths.length - 1; index >= -1 && !absolute; index--) {
    const path = index >= 0 ? paths[index] : '/';
    if (index >= 0) checkString(path, `paths[${index}]`);
    if (path === '') continue;
    resolved = `${path}/${resolved}`;
    absolute = path[0] === '/';
  }
  return `/${reduce(resolved, false)}`;
}

function normalize(path) {
  checkString(path, 'path');
  if (path === '') return '.';
  const absolute = path[0] === '/';
  const folder = path[path.length - 1] === '/';
  let result = reduce(path, !absolute);
  if (result === '') {
    if (absolute) return '/';
    return folder ? './' : '.';
  }
  if (folder) result += '/';
  return absolute ? `/${result}` : result;
}

function isAbsolute(path) {
  checkString(path, 'path');
  return path[0] === '/';
}

function join(...paths) {
  for (const path of paths) checkString(path, 'path');
  const joined = paths.filter((path) => path !== '').join('/');
  return joined === '' ? '.' : normalize(joined);
}

function relative(from, to) {
  checkString(from, 'from');
  checkString(to, 'to');
  const start = resolve(from).split('/').filter(Boolean);
  const target = resolve(to).split('/').filter(Boolean);
  let common = 0;
  while (common < start.length && common < target.length && start[common] === target[common]) common++;
  return [...start.slice(common).map(() => '..'), ...target.slice(common)].join('/');
}

function stripSlashes(path) {
  let end = path.length;
  while (end > 1 && path[end - 1] === '/') end--;
  return path.slice(0, end);
}

function dirname(path) {
  checkString(path, 'path');
  if (path === '') return '.';
  const stripped = stripSlashes(path);
  const slash = stripped.lastIndexOf('/');
  if (slash === -1) return '.';
  if (slash === 0) return stripped.length > 1 && stripped[1] === '/' && stripped.length > 2 ? '//' : '/';
  // "//a" has the folder "//" in Node; "a//b" has "a".
  const folder = stripped.slice(0, slash).replace(/\/+$/, '');
  if (folder === '') return slash === 1 ? '//' : '/';
  return stripped.slice(0, slash);
}

function basename(path, suffix) {
  if (suffix !== undefined) checkString(suffix, 'suffix');
  checkString(path, 'path');
  let end = path.length;
  while (end > 0 && path[end - 1] === '/') end--;
  const base = path.slice(path.lastIndexOf('/', end - 1) + 1, end);
  if (end === 0) return suffix && suffix.length <= path.length ? path : ''; // as Node answers for a path of slashes alone
  if (suffix && base !== suffix && base.endsWith(suffix)) return base.slice(0, -suffix.length);
  return suffix && path === suffix ? '' : base;
}

function extname(path) {
  const base = basename(path);
  const dot = base.lastIndexOf('.');
  if (dot <= 0 || base === '..') return '';
  return base.slice(dot);
}

function format(object) {
  if (object === null || typeof object !== 'object') throw argumentType('pathObject', 'Object', object);
  const folder = object.dir || object.root;
  const extension = object.ext ? `${object.ext[0] === '.' ? '' : '.'}${object.ext}` : '';
  const base = object.base || `${object.name || ''}${extension}`;
  if (!folder) return base;
  return folder === object.root ? `${folder}${base}` : `${folder}/${base}`;
}

function parse(path) {
  checkString(path, 'path');
  const root = path[0] === '/' ? '/' : '';
  const base = basename(path);
  const ext = extname(path);
  let end = path.length;
  while (end > 1 && path[end - 1] === '/') end--;
  let dir = path.slice(0, Math.max(0, end - base.length));
  if (dir.length > 1 || (dir !== '/' && dir !== '')) dir = dir.slice(0, -1);
  if (dir === '' && root) dir = root;
  return { root, dir, base, ext, name: ext ? base.slice(0, -ext.length) : base };
}

module.exports = {
  resolve,
  normalize,
  isAbsolute,
  join,
  relative,
  toNamespacedPath: (path) => path,
  dirname,
  basename,
  extname,
  format,
  parse,
  sep: '/',
  delimiter: ':',
  win32: null,
  posix: null,
};
module.exports.posix = module.exports;
module.exports.win32 = module.exports;
