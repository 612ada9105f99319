// SPDX-License-Identifier: BSL-1.0
// A session on a connection.
//
// What is measured here is the machine's way from the card and back, so this adds as little to it as it can: received messages are counted
// and let go where they lie, and sent ones are references to one block that never changes. (When contents are checked they are made anew.)
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "apps/netpipe/session.hpp"
#include "kernel/timer.hpp"
#include "net/network.hpp"

namespace neap::netpipe {

/// What messages are made of when nobody looks at them: shared by all sessions, never written again.
class Filling {
 public:
  /// Throws `bad_alloc`.
  Filling() : bytes_(block_bytes, std::byte{'a'}) {}
  static constexpr std::size_t block_bytes = 256 * 1024;
  [[nodiscard]] std::span<const std::byte> first(std::size_t bytes) const noexcept { return std::span(bytes_).first(bytes); }

 private:
  std::vector<std::byte> bytes_;
};

class Link final : public net::ConnectionHandler {
 public:
  /// Gets the session back when it is `between` connections, `finished` or `failed`; once, in an event of the connection's core. A
  /// transmitter's comes after the connection is gone, so that its peer has had time to listen again.
  using Done = std::move_only_function<void(std::unique_ptr<Session>)>;

  /// The session's `begin` is called here. `filling` must outlive the connection.
  Link(net::Connection& connection, std::unique_ptr<Session> session, const Filling& filling, Done done);
  ~Link() override;
  void received(net::Buffer data) override;
  void writable() override;
  void peer_closed() override;
  void closed() override;

  /// The session while it is here; null afterwards.
  [[nodiscard]] Session* session() noexcept { return session_.get(); }

 private:
  /// Without a byte for twice this a session ends: its peer is not measuring any more.
  static constexpr std::chrono::seconds patience{20};

  void work();
  bool send_output();
  void look_at_state();
  void give_back();
  void watch();

  net::Connection& link_;
  std::unique_ptr<Session> session_;
  const Filling& filling_;
  Done done_;
  net::Buffer input_;   ///< received, not consumed yet: our output is due first
  net::Buffer unsent_;  ///< refused by the connection, which had no room; goes first when it has
  Timer watch_;
  bool moved_ = false;   ///< a byte came or went since the watch last looked
  bool ending_ = false;  ///< closed or cut by us
};

}  // namespace neap::netpipe
