// SPDX-License-Identifier: BSL-1.0
// Sets the card up for sending and receiving, after power-up or after an earlier driver. It follows the order of the 82599 datasheet's
// section 4.6.3, with a function for each step; `Card::start` calls them in turn. The functions run only during set-up and recovery from
// faults. They read registers and wait; each wait has a time-out, whose error names the register.
#pragma once

#include <cstdint>
#include <span>

#include "drivers/ixgbe/model.hpp"
#include "drivers/ixgbe/queue_options.hpp"
#include "drivers/ixgbe/register_access.hpp"
#include "drivers/rss.hpp"
#include "kernel/net_device.hpp"
#include "kernel/task.hpp"

namespace neap::ixgbe {

/// 4.6.3, steps 1 to 3: interrupts off, master disable (5.2.5.3.2), link and software reset (4.2.1.7), interrupts off again.
[[nodiscard]] task<Result<void>> reset_card(Registers registers);

/// 4.6.3: waits until the EEPROM is loaded, the firmware's configuration is done, and DMA is initialised. Tells the firmware that a driver
/// is present.
[[nodiscard]] task<Result<void>> wait_until_initialised(Registers registers);

/// Returns the MAC address that the card has loaded from the EEPROM into address filter 0. Errors: `device` (not unicast).
[[nodiscard]] Result<MacAddress> read_mac(Registers registers);

/// 4.6.5: assigns queue i to the set i modulo 16 of the card's counters, and clears all sets.
void clear_statistics(Registers registers);

/// 4.6.7: clears all filters except the one for our own address. Programs checksums, frame size, packet buffer, and RSS according to
/// `table`. Queues MUST be programmed after this call and enabled after `start_receive`.
void program_receive(Registers registers, const Model& model, const rss::Table& table, std::uint32_t frame_bytes_max);

/// 7.1.2.5: filter `index` sends `flow`, a destination port of TCP or (with `steer_udp`) UDP over IPv4, to `queue`, regardless of RSS. With
/// `flow` 0 the filter is off. Fragments do not match, because the card does not see their ports.
void program_steering(Registers registers, unsigned index, std::uint32_t flow, unsigned queue);

/// 8.2.3.7.1: accepts broadcast frames, and with `on` also all other frames.
void program_promiscuous(Registers registers, bool on);

/// 7.1.1.1: accepts multicast frames only to `groups`. The first 127 groups are placed in address filters beside our own address, and the
/// card compares all bits. Each further group sets one of 4096 hash bits, which other groups may share, so the stack must check again.
/// (With hash bits alone, more unwanted groups would wake the machine.) All groups are accepted during the change, so a group that is in
/// the old and the new list loses no frame. Calls `program_promiscuous` last.
void program_multicast(Registers registers, std::span<const MacAddress> groups, bool promiscuous);

/// 7.4.5: accepts tagged frames only with the tag `vlan`; if `vlan` is 0, with any tag.
void program_vlan(Registers registers, std::uint32_t vlan);

/// 3.7.7: `flow_control` says whether the card obeys pause frames, and whether it sends them.
void program_flow_control(Registers registers, const Model& model, const QueueOptions& options);

/// 7.5, 8.2.3.11: turns DCA on or off on a model that has it, for the card and for the queues of one core. `tag` names the core.
void program_cache_hints(Registers registers, unsigned queue, bool on, std::uint8_t tag);

/// 4.6.7, last steps: stops the receive path, waits until it is empty, sets RXCTRL.RXEN and restarts the path. Errors: `timeout`, `closed`.
[[nodiscard]] task<Result<void>> start_receive(Registers registers);

/// 4.6.8 and 4.6.11.3.4 (neither DCB nor virtualisation): programs the packet buffer, one traffic class and no rate limits, and enables
/// transmit DMA. Queues MUST be enabled after this call.
void program_transmit(Registers registers, std::uint32_t frame_bytes_max);

/// Stops DMA and interrupts until the next reset. Does not wait.
void stop_card(Registers registers) noexcept;

}  // namespace neap::ixgbe
