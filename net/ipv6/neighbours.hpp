// SPDX-License-Identifier: BSL-1.0
// The neighbour cache: MAC addresses of other machines on the link (RFC 4861, 5.1 and 7), with detection of neighbours that have gone.
//
// Any machine on the link can send solicitations and advertisements from any number of addresses, and a peer behind a router can make the
// machine ask for any address of its network. So the table is fixed, an address can only be in one small set of entries, which a secret
// hash chooses, and everything that a message can cause has a limit: entries of one MAC address, new entries a second, open requests,
// waiting packets. An entry that is in use is replaced only by a neighbour that has answered: addresses without an answer are in a table of
// their own, so a flood from addresses that do not exist displaces no neighbour (RFC 6583, 7.1). The first core owns the cache; other cores
// read `PublishedNeighbours`.
// Internal to net/.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "kernel/counter.hpp"
#include "kernel/siphash.hpp"
#include "net/ipv6/packet.hpp"
#include "net/ipv6/published.hpp"

namespace neap::net::ipv6 {

/// The neighbours as all cores see them: an entry for each entry of the cache that has a MAC address.
class PublishedNeighbours {
 public:
  static constexpr unsigned sets = 128, set_entries = 4, entries_max = sets * set_entries;

  struct Found {
    MacAddress mac;
    bool fresh;  ///< false: the first core has to hear that the entry is used, so that it checks whether the neighbour is still there
  };
  /// MAY be called on any core.
  [[nodiscard]] std::optional<Found> find(const Address& address, std::uint64_t now_ms) const noexcept;

 private:
  friend class Neighbours;
  struct Entry {
    Address address{};
    std::uint64_t mac = 0;       // 0: unused
    std::uint64_t fresh_ms = 0;  // the entry needs no check until then
  };
  [[nodiscard]] unsigned set_of(const Address& address) const noexcept;

  SipKey key_{};
  std::array<Published<Entry>, entries_max> entries_;
};

class Neighbours {
 public:
  static constexpr unsigned entries_max = PublishedNeighbours::entries_max;
  static constexpr unsigned entries_of_mac_max = 16;   ///< messages make no more entries of one MAC address
  static constexpr unsigned incomplete_max = 64;       ///< open requests: addresses that are asked for at a time
  static constexpr unsigned waiting_of_entry_max = 3;  ///< packets that wait for one address
  static constexpr unsigned waiting_max = 64;          ///< packets that wait together
  static constexpr std::uint64_t delay_ms = 5'000;     ///< DELAY_FIRST_PROBE_TIME
  static constexpr unsigned solicitations_max = 3;     ///< MAX_MULTICAST_SOLICIT, MAX_UNICAST_SOLICIT

  enum class State : std::uint8_t { unused, incomplete, reachable, stale, delay, probe };  // RFC 4861, 7.3.2

  struct Counters {
    Counter learned{};          ///< entries that got a MAC address
    Counter changed{};          ///< entries that got another MAC address
    Counter recycled{};         ///< entries replaced by others
    Counter refused{};          ///< entries not made, because of a limit
    Counter unresolved{};       ///< addresses without an answer
    Counter waiting_dropped{};  ///< packets dropped while they waited
    Counter solicitations_sent{};
  };

  /// The cache's user.
  class User {
   public:
    virtual ~User() = default;
    /// Sends a neighbour solicitation for `target` to `mac`; without `mac`, to the target's solicited-node group.
    virtual void solicit(const Address& target, const MacAddress* mac) noexcept = 0;
    /// The neighbour's MAC address became known or changed.
    virtual void resolved(const Address& address) noexcept = 0;
    /// There is no answer from `address`, which was in use. `packet` waited for it; it may be empty.
    virtual void unreachable(const Address& address, Octets packet) noexcept = 0;
  };

  Neighbours(Link& link, User& user, PublishedNeighbours& published) noexcept;
  ~Neighbours();

