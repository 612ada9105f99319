// SPDX-License-Identifier: BSL-1.0
#include "tests/host/stepped_machine.hpp"

#include <ucontext.h>

#include <algorithm>
#include <utility>

#include "kernel/core.hpp"
#include "kernel/events.hpp"
#include "kernel/panic.hpp"

#ifdef __SANITIZE_ADDRESS__  // declared here, because some systems lack the header
extern "C" void __sanitizer_start_switch_fiber(void** frames, const void* stack, std::size_t bytes);
extern "C" void __sanitizer_finish_switch_fiber(void* frames, const void** stack, std::size_t* bytes);
#endif

namespace neap::host {

namespace {

constexpr std::uint64_t second_ns = 1'000'000'000;
std::uint64_t ended_ns = 0;  // when the process's last machine ended

}  // namespace

SteppedMachine::SteppedMachine(std::uint64_t seed) : now_ns_((ended_ns / second_ns + 1) * second_ns), clock_(now_ns_) {
  seed_random_bits(seed);
  begin_core_without_thread([this] {
    begin_switch(false, false);
    leave(core_, caller_);
    end_switch(true);
  });
  settle();
}

SteppedMachine::~SteppedMachine() {
  call([] { stop_event_loop(); });
  require(ended_, "the core's event loop has ended");
  end_core_without_thread();
  ended_ns = now_ns_;
}

void SteppedMachine::run_core(unsigned high, unsigned low) {
  auto& self = *reinterpret_cast<SteppedMachine*>(std::uintptr_t{high} << 32 | low);
  self.end_switch(true);
  run_event_loop();
  self.ended_ = true;
  self.begin_switch(false, true);
  jump(self.caller_);
}

// The C library's swapcontext makes a system call, and the address sanitizer clears the shadow of the whole stack at each of its calls. So
// it serves only to begin on the core's stack. The compiler's pair of functions saves and restores registers only. The two MUST NOT be in
// one function. The sanitizer would make a system call before a call that does not return.
[[gnu::noinline, gnu::no_sanitize_address]] void SteppedMachine::leave(Place& from, const Place& to) {
  if (__builtin_setjmp(from.data()) == 0) jump(to);
}
[[gnu::noinline, gnu::no_sanitize_address]] void SteppedMachine::jump(const Place& to) {
  __builtin_longjmp(const_cast<void**>(to.data()), 1);
}

void SteppedMachine::begin_switch([[maybe_unused]] bool to_core, [[maybe_unused]] bool for_good) {
#ifdef __SANITIZE_ADDRESS__
  if (to_core) {
    __sanitizer_start_switch_fiber(&caller_frames_, stack_.get(), stack_bytes);
  } else {
    __sanitizer_start_switch_fiber(for_good ? nullptr : &core_frames_, caller_stack_, caller_stack_bytes_);
  }
#endif
}
void SteppedMachine::end_switch([[maybe_unused]] bool to_core) {
#ifdef __SANITIZE_ADDRESS__
  if (to_core) {
    __sanitizer_finish_switch_fiber(core_frames_, &caller_stack_, &caller_stack_bytes_);
  } else {
    __sanitizer_finish_switch_fiber(caller_frames_, nullptr, nullptr);
  }
#endif
}

[[gnu::noinline]] void SteppedMachine::begin() {
  if (__builtin_setjmp(caller_.data()) != 0) return;
  ucontext_t unused{}, core{};
  getcontext(&core);
  core.uc_stack.ss_sp = stack_.get();
  core.uc_stack.ss_size = stack_bytes;
  const auto self = reinterpret_cast<std::uintptr_t>(this);
  // The C library passes only integers to a context's function, so the pointer is cut in two.
  makecontext(&core, reinterpret_cast<void (*)()>(&SteppedMachine::run_core), 2, static_cast<unsigned>(self >> 32),
              static_cast<unsigned>(self));
  swapcontext(&unused, &core);
}

void SteppedMachine::resume() {
  set_this_core(0);
  begin_switch(true, false);
  if (std::exchange(begun_, true)) {
    leave(caller_, core_);
  } else {
    begin();
  }
  end_switch(false);
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
