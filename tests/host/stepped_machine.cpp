// SPDX-License-Identifier: BSL-1.0
#include "tests/host/stepped_machine.hpp"

#include <algorithm>
#include <utility>

#include "kernel/core.hpp"
#include "kernel/events.hpp"
#include "kernel/panic.hpp"

namespace neap::host {

namespace {

constexpr std::uint64_t second_ns = 1'000'000'000;
std::uint64_t ended_ns = 0;  // when the process's last machine ended

}  // namespace

SteppedMachine::SteppedMachine(std::uint64_t seed) : now_ns_((ended_ns / second_ns + 1) * second_ns), clock_(now_ns_) {
  seed_random_bits(seed);
  begin_core_without_thread([this] { swapcontext(&core_, &caller_); });
  getcontext(&core_);
  core_.uc_stack.ss_sp = stack_.get();
  core_.uc_stack.ss_size = stack_bytes;
  core_.uc_link = &caller_;
  const auto self = reinterpret_cast<std::uintptr_t>(this);
  // The C library passes only integers to a context's function, so the pointer is cut in two.
  makecontext(&core_, reinterpret_cast<void (*)()>(&SteppedMachine::run_core), 2, static_cast<unsigned>(self >> 32),
              static_cast<unsigned>(self));
  settle();
}

SteppedMachine::~SteppedMachine() {
  call([] { stop_event_loop(); });
  require(ended_, "the core's event loop has ended");
  end_core_without_thread();
  ended_ns = now_ns_;
}

void SteppedMachine::run_core(unsigned high, unsigned low) {
  run_event_loop();
  reinterpret_cast<SteppedMachine*>(std::uintptr_t{high} << 32 | low)->ended_ = true;
}

void SteppedMachine::resume() {
  set_this_core(0);
  swapcontext(&caller_, &core_);
  set_this_core(no_core);
}

void SteppedMachine::settle() { resume(); }

void SteppedMachine::call(std::function<void()> work) {
  struct Request : RemoteNode {
    std::function<void()> work;
  } request;
  request.work = std::move(work);
  request.run = [](RemoteNode* node) noexcept { static_cast<Request*>(node)->work(); };
  hand_over(0, request);
  resume();
}

namespace {

task<void> run_to_end(std::function<task<void>()> make, std::shared_ptr<bool> done) {
  co_await make();
  *done = true;
}

}  // namespace

bool SteppedMachine::run(std::function<task<void>()> make) {
  const auto done = std::make_shared<bool>(false);
  call([&] { start(run_to_end(std::move(make), done)); });
  return *done;
}

bool SteppedMachine::advance_to_alarm(std::uint64_t time_ns) {
  const std::uint64_t alarm = alarm_of(0);
  const bool alarmed = alarm != machine::alarm_none && alarm <= time_ns;
  now_ns_ = std::max(now_ns_, alarmed ? alarm : time_ns);
  clock_.set(now_ns_);
  settle();
  return alarmed;
}

void SteppedMachine::advance_to(std::uint64_t time_ns) {
  while (advance_to_alarm(time_ns)) {
  }
}

}  // namespace neap::host
