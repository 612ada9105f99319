// SPDX-License-Identifier: BSL-1.0
#include "kernel/core.hpp"

#include "kernel/core_work.hpp"
#include "kernel/panic.hpp"

namespace neap {

constinit thread_local std::uint32_t core_work = 0;

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

void wake(unsigned core) noexcept { announce_work(core_state(core), core, WakeWord::call); }

}  // namespace neap
