// SPDX-License-Identifier: BSL-1.0
// The module `fs`: the files of the archive of scripts, read-only.
//
// Programs read templates and JSON files beside their scripts. Reading is immediate, also in the forms with callback or promise. Each
// function that would change a file fails with EROFS.
'use strict';

const { withCode, checkFunction } = require('_errors');
const { Buffer } = require('buffer');
const nextTick = require('_ticks');
const constants = require('constants');
const archive = internalBinding('archive') ?? {};

function failure(code, action, path) {
  const texts = {
    ENOENT: 'no such file or directory',
    EISDIR: 'illegal operation on a directory',
    ENOTDIR: 'not a directory',
    EROFS: 'read-only file system',
  };
  const error = withCode(Error, code, `${code}: ${texts[code]}, ${action}${path === undefined ? '' : ` '${path}'`}`);
  error.errno = -constants.errno[code];
  error.syscall = action;
  if (path !== undefined) error.path = path;
  return error;
}

function toPath(path) {
  if (path !== null && typeof path === 'object' && typeof path.href === 'string') path = decodeURIComponent(path.pathname);
  if (path instanceof Uint8Array) path = Buffer.from(path).toString();
  return require('path').resolve(`${path}`);
}

function statOf(path) {
  const found = archive.stat?.(path);
  if (found) return found;
  return path === '/' && archive.stat ? { size: 0, directory: true } : undefined;
}

class Stats {
  constructor({ size, directory }) {
    this.size = size;
    this.mode = directory ? constants.S_IFDIR | 0o555 : constants.S_IFREG | 0o444;
    this.dev = this.ino = this.uid = this.gid = this.rdev = 0;
    this.nlink = 1;
    this.blksize = 4096;
    this.blocks = Math.ceil(size / 512);
    for (const name of ['atime', 'mtime', 'ctime', 'birthtime']) {
      this[`${name}Ms`] = 0;
      this[name] = new Date(0);
    }
  }

  isFile() {
    return (this.mode & constants.S_IFMT) === constants.S_IFREG;
  }

  isDirectory() {
    return !this.isFile();
  }

  isSymbolicLink() {
    return false;
  }

  isFIFO() {
    return false;
  }

  isSocket() {
    return false;
  }

  isBlockDevice() {
    return false;
  }

  isCharacterDevice() {
    return false;
  }
}

class Dirent {
  constructor(name, parentPath, stats) {
    this.name = name;
    this.parentPath = this.path = parentPath;
    this._stats = stats;
  }
}
for (const name of ['isFile', 'isDirectory', 'isSymbolicLink']) {
  Dirent.prototype[name] = function () {
    return this._stats[name]();
  };
}

const sync = {
  readFile(path, options) {
    const encoding = typeof options === 'string' ? options : options?.encoding;
    const resolved = toPath(path);
    const found = statOf(resolved);
    if (found?.directory) throw failure('EISDIR', 'read');
    let bytes;
    try {
      bytes = archive.readFile?.(resolved);
    } catch {
      bytes = undefined;
    }
    if (bytes === undefined || bytes === null) throw failure('ENOENT', 'open', `${path}`);
    const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length);
    return encoding && encoding !== 'buffer' ? buffer.toString(encoding) : buffer;
  },
  stat(path, options) {
    const found = statOf(toPath(path));
    if (found) return new Stats(found);
    if (options?.throwIfNoEntry === false) return undefined;
    throw failure('ENOENT', 'stat', `${path}`);
  },
  access(path, mode = 0) {
    if (!statOf(toPath(path))) throw failure('ENOENT', 'access', `${path}`);
    if (mode & constants.W_OK) throw failure('EROFS', 'access', `${path}`);
  },
  readdir(path, options) {
    const resolved = toPath(path);
    const names = archive.list?.(resolved);
    if (!names) throw failure(statOf(resolved) ? 'ENOTDIR' : 'ENOENT', 'scandir', `${path}`);
    const sorted = [...names].sort();
    if (!options?.withFileTypes) return sorted;
    return sorted.map((name) => new Dirent(name, `${path}`, new Stats(statOf(`${resolved === '/' ? '' : resolved}/${name}`))));
  },
  realpath(path) {
    const resolved = toPath(path);
    if (!statOf(resolved)) throw failure('ENOENT', 'realpath', `${path}`);
    return resolved;
  },
};
sync.lstat = sync.stat;
for (const name of [
  'writeFile',
  'appendFile',
  'unlink',
  'mkdir',
  'rmdir',
  'rm',
  'rename',
  'copyFile',
  'truncate',
  'chmod',
  'utimes',
  'symlink',
  'mkdtemp',
]) {
  sync[name] = (path) => {
    throw failure('EROFS', name.replace('File', ''), `${path}`);
  };
}

const exported = { constants, Stats, Dirent, promises: {} };
for (const [name, action] of Object.entries(sync)) {
  exported[`${name}Sync`] = action;
  exported[name] = (...args) => {
    const callback = args.pop();
    checkFunction(callback, 'cb');
    try {
      const value = action(...args);
      nextTick(callback, null, value);
    } catch (error) {
      nextTick(callback, error);
    }
  };
  exported.promises[name] = async (...args) => action(...args);
}
exported.promises.constants = constants;
exported.existsSync = (path) => {
  try {
    return statOf(toPath(path)) !== undefined;
  } catch {
    return false;
  }
};
exported.exists = (path, callback) => nextTick(callback, exported.existsSync(path));

let ReadStream;

/// A Readable over a file's bytes. The class is made at its first use, because most programs need no streams of files.
function readStreamClass() {
  if (ReadStream) return ReadStream;
  const { Readable } = require('stream');
  ReadStream = class ReadStream extends Readable {
    constructor(path, options) {
      const { start = 0, end = Infinity, encoding = undefined } = typeof options === 'string' ? { encoding: options } : (options ?? {});
      super({ highWaterMark: 65536, encoding });
      this.path = path;
      this.fd = null;
      this.bytesRead = 0;
      Object.defineProperty(this, '_range', { value: { start, end, bytes: undefined } });
    }

    _read(size) {
      const range = this._range;
      if (range.bytes === undefined) {
        try {
          range.bytes = sync.readFile(this.path).subarray(range.start, range.end + 1);
        } catch (error) {
          this.destroy(error);
          return;
        }
        this.emit('open', 0);
        this.emit('ready');
      }
      const piece = range.bytes.subarray(this.bytesRead, this.bytesRead + size);
      this.bytesRead += piece.length;
      this.push(piece.length > 0 ? piece : null);
    }

    close(callback) {
      if (callback) this.once('close', callback);
      this.destroy();
    }
  };
  return ReadStream;
}

class WriteStream {
  constructor(path) {
    throw failure('EROFS', 'open', `${path}`);
  }
}

exported.createReadStream = (path, options) => new (readStreamClass())(path, options);
exported.WriteStream = WriteStream;
Object.defineProperty(exported, 'ReadStream', { enumerable: true, get: readStreamClass });
exported.createWriteStream = function createWriteStream(path) {
  throw failure('EROFS', 'open', `${path}`);
};
exported.openSync = function openSync(path) {
  throw failure('EROFS', 'open', `${path}`);
};
exported.watch = exported.watchFile = function watch(path) {
  throw failure('EROFS', 'watch', `${path}`);
};

module.exports = exported;
