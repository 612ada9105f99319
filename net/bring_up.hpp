// SPDX-License-Identifier: BSL-1.0
// Bringing a network up where one wants it, and down again.
//
// An application's network runs on all of a card's cores and lives as long as the machine. Tests want two machines in one process, each on
// some of its cores, and an end. Internal to net/.
#pragma once

#include <memory>

#include "net/network.hpp"

namespace neap::net {

class NetworkControl : public Network {
 public:
  /// Resets every connection, waits for its end, and ends the stacks. The device must not deliver frames any more, and must have given back
  /// all it was sent; nobody may hold received bytes.
  [[nodiscard]] virtual task<void> take_down() = 0;
};

/// As `up`, on `cores` cores from `first` on. Called on core `first`.
[[nodiscard]] task<Result<std::unique_ptr<NetworkControl>>> bring_up(NetDevice& device, AddressSetting setting, unsigned first,
                                                                     unsigned cores);

}  // namespace neap::net
