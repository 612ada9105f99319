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
// Shorter frames are rare, and are no IPv4.
constexpr std::uint32_t usual_bytes_min = used_bytes_min + ipv4_bytes;
constexpr std::uint32_t usual_bytes_range = ReceivePool::buffer_bytes - usual_bytes_min;

template <class T>
[[gnu::always_inline]] inline T load(const std::byte* at) noexcept {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

/// True if the frame has an IPv4 header without options, whose checksum is right.
[[gnu::always_inline]] inline bool ipv4_sum_is_good(const std::byte* frame) noexcept {
  constexpr std::uint32_t type_mask = 0x00FF'FFFF, type = 0x0045'0008;  // EtherType IPv4, version 4, 20 bytes
  if ((load<std::uint32_t>(frame + ethernet_bytes - 2) & type_mask) != type) return false;
  const std::byte* const ip = frame + ethernet_bytes;
  const auto first = load<std::uint64_t>(ip), second = load<std::uint64_t>(ip + 8);
  // Two 64-bit additions with end-around carry: 2^64 is 1 modulo 65535.
  unsigned long long sum = 0, total = 0;
  const unsigned char carry = __builtin_ia32_addcarryx_u64(0, first, second, &sum);
  const unsigned char last = __builtin_ia32_addcarryx_u64(carry, sum, load<std::uint32_t>(ip + 16), &total);
  total += last;
  // The sum of 16-bit words is a multiple of 65535. A number is a multiple of an odd divisor if its product with the divisor's inverse is
  // at most the largest number divided by the divisor (Granlund and Montgomery, 1994). The sum is not zero, because of the version.
  constexpr std::uint64_t inverse = 0xFFFE'FFFE'FFFE'FFFF;
  static_assert(inverse * 65535 == 1);
  return total * inverse <= ~std::uint64_t{0} / 65535;
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
    ring_.offer(i, i);
    ring_.descriptors()[i] = {.address = 0, .bytes = ReceivePool::buffer_bytes, .flags = descriptor_flag::device_writes, .next = 0};
  }
  merges_ = (features & feature::merged_buffers) != 0;
  // 5.1.6.4.1: the checksum of a frame that never was on a wire is only begun, and such a frame is intact.
  if ((features & feature::guest_checksum) != 0) checked_flags_ = header_flag::needs_checksum | header_flag::data_valid;
  return {};
}

// If the header's sum is wrong, the stack finds that: no frame is dropped here.
[[gnu::always_inline]] inline ReceiveInfo ReceiveQueue::info_of_checked(const std::byte* frame) noexcept {
  return ReceiveInfo(ipv4_sum_is_good(frame) ? ReceiveInfo::l4_good | ReceiveInfo::ip_good : ReceiveInfo::l4_good);
}

