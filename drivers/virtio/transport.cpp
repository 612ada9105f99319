// SPDX-License-Identifier: BSL-1.0
#include "drivers/virtio/transport.hpp"

#include <chrono>

#include "kernel/timer.hpp"

namespace neap::virtio {

using namespace std::chrono_literals;

// 2.5.1: fields of more than 32 bits are read again if the device has changed its configuration meanwhile.
MacAddress read_mac(const Transport& transport) noexcept {
  constexpr unsigned tries = 16;
  MacAddress mac{};
  for (unsigned i = 0; i < tries; ++i) {
    const std::uint32_t generation = transport.read(reg::config_generation);
    for (std::uint8_t octet = 0; octet < mac.size(); ++octet)
      mac[octet] = static_cast<std::uint8_t>(transport.read({Region::device, octet, 1}));
    if (transport.read(reg::config_generation) == generation) break;
  }
  return mac;
}

task<Result<void>> reset(const Transport& transport) {
  transport.write(reg::device_status, 0);
  bool late = false;
  for (const auto deadline = BootClock::now() + 1s; transport.read(reg::device_status) != 0; late = BootClock::now() >= deadline) {
    if (late) co_return failure(ErrorCode::timeout, "virtio: the device does not end its reset");
    co_await sleep_for(100us);
  }
  co_return Result<void>{};
}

Result<std::uint64_t> negotiate(const Transport& transport, std::uint64_t wanted) noexcept {
  // 5.1.3.1: features, and those that they need. Without merged buffers, each buffer for joined segments would need 64 KiB (5.1.6.3.1).
  constexpr std::uint64_t joining = feature::guest_tso4 | feature::guest_tso6;
  constexpr std::uint64_t commanded = feature::control_receive | feature::control_guest_offloads | feature::multiqueue | feature::rss |
                                      feature::coalescing | feature::queue_coalescing;
  struct Requirement {
    std::uint64_t features, needs;
  };
  constexpr Requirement requirements[] = {{feature::host_tso4 | feature::host_tso6, feature::checksum},
                                          {joining, feature::guest_checksum | feature::merged_buffers},
                                          {commanded, feature::control_queue}};
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
