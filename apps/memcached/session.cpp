// SPDX-License-Identifier: BSL-1.0
#include "apps/memcached/session.hpp"

#include <algorithm>
#include <span>
#include <utility>

#include "kernel/events.hpp"
#include "kernel/log.hpp"
#include "kernel/panic.hpp"

namespace neap::memcached {

Session::Session(Service& service, CoreState& core) noexcept
    : service_(service), core_(core), conversation_(service, core), reply_(core.replies) {
  core_.statistics.add(Count::total_connections);
}

inline void Session::check_core() const noexcept {
  require(this_core() == core_.index, "memcached: a session runs on the core of its connection", core_.index);
}

Session::~Session() {
  settle_all();
  core_.statistics.add(Count::closed_connections);
}

void Session::received(net::Buffer data) {
  check_core();
  if (ended_) return;
  core_.statistics.add(Count::bytes_read, data.bytes());
  input_.append(std::move(data));
  work();
}

void Session::writable() {
  check_core();
  // Usually no bytes wait for room: `received` has already answered the request with which the acknowledgement came.
  if (ended_ || (!waits_ && input_.empty() && reply_.empty() && unsent_.empty())) {
    settle();
  } else {
    work();
  }
}

void Session::peer_closed() {
  peer_closed_ = true;
  if (!ended_) work();
}

void Session::closed() {
  ended_ = true;
  input_.clear();
  unsent_.clear();
  reply_.clear();
  settle_all();
}

void Session::work() {
  settle();
  parse_and_send();
  // Values of an unfinished get, and bytes that find no room in the connection, may wait long, so they are moved out of chunks that replies
  // share.
  if (!reply_.empty()) reply_.move_to_own_storage();
  if (core_.unchecked_bytes >= Holders::bytes_per_check) {
    core_.unchecked_bytes = 0;
    shed_holders_everywhere(service_, core_, this);
  }
}

/// Sends the part of the reply that may be sent. Returns false if the connection accepts no more bytes now, or is gone.
[[gnu::always_inline]] inline bool Session::send_reply() {
  for (;;) {
    if (unsent_.empty()) {
      const std::size_t bytes = std::min(conversation_.sendable_bytes(reply_), send_bytes_max);
      if (bytes == 0) return true;
      if (service_.reply_memory.scarce() || in_flight_bytes() > shared_bytes_max) reply_.move_to_own_storage();
      std::size_t referred = 0, added = 0;
      reply_.take(bytes, [&](const char* data, std::size_t count, Reply::Release release, void* owner) {
        net::Buffer piece = net::Buffer::reference({reinterpret_cast<const std::byte*>(data), count}, release, owner);
        referred += piece.bytes();
        added += cost(count, Reply::is_item(release));
        if (Reply::is_item(release) && !listed()) core_.holders.add(*this, service_.clock.now());
        unsent_.append(std::move(piece));
      });
      newer_cost_ += added;
      core_.replies.account().charge(added);
      if (referred != bytes) {  // no memory for a piece: the stream has a gap now, so it must end
        core_.statistics.add(Count::reply_no_memory);
        abort_connection();
        return false;
      }
    }
    const std::size_t bytes = unsent_.bytes();
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
[[gnu::always_inline]] inline void Session::parse_and_send() {
  for (;;) {
    const std::uint64_t written = reply_.position(), taken = reply_.taken();
    std::size_t parsed = 0;
    const bool may_go_on = may_parse();
    while (may_go_on && !reply_.full()) {
      const std::size_t used = parse();
      parsed += used;
      if (input_.empty() || conversation_.closing() || conversation_.waits()) break;
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
    if (conversation_.waits()) {  // the input waits until other clients' events have run, or until memory was freed between events
      return retry_.arm(std::chrono::nanoseconds(0), [this] {
        if (!ended_) work();
      });
    }
    if (was_full) {  // the parser stopped because the reply was full, perhaps within a split command
      if (parsed == 0 && reply_.position() == written && reply_.taken() == taken) return abort_without_progress();
      continue;
    }
    if (!peer_closed_) return;
    break;
  }
  ended_ = true;
  input_.clear();
  connection().close();  // sends all queued bytes first
}

/// Parses the first piece of the input and drops the bytes that were consumed. Returns their number.
[[gnu::always_inline]] inline std::size_t Session::parse() {
  const std::span<const std::byte> front = input_.front();
  const std::uint64_t requests = core_.statistics.value(Count::requests);
  const std::size_t used = conversation_.consume({reinterpret_cast<const char*>(front.data()), front.size()}, reply_);
  log::count_requests(core_.statistics.value(Count::requests) - requests);
  input_.drop_front(used);
  core_.unchecked_bytes += used + Holders::piece_bytes;
  return used;
}

void Session::settle_acknowledged() noexcept {
  const std::size_t in_flight = in_flight_bytes();
  if (in_flight == 0) return settle_all();
  require(in_flight <= reply_.taken(), "memcached: more bytes in flight than were taken from the reply", in_flight);
  if (reply_.taken() - in_flight < boundary_) return;
  if (older_cost_ != 0) core_.replies.account().discharge(older_cost_);
  older_cost_ = newer_cost_;
  newer_cost_ = 0;
  boundary_ = reply_.taken();
}

[[gnu::always_inline]] inline void Session::settle_all() noexcept {
  core_.replies.account().discharge(older_cost_ + newer_cost_);
  older_cost_ = newer_cost_ = 0;
  if (listed()) core_.holders.remove(*this);
}

void Session::reset_connection() noexcept {
  core_.statistics.add(Count::holders_reset);
  abort_connection();
}

[[gnu::always_inline]] inline bool Session::may_parse() noexcept {
  const std::size_t in_flight = older_cost_ + newer_cost_;
  const ReplyMemory& memory = service_.reply_memory;
  const bool may = in_flight == 0 || in_flight < memory.share_bytes();
  if (!may && !waits_) core_.statistics.add(Count::reply_waits);
  waits_ = !may;
  reply_.limit(memory.scarce() ? ReplyMemory::small_bytes : Reply::full_bytes);
  return may;
}

void Session::abort_without_progress() {
  core_.statistics.add(Count::no_progress);
  abort_connection();
}

void Session::abort_connection() {
  ended_ = true;
  input_.clear();
  unsent_.clear();
  reply_.clear();
  connection().abort();
}

task<Result<void>> serve(net::Network& network, Service& service, std::uint16_t port) {
  co_return co_await network.listen(port, [&service](net::Connection&) -> std::unique_ptr<net::ConnectionHandler> {
    return std::make_unique<Session>(service, service.core(this_core()));
  });
}

}  // namespace neap::memcached
