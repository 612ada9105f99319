// SPDX-License-Identifier: BSL-1.0
// The parser of one request.
//
// Two servers in a row that disagree about where a request ends let a client smuggle requests past the first one. So this parser accepts
// only what RFC 9112 allows, and refuses each spelling that another parser might understand in another way. The grammar is llhttp's, with
// all its lenient flags off. The rules on top of it are listed at `Refusal`.
//
// The parser is a pull parser: each call of `parse` consumes bytes of the input and returns one event. So the caller may stop at any event,
// and no callback of the application runs inside the parser. The bytes behind a request are not touched, so pipelined requests are parsed
// one after the other.
//
// Memory. The head is copied once into memory of the parser. Nearly every head arrives in one piece and fits the memory inside the parser;
// a longer one moves to the heap, up to the limits. Body pieces are views of the input.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apps/webserver/http/header.hpp"
#include "llhttp.h"

namespace neap::webserver::http {

/// Limits of one request. A request beyond them is refused.
struct ParserLimits {
  std::uint32_t head_bytes_max = 16 * 1024;          ///< request line and fields, and leading empty lines (431)
  std::uint32_t target_bytes_max = 8 * 1024;         ///< request-target (414)
  std::uint32_t fields_max = 2000;                   ///< field lines (431); trailers have the same limits of their own
  std::uint32_t extension_bytes_max = 16 * 1024;     ///< chunk extensions of the whole body (413)
  std::uint64_t body_bytes_max = ~std::uint64_t{0};  ///< decoded body (413)
};

/// Why a request was refused. Each has a status, a code in the style of Node, and a text: see `ParseError::of`.
enum class Refusal : std::uint8_t {
  none,
  // llhttp's grammar
  syntax,             ///< anything that llhttp refuses and that is not in this list
  method,             ///< a token that is no method of HTTP (501)
  version,            ///< not HTTP/1.0 or HTTP/1.1 (505), also the preface of HTTP/2
  content_length,     ///< not a decimal number, repeated, or together with Transfer-Encoding
  transfer_encoding,  ///< present without `chunked` as its last coding
  chunk,              ///< malformed chunk
  // rules beyond llhttp's
  line_break,                 ///< a line that does not end with CR LF, also before the request line
  protocol,                   ///< the request line does not end with " HTTP/1.x"
  target,                     ///< request-target of a form that the method does not allow, or with a character that is not allowed
  host,                       ///< Host is missing in HTTP/1.1, repeated, or not a host
  transfer_encoding_in_1_0,   ///< Transfer-Encoding in HTTP/1.0
  transfer_encoding_unknown,  ///< a coding before `chunked` (501)
  connect,                    ///< the method CONNECT (501)
  expectation,                ///< Expect with anything but 100-continue (417)
  // limits
  head_too_large,        ///< 431
  target_too_long,       ///< 414
  too_many_fields,       ///< 431
  body_too_large,        ///< 413
  extensions_too_large,  ///< 413
  no_memory,             ///< 503
  // not found by the parser
  timeout,     ///< the request did not arrive in time (408)
  incomplete,  ///< the client closed its side within a request
};

/// The description of a refused request. The texts are constant.
struct ParseError {
  Refusal refusal = Refusal::none;
  unsigned status = 400;  ///< of the answer
  std::string_view code;  ///< for the property `code` of Node's errors, such as "HPE_INVALID_METHOD"
  std::string_view text;  ///< for people
  [[nodiscard]] static ParseError of(Refusal refusal) noexcept;
};

class RequestParser {
 public:
  enum class Event : std::uint8_t {
    more,   ///< the input is used up, and the event is not complete
    head,   ///< the head is complete; the accessors below are valid from now on
    body,   ///< `piece()` is a piece of the decoded body, never empty
    end,    ///< the request is complete. Later calls return `end` and consume nothing.
    error,  ///< the request was refused; see `refusal()`. Later calls return `error` and consume nothing.
  };
  struct Step {
    Event event;
    std::size_t consumed;  ///< bytes of the input that MUST NOT be passed again
  };

  RequestParser() noexcept;
  ~RequestParser();
  RequestParser(const RequestParser&) = delete;
  RequestParser& operator=(const RequestParser&) = delete;

  /// Forgets the last request. `limits` MUST exist until the end of the next one.
  void begin(const ParserLimits& limits) noexcept;
  /// Parses the front of `input`, which continues the bytes of earlier calls. `input` MUST NOT be empty, except to get the event `end`
  /// that directly follows the event `head` of a request without body; an empty input gives `more` in any other case.
  [[nodiscard]] Step parse(std::span<const std::byte> input) noexcept;
  /// After the event `body`: a view of the input.
  [[nodiscard]] std::span<const std::byte> piece() const noexcept { return piece_; }
  /// True if a byte of the request line has arrived. Leading empty lines do not count.
  [[nodiscard]] bool begun() const noexcept { return head_bytes_ != 0; }
  [[nodiscard]] Refusal refusal() const noexcept { return refusal_; }
  /// Bytes of the request that were consumed until it was refused, for Node's property `bytesParsed`.
  [[nodiscard]] std::uint64_t parsed_bytes() const noexcept { return parsed_bytes_; }

