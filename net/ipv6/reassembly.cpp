// SPDX-License-Identifier: BSL-1.0
#include "net/ipv6/reassembly.hpp"

#include <algorithm>
#include <new>
#include <utility>

namespace neap::net::ipv6 {

namespace {

constexpr std::size_t fragment_header_bytes = 8;
constexpr std::size_t payload_bytes_max = 0xFFFF;
constexpr std::uint32_t payload_length_field = 4;
constexpr std::size_t first_bytes_kept = 1232;  // more of a packet is not quoted in an ICMPv6 error

/// True if the first fragment has the upper layer's whole header (RFC 7112), as far as this machine knows the protocol.
bool has_upper_header(std::uint8_t protocol, std::size_t bytes) noexcept {
  switch (protocol) {
    case next_header::tcp:
      return bytes >= 20;
    case next_header::udp:
    case next_header::icmp:
      return bytes >= 8;
    case next_header::destination_options:
    case next_header::routing:
      return bytes >= 8;
    default:
      return true;
  }
}

}  // namespace

void Reassembly::drop_content(Packet& packet) noexcept {
  bytes_ -= memory_of(packet);
  // An assignment of {} would keep the memory.
  packet.payload = std::vector<std::byte>();
  packet.first = std::vector<std::byte>();
  packet.ranges = std::vector<Range>();
}

void Reassembly::release(Packet& packet) noexcept {
  drop_content(packet);
  packet = {};
}

void Reassembly::clear() noexcept {
  for (Packet& packet : packets_) release(packet);
}

unsigned Reassembly::packets() const noexcept {
  return static_cast<unsigned>(std::ranges::count_if(packets_, [](const Packet& packet) { return packet.used; }));
}

std::uint64_t Reassembly::due_ms() const noexcept {
  std::uint64_t due = never;
  for (const Packet& packet : packets_) {
    if (packet.used) due = std::min(due, packet.until_ms);
  }
  return due;
}

std::optional<Reassembly::Expired> Reassembly::expire(std::uint64_t now_ms) {
  const auto found = std::ranges::find_if(packets_, [&](const Packet& packet) { return packet.used && packet.until_ms <= now_ms; });
  if (found == packets_.end()) return std::nullopt;
  counters_.timed_out.add();
  Expired expired;
  if (!found->ended) {
    bytes_ -= found->first.capacity();
    expired.first = std::exchange(found->first, std::vector<std::byte>());
  }
  release(*found);
  return expired;
}

Reassembly::Result Reassembly::add(Octets packet, const Extensions& at, std::uint64_t now_ms) {
  counters_.fragments.add();
  const auto malformed = [this] {
    counters_.malformed.add();
    return Result{};
  };
  const auto refused = [this] {
    counters_.refused.add();
    return Result{};
  };
  const std::size_t payload_at = at.offset + fragment_header_bytes;
  if (packet.size() <= payload_at) return malformed();
  const Octets payload = packet.subspan(payload_at);
  const unsigned field = read_16(packet, at.offset + 2);
  const bool more = (field & 1) != 0;
  const std::uint32_t from = field & 0xFFF8;
  const auto to = static_cast<std::uint32_t>(from + payload.size());
  if (more && payload.size() % 8 != 0) {
    counters_.malformed.add();
    return {.problem = true, .code = icmp::code_field, .pointer = payload_length_field};
  }
  // The headers in front of the fragment header are dropped: they were checked, and no later code needs them.
  if (to > payload_bytes_max) {
    counters_.malformed.add();
    return {.problem = true, .code = icmp::code_field, .pointer = at.offset + 2};
  }
  const auto protocol = static_cast<std::uint8_t>(octet(packet, at.offset));
  if (from == 0 && !has_upper_header(protocol, payload.size())) {
    counters_.malformed.add();
    return {.problem = true, .code = icmp::code_first_fragment, .pointer = 0};
  }

  const Header header = Header::read(packet);
  const std::uint32_t id = read_32(packet, at.offset + 4);
  auto found = std::ranges::find_if(
      packets_, [&](const Packet& one) { return one.used && one.id == id && one.from == header.from && one.to == header.to; });
  if (found == packets_.end()) {
    const auto of_source = std::ranges::count_if(packets_, [&](const Packet& one) { return one.used && one.from == header.from; });
    found = std::ranges::find_if(packets_, [](const Packet& one) { return !one.used; });
    if (of_source >= packets_of_source_max || found == packets_.end()) return refused();
    *found = {.used = true, .from = header.from, .to = header.to, .id = id, .until_ms = now_ms + time_ms};
  }
  Packet& own = *found;
  if (own.ended) return refused();

  for (const Range& range : own.ranges) {
    if (range.from == from && range.to == to) return {};  // a repeated fragment (RFC 8200, 4.5: it may be ignored)
    if (from >= range.to || to <= range.from) continue;
    counters_.overlaps.add();
    drop_content(own);
    own.ended = true;
    return {};
  }
  // The last fragment tells the size, and no fragment may lie behind it.
  const bool contradicts =
      more ? own.size != 0 && to > own.size
           : (own.size != 0 && own.size != to) || std::ranges::any_of(own.ranges, [&](const Range& range) { return range.to > to; });
  if (contradicts) {
    counters_.malformed.add();
    drop_content(own);
    own.ended = true;
    return {};
  }
  if (own.ranges.size() == fragments_of_packet_max) {
    drop_content(own);
    own.ended = true;
    return refused();
  }
  try {
    const std::size_t before = memory_of(own);
    if (own.payload.size() < to) {
      if (own.payload.capacity() < to) {
        if (bytes_ + to > bytes_max) return refused();
        own.payload.reserve(to);
      }
      own.payload.resize(to);
    }
    std::ranges::copy(payload, own.payload.begin() + from);
    if (from == 0) {
      own.first.assign(packet.begin(), packet.begin() + static_cast<std::ptrdiff_t>(std::min(packet.size(), first_bytes_kept)));
      own.next = protocol;
    }
    own.ranges.push_back({.from = from, .to = to});
    bytes_ += memory_of(own) - before;
  } catch (const std::bad_alloc&) {
    bytes_ = 0;
    for (const Packet& one : packets_) bytes_ += memory_of(one);
    return refused();
  }
  if (!more) own.size = to;

  std::uint32_t filled = 0;
  for (const Range& range : own.ranges) filled += range.to - range.from;
  if (own.size == 0 || filled != own.size) return {};
  Result result;
  try {
    result.packet.resize(header_bytes + own.size);
  } catch (const std::bad_alloc&) {
    release(own);
    return refused();
  }
  Header{.payload_bytes = static_cast<std::uint16_t>(own.size), .next = own.next, .hops = header.hops, .from = own.from, .to = own.to}
      .write(result.packet.data());
  std::ranges::copy(std::span(own.payload).first(own.size), result.packet.begin() + header_bytes);
  release(own);
  counters_.reassembled.add();
  return result;
}

}  // namespace neap::net::ipv6
