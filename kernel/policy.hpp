// SPDX-License-Identifier: BSL-1.0
// Policy: settings such as the state of an idle core, the speed of a core and the moderation of its interrupts.
//
// Users change a setting under load and measure the effect. So every setting can be changed while the machine runs, for one core or for
// all. A value that this CPU or card does not support is refused. The refusal lists the supported values, and no setting is changed. Each
// accepted change gets a number, its generation, from one sequence for the whole machine. A core writes the number into its log records
// once it has applied the change. Some settings of a network card change only while a queue is stopped. Frames that arrive in this time are
// lost; the result of the change contains their number.
//
//   auto done = co_await policy::set(Setting::itr, "8us", policy::all_cores);
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <expected>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernel/arguments.hpp"
#include "kernel/error.hpp"
#include "kernel/policy_rows.hpp"
#include "kernel/power.hpp"
#include "kernel/task.hpp"

namespace neap::policy {

/// Segments that a connection sends one after another within an event may reach the card as one frame, which the card segments. `copy` puts
/// their bytes into one buffer; with `chain` the card reads the bytes where they are.
enum class Segmentation : std::uint8_t { off, copy, chain };
constexpr std::array<const char*, 3> segmentation_names{"off", "copy", "chain"};
constexpr Segmentation default_segmentation = Segmentation::chain;
constexpr unsigned all_cores = ~0u;

struct CorePolicy {
  IdleState idle = IdleState::halt;
  IdleState monitor_state = IdleState::c1;  ///< the C-state of `idle` monitor
  std::uint8_t turbo = 2;                   ///< 0 off, 1 on, 2 never set
  std::uint32_t itr_us = 0, poll_budget_us = 0, adaptive_poll_us = 0;
  std::uint64_t pstate = 0;          ///< the value of IA32_PERF_CTL; 0: never set
  std::uint32_t power_limit_mw = 0;  ///< 0: never set
  std::uint16_t epp = 256;           ///< 256: never set, or set to firmware's value
  Segmentation segmentation = Segmentation::off;
  std::uint32_t generation = 0;  ///< number of the last change that this core applied
};
[[nodiscard]] CorePolicy of(unsigned core) noexcept;
/// The value of one setting of a core; `setting` MUST be one of the kernel's settings.
[[nodiscard]] Value value_of(Setting setting, unsigned core) noexcept;
/// The number of the machine's last accepted change.
[[nodiscard]] std::uint32_t generation() noexcept;

struct Applied {
  std::uint32_t generation = 0;
  std::string value;      ///< the setting with its value after rounding: "itr=8us"
  std::string cores;      ///< the cores to which it applies: "0-3", "0,2,4"
  std::string granted{};  ///< only for `pstate`: the ratios at which these cores then run; empty if the CPU does not report them
  std::string also{};     ///< another setting that had to change, with its new value: "rsc=off"; empty: none
  std::optional<std::uint64_t> lost_frames{};  ///< frames lost by a change of a card's setting
};

/// Checks `value` for every core in scope, then applies it. Ends when all of them have applied it. `core`: one core or `all_cores`. Scopes:
/// - A setting of package scope that is set for one core applies to that core's package.
/// - `all_cores` sets `itr` on the cores that have a queue, and `segmentation` on the cores whose network can segment.
/// - A setting of the card or of the machine MUST be set for all cores; a setting of scope `named_core` MUST be set for one core.
/// Changes are applied one after the other, in the order of generations. If a CPU refuses a value that it reported as supported, the cores
/// that had changed are set back. Setting them back counts as another change.
[[nodiscard]] task<std::expected<Applied, Refusal>> set(Setting setting, std::string value, unsigned core);
/// Returns the setting with this name; the error lists all names.
[[nodiscard]] std::expected<Setting, Refusal> setting_by_name(std::string_view name);

/// Called when a network comes up on this core. `why_not`: the reason why the card cannot segment, or null. Before this call the setting
/// `segmentation` is refused. Returns this core's value; the reference shows later changes of the setting.
[[nodiscard]] const std::atomic<Segmentation>& offer_segmentation(const char* why_not) noexcept;

/// From now on, `changed` is called on each core after one of the network's settings (scope `machine`) has changed. It reads the value by
/// `value_of`. Before the first change, and before this call, each has its default. One network at a time: a second call replaces the
/// first.
void follow_network_settings(void (*changed)() noexcept) noexcept;
/// True after `follow_network_settings`.
[[nodiscard]] bool has_network() noexcept;

/// The command line's settings, for all cores. Values are checked when they are applied, because checking `itr` needs an open card.
struct BootSettings {
  std::vector<std::pair<const Row*, std::string>> values;
  /// Queries `arguments` for all settings except those of scope `named_core`. `device_rows`: the settings of the card that will be in use.
  static BootSettings from(Arguments& arguments, std::span<const Row> device_rows);
};
/// Applies the defaults (idle: the deepest state of this CPU) and then the boot settings. MUST be called on core 0, after `use`. The error
/// is the first refusal.
[[nodiscard]] task<std::expected<void, Refusal>> apply(const BootSettings& boot_settings);

/// The settings of a machine's only network card. Calls for a core are made on that core, unless stated otherwise.
class Device {
 public:
  Device& operator=(Device&&) = delete;
  /// Takes the device out of use.
  virtual ~Device();
  /// The value to which `itr_us` would be rounded. Changes nothing; any core may call it. Errors: `invalid`, `unsupported` with a static
  /// text that has the accepted values.
  [[nodiscard]] virtual Result<std::uint32_t> round_itr(unsigned core, std::uint32_t itr_us) const noexcept = 0;
  [[nodiscard]] virtual std::uint32_t itr_us(unsigned core) const noexcept = 0;
  virtual void set_itr(unsigned core, std::uint32_t itr_us) noexcept = 0;
  /// Turns this core's queue interrupts on or off. They are off in idle states `poll` and `monitor`. If work is pending, turning them on
  /// raises an interrupt.
  virtual void set_interrupt(unsigned core, bool on) noexcept = 0;
  /// The cache line that the card writes next when a frame arrives for this core, 64-byte aligned. Null if the core has no queue. Also null
  /// if the core MUST NOT sleep on the line now, because the card will report a frame in flight on another line. Then the core polls.
  [[nodiscard]] virtual const volatile void* next_receive_line(unsigned core) const noexcept = 0;

