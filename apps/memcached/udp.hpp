// SPDX-License-Identifier: BSL-1.0
// memcached over UDP (protocol.txt, "UDP protocol"): requests in one datagram, replies in several.
//
// UDP is off unless `udp-port=` turns it on, because the sender's address of a datagram can be forged. A request of some bytes may ask for
// many values, and all of them go to the forged address: a flood of up to some ten thousand times the request's bytes. Turn it on only in a
// network where no other machine can send, or where forged addresses are dropped.
//
// A datagram is answered on the core to which RSS sent it, in one event. There is no state between two datagrams, so nothing is kept for a
// sender, and there are no commands whose answers take many events.
#pragma once

#include "apps/memcached/service.hpp"
#include "kernel/task.hpp"
#include "net/network.hpp"

namespace neap::memcached {

/// Serves `port`. `network` and `service` MUST exist as long as the machine runs. Errors: those of `Network::receive_datagrams`.
[[nodiscard]] task<Result<void>> serve_datagrams(net::Network& network, Service& service, std::uint16_t port);

}  // namespace neap::memcached
