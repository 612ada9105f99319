// SPDX-License-Identifier: BSL-1.0
// Starts a network on chosen cores, and ends it.
//
// An application's network uses every core that has a queue of the card, and is never ended. Tests run two machines in one process, each on
// some of the process's cores, and end both networks. Internal to net/.
#pragma once

#include <memory>

#include "net/network.hpp"

namespace neap::net {

class NetworkControl : public Network {
 public:
  /// Resets every connection, waits until they are closed, and ends the stacks. Before the call, the device MUST have stopped delivering
  /// frames and MUST have returned all transmit frames. The caller MUST NOT hold any received bytes.
  [[nodiscard]] virtual task<void> take_down() = 0;
};

/// Like `up` (network.hpp), but on `cores` cores from core `first` on. MUST be called on core `first`.
[[nodiscard]] task<Result<std::unique_ptr<NetworkControl>>> bring_up(NetDevice& device, AddressSetting setting, unsigned first,
                                                                     unsigned cores);

}  // namespace neap::net
