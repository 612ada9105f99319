// SPDX-License-Identifier: BSL-1.0
#include "drivers/virtio/transmit_queue.hpp"

#include <algorithm>
#include <new>
#include <span>
#include <utility>

namespace neap::virtio {

Result<void> TransmitQueue::prepare(std::uint32_t descriptors, std::uint64_t features, std::uint32_t frame_bytes_max) {
  if (auto done = ring_.allocate(descriptors); !done) return done;
  indirect_ = (features & feature::indirect) != 0;
  checksums_ = (features & feature::checksum) != 0;
  segments_ = static_cast<std::uint8_t>(((features & feature::host_tso4) != 0 ? 1 : 0) | ((features & feature::host_tso6) != 0 ? 2 : 0));
  frame_bytes_max_ = frame_bytes_max;
  stride_shift_ = indirect_ ? 1 : std::bit_width(pieces_max_direct);
  slot_mask_ = (descriptors >> stride_shift_) - 1;
  auto headers = DmaMemory::allocate(std::size_t{slots()} * slot_bytes);
  if (!headers) return std::unexpected(headers.error());
  headers_ = std::move(*headers);
  if (indirect_) {
    auto tables = DmaMemory::allocate(std::size_t{slots()} * table_bytes);
    if (!tables) return std::unexpected(tables.error());
    tables_ = std::move(*tables);
  }
  tokens_.reset(new (std::nothrow) void*[slots()]());
  early_.reset(new (std::nothrow) bool[slots()]());
  if (!tokens_ || !early_) return failure(ErrorCode::out_of_memory, "virtio: no memory for the transmit ring's lists", descriptors);
  for (std::uint32_t slot = 0; slot < slots(); ++slot) {
    const std::uint32_t first = slot << stride_shift_;
    const std::uint64_t address = machine::physical_address(header_of(slot));
    store(ring_.descriptors()[first], address, frame_header_bytes, descriptor_flag::next, first + 1);
  }
  ring_.want_interrupts(false);
  return {};
}

// Accepts only header lengths that are plausible and fit a slot.
TransmitQueue::Run TransmitQueue::run_of(TransmitOffload offload) const noexcept {
  constexpr std::uint16_t tcp_checksum_at = 16, udp_checksum_at = 6;
  constexpr std::uint32_t ipv6_bytes = 40, tcp_bytes = 20;
  Run run;
  run.offload = std::bit_cast<std::uint64_t>(offload);
  const bool segment = offload.segment_bytes != 0;
  std::uint32_t copied = 0;
  if (offload.checksums == Checksums::none && !segment) {
    run.valid_max = frame_bytes_max_;
  } else {
    const std::uint32_t headers = offload.headers_bytes();
    const bool plausible = checksums_ && offload.l2_bytes >= ethernet_bytes &&
                           offload.l3_bytes >= (offload.ipv4() ? ipv4_bytes : ipv6_bytes) &&
                           headers <= std::min(headers_bytes_max, frame_bytes_max_);
    const bool cut = segment && offload.tcp() && offload.l4_bytes >= tcp_bytes && headers + offload.segment_bytes <= frame_bytes_max_ &&
                     (segments_ & (offload.ipv4() ? 1 : 2)) != 0;
    if (!plausible || segment != cut) return run;
    run.valid_min = headers + (segment ? 1 : 0);
    run.valid_max = segment ? tso_bytes_max : frame_bytes_max_;
    const auto l4_at = static_cast<std::uint16_t>(offload.l2_bytes + offload.l3_bytes);
    // 5.1.6.2: the device adds the sum from `checksum_start` on to the field, which holds that of the pseudo-header.
    if (offload.tcp() || offload.udp()) {
      run.header.flags = header_flag::needs_checksum;
      run.header.checksum_start = l4_at;
      run.header.checksum_offset = offload.tcp() ? tcp_checksum_at : udp_checksum_at;
    }
    if (segment) {
      run.header.segmentation = offload.ipv4() ? segmentation_tcp4 : segmentation_tcp6;
      run.header.header_bytes = static_cast<std::uint16_t>(headers);
      run.header.segment_bytes = offload.segment_bytes;
    }
    copied = segment ? headers : offload.ipv4() ? l4_at : 0;
  }
  run.head_bytes = frame_header_bytes + copied;
  run.copies = copied != 0;
  if (!segment && (copied == 0 || copied == ethernet_bytes + ipv4_bytes)) {
    run.bytes_min = std::max(run.valid_min, copied + 1);
    run.bytes_range = run.valid_max - run.bytes_min;
  }
  return run;
}

void TransmitQueue::copy_headers(std::byte* to, std::uint32_t copied, TransmitPieces pieces, TransmitOffload offload,
                                 std::uint32_t bytes) noexcept {
  std::uint32_t have = 0;
  for (std::size_t i = 0; have != copied; ++i) {
    const std::uint32_t more = std::min(pieces[i].bytes, copied - have);
    std::memcpy(to + have, pieces[i].data, more);
    have += more;
  }
  const auto put = [](std::byte* at, std::uint64_t value) {
    at[0] = static_cast<std::byte>(value >> 8);
    at[1] = static_cast<std::byte>(value);
  };
  const auto folded_sum = [](std::span<const std::byte> words, std::uint64_t sum) {
    for (std::size_t i = 0; i + 1 < words.size(); i += 2)
      sum += std::to_integer<std::uint64_t>(words[i]) << 8 | std::to_integer<std::uint64_t>(words[i + 1]);
    while (sum > 0xFFFF) sum = (sum & 0xFFFF) + (sum >> 16);
    return sum;
  };
  std::byte* const ip = to + offload.l2_bytes;
  constexpr std::uint32_t ipv6_bytes = 40;
  const std::uint32_t packet_bytes = bytes - offload.l2_bytes;
  if (offload.segment_bytes != 0) {
    put(ip + (offload.ipv4() ? 2 : 4), offload.ipv4() ? packet_bytes : packet_bytes - ipv6_bytes);
    std::byte* const checksum = ip + offload.l3_bytes + 16;
    put(checksum, folded_sum({checksum, 2}, packet_bytes - offload.l3_bytes));
  }
  if (offload.ipv4()) put(ip + 10, ~folded_sum({ip, offload.l3_bytes}, 0));
}

TransmitResult TransmitQueue::transmit(TransmitPieces pieces, TransmitOffload offload, void* token) noexcept {
  close_run();
  if (std::bit_cast<std::uint64_t>(offload) != run_.offload) run_ = run_of(offload);
  std::uint64_t bytes = 0;
  for (const TransmitPiece& piece : pieces) bytes += piece.bytes;
  if (bytes < run_.valid_min || bytes > run_.valid_max || pieces.size() > pieces_max()) {
    counters_.refused_invalid.add();
    return std::unexpected(ErrorCode::invalid);
  }
  if (free_slots() == 0) {
    counters_.refused_full.add();
    crowded_ = room_wanted_ = true;
    return std::unexpected(ErrorCode::full);
  }
  const std::uint32_t slot = next_ & slot_mask_, first = slot << stride_shift_;
  const auto frame_bytes = static_cast<std::uint32_t>(bytes);
  std::uint32_t copied = run_.head_bytes - frame_header_bytes;
  std::byte* const header = header_of(slot);
  std::memcpy(header, &run_.header, sizeof run_.header);
  if (copied != 0) copy_headers(header + frame_header_bytes, copied, pieces, offload, frame_bytes);
  // The second descriptor is never empty, so that the first one always continues in it. The last byte of an IPv4 header does not change.
  if (copied == frame_bytes) --copied;

  const bool direct = pieces.size() == 1 || !indirect_;
  Descriptor* const place = ring_.descriptors() + first;
  auto* const table = reinterpret_cast<Descriptor*>(direct ? nullptr : tables_.start() + std::size_t{slot} * table_bytes);
  Descriptor* const chain = direct ? place : table;
  const std::uint32_t base = direct ? first : 0;
  store(chain[0], machine::physical_address(header), frame_header_bytes + copied, descriptor_flag::next, base + 1);
  std::uint32_t count = 1;
  for (const TransmitPiece& piece : pieces) {
    const std::uint32_t skipped = std::min(piece.bytes, copied);
    copied -= skipped;
    if (piece.bytes == skipped) continue;
    store(chain[count], machine::physical_address(piece.data + skipped), piece.bytes - skipped, descriptor_flag::next, base + count + 1);
    ++count;
  }
  chain[count - 1].flags = 0;
  // A chain that the device reads indirectly begins at the slot's second descriptor, so that the first one keeps its contents.
  if (!direct)
    store(place[1], machine::physical_address(table), count * static_cast<std::uint32_t>(sizeof(Descriptor)), descriptor_flag::indirect, 0);
  ring_.offer(next_, direct ? first : first + 1);
  tokens_[slot] = token;
  ++next_;
  const FramesSent cut = frames_sent(frame_bytes, offload);
  segments_unflushed_ += cut.frames - 1;
  bytes_unflushed_ += cut.bytes;
  return {};
}

void TransmitQueue::flush() noexcept {
  close_run();
  const std::uint32_t frames = next_ - notified_;
  if (frames == 0 || fault_ != nullptr) return;
  notified_ = next_;
  if (ring_.publish(static_cast<std::uint16_t>(next_))) counters_.notifications.add();
  log::Traffic& traffic = traffic_;
  traffic.tx_descriptors.add(std::uint64_t{frames} * 2);
  traffic.tx_frames.add(frames + std::exchange(segments_unflushed_, 0));
  traffic.tx_bytes.add(std::exchange(bytes_unflushed_, 0));
  if (next_ - tokens_head_ >= slots() / 2) crowded_ = true;
}

void TransmitQueue::reclaim() noexcept {
  const std::uint32_t used = static_cast<std::uint16_t>(ring_.used_end() - seen_);
  if (used == 0 || fault_ != nullptr) return;
  if (used > notified_ - clean_ - early_count_) [[unlikely]] {
    fault_ = "virtio: a used index runs ahead of the frames that were sent";
    return;
  }
  // A slot names its frame, whichever of its descriptors the device writes.
  const std::byte* const entries = ring_.used_entries();
  const std::uint32_t mask = ring_.size() - 1, slot_mask = slot_mask_, shift = stride_shift_, end = seen_ + used;
  std::uint32_t position = seen_;
  if (early_count_ == 0) [[likely]] {
    std::uint32_t clean = clean_;
    for (; position != end; ++position, ++clean) {
      std::uint32_t id = 0;
      std::memcpy(&id, entries + std::size_t{position & mask} * sizeof(UsedEntry), sizeof id);
      if (id >> shift != (clean & slot_mask)) [[unlikely]]
        break;
    }
    clean_ = clean;
  }
  for (; position != end; ++position) {
    if (!take_early(ring_.used_entry(position).id >> shift)) {
      fault_ = "virtio: a used entry names a transmit descriptor that is not in use";
      return;
    }
  }
  seen_ = static_cast<std::uint16_t>(end);
  ring_.seen(seen_);
}

bool TransmitQueue::take_early(std::uint32_t slot) noexcept {
  if (slot > slot_mask_ || early_[slot]) return false;
  if (((slot - clean_) & slot_mask_) >= notified_ - clean_) return false;
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
  close_run();
  const bool room = room_wanted_ && free_slots() != 0;
  room_wanted_ &= !room;
  crowded_ = room_wanted_ || next_ - tokens_head_ >= slots() / 2;
  if (room) receiver.transmit_room();
}

void TransmitQueue::empty() noexcept {
  counters_.lost.add(pending());
  fault_ = fault_ != nullptr ? fault_ : "virtio: the device is closed";
  close_run();
  clean_ = notified_ = next_;
  room_wanted_ = crowded_ = false;
}

}  // namespace neap::virtio