  /// Returns the neighbour's MAC address for a packet that is about to be sent. If it is not known, begins to ask for it and returns
  /// nothing.
  [[nodiscard]] std::optional<MacAddress> resolve(const Address& address) noexcept;
  /// As `resolve`; without a MAC address, keeps a copy of the packet until there is one. A packet beyond the limits displaces the oldest
  /// packet of its address or is dropped; both are counted.
  [[nodiscard]] std::optional<MacAddress> resolve_or_wait(const Address& address, Octets head, Octets body) noexcept;
  /// A message from `address` named its MAC address (RFC 4861, 7.2.3, 6.2.6, 6.3.4). `router`: the message proves that it is a router.
  void learn(const Address& address, const MacAddress& mac, bool router) noexcept;
  /// An advertisement arrived (RFC 4861, 7.2.5). Returns true if a router has become a host.
  [[nodiscard]] bool advertised(const Address& target, const MacAddress* mac, bool router, bool solicited, bool override) noexcept;
  /// A transport protocol got an answer from `address` (RFC 4861, 7.3.1).
  void confirm(const Address& address) noexcept;
  void set_reachable_ms(std::uint32_t base_ms) noexcept;
  void set_retransmit_ms(std::uint32_t ms) noexcept { retransmit_ms_ = ms; }
  void run_timers() noexcept;
  /// The time at which `run_timers` MUST be called; `never` if nothing is timed.
  [[nodiscard]] std::uint64_t due_ms() const noexcept { return due_ms_; }
  /// Forgets all neighbours and waiting packets (the link went down).
  void clear() noexcept;

  [[nodiscard]] State state_of(const Address& address) const noexcept;
  /// Returns the number of neighbours with a MAC address.
  [[nodiscard]] unsigned used() const noexcept { return used_ - incomplete_; }
  [[nodiscard]] unsigned waiting() const noexcept { return waiting_; }
  [[nodiscard]] unsigned incomplete() const noexcept { return incomplete_; }
  [[nodiscard]] const Counters& counters() const noexcept { return counters_; }

 private:
  struct Waiting {
    std::unique_ptr<std::byte[]> bytes;
    std::uint32_t size = 0;
  };
  struct Entry {
    Address address{};
    MacAddress mac{};
    State state = State::unused;
    bool router = false;
    bool own_use = false;          // made or used by a packet of this machine
    std::uint8_t sent = 0;         // solicitations
    std::uint64_t due_ms = never;  // in `reachable`, the end of that state, which needs no timer
    std::uint64_t used_ms = 0;
    std::array<Waiting, waiting_of_entry_max> waiting{};
  };

  [[nodiscard]] std::span<Entry> open_requests() noexcept { return std::span(entries_).subspan(entries_max); }
  [[nodiscard]] Entry* find(const Address& address) noexcept;
  // Each of these returns null if a limit forbids the entry, and counts that. The first three return an unused entry of the address's set.
  [[nodiscard]] Entry* place_for(const Address& address, bool own_use) noexcept;
  [[nodiscard]] Entry* make_by_message(const Address& address, const MacAddress& mac) noexcept;
  /// Ends the request. The entry has its waiting packets.
  [[nodiscard]] Entry* answered(Entry& request, const MacAddress& mac) noexcept;
  /// Asks for the address.
  [[nodiscard]] Entry* request(const Address& address) noexcept;
  [[nodiscard]] Entry* use(const Address& address) noexcept;
  void set_state(Entry& entry, State state) noexcept;
  void publish(const Entry& entry) noexcept;
  void release(Entry& entry) noexcept;
  void drop_waiting(Entry& entry) noexcept;
  void give_waiting(Entry& entry) noexcept;
  void give_up(Entry& entry) noexcept;
  [[nodiscard]] static bool timed(const Entry& entry) noexcept {
    return entry.state == State::incomplete || entry.state == State::delay || entry.state == State::probe;
  }

  Link& link_;
  User& user_;
  PublishedNeighbours& published_;
  std::array<Entry, entries_max + incomplete_max> entries_{};  // the sets, then the open requests
  unsigned used_ = 0, incomplete_ = 0, waiting_ = 0;
  unsigned timed_ = 0;  // entries with a time-out
  std::uint32_t reachable_ms_ = 30'000, retransmit_ms_ = 1'000;
  std::uint64_t due_ms_ = never;
  RateLimit new_entries_{64, 10};   // entries that others' messages make
  RateLimit new_requests_{64, 10};  // addresses that packets of this machine ask for
  Counters counters_;
};

}  // namespace neap::net::ipv6
