// SPDX-License-Identifier: BSL-1.0
// The machine's multicast groups, and their reports to routers: MLDv2 (RFC 3810), and MLDv1 (RFC 2710) while a router asks in that version.
//
// The machine listens to all sources of a group, so each report is "exclude no source". Queries cannot make it send more than one report
// of a group in each answer, because a query moves a due time and adds none. Internal to net/.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "kernel/counter.hpp"
#include "kernel/machine.hpp"
#include "net/ipv6/packet.hpp"

namespace neap::net::ipv6 {

class Listener {
 public:
  static constexpr unsigned groups_max = 80;         ///< joined by cores, and for the machine's own addresses
  static constexpr unsigned joined_groups_max = 64;  ///< joined by cores
  static constexpr unsigned robustness = 2;          ///< RFC 3810, 9.1: how often a change is reported
  static constexpr std::uint64_t change_interval_ms = 1'000;
  static constexpr std::uint64_t version_1_ms = 260'000;  ///< RFC 3810, 9.12, with default values

  struct Counters {
    Counter queries{}, reports_sent{}, malformed{};
  };

  class User {
   public:
    virtual ~User() = default;
    /// Sends the ICMPv6 message `report` to `to`, with hop limit 1 and a router alert.
    virtual void send_report(const Address& to, std::span<std::byte> report) noexcept = 0;
    /// The set of groups has changed.
    virtual void groups_changed() noexcept = 0;
  };

  Listener(Link& link, User& user) noexcept : link_(link), user_(user) {}

  /// The machine's own use of a group, counted. Returns false if there is no room.
  bool use(const Address& group) noexcept;
  void end_use(const Address& group) noexcept;
  /// Adds or removes a core. Errors: `invalid` (joined already, not joined), `full`.
  [[nodiscard]] Result<void> join(const Address& group, unsigned core) noexcept;
  [[nodiscard]] Result<void> leave(const Address& group, unsigned core) noexcept;
  [[nodiscard]] machine::CoreSet cores_of(const Address& group) const noexcept;
  [[nodiscard]] bool receives(const Address& group) const noexcept;
  /// Appends the MAC addresses that the card has to receive, without reserving memory: at most `groups_max` + 1.
  void put_addresses(std::vector<MacAddress>& addresses) const;

  /// Handles a query; `message` is the ICMPv6 message.
  void query(Octets message) noexcept;
  /// Another machine's report of MLDv1: it reports the group for all.
  void other_reported(const Address& group) noexcept;
  /// Reports all groups again (the link came up, or the link-local address became usable).
  void report_all() noexcept;
  void run_timers() noexcept;
  [[nodiscard]] std::uint64_t due_ms() const noexcept;
  [[nodiscard]] const Counters& counters() const noexcept { return counters_; }

 private:
  struct Group {
    Address address{};
    unsigned own_uses = 0;
    machine::CoreSet cores{};
    bool left = false;         // only the reports of leaving are left
    std::uint8_t repeats = 0;  // reports of a change that are still to be sent
    std::uint64_t change_ms = never, answer_ms = never;
    [[nodiscard]] bool used() const noexcept { return own_uses > 0 || cores.any(); }
    [[nodiscard]] bool present() const noexcept { return used() || left; }
  };
  [[nodiscard]] Group* find(const Address& group) noexcept;
  [[nodiscard]] Group* find_or_make(const Address& group) noexcept;
  void note_change(Group& group) noexcept;
  void report(bool changes) noexcept;
  [[nodiscard]] static bool is_reported(const Address& group) noexcept { return group != all_nodes && group.scope() > 1; }

  Link& link_;
  User& user_;
  std::array<Group, groups_max> groups_{};
  std::uint64_t version_1_until_ms_ = 0;
  Counters counters_;
};

}  // namespace neap::net::ipv6
