// SPDX-License-Identifier: BSL-1.0
#include "apps/memcached/session.hpp"

#include <algorithm>
#include <new>
#include <span>
#include <utility>

#include "apps/memcached/binary_protocol_whole.hpp"
#include "apps/memcached/observation.hpp"
#include "apps/memcached/text_protocol_whole.hpp"
#include "kernel/events.hpp"
#include "kernel/log.hpp"
#include "kernel/panic.hpp"

namespace neap::memcached {

// --- Session -----------------------------------------------------------------------------------------------------------------------------
Session::Session(Service& service, CoreState& core) noexcept : core_granule_(reinterpret_cast<std::uintptr_t>(&core) / alignof(CoreState)) {
  require(core.service == &service, "memcached: a session uses the core's service", core.index);
  core.statistics.add(Count::total_connections);
}

inline void Session::check_core() const noexcept {
  require(this_core() == core().index, "memcached: a session runs on the core of its connection", core().index);
}

Session::~Session() {
  exchange_.reset();
  core().statistics.add(Count::closed_connections);
}

/// Called if the core's exchange has left with another session. Returns false if there is no memory for a new one.
bool Session::make_exchange() noexcept {
  if (core().spare_count != 0) {
    core().exchange = std::move(core().spare_exchanges[--core().spare_count]);
  } else {
    core().exchange.reset(new (std::nothrow) Exchange(core()));
  }
  return core().exchange != nullptr;
}

[[gnu::always_inline]] inline Exchange* Session::open() noexcept {
  if (exchange_ != nullptr) return exchange_.get();
  if (core().exchange == nullptr && !make_exchange()) [[unlikely]] {
    core().statistics.add(Count::reply_no_memory);
    ended_ = true;
    connection().abort();
    return nullptr;
  }
  auto* const exchange = static_cast<Exchange*>(core().exchange.get());
  exchange->begin(*this);
  return exchange;
}

[[gnu::always_inline]] inline void Session::release_if_idle(Exchange& exchange) noexcept {
  if (exchange.idle() && !ended_) [[likely]] {
    protocol_ = exchange.conversation_.protocol();
    if (exchange_ == nullptr) [[likely]]
      return;
    if (core().exchange == nullptr) {
      core().exchange = std::move(exchange_);
    } else if (core().spare_count < core().spare_exchanges.size()) {
      core().spare_exchanges[core().spare_count++] = std::move(exchange_);
    } else {
      exchange_.reset();
    }
  } else if (exchange_ == nullptr) {
    exchange_.reset(static_cast<Exchange*>(core().exchange.release()));
  }
}

[[gnu::always_inline]] inline bool Session::answer_at_once(net::Buffer& data) {
  if (exchange_ != nullptr || protocol_ == Conversation::Protocol::unknown || data.pieces() != 1) return false;
  if (core().exchange == nullptr && !make_exchange()) [[unlikely]]
    return false;
  return static_cast<Exchange&>(*core().exchange).answer_at_once(protocol_, connection(), data);
}

void Session::received(net::Buffer data) {
  check_core();
  if (ended_) return;
  core().statistics.add(Count::bytes_read, data.bytes());
  if (exchange_ != nullptr) {  // the segment may have acknowledged all replies in flight
    exchange_->settle();
    release_if_idle(*exchange_);
  }
  if (answer_at_once(data)) [[likely]]
    return;
  Exchange* const exchange = open();
  if (exchange == nullptr) return;
  exchange->received(std::move(data));
  release_if_idle(*exchange);
}

void Session::writable() {
  check_core();
  if (exchange_ == nullptr) return;  // the reply in flight was not charged
  exchange_->writable();
  release_if_idle(*exchange_);
}

void Session::peer_closed() {
  peer_closed_ = true;
  if (ended_) return;
  Exchange* const exchange = open();
  if (exchange == nullptr) return;
  exchange->work();
  release_if_idle(*exchange);
}

void Session::closed() {
  if (admitted_) {
    Service& service = *core().service;
    const net::Endpoint remote = connection().remote();
    const std::string_view reason = idle_ ? "idle_timeout" : peer_closed_ || quit_ ? "normal" : "error";
    observation::report_connection(service, false, remote, id(), reason);
    service.admission.release(remote.address.peer_key());
  }
  ended_ = true;
  if (exchange_ != nullptr) exchange_->closed();
  exchange_.reset();
}

void Session::begin(net::Connection& connection) noexcept {
  admitted_ = true;
  const net::Endpoint remote = connection.remote();
  observation::report_connection(*core().service, true, remote, id(), {});
}

bool Session::end_idle() noexcept {
  if (ended_) return true;
  if (exchange_ != nullptr && exchange_->conversation_.is_endless()) return false;
  core().statistics.add(Count::idle_kicks);
  ended_ = idle_ = true;
  if (exchange_ != nullptr) exchange_->clear();
  connection().abort();  // an orderly close would keep the connection's memory until the silent client answers
  return true;
}

/// A session's address is a multiple of 32. Ids of open connections differ, because the secret changes the same bits of all.
std::uint32_t Session::id() const noexcept {
  const std::uint32_t secret = core().service->settings.connection_secret;
  return (static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(this) / 32) ^ secret) & 0x7FFF'FFFF;
}

