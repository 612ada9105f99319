// SPDX-License-Identifier: BSL-1.0
// TIME-WAIT (RFC 9293, 3.6.1; RFC 6191; RFC 1337).
//
// The side that closes first keeps the connection's numbers for two segment lifetimes. It answers a repeated FIN, and old segments do not
// reach a new connection with the same addresses. A busy client or server has thousands of such connections, so an entry is 64 bytes
// instead of a connection. The number of entries is bounded. A further one replaces the oldest, which is counted.
//
// The table sends nothing: it says what to do with a segment.
#pragma once

#include <cstdint>

#include "net/object_pool.hpp"
#include "net/tcp/connection_table.hpp"
#include "net/tcp/sequence.hpp"

namespace neap::net::tcp {

/// The initial sequence number of a connection that replaces one in TIME-WAIT: `wanted`, or a number that is higher than any of the old
/// connection's (RFC 9293, 3.4.1), if that number would be among them.
[[nodiscard]] constexpr std::uint32_t sequence_after(std::uint32_t wanted, std::uint32_t old_send_next) noexcept {
  return after(wanted, old_send_next) ? wanted : old_send_next + 65'537;
}

enum class TimeWaitVerdict : std::uint8_t {
  drop,         ///< nothing is sent
  acknowledge,  ///< by a segment with the entry's numbers
  accept_syn,   ///< a new connection: the entry is removed, and the SYN is handled as if there had been none
};

/// The fields of a segment that count in TIME-WAIT.
struct TimeWaitSegment {
  std::uint32_t sequence = 0;
  std::uint32_t length = 0;  ///< sequence numbers, SYN and FIN included
  bool syn = false, ack = false, rst = false, fin = false;
  bool has_timestamps = false;
  std::uint32_t timestamp = 0;  ///< TSval
};

/// The numbers of a closed connection.
struct TimeWaitNumbers {
  std::uint32_t send_next = 0;         ///< SND.NXT, after the FIN
  std::uint32_t receive_next = 0;      ///< RCV.NXT, after the peer's FIN
  std::uint32_t timestamp_recent = 0;  ///< TS.Recent
  std::uint32_t timestamp_offset = 0;  ///< of this side's timestamps (initial_sequence.hpp)
  std::uint16_t window = 0;            ///< the field that acknowledgements carry
  bool has_timestamps = false;
};

/// `key` of each function: as in a received segment.
template <class Key>
class TimeWaitTable {
 public:
  /// 60 s: two times a segment lifetime of 30 s, as Linux. RFC 9293 names 2 min as a lifetime, as an engineering choice.
  static constexpr std::uint64_t default_duration_us = 60'000'000;
  /// An entry answers segments at most this often (RFC 5961, 7).
  static constexpr std::uint32_t answer_interval_ms = 500;

  struct Counters {
    std::uint64_t replaced = 0;        ///< entries replaced by newer ones because the table was full
    std::uint64_t syns_accepted = 0;   ///< new connections that began during TIME-WAIT
    std::uint64_t no_memory = 0;       ///< connections without TIME-WAIT, for lack of memory
    std::uint64_t resets_ignored = 0;  ///< RFC 1337
  };

  TimeWaitTable() = default;
  TimeWaitTable(const TimeWaitTable&) = delete;
  TimeWaitTable& operator=(const TimeWaitTable&) = delete;
  ~TimeWaitTable() {
    while (oldest_ != nullptr) remove(*oldest_);
    pool_.trim();
  }

  /// MUST be called once, before all other functions. Returns false without memory.
  [[nodiscard]] bool start(unsigned chain_bits, std::uint32_t entries_max, std::uint64_t duration_us = default_duration_us) noexcept {
    entries_max_ = entries_max;
    duration_us_ = duration_us;
    return table_.start(chain_bits);
  }
  /// Adds a connection, which MUST NOT be in the table. Returns false without memory.
  bool add(const Key& key, const TimeWaitNumbers& numbers, std::uint64_t now_us) noexcept;
  struct Decision {
    bool found = false;  ///< false: no such connection is in TIME-WAIT
    TimeWaitVerdict verdict = TimeWaitVerdict::drop;
    TimeWaitNumbers numbers;
  };
  /// Decides about a segment. `numbers` are those of the connection. The initial sequence number of a new connection SHOULD be after its
  /// `send_next`: `sequence_after`.
  [[nodiscard]] Decision decide(const Key& key, const TimeWaitSegment& segment, std::uint64_t now_us) noexcept;
  /// True if a connection with `key` is in TIME-WAIT, for the choice of a local port.
  [[nodiscard]] bool contains(const Key& key, std::uint64_t now_us) const noexcept {
    const Entry* const entry = table_.find(key);
    return entry != nullptr && !entry->is_over(now_us);
  }
  /// Removes entries whose time has passed, at most `budget`. Entries also expire without it: they are then not found, but hold memory.
  void expire(std::uint64_t now_us, unsigned budget = 64) noexcept;
  /// Returns the time when `expire` has to be called next; 0 if the table is empty.
  [[nodiscard]] std::uint64_t due_us(std::uint64_t now_us) const noexcept;
  [[nodiscard]] std::size_t count() const noexcept { return table_.count(); }
  [[nodiscard]] const Counters& counters() const noexcept { return counters_; }

 private:
  // In the order of their ends, which all come after the same time: a queue.
  struct Entry {
    Entry* chain_next = nullptr;
    Entry* older = nullptr;
    Entry* newer = nullptr;
    decltype(Key::addresses) addresses{};
    std::uint32_t ports = 0;
    std::uint32_t send_next = 0, receive_next = 0, timestamp_recent = 0, timestamp_offset = 0;
    std::uint32_t end_ms = 0;       // of the boot clock, modulo 2^32
    std::uint32_t answered_ms = 0;  // the last answer; valid if `answered`
    std::uint16_t window = 0;
    bool has_timestamps = false, answered = false;

    [[nodiscard]] bool has_addresses(const Key& key) const noexcept { return addresses == key.addresses && ports == key.ports; }
    [[nodiscard]] Key key() const noexcept { return {.addresses = addresses, .ports = ports}; }
    [[nodiscard]] bool is_over(std::uint64_t now_us) const noexcept {
      return static_cast<std::int32_t>(static_cast<std::uint32_t>(now_us / 1000) - end_ms) >= 0;
    }
  };
  static_assert(sizeof(Entry) <= (sizeof(Key::addresses) > 8 ? 96 : 64));

  [[nodiscard]] static bool accepts(const Entry& entry, const TimeWaitSegment& syn) noexcept;
  [[nodiscard]] static TimeWaitVerdict answer(Entry& entry, std::uint64_t now_us) noexcept;
  void link_newest(Entry& entry, std::uint64_t now_us) noexcept;
  void unlink(Entry& entry) noexcept;
  void remove(Entry& entry) noexcept;

  ConnectionTable<Entry, Key> table_;
  ObjectPool<Entry, 256> pool_;
  Entry* oldest_ = nullptr;
  Entry* newest_ = nullptr;
  std::uint64_t duration_us_ = default_duration_us;
  std::uint32_t entries_max_ = 0;
  Counters counters_;
};

}  // namespace neap::net::tcp
