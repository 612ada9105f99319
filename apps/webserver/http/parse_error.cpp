// SPDX-License-Identifier: BSL-1.0
// The status, the code and the text of each refusal. The codes are those of Node's HTTP parser, where it has one.
#include "apps/webserver/http/request_parser.hpp"

namespace neap::webserver::http {

ParseError ParseError::of(Refusal refusal) noexcept {
  switch (refusal) {
    case Refusal::none:
      break;
    case Refusal::syntax:
      return {refusal, 400, "HPE_INVALID_HEADER_TOKEN", "malformed request"};
    case Refusal::method:
      return {refusal, 501, "HPE_INVALID_METHOD", "unknown method"};
    case Refusal::version:
      return {refusal, 505, "HPE_INVALID_VERSION", "not HTTP/1.0 or HTTP/1.1"};
    case Refusal::content_length:
      return {refusal, 400, "HPE_INVALID_CONTENT_LENGTH", "Content-Length is malformed, repeated, or beside Transfer-Encoding"};
    case Refusal::transfer_encoding:
      return {refusal, 400, "HPE_INVALID_TRANSFER_ENCODING", "the last transfer coding is not chunked"};
    case Refusal::chunk:
      return {refusal, 400, "HPE_INVALID_CHUNK_SIZE", "malformed chunk"};
    case Refusal::line_break:
      return {refusal, 400, "HPE_CR_EXPECTED", "a line does not end with CR LF"};
    case Refusal::protocol:
      return {refusal, 400, "HPE_INVALID_CONSTANT", "the request line does not end with an HTTP version"};
    case Refusal::target:
      return {refusal, 400, "HPE_INVALID_URL", "invalid request-target"};
    case Refusal::host:
      return {refusal, 400, "HPE_INVALID_HOST", "Host is missing, repeated or invalid"};
    case Refusal::transfer_encoding_in_1_0:
      return {refusal, 400, "HPE_INVALID_TRANSFER_ENCODING", "Transfer-Encoding in HTTP/1.0"};
    case Refusal::transfer_encoding_unknown:
      return {refusal, 501, "HPE_INVALID_TRANSFER_ENCODING", "unsupported transfer coding"};
    case Refusal::connect:
      return {refusal, 501, "HPE_INVALID_METHOD", "CONNECT is not supported"};
    case Refusal::expectation:
      return {refusal, 417, "HPE_USER", "unknown expectation"};
    case Refusal::head_too_large:
      return {refusal, 431, "HPE_HEADER_OVERFLOW", "the head is too large"};
    case Refusal::target_too_long:
      return {refusal, 414, "HPE_URL_OVERFLOW", "the request-target is too long"};
    case Refusal::too_many_fields:
      return {refusal, 431, "HPE_HEADER_OVERFLOW", "too many fields"};
    case Refusal::body_too_large:
      return {refusal, 413, "HPE_BODY_OVERFLOW", "the body is too large"};
    case Refusal::extensions_too_large:
      return {refusal, 413, "HPE_CHUNK_EXTENSIONS_OVERFLOW", "the chunk extensions are too large"};
    case Refusal::no_memory:
      return {refusal, 503, "ERR_OUT_OF_MEMORY", "no memory for the request"};
    case Refusal::timeout:
      return {refusal, 408, "ERR_HTTP_REQUEST_TIMEOUT", "the request did not arrive in time"};
    case Refusal::incomplete:
      return {refusal, 400, "HPE_INVALID_EOF_STATE", "the client closed its side within a request"};
  }
  return {refusal, 400, "HPE_INTERNAL", "unknown refusal"};
}

}  // namespace neap::webserver::http
