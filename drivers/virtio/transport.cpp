// SPDX-License-Identifier: BSL-1.0
#include "drivers/virtio/transport.hpp"

#include <array>
#include <chrono>

#include "kernel/timer.hpp"

namespace neap::virtio {

using namespace std::chrono_literals;

Configuration read_configuration(const Transport& transport, std::uint64_t features) noexcept {
  constexpr unsigned tries = 16;
  Configuration now;
  for (unsigned i = 0; i < tries; ++i) {
    const std::uint32_t generation = transport.read(reg::config_generation);
    const auto value = [&](Register place, std::uint64_t feature) { return (features & feature) != 0 ? transport.read(place) : 0; };
    if ((features & feature::mac) != 0) {
      for (std::uint8_t octet = 0; octet < now.mac.size(); ++octet)
        now.mac[octet] = static_cast<std::uint8_t>(transport.read({Region::device, octet, 1}));
    }
    now.status = value(reg::status, feature::status);
    now.queue_pairs_max = value(reg::queue_pairs_max, feature::multiqueue | feature::rss);
    now.mtu = value(reg::mtu, feature::mtu);
    now.speed = value(reg::speed, feature::speed);
    now.rss_key_max = value(reg::rss_key_max, feature::rss);
    now.rss_table_max = value(reg::rss_table_max, feature::rss);
    if (transport.read(reg::config_generation) == generation) break;
  }
  return now;
}

task<Result<void>> reset(const Transport& transport) {
  transport.write(reg::device_status, 0);
  for (const auto deadline = BootClock::now() + 1s;;) {
    const bool late = BootClock::now() >= deadline;
    const std::uint32_t now = transport.read(reg::device_status);
    if (now == 0) co_return Result<void>{};
    if (late) co_return failure(ErrorCode::timeout, "virtio: the device does not end its reset", now);
    co_await sleep_for(100us);
  }
}

Result<std::uint64_t> negotiate(const Transport& transport, std::uint64_t wanted) noexcept {
  // 5.1.3.1: a feature, and those that it needs.
  struct Requirement {
    std::uint64_t features, needs;
  };
  constexpr std::array requirements{
      Requirement{feature::host_tso4 | feature::host_tso6, feature::checksum},
      Requirement{feature::guest_tso4 | feature::guest_tso6, feature::guest_checksum},
      // Without merged buffers, each buffer would need 64 KiB (5.1.6.3.1).
      Requirement{feature::guest_tso4 | feature::guest_tso6, feature::merged_buffers},
      Requirement{feature::control_receive | feature::control_guest_offloads | feature::multiqueue | feature::rss | feature::coalescing |
                      feature::queue_coalescing,
                  feature::control_queue},
  };
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
  constexpr std::uint32_t all = status::acknowledge | status::driver | status::features_ok;
  transport.write(reg::device_status, all);
  const std::uint32_t now = transport.read(reg::device_status);
  if ((now & status::features_ok) == 0 || (now & status::needs_reset) != 0)
    return failure(ErrorCode::unsupported, "virtio: the device refuses the features", agreed);
  return agreed;
}

}  // namespace neap::virtio