std::string_view Session::state() const noexcept {
  if (ended_) return "conn_closing";
  return exchange_ == nullptr ? "conn_read" : exchange_->state();
}

// --- Exchange ----------------------------------------------------------------------------------------------------------------------------
Exchange::Exchange(CoreState& core) noexcept : core_(core), conversation_(*core.service, core), reply_(core.replies) {}

Exchange::~Exchange() {
  settle_all();
  if (upload_bytes() != 0) core_.uploads.remove(*this);
}

[[gnu::always_inline]] inline void Exchange::begin(Session& session) noexcept {
  session_ = &session;
  conversation_.resume(session.protocol_, session.id(), this);
  uncharged_bytes_ = connection().unacknowledged_bytes();
  if (uncharged_bytes_ != 0) [[unlikely]] {  // the positions of the reply begin behind these bytes
    reply_.skip(uncharged_bytes_);
    charge_uncharged();
  }
}

[[gnu::always_inline]] inline bool Exchange::idle() const noexcept {
  return (input_.bytes() | reply_.bytes() | unsent_.bytes() | older_cost_ | newer_cost_) == 0 && conversation_.idle() && !retry_.pending();
}

// This has the effects of `work` in the ordinary case: requests that arrived whole, nothing in flight, and a reply that fits one frame.
[[gnu::always_inline]] inline bool Exchange::answer_at_once(Conversation::Protocol protocol, net::Connection& connection,
                                                            net::Buffer& data) {
  if (core_.service->reply_memory.careful()) return false;
  if (const std::span<std::byte> room = core_.frame_fits ? connection.frame() : std::span<std::byte>(); !room.empty()) [[likely]] {
    reply_.open_in(room);
  } else if (connection.unacknowledged_bytes() != 0) {
    return false;
  }
  const std::string_view input(reinterpret_cast<const char*>(data.front().data()), data.front().size());
  Service& service = *core_.service;
  const Seconds now = core_.now();
  service.store.tick(now);
  if (protocol == Conversation::Protocol::text) {
    const Handled handled = text::handle_whole_requests(input, service.store, service.clock, now, core_.statistics, reply_);
    if (handled.bytes == 0) [[unlikely]]
      return answer_meta_at_once(connection, data);
    return send_at_once(handled, input.size(), connection, data);
  }
  const Handled handled = binary::handle_whole_requests(input, service.store, service.clock, now, core_.statistics, reply_);
  if (handled.bytes != 0) [[likely]]
    return send_at_once(handled, input.size(), connection, data);
  reply_.close_frame();
  return false;
}

