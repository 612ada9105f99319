// SPDX-License-Identifier: BSL-1.0
#include "drivers/virtio/control_queue.hpp"

#include "kernel/timer.hpp"

namespace neap::virtio {

using namespace std::chrono_literals;

namespace {
constexpr std::uint32_t answer_at = sizeof(CommandBytes);  // behind the command
constexpr std::byte no_answer{0xFF}, done{0};
}  // namespace

Result<void> ControlQueue::prepare(std::uint32_t descriptors) {
  auto memory = DmaMemory::allocate(answer_at + 1);
  if (!memory) return std::unexpected(memory.error());
  memory_ = std::move(*memory);
  auto allocated = ring_.allocate(descriptors);
  if (allocated) ring_.want_interrupts(false);
  return allocated;
}

task<Result<void>> ControlQueue::send(CommandBytes command) {
  const auto lock = co_await in_use_.lock();
  const std::span<const std::byte> bytes = command.bytes();
  const auto refuse = [&](ErrorCode code, const char* why) {
    counters_.refused_commands.add();
    return failure(code, why, std::to_integer<unsigned>(bytes[0]) << 8 | std::to_integer<unsigned>(bytes[1]));
  };
  counters_.commands.add();
  if (closed_) co_return refuse(ErrorCode::closed, "virtio: the control queue is closed");
  std::byte* const start = memory_.start();
  std::memcpy(start, bytes.data(), bytes.size());
  start[answer_at] = no_answer;
  ring_.descriptors()[0] = {
      .address = memory_.bus_address(), .bytes = static_cast<std::uint32_t>(bytes.size()), .flags = descriptor_flag::next, .next = 1};
  ring_.descriptors()[1] = {.address = memory_.bus_address() + answer_at, .bytes = 1, .flags = descriptor_flag::device_writes, .next = 0};
  ring_.offer(next_, 0);
  (void)ring_.publish(++next_);
  bool late = false;
  for (const auto deadline = BootClock::now() + 5s; ring_.used_end() != next_; late = BootClock::now() >= deadline) {
    closed_ = closed_ || late;
    if (closed_) co_return refuse(ErrorCode::timeout, "virtio: the device does not answer a command");
    co_await sleep_for(100us);
  }
  ring_.seen(next_);
  if (start[answer_at] != done) co_return refuse(ErrorCode::device, "virtio: the device refuses a command");
  co_return Result<void>{};
}

}  // namespace neap::virtio
