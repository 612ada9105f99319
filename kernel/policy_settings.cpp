// SPDX-License-Identifier: BSL-1.0
// The kernel's rows of the table of settings: what a core does when idle, its speed and power, and segmentation in the network.
#include "kernel/policy_settings.hpp"

#include <algorithm>
#include <array>
#include <optional>

#include "kernel/machine.hpp"
#include "kernel/numbers.hpp"
#include "kernel/panic.hpp"
#include "kernel/policy.hpp"

namespace neap::policy {

namespace {

using Parsed = std::expected<Value, Refusal>;

bool take_suffix(std::string_view& text, std::string_view suffix) {
  if (!text.ends_with(suffix)) return false;
  text.remove_suffix(suffix.size());
  return true;
}

// --- Idle states -------------------------------------------------------------------------------------------------------------------------
bool has_state(const PowerAbilities& abilities, unsigned state) { return (abilities.idle_states >> state & 1) != 0; }

std::string why_no_state(const PowerAbilities& abilities, IdleState state) {
  const std::string name = idle_state_names[static_cast<unsigned>(state)];
  if (!abilities.mwait_sleeps) return name + " needs an MWAIT that sleeps";
  if (state == IdleState::monitor) return "monitor needs a MONITOR that sees every write, and this CPU's may miss one (erratum)";
  if (state == IdleState::menu) return "menu needs two C-states whose wake-up times are known, and this CPU has none or is no known model";
  const bool deeper_than_c1e = state >= IdleState::c3 && state <= IdleState::c7;
  if (abilities.timer_stops && deeper_than_c1e) return name + " would stop this CPU's APIC timer (no ARAT in CPUID leaf 6)";
  return "this CPU has no " + name;
}

Parsed parse_idle(const Row& row, std::string_view text, const PowerAbilities& abilities) {
  if (text == "deepest") {
    require(has_state(abilities, static_cast<unsigned>(abilities.deepest)), "the deepest idle state is not one of this CPU's");
    return static_cast<Value>(abilities.deepest);
  }
  const auto* const name = std::find(idle_state_names.begin(), idle_state_names.end(), text);
  if (name == idle_state_names.end()) return refuse_text(row, text, accepted_idle_states(abilities));
  const auto state = static_cast<unsigned>(name - idle_state_names.begin());
  if (has_state(abilities, state)) return state;
  return refuse(ErrorCode::unsupported, row,
                why_no_state(abilities, static_cast<IdleState>(state)) + "; accepted here: " + accepted_idle_states(abilities));
}

std::string print_idle(Value value) {
  require(value < idle_states, "an idle state that does not exist is printed", value);
  return idle_state_names[value];
}

/// The C-state in which `idle=monitor` sleeps. Every CPU with `monitor` has c1.
Parsed parse_monitor_state(const Row& row, std::string_view text, const PowerAbilities& abilities) {
  if (!has_state(abilities, static_cast<unsigned>(IdleState::monitor)))
    return refuse(ErrorCode::unsupported, row, why_no_state(abilities, IdleState::monitor));
  std::string accepted;
  for (auto state = static_cast<unsigned>(IdleState::c1); state <= static_cast<unsigned>(IdleState::c7); ++state) {
    if (!has_state(abilities, state)) continue;
    if (text == idle_state_names[state]) return state;
    accepted += std::string(idle_state_names[state]) + ' ';
  }
  if (text == "deepest" && !accepted.empty()) return static_cast<Value>(abilities.deepest);
  return refuse_text(row, text, accepted + "deepest");
}

// --- p-states ----------------------------------------------------------------------------------------------------------------------------
std::optional<std::uint64_t> parse_ratio(std::string_view text, std::uint32_t step_khz) {
  if (text.starts_with("0x") || text.starts_with("0X")) {
    // On the supported CPUs IA32_PERF_CTL holds the ratio and nothing else.
    const auto raw = parse_number(text);
    if (!raw || (*raw & ~std::uint64_t{0xff00}) != 0) return std::nullopt;
    return *raw >> 8;
  }
  std::string_view digits = text;
  const bool mhz = take_suffix(digits, "MHz");
  if (!mhz && !take_suffix(digits, "GHz")) return parse_decimal(text);
  const auto khz = parse_decimal(digits, mhz ? 1000 : 1'000'000);
  if (!khz || step_khz == 0) return std::nullopt;
  return (*khz + step_khz / 2) / step_khz;
}

Parsed parse_pstate(const Row& row, std::string_view text, const PowerAbilities& abilities) {
  if (!abilities.pstates) return refuse(ErrorCode::unsupported, row, "no P-states can be set on this CPU");
  if (text == "off") return 0;
  const auto ratio = parse_ratio(text, abilities.ratio_khz);
  const std::uint64_t ratio_min = abilities.ratio_min;
  const std::uint64_t ratio_max = std::max(abilities.ratio_max, abilities.ratio_turbo_max);
  if (!ratio || *ratio < ratio_min || *ratio > ratio_max) {
    const auto mhz = [&](std::uint64_t of) { return std::to_string(of * abilities.ratio_khz / 1000); };
    return refuse_text(row, text,
                       "a ratio of " + std::to_string(ratio_min) + " to " + std::to_string(ratio_max) + ", " + mhz(ratio_min) + "MHz to " +
                           mhz(ratio_max) + "MHz, " + hexadecimal(ratio_min << 8) + " to " + hexadecimal(ratio_max << 8) + ", off");
  }
  return *ratio << 8;
}

std::string print_pstate(Value value) { return value == 0 ? "off" : hexadecimal(value); }

/// The alias `dvfs` takes the value of IA32_PERF_CTL, decimal or hexadecimal.
std::string raw_performance(std::string_view text) {
  const auto raw = parse_number(text);
  return raw ? hexadecimal(*raw) : std::string();
}

// --- Energy preference -------------------------------------------------------------------------------------------------------------------

// Linux's names (Documentation/admin-guide/pm/intel_pstate.rst, "energy_performance_preference").
struct NamedPreference {
  std::string_view name;
  std::uint32_t value;
};
constexpr NamedPreference named_preferences[] = {
    {"performance", 0}, {"balance_performance", 128}, {"balance_power", 192}, {"power", 255}, {"off", machine::firmwares_preference}};

Parsed parse_epp(const Row& row, std::string_view text, const PowerAbilities& abilities) {
  if (!abilities.energy_preference) return refuse(ErrorCode::unsupported, row, "no energy preference can be set on this CPU");
  for (const NamedPreference& named : named_preferences) {
    if (text == named.name) return named.value;
  }
  const auto number = parse_decimal(text);
  if (!number || *number > row.value_max) return refuse_text(row, text, row.accepts);
  return *number;
}

std::string print_epp(Value value) { return value >= machine::firmwares_preference ? "off" : std::to_string(value); }

// --- Power -------------------------------------------------------------------------------------------------------------------------------
/// "35" for 35000, "35.125" for 35125.
std::string thousandths(std::uint64_t value) {
  std::string text = std::to_string(value / 1000);
  if (value % 1000 == 0) return text;
  std::string rest = std::to_string(1000 + value % 1000).substr(1);
  while (rest.back() == '0') rest.pop_back();
  return text + '.' + rest;
}

Parsed parse_power_limit(const Row& row, std::string_view text, const PowerAbilities& abilities) {
  if (!abilities.power_limit) return refuse(ErrorCode::unsupported, row, "no power limit can be set on this CPU");
  if (abilities.power_limit_locked) return refuse(ErrorCode::unsupported, row, "firmware has locked the power limit");
  if (text == "off") return 0;
  std::string_view digits = text;
  static_cast<void>(take_suffix(digits, "W"));
  const auto milliwatts = parse_decimal(digits, 1000);
  constexpr std::uint32_t register_mw_max = 4'000'000;  // the field has 15 bits, in eighths of a watt
  const std::uint32_t min_mw = std::max(abilities.power_limit_min_mw, 1U);
  const std::uint32_t max_mw = abilities.power_limit_max_mw != 0 ? abilities.power_limit_max_mw : register_mw_max;
  if (!milliwatts || *milliwatts < min_mw || *milliwatts > max_mw)
    return refuse_text(row, text, thousandths(min_mw) + "W to " + thousandths(max_mw) + "W, off");
  return *milliwatts;
}

std::string print_power_limit(Value value) { return value == 0 ? "off" : thousandths(value) + 'W'; }
std::string report_number(Value value) { return std::to_string(value); }

Parsed parse_turbo(const Row& row, std::string_view text, const PowerAbilities& abilities) {
  if (!abilities.turbo) return refuse(ErrorCode::unsupported, row, "turbo cannot be set on this CPU");
  if (text != "on" && text != "off") return refuse_text(row, text, accepted_values(row));
  return text == "on" ? 1 : 0;
}

std::string report_turbo(Value value) {
  require(value <= turbo_never_set, "turbo has a value that does not exist", value);
  return value == turbo_never_set ? "unknown" : value != 0 ? "on" : "off";
}

// --- The rows ----------------------------------------------------------------------------------------------------------------------------
constexpr OtherName itr_names[] = {{.name = "rx_usecs"}};
constexpr OtherName pstate_names[] = {
    {.name = "dvfs", .convert = &raw_performance, .accepts = "what goes into PERF_CTL, decimal or 0x hexadecimal"}};
constexpr OtherName power_limit_names[] = {{.name = "rapl"}};
constexpr std::array<std::string_view, segmentation_names.size()> segmentation_choices{segmentation_names[0], segmentation_names[1],
                                                                                       segmentation_names[2]};

constexpr std::array<std::string_view, 3> congestion_choices{"cubic", "reno", "dctcp"};  // in the order of tcp::CongestionControl

constexpr Row table[] = {
    {.setting = Setting::idle,
     .name = "idle",
     .value_name = "STATE",
     .kind = Kind::custom,
     .accepts = "halt c1 c1e c3 c6 c7 poll monitor menu deepest",
     .initial_text = "deepest",
     .help = "What a core does when it has nothing to do.",
     .log_field = "idle_state",
     .log_value = "choice",
     .parse = &parse_idle,
     .print = &print_idle},
    {.setting = Setting::itr,
     .name = "itr",
     .value_name = "TIME",
     .kind = Kind::time,
     .value_max = 1'000'000'000,  // the card's own limit is lower
     .unit = "us",
     .accepts = "a time in us or ms",
     .initial_text = "the card's",
     .help = "Interrupt moderation of a core's queue, rounded to a value that the card has.",
     .other_names = itr_names,
     .log_field = "itr_us",
     .report_name = "itr_us"},
    {.setting = Setting::poll_budget,
     .name = "poll_budget",
     .value_name = "TIME",
     .kind = Kind::time,
     .value_max = poll_budget_us_max,
     .unit = "us",
     .help = "How long a core without work polls its rings before it sleeps.",
     .log_field = "poll_budget_us",
     .report_name = "poll_budget_us"},
    {.setting = Setting::pstate,
     .name = "pstate",
     .value_name = "STATE",
     .kind = Kind::custom,
     .accepts = "24 (a ratio), 2400MHz, 2.4GHz, 0x1800 (as IA32_PERF_CTL), off (firmware's)",
     .initial_text = "firmware's",
     .help = "A core's requested frequency.",
     .other_names = pstate_names,
     .log_field = "performance",
     .log_value = "raw",
     .parse = &parse_pstate,
     .print = &print_pstate,
     .report = &hexadecimal},
    {.setting = Setting::epp,
     .name = "epp",
     .value_name = "PREFERENCE",
     .kind = Kind::custom,
     .value_max = 255,
     .accepts = "0 (speed) to 255 (saving), performance balance_performance balance_power power off",
     .initial_text = "firmware's",
     .help = "A core's energy preference for hardware-controlled P-states (HWP).",
     .log_value = "::256=off",
     .parse = &parse_epp,
     .print = &print_epp,
     .report = &print_epp},
    {.setting = Setting::power_limit,
     .name = "power_limit",
     .value_name = "WATTS",
     .kind = Kind::custom,
     .scope = Scope::package,
     .accepts = "60W, 60.5, off (firmware's)",
     .initial_text = "firmware's",
     .help = "The sustained power limit of a core's package.",
     .other_names = power_limit_names,
     .log_field = "power_limit_mw",
     .log_value = ":mW:0=off",
     .report_name = "power_limit_mw",
     .parse = &parse_power_limit,
     .print = &print_power_limit,
     .report = &report_number},
    {.setting = Setting::turbo,
     .name = "turbo",
     .value_name = "SWITCH",
     .kind = Kind::on_off,
     .scope = Scope::package,
     .initial_text = "firmware's",
     .help = "Turbo of a core's package.",
     .log_field = "turbo",
     .parse = &parse_turbo,
     .report = &report_turbo},
    {.setting = Setting::adaptive_poll,
     .name = "adaptive_poll",
     .value_name = "TIME",
     .kind = Kind::time,
     .value_max = adaptive_poll_us_max,
     .unit = "us",
     .help = "The longest time for which a core polls, without interrupts, while its work arrives at such short intervals.",
     .report_name = "adaptive_poll_us"},
    {.setting = Setting::monitor_state,
     .name = "monitor_state",
     .value_name = "STATE",
     .kind = Kind::custom,
     .accepts = "c1 c1e c3 c6 c7 deepest",
     .initial_text = "c1",
     .help = "The C-state in which a core sleeps with idle=monitor.",
     .log_value = "choice::halt|c1|c1e|c3|c6|c7",
     .parse = &parse_monitor_state,
     .print = &print_idle},
    // TCP segmentation offload: a setting of the network, for any card that has the offload.
    {.setting = Setting::segmentation,
     .name = "tso",
     .value_name = "FORM",
     .kind = Kind::choice,
     .choices = segmentation_choices,
     .initial = static_cast<Value>(default_segmentation),
     .help =
         "A connection's segments reach the card as one frame, which the card cuts up: copied into one buffer (copy), or as descriptors "
         "of the places where the payload is (chain)."},
    // TCP's (net/tcp/settings.hpp). They hold for connections that begin after a change.
    {.setting = Setting::tcp_congestion,
     .name = "tcp_congestion",
     .value_name = "NAME",
     .kind = Kind::choice,
     .scope = Scope::machine,
     .choices = congestion_choices,
     .help = "Congestion control of TCP: CUBIC (RFC 9438), Reno (RFC 5681) or DCTCP (RFC 8257, which needs tcp_ecn=on)."},
    {.setting = Setting::tcp_ecn,
     .name = "tcp_ecn",
     .value_name = "SWITCH",
     .kind = Kind::on_off,
     .scope = Scope::machine,
     .help = "TCP asks for explicit congestion notification (RFC 3168), and grants it to peers that ask."},
    {.setting = Setting::tcp_pacing,
     .name = "tcp_pacing",
     .value_name = "SWITCH",
     .kind = Kind::on_off,
     .scope = Scope::machine,
     .help = "TCP spreads a window's segments over the round trip instead of sending them at once."},
    {.setting = Setting::tcp_rto_min,
     .name = "tcp_rto_min",
     .value_name = "TIME",
     .kind = Kind::time,
     .scope = Scope::machine,
     .value_min = 5'000,
     .value_max = 60'000'000,
     .unit = "us",
     .initial = 200'000,
     .help = "TCP's shortest retransmission time-out (RFC 6298 says 1 s, Linux has 200 ms).",
     .report_name = "tcp_rto_min_us"},
    {.setting = Setting::tcp_keep_alive,
     .name = "tcp_keep_alive",
     .value_name = "SECONDS",
     .scope = Scope::machine,
     .value_min = 1,
     .value_max = 1'000'000,
     .unit = "s",
     .off = true,
     .initial = 7'200,
     .help = "The silence of a TCP connection after which its peer is probed.",
     .report_name = "tcp_keep_alive_s"},
    {.setting = Setting::tcp_zero_window,
     .name = "tcp_zero_window",
     .value_name = "SECONDS",
     .scope = Scope::machine,
     .value_min = 1,
     .value_max = 1'000'000,
     .unit = "s",
     .off = true,
     .help = "A TCP connection is reset if its peer's window has been closed for so long.",
     .report_name = "tcp_zero_window_s"},
    {.setting = Setting::tcp_receive,
     .name = "tcp_receive",
     .value_name = "KIB",
     .scope = Scope::machine,
     .value_min = 64,
     .value_max = 65'536,
     .unit = "KiB",
     .initial = 8'192,
     .help = "The bound up to which a TCP connection's receive window grows.",
     .report_name = "tcp_receive_kib"},
    {.setting = Setting::tcp_send,
     .name = "tcp_send",
     .value_name = "KIB",
     .scope = Scope::machine,
     .value_min = 64,
     .value_max = 65'536,
     .unit = "KiB",
     .initial = 8'192,
     .help = "The bound of a TCP connection's bytes that are sent and not acknowledged.",
     .report_name = "tcp_send_kib"},
};

}  // namespace

std::string accepted_idle_states(const PowerAbilities& abilities) {
  std::string text;
  for (unsigned state = 0; state < idle_states; ++state) {
    if (has_state(abilities, state)) text += std::string(idle_state_names[state]) + ' ';
  }
  return text + "deepest";
}

std::span<const Row> kernel_rows() noexcept { return table; }

}  // namespace neap::policy
