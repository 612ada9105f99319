// SPDX-License-Identifier: BSL-1.0
#include "net/stack_memory.hpp"

#include <algorithm>
#include <cstring>

#include "kernel/memory/page_allocator.hpp"
#include "kernel/panic.hpp"
#include "lwip/pbuf.h"
#include "net/received_piece.hpp"
#include "net/stack.hpp"

namespace neap::net {

std::size_t memory::core_limit_bytes() noexcept {
  const std::uint64_t total = neap::memory::page_counters().total_bytes;
  return std::max<std::size_t>(core_bytes_min, total / core_count() / core_share);
}

void Stack::charge(std::size_t before, std::size_t now) noexcept {
  require(counters_.held_bytes.value() >= before, "a core's account holds all that was charged to it", before);
  counters_.held_bytes.add(now - before);
  const std::uint64_t held = counters_.held_bytes.value();
  if (held > counters_.held_bytes_max.value()) counters_.held_bytes_max.add(held - counters_.held_bytes_max.value());
  heavy_connections_ += static_cast<unsigned>(now > memory::connection_guarantee_bytes);
  heavy_connections_ -= static_cast<unsigned>(before > memory::connection_guarantee_bytes);
  memory_short_ = held > memory_limit_bytes_;
  if (memory_short()) [[unlikely]]
    checks_due_ = true;  // `evict`
}

bool Stack::refuses(const ConnectionState& connection) const noexcept {
  if (!memory_short() || connection.control()) return false;
  std::size_t share = memory::connection_guarantee_bytes;
  // While a core holds at most `reset_factor` times its limit, connections above the guaranteed amount share the limit equally.
  if (counters_.held_bytes.value() <= memory_limit_bytes_ * memory::reset_factor) {
    share = std::max(share, memory_limit_bytes_ / std::max(heavy_connections_, 1U));
  }
  return connection.held_bytes() > share;
}

// Resets one connection at a time. The next connection is reset only after the previous one has freed its memory, which takes an event.
void Stack::evict() noexcept {
  if (is_queued(finish_)) return;
  ConnectionState* heaviest = nullptr;
  const std::uint64_t candidates = std::min<std::uint64_t>(memory::reset_candidates, counters_.connections_open.value());
  std::uint64_t seen = 0;
  for (std::uint32_t chains = 0; chains < this->chains() && seen < candidates; ++chains) {
    for (ConnectionState* connection = first_of(evict_from_++ % this->chains()); connection != nullptr;
         connection = connection->chain_next) {
      if (connection->listener() != nullptr) continue;
      ++seen;
      if (connection->control()) continue;
      if (connection->charged_bytes() > (heaviest != nullptr ? heaviest->charged_bytes() : memory::connection_guarantee_bytes))
        heaviest = connection;
    }
  }
  if (heaviest == nullptr) return;
  counters_.connections_evicted.add();
  heaviest->request_abort();
}

ReceiveBuffer* Stack::copy_of(const Buffer& data) noexcept {
  ReceiveBuffer* const copy = allocate_heap_buffer(data.bytes());
  if (copy == nullptr) return nullptr;
  data.peek({copy->data, data.bytes()});
  hold_buffer(*copy);
  return copy;
}

pbuf* Stack::copy_of(const pbuf& chain) noexcept {
  ReceiveBuffer* const copy = allocate_heap_buffer(chain.tot_len);
  if (copy == nullptr) return nullptr;
  const std::size_t copied = pbuf_copy_partial(&chain, copy->data, chain.tot_len, 0);
  require(copied == chain.tot_len, "a pbuf chain holds its total length", copied);
  return wrap(copy);
}

}  // namespace neap::net
