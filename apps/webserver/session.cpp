// SPDX-License-Identifier: BSL-1.0
#include "apps/webserver/session.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "kernel/log.hpp"
#include "kernel/panic.hpp"

namespace neap::webserver {

// --- Life --------------------------------------------------------------------------------------------------------------------------------
Session::Session(HttpServer& server) noexcept : server_(server), core_(server.core()) {
  core_.add(*this);
  listed_ = true;
  core_.statistics.connections_accepted.add();
  since_ticks_ = acknowledged_ticks_ = core_.now_ticks_;
}

Session::~Session() {
  require(exchange_ == nullptr, "webserver: a session ends after its exchange");
  if (listed_) core_.remove(*this);
  core_.statistics.connections_closed.add();
}

void Session::received(net::Buffer data) {
  core_.statistics.bytes_received.add(data.bytes());
  if (ended_) return;
  input_.append(std::move(data));
  event_requests_ = 0;
  work();
}

void Session::peer_closed() {
  peer_closed_ = true;
  if (!ended_) work();
}

void Session::closed() {
  server_.leave(connection());
  const bool was_ended = std::exchange(ended_, true);
  if (!was_ended && (exchange_ != nullptr || !unsent_.empty())) core_.statistics.connections_lost.add();
  input_.clear();
  unsent_.clear();
  core_.output_bytes_ -= std::exchange(charged_bytes_, 0);
  core_.remove(*this);
  if (exchange_ != nullptr) detach(true);
}

// --- Input -------------------------------------------------------------------------------------------------------------------------------
void Session::resume_later() noexcept { core_.resume_later(*this); }

inline void Exchange::begin(Session& session) noexcept {
  server_ = &session.server_;
  session_ = &session;
  context = nullptr;
  parser_.begin(server_->limits.request);
  requested_ = body_complete_ = reading_ = head_sent_ = ended_ = without_body_ = close_ = false;
  continue_done_ = continue_sent_ = report_sent_ = false;
  framing_ = Framing::none;
  left_bytes_ = 0;
}

void Session::work() noexcept {
  if (working_ || ended_) return;  // a call within `work` changes the state, and the loop further up the stack goes on with it
  working_ = true;
  while (step()) {
  }
  working_ = false;
  if (ended_) {
    input_.clear();
    return;
  }
  if (core_.scratch_owner_ == this || !unsent_.empty()) flush();
  if (drain_wanted_ && !output_waits_) request_room();
}

/// Each step consumes input, or passes an exchange to its next state.
[[gnu::always_inline]] inline bool Session::step() noexcept {
  if (ended_) return false;
  if (exchange_ == nullptr) {
    if (input_.empty()) {
      if (peer_closed_) close_in_order();
      return false;
    }
    return begin_exchange();
  }
  if (!head_parsed_) return parse_head();
  if (!exchange_->body_complete_) return parse_body();
  return false;  // waits for the response
}

inline bool Session::begin_exchange() noexcept {
  if (output_waits_) return false;
  if (!unsent_.empty()) [[unlikely]] {
    push();
    if (ended_) return false;
    if (above_watermark()) {
      output_waits_ = true;
      request_room();
      return false;
    }
  }
  if (event_requests_ >= server_.limits.requests_per_event) [[unlikely]] {
    core_.statistics.yields.add();
    event_requests_ = 0;
    resume_later();
    return false;
  }
  exchange_ = core_.take_exchange();
  if (exchange_ == nullptr) [[unlikely]] {
    core_.statistics.no_memory.add();
    abort();
    return false;
  }
  exchange_->begin(*this);
  head_parsed_ = false;
  since_ticks_ = core_.now_ticks_;
  return true;
}

inline bool Session::parse_head() noexcept {
  if (input_.empty()) {
    if (peer_closed_) end_of_input();
    return false;
  }
  http::RequestParser& parser = exchange_->parser_;
  const http::RequestParser::Step step = parser.parse(input_.front());
  input_.drop_front(step.consumed);
  if (step.event == http::RequestParser::Event::more) return true;
  if (step.event == http::RequestParser::Event::error) [[unlikely]] {
    refuse(parser.refusal());
    return false;
  }
  require(step.event == http::RequestParser::Event::head, "webserver: a head comes first", static_cast<std::uint64_t>(step.event));
  head_parsed_ = true;
  ++event_requests_;
  ++requests_;
  discarded_bytes_ = 0;
  core_.statistics.requests.add();
  log::count_requests(1);
  Exchange& exchange = *exchange_;
  exchange.requested_ = true;
  exchange.body_complete_ = !parser.has_body();
  exchange.add_reference();
  application().request(exchange);
  if (exchange.session_ != nullptr && exchange.ended_) [[likely]]
    settle_exchange();
  exchange.drop_reference();
  return true;
}

bool Session::parse_body() noexcept {
  Exchange& exchange = *exchange_;
  const bool discards = exchange.ended_;
  if (!exchange.reading_ && !discards) return false;
  http::RequestParser& parser = exchange.parser_;
  const http::RequestParser::Step step = parser.parse(input_.front());
  const std::span<const std::byte> piece = parser.piece();
  switch (step.event) {
    case http::RequestParser::Event::more:
      input_.drop_front(step.consumed);
      if (!input_.empty()) return true;
      if (peer_closed_) end_of_input();
      return false;
    case http::RequestParser::Event::body:
      if (discards) {
        discarded_bytes_ += piece.size();
        input_.drop_front(step.consumed);
        if (discarded_bytes_ <= server_.limits.discarded_bytes_max) return true;
        core_.statistics.bodies_too_long_to_discard.add();
        exchange.close_ = true;
        settle_exchange();
        return false;
      }
      exchange.add_reference();
      application().body(exchange, piece);
      if (!ended_) input_.drop_front(step.consumed);  // otherwise `work` drops all
      if (exchange.session_ != nullptr && exchange.ended_) settle_exchange();
      exchange.drop_reference();
      return true;
    case http::RequestParser::Event::end:
      input_.drop_front(step.consumed);
      exchange.body_complete_ = true;
      if (discards) {
        core_.statistics.bodies_discarded.add();
        settle_exchange();
        return true;
      }
      exchange.add_reference();
      application().body_end(exchange);
      if (exchange.session_ != nullptr && exchange.ended_) settle_exchange();
      exchange.drop_reference();
      return true;
    case http::RequestParser::Event::error:
      input_.drop_front(step.consumed);
      refuse(parser.refusal());
      return false;
    case http::RequestParser::Event::head:
      break;
  }
  panic("webserver: a body has no head", static_cast<std::uint64_t>(step.event));
}

void Session::end_of_input() noexcept {
  if (!head_parsed_ && !exchange_->parser_.begun()) {
    detach(true);
    return close_in_order();
  }
  refuse(http::Refusal::incomplete);
}

// --- The end of an exchange --------------------------------------------------------------------------------------------------------------
void Session::settle_exchange() noexcept {
  Exchange& exchange = *exchange_;
  if (!exchange.ended_) return;
  const bool closes = exchange.close_ || server_.draining_;
  if (!exchange.body_complete_ && !closes) {
    if (exchange.parser_.content_length() > server_.limits.discarded_bytes_max) {  // the client need not send it in vain
      core_.statistics.bodies_too_long_to_discard.add();
      exchange.close_ = true;
      return settle_exchange();
    }
    if (!working_ && (!input_.empty() || peer_closed_)) resume_later();
    return;
  }
  since_ticks_ = core_.now_ticks_;
  detach(false);
  if (closes) return close_in_order();
  if (!working_ && (!input_.empty() || peer_closed_)) resume_later();
}

[[gnu::always_inline]] inline void Session::detach(bool aborted) noexcept {
  Exchange& exchange = *std::exchange(exchange_, nullptr);
  exchange.session_ = nullptr;
  drain_wanted_ = false;
  if (exchange.requested_) {
    (aborted ? core_.statistics.requests_aborted : core_.statistics.requests_completed).add();
    if (exchange.report_sent_ && !aborted) application().sent(exchange);
    application().closed(exchange, aborted);
  }
  exchange.drop_reference();
}

void Session::close_in_order() noexcept {
  flush();
  if (ended_) return;
  ended_ = true;
  if (!working_) input_.clear();
  if (unsent_.empty()) return connection().close();
  // The connection did not accept all bytes: `writable` goes on.
}

void Session::abort() noexcept {
  if (std::exchange(ended_, true)) return;
  core_.statistics.connections_aborted.add();
  if (core_.scratch_owner_ == this) {
    core_.scratch_owner_ = nullptr;
    core_.scratch_used_ = 0;
  }
  unsent_.clear();
  if (!working_) input_.clear();
  settle_charge();
  connection().abort();
  if (exchange_ != nullptr) detach(true);
}

// --- Refused requests --------------------------------------------------------------------------------------------------------------------
namespace {
/// The counter of a status, or null.
Counter* refused_counter(Statistics& statistics, unsigned status) noexcept {
  switch (status) {
    case 400:
      return &statistics.refused_400;
    case 408:
      return &statistics.refused_408;
    case 413:
      return &statistics.refused_413;
    case 414:
      return &statistics.refused_414;
    case 417:
      return &statistics.refused_417;
    case 431:
      return &statistics.refused_431;
    case 501:
      return &statistics.refused_501;
    case 503:
      return &statistics.refused_503;
    case 505:
      return &statistics.refused_505;
    default:
      return nullptr;
  }
}
}  // namespace

void Session::refuse(http::Refusal refusal) noexcept {
  const http::ParseError error = http::ParseError::of(refusal);
  core_.statistics.requests_refused.add();
  if (Counter* const counter = refused_counter(core_.statistics, error.status); counter != nullptr) counter->add();
  const bool answered = exchange_ != nullptr && exchange_->head_sent_;
  if (answered && !exchange_->ended_) return abort();  // the client must not take a part for the whole
  if (exchange_ != nullptr) detach(true);
  if (ended_) return;
  if (!answered) {
    answering_error_ = true;
    const bool done = application().client_error(*this, error);
    answering_error_ = false;
    if (ended_) return;
    if (!done) {
      const std::string_view line = http::status_line(error.status);
      constexpr std::string_view lines = "Connection: close\r\nContent-Length: 0\r\n\r\n";
      std::array<char, 128> answer;
      std::memcpy(answer.data(), line.data(), line.size());
      std::memcpy(answer.data() + line.size(), lines.data(), lines.size());
      core_.statistics.responses[error.status / 100].add();
      (void)send_bytes(std::as_bytes(std::span(answer)).first(line.size() + lines.size()));
    }
  }
  close_in_order();
}

void Session::send_error_response(std::span<const std::byte> response) {
  if (!answering_error_ || ended_ || response.empty()) return;
  (void)send_bytes(response);
}

// --- Time-outs ---------------------------------------------------------------------------------------------------------------------------
/// A tick may come right after `since_ticks_` was set, so one tick more has to pass.
bool Session::elapsed(std::uint32_t timeout_ms) const noexcept {
  return timeout_ms != 0 && core_.now_ticks_ - since_ticks_ > (timeout_ms + 999) / 1000;
}

void Session::check_timeouts() noexcept {
  settle_charge();
  const Limits& limits = server_.limits;
  const std::size_t unacknowledged = in_flight();
  const std::uint64_t acknowledged = sent_bytes_ - std::min<std::uint64_t>(unacknowledged, sent_bytes_);
  if (unacknowledged == 0 || acknowledged != acknowledged_bytes_) {
    acknowledged_bytes_ = acknowledged;
    acknowledged_ticks_ = core_.now_ticks_;
  } else if (limits.write_timeout_ms != 0 && core_.now_ticks_ - acknowledged_ticks_ > (limits.write_timeout_ms + 999) / 1000) {
    core_.statistics.write_timeouts.add();
    acknowledged_ticks_ = core_.now_ticks_;
    if (!ended_) return abort();
    unsent_.clear();
    return connection().abort();
  }
  if (ended_) return;
  const bool begun = exchange_ != nullptr && (head_parsed_ || exchange_->parser_.begun());
  if (!begun) {
    if (exchange_ == nullptr && (!input_.empty() || unacknowledged != 0)) return;  // waits for the client to read
    if (!elapsed(requests_ == 0 ? limits.first_byte_timeout_ms : limits.keep_alive_timeout_ms)) return;
    core_.statistics.connections_idle_closed.add();
    if (exchange_ != nullptr) detach(true);
    return close_in_order();
  }
  if (!head_parsed_) {
    if (!elapsed(limits.head_timeout_ms) && !elapsed(limits.request_timeout_ms)) return;
    core_.statistics.head_timeouts.add();
    return refuse(http::Refusal::timeout);
  }
  // A body that the application does not read is not late.
  if (exchange_->body_complete_ || (!exchange_->reading_ && !exchange_->ended_) || !elapsed(limits.request_timeout_ms)) return;
  core_.statistics.request_timeouts.add();
  refuse(http::Refusal::timeout);
}

}  // namespace neap::webserver
