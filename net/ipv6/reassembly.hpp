// SPDX-License-Identifier: BSL-1.0
// Reassembly of fragments (RFC 8200, 4.5).
//
// Fragments of packets that never become whole would fill the memory, and overlapping fragments can pass data around a filter. So the
// number of packets, the packets of one source and their bytes are bounded, and an overlap ends the packet: its later fragments are
// dropped too, until its time is over (RFC 5722). Internal to net/.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "kernel/counter.hpp"
#include "net/ipv6/extensions.hpp"
#include "net/ipv6/packet.hpp"

namespace neap::net::ipv6 {

class Reassembly {
 public:
  static constexpr unsigned packets_max = 32, packets_of_source_max = 4, fragments_of_packet_max = 64;
  static constexpr std::size_t bytes_max = 512 * 1024;  ///< of all packets, payload and the memory that gaps take
  static constexpr std::uint64_t time_ms = 60'000;

  struct Counters {
    Counter fragments{}, reassembled{};
    Counter refused{};   ///< fragments beyond a bound
    Counter overlaps{};  ///< packets ended by an overlap
    Counter malformed{};
    Counter timed_out{};  ///< packets that did not become whole in time
  };
  struct Result {
    /// A whole packet, with a fixed header and without a fragment header; empty if there is none.
    std::vector<std::byte> packet{};
    /// The parameter problem to report about the fragment, with `code` and `pointer`.
    bool problem = false;
    std::uint8_t code = 0;
    std::uint32_t pointer = 0;
  };
  /// A packet whose time is over. `first` is its first fragment (headers included), if that has arrived.
  struct Expired {
    std::vector<std::byte> first{};
  };

  /// Adds the fragment in `packet`; `at` is the result of `parse_extensions`.
  [[nodiscard]] Result add(Octets packet, const Extensions& at, std::uint64_t now_ms);
  /// Removes one packet whose time is over; nothing if there is none.
  [[nodiscard]] std::optional<Expired> expire(std::uint64_t now_ms);
  /// The time at which `expire` MUST be called; `never` if no packet waits.
  [[nodiscard]] std::uint64_t due_ms() const noexcept;
  void clear() noexcept;
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] unsigned packets() const noexcept;
  [[nodiscard]] const Counters& counters() const noexcept { return counters_; }

 private:
  struct Range {
    std::uint32_t from, to;
  };
  struct Packet {
    bool used = false, ended = false;  // `ended`: by an overlap
    Address from{}, to{};
    std::uint32_t id = 0;
    std::uint64_t until_ms = 0;
    std::uint8_t next = 0;
    std::uint32_t size = 0;  // 0: the last fragment has not arrived
    std::vector<Range> ranges{};
    std::vector<std::byte> payload{};
    std::vector<std::byte> first{};
  };
  void drop_content(Packet& packet) noexcept;
  void release(Packet& packet) noexcept;
  [[nodiscard]] static std::size_t memory_of(const Packet& packet) noexcept { return packet.payload.capacity() + packet.first.capacity(); }

  std::array<Packet, packets_max> packets_{};
  std::size_t bytes_ = 0;
  Counters counters_;
};

}  // namespace neap::net::ipv6
