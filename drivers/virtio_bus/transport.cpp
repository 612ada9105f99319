// SPDX-License-Identifier: BSL-1.0
#include "drivers/virtio_bus/transport.hpp"

#include <algorithm>
#include <bit>
#include <chrono>

#include "kernel/timer.hpp"

namespace neap::virtio {

using namespace std::chrono_literals;

task<Result<void>> reset(const Transport& transport) {
  transport.write(reg::device_status, 0);
  bool late = false;
  for (const auto deadline = BootClock::now() + 1s; transport.read(reg::device_status) != 0; late = BootClock::now() >= deadline) {
    if (late) co_return failure(ErrorCode::timeout, "virtio: the device does not end its reset");
    co_await sleep_for(100us);
  }
  co_return Result<void>{};
}

Result<std::uint64_t> negotiate(const Transport& transport, std::uint64_t wanted, std::span<const Requirement> requirements) noexcept {
  transport.write(reg::device_status, status::acknowledge);
  transport.write(reg::device_status, status::acknowledge | status::driver);
  std::uint64_t offered = 0;
  for (unsigned half = 0; half < 2; ++half) {
    transport.write(reg::device_feature_select, half);
    offered |= std::uint64_t{transport.read(reg::device_feature)} << 32 * half;
  }
  if ((offered & feature::version_1) == 0) return failure(ErrorCode::unsupported, "virtio: the device is older than virtio 1.0", offered);
  std::uint64_t agreed = offered & wanted;
  for (const auto& [features, needs] : requirements) {
    if ((agreed & needs) != needs) agreed &= ~features;
  }
  for (unsigned half = 0; half < 2; ++half) {
    transport.write(reg::driver_feature_select, half);
    transport.write(reg::driver_feature, static_cast<std::uint32_t>(agreed >> 32 * half));
  }
  transport.write(reg::device_status, status::acknowledge | status::driver | status::features_ok);
  if ((transport.read(reg::device_status) & (status::features_ok | status::needs_reset)) != status::features_ok)
    return failure(ErrorCode::unsupported, "virtio: the device refuses the features", agreed);
  return agreed;
}

Result<std::uint32_t> select_queue(const Transport& transport, unsigned number, std::uint32_t descriptors_max) noexcept {
  constexpr std::uint32_t split_ring_max = 32768;  // 2.7
  transport.write(reg::queue_select, number);
  const std::uint32_t offered = transport.read(reg::queue_size);
  if (offered < Ring::descriptors_min || offered > split_ring_max || transport.read(reg::queue_enable) != 0)
    return failure(ErrorCode::device, "virtio: a queue does not exist, is too short, or is in use", offered);
  return std::bit_floor(std::min(offered, descriptors_max));
}

Result<void> enable_queue(const Transport& transport, Ring& ring, unsigned number, unsigned vector, bool event_index) noexcept {
  transport.write(reg::queue_size, ring.size());
  transport.write(reg::queue_vector, vector);
  if (transport.read(reg::queue_vector) != vector)
    return failure(ErrorCode::device, "virtio: the device refuses an interrupt vector", vector);
  transport.write(reg::queue_descriptors, ring.descriptors_address());
  transport.write(reg::queue_available, ring.available_address());
  transport.write(reg::queue_used, ring.used_address());
  volatile std::uint16_t* const notify = transport.notify_address(transport.read(reg::queue_notify_offset));
  if (notify == nullptr) return failure(ErrorCode::device, "virtio: a queue is notified outside of its BAR", number);
  ring.connect(notify, static_cast<std::uint16_t>(number), event_index);
  transport.write(reg::queue_enable, 1);
  return {};
}

}  // namespace neap::virtio
