// SPDX-License-Identifier: BSL-1.0
// The handler of a connection: passes data between the network and a session.
//
// The path from the card to the application and back is measured, so this class adds as little to it as possible. Received messages are
// counted and released in place. Sent messages are references to one constant block, copies if they fit a frame, or new blocks if contents
// are checked.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "apps/netpipe/session.hpp"
#include "kernel/panic.hpp"
#include "kernel/timer.hpp"
#include "net/network.hpp"

namespace neap::netpipe {

/// The contents of messages that are not checked, and an end mark behind them. They are constant, and all sessions share them.
class Filling {
 public:
  /// Throws `bad_alloc`.
  Filling() : bytes_(block_bytes + 1, Session::filling) { bytes_.back() = Session::mark; }
  static constexpr std::size_t block_bytes = 256 * 1024;
  /// `bytes` MUST NOT exceed `block_bytes`.
  [[nodiscard]] std::span<const std::byte> first(std::size_t bytes) const noexcept {
    require(bytes <= block_bytes, "netpipe: more than one block of filling", bytes);
    return std::span(bytes_).first(bytes);
  }
  /// Like `first`, but the last byte is a mark.
  [[nodiscard]] std::span<const std::byte> marked(std::size_t bytes) const noexcept {
    require(bytes <= block_bytes, "netpipe: more than one block of filling", bytes);
    return std::span(bytes_).last(bytes);
  }

 private:
  std::vector<std::byte> bytes_;
};

class Link final : public net::ConnectionHandler {
 public:
  /// Receives the session when its state is `between`, `finished` or `failed`. Called once, in an event of the connection's core. If the
  /// session is a transmitter, this call follows the end of the connection, so that the peer has had time to listen again.
  using Done = std::move_only_function<void(std::unique_ptr<Session>)>;

  /// Calls the session's `begin`. `filling` MUST outlive the connection.
  Link(net::Connection& connection, std::unique_ptr<Session> session, const Filling& filling, Done done);
  ~Link() override;
  void received(net::Buffer data) override;
  void writable() override;
  void peer_closed() override;
  void closed() override;

  /// Returns the session, or null after it was passed to `Done`.
  [[nodiscard]] Session* session() noexcept { return session_.get(); }

 private:
  /// A session fails after 20 to 40 s without a byte in either direction.
  static constexpr std::chrono::seconds idle_check_interval{20};
  /// Silence after which a first message without a mark is complete (`Session::take_silence_as_mark`).
  static constexpr std::chrono::seconds silence_limit{1};

  bool echo(std::size_t bytes);
  /// `input`: `input_`, or the bytes behind it if it is empty.
  void work(net::Buffer& input);
  void consume(net::Buffer& input);
  bool send_short();
  bool send_output();
  void end_if_done();
  void give_back();
  void check_idle();
  void watch_for_silence();
  void check_silence();

  net::Connection& link_;
  std::unique_ptr<Session> session_;
  const Filling& filling_;
  Done done_;
  net::Buffer input_;   ///< received and not yet consumed, because output has to be sent first
  net::Buffer unsent_;  ///< output that the connection refused for lack of room; sent before any other output
  Timer idle_timer_, silence_timer_;
  bool active_ = false;  ///< bytes were received or sent since the last check
  bool ending_ = false;  ///< this link has closed or aborted the connection
};

}  // namespace neap::netpipe