  // Valid from the event `head` until the next `begin`.
  [[nodiscard]] Method method() const noexcept { return static_cast<Method>(parser_.method); }
  [[nodiscard]] std::string_view target() const noexcept { return target_; }
  [[nodiscard]] unsigned minor_version() const noexcept { return parser_.http_minor; }
  [[nodiscard]] std::span<const HeaderField> fields() const noexcept { return {fields_, field_count_}; }
  /// True if the client wants to keep the connection, by version and Connection.
  [[nodiscard]] bool keep_alive() const noexcept { return keep_alive_; }
  /// True if the request has a body, perhaps an empty one: Transfer-Encoding, or a Content-Length over 0.
  [[nodiscard]] bool has_body() const noexcept { return has_body_; }
  /// True for Expect: 100-continue in HTTP/1.1.
  [[nodiscard]] bool expects_continue() const noexcept { return expects_continue_; }
  [[nodiscard]] bool chunked() const noexcept { return chunked_; }
  /// The Content-Length; 0 without it.
  [[nodiscard]] std::uint64_t content_length() const noexcept { return content_length_; }
  /// The fields behind the last chunk. Valid from the event `end` on.
  [[nodiscard]] std::span<const HeaderField> trailers() const noexcept;
  /// Gives back the memory of a long head. The accessors are not valid then.
  void release_memory() noexcept {
    if (on_heap_) [[unlikely]]
      release_heap();
  }
  /// Memory on the heap.
  [[nodiscard]] std::size_t heap_bytes() const noexcept;

 private:
  enum class State : std::uint8_t { start, head, identity, chunked, ended, failed };
  static constexpr std::size_t inline_bytes = 1024, inline_fields = 24;
  /// The positions of a field in the head.
  struct Raw {
    std::uint16_t name_at, name_bytes, value_at, value_bytes;
  };
  /// The fields behind the last chunk. `text` has their names and values without anything between them.
  struct Trailers {
    std::string text;
    std::vector<Raw> raw;
    std::vector<HeaderField> fields;
  };
  struct Callbacks;

  void start_head() noexcept;
  [[nodiscard]] Step parse_start(std::span<const std::byte> input) noexcept;
  [[nodiscard]] Step parse_head(std::span<const std::byte> input) noexcept;
  [[nodiscard]] Step parse_identity(std::span<const std::byte> input) noexcept;
  [[nodiscard]] Step parse_chunked(std::span<const std::byte> input) noexcept;
  [[nodiscard]] Step finish_head(const char* input, std::size_t bytes) noexcept;
  [[nodiscard]] Refusal check_head() noexcept;
  [[nodiscard]] Refusal check_request_line(std::string_view head) const noexcept;
  [[nodiscard]] Refusal check_target() const noexcept;
  [[nodiscard]] Refusal check_transfer_encoding() const noexcept;
  [[nodiscard]] Refusal refusal_of(llhttp_errno error, std::span<const std::byte> input) const noexcept;
  [[nodiscard]] Step fail(Refusal refusal, std::size_t consumed) noexcept;
  [[nodiscard]] bool keep(const char* input, std::size_t bytes) noexcept;
  [[nodiscard]] bool grow_head(std::size_t bytes) noexcept;
  [[nodiscard]] bool grow_raw() noexcept;
  [[nodiscard]] bool make_fields() noexcept;
  void finish_trailers() noexcept;
  void release_heap() noexcept;
  [[nodiscard]] bool is_valid_host(std::string_view host) noexcept;

  llhttp_t parser_{};
  State state_ = State::start;
  Refusal refusal_ = Refusal::none;
  bool keep_alive_ = false, has_body_ = false, expects_continue_ = false, chunked_ = false;
  bool after_cr_ = false;       ///< of an empty line before the request line
  bool in_name_ = false;        ///< the last callback of llhttp was for a field's name
  bool chunked_ended_ = false;  ///< llhttp has reported the end of a chunked body
  const ParserLimits* limits_ = nullptr;
  char* head_ = inline_head_.data();
  HeaderField* fields_ = inline_fields_.data();
  Raw* raw_ = inline_raw_.data();
  std::uint32_t head_bytes_max_ = 0;
  std::uint32_t head_capacity_ = inline_bytes, raw_capacity_ = inline_fields;
  std::uint32_t head_bytes_ = 0;     ///< of the bytes in `head_`
  std::uint32_t leading_bytes_ = 0;  ///< of empty lines before the request line
  std::uint32_t field_count_ = 0;
  std::uint32_t target_at_ = 0, target_bytes_ = 0;
  std::uint32_t extension_bytes_ = 0, framing_bytes_ = 0;
  std::uintptr_t origin_ = 0;  ///< the address of the head's first byte, if all of the head were where the present input is
  std::string_view target_;
  std::uint64_t content_length_ = 0;
  std::uint64_t left_bytes_ = 0;  ///< of a body with Content-Length
  std::uint64_t body_bytes_ = 0;
  std::uint64_t parsed_bytes_ = 0;
  std::span<const std::byte> piece_;
  bool on_heap_ = false;
  /// The last valid host. Most requests of a server have the same one, and a comparison costs less than the check.
  std::uint8_t known_host_bytes_ = 0;
  std::array<char, 48> known_host_{};
  std::unique_ptr<char[]> heap_head_;
  std::unique_ptr<Raw[]> heap_raw_;
  std::unique_ptr<HeaderField[]> heap_fields_;
  std::unique_ptr<Trailers> trailers_;
  std::array<HeaderField, inline_fields> inline_fields_;
  std::array<Raw, inline_fields> inline_raw_;
  std::array<char, inline_bytes> inline_head_;
};

}  // namespace neap::webserver::http
