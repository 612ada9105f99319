// SPDX-License-Identifier: BSL-1.0
#include "drivers/virtio/receive_queue.hpp"

#include <algorithm>
#include <new>
#include <utility>

namespace neap::virtio {

namespace {

constexpr std::uint32_t ethernet_bytes = 14;
constexpr std::uint32_t used_bytes_min = frame_header_bytes + ethernet_bytes;
constexpr std::uint32_t used_bytes_range = ReceivePool::buffer_bytes - used_bytes_min;

/// The header before a frame whose first byte is at `frame`.
[[gnu::always_inline]] inline const FrameHeader& header_of(const std::byte* frame) noexcept {
  return *reinterpret_cast<const FrameHeader*>(frame - frame_header_bytes);
}

[[gnu::always_inline]] inline ReceiveInfo info_of(std::uint8_t flags, std::uint8_t checked_flags) noexcept {
  return ReceiveInfo((flags & checked_flags) != 0 ? ReceiveInfo::l4_good : 0);
}

}  // namespace

Result<void> ReceiveQueue::prepare(std::uint32_t descriptors, std::uint64_t features) {
  if (auto done = ring_.allocate(descriptors); !done) return done;
  if (auto done = pool_.grow_to(descriptors + buffers_beyond_ring); !done) return done;
  buffers_.reset(new (std::nothrow) Buffer*[descriptors]());
  ids_.reset(new (std::nothrow) std::uint32_t[descriptors]);
  if (!buffers_ || !ids_) return failure(ErrorCode::out_of_memory, "virtio: no memory for the receive ring's lists", descriptors);
  for (std::uint32_t i = 0; i < descriptors; ++i) {
    ids_[i] = i;
    ring_.offer(i, i);
    ring_.descriptors()[i].store(0, ReceivePool::buffer_bytes, descriptor_flag::device_writes);
  }
  merges_ = (features & feature::merged_buffers) != 0;
  // 5.1.6.4.1: the checksum of a frame that never was on a wire is only begun, and such a frame is intact.
  if ((features & feature::guest_checksum) != 0) checked_flags_ = header_flag::needs_checksum | header_flag::data_valid;
  return {};
}

unsigned ReceiveQueue::receive_ready(FrameReceiver& receiver, unsigned budget) noexcept {
  const std::uint32_t used = static_cast<std::uint16_t>(ring_.used_end() - seen_);
  if (used > posted()) [[unlikely]] {
    fault_ = "virtio: a used index runs ahead of the buffers that were posted";
    return 0;
  }
  const std::uint32_t begin = seen_, end = begin + std::min(std::min(used, budget), budget_max);
  ReceivedFrame* out = frames_.data();
  std::uint32_t bytes = 0, position = begin;
  while (fault_ == nullptr) {
    if (missing_ == 0) [[likely]]
      position = take_whole(position, end, out, bytes);
    if (position == end) [[likely]]
      break;
    position += take_any(position, out, bytes) ? 1 : 0;
  }
  const std::uint32_t taken = position - begin;
  const auto frames = static_cast<std::size_t>(out - frames_.data());
  seen_ = static_cast<std::uint16_t>(position);
  ring_.seen(seen_);
  traffic_.rx_descriptors.add(taken);
  traffic_.rx_frames.add(frames);
  traffic_.rx_bytes.add(bytes);
  if (frames != 0) [[likely]]
    receiver.receive({frames_.data(), frames});
  return taken;
}

[[gnu::always_inline]] inline std::uint32_t ReceiveQueue::take_whole(std::uint32_t position, std::uint32_t end, ReceivedFrame*& out,
                                                                     std::uint32_t& bytes) noexcept {
  // These values do not change in the loop.
  Buffer* const* const buffers = buffers_.get();
  const std::uint32_t* const ids = ids_.get();
  const Ring::UsedEntries entries = ring_.used_entries();
  const std::uint8_t checked_flags = checked_flags_;
  ReceivedFrame* place = out;
  std::uint32_t sum = bytes;
  for (; position != end; ++position) {
    const std::uint32_t slot = position & entries.mask;
    const UsedEntry entry = entries.at(slot);
    if (entry.id != ids[slot] || entry.bytes - used_bytes_min > used_bytes_range) [[unlikely]]
      break;
    Buffer* const buffer = buffers[slot];
    const std::byte* const frame = buffer->data;
    if (header_of(frame).buffers != 1 && merges_) [[unlikely]]
      break;
    buffer->bytes = entry.bytes - frame_header_bytes;
    buffer->next = nullptr;
    sum += entry.bytes - frame_header_bytes;
    *place++ = {.frame = buffer, .info = info_of(header_of(frame).flags, checked_flags)};
  }
  out = place;
  bytes = sum;
  return position;
}

bool ReceiveQueue::take_any(std::uint32_t position, ReceivedFrame*& out, std::uint32_t& bytes) noexcept {
  const std::uint32_t slot = ring_.slot(position);
  const UsedEntry entry = ring_.used_entry(position);
  if (entry.id != ids_[slot] && !reorder(position, entry.id)) {
    fault_ = "virtio: a used entry names a receive descriptor that is not in use";
    return false;
  }
  Buffer* const buffer = buffers_[slot];
  const bool first = missing_ == 0, is_short = entry.bytes < (first ? used_bytes_min : 1);
  const FrameHeader header = header_of(buffer->data);
  const std::uint32_t count = merges_ && entry.bytes >= frame_header_bytes ? header.buffers : 1;
  if (entry.bytes > ReceivePool::buffer_bytes) {
    fault_ = "virtio: a used entry is longer than its receive buffer";
  } else if (first && (count == 0 || count > ring_.size())) {
    fault_ = "virtio: a frame has an impossible number of buffers";
  } else if (is_short && (!first || count != 1)) {
    fault_ = "virtio: a buffer of a frame in several buffers is nearly empty";  // the next ones would be taken for other frames
  }
  if (fault_ != nullptr || is_short) {
    if (is_short) counters_.dropped_short.add();
    pool_.put_back(buffer);
    return true;
  }
  buffer->bytes = entry.bytes;
  buffer->next = nullptr;
  if (first) {
    buffer->bytes -= frame_header_bytes;
    unfinished_info_ = info_of(header.flags, checked_flags_);
    unfinished_ = buffer;
    missing_ = count;
    if (count != 1) counters_.merged.add();
  } else {
    buffer->data -= frame_header_bytes;
    buffer->return_to = &release_continued;
    unfinished_->last->next = buffer;
  }
  unfinished_->last = buffer;
  bytes += buffer->bytes;
  if (--missing_ == 0) *out++ = {.frame = std::exchange(unfinished_, nullptr), .info = unfinished_info_};
  return true;
}

// The device has read the available entries of both positions. Each gets the number of the descriptor that the position has from now on.
bool ReceiveQueue::reorder(std::uint32_t position, std::uint32_t id) noexcept {
  const std::uint32_t here = ring_.slot(position);
  for (auto other = static_cast<std::uint16_t>(position); other != next_; ++other) {
    const std::uint32_t there = ring_.slot(other);
    if (ids_[there] != id) continue;
    std::swap(ids_[here], ids_[there]);
    std::swap(buffers_[here], buffers_[there]);
    ring_.offer(here, ids_[here]);
    ring_.offer(there, ids_[there]);
    return true;
  }
  return false;
}

// A buffer that continued a frame begins later again.
void ReceiveQueue::release_continued(ReceiveBuffer* buffer) noexcept {
  buffer->data += frame_header_bytes;
  buffer->return_to = &ReceivePool::release;
  ReceivePool::release(buffer);
}

void ReceiveQueue::post_batches() noexcept {
  const std::uint16_t before = next_;
  while (has_room()) {
    if (!pool_.has(refill_batch_descriptors)) [[unlikely]] {
      counters_.pool_empty.add();
      break;
    }
    // A batch is contiguous in the lists, because it begins at a multiple of its size, which divides the ring's size.
    const std::uint32_t slot = ring_.slot(next_);
    pool_.take<refill_batch_descriptors>(
        [buffers = &buffers_[slot], ids = &ids_[slot], descriptors = ring_.descriptors()](std::uint32_t i, Buffer* buffer) {
          buffers[i] = buffer;
          descriptors[ids[i]].address = buffer->bus_address;
        });
    next_ = static_cast<std::uint16_t>(next_ + refill_batch_descriptors);
  }
  if (next_ != before && ring_.publish(next_)) counters_.notifications.add();
}

void ReceiveQueue::empty() noexcept {
  if (!buffers_) return;
  fault_ = fault_ != nullptr ? fault_ : "virtio: the device is closed";
  for (ReceiveBuffer* piece = std::exchange(unfinished_, nullptr); piece != nullptr;) std::exchange(piece, piece->next)->release();
  for (; seen_ != next_; ++seen_) pool_.put_back(buffers_[ring_.slot(seen_)]);
}

}  // namespace neap::virtio