/// As `answer_at_once`, for meta requests of the text protocol. A function of its own, with few arguments, so that the classic requests
/// have no further instructions.
[[gnu::noinline]] bool Exchange::answer_meta_at_once(net::Connection& connection, net::Buffer& data) {
  const std::string_view input(reinterpret_cast<const char*>(data.front().data()), data.front().size());
  Service& service = *core_.service;
  if (text::is_meta(input)) {
    const Handled handled = text::handle_whole_meta_requests(input, service.store, service.clock, core_.now(), core_.statistics, reply_);
    if (handled.bytes != 0) return send_at_once(handled, input.size(), connection, data);
  }
  reply_.close_frame();
  return false;
}

/// Sends the reply to what was handled of `input_bytes`.
[[gnu::always_inline]] inline bool Exchange::send_at_once(Handled handled, std::size_t input_bytes, net::Connection& connection,
                                                          net::Buffer& data) {
  const auto [used, requests] = handled;
  log::count_requests(requests);
  core_.unchecked_bytes += used + Holders::piece_bytes;
  if (core_.unchecked_bytes >= Holders::bytes_per_check) [[unlikely]] {
    core_.unchecked_bytes = 0;
    shed_holders_everywhere(*core_.service, core_, nullptr);
  }
  const std::string_view text = reply_.open_text();
  if (used == input_bytes && !text.empty()) [[likely]] {
    if (reply_.in_frame()) [[likely]] {
      connection.send_frame(text.size());
      core_.statistics.add(Count::bytes_written, text.size());
      reply_.take_frame();
      return true;
    }
    if (text.size() <= net::Connection::send_copy_bytes_max && connection.send_copy(std::as_bytes(std::span(text)))) {
      core_.statistics.add(Count::bytes_written, text.size());
      reply_.take_open_text();
      core_.frame_fits = true;
      return true;
    }
  }
  reply_.close_frame();
  core_.frame_fits = reply_.bytes() <= net::Connection::send_copy_bytes_max;
  data.drop_front(used);
  return false;
}

[[gnu::always_inline]] inline void Exchange::received(net::Buffer&& data) {
  input_.append(std::move(data));
  work();
}

void Exchange::writable() {
  // Usually no bytes wait for room: `received` has already answered the request with which the acknowledgement came.
  if (session_->ended_ || (!waits_ && input_.empty() && reply_.empty() && unsent_.empty())) {
    settle();
  } else {
    work();
  }
}

void Exchange::closed() noexcept {
  clear();
  settle_all();
  if (upload_bytes() != 0) core_.uploads.remove(*this);
}

void Exchange::clear() noexcept {
  input_.clear();
  unsent_.clear();
  reply_.clear();
}

[[gnu::always_inline]] inline void Exchange::work() {
  settle();
  parse_and_send();
  // Values of an unfinished get, and bytes that find no room in the connection, may wait long, so they are moved out of chunks that replies
  // share.
  if (!reply_.empty()) [[unlikely]]
    reply_.move_to_own_storage();
  if ((upload_bytes() | conversation_.upload_bytes()) != 0) [[unlikely]]
    settle_upload();
  if (core_.unchecked_bytes >= Holders::bytes_per_check) {
    core_.unchecked_bytes = 0;
    shed_holders_everywhere(*core_.service, core_, this);
  }
}

void Exchange::settle_upload() noexcept {
  const std::size_t bytes = session_->ended_ ? 0 : conversation_.upload_bytes();
  if (bytes == 0) {
    if (upload_bytes() != 0) core_.uploads.remove(*this);
    return;
  }
  core_.uploads.note_progress(*this, bytes, core_.now());
  // A core with little in uploads is not looked at, so that an ordinary upload costs no sum over all cores.
  const std::size_t share = core_.service->store.memory_bytes() / Uploads::memory_divisor / core_.service->core_count;
  if (core_.uploads.bytes() > share) shed_uploads(*core_.service, core_, this);
}

void Exchange::reset_upload() noexcept {
  core_.statistics.add(Count::uploads_reset);
  abort_connection();
}

void Exchange::wake() {
  if (session_->ended_) return;
  Session& session = *session_;
  work();
  session.release_if_idle(*this);
}