unsigned ReceiveQueue::receive_ready(FrameReceiver& receiver, unsigned budget) noexcept {
  const std::uint32_t used = static_cast<std::uint16_t>(ring_.used_end() - seen_);
  if (used > posted_) [[unlikely]] {
    fault_ = "virtio: a used index runs ahead of the buffers that were posted";
    return 0;
  }
  const std::uint32_t count = std::min(std::min(used, budget), budget_max);
  ReceivedFrame* out = frames_.data();
  std::uint32_t bytes = 0, taken = 0;
  if (in_order_ && missing_ == 0) [[likely]] {
    // Whole frames, whose descriptors are used in their turn. These values do not change in the loop.
    const std::byte* const entries = ring_.used_entries();
    Buffer* const* const buffers = buffers_.get();
    const std::uint32_t mask = ring_.size() - 1, end = seen_ + count;
    const std::uint8_t checked_flags = checked_flags_;
    const bool merges = merges_;
    std::uint32_t position = seen_;
    for (; position != end; ++position) {
      const std::uint32_t slot = position & mask;
      const std::byte* const at = entries + std::size_t{slot} * sizeof(UsedEntry);
      const auto used_bytes = load<std::uint32_t>(at + offsetof(UsedEntry, bytes));
      Buffer* const buffer = buffers[slot];
      const std::byte* const frame = buffer->data;
      if (load<std::uint32_t>(at) != slot || used_bytes - usual_bytes_min > usual_bytes_range) [[unlikely]]
        break;
      if (load<std::uint16_t>(frame - 2) != 1 && merges) [[unlikely]]
        break;
      const std::uint32_t frame_bytes = used_bytes - frame_header_bytes;
      buffer->bytes = frame_bytes;
      buffer->next = nullptr;
      bytes += frame_bytes;
      const auto flags = load<std::uint8_t>(frame - frame_header_bytes);
      *out++ = {.frame = buffer, .info = (flags & checked_flags) != 0 ? info_of_checked(frame) : ReceiveInfo{}};
    }
    taken = position - seen_;
  }
  if (taken != count) [[unlikely]]
    taken = take_any(taken, count, out, bytes);
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

std::uint32_t ReceiveQueue::take_any(std::uint32_t taken, std::uint32_t count, ReceivedFrame*& out, std::uint32_t& bytes) noexcept {
  for (; taken != count; ++taken) {
    const std::uint32_t position = seen_ + taken, slot = ring_.slot(position);
    const UsedEntry entry = ring_.used_entry(position);
    if (in_order_ && entry.id != slot) leave_order(static_cast<std::uint16_t>(position));
    Buffer* buffer = nullptr;
    if (in_order_) {
      buffer = buffers_[slot];
    } else if (entry.id < ring_.size()) {
      buffer = std::exchange(buffers_[entry.id], nullptr);
    }
    if (buffer == nullptr) {
      fault_ = "virtio: a used entry names a receive descriptor that is not in use";
      return taken;
    }
    free_ids_[slot] = static_cast<std::uint16_t>(entry.id);
    Buffer* const frame = take_piece(entry, buffer);
    if (fault_ != nullptr) return taken + 1;
    bytes += buffer->bytes;
    if (frame != nullptr) *out++ = {.frame = frame, .info = unfinished_info_};
  }
  return taken;
}

void ReceiveQueue::leave_order(std::uint16_t position) noexcept {
  in_order_ = false;
  const auto end = static_cast<std::uint16_t>(position + ring_.size());
  for (std::uint16_t free = next_; free != end; ++free) buffers_[ring_.slot(free)] = nullptr;
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
    buffer->return_to = &release_continued;
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
  const bool checked = (header.flags & checked_flags_) != 0 && entry.bytes >= usual_bytes_min;
  unfinished_info_ = checked ? info_of_checked(buffer->data) : ReceiveInfo{};
  buffer->bytes = entry.bytes - frame_header_bytes;
  if (!merges_ || header.buffers == 1) return buffer;
  counters_.merged.add();
  buffer->last = buffer;
  unfinished_ = buffer;
  missing_ = header.buffers - 1U;
  return nullptr;
}

// A buffer that continued a frame begins later again.
void ReceiveQueue::release_continued(ReceiveBuffer* buffer) noexcept {
  buffer->data += frame_header_bytes;
  buffer->return_to = &ReceivePool::release;
  ReceivePool::release(buffer);
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
    const std::uint32_t slot = ring_.slot(next_);
    Buffer** const buffers = &buffers_[slot];
    Descriptor* const descriptors = ring_.descriptors() + slot;
    if (in_order_) [[likely]] {
      pool_.take<refill_batch_descriptors>([=](std::uint32_t i, Buffer* buffer) {
        buffers[i] = buffer;
        descriptors[i].address = buffer->bus_address;
      });
    } else {
      pool_.take<refill_batch_descriptors>([&](std::uint32_t i, Buffer* buffer) {
        const std::uint32_t id = free_ids_[slot + i];
        buffers_[id] = buffer;
        ring_.descriptors()[id].address = buffer->bus_address;
        ring_.offer(slot + i, id);
      });
    }
    next_ = static_cast<std::uint16_t>(next_ + refill_batch_descriptors);
    posted_ += refill_batch_descriptors;
  }
  if (next_ != before && ring_.publish(next_)) counters_.notifications.add();
}

void ReceiveQueue::empty() noexcept {
  if (!buffers_) return;
  fault_ = fault_ != nullptr ? fault_ : "virtio: the device is closed";
  if (in_order_) leave_order(seen_);
  for (ReceiveBuffer* piece = std::exchange(unfinished_, nullptr); piece != nullptr;) std::exchange(piece, piece->next)->release();
  for (std::uint32_t i = 0; i < ring_.size(); ++i) {
    if (Buffer* const buffer = std::exchange(buffers_[i], nullptr)) pool_.put_back(buffer);
  }
  // No more room than now: `refill` does nothing from here on.
  posted_ = ring_.size();
}

}  // namespace neap::virtio
