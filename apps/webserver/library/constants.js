// SPDX-License-Identifier: BSL-1.0
// The module `constants`: numbers of signals, errors and file modes, as on Linux.
'use strict';

module.exports = {
  signals: { SIGHUP: 1, SIGINT: 2, SIGQUIT: 3, SIGKILL: 9, SIGUSR1: 10, SIGUSR2: 12, SIGPIPE: 13, SIGTERM: 15 },
  errno: {
    EACCES: 13,
    EADDRINUSE: 98,
    ECONNREFUSED: 111,
    ECONNRESET: 104,
    EEXIST: 17,
    EINVAL: 22,
    EISDIR: 21,
    ENOENT: 2,
    ENOTDIR: 20,
    EROFS: 30,
    EPIPE: 32,
  },
  F_OK: 0,
  R_OK: 4,
  W_OK: 2,
  X_OK: 1,
  O_RDONLY: 0,
  O_WRONLY: 1,
  O_RDWR: 2,
  S_IFMT: 0o170000,
  S_IFREG: 0o100000,
  S_IFDIR: 0o040000,
};
