// SPDX-License-Identifier: BSL-1.0
// The module `tty`: there is no terminal.
'use strict';

const { Stream } = require('_stream_legacy');

class ReadStream extends Stream {}
class WriteStream extends Stream {}

module.exports = { isatty: () => false, ReadStream, WriteStream };
