// SPDX-License-Identifier: BSL-1.0
// From power-up, or from whatever an earlier owner left, to a card that can send and receive: the 82599 datasheet's section 4.6.3 in its
// order, a function a step. `Card::start` calls them one after the other. All of them belong to set-up and to recovery from faults: they
// read registers and wait, each wait with a time-out that names its register.
#pragma once

#include <cstdint>
#include <span>

#include "drivers/ixgbe/register_access.hpp"
#include "drivers/ixgbe/rss.hpp"
#include "kernel/net_device.hpp"
#include "kernel/policy.hpp"

namespace neap::ixgbe {

/// 4.6.3, steps 1 to 3: interrupts off, master disable (5.2.5.3.2), link and software reset (4.2.1.7), interrupts off again.
[[nodiscard]] task<Result<void>> reset_card(Registers registers);

/// 4.6.3: the EEPROM was read into the card, the firmware's configuration is done, DMA is initialised. Also tells the firmware that a
/// driver is here.
[[nodiscard]] task<Result<void>> wait_until_initialised(Registers registers);

/// The address that the EEPROM put into filter 0. Errors: `device` if it is no unicast address.
[[nodiscard]] Result<MacAddress> read_mac(Registers registers);

/// 4.6.5: statistics of queue i are counted in set i; what is there is read away.
void clear_statistics(Registers registers);

/// 4.6.7: filters empty but for our own address, checksums, frame size, packet buffer; RSS as `table` says. Queues are
/// programmed after it and enabled after `start_receive`.
void program_receive(Registers registers, const rss::Table& table, std::uint32_t frame_bytes_max);

/// 7.1.2.5: filter `index` sends what `flow` names, as `policy::Setting::steer` does, to `queue`, whatever RSS says of it: TCP or UDP over
/// IPv4 to a destination port. Flow 0: the filter is off. Fragments do not match: their ports are not seen.
void program_steering(Registers registers, unsigned index, std::uint32_t flow, unsigned queue);

/// 8.2.3.7.1: broadcast, and with `on` every other frame too, whatever its destination.
void program_promiscuous(Registers registers, bool on);

/// 7.1.1.1: takes in frames to `groups`, and to no others. The first 127 stand beside our own address and are compared whole; what does not
/// fit there sets a bit of 4096, which other groups may share, so that the stack has to look again. (The hash alone would do, but wake
/// the machine for groups that it does not want.) While it changes all groups are taken in: none that stays loses a frame. It ends with
/// `program_promiscuous`.
void program_multicast(Registers registers, std::span<const MacAddress> groups, bool promiscuous);

/// 7.4.5: of frames that carry a tag, those of `vlan`; 0: whatever their tag.
void program_vlan(Registers registers, std::uint32_t vlan);

/// 3.7.7: which pause frames are obeyed and sent, as `policy::Setting::flow_control` counts.
void program_flow_control(Registers registers, std::uint32_t which, std::uint32_t frame_bytes_max);

/// 7.5, 8.2.3.11: whether the card gives hints, and those of one core's queues, which name the core by `tag`.
void program_cache_hints(Registers registers, unsigned queue, bool on, std::uint8_t tag);

/// 4.6.7, last steps: receive path stopped and empty, RXCTRL.RXEN. Errors: `timeout`, `closed`.
[[nodiscard]] task<Result<void>> start_receive(Registers registers);

/// 4.6.8 and 4.6.11.3.4 (neither DCB nor virtualisation): packet buffer, one traffic class, no rate limits; transmit DMA on. Queues are
/// enabled after it.
void program_transmit(Registers registers, std::uint32_t frame_bytes_max);

/// No DMA and no interrupts any more; for a card that nobody will use. Does not wait.
void stop_card(Registers registers) noexcept;

}  // namespace neap::ixgbe
