// SPDX-License-Identifier: BSL-1.0
#include "drivers/ixgbe/settings.hpp"

#include <algorithm>
#include <array>

#include "drivers/common_settings.hpp"
#include "drivers/intel_descriptor_ring.hpp"
#include "kernel/numbers.hpp"
#include "kernel/panic.hpp"

namespace neap::ixgbe {

namespace {

using card_setting::number;
using card_setting::on_off;
using policy::Kind;
using policy::Scope;
using policy::Setting;

constexpr std::uint32_t threshold_max = 127;  // 8.2.3.9.10: seven bits
constexpr std::uint32_t vlan_max = 4094;      // IEEE 802.1Q, 9.6: 0 and 4095 are reserved
constexpr std::string_view flow_control_choices[] = {"off", "receive", "transmit", "both"};
static_assert((flow_control_receive | flow_control_transmit) == 3);
constexpr std::string_view preset_choices[] = {"default", "study"};

std::expected<policy::Value, policy::Refusal> parse_steer(const policy::Row& row, std::string_view text, const PowerAbilities&) {
  constexpr std::uint64_t port_max = 65535;
  if (text == "off") return 0;
  const bool udp = text.starts_with("udp:");
  const auto port = udp || text.starts_with("tcp:") ? parse_number(text.substr(4), port_max) : std::nullopt;
  if (!port || *port == 0) return policy::refuse_text(row, text, row.accepts);
  return *port | (udp ? steer_udp : 0);
}

std::string print_steer(policy::Value flow) {
  require(flow < 2 * steer_udp, "ixgbe: a flow is neither TCP's nor UDP's", flow);
  if (flow == 0) return "off";
  return ((flow & steer_udp) != 0 ? "udp:" : "tcp:") + std::to_string(flow & ~policy::Value{steer_udp});
}

// --- The rows ----------------------------------------------------------------------------------------------------------------------------
constexpr policy::Row ring(unsigned log_number, std::string_view name, std::string_view help) {
  policy::Row row = number(log_number, name, DescriptorRing::descriptors_min, DescriptorRing::descriptors_max, help);
  row.accepts = "a power of two of descriptors, 64 to 4096";
  return row;
}

enum class Preset : bool { leaves, sets };
constexpr CardSetting of_option(policy::Row row, std::uint32_t QueueOptions::* option, bool while_running, Preset preset) {
  row.scope = Scope::card;
  row.initial = QueueOptions{}.*option;
  return {.row = row, .option = option, .while_running = while_running, .in_preset = preset == Preset::sets};
}
/// A row for a setting whose change stops the queues.
constexpr CardSetting stopping(const policy::Row& row, std::uint32_t QueueOptions::* option, Preset preset = Preset::sets) {
  return of_option(row, option, false, preset);
}
/// A row for a setting whose change does not stop the queues.
constexpr CardSetting running(const policy::Row& row, std::uint32_t QueueOptions::* option, Preset preset = Preset::sets) {
  return of_option(row, option, true, preset);
}

// Log records name a row by its number. The number of a row never changes, and a new row gets the next free number, which is 25.
// The words of the command line are set in the order of the rows, so a setting comes before those that depend on it.
constexpr std::array table{
    stopping(ring(6, "rx_ring", "Size of each receive ring."), &QueueOptions::receive_descriptors),
    stopping(ring(7, "tx_ring", "Size of each transmit ring."), &QueueOptions::transmit_descriptors),
    running(card_setting::budget_row(DescriptorRing::descriptors_max), &QueueOptions::budget_descriptors),
    running(on_off(24, "tx_interrupt", "TX completions interrupt cores that receive frames, too."), &QueueOptions::transmit_interrupt),
    stopping(number(9, "pthresh", 0, threshold_max, "Prefetch threshold of the transmit queues (PTHRESH)."),
             &QueueOptions::prefetch_threshold),
    stopping(number(10, "hthresh", 0, threshold_max, "Host threshold of the transmit queues (HTHRESH)."), &QueueOptions::host_threshold),
    stopping(number(11, "wthresh", 0, QueueOptions::write_back_threshold_max, "Write-back threshold of the transmit queues (WTHRESH)."),
             &QueueOptions::write_back_threshold),
    stopping(on_off(12, "head_write_back", "TX completions are reported by head write-back, not in each descriptor."),
             &QueueOptions::head_write_back),
    stopping(card_setting::coalescing_row, &QueueOptions::coalescing),
    running(card_setting::promiscuous_row, &QueueOptions::promiscuous, Preset::leaves),
    CardSetting{.row = {.setting = Setting{15},
                        .name = "preset",
                        .value_name = "NAME",
                        .kind = Kind::choice,
                        .scope = Scope::card,
                        .choices = preset_choices,
                        .accepts = "study default",
                        .initial_text = "none",
                        .preset = true,
                        .help = "The card's settings and tso as the published studies had them (study), or their defaults."}},
    CardSetting{.row = {.setting = Setting{16},
                        .name = "steer",
                        .value_name = "FLOW",
                        .kind = Kind::custom,
                        .scope = Scope::named_core,
                        .accepts = "udp:PORT tcp:PORT off",
                        .initial_text = "none",
                        .help = "Frames to this port go to this core, whatever RSS says; off removes all such rules of this core.",
                        .log_value = "port::0=off",
                        .parse = &parse_steer,
                        .print = &print_steer}},
    running({.setting = Setting{18},
             .name = "flow_control",
             .value_name = "WHICH",
             .kind = Kind::choice,
             .choices = flow_control_choices,
             .help = "Pause frames: the card obeys them (receive), sends them (transmit), or both."},
            &QueueOptions::flow_control, Preset::leaves),
    running(on_off(19, "dca", "Direct cache access: the card writes into the core's cache, where the chipset has that."),
            &QueueOptions::cache_hints),
    stopping({.setting = Setting{20},
              .name = "vlan",
              .value_name = "ID",
              .value_min = 1,
              .value_max = vlan_max,
              .off = true,
              .help = "Frames carry this VLAN's tag, and only such frames are received."},
             &QueueOptions::vlan, Preset::leaves),
};

constexpr auto rows = [] {
  std::array<policy::Row, table.size()> all{};
  std::ranges::transform(table, all.begin(), &CardSetting::row);
  return all;
}();

}  // namespace

std::span<const CardSetting> card_settings() noexcept { return table; }

const CardSetting* find_setting(Setting setting) noexcept {
  const auto* const found = std::ranges::find(table, setting, [](const CardSetting& known) { return known.row.setting; });
  return found == table.end() ? nullptr : found;
}

std::span<const policy::Row> setting_rows() noexcept { return rows; }

}  // namespace neap::ixgbe