std::string_view Exchange::state() noexcept {
  if (conversation_.answering() || reply_.empty()) return conversation_.state();
  return "conn_mwrite";
}

void Exchange::charge(std::size_t bytes) noexcept {
  newer_cost_ += bytes;
  core_.replies.account().charge(bytes);
}

void Exchange::charge_uncharged() noexcept { charge(cost(std::exchange(uncharged_bytes_, 0), false)); }

[[gnu::always_inline]] inline bool Exchange::send_short(std::size_t bytes) {
  const std::string_view text = reply_.open_text();
  if (text.size() != bytes || bytes > net::Connection::send_copy_bytes_max) return false;
  if (!connection().send_copy(std::as_bytes(std::span(text)))) return false;
  reply_.take_open_text();
  if ((older_cost_ | newer_cost_ | uncharged_bytes_) == 0) [[likely]] {
    uncharged_bytes_ = bytes;
  } else {
    if (uncharged_bytes_ != 0) charge_uncharged();
    charge(cost(bytes, false));
  }
  return true;
}

/// Passes `bytes` of the reply to `unsent_`. Returns false if there was no memory for a piece. The stream has a gap then, so it must end.
bool Exchange::send_pieces(std::size_t bytes) {
  if (uncharged_bytes_ != 0) charge_uncharged();
  if (core_.service->reply_memory.scarce() || in_flight_bytes() > shared_bytes_max) reply_.move_to_own_storage();
  std::size_t referred = 0, added = 0;
  reply_.take(bytes, [&](const char* data, std::size_t count, Reply::Release release, void* owner) {
    net::Buffer piece = net::Buffer::reference({reinterpret_cast<const std::byte*>(data), count}, release, owner);
    referred += piece.bytes();
    added += cost(count, Reply::is_item(release));
    if (Reply::is_item(release) && !listed()) core_.holders.add(*this, core_.now());
    unsent_.append(std::move(piece));
  });
  charge(added);
  return referred == bytes;
}

/// Sends the part of the reply that may be sent. Returns false if the connection accepts no more bytes now, or is gone.
[[gnu::always_inline]] inline bool Exchange::send_reply() {
  for (;;) {
    std::size_t bytes = unsent_.bytes();
    if (bytes == 0) {
      bytes = std::min(conversation_.sendable_bytes(reply_), send_bytes_max);
      if (bytes == 0) return true;
      if (send_short(bytes)) [[likely]] {
        core_.statistics.add(Count::bytes_written, bytes);
        return true;
      }
      if (!send_pieces(bytes)) {
        core_.statistics.add(Count::reply_no_memory);
        abort_connection();
        return false;
      }
    }
    if (const auto sent = connection().send(std::move(unsent_)); !sent) {
      if (sent.error().code != ErrorCode::full) abort_connection();
      return false;
    }
    core_.statistics.add(Count::bytes_written, bytes);
    if (reply_.empty()) return true;
  }
}

/// Alternates between parsing and sending until the input is consumed or the connection accepts no more bytes. Each round consumes input,
/// writes to the reply or sends a part of the reply. A round without progress would be repeated for ever, so it aborts the connection.
[[gnu::always_inline]] inline void Exchange::parse_and_send() {
  const std::uint64_t requests_before = core_.statistics.value(Count::requests);
  bool yields = false;  // the connection had its requests of this event
  for (;;) {
    const std::uint64_t written = reply_.position(), taken = reply_.taken();
    std::size_t parsed = 0;
    const bool may_go_on = may_parse();
    while (may_go_on && !reply_.full() && (!input_.empty() || !conversation_.idle())) {
      const std::size_t used = parse();
      parsed += used;
      if (input_.empty() || conversation_.closing() || conversation_.waits() || conversation_.sleeps()) break;
      if (core_.statistics.value(Count::requests) - requests_before >= core_.service->settings.requests_per_event) [[unlikely]] {
        core_.statistics.add(Count::conn_yields);
        yields = true;
        break;
      }
      if (used == 0 && !reply_.full()) return abort_without_progress();
    }
    const bool was_full = reply_.full();
    if (reply_.failed()) {
      core_.statistics.add(Count::reply_no_memory);
      return abort_connection();
    }
    if (!send_reply()) return;  // the connection will call `writable`, which continues the work
    if (conversation_.closing()) break;
    if (!may_go_on) return;
    if (conversation_.waits() || yields) {  // the input waits for other clients' events, or until memory was freed between events
      return retry_.arm(std::chrono::nanoseconds(0), [this] {
        if (!session_->ended_) work();
        session_->release_if_idle(*this);
      });
    }
    if (was_full) {  // the parser stopped because the reply was full, perhaps within a split command
      if (parsed == 0 && reply_.position() == written && reply_.taken() == taken) return abort_without_progress();
      continue;
    }
    if (!session_->peer_closed_ || (conversation_.sleeps() && !conversation_.is_endless())) return;
    break;
  }
  session_->ended_ = true;
  session_->quit_ = conversation_.quit();
  input_.clear();
  conversation_.end();
  connection().close();  // sends all queued bytes first
}

