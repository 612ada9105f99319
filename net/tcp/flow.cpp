// SPDX-License-Identifier: BSL-1.0
#include "net/tcp/flow.hpp"

#include "net/object_pool.hpp"

namespace neap::net::tcp {

namespace {

constinit thread_local ObjectPool<Flow, 64> pool;

}  // namespace

Flow* Flow::make() noexcept { return pool.take(); }
void Flow::release(Flow* flow) noexcept {
  if (flow != nullptr) pool.give_back(flow);
}
void Flow::trim() noexcept { pool.trim(); }

}  // namespace neap::net::tcp
