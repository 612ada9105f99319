// SPDX-License-Identifier: BSL-1.0
#include "drivers/virtio/control_queue.hpp"

#include <chrono>
#include <cstring>

#include "kernel/timer.hpp"

namespace neap::virtio {

using namespace std::chrono_literals;

namespace {
constexpr std::uint32_t answer_at = ControlQueue::data_bytes_max + 64;
constexpr std::byte no_answer{0xFF};
}  // namespace

Result<void> ControlQueue::prepare(std::uint32_t descriptors) {
  auto memory = DmaMemory::allocate(answer_at + 1);
  if (!memory) return std::unexpected(memory.error());
  memory_ = std::move(*memory);
  if (auto done = ring_.allocate(descriptors); !done) return done;
  ring_.want_interrupts(false);
  return {};
}

task<Result<void>> ControlQueue::send(Command command, std::span<const std::byte> data) {
  const auto lock = co_await in_use_.lock();
  if (closed_) co_return failure(ErrorCode::closed, "virtio: the control queue is closed");
  if (data.size() > data_bytes_max) co_return failure(ErrorCode::invalid, "virtio: a command is too long", data.size());
  std::byte* const start = memory_.start();
  std::memcpy(start, &command, sizeof command);
  if (!data.empty()) std::memcpy(start + sizeof command, data.data(), data.size());
  start[answer_at] = no_answer;
  const std::uint64_t address = memory_.bus_address();
  ring_.descriptors()[0] = {
      .address = address, .bytes = static_cast<std::uint32_t>(sizeof command + data.size()), .flags = descriptor_flag::next, .next = 1};
  ring_.descriptors()[1] = {.address = address + answer_at, .bytes = 1, .flags = descriptor_flag::device_writes, .next = 0};
  ring_.offer(next_, 0);
  (void)ring_.publish(++next_);
  for (const auto deadline = BootClock::now() + 5s;;) {
    const bool late = BootClock::now() >= deadline;
    if (ring_.used_end() == next_) break;
    if (late || closed_) {
      closed_ = true;
      co_return failure(ErrorCode::timeout, "virtio: the device does not answer a command", command.command_class);
    }
    co_await sleep_for(100us);
  }
  ring_.seen(next_);
  if (start[answer_at] != std::byte{command::done})
    co_return failure(ErrorCode::device, "virtio: the device refuses a command", command.command_class << 8 | command.command);
  co_return Result<void>{};
}

}  // namespace neap::virtio
