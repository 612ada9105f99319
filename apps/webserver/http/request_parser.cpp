// SPDX-License-Identifier: BSL-1.0
#include "apps/webserver/http/request_parser.hpp"

#include <algorithm>
#include <cstring>
#include <new>

#include "kernel/panic.hpp"
#include "kernel/short_copy.hpp"

namespace neap::webserver::http {

namespace {
const char* text_of(std::span<const std::byte> bytes) noexcept { return reinterpret_cast<const char*>(bytes.data()); }
std::uintptr_t address(const char* at) noexcept { return reinterpret_cast<std::uintptr_t>(at); }

/// Framing of a chunked body between two pieces of data: the chunk's line, and the trailers.
constexpr std::uint32_t framing_bytes_added = 1024;
constexpr std::uint32_t head_bytes_limit = 65'535;  // positions have 16 bits

bool is_white(char letter) noexcept { return letter == ' ' || letter == '\t'; }

std::string_view trimmed(std::string_view text) noexcept {
  while (!text.empty() && is_white(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_white(text.back())) text.remove_suffix(1);
  return text;
}

/// Calls `use` for each member of a comma-separated list, without white space at its ends, until it returns false. Returns true at the end.
template <class Use>
bool for_each_member(std::string_view list, Use use) {
  for (;;) {
    const std::size_t comma = list.find(',');
    if (!use(trimmed(list.substr(0, comma)))) return false;
    if (comma == std::string_view::npos) return true;
    list.remove_prefix(comma + 1);
  }
}

/// Returns the number of characters at the front of `text` that have one of `bits`.
std::size_t count_front(std::string_view text, std::uint8_t bits) noexcept {
  std::size_t at = 0;
  while (at < text.size() && (detail::characters[static_cast<unsigned char>(text[at])] & bits) != 0) ++at;
  return at;
}

/// Returns the length of "[...]" at the front, an IPv6 address in its outer form; 0 if there is none.
std::size_t count_literal(std::string_view text) noexcept {
  const std::size_t end = text.find(']');
  if (end == std::string_view::npos || end < 3) return 0;
  const std::string_view inside = text.substr(1, end - 1);
  const bool valid = std::ranges::all_of(inside, [](char letter) { return letter == ':' || detail::all_have({&letter, 1}, detail::host); });
  return valid ? end + 1 : 0;
}

/// True for `host [":" port]`, as in Host. The host may be empty (RFC 9110, 7.2).
bool valid_host(std::string_view text) noexcept {
  std::size_t at = 0;
  if (!text.empty() && text.front() == '[') {
    at = count_literal(text);
    if (at == 0) return false;
  } else {
    at = count_front(text, detail::host);
  }
  if (at == text.size()) return true;
  return text[at] == ':' && at + 1 + count_front(text.substr(at + 1), detail::digit) == text.size();
}
}  // namespace

// --- llhttp's callbacks ------------------------------------------------------------------------------------------------------------------
// A span is split where a piece of the input ends. The positions of its parts are contiguous.
struct RequestParser::Callbacks {
  static RequestParser& self(llhttp_t* parser) noexcept { return *static_cast<RequestParser*>(parser->data); }
  static int refuse(RequestParser& self, Refusal refusal) noexcept {
    self.refusal_ = refusal;
    return HPE_USER;
  }

