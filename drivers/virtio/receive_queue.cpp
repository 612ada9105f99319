// SPDX-License-Identifier: BSL-1.0
#include "drivers/virtio/receive_queue.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

namespace neap::virtio {

namespace {

constexpr std::uint32_t ethernet_bytes = 14, ipv4_bytes = 20;
constexpr std::uint32_t used_bytes_min = frame_header_bytes + ethernet_bytes;
constexpr std::uint32_t used_bytes_range = ReceivePool::buffer_bytes - used_bytes_min;

template <class T>
[[gnu::always_inline]] inline T load(const std::byte* at) noexcept {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

/// The first byte of a buffer's memory.
[[gnu::always_inline]] inline std::byte* start_of(const ReceiveBuffer& buffer) noexcept {
  return reinterpret_cast<std::byte*>(reinterpret_cast<std::uintptr_t>(buffer.data) & ~std::uintptr_t{ReceivePool::buffer_bytes - 1});
}

/// True if the frame has an IPv4 header without options, whose checksum is right.
[[gnu::always_inline]] inline bool ipv4_sum_is_good(const std::byte* frame) noexcept {
  constexpr std::uint32_t type_mask = 0x00FF'FFFF, type = 0x0045'0008;  // EtherType IPv4, version 4, 20 bytes
  if ((load<std::uint32_t>(frame + ethernet_bytes - 2) & type_mask) != type) return false;
  const std::byte* const ip = frame + ethernet_bytes;
  const auto first = load<std::uint64_t>(ip), second = load<std::uint64_t>(ip + 8);
  std::uint64_t sum = first + second;
  sum += sum < second ? 1 : 0;
  const std::uint64_t third = load<std::uint32_t>(ip + 16);
  sum += third;
  sum += sum < third ? 1 : 0;
  // The sum of 16-bit words is a multiple of 65535. A number is a multiple of an odd divisor if its product with the divisor's inverse is
  // at most the largest number divided by the divisor (Granlund and Montgomery, 1994). The sum is not zero, because of the version.
  constexpr std::uint64_t inverse = 0xFFFE'FFFE'FFFE'FFFF;
  static_assert(inverse * 65535 == 1);
  return sum * inverse <= ~std::uint64_t{0} / 65535;
}

}  // namespace

Result<void> ReceiveQueue::prepare(std::uint32_t descriptors, std::uint64_t features) {
  if (auto done = ring_.allocate(descriptors); !done) return done;
  if (auto done = pool_.grow_to(descriptors + buffers_beyond_ring); !done) return done;
  buffers_.reset(new (std::nothrow) Buffer*[descriptors]());
  free_ids_.reset(new (std::nothrow) std::uint16_t[descriptors]);
  if (!buffers_ || !free_ids_) return failure(ErrorCode::out_of_memory, "virtio: no memory for the receive ring's lists", descriptors);
  for (std::uint32_t i = 0; i < descriptors; ++i) {
    free_ids_[i] = static_cast<std::uint16_t>(i);
    ring_.descriptors()[i] = {.address = 0, .bytes = ReceivePool::buffer_bytes, .flags = descriptor_flag::device_writes, .next = 0};
  }
  merges_ = (features & feature::merged_buffers) != 0;
  // 5.1.6.4.1: the checksum of a frame that never was on a wire is only begun, and such a frame is intact.
  if ((features & feature::guest_checksum) != 0) checked_flags_ = header_flag::needs_checksum | header_flag::data_valid;
  return {};
}

[[gnu::always_inline]] inline ReceiveInfo ReceiveQueue::info_of(std::uint8_t flags, const std::byte* frame,
                                                                std::uint32_t bytes) const noexcept {
  if ((flags & checked_flags_) == 0 || bytes < ethernet_bytes + ipv4_bytes) return {};
  // If the header's sum is wrong, the stack finds that: no frame is dropped here.
  return ReceiveInfo(ipv4_sum_is_good(frame) ? ReceiveInfo::l4_good | ReceiveInfo::ip_good : ReceiveInfo::l4_good);
}

unsigned ReceiveQueue::receive_ready(FrameReceiver& receiver, unsigned budget) noexcept {
  const std::uint32_t used = static_cast<std::uint16_t>(ring_.used_end() - seen_);
  if (used > posted_) [[unlikely]] {
    fault_ = "virtio: a used index runs ahead of the buffers that were posted";
    return 0;
  }
  const std::uint32_t count = std::min(std::min(used, budget), budget_max);
  Buffer** const buffers = buffers_.get();
  ReceivedFrame* out = frames_.data();
  std::uint32_t bytes = 0, taken = 0;
  for (; taken != count; ++taken) {
    const std::uint32_t position = seen_ + taken;
    const UsedEntry entry = ring_.used_entry(position);
    Buffer* const buffer = entry.id < ring_.size() ? std::exchange(buffers[entry.id], nullptr) : nullptr;
    if (buffer == nullptr) [[unlikely]] {
      fault_ = "virtio: a used entry names a receive descriptor that is not in use";
      break;
    }
    free_ids_[ring_.slot(position)] = static_cast<std::uint16_t>(entry.id);
    const std::byte* const start = buffer->data - frame_header_bytes;
    const auto header = load<FrameHeader>(start);
    if (missing_ == 0 && entry.bytes - used_bytes_min <= used_bytes_range && (header.buffers == 1 || !merges_)) [[likely]] {
      const std::uint32_t frame_bytes = entry.bytes - frame_header_bytes;
      buffer->bytes = frame_bytes;
      buffer->next = nullptr;
      *out++ = {.frame = buffer, .info = info_of(header.flags, buffer->data, frame_bytes)};
      bytes += frame_bytes;
      continue;
    }
    Buffer* const frame = take_piece(entry, buffer);
    if (fault_ != nullptr) break;
    bytes += buffer->bytes;
    if (frame != nullptr) *out++ = {.frame = frame, .info = unfinished_info_};
  }
  seen_ = static_cast<std::uint16_t>(seen_ + taken);
  posted_ -= taken;
  ring_.seen(seen_);
  const auto frames = static_cast<std::size_t>(out - frames_.data());
  log::Traffic& traffic = traffic_;
  traffic.rx_descriptors.add(taken);
  traffic.rx_frames.add(frames);
  traffic.rx_bytes.add(bytes);
  if (frames != 0) [[likely]]
    receiver.receive({frames_.data(), frames});
  return taken;
}

ReceiveQueue::Buffer* ReceiveQueue::take_piece(UsedEntry entry, Buffer* buffer) noexcept {
  const bool first = missing_ == 0;
  const auto header = load<FrameHeader>(buffer->data - frame_header_bytes);
  buffer->bytes = 0;
  buffer->next = nullptr;
  if (entry.bytes > ReceivePool::buffer_bytes) {
    fault_ = "virtio: a used entry is longer than its receive buffer";
  } else if (first && entry.bytes >= frame_header_bytes && merges_ && (header.buffers == 0 || header.buffers > ring_.size())) {
    fault_ = "virtio: a frame has an impossible number of buffers";
  } else if (!first && entry.bytes == 0) {
    fault_ = "virtio: a frame continues in an empty buffer";
  }
  if (fault_ != nullptr) {
    pool_.put_back(buffer);
    return nullptr;
  }
  if (!first) {
    buffer->data -= frame_header_bytes;
    buffer->bytes = entry.bytes;
    unfinished_->last->next = buffer;
    unfinished_->last = buffer;
    return --missing_ == 0 ? std::exchange(unfinished_, nullptr) : nullptr;
  }
  if (entry.bytes < used_bytes_min) {
    // The further buffers of such a frame would be taken for frames of their own.
    if (entry.bytes >= frame_header_bytes && merges_ && header.buffers != 1) fault_ = "virtio: the first buffer of a frame is nearly empty";
    counters_.dropped_short.add();
    pool_.put_back(buffer);
    return nullptr;
  }
  counters_.merged.add();
  buffer->bytes = entry.bytes - frame_header_bytes;
  buffer->last = buffer;
  unfinished_ = buffer;
  unfinished_info_ = info_of(header.flags, buffer->data, buffer->bytes);
  missing_ = header.buffers - 1U;
  return nullptr;
}

void ReceiveQueue::post_batches() noexcept {
  const std::uint16_t before = next_;
  while (posted_ + refill_batch_descriptors <= ring_.size()) {
    if (pool_.available() < refill_batch_descriptors) [[unlikely]] {
      counters_.pool_empty.add();
      if (wanted_ != nullptr) pool_.call_when(refill_batch_descriptors, wanted_, wanted_context_);
      break;
    }
    // A batch is contiguous in all lists, because it begins at a multiple of its size, which divides the ring's size.
    const std::uint16_t* const ids = &free_ids_[ring_.slot(next_)];
    pool_.take<refill_batch_descriptors>([&](std::uint32_t i, Buffer* buffer) {
      const std::uint32_t id = ids[i];
      buffer->data = start_of(*buffer) + frame_header_bytes;
      buffers_[id] = buffer;
      ring_.descriptors()[id].address = buffer->bus_address;
      ring_.offer(next_ + i, id);
    });
    next_ = static_cast<std::uint16_t>(next_ + refill_batch_descriptors);
    posted_ += refill_batch_descriptors;
  }
  if (next_ != before && ring_.publish(next_)) counters_.notifications.add();
}

void ReceiveQueue::empty() noexcept {
  if (!buffers_) return;
  fault_ = fault_ != nullptr ? fault_ : "virtio: the device is closed";
  for (ReceiveBuffer* piece = std::exchange(unfinished_, nullptr); piece != nullptr;) std::exchange(piece, piece->next)->release();
  for (std::uint32_t i = 0; i < ring_.size(); ++i) {
    if (Buffer* const buffer = std::exchange(buffers_[i], nullptr)) pool_.put_back(buffer);
  }
  // No more room than now: `refill` does nothing from here on.
  posted_ = ring_.size();
}

}  // namespace neap::virtio
