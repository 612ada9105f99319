// SPDX-License-Identifier: BSL-1.0
#include "drivers/virtio/transmit_queue.hpp"

#include <algorithm>
#include <new>
#include <utility>

namespace neap::virtio {

Result<void> TransmitQueue::prepare(std::uint32_t descriptors, std::uint64_t features, std::uint32_t frame_bytes_max) {
  if (auto done = ring_.allocate(descriptors); !done) return done;
  features_ = features;
  frame_bytes_max_ = frame_bytes_max;
  slot_mask_ = descriptors / slot_descriptors - 1;
  auto headers = DmaMemory::allocate(std::size_t{slots()} * header_stride);
  if (!headers) return std::unexpected(headers.error());
  headers_ = std::move(*headers);
  if ((features & feature::indirect) != 0) {
    auto tables = DmaMemory::allocate(std::size_t{slots()} * table_bytes);
    if (!tables) return std::unexpected(tables.error());
    tables_ = std::move(*tables);
  }
  tokens_.reset(new (std::nothrow) void*[slots()]());
  early_.reset(new (std::nothrow) bool[slots()]());
  if (!tokens_ || !early_) return failure(ErrorCode::out_of_memory, "virtio: no memory for the transmit ring's lists", descriptors);
  for (std::uint32_t slot = 0; slot < slots(); ++slot) {
    const std::uint32_t first = slot_descriptors * slot;
    ring_.descriptors()[first].store(headers_.bus_address() + std::size_t{slot} * header_stride, frame_header_bytes, descriptor_flag::next,
                                     first + 1);
    ring_.offer(slot, first);
    ring_.offer(slots() + slot, first);
  }
  ring_.want_interrupts(false);
  return {};
}

TransmitQueue::Alike TransmitQueue::alike_of(TransmitOffload offload) const noexcept {
  constexpr std::uint16_t tcp_checksum_at = 16, udp_checksum_at = 6;
  const bool cut = offload.segment_bytes != 0, sums = offload.tcp() || offload.udp();  // the checksum of IPv4 is the stack's work
  const std::uint64_t needs = (sums ? feature::checksum : 0) | (!cut ? 0 : offload.ipv4() ? feature::host_tso4 : feature::host_tso6);
  Alike alike{.lengths = {}, .offload = std::bit_cast<std::uint64_t>(offload), .header = {}};
  if ((features_ & needs) == needs) alike.lengths = frame_lengths(offload, frame_bytes_max_, tso_bytes_max);
  if (!sums) return alike;
  // 5.1.6.2: the device adds the sum from `checksum_start` on to the field, which holds that of the pseudo-header.
  alike.header.flags = header_flag::needs_checksum;
  alike.header.checksum_start = static_cast<std::uint16_t>(offload.l2_bytes + offload.l3_bytes);
  alike.header.checksum_offset = offload.tcp() ? tcp_checksum_at : udp_checksum_at;
  if (cut) {
    alike.header.segmentation = offload.ipv4() ? segmentation_tcp4 : segmentation_tcp6;
    alike.header.header_bytes = static_cast<std::uint16_t>(offload.headers_bytes());
    alike.header.segment_bytes = offload.segment_bytes;
  }
  return alike;
}

TransmitResult TransmitQueue::transmit(TransmitPieces pieces, TransmitOffload offload, void* token) noexcept {
  if (std::bit_cast<std::uint64_t>(offload) != alike_.offload) alike_ = alike_of(offload);
  std::uint64_t bytes = 0;
  for (const TransmitPiece& piece : pieces) bytes += piece.bytes;
  if (!alike_.lengths.contain(bytes) || pieces.size() > pieces_max()) {
    counters_.refused_invalid.add();
    return std::unexpected(ErrorCode::invalid);
  }
  if (free_slots() == 0) {
    counters_.refused_full.add();
    crowded_ = room_wanted_ = true;
    return std::unexpected(ErrorCode::full);
  }
  const std::uint32_t slot = next_ & slot_mask_;
  std::byte* const header = headers_.start() + std::size_t{slot} * header_stride;
  std::memcpy(header, &alike_.header, sizeof alike_.header);
  if (pieces.size() == 1) {
    place_of(slot)->store(machine::physical_address(pieces[0].data), pieces[0].bytes);
  } else {
    auto* const table = reinterpret_cast<Descriptor*>(tables_.start() + std::size_t{slot} * table_bytes);
    table[0].store(machine::physical_address(header), frame_header_bytes, descriptor_flag::next, 1);
    std::uint32_t count = 1;
    for (const TransmitPiece& piece : pieces) {
      if (piece.bytes == 0) continue;
      table[count].store(machine::physical_address(piece.data), piece.bytes, descriptor_flag::next, count + 1);
      ++count;
    }
    table[count - 1].flags = 0;
    place_of(slot)->store(machine::physical_address(table), count * static_cast<std::uint32_t>(sizeof(Descriptor)),
                          descriptor_flag::indirect);
    ring_.offer(next_, slot_descriptors * slot + 1);
  }
  tokens_[slot] = token;
  run_end_ = ++next_;
  const FramesSent cut = frames_sent(static_cast<std::uint32_t>(bytes), offload);
  segments_unflushed_ += cut.frames - 1;
  bytes_unflushed_ += cut.bytes;
  return {};
}

void TransmitQueue::flush() noexcept {
  run_end_ = next_;
  const std::uint32_t frames = next_ - notified_;
  if (frames == 0 || fault_ != nullptr) return;
  notified_ = next_;
  if (ring_.publish(static_cast<std::uint16_t>(next_))) counters_.notifications.add();
  traffic_.tx_descriptors.add(std::uint64_t{frames} * slot_descriptors);
  traffic_.tx_frames.add(frames + std::exchange(segments_unflushed_, 0));
  traffic_.tx_bytes.add(std::exchange(bytes_unflushed_, 0));
  if (next_ - tokens_head_ >= slots() / 2) crowded_ = true;
}

void TransmitQueue::reclaim() noexcept {
  const std::uint16_t used_end = ring_.used_end();
  const std::uint32_t used = static_cast<std::uint16_t>(used_end - seen());
  if (used == 0 || fault_ != nullptr) return;
  if (used > notified_ - clean_ - early_count_) [[unlikely]] {
    fault_ = "virtio: a used index runs ahead of the frames that were sent";
    return;
  }
  if (early_count_ == 0) [[likely]] {
    // The device mostly uses chains in order. Then a frame's number gives the position of its used entry and its first descriptor.
    const Ring::UsedEntries entries = ring_.used_entries();
    const std::uint32_t end = clean_ + used;
    std::uint32_t clean = clean_;
    while (clean != end && entries.at(clean & entries.mask).id == (slot_descriptors * clean & entries.mask)) ++clean;
    clean_ = clean;
  }
  while (seen() != used_end) {
    if (!take(ring_.used_entry(seen()).id)) {
      fault_ = "virtio: a used entry names a transmit descriptor that is not in use";
      return;
    }
  }
  ring_.seen(used_end);
}

bool TransmitQueue::take(std::uint32_t id) noexcept {
  const std::uint32_t slot = id / slot_descriptors, ahead = (slot - clean_) & slot_mask_;
  if (slot > slot_mask_ || ahead >= notified_ - clean_ || early_[slot]) return false;
  ring_.offer(clean_ + ahead, slot_descriptors * slot);
  early_[slot] = true;
  ++early_count_;
  for (; early_count_ != 0 && early_[clean_ & slot_mask_]; ++clean_, --early_count_) early_[clean_ & slot_mask_] = false;
  return true;
}

void TransmitQueue::deliver(FrameReceiver& receiver) noexcept {
  // One call passes at most 32 contiguous tokens. Their slots stay in use during the call, in which the stack may queue new frames.
  constexpr std::uint32_t tokens_max = 32;
  while (tokens_head_ != clean_) {
    const std::uint32_t first = tokens_head_ & slot_mask_;
    const std::uint32_t count = std::min(std::min(clean_ - tokens_head_, slots() - first), tokens_max);
    receiver.transmitted({&tokens_[first], count});
    tokens_head_ += count;
  }
  if (!crowded_) [[likely]]
    return;
  const bool room = room_wanted_ && free_slots() != 0;
  room_wanted_ &= !room;
  crowded_ = room_wanted_ || next_ - tokens_head_ >= slots() / 2;
  if (room) receiver.transmit_room();
}

void TransmitQueue::empty() noexcept {
  counters_.lost.add(pending());
  fault_ = fault_ != nullptr ? fault_ : "virtio: the device is closed";
  run_end_ = clean_ = notified_ = next_;
  early_count_ = 0;
  room_wanted_ = crowded_ = false;
}

}  // namespace neap::virtio
