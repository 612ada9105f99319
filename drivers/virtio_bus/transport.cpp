// SPDX-License-Identifier: BSL-1.0
#include "drivers/virtio_bus/transport.hpp"

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

}  // namespace neap::virtio
