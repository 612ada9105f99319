// SPDX-License-Identifier: BSL-1.0
// The module `zlib`, without compression: programs can load, and a function throws when it is used.
//
// Body parsers load zlib for requests with a Content-Encoding, which most clients never send.
'use strict';

const { Stream } = require('_stream_legacy');
const { withCode } = require('_errors');

const names = ['Gzip', 'Gunzip', 'Deflate', 'Inflate', 'DeflateRaw', 'InflateRaw', 'Unzip', 'BrotliCompress', 'BrotliDecompress'];

module.exports = {
  constants: { Z_NO_FLUSH: 0, Z_SYNC_FLUSH: 2, Z_FINISH: 4, Z_DEFAULT_COMPRESSION: -1, BROTLI_OPERATION_FLUSH: 1, BROTLI_PARAM_QUALITY: 1 },
};
module.exports.codes = {};
for (const name of names) {
  const action = name[0].toLowerCase() + name.slice(1);
  const absent = (used) => () => {
    throw withCode(Error, 'ERR_METHOD_NOT_IMPLEMENTED', `zlib.${used} is not available`);
  };
  // Programs ask if a stream is an instance of these classes.
  module.exports[name] = class extends Stream {
    constructor() {
      throw withCode(Error, 'ERR_METHOD_NOT_IMPLEMENTED', `zlib.${name} is not available`);
    }
  };
  module.exports[`create${name}`] = absent(`create${name}`);
  module.exports[action] = absent(action);
  module.exports[`${action}Sync`] = absent(`${action}Sync`);
}