  static int target(llhttp_t* parser, const char* at, std::size_t bytes) noexcept {
    RequestParser& parsed = self(parser);
    const auto position = static_cast<std::uint32_t>(address(at) - parsed.origin_);
    if (parsed.target_at_ == 0) parsed.target_at_ = position;
    parsed.target_bytes_ = position + static_cast<std::uint32_t>(bytes) - parsed.target_at_;
    return parsed.target_bytes_ <= parsed.limits_->target_bytes_max ? HPE_OK : refuse(parsed, Refusal::target_too_long);
  }
  static int name(llhttp_t* parser, const char* at, std::size_t bytes) noexcept {
    RequestParser& parsed = self(parser);
    const auto position = static_cast<std::uint16_t>(address(at) - parsed.origin_);
    if (parsed.in_name_) [[unlikely]] {
      Raw& raw = parsed.raw_[parsed.field_count_ - 1];
      raw.name_bytes = static_cast<std::uint16_t>(position + bytes - raw.name_at);
      return HPE_OK;
    }
    if (parsed.field_count_ == parsed.raw_capacity_) [[unlikely]] {
      if (parsed.field_count_ >= parsed.limits_->fields_max) return refuse(parsed, Refusal::too_many_fields);
      if (!parsed.grow_raw()) return refuse(parsed, Refusal::no_memory);
    }
    parsed.raw_[parsed.field_count_++] = {position, static_cast<std::uint16_t>(bytes), 0, 0};
    parsed.in_name_ = true;
    return HPE_OK;
  }
  static int value(llhttp_t* parser, const char* at, std::size_t bytes) noexcept {
    RequestParser& parsed = self(parser);
    const auto position = static_cast<std::uint16_t>(address(at) - parsed.origin_);
    Raw& raw = parsed.raw_[parsed.field_count_ - 1];
    if (parsed.in_name_) [[likely]] {
      raw.value_at = position;
      raw.value_bytes = static_cast<std::uint16_t>(bytes);
      parsed.in_name_ = false;
    } else {
      raw.value_bytes = static_cast<std::uint16_t>(position + bytes - raw.value_at);
    }
    return HPE_OK;
  }
  static int head_complete(llhttp_t*) noexcept { return HPE_PAUSED; }

  static int body(llhttp_t* parser, const char* at, std::size_t bytes) noexcept {
    RequestParser& parsed = self(parser);
    parsed.piece_ = std::as_bytes(std::span(at, bytes));
    return HPE_PAUSED;
  }
  static int chunk_header(llhttp_t* parser) noexcept {
    self(parser).framing_bytes_ = 0;
    return HPE_OK;
  }
  static int extension(llhttp_t* parser, const char*, std::size_t bytes) noexcept {
    RequestParser& parsed = self(parser);
    parsed.extension_bytes_ += static_cast<std::uint32_t>(std::min<std::size_t>(bytes, ~std::uint32_t{0} / 2));
    return parsed.extension_bytes_ <= parsed.limits_->extension_bytes_max ? HPE_OK : refuse(parsed, Refusal::extensions_too_large);
  }
  static int trailer(RequestParser& parsed, const char* at, std::size_t bytes, bool is_name) noexcept {
    try {
      if (parsed.trailers_ == nullptr) {
        parsed.trailers_ = std::make_unique<Trailers>();
        parsed.on_heap_ = true;
      }
      Trailers& trailers = *parsed.trailers_;
      if (trailers.text.size() + bytes > parsed.head_bytes_max_) return refuse(parsed, Refusal::head_too_large);
      if (is_name && !parsed.in_name_) {
        if (trailers.raw.size() >= parsed.limits_->fields_max) return refuse(parsed, Refusal::too_many_fields);
        const auto position = static_cast<std::uint16_t>(trailers.text.size());
        trailers.raw.push_back({position, 0, 0, 0});
      }
      parsed.in_name_ = is_name;
      Raw& raw = trailers.raw.back();
      trailers.text.append(at, bytes);
      std::uint16_t& length = is_name ? raw.name_bytes : raw.value_bytes;
      length = static_cast<std::uint16_t>(length + bytes);
      return HPE_OK;
    } catch (const std::bad_alloc&) {
      return refuse(parsed, Refusal::no_memory);
    }
  }
  static int trailer_name(llhttp_t* parser, const char* at, std::size_t bytes) noexcept { return trailer(self(parser), at, bytes, true); }
  static int trailer_value(llhttp_t* parser, const char* at, std::size_t bytes) noexcept { return trailer(self(parser), at, bytes, false); }
  static int chunked_complete(llhttp_t* parser) noexcept {
    self(parser).chunked_ended_ = true;
    return HPE_PAUSED;
  }

