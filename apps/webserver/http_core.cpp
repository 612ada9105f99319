// SPDX-License-Identifier: BSL-1.0
#include "apps/webserver/http_core.hpp"

#include <chrono>
#include <cstring>
#include <new>
#include <utility>

#include "apps/webserver/exchange.hpp"
#include "apps/webserver/session.hpp"
#include "kernel/panic.hpp"

namespace neap::webserver {

// --- Core --------------------------------------------------------------------------------------------------------------------------------
HttpCore::HttpCore(UnixClock unix_clock, const CoreLimits& limits_, Timing timing)
    : limits(limits_), unix_clock_(unix_clock), timing_(timing), scratch_(std::make_unique<char[]>(scratch_bytes)) {
  if (timing_ == Timing::events) end_hook_ = std::make_unique<EventEndHook>([this] { end_event(); });
  read_clock();
}

HttpCore::~HttpCore() {
  require(session_count_ == 0, "webserver: a core's sessions end before it", session_count_);
  require(statistics.exchanges.value() == 0, "webserver: a core's exchanges end before it", statistics.exchanges.value());
  while (spare_exchanges_ != nullptr) delete std::exchange(spare_exchanges_, spare_exchanges_->next_spare_);
}

void HttpCore::read_clock() noexcept {
  if (timing_ == Timing::events) {
    now_ticks_ = static_cast<std::uint32_t>(std::chrono::duration_cast<std::chrono::seconds>(BootClock::now().time_since_epoch()).count());
  }
  const std::int64_t unix_s = unix_clock_ == nullptr ? -1 : unix_clock_();
  date_bytes_ = unix_s < 0 ? 0 : http::date_bytes;
  if (unix_s >= 0) http::write_date(date_.data(), unix_s);
  for (HttpServer* server = servers_; server != nullptr; server = server->next_) server->make_usual_lines();
}

void HttpCore::tick() noexcept {
  if (timing_ == Timing::manual) ++now_ticks_;
  read_clock();
  // No session is destroyed meanwhile: the network destroys them in events of its own.
  for (Session* session = sessions_; session != nullptr; session = session->next_) session->check_timeouts();
}

bool HttpCore::resume() noexcept {
  // Sessions that wait again are added to a new list.
  Session* session = std::exchange(resumed_first_, nullptr);
  resumed_last_ = nullptr;
  if (session == nullptr) return false;
  while (session != nullptr) {
    Session* const next = std::exchange(session->resumed_next_, nullptr);
    session->resuming_ = false;
    session->resume();
    session = next;
  }
  return true;
}

void HttpCore::end_event() noexcept {
  if (scratch_owner_ != nullptr) scratch_owner_->flush();
}

void HttpCore::resume_later(Session& session) noexcept {
  if (session.resuming_) return;
  session.resuming_ = true;
  session.resumed_next_ = nullptr;
  if (resumed_last_ != nullptr) {
    resumed_last_->resumed_next_ = &session;
  } else {
    resumed_first_ = &session;
    if (timing_ == Timing::events) resume_timer_.arm(std::chrono::nanoseconds(0), [this] { resume(); });
  }
  resumed_last_ = &session;
}

void HttpCore::add(Session& session) noexcept {
  if (session_count_++ == 0) {
    read_clock();
    if (timing_ == Timing::events) tick_timer_.repeat(std::chrono::seconds(1), [this] { tick(); });
  }
  session.next_ = sessions_;
  if (sessions_ != nullptr) sessions_->previous_ = &session;
  sessions_ = &session;
}

void HttpCore::remove(Session& session) noexcept {
  session.listed_ = false;
  if (scratch_owner_ == &session) {
    scratch_owner_ = nullptr;
    scratch_used_ = 0;
  }
  if (session.resuming_) {
    Session** link = &resumed_first_;
    Session* before = nullptr;
    while (*link != nullptr && *link != &session) {
      before = *link;
      link = &before->resumed_next_;
    }
    if (*link == &session) *link = session.resumed_next_;
    if (resumed_last_ == &session) resumed_last_ = before;
  }
  (session.previous_ != nullptr ? session.previous_->next_ : sessions_) = session.next_;
  if (session.next_ != nullptr) session.next_->previous_ = session.previous_;
  if (--session_count_ == 0) tick_timer_.cancel();
}

Exchange* HttpCore::take_exchange() noexcept {
  Exchange* exchange = spare_exchanges_;
  if (exchange != nullptr) [[likely]] {
    spare_exchanges_ = exchange->next_spare_;
    --spare_exchange_count_;
  } else {
    exchange = new (std::nothrow) Exchange(*this);
    if (exchange == nullptr) return nullptr;
  }
  exchange->references_ = 1;
  statistics.exchanges.add();
  return exchange;
}

void HttpCore::give_back(Exchange& exchange) noexcept {
  statistics.exchanges.subtract(1);
  if (spare_exchange_count_ >= spare_exchanges_max) {
    delete &exchange;
    return;
  }
  exchange.parser_.release_memory();
  exchange.next_spare_ = spare_exchanges_;
  spare_exchanges_ = &exchange;
  ++spare_exchange_count_;
}

// --- Server ------------------------------------------------------------------------------------------------------------------------------
HttpServer::HttpServer(HttpCore& core, Application& application_, const Limits& limits_)
    : application(application_), limits(limits_), core_(core), next_(core.servers_) {
  core.servers_ = this;
  make_usual_lines();
}

HttpServer::~HttpServer() {
  require(connections_ == 0, "webserver: a server's connections end before it", connections_);
  HttpServer** link = &core_.servers_;
  while (*link != this) link = &(*link)->next_;
  *link = next_;
}

void HttpServer::limits_changed() noexcept { make_usual_lines(); }

void HttpServer::make_usual_lines() noexcept {
  char* to = usual_.data();
  const auto append = [&](std::string_view text) {
    std::memcpy(to, text.data(), text.size());
    to += text.size();
  };
  if (core_.date_bytes_ != 0) {
    append("Date: ");
    append(core_.date());
    append("\r\n");
  }
  keep_alive_at_ = static_cast<std::uint32_t>(to - usual_.data());
  append("Connection: keep-alive\r\n");
  if (limits.keep_alive_timeout_ms >= 1000) {
    append("Keep-Alive: timeout=");
    to = http::write_decimal(to, limits.keep_alive_timeout_ms / 1000);
    if (limits.requests_per_connection_max != 0) {
      append(", max=");
      to = http::write_decimal(to, limits.requests_per_connection_max);
    }
    append("\r\n");
  }
  usual_bytes_ = static_cast<std::uint32_t>(to - usual_.data());
}

std::unique_ptr<net::ConnectionHandler> HttpServer::accept(net::Connection& connection) {
  /// A connection that was refused; it waits for its end.
  class Refused final : public net::ConnectionHandler {
    void received(net::Buffer) override {}
  };
  if (!admit(connection)) {
    constexpr std::string_view answer = "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    (void)connection.send_copy(std::as_bytes(std::span(answer)));
    connection.close();
    return std::make_unique<Refused>();
  }
  try {
    return std::make_unique<Session>(*this);
  } catch (...) {
    leave(connection);
    throw;
  }
}

bool HttpServer::admit(net::Connection& connection) {
  if (limits.connections_max != 0 && connections_ >= limits.connections_max) {
    core_.statistics.connections_refused.add();
    return false;
  }
  if (limits.peer_connections_max != 0) {
    std::uint32_t& count = peers_[connection.remote().address.peer_key()];
    if (count >= limits.peer_connections_max) {
      core_.statistics.peer_connections_refused.add();
      return false;
    }
    ++count;
  }
  ++connections_;
  return true;
}

/// A limit that is set later does not count the peer's connections that are open then.
void HttpServer::leave(const net::Connection& connection) noexcept {
  --connections_;
  if (peers_.empty()) return;
  const auto counted = peers_.find(connection.remote().address.peer_key());
  if (counted != peers_.end() && --counted->second == 0) peers_.erase(counted);
}

void HttpServer::close_connections(bool all) noexcept {
  for (Session* session = core_.sessions_; session != nullptr; session = session->next_) {
    if (&session->server_ != this || session->ended_) continue;
    if (session->exchange_ == nullptr && session->input_.empty()) {
      session->close_in_order();
    } else if (all) {
      session->abort();
    }
  }
}

void HttpServer::drain() noexcept {
  draining_ = true;
  close_connections(false);
}

}  // namespace neap::webserver
