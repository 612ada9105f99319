// SPDX-License-Identifier: BSL-1.0
// The network card that this machine has.
//
// An image should run on a server's 82599 and in a virtual machine alike. So an application does not name a driver: it opens the card that
// is there, and offers the settings of all drivers on its command line. A setting that the opened card does not have is refused when the
// command line is applied.
//
//   const any_card::Choice choice = any_card::Choice::from(arguments);
//   auto observation = observe::Options::from(arguments, any_card::setting_rows());
//   …
//   auto card = co_await any_card::open(choice, {.frame_bytes_max = address.frame_bytes_max()});
//   auto network = co_await net::up(*card->device, address);
//   auto control = co_await observe::start(std::move(observation), *card->settings, **network);
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "kernel/arguments.hpp"
#include "kernel/net_device.hpp"
#include "kernel/policy.hpp"
#include "kernel/task.hpp"

namespace neap::any_card {

/// The word `card=`: auto, 82599 or virtio.
struct Choice {
  enum class Driver : std::uint8_t { any, ixgbe, virtio } driver = Driver::any;
  static Choice from(Arguments& arguments);
};

struct Options {
  /// As `ixgbe::Options`. virtio-net has no filters, so a reserved core is refused there, unless the card has one queue.
  std::optional<unsigned> reserved_core;
  std::uint16_t reserved_port = 0;
  std::uint32_t frame_bytes_max = 1514;
};

/// At its end the card is stopped, but its memory is not freed: the network, which is never freed, refers to it on all cores.
struct Card {
  std::unique_ptr<NetDevice, void (*)(NetDevice*) noexcept> device;
  policy::Device* settings;  ///< a part of `device`
};

/// Opens the first card that `choice` permits: an 82599 before a virtio-net. MUST be called on the core that will be the card's home core.
/// Errors: `not_found`, and those of the driver.
[[nodiscard]] task<Result<Card>> open(Choice choice, Options options);

/// The rows of all drivers. Of rows with the same name, which mean the same, only one is there.
[[nodiscard]] std::span<const policy::Row> setting_rows();

}  // namespace neap::any_card
