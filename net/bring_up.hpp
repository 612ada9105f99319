// SPDX-License-Identifier: BSL-1.0
// Starts a network on chosen cores, and ends it.
//
// An application's network uses all of a card's cores and is never ended. Tests run two machines in one process, each on some of its cores,
// and end both. Internal to net/.
#pragma once

#include <memory>

#include "net/network.hpp"

namespace neap::net {

class NetworkControl : public Network {
 public:
  /// Resets every connection, waits until they are closed, and ends the stacks. The device MUST NOT deliver frames any more and MUST have
  /// returned all frames that it was given to send. The caller MUST NOT hold any received bytes.
  [[nodiscard]] virtual task<void> take_down() = 0;
};

/// As `up`, on `cores` cores starting at `first`. MUST be called on core `first`.
[[nodiscard]] task<Result<std::unique_ptr<NetworkControl>>> bring_up(NetDevice& device, AddressSetting setting, unsigned first,
                                                                     unsigned cores);

}  // namespace neap::net
