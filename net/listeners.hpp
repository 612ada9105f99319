// SPDX-License-Identifier: BSL-1.0
// A listening port of one core. Internal to net/.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "net/network.hpp"
#include "net/tcp/cookies.hpp"

namespace neap::net {

struct Listener {
  /// Limit of a listener's half-open connections on one core; each is kept for 20 s. Further SYNs are answered by cookies.
  static constexpr std::uint32_t backlog_max = 1024;
  /// The connections of a core, half-open ones included, and those that are reserved for control.
  static constexpr std::uint32_t connections_max = 16'384, connections_reserved = 64;
  /// The limit for a listener on a control port. Its half-open connections use connections that are reserved for control.
  static constexpr std::uint32_t control_backlog_max = connections_reserved / 2;

  std::function<std::unique_ptr<ConnectionHandler>(Connection&)> acceptor;
  std::uint16_t port = 0;
  bool control = false;
  std::uint32_t half_open = 0;
  tcp::CookieUse cookies;
  Listener* next = nullptr;

  [[nodiscard]] bool full() const noexcept { return half_open >= (control ? control_backlog_max : backlog_max); }
};

}  // namespace neap::net
