// SPDX-License-Identifier: BSL-1.0
#include "drivers/any_card.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "drivers/ixgbe/card.hpp"
#include "drivers/ixgbe/device_ids.hpp"
#include "drivers/ixgbe/settings.hpp"
#include "drivers/virtio/card.hpp"
#include "kernel/console.hpp"
#include "kernel/pci.hpp"

namespace neap::any_card {

namespace {

using Driver = Choice::Driver;

bool is_ixgbe(const pci::Device& device) noexcept { return ixgbe::kind_of(device) != nullptr; }

template <class DriverCard>
Card owned(std::unique_ptr<DriverCard> card) noexcept {
  DriverCard* const given = card.release();
  return {.device = {given, [](NetDevice* device) noexcept { static_cast<DriverCard*>(device)->stop(); }}, .settings = given};
}

task<Result<Card>> open_virtio(const pci::Device& device, Options options) {
  auto transport = virtio::open_pci(device);
  if (!transport) co_return std::unexpected(transport.error());
  auto card = co_await virtio::start(std::move(*transport), {.frame_bytes_max = options.frame_bytes_max});
  if (!card) co_return std::unexpected(card.error());
  if (options.reserved_core && (*card)->limits().queue_pairs > 1) {
    co_await (*card)->close();
    co_return failure(ErrorCode::unsupported, "virtio: control_core= needs a card with filters", *options.reserved_core);
  }
  co_return owned(std::move(*card));
}

}  // namespace

Choice Choice::from(Arguments& arguments) {
  return {static_cast<Driver>(arguments.choice("card", {"auto", "82599", "virtio"}, 0, "the network card to use, if there are several"))};
}

task<Result<Card>> open(Choice choice, Options options) {
  const auto devices = pci::devices();
  const auto ixgbe = std::ranges::find_if(devices, is_ixgbe), virtio = std::ranges::find_if(devices, virtio::is_network_card);
  const bool has_ixgbe = ixgbe != devices.end(), has_virtio = virtio != devices.end();
  if (choice.driver != Driver::virtio && has_ixgbe) {
    if (choice.driver == Driver::any && has_virtio) print("card: there are an 82599 and a virtio-net; card=virtio uses the other one");
    auto card = co_await ixgbe::open(ixgbe->address, {.reserved_core = options.reserved_core,
                                                      .reserved_port = options.reserved_port,
                                                      .queues = {.frame_bytes_max = options.frame_bytes_max}});
    if (!card) co_return std::unexpected(card.error());
    co_return owned(std::move(*card));
  }
  if (choice.driver != Driver::ixgbe && has_virtio) co_return co_await open_virtio(*virtio, options);
  if (has_ixgbe || has_virtio) {
    co_return failure(ErrorCode::not_found, has_virtio ? "there is no 82599, but a virtio-net: leave card= out, or card=virtio"
                                                       : "there is no virtio-net, but an 82599: leave card= out, or card=82599");
  }
  co_return failure(ErrorCode::not_found, "there is neither an 82599 (or X540, X550) nor a virtio-net on the PCI buses");
}

std::span<const policy::Row> setting_rows() {
  static const std::vector<policy::Row> all = [] {
    const auto first = ixgbe::setting_rows();
    std::vector<policy::Row> rows(first.begin(), first.end());
    for (const policy::Row& row : virtio::setting_rows()) {
      if (std::ranges::find(first, row.name, &policy::Row::name) == first.end()) rows.push_back(row);
    }
    return rows;
  }();
  return all;
}

}  // namespace neap::any_card
