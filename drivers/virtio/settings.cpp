// SPDX-License-Identifier: BSL-1.0
#include "drivers/virtio/settings.hpp"

#include "drivers/virtio/receive_queue.hpp"

namespace neap::virtio {

namespace {

constexpr policy::Row table[] = {
    {.setting = setting::budget,
     .name = "rx_budget",
     .scope = policy::Scope::card,
     .value_min = 1,
     .value_max = ReceiveQueue::budget_max,
     .unit = "descriptors",
     .initial = 64,
     .help = "Receive descriptors that one event may take."},
    {.setting = setting::coalescing,
     .name = "rsc",
     .value_name = "SWITCH",
     .kind = policy::Kind::on_off,
     .scope = policy::Scope::card,
     .initial = 1,
     .help = "Receive side coalescing: the card joins a connection's segments."},
    {.setting = setting::promiscuous,
     .name = "promiscuous",
     .value_name = "SWITCH",
     .kind = policy::Kind::on_off,
     .scope = policy::Scope::card,
     .help = "The card receives frames to other addresses too."},
};

}  // namespace

std::span<const policy::Row> setting_rows() noexcept { return table; }

}  // namespace neap::virtio
