// SPDX-License-Identifier: BSL-1.0
#include "apps/tpcc/engine/worker.hpp"

#include <bit>
#include <new>

#include "kernel/panic.hpp"

namespace neap::transactions {

std::unique_ptr<Worker> Worker::make(const Epochs& epochs, const Limits& limits) noexcept {
  require(limits.writes > 0 && limits.writes < (1U << 15U), "a worker's limit of writes", limits.writes);
  std::unique_ptr<Worker> worker(new (std::nothrow) Worker(epochs, limits));
  if (!worker) return nullptr;
  const unsigned slots = std::bit_ceil(limits.writes) * 2;
  worker->reads_.reset(new (std::nothrow) Read[limits.reads]);
  worker->writes_.reset(new (std::nothrow) Write[limits.writes]);
  worker->leaves_.reset(new (std::nothrow) LeafRead[limits.leaves]);
  worker->arena_.reset(new (std::nothrow) std::uint64_t[limits.arena_bytes / sizeof(std::uint64_t)]);
  worker->slots_.reset(new (std::nothrow) std::uint16_t[slots]());
  worker->order_.reset(new (std::nothrow) std::uint16_t[limits.writes]);
  worker->slot_shift_ = 64U - static_cast<unsigned>(std::countr_zero(slots));
  if (!worker->reads_ || !worker->writes_ || !worker->leaves_ || !worker->arena_ || !worker->slots_ || !worker->order_) return nullptr;
  return worker;
}

Worker::~Worker() {
  while (reserve_ != nullptr) {
    auto* const first = static_cast<Retirement*>(reserve_);
    reserve_ = first->next;
    delete first;
  }
}

}  // namespace neap::transactions
