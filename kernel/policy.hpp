// SPDX-License-Identifier: BSL-1.0
// Policy is data: what each core does when idle, how fast it runs, how long the card holds its interrupts back.
//
// A study changes one of these while load is offered and looks at what happens. So every setting can be changed while the machine runs, for
// one core or all; what this CPU or card cannot do is refused with what it can, and then nothing has changed; and each accepted change
// has a number, one sequence for the whole machine, which every core in its scope stamps into its records from the moment it holds. What a
// network card can change only with a queue stopped costs frames, and the answer says how many.
//
//   auto done = co_await policy::set(Setting::itr, "8us", policy::all_cores);
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <expected>
#include <string>
#include <string_view>

#include "kernel/arguments.hpp"
#include "kernel/error.hpp"
#include "kernel/power.hpp"
#include "kernel/task.hpp"

namespace neap::policy {

/// The numbers stand in log records.
enum class Setting : std::uint8_t {
  idle = 0,    ///< an `IdleState` by name, or `deepest`; a core's
  itr = 1,     ///< interrupt moderation, "8us" or "8"; a core's queue
  pstate = 2,  ///< "24" (ratio), "2400MHz", "2.4GHz", "0x1800" (PERF_CTL as it is), "off" (firmware's); a core's, though a package may run
               ///< at its fastest core's
  power_limit = 3,  ///< "35W", "35", "off" (firmware's); a package's
  turbo = 4,        ///< "on", "off"; a package's
  poll_budget = 5,  ///< "50us" or "50": looks at the ring so long before it sleeps; a core's
  // The network card's, for all its queues; numbers, or "on" and "off".
  rx_ring = 6,                ///< descriptors
  tx_ring = 7,                ///< descriptors
  rx_budget = 8,              ///< descriptors that an event may take
  prefetch_threshold = 9,     ///< of the transmit queues: PTHRESH, HTHRESH, WTHRESH
  host_threshold = 10,        ///<
  write_back_threshold = 11,  ///<
  head_write_back = 12,       ///< sent frames are told by the ring's head, not descriptor by descriptor; switch
  rsc = 13,                   ///< the card joins segments of a connection; switch
  promiscuous = 14,           ///< frames for others are received too; switch
  preset = 15,                ///< "study": all of the above but the last as the published studies had them; "default"
  steer = 16,                 ///< "udp:5000" or "tcp:5000": frames to this port go to the core named; "off": no more of this core's
  // And one more of the CPU's.
  epp = 17,  ///< HWP's energy preference: 0 (speed) to 255, or Linux's four names for it, "off" (firmware's); a core's
  // The network card's again.
  flow_control = 18,  ///< pause frames: "receive" obeys them, "transmit" sends them; "both", "off"
  dca = 19,           ///< the card writes into the core's cache, where the chipset has that; switch
  vlan = 20,          ///< 1 to 4094: frames carry this VLAN's tag, and only such are received; "off"
  // The network's.
  tso = 21,  ///< a `Segmentation` by name; a core's
};
constexpr unsigned settings = 22;
constexpr std::array<const char*, settings> setting_names{
    "idle",    "itr",     "pstate",          "power_limit", "turbo",       "poll_budget", "rx_ring", "tx_ring", "rx_budget",    "pthresh",
    "hthresh", "wthresh", "head_write_back", "rsc",         "promiscuous", "preset",      "steer",   "epp",     "flow_control", "dca",
    "vlan",    "tso"};
/// The network card carries it out.
constexpr bool is_card_setting(Setting setting) noexcept {
  return setting >= Setting::rx_ring && setting != Setting::epp && setting != Setting::tso;
}
constexpr bool is_switch(Setting setting) noexcept {
  return setting == Setting::turbo || (setting >= Setting::head_write_back && setting <= Setting::promiscuous) || setting == Setting::dca;
}
/// Segments of a connection that follow each other within an event reach the card as one frame, which it cuts up (TSO): not at all, copied
/// into one buffer, or as descriptors of where they lie.
enum class Segmentation : std::uint8_t { off, copy, chain };
constexpr std::array<const char*, 3> segmentation_names{"off", "copy", "chain"};
/// A value of `flow_control`: these together.
constexpr std::uint32_t flow_control_receive = 1;
constexpr std::uint32_t flow_control_transmit = 2;
/// A value of `steer` is a destination port and, for UDP, this; 0 is "off".
constexpr std::uint32_t steer_udp = 1U << 16;

constexpr unsigned all_cores = ~0u;

/// What one core does at this moment. Read by any core; written by its own.
struct CorePolicy {
  IdleState idle = IdleState::halt;
  std::uint8_t turbo = 2;  ///< 0 off, 1 on, 2 never set
  std::uint32_t itr_us = 0;
  std::uint32_t poll_budget_us = 0;
  std::uint64_t performance = 0;     ///< raw; 0: never set
  std::uint32_t power_limit_mw = 0;  ///< 0: never set
  std::uint16_t epp = 256;           ///< 256: never set, or firmware's
  Segmentation segmentation = Segmentation::off;
  std::uint32_t generation = 0;  ///< the last change that this core applied
};
[[nodiscard]] CorePolicy of(unsigned core) noexcept;
/// The machine's last accepted change.
[[nodiscard]] std::uint32_t generation() noexcept;

struct Refusal {
  ErrorCode code;
  std::string why;  ///< one line, with what is accepted
};
struct Applied {
  std::uint32_t generation = 0;
  std::string value;              ///< as it was understood and rounded: "itr=8us"
  std::string cores;              ///< those that it holds for: "0-3", "0,2,4"
  std::string granted{};          ///< of `pstate`: the ratios that its cores run at then; empty where the CPU does not tell
  std::uint64_t lost_frames = 0;  ///< that the change of a card's setting cost
};

/// Checks `value` for every core in scope, then applies it on each; complete when all have. `core`: one, or `all_cores`. A setting of
/// package scope, asked for one core, holds for that core's package; `itr` for all cores for those that have a queue; the card's for all,
/// `steer` alone names one core. Changes are applied
/// one after the other, in the order of generations. If the CPU refuses what it said it can, the cores that had changed are set back, which
/// is a change too.
[[nodiscard]] task<std::expected<Applied, Refusal>> set(Setting setting, std::string value, unsigned core);
[[nodiscard]] std::expected<Setting, Refusal> setting_by_name(std::string_view name);

/// A network comes up on this core. `why_not`: why it can have nothing segmented, or null; until then `tso` is refused. Returns what is set
/// for this core, from now on.
[[nodiscard]] const std::atomic<Segmentation>& offer_segmentation(const char* why_not) noexcept;

/// What the command line asks for (`idle=`, `itr=`, `pstate=`, `power_limit=`, `turbo=`, `poll_budget=`), for all cores. Values are checked
/// when they are applied: a card has to be open for `itr`.
struct Wishes {
  std::array<std::string, settings> values;  ///< empty: the default
  static Wishes from(Arguments& arguments);
};
/// Applies the defaults (idle: the deepest that this CPU has) and then the wishes; core 0, after the card is open. The error is the
/// first refusal.
[[nodiscard]] task<std::expected<void, Refusal>> apply(const Wishes& wishes);

/// What a network card does for policy; one a machine. Calls come on the core concerned.
class Device {
 public:
  Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  /// Takes it out of use.
  virtual ~Device();
  /// What `itr_us` would be rounded to; does not change anything. Any core. Errors: `invalid`, `unsupported` with a static text that says
  /// what the card takes.
  [[nodiscard]] virtual Result<std::uint32_t> round_itr(unsigned core, std::uint32_t itr_us) const noexcept = 0;
  [[nodiscard]] virtual std::uint32_t itr_us(unsigned core) const noexcept = 0;
  virtual void set_itr(unsigned core, std::uint32_t itr_us) noexcept = 0;
  /// Whether this core's queue interrupts. Off in `poll` and `monitor`; turning it on raises one if work waits.
  virtual void set_interrupt(unsigned core, bool on) noexcept = 0;
  /// The cache line that the card writes next when a frame arrives for this core, 64-byte aligned. Null if the core has no queue, or must
  /// not sleep on it now because something else of the card's (a frame on its way out) would end unseen: then the core goes on looking.
  [[nodiscard]] virtual const volatile void* next_receive_line(unsigned core) const noexcept = 0;

  /// What a card's setting is now; any core. Not told: `preset` and `steer`.
  [[nodiscard]] virtual std::uint32_t value_of(Setting) const noexcept { return 0; }
  struct Change {
    std::uint32_t value = 0;  ///< as it was rounded
    std::uint64_t lost_frames = 0;
  };
  /// Carries out a card's setting, on core 0. Errors: `unsupported`, `invalid` and others, with a static text that says why; unless the
  /// card itself failed, nothing has changed then.
  [[nodiscard]] virtual task<Result<Change>> change(Setting setting, std::uint32_t value, unsigned core);
};
/// Before a policy that concerns it is set; null: none any more.
void use(Device* device) noexcept;
/// Takes `device` out of use if it is in use. Before its queues stop.
void forget(Device& device) noexcept;
[[nodiscard]] Device* device() noexcept;

}  // namespace neap::policy
