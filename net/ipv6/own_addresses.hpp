// SPDX-License-Identifier: BSL-1.0
// The machine's own addresses: made from its MAC address and announced prefixes, or set, and used after a check for duplicates.
//
// Interface identifiers are modified EUI-64 (RFC 4291, appendix A). RFC 7217's stable identifiers need a secret that survives a restart,
// and an image has no storage; a server is also meant to be found. An address is tentative until duplicate address detection has found no
// other user of it (RFC 4862, 5.4). The list is short, so announced prefixes cannot fill the memory: a full list refuses further prefixes.
// The first core owns the list; any core reads `PublishedAddresses`. Internal to net/.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "kernel/counter.hpp"
#include "net/ipv6/packet.hpp"
#include "net/ipv6/published.hpp"

namespace neap::net::ipv6 {

/// The addresses that passed duplicate address detection.
class PublishedAddresses {
 public:
  static constexpr unsigned entries_max = 8;

  struct Entry {
    Address address{};
    std::uint64_t bits = 0;  ///< of the prefix; 0: unused
    std::uint64_t preferred_ms = 0, valid_ms = 0;
  };

  // MAY be called on any core.
  [[nodiscard]] bool contains(const Address& address) const noexcept;
  /// Returns the source for packets to `destination` (RFC 6724, 5, rules 1 to 3, 6 and 8); nothing if there is no address of its scope.
  [[nodiscard]] std::optional<Address> source_for(const Address& destination, std::uint64_t now_ms) const noexcept;
  [[nodiscard]] Entry entry(unsigned index) const noexcept { return entries_[index].load(); }

 private:
  friend class OwnAddresses;
  std::array<Published<Entry>, entries_max> entries_;
};

class OwnAddresses {
 public:
  static constexpr unsigned entries_max = PublishedAddresses::entries_max;
  static constexpr unsigned probes = 1;  ///< DupAddrDetectTransmits (RFC 4862, 5.1)
  static constexpr std::uint64_t probe_ms = 1'000, start_delay_max_ms = 1'000;

  struct Counters {
    Counter duplicates{};  ///< own addresses that another machine uses
    Counter refused{};     ///< prefixes without an address, because the list was full
    Counter expired{};
  };

  class User {
   public:
    virtual ~User() = default;
    /// Sends the solicitation of duplicate address detection.
    virtual void probe(const Address& tentative) noexcept = 0;
    /// Receives, or no longer receives, the group of an own address's solicitations.
    virtual void use_group(const Address& solicited_node, bool use) noexcept = 0;
    /// The address may be used now.
    virtual void confirmed(const Address& address) noexcept = 0;
    /// The address is not usable any more, or a tentative address will not be used. `duplicate`: another machine has it.
    virtual void removed(const Address& address, bool was_usable, bool duplicate) noexcept = 0;
  };

  OwnAddresses(Link& link, User& user, PublishedAddresses& published) noexcept : link_(link), user_(user), published_(published) {}

  /// Begins to check an address. `delay`: the check begins after a random time, because a message to all nodes was the cause.
  bool add(const Address& address, unsigned bits, std::uint64_t preferred_ms, std::uint64_t valid_ms, bool delay) noexcept;
  /// Sets the end of an address's life. Returns false if it is not in the list.
  bool renew(const Address& address, std::uint64_t preferred_ms, std::uint64_t valid_ms) noexcept;
  /// Another machine uses or checks this tentative address. Returns false if it is not tentative.
  bool note_duplicate(const Address& address) noexcept;
  void remove_all() noexcept;
  void run_timers() noexcept;
  [[nodiscard]] std::uint64_t due_ms() const noexcept;
  [[nodiscard]] bool is_tentative(const Address& address) const noexcept;
  [[nodiscard]] std::optional<std::uint64_t> valid_until_ms(const Address& address) const noexcept;
  [[nodiscard]] unsigned count() const noexcept;
  [[nodiscard]] const Counters& counters() const noexcept { return counters_; }

  [[nodiscard]] static constexpr std::uint64_t interface_identifier(const MacAddress& mac) noexcept {
    const auto part = [&](unsigned i) { return std::uint64_t{mac[i]}; };
    return (part(0) ^ 2) << 56 | part(1) << 48 | part(2) << 40 | std::uint64_t{0xFFFE} << 24 | part(3) << 16 | part(4) << 8 | part(5);
  }

 private:
  struct Entry {
    PublishedAddresses::Entry value{};
    bool tentative = false;
    std::uint8_t sent = 0;
    std::uint64_t due_ms = never;  // of the check
  };
  [[nodiscard]] Entry* find(const Address& address) noexcept;
  void remove(Entry& entry, bool duplicate) noexcept;
  void publish(const Entry& entry) noexcept;

  Link& link_;
  User& user_;
  PublishedAddresses& published_;
  std::array<Entry, entries_max> entries_{};
  Counters counters_;
};

}  // namespace neap::net::ipv6
