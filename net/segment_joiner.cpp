// SPDX-License-Identifier: BSL-1.0
#include "net/segment_joiner.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <span>

#include "kernel/panic.hpp"
#include "lwip/def.h"
#include "lwip/ip.h"
#include "lwip/pbuf.h"
#include "lwip/prot/ethernet.h"
#include "lwip/prot/ip4.h"
#include "lwip/prot/tcp.h"
#include "net/object_pool.hpp"
#include "net/transmit_offload.hpp"

namespace neap::net {

namespace {

// lwIP sends TCP without IP options.
constexpr std::size_t ip_at = SIZEOF_ETH_HDR, tcp_at = ip_at + IP_HLEN, headers_bytes_min = tcp_at + TCP_HLEN;

template <typename T>
T read(const std::byte* at) noexcept {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

const std::byte* bytes_of(const pbuf& frame) noexcept { return static_cast<const std::byte*>(frame.payload); }
std::uint32_t sequence_of(const std::byte* frame) noexcept { return lwip_ntohl(read<std::uint32_t>(frame + tcp_at + 4)); }
std::uint16_t id_of(const std::byte* frame) noexcept { return lwip_ntohs(read<std::uint16_t>(frame + ip_at + 4)); }
unsigned flags_of(const std::byte* frame) noexcept { return std::to_integer<unsigned>(frame[tcp_at + 13]); }
std::uint32_t headers_bytes_of(const std::byte* frame) noexcept {
  return static_cast<std::uint32_t>(tcp_at) + (std::to_integer<std::uint32_t>(frame[tcp_at + 12]) >> 4) * 4;
}

/// True if the frame is a TCP segment over IPv4, is not a fragment, and has all headers in its first piece.
bool is_segment(const pbuf& frame) noexcept {
  if (frame.len < headers_bytes_min) return false;
  const std::byte* const bytes = bytes_of(frame);
  constexpr std::byte version_and_length{0x45};
  return read<std::uint16_t>(bytes + 12) == PP_HTONS(ETHTYPE_IP) && bytes[ip_at] == version_and_length &&
         (read<std::uint16_t>(bytes + ip_at + 6) & PP_HTONS(IP_OFFMASK | IP_MF)) == 0 && bytes[ip_at + 9] == std::byte{IP_PROTO_TCP} &&
         frame.len >= headers_bytes_of(bytes) && lwip_ntohs(read<std::uint16_t>(bytes + ip_at + 2)) + ip_at == frame.tot_len;
}

// --- Buffers of the form `copy` ----------------------------------------------------------------------------------------------------------
struct CopyBuffers {
  std::array<std::byte*, SegmentJoiner::copy_buffers_max> spare{};
  unsigned spare_count = 0, made = 0;

  std::byte* take() noexcept {
    if (spare_count > 0) return spare[--spare_count];
    if (made == spare.size()) return nullptr;
    auto* const buffer = new (std::nothrow) std::byte[SegmentJoiner::frame_bytes_max];
    if (buffer != nullptr) ++made;
    return buffer;
  }
  void give_back(std::byte* buffer) noexcept {
    require(spare_count < made, "no more copy buffers are returned than were taken", spare_count);
    spare[spare_count++] = buffer;
  }
  void trim() noexcept {
    made -= spare_count;
    while (spare_count > 0) delete[] spare[--spare_count];
  }
};
constinit thread_local CopyBuffers copy_buffers;

}  // namespace

/// The memory that a joined frame holds until the card has read the frame. Other files see it as a pbuf; freeing that pbuf releases all
/// memory.
struct JoinedFrame {
  JoinedFrame() noexcept {}  // NOLINT(cppcoreguidelines-pro-type-member-init,modernize-use-equals-default): nothing is cleared

