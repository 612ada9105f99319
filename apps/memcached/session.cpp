// SPDX-License-Identifier: BSL-1.0
#include "apps/memcached/session.hpp"

#include <algorithm>
#include <span>
#include <string_view>
#include <utility>

#include "kernel/events.hpp"
#include "kernel/log.hpp"

namespace neap::memcached {

Session::Session(Service& service, CoreState& core) noexcept : core_(core), conversation_(service, core), reply_(core.replies) {
  core_.statistics.add(Count::total_connections);
}

Session::~Session() { core_.statistics.add(Count::closed_connections); }

void Session::received(net::Buffer data) {
  if (ended_) return;
  core_.statistics.add(Count::bytes_read, data.bytes());
  input_.append(std::move(data));
  work();
}

void Session::writable() {
  if (!ended_) work();
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
}

/// Parses and sends by turns until the input is used up or the connection takes no more. Each turn uses up input, writes a reply or hands
/// some of it over. A turn that does none of these would be repeated for ever, so it ends the connection.
void Session::work() {
  for (;;) {
    const std::uint64_t written = reply_.position(), taken = reply_.taken();
    std::size_t parsed = 0;
    while (!reply_.full()) {
      const std::size_t used = parse();
      parsed += used;
      if (input_.empty() || conversation_.closing()) break;
      if (used == 0 && !reply_.full()) return stuck();
    }
    const bool was_full = reply_.full();
    if (reply_.failed()) {
      core_.statistics.add(Count::reply_no_memory);
      return cut();
    }
    if (!send_reply()) return;  // `writable` comes back here
    if (conversation_.closing()) break;
    if (was_full) {  // the parser stopped for want of room, and may stand in the middle of what it carries
      if (parsed == 0 && reply_.position() == written && reply_.taken() == taken) return stuck();
      continue;
    }
    if (!peer_closed_) return;
    break;
  }
  ended_ = true;
  input_.clear();
  connection().close();  // after all that was sent
}

/// Works on the first piece of the input and drops what is used up of it. Returns how many bytes that were.
std::size_t Session::parse() {
  const std::span<const std::byte> front = input_.front();
  const std::uint64_t requests = core_.statistics.value(Count::requests);
  const std::size_t used = conversation_.consume({reinterpret_cast<const char*>(front.data()), front.size()}, reply_);
  log::count_requests(core_.statistics.value(Count::requests) - requests);
  input_.drop_front(used);
  return used;
}

void Session::stuck() {
  core_.statistics.add(Count::no_progress);
  cut();
}

/// Hands over what may leave. False: the connection takes no more just now, or is gone.
bool Session::send_reply() {
  for (;;) {
    if (unsent_.empty()) {
      const std::size_t bytes = std::min(conversation_.sendable_bytes(reply_), send_bytes_max);
      if (bytes == 0) return true;
      std::size_t referred = 0;
      reply_.take(bytes, [&](const char* data, std::size_t count, Reply::Release release, void* owner) {
        net::Buffer piece = net::Buffer::reference({reinterpret_cast<const std::byte*>(data), count}, release, owner);
        referred += piece.bytes();
        unsent_.append(std::move(piece));
      });
      if (referred != bytes) {  // no memory for a piece: the stream has a hole now, so it must end
        core_.statistics.add(Count::reply_no_memory);
        cut();
        return false;
      }
    }
    const std::size_t bytes = unsent_.bytes();
    if (const auto sent = connection().send(std::move(unsent_)); !sent) {
      if (sent.error().code != ErrorCode::full) cut();
      return false;
    }
    core_.statistics.add(Count::bytes_written, bytes);
  }
}

void Session::cut() {
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
