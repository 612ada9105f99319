// SPDX-License-Identifier: BSL-1.0
// The module `http2`, for programs that only ask if a request belongs to it. The server speaks HTTP/1.1 alone.
'use strict';

const { Stream } = require('_stream_legacy');
const { withCode } = require('_errors');

class Http2ServerRequest extends Stream {}
class Http2ServerResponse extends Stream {}

function createServer() {
  throw withCode(Error, 'ERR_METHOD_NOT_IMPLEMENTED', 'http2 servers are not available: use http.createServer');
}

module.exports = {
  Http2ServerRequest,
  Http2ServerResponse,
  createServer,
  createSecureServer: createServer,
  connect: createServer,
  constants: { NGHTTP2_NO_ERROR: 0, NGHTTP2_REFUSED_STREAM: 7, NGHTTP2_CANCEL: 8 },
};