  pbuf_custom custom;         // MUST be first: lwIP frees the object by this address
  std::byte* copy = nullptr;  // the buffer, if the form is `copy`
  unsigned held = 0;          // held segments, if the form is `chain`
  std::array<pbuf*, SegmentJoiner::segments_max> segments;
  std::array<std::byte, SegmentJoiner::headers_bytes_max> headers;
};

namespace {

constinit thread_local ObjectPool<JoinedFrame, 64> joined_frames;

void joined_frame_freed(pbuf* token) noexcept {
  auto* const joined = reinterpret_cast<JoinedFrame*>(token);
  for (pbuf* const segment : std::span(joined->segments).first(joined->held)) pbuf_free(segment);
  if (joined->copy != nullptr) copy_buffers.give_back(joined->copy);
  joined_frames.give_back(joined);
}

}  // namespace

SegmentJoiner::SegmentJoiner(const NetDeviceLimits& limits) noexcept
    : pieces_limit_(std::min(pieces_max, limits.transmit_pieces_max)), bytes_limit_(std::min(frame_bytes_max, limits.tso_bytes_max)) {}

const char* SegmentJoiner::unsupported_reason(const NetDeviceLimits& limits) noexcept {
  if (limits.tso_bytes_max == 0) return "the network card cannot segment";
  if (!limits.checksum_offload) return "the network card does not fill in checksums";
  return nullptr;
}

bool SegmentJoiner::begin(pbuf& frame, policy::Segmentation form) noexcept {
  require(segments_ == 0, "one frame is held at a time", segments_);
  if (!is_segment(frame)) return false;
  const std::byte* const bytes = bytes_of(frame);
  const std::uint32_t headers_bytes = headers_bytes_of(bytes);
  if (flags_of(bytes) != TCP_ACK || frame.tot_len < headers_bytes + segment_bytes_min) return false;
  count_ = 0;
  if (!add_pieces(frame, 0)) return false;
  pbuf_ref(&frame);
  first_ = &frame;
  joined_ = nullptr;
  form_ = form;
  segments_ = 1;
  last_ = push_ = false;
  headers_bytes_ = headers_bytes;
  segment_bytes_ = frame.tot_len - headers_bytes;
  bytes_ = frame.tot_len;
  next_sequence_ = sequence_of(bytes) + segment_bytes_;
  next_id_ = static_cast<std::uint16_t>(id_of(bytes) + 1);
  require(headers_bytes <= headers_.size(), "headers fit into the joined frame", headers_bytes);
  std::copy_n(bytes, headers_bytes, headers_.begin());
  return true;
}

// All header fields of `frame` MUST equal those of the first segment, except the fields that the card writes: length, identification,
// sequence number, PSH, checksums.
bool SegmentJoiner::follows(const pbuf& frame) const noexcept {
  if (!is_segment(frame)) return false;
  const std::byte* const bytes = bytes_of(frame);
  const auto same = [&](std::size_t from, std::size_t to) { return std::memcmp(bytes + from, &headers_[from], to - from) == 0; };
  return same(0, ip_at + 2) && same(ip_at + 6, ip_at + 10) && same(ip_at + 12, tcp_at + 4) && same(tcp_at + 8, tcp_at + 13) &&
         same(tcp_at + 14, tcp_at + 16) && same(tcp_at + 18, tcp_at + 20) && same(headers_bytes_min, headers_bytes_) &&
         (flags_of(bytes) & ~unsigned{TCP_PSH}) == TCP_ACK && sequence_of(bytes) == next_sequence_ && id_of(bytes) == next_id_;
}

bool SegmentJoiner::add(pbuf& frame) noexcept {
  if (segments_ == 0 || last_ || segments_ == segments_max || !follows(frame)) return false;
  const std::uint32_t payload_bytes = frame.tot_len - headers_bytes_;
  if (payload_bytes == 0 || payload_bytes > segment_bytes_ || bytes_ + payload_bytes > bytes_limit_) return false;
  if (segments_ == 1 && (!leaves_room_for(frame) || !make_joined())) return false;
  if (form_ == policy::Segmentation::copy) {
    require(payload_bytes <= frame_bytes_max - bytes_, "payload fits into the copy buffer", payload_bytes);
    pbuf_copy_partial(&frame, joined_->copy + bytes_, static_cast<u16_t>(payload_bytes), static_cast<u16_t>(headers_bytes_));
    pieces_[0].bytes += payload_bytes;
    counters_.copied_bytes.add(payload_bytes);
  } else {
    if (!add_pieces(frame, headers_bytes_)) return false;
    pbuf_ref(&frame);
    joined_->segments[joined_->held++] = &frame;
  }
  ++segments_;
  bytes_ += payload_bytes;
  next_sequence_ += payload_bytes;
  ++next_id_;
  push_ = (flags_of(bytes_of(frame)) & TCP_PSH) != 0;
  last_ = push_ || payload_bytes < segment_bytes_;
  return true;
}

// The joined frame needs a piece for its headers, the first segment's pieces and those of `second`. The sum is an upper bound, because
// adjacent pieces are merged later.
bool SegmentJoiner::leaves_room_for(const pbuf& second) const noexcept {
  return form_ == policy::Segmentation::copy || count_ + 1U + pbuf_clen(&second) <= pieces_limit_;
}

// Consecutive segments often hold adjacent payload, so their pieces are merged. Virtual addresses that are contiguous are also contiguous
// for the card (machine::physical_address).
bool SegmentJoiner::add_pieces(const pbuf& frame, std::uint32_t skip) noexcept {
  const unsigned count_before = count_;
  const std::uint32_t bytes_before = count_ > 0 ? pieces_[count_ - 1].bytes : 0;
  for (const pbuf* part = &frame; part != nullptr; part = part->next) {
    const std::byte* const data = bytes_of(*part) + skip;
    const std::uint32_t bytes = part->len - skip;
    skip = 0;
    if (bytes == 0) continue;
    if (count_ > 0 && pieces_[count_ - 1].data + pieces_[count_ - 1].bytes == data) {
      pieces_[count_ - 1].bytes += bytes;
      continue;
    }
    if (count_ == pieces_limit_) {
      count_ = count_before;
      if (count_ > 0) pieces_[count_ - 1].bytes = bytes_before;
      return false;
    }
    pieces_[count_++] = {.data = data, .bytes = bytes};
  }
  return true;
}

bool SegmentJoiner::make_joined() noexcept {
  const bool copy = form_ == policy::Segmentation::copy;
  JoinedFrame* const joined = joined_frames.take();
  std::byte* const buffer = copy && joined != nullptr ? copy_buffers.take() : nullptr;
  if (joined == nullptr || (copy && buffer == nullptr)) {
    if (joined != nullptr) joined_frames.give_back(joined);
    counters_.no_memory.add();
    return false;
  }
  joined->custom.custom_free_function = &joined_frame_freed;
  pbuf_alloced_custom(PBUF_RAW, 0, PBUF_REF, &joined->custom, nullptr, 0);
  joined_ = joined;
  if (copy) {
    require(first_->tot_len == bytes_ && bytes_ <= frame_bytes_max, "a segment fits into the copy buffer", bytes_);
    pbuf_copy_partial(first_, buffer, first_->tot_len, 0);
    pbuf_free(first_);
    joined->copy = buffer;
    pieces_[0] = {.data = buffer, .bytes = bytes_};
    count_ = 1;
    counters_.copied_bytes.add(bytes_);
  } else {
    joined->segments[joined->held++] = first_;
    if (pieces_[0].bytes != headers_bytes_) {
      std::copy_backward(pieces_.begin(), pieces_.begin() + count_, pieces_.begin() + count_ + 1);
      ++count_;
      pieces_[1] = {.data = pieces_[0].data + headers_bytes_, .bytes = pieces_[0].bytes - headers_bytes_};
    }
    pieces_[0] = {.data = joined->headers.data(), .bytes = headers_bytes_};
  }
  first_ = nullptr;
  return true;
}

// 82599 datasheet 7.2.4: the card fills in the lengths, so the pseudo-header's sum excludes them. The card sets PSH only in the last
// segment.
SegmentJoiner::Frame SegmentJoiner::frame() noexcept {
  require(holds(), "a frame is held before it is sent");
  Frame frame{.pieces = {pieces_.data(), count_}, .offload = {}, .token = first_, .bytes = bytes_, .segments = segments_};
  if (joined_ == nullptr) {
    frame.offload = offload_checksums(*first_);
    return frame;
  }
  auto& ip = *reinterpret_cast<ip_hdr*>(&headers_[ip_at]);
  auto& tcp = *reinterpret_cast<tcp_hdr*>(&headers_[tcp_at]);
  IPH_LEN_SET(&ip, 0);
  IPH_CHKSUM_SET(&ip, 0);
  if (push_) TCPH_SET_FLAG(&tcp, TCP_PSH);
  tcp.chksum = pseudo_header_sum(ip, 0);
  std::memcpy(joined_->copy != nullptr ? joined_->copy : joined_->headers.data(), headers_.data(), headers_bytes_);
  frame.offload = {.l3_bytes = IP_HLEN,
                   .l4_bytes = static_cast<std::uint8_t>(headers_bytes_ - tcp_at),
                   .checksums = Checksums::tcp_ipv4,
                   .segment_bytes = static_cast<std::uint16_t>(segment_bytes_)};
  frame.token = &joined_->custom.pbuf;
  return frame;
}

void SegmentJoiner::drop() noexcept {
  if (segments_ == 0) return;
  pbuf_free(joined_ != nullptr ? &joined_->custom.pbuf : first_);
  segments_ = 0;
}

void SegmentJoiner::trim() noexcept {
  joined_frames.trim();
  copy_buffers.trim();
}

}  // namespace neap::net