/// Parses the first piece of the input and drops the bytes that were consumed. Returns their number.
[[gnu::always_inline]] inline std::size_t Exchange::parse() {
  const std::span<const std::byte> front = input_.front();
  const std::uint64_t requests = core_.statistics.value(Count::requests);
  const std::size_t used = conversation_.consume({reinterpret_cast<const char*>(front.data()), front.size()}, reply_);
  log::count_requests(core_.statistics.value(Count::requests) - requests);
  input_.drop_front(used);
  core_.unchecked_bytes += used + Holders::piece_bytes;
  return used;
}

void Exchange::settle_acknowledged() noexcept {
  const std::size_t in_flight = in_flight_bytes();
  if (in_flight == 0) return settle_all();
  require(in_flight <= reply_.taken(), "memcached: more bytes in flight than were taken from the reply", in_flight);
  if (reply_.taken() - in_flight < boundary_) return;
  if (older_cost_ != 0) core_.replies.account().discharge(older_cost_);
  older_cost_ = newer_cost_;
  newer_cost_ = 0;
  boundary_ = reply_.taken();
}

void Exchange::settle_all() noexcept {
  core_.replies.account().discharge(older_cost_ + newer_cost_);
  older_cost_ = newer_cost_ = uncharged_bytes_ = 0;
  if (listed()) core_.holders.remove(*this);
}

void Exchange::reset_connection() noexcept {
  core_.statistics.add(Count::holders_reset);
  abort_connection();
}

[[gnu::always_inline]] inline bool Exchange::may_parse() noexcept {
  const std::size_t in_flight = older_cost_ + newer_cost_;
  const ReplyMemory& memory = core_.service->reply_memory;
  const bool may = in_flight == 0 || in_flight < memory.share_bytes();
  if (!may && !waits_) core_.statistics.add(Count::reply_waits);
  waits_ = !may;
  reply_.limit(memory.scarce() ? ReplyMemory::small_bytes : Reply::full_bytes);
  return may;
}

void Exchange::abort_without_progress() {
  core_.statistics.add(Count::no_progress);
  abort_connection();
}

void Exchange::abort_connection() {
  session_->ended_ = true;
  clear();
  connection().abort();
}

// --- New connections ---------------------------------------------------------------------------------------------------------------------
std::unique_ptr<net::ConnectionHandler> accept(Service& service, net::Connection& connection) {
  CoreState& core = service.core(this_core());
  const std::uint64_t peer = connection.remote().address.peer_key();
  if (service.admission.admit(peer) != Admission::Verdict::admitted) {
    core.statistics.add(Count::rejected_connections);
    constexpr std::string_view error = "ERROR Too many open connections\r\n";
    (void)connection.send_copy(std::as_bytes(std::span(error)));
    connection.close();
    return std::make_unique<RefusedConnection>();
  }
  try {
    auto session = std::make_unique<Session>(service, core);
    session->begin(connection);
    return session;
  } catch (...) {
    service.admission.release(peer);
    throw;
  }
}

}  // namespace neap::memcached
