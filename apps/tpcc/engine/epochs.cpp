// SPDX-License-Identifier: BSL-1.0
#include "apps/tpcc/engine/epochs.hpp"

namespace neap::transactions {

void Epochs::start() {
  timer_.repeat(period, [this] { advance(); });
}

}  // namespace neap::transactions
