// SPDX-License-Identifier: BSL-1.0
#include "kernel/core.hpp"

#include "kernel/panic.hpp"

namespace neap {
namespace {

// Filled by core 0 before the other cores run, then constant. Starting a core orders these stores before that core's plain loads.
constinit std::array<Core*, machine::cores_max> cores{};

}  // namespace

void prepare_cores(unsigned count) {
  require(count >= 1 && count <= machine::cores_max, "number of cores out of range", count);
  for (unsigned i = 0; i < count; ++i) {
    if (cores[i] == nullptr) cores[i] = new Core;
  }
}

void release_cores() noexcept {
  for (Core*& core : cores) {
    delete core;
    core = nullptr;
  }
}

Core& core_state(unsigned core) noexcept {
  require(core < machine::cores_max && cores[core] != nullptr, "core was not prepared", core);
  return *cores[core];
}

Core* this_core_state() noexcept {
  const unsigned core = machine::this_core();
  return core < machine::cores_max ? cores[core] : nullptr;
}

void wake_if_asleep(Core& core, unsigned index) noexcept {
  if (core.asleep.load(std::memory_order_seq_cst) && core.asleep.exchange(false, std::memory_order_seq_cst)) machine::wake(index);
}

}  // namespace neap