  /// The rows of the card's own settings. Their names and numbers MUST differ from those of the kernel. The rows exist for ever.
  [[nodiscard]] virtual std::span<const Row> settings() const noexcept { return {}; }
  /// The present value of one of the card's settings; any core may call it. Presets (they set other settings) and settings of scope
  /// `named_core` have no value.
  [[nodiscard]] virtual std::uint32_t value_of(Setting) const noexcept { return 0; }
  /// A card's setting that is on by default and does not permit this `itr_us`; none if there is no such setting. A change of `itr` turns
  /// this setting off first. If a user has turned the setting on, it does not yield: then `round_itr` refuses `itr_us`.
  [[nodiscard]] virtual std::optional<Setting> off_for_itr(std::uint32_t) const noexcept { return {}; }
  struct Change {
    std::uint32_t value = 0;  ///< the value after rounding
    std::uint64_t lost_frames = 0;
    std::optional<Segmentation> segmentation{};  ///< for a preset: the value that it gives to `segmentation`
  };
  /// Changes one of the card's settings. Called on core 0. `core` is `all_cores` unless the scope is `named_core`. Errors: `unsupported`,
  /// `invalid` and others, with a static text that has the reason. After an error nothing has changed, unless the card itself failed.
  [[nodiscard]] virtual task<Result<Change>> change(Setting setting, std::uint32_t value, unsigned core);
};
/// Puts `device` into use. MUST be called before a setting that concerns the device is changed. Null: no device is in use from now on.
void use(Device* device) noexcept;
/// Takes `device` out of use if it is in use. MUST be called before its queues stop.
void forget(Device& device) noexcept;
[[nodiscard]] Device* device() noexcept;

}  // namespace neap::policy
