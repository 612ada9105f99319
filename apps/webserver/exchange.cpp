// SPDX-License-Identifier: BSL-1.0
#include "apps/webserver/exchange.hpp"

#include <algorithm>
#include <cstring>

#include "apps/webserver/session.hpp"
#include "kernel/panic.hpp"
#include "kernel/short_copy.hpp"

namespace neap::webserver {

namespace {
/// A body up to this size is written behind the head in one block; a longer one is copied on its own.
constexpr std::size_t body_with_head_bytes_max = 64 * 1024;

char* append(char* to, std::string_view text) noexcept {
  if (text.empty()) return to;  // perhaps a null pointer
  std::memcpy(to, text.data(), text.size());
  return to + text.size();
}
}  // namespace

// --- Life --------------------------------------------------------------------------------------------------------------------------------
void Exchange::drop_reference() noexcept {
  require(references_ != 0, "webserver: a reference to an exchange is dropped once");
  if (--references_ == 0) core_.give_back(*this);
}

net::Endpoint Exchange::remote() const noexcept { return session_ == nullptr ? net::Endpoint() : session_->connection().remote(); }
net::Endpoint Exchange::local() const noexcept { return session_ == nullptr ? net::Endpoint() : session_->connection().local(); }
std::size_t Exchange::bytes_in_flight() const noexcept { return session_ == nullptr ? 0 : session_->in_flight(); }

void Exchange::destroy() {
  if (session_ != nullptr) session_->abort();
}

// --- The request's body ------------------------------------------------------------------------------------------------------------------
void Exchange::read_body() noexcept {
  if (session_ == nullptr || body_complete_ || ended_) return;
  if (!continue_done_) send_continue();
  if (session_ == nullptr) return;
  reading_ = true;
  if (!session_->working_) session_->resume_later();
}

void Exchange::send_continue() {
  if (session_ == nullptr || !parser_.expects_continue() || continue_sent_ || head_sent_ || body_complete_) return;
  continue_done_ = continue_sent_ = true;
  core_.statistics.continues_sent.add();
  core_.statistics.responses[1].add();
  constexpr std::string_view text = "HTTP/1.1 100 Continue\r\n\r\n";
  (void)session_->send_bytes(std::as_bytes(std::span(text)));
}

Exchange::Written Exchange::inform(unsigned status, std::string_view lines) {
  if (session_ == nullptr || head_sent_ || parser_.minor_version() == 0 || status < 102 || status > 199) return refuse();
  const std::string_view line = http::status_line(status);
  if (line.empty()) return refuse();
  char* const begin = session_->reserve_elsewhere(line.size() + lines.size() + 2);
  if (begin == nullptr) return Written::refused;
  char* to = append(append(begin, line), lines);
  core_.statistics.responses[1].add();
  session_->commit(append(to, "\r\n"));
  return written();
}

// --- The head of the response ------------------------------------------------------------------------------------------------------------
Exchange::Written Exchange::refuse() noexcept {
  core_.statistics.writes_refused.add();
  return Written::refused;
}

inline std::size_t Exchange::head_bytes_max(const http::ResponseHead& head) noexcept {
  return http::head_overhead_bytes_max + head.reason.size() + head.lines.size();
}

[[gnu::always_inline]] inline bool Exchange::plan(const http::ResponseHead& head, bool whole, std::size_t body_bytes) noexcept {
  if (session_ == nullptr || head_sent_) [[unlikely]]
    return false;
  require(head.status >= 200 && head.status <= 999, "webserver: the status of a response", head.status);
  Session& session = *session_;
  const std::uint32_t requests_max = server_->limits.requests_per_connection_max;
  close_ = close_ || !parser_.keep_alive() || head.contained.connection_close || server_->draining_ ||
           (requests_max != 0 && session.requests_ >= requests_max) ||
           (parser_.expects_continue() && !continue_sent_ && !body_complete_);  // the client may send the body or not
  without_body_ = parser_.method() == http::Method::head || head.status == 204 || head.status == 304;
  if (without_body_) [[unlikely]] {
    framing_ = Framing::none;
  } else if (head.length || whole) [[likely]] {
    framing_ = Framing::length;
    left_bytes_ = head.length.value_or(body_bytes);
  } else if (parser_.minor_version() != 0 && !head.contained.content_length &&
             (head.contained.chunked || !head.contained.transfer_encoding)) {
    framing_ = Framing::chunked;
  } else {
    framing_ = Framing::connection;
    close_ = true;
  }
  core_.statistics.responses[head.status / 100].add();
  head_sent_ = true;
  return true;
}

char* HttpServer::write_usual(char* to) const noexcept {
  std::memcpy(to, usual_.data(), usual_bytes_max);
  return to + usual_bytes_;
}
std::string_view HttpServer::keep_alive_lines() const noexcept { return {usual_.data() + keep_alive_at_, usual_bytes_ - keep_alive_at_}; }

[[gnu::always_inline]] inline char* Exchange::write_head(char* to, const http::ResponseHead& head, bool whole,
                                                         std::size_t body_bytes) const noexcept {
  const std::string_view line = http::status_line(head.status);
  if (head.reason.empty() && !line.empty()) [[likely]] {
    copy_medium(to, line.data(), line.size());
    to += line.size();
  } else {
    to = append(to, "HTTP/1.1 ");
    to = http::write_decimal(to, head.status);
    *to++ = ' ';
    to = append(append(to, head.reason.empty() ? http::usual_reason(head.status) : head.reason), "\r\n");
  }
  if (!head.lines.empty()) {
    copy_medium(to, head.lines.data(), head.lines.size());
    to += head.lines.size();
  }
  const http::FieldFlags contained = head.contained;
  if (head.date && !contained.date && !contained.connection && !contained.keep_alive && !close_) [[likely]] {
    to = server_->write_usual(to);
  } else {
    if (head.date && !contained.date && !core_.date().empty()) to = append(append(append(to, "Date: "), core_.date()), "\r\n");
    if (!contained.connection) {
      if (close_) {
        to = append(to, "Connection: close\r\n");
      } else {
        std::string_view lines = server_->keep_alive_lines();
        if (contained.keep_alive) lines = lines.substr(0, lines.find('\n') + 1);
        to = append(to, lines);
      }
    }
  }
  if (framing_ == Framing::length) [[likely]] {
    if (!contained.content_length) {
      to = append(to, "Content-Length: ");
      to = append(http::write_decimal(to, left_bytes_), "\r\n");
    }
  } else if (framing_ == Framing::chunked) {
    if (!contained.transfer_encoding) to = append(to, "Transfer-Encoding: chunked\r\n");
  } else if (without_body_ && parser_.method() == http::Method::head && !contained.content_length && !contained.transfer_encoding &&
             head.status != 204 && head.status != 304 && (head.length || (whole && body_bytes != 0))) {
    to = append(to, "Content-Length: ");
    to = append(http::write_decimal(to, head.length.value_or(body_bytes)), "\r\n");
  }
  return append(to, "\r\n");
}

// --- Whole responses ---------------------------------------------------------------------------------------------------------------------
Exchange::Written Exchange::respond(const http::ResponseHead& head, std::span<const std::byte> body) {
  if (head.length && *head.length != body.size() && parser_.method() != http::Method::head) [[unlikely]] {
    if (start(head) == Written::refused) return Written::refused;
    return end(body);  // counts it as too long or too short
  }
  if (!plan(head, true, body.size())) return refuse();
  const std::size_t body_bytes = without_body_ ? 0 : body.size();
  const bool together = body_bytes <= body_with_head_bytes_max;
  char* const begin = session_->reserve(head_bytes_max(head) + (together ? body_bytes : 0));
  if (begin == nullptr) return Written::refused;
  char* to = write_head(begin, head, true, body.size());
  if (together) [[likely]] {
    if (body_bytes != 0) copy_medium(to, reinterpret_cast<const char*>(body.data()), body_bytes);
    session_->commit(to + body_bytes);
  } else {
    session_->commit(to);
    if (session_ == nullptr || !session_->send_bytes(body)) return Written::refused;
  }
  if (session_ == nullptr) [[unlikely]]
    return Written::refused;
  ended_ = true;
  Session& session = *session_;
  if (!session.working_) session.settle_exchange();
  return Written::accepted;
}

Exchange::Written Exchange::respond(const http::ResponseHead& head, net::Buffer&& body) {
  http::ResponseHead with_length = head;
  if (!with_length.length) with_length.length = body.bytes();
  if (session_ == nullptr || head_sent_) return refuse();
  if (start(with_length) == Written::refused) return Written::refused;
  if (!body.empty() && write(std::move(body)) == Written::refused) return Written::refused;
  return end();
}

// --- Responses in pieces -----------------------------------------------------------------------------------------------------------------
Exchange::Written Exchange::start(const http::ResponseHead& head) {
  if (!plan(head, false, 0)) return refuse();
  char* const begin = session_->reserve_elsewhere(head_bytes_max(head));
  if (begin == nullptr) return Written::refused;
  session_->commit(write_head(begin, head, false, 0));
  return written();
}

/// The result of a write that was queued.
Exchange::Written Exchange::written() noexcept {
  if (session_ == nullptr) return Written::refused;
  Session& session = *session_;
  const bool scarce = core_.output_bytes_ > core_.limits.output_bytes_max;
  if (!scarce && !session.above_watermark()) return Written::accepted;
  if (scarce) core_.statistics.output_waits.add();
  session.drain_wanted_ = true;
  if (!session.working_) session.request_room();
  return Written::wait;
}

bool Exchange::take_length(std::size_t bytes) noexcept {
  if (framing_ != Framing::length) return true;
  if (bytes > left_bytes_) {
    core_.statistics.responses_too_long.add();
    session_->abort();
    return false;
  }
  left_bytes_ -= bytes;
  return true;
}

namespace {
/// Writes the line before a chunk.
char* write_chunk_line(char* to, std::size_t bytes) noexcept { return append(http::write_hexadecimal(to, bytes), "\r\n"); }
constexpr std::size_t chunk_overhead_bytes_max = 24;
constexpr std::size_t gathered_piece_bytes_max = 2048;
}  // namespace

Exchange::Written Exchange::write(std::span<const std::byte> piece) {
  if (session_ == nullptr || !head_sent_ || ended_) return refuse();
  if (piece.empty() || without_body_) return Written::accepted;
  if (!take_length(piece.size())) return Written::refused;
  const bool chunked = framing_ == Framing::chunked;
  if (piece.size() <= gathered_piece_bytes_max) {
    char* const begin = session_->reserve_elsewhere(piece.size() + chunk_overhead_bytes_max);
    if (begin == nullptr) return Written::refused;
    char* to = chunked ? write_chunk_line(begin, piece.size()) : begin;
    std::memcpy(to, piece.data(), piece.size());
    to += piece.size();
    session_->commit(chunked ? append(to, "\r\n") : to);
    return written();
  }
  char line[chunk_overhead_bytes_max];
  if (chunked && !session_->send_bytes(std::as_bytes(std::span(line, write_chunk_line(line, piece.size()))))) return Written::refused;
  if (!session_->send_bytes(piece)) return Written::refused;
  if (chunked && !session_->send_bytes(std::as_bytes(std::span("\r\n", 2)))) return Written::refused;
  return written();
}

Exchange::Written Exchange::write(net::Buffer&& piece) {
  if (session_ == nullptr || !head_sent_ || ended_) return refuse();
  if (piece.empty() || without_body_) {
    piece.clear();
    return Written::accepted;
  }
  if (!take_length(piece.bytes())) return Written::refused;
  const bool chunked = framing_ == Framing::chunked;
  char line[chunk_overhead_bytes_max];
  if (chunked && !session_->send_bytes(std::as_bytes(std::span(line, write_chunk_line(line, piece.bytes()))))) return Written::refused;
  if (!session_->send_buffer(std::move(piece))) return Written::refused;
  if (chunked && !session_->send_bytes(std::as_bytes(std::span("\r\n", 2)))) return Written::refused;
  return written();
}

Exchange::Written Exchange::end(std::span<const std::byte> last) {
  if (session_ == nullptr || !head_sent_ || ended_) return refuse();
  if (!last.empty() && !without_body_) {
    if (framing_ == Framing::chunked && last.size() <= gathered_piece_bytes_max) {  // the last chunk and the end together
      char* const begin = session_->reserve_elsewhere(last.size() + 2 * chunk_overhead_bytes_max);
      if (begin == nullptr) return Written::refused;
      char* to = write_chunk_line(begin, last.size());
      std::memcpy(to, last.data(), last.size());
      session_->commit(append(to + last.size(), "\r\n0\r\n\r\n"));
      framing_ = Framing::none;
    } else if (write(last) == Written::refused) {
      return Written::refused;
    }
  }
  return finish({});
}

Exchange::Written Exchange::end_with_trailers(std::string_view lines) {
  if (session_ == nullptr || !head_sent_ || ended_) return refuse();
  return finish(lines);
}

Exchange::Written Exchange::finish(std::string_view trailers) {
  if (session_ == nullptr) return Written::refused;
  if (framing_ == Framing::length && left_bytes_ != 0) {
    core_.statistics.responses_too_short.add();
    session_->abort();
    return Written::refused;
  }
  if (framing_ == Framing::chunked) {
    char* const begin = session_->reserve_elsewhere(trailers.size() + 5);
    if (begin == nullptr) return Written::refused;
    session_->commit(append(append(append(begin, "0\r\n"), trailers), "\r\n"));
    if (session_ == nullptr) return Written::refused;
  }
  ended_ = true;
  Session& session = *session_;
  session.drain_wanted_ = false;
  if (!session.working_) session.settle_exchange();
  return Written::accepted;
}

}  // namespace neap::webserver
