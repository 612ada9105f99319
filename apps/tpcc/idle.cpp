// SPDX-License-Identifier: BSL-1.0
#include "apps/tpcc/idle.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "apps/tpcc/session.hpp"

namespace neap::tpcc {
namespace {

using std::chrono::milliseconds;
constexpr unsigned connections_a_check = 512;  // in one event
constexpr unsigned checks_a_limit = 8;         // so a connection ends late by at most this part of the limit

void check_some(Service& service, CoreState& core) {
  const milliseconds limit = std::chrono::seconds(service.settings.idle_timeout_s);
  core.idle_position =
      net::visit_connections(service.settings.port, core.idle_position, connections_a_check, [&](net::ConnectionHandler& handler) {
        Session* const session = static_cast<Handler&>(handler).session();
        if (session == nullptr) return;
        const milliseconds silent = session->connection().silence();
        if (silent >= limit) return session->end_idle();
        core.idle_open = true;
        core.idle_longest = std::max(core.idle_longest, silent);
      });
  if (core.idle_position != 0) {
    core.idle_timer.arm(milliseconds(0), [&service, &core] { check_some(service, core); });
    return;
  }
  if (!std::exchange(core.idle_open, false)) return;  // the next connection arms the timer
  const milliseconds wait = std::max(limit - std::exchange(core.idle_longest, milliseconds(0)), limit / checks_a_limit);
  core.idle_timer.arm(wait, [&service, &core] { check_some(service, core); });
}

}  // namespace

void expect_idle(Service& service, CoreState& core) {
  if (service.settings.idle_timeout_s == 0 || core.idle_timer.pending() || core.idle_position != 0) return;
  core.idle_timer.arm(std::chrono::seconds(service.settings.idle_timeout_s), [&service, &core] { check_some(service, core); });
}

}  // namespace neap::tpcc
