// SPDX-License-Identifier: BSL-1.0
#include "apps/memcached/holders.hpp"

#include <algorithm>
#include <utility>

#include "apps/memcached/service.hpp"
#include "kernel/panic.hpp"

namespace neap::memcached {

void Holders::add(Holder& holder, Seconds now) noexcept {
  require(!holder.listed_, "memcached: a holder is in the list at most once");
  holder.listed_ = true;
  holder.seen_bytes_ = ~std::size_t{0};
  holder.seen_at_ = now;
  holder.newer_ = nullptr;
  holder.older_ = newest_;
  (newest_ != nullptr ? newest_->newer_ : oldest_) = &holder;
  newest_ = &holder;
}

void Holders::remove(Holder& holder) noexcept {
  require(holder.listed_, "memcached: a holder that is removed is in the list");
  (holder.newer_ != nullptr ? holder.newer_->older_ : newest_) = holder.older_;
  (holder.older_ != nullptr ? holder.older_->newer_ : oldest_) = holder.newer_;
  holder.listed_ = false;
}

std::size_t Holders::shed(std::size_t excess, bool any, const Holder* self, Seconds now) noexcept {
  std::size_t given_up = 0;
  for (unsigned looks = 0; looks < looks_max && oldest_ != nullptr && given_up < excess; ++looks) {
    Holder& holder = *oldest_;
    const std::size_t bytes = holder.held_in_flight();
    const bool reads = bytes < holder.seen_bytes_;
    if (reads) {
      holder.seen_bytes_ = bytes;
      holder.seen_at_ = now;
    }
    remove(holder);
    if (&holder != self && (any || (!reads && now - holder.seen_at_ >= stall_s))) {
      given_up += bytes;
      holder.reset_connection();
      continue;
    }
    const auto [seen_bytes, seen_at] = std::pair{holder.seen_bytes_, holder.seen_at_};
    add(holder, now);  // moves the holder to the end, so that the next call examines other holders
    holder.seen_bytes_ = seen_bytes;
    holder.seen_at_ = seen_at;
  }
  return given_up;
}

namespace {
/// Returns by how many bytes replies exceed the limit above which connections are reset; 0 if they do not. Sets `any` if connections that
/// are not stalled may be reset too.
std::size_t excess_bytes(Service& service, bool& any) noexcept {
  // Other cores charge and discharge replies meanwhile, which changes both numbers. Such bytes must not count as values. So the number of
  // replies' bytes is read before and after the sum that includes them.
  const std::size_t before = service.reply_memory.taken_bytes();
  const std::size_t sum = service.store.held_bytes();
  const std::size_t replies = std::max(before, service.reply_memory.taken_bytes());
  const std::size_t held = sum - std::min(sum, replies);
  // Replies take up to half of the memory. Values count against the rest, so that both together leave room for a `set`.
  const std::size_t memory = service.store.memory_bytes() - std::min(service.store.memory_bytes(), replies);
  any = held > memory / Holders::any_divisor;
  return held - std::min(held, memory / Holders::stalled_divisor);
}
}  // namespace

bool shed_holders(Service& service, CoreState& core, const Holder* self) noexcept {
  bool any = false;
  const std::size_t excess = excess_bytes(service, any);
  return excess > 0 && core.holders.shed(excess, any, self, service.clock.now()) < excess;
}

void shed_holders_everywhere(Service& service, CoreState& core, const Holder* self) noexcept {
  if (!shed_holders(service, core, self)) return;
  for (unsigned index = 0; index < service.core_count; ++index) {
    CoreState& other = service.core(index);
    if (&other != &core) other.shed_call.ask(index);
  }
}

void CoreState::shed_here(void* core) noexcept {
  auto& self = *static_cast<CoreState*>(core);
  (void)shed_holders(*self.service, self, nullptr);
}

}  // namespace neap::memcached