  static constexpr llhttp_settings_t make_head() noexcept {
    llhttp_settings_t settings{};
    settings.on_url = &target;
    settings.on_header_field = &name;
    settings.on_header_value = &value;
    settings.on_headers_complete = &head_complete;
    return settings;
  }
  static constexpr llhttp_settings_t make_chunked() noexcept {
    llhttp_settings_t settings{};
    settings.on_header_field = &trailer_name;
    settings.on_header_value = &trailer_value;
    settings.on_chunk_extension_name = &extension;
    settings.on_chunk_extension_value = &extension;
    settings.on_chunk_header = &chunk_header;
    settings.on_body = &body;
    settings.on_message_complete = &chunked_complete;
    return settings;
  }
  // llhttp takes a pointer to settings that are not constant, and does not change them.
  static inline llhttp_settings_t head_settings = make_head();
  static inline llhttp_settings_t chunked_settings = make_chunked();
};

// --- Life --------------------------------------------------------------------------------------------------------------------------------
// The arrays are filled by each request.
RequestParser::RequestParser() noexcept {}  // NOLINT: not all members are set
RequestParser::~RequestParser() = default;

void RequestParser::begin(const ParserLimits& limits) noexcept {
  release_memory();
  state_ = State::start;
  refusal_ = Refusal::none;
  keep_alive_ = has_body_ = expects_continue_ = chunked_ = after_cr_ = in_name_ = chunked_ended_ = false;
  limits_ = &limits;
  head_bytes_max_ = std::min(limits.head_bytes_max, head_bytes_limit);
  raw_capacity_ = std::min<std::uint32_t>(inline_fields, limits.fields_max);
  head_bytes_ = leading_bytes_ = field_count_ = target_at_ = target_bytes_ = extension_bytes_ = framing_bytes_ = 0;
  content_length_ = left_bytes_ = body_bytes_ = parsed_bytes_ = 0;
}

void RequestParser::release_heap() noexcept {
  heap_head_.reset();
  heap_raw_.reset();
  heap_fields_.reset();
  trailers_.reset();
  head_ = inline_head_.data();
  head_capacity_ = inline_bytes;
  raw_ = inline_raw_.data();
  fields_ = inline_fields_.data();
  on_heap_ = false;
}

std::size_t RequestParser::heap_bytes() const noexcept {
  if (!on_heap_) return 0;
  std::size_t bytes = 0;
  if (heap_head_ != nullptr) bytes += head_capacity_;
  if (heap_raw_ != nullptr) bytes += raw_capacity_ * sizeof(Raw);
  if (heap_fields_ != nullptr) bytes += field_count_ * sizeof(HeaderField);
  if (trailers_ != nullptr) {
    bytes += sizeof(Trailers) + trailers_->text.capacity() + trailers_->raw.capacity() * sizeof(Raw) +
             trailers_->fields.capacity() * sizeof(HeaderField);
  }
  return bytes;
}

bool RequestParser::grow_head(std::size_t bytes) noexcept {
  const std::size_t capacity = std::min<std::size_t>(std::max<std::size_t>(bytes, std::size_t{2} * head_capacity_), head_bytes_max_);
  std::unique_ptr<char[]> larger(new (std::nothrow) char[capacity]);
  if (larger == nullptr) return false;
  std::memcpy(larger.get(), head_, head_bytes_);
  heap_head_ = std::move(larger);
  head_ = heap_head_.get();
  head_capacity_ = static_cast<std::uint32_t>(capacity);
  on_heap_ = true;
  return true;
}

bool RequestParser::grow_raw() noexcept {
  const std::uint32_t capacity = std::min(raw_capacity_ * 4, limits_->fields_max);
  std::unique_ptr<Raw[]> larger(new (std::nothrow) Raw[capacity]);
  if (larger == nullptr) return false;
  std::copy_n(raw_, field_count_, larger.get());
  heap_raw_ = std::move(larger);
  raw_ = heap_raw_.get();
  raw_capacity_ = capacity;
  on_heap_ = true;
  return true;
}

/// Appends a part of the head to the copy.
inline bool RequestParser::keep(const char* input, std::size_t bytes) noexcept {
  if (head_bytes_ + bytes > head_capacity_) [[unlikely]] {
    if (!grow_head(head_bytes_ + bytes)) return false;
  }
  copy_medium(head_ + head_bytes_, input, bytes);
  head_bytes_ += static_cast<std::uint32_t>(bytes);
  return true;
}

// --- Parsing -----------------------------------------------------------------------------------------------------------------------------
RequestParser::Step RequestParser::fail(Refusal refusal, std::size_t consumed) noexcept {
  state_ = State::failed;
  refusal_ = refusal;
  parsed_bytes_ += consumed;
  return {Event::error, consumed};
}

RequestParser::Step RequestParser::parse(std::span<const std::byte> input) noexcept {
  switch (state_) {
    case State::start:
      if (input.empty()) return {Event::more, 0};
      if (static_cast<unsigned char>(input.front()) > ' ' && !after_cr_) [[likely]] {
        start_head();
        return parse_head(input);
      }
      return parse_start(input);
    case State::head:
      return input.empty() ? Step{Event::more, 0} : parse_head(input);
    case State::identity:
      return parse_identity(input);
    case State::chunked:
      return input.empty() ? Step{Event::more, 0} : parse_chunked(input);
    case State::ended:
      return {Event::end, 0};
    case State::failed:
      break;
  }
  return {Event::error, 0};
}

[[gnu::always_inline]] inline void RequestParser::start_head() noexcept {
  llhttp_init(&parser_, HTTP_REQUEST, &Callbacks::head_settings);
  parser_.data = this;
  state_ = State::head;
}

/// Skips empty lines before the request line (RFC 9112, 2.2). llhttp would also skip a CR or an LF alone.
RequestParser::Step RequestParser::parse_start(std::span<const std::byte> input) noexcept {
  std::size_t at = 0;
  for (; at < input.size(); ++at) {
    const char letter = static_cast<char>(input[at]);
    if (letter != (after_cr_ ? '\n' : '\r')) break;
    after_cr_ = !after_cr_;
    if (++leading_bytes_ > head_bytes_max_) return fail(Refusal::head_too_large, at);
  }
  parsed_bytes_ += at;
  if (at == input.size()) return {Event::more, at};
  if (after_cr_ || static_cast<char>(input[at]) == '\n') return fail(Refusal::line_break, at);
  start_head();
  Step step = parse_head(input.subspan(at));
  step.consumed += at;
  return step;
}

RequestParser::Step RequestParser::parse_head(std::span<const std::byte> input) noexcept {
  const char* const text = text_of(input);
  const std::size_t fed = std::min<std::size_t>(input.size(), head_bytes_max_ - head_bytes_);
  origin_ = address(text) - head_bytes_;
  const llhttp_errno error = llhttp_execute(&parser_, text, fed);
  if (error == HPE_PAUSED) [[likely]]
    return finish_head(text, static_cast<std::size_t>(parser_.error_pos - text));
  if (error != HPE_OK) return fail(refusal_of(error, input), static_cast<std::size_t>(parser_.error_pos - text));
  if (!keep(text, fed)) return fail(Refusal::no_memory, fed);
  if (head_bytes_ == head_bytes_max_) return fail(Refusal::head_too_large, fed);
  parsed_bytes_ += fed;
  return {Event::more, fed};
}

inline RequestParser::Step RequestParser::finish_head(const char* input, std::size_t bytes) noexcept {
  if (!keep(input, bytes) || !make_fields()) return fail(Refusal::no_memory, bytes);
  const Refusal refusal = check_head();
  if (refusal != Refusal::none) [[unlikely]]
    return fail(refusal, bytes);
  parsed_bytes_ += bytes;
  if (!has_body_) [[likely]] {
    state_ = State::ended;
  } else if (chunked_) {
    parser_.upgrade = 0;  // a request for an upgrade is answered as an ordinary one
    parser_.settings = &Callbacks::chunked_settings;
    in_name_ = false;
    state_ = State::chunked;
  } else {
    left_bytes_ = content_length_;
    state_ = State::identity;
  }
  return {Event::head, bytes};
}

inline bool RequestParser::make_fields() noexcept {
  target_ = {head_ + target_at_, target_bytes_};
  if (field_count_ > inline_fields) [[unlikely]] {
    heap_fields_.reset(new (std::nothrow) HeaderField[field_count_]);
    if (heap_fields_ == nullptr) return false;
    fields_ = heap_fields_.get();
    on_heap_ = true;
  }
  for (std::uint32_t index = 0; index < field_count_; ++index) {
    const Raw& raw = raw_[index];
    std::size_t value_bytes = raw.value_bytes;
    const char* const value = head_ + raw.value_at;
    while (value_bytes != 0 && is_white(value[value_bytes - 1])) [[unlikely]]
      --value_bytes;
    fields_[index] = {.name = {head_ + raw.name_at, raw.name_bytes}, .value = {value, value_bytes}};
  }
  return true;
}

// --- Rules beyond llhttp's ---------------------------------------------------------------------------------------------------------------
/// llhttp also accepts several spaces before the target, other protocols (RTSP, ICE), and the versions 0.9 and 2.0.
inline Refusal RequestParser::check_request_line(std::string_view head) const noexcept {
  constexpr std::string_view version = " HTTP/1.";
  const std::size_t end = target_at_ + target_bytes_;
  if (parser_.http_major != 1) return Refusal::version;
  if (target_at_ < 2 || head[target_at_ - 2] == ' ') return Refusal::syntax;
  if (head.size() < end + version.size() + 3) return Refusal::protocol;
  std::uint64_t is = 0, should_be = 0;
  static_assert(version.size() == sizeof is);
  std::memcpy(&is, head.data() + end, sizeof is);
  std::memcpy(&should_be, version.data(), sizeof should_be);
  return is == should_be && head[end + 9] == '\r' && head[end + 10] == '\n' ? Refusal::none : Refusal::protocol;
}

/// RFC 9112, 3.2. A fragment is not part of a request-target.
inline Refusal RequestParser::check_target() const noexcept {
  if (target_.empty() || !detail::all_have(target_, detail::target)) return Refusal::target;
  if (target_.front() == '/') [[likely]]
    return Refusal::none;
  if (target_ == "*") return method() == Method::options ? Refusal::none : Refusal::target;
  for (const std::string_view scheme : {std::string_view("http://"), std::string_view("https://")}) {
    if (target_.size() <= scheme.size() || !equal_ignoring_case(target_.substr(0, scheme.size()), scheme)) continue;
    const std::string_view rest = target_.substr(scheme.size());
    const std::string_view authority = rest.substr(0, rest.find_first_of("/?"));
    return authority.empty() || authority.front() == ':' || !valid_host(authority) ? Refusal::target : Refusal::none;
  }
  return Refusal::target;
}

/// RFC 9112, 6.1: `chunked` MUST be the last coding, and MUST NOT be applied twice. No other coding is supported.
Refusal RequestParser::check_transfer_encoding() const noexcept {
  if (parser_.http_minor == 0) return Refusal::transfer_encoding_in_1_0;
  unsigned codings = 0, chunked = 0;
  bool last_is_chunked = false;
  for (const HeaderField& field : fields()) {
    if (!equal_ignoring_case(field.name, "transfer-encoding")) continue;
    const bool complete = for_each_member(field.value, [&](std::string_view coding) {
      ++codings;
      last_is_chunked = equal_ignoring_case(coding, "chunked");
      if (last_is_chunked) ++chunked;
      return !coding.empty();
    });
    if (!complete) return Refusal::transfer_encoding;
  }
  if (!last_is_chunked || chunked != 1 || (parser_.flags & F_CHUNKED) == 0) return Refusal::transfer_encoding;
  return codings == 1 ? Refusal::none : Refusal::transfer_encoding_unknown;
}

[[gnu::always_inline]] inline bool RequestParser::is_valid_host(std::string_view host) noexcept {
  const std::size_t bytes = host.size();
  if (bytes == known_host_bytes_ && bytes >= 8) [[likely]] {
    std::uint64_t different = 0;
    const auto compare = [&](std::size_t at) {
      std::uint64_t is = 0, known = 0;
      std::memcpy(&is, host.data() + at, sizeof is);
      std::memcpy(&known, known_host_.data() + at, sizeof known);
      different |= is ^ known;
    };
    for (std::size_t at = 0; at + 8 < bytes; at += 8) compare(at);
    compare(bytes - 8);
    if (different == 0) return true;
  }
  if (!valid_host(host)) return false;
  if (bytes <= known_host_.size()) {
    known_host_bytes_ = static_cast<std::uint8_t>(bytes);
    std::memcpy(known_host_.data(), host.data(), bytes);
  }
  return true;
}

inline Refusal RequestParser::check_head() noexcept {
  if (const Refusal refusal = check_request_line({head_, head_bytes_}); refusal != Refusal::none) [[unlikely]]
    return refusal;
  if (method() == Method::connect) [[unlikely]]
    return Refusal::connect;
  if (const Refusal refusal = check_target(); refusal != Refusal::none) [[unlikely]]
    return refusal;
  const HeaderField* host = nullptr;
  bool has_transfer_encoding = false;                    // llhttp has no flag for an empty one
  bool closes = false, keeps = parser_.http_minor != 0;  // llhttp's flags miss an option that a tab follows
  for (const HeaderField& field : fields()) {
    if (is_name(field.name, "host")) {
      if (host != nullptr) return Refusal::host;
      host = &field;
    } else if (is_name(field.name, "expect")) {
      if (!equal_ignoring_case(field.value, "100-continue")) return Refusal::expectation;
      expects_continue_ = parser_.http_minor != 0;
    } else if (is_name(field.name, "connection")) {
      for_each_member(field.value, [&](std::string_view option) {
        closes = closes || equal_ignoring_case(option, "close");
        keeps = keeps || equal_ignoring_case(option, "keep-alive");
        return true;
      });
    } else if (is_name(field.name, "transfer-encoding")) {
      has_transfer_encoding = true;
    }
  }
  if (host == nullptr ? parser_.http_minor != 0 : !is_valid_host(host->value)) return Refusal::host;
  const unsigned flags = parser_.flags;
  if (has_transfer_encoding) [[unlikely]] {
    if (const Refusal refusal = check_transfer_encoding(); refusal != Refusal::none) return refusal;
    chunked_ = has_body_ = true;
  } else if ((flags & F_CONTENT_LENGTH) != 0) {
    content_length_ = parser_.content_length;
    if (content_length_ > limits_->body_bytes_max) return Refusal::body_too_large;
    has_body_ = content_length_ != 0;
  }
  expects_continue_ = expects_continue_ && has_body_;
  keep_alive_ = keeps && !closes;
  return Refusal::none;
}

// --- Bodies ------------------------------------------------------------------------------------------------------------------------------
RequestParser::Step RequestParser::parse_identity(std::span<const std::byte> input) noexcept {
  if (left_bytes_ == 0) {
    state_ = State::ended;
    return {Event::end, 0};
  }
  if (input.empty()) return {Event::more, 0};
  const auto piece = input.first(static_cast<std::size_t>(std::min<std::uint64_t>(left_bytes_, input.size())));
  left_bytes_ -= piece.size();
  parsed_bytes_ += piece.size();
  piece_ = piece;
  return {Event::body, piece.size()};
}

RequestParser::Step RequestParser::parse_chunked(std::span<const std::byte> input) noexcept {
  const char* const text = text_of(input);
  llhttp_resume(&parser_);
  piece_ = {};
  const llhttp_errno error = llhttp_execute(&parser_, text, input.size());
  if (error != HPE_OK && error != HPE_PAUSED) return fail(refusal_of(error, input), static_cast<std::size_t>(parser_.error_pos - text));
  const std::size_t consumed = error == HPE_OK ? input.size() : static_cast<std::size_t>(parser_.error_pos - text);
  const std::size_t framing = consumed - piece_.size();
  framing_bytes_ += static_cast<std::uint32_t>(std::min<std::size_t>(framing, ~std::uint32_t{0} / 2));
  if (framing_bytes_ > limits_->extension_bytes_max + std::size_t{2} * head_bytes_max_ + framing_bytes_added) {
    return fail(Refusal::extensions_too_large, consumed);
  }
  parsed_bytes_ += consumed;
  if (!piece_.empty()) {
    body_bytes_ += piece_.size();
    if (body_bytes_ > limits_->body_bytes_max) return fail(Refusal::body_too_large, 0);
    return {Event::body, consumed};
  }
  if (chunked_ended_) {
    if (trailers_ != nullptr) finish_trailers();
    if (state_ == State::failed) return {Event::error, consumed};
    state_ = State::ended;
    return {Event::end, consumed};
  }
  if (consumed == 0) return fail(Refusal::chunk, 0);  // so that no caller loops for ever
  return {Event::more, consumed};
}

void RequestParser::finish_trailers() noexcept {
  try {
    trailers_->fields.reserve(trailers_->raw.size());
  } catch (const std::bad_alloc&) {
    (void)fail(Refusal::no_memory, 0);
    return;
  }
  const char* at = trailers_->text.data();
  for (const Raw& raw : trailers_->raw) {
    const std::string_view name(at, raw.name_bytes), value(at + raw.name_bytes, raw.value_bytes);
    trailers_->fields.push_back({.name = name, .value = trimmed(value)});
    at += raw.name_bytes + raw.value_bytes;
  }
}

std::span<const HeaderField> RequestParser::trailers() const noexcept {
  return trailers_ == nullptr || state_ != State::ended ? std::span<const HeaderField>() : trailers_->fields;
}

// --- Refusals ----------------------------------------------------------------------------------------------------------------------------
Refusal RequestParser::refusal_of(llhttp_errno error, std::span<const std::byte> input) const noexcept {
  const std::string_view reason = parser_.reason == nullptr ? "" : parser_.reason;
  switch (error) {
    case HPE_USER:
      return refusal_;
    case HPE_INVALID_METHOD: {  // a token that is no method of llhttp's, or no token at all
      const auto at = static_cast<std::size_t>(parser_.error_pos - text_of(input));
      const char letter = at < input.size() ? static_cast<char>(input[at]) : '\0';
      const bool begun = head_bytes_ + at != 0;
      return is_token_character(letter) || (letter == ' ' && begun) ? Refusal::method : Refusal::syntax;
    }
    case HPE_INVALID_CONSTANT:
      return reason.starts_with("Invalid method") ? Refusal::method : Refusal::protocol;
    case HPE_INVALID_VERSION:
      if (reason == "Expected CRLF after version") return Refusal::line_break;
      return reason == "Invalid HTTP version" ? Refusal::version : Refusal::syntax;
    case HPE_PAUSED_H2_UPGRADE:
      return Refusal::version;
    case HPE_INVALID_URL:
      return Refusal::target;
    case HPE_CR_EXPECTED:
    case HPE_LF_EXPECTED:
    case HPE_STRICT:
      return Refusal::line_break;
    case HPE_UNEXPECTED_CONTENT_LENGTH:
    case HPE_INVALID_CONTENT_LENGTH:
      return Refusal::content_length;
    case HPE_INVALID_TRANSFER_ENCODING:
      return Refusal::transfer_encoding;
    case HPE_INVALID_CHUNK_SIZE:
      return Refusal::chunk;
    default:
      return Refusal::syntax;
  }
}

}  // namespace neap::webserver::http
