// SPDX-License-Identifier: BSL-1.0
// The module `os`: what can be said of a machine without an operating system.
'use strict';

const process = require('process');

const memory = () => process.memoryUsage();

module.exports = {
  EOL: '\n',
  devNull: '/dev/null',
  arch: () => 'x64',
  machine: () => 'x86_64',
  platform: () => 'neap',
  type: () => 'Neap',
  release: () => process.versions.neap,
  version: () => `Neap ${process.versions.neap}`,
  endianness: () => 'LE',
  hostname: () => process.env.HOSTNAME ?? 'neap',
  homedir: () => '/',
  tmpdir: () => '/tmp',
  uptime: () => process.uptime(),
  loadavg: () => [0, 0, 0],
  totalmem: () => memory().heapTotal,
  freemem: () => Math.max(0, memory().heapTotal - memory().heapUsed),
  availableParallelism: () => 1, // each core runs the script by itself
  cpus: () => [{ model: 'x86-64', speed: 0, times: { user: 0, nice: 0, sys: 0, idle: 0, irq: 0 } }],
  networkInterfaces: () => ({}),
  userInfo: () => ({ uid: 0, gid: 0, username: 'root', homedir: '/', shell: null }),
  getPriority: () => 0,
  setPriority: () => {},
  constants: require('constants'),
};
