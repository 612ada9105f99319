// SPDX-License-Identifier: BSL-1.0
// Collections of cycles. Most garbage needs none: reference counts free it at once.
#include <algorithm>

#include "apps/webserver/engine/engine_state.hpp"
#include "kernel/log.hpp"
#include "kernel/machine.hpp"

namespace neap::webserver {

void Engine::collect() noexcept {
  const std::uint64_t begin_ns = machine::now_ns(), begin_tsc = machine::timestamp();
  const std::size_t before_bytes = JS_GetMemorySize(runtime_);
  JS_RunGC(runtime_);
  log::collected(begin_tsc, before_bytes, JS_GetMemorySize(runtime_));
  statistics_.collection_ns += machine::now_ns() - begin_ns;
  ++statistics_.collections;
  state_->size_after_collection = JS_GetMemorySize(runtime_);
  JS_SetGCThreshold(runtime_, next_threshold());
}

bool Engine::collect_if_worthwhile() noexcept {
  require(depth_ == 0, "an idle core within a turn", depth_);
  const std::size_t now_bytes = JS_GetMemorySize(runtime_);
  // The heap has shrunk: what grows from here on counts.
  if (now_bytes < state_->size_after_collection) state_->size_after_collection = now_bytes;
  if (now_bytes - state_->size_after_collection < options_.collection_step_bytes) return false;
  collect();
  return true;
}

/// A busy core collects when the heap has used up half of the room that the last collection left. So it collects more often as the heap
/// nears its limit. The step of 1/32 of the limit bounds the time that collections take if almost nothing is left.
std::size_t Engine::next_threshold() const noexcept {
  if (options_.memory_max_bytes == 0) return std::max<std::size_t>(JS_GetMemorySize(runtime_) * 2, std::size_t{64} << 20);
  const std::size_t limit = options_.memory_max_bytes, used = std::min(JS_GetMemorySize(runtime_), limit);
  return used + std::max((limit - used) / 2, limit / 32);
}

std::size_t Engine::near_limit(JSRuntime*, void* engine) {
  auto& self = *static_cast<Engine*>(engine);
  self.collect();
  ++self.statistics_.collections_busy;
  return self.next_threshold();
}

}  // namespace neap::webserver
