// SPDX-License-Identifier: BSL-1.0
#include "drivers/ixgbe/receive_queue.hpp"

#include <algorithm>
#include <cassert>
#include <new>
#include <utility>

namespace neap::ixgbe {

using namespace std::chrono_literals;

namespace {

constexpr std::uint32_t coalesced_pieces_max = 16;

std::uint32_t pieces_of(const QueueOptions& options) noexcept {
  // A tag that the card leaves in place is not counted in the frame's size.
  constexpr std::uint32_t vlan_tags_bytes = 8;
  const std::uint32_t pieces = (options.frame_bytes_max + vlan_tags_bytes + ReceivePool::buffer_bytes - 1) / ReceivePool::buffer_bytes;
  return options.coalescing != 0 ? std::max(pieces, coalesced_pieces_max) : pieces;
}

}  // namespace

Result<void> ReceiveQueue::prepare(const QueueOptions& options) {
  Memory memory;
  if (auto allocated = memory.ring.allocate(options.receive_descriptors); !allocated) return allocated;
  memory.slots.reset(new (std::nothrow) Slot[options.receive_descriptors]());
  if (!memory.slots) return failure(ErrorCode::out_of_memory, "ixgbe: no memory for the receive ring's notes", options.receive_descriptors);
  if (auto grown = pool_.grow_to(std::max(options.receive_buffers, options.receive_descriptors)); !grown) return grown;
  spare_ = std::move(memory);
  return {};
}

void ReceiveQueue::program(const QueueOptions& options) noexcept {
  assert(posted_ == 0 && (spare_.slots || slots_));
  if (spare_.slots) {
    ring_ = std::move(spare_.ring);
    slots_ = std::move(spare_.slots);
  }
  ring_.clear();
  head_ = tail_ = 0;
  pieces_max_ = pieces_of(options);
  // 4.6.7: "program base and length of the ring", then head and tail to zero.
  const std::uint64_t address = ring_.bus_address();
  registers_.write(reg::RDBAL(index_), reg::Rdbal::from_raw(static_cast<std::uint32_t>(address)));
  registers_.write(reg::RDBAH(index_), {.address_high = static_cast<std::uint32_t>(address >> 32)});
  registers_.write(reg::RDLEN(index_), reg::Rdlen::from_raw(ring_.bytes()));
  registers_.write(reg::RDH(index_), {.head = 0});
  registers_.write(reg::RDT(index_), {.tail = 0});
  // 8.2.3.8.7: one buffer a descriptor, in KiB. A queue without descriptors drops (and counts in QPRDC), so that a core that falls behind
  // does not stop the others' frames in the packet buffer that all share.
  constexpr std::uint32_t advanced_one_buffer = 1;
  registers_.write(reg::SRRCTL(index_), {.packet_buffer_kib = ReceivePool::buffer_bytes / 1024,
                                         .header_buffer_64 = 4,
                                         .descriptor_type = advanced_one_buffer,
                                         .drop_enable = options.drops()});
  // 7.1.12, 8.2.3.8.13: as many buffers as there may be.
  constexpr std::uint32_t descriptors_16 = 3;
  registers_.write(reg::RSCCTL(index_), {.enable = options.coalescing != 0, .max_descriptors = descriptors_16});
  // 7.4.1: the tag goes from the frame into the descriptor.
  registers_.modify(reg::RXDCTL(index_), [&](reg::Rxdctl& value) { value.vlan_strip = options.vlan != 0; });
  // 4.6.7: software clears this bit, whose meaning the datasheet keeps to itself.
  registers_.modify(reg::DCA_RXCTRL(index_), [](reg::DcaRxctrl& value) { value.cleared_by_software = false; });
}

task<Result<void>> ReceiveQueue::enable(bool on) const {
  // 4.6.7: RXDCTL.ENABLE, poll it, and only then the tail. Off: the same, and then the card may still write for 100 us (4.6.7.1.2).
  registers_.modify(reg::RXDCTL(index_), [on](reg::Rxdctl& value) { value.enable = on; });
  auto done = co_await wait_for(
      registers_, reg::RXDCTL(index_), [on](reg::Rxdctl value) { return value.enable == on; }, 100ms,
      on ? "ixgbe: RXDCTL.ENABLE did not come up" : "ixgbe: RXDCTL.ENABLE did not go down");
  if (!on) co_await sleep_for(100us);
  co_return done;
}

void ReceiveQueue::empty() noexcept {
  if (!slots_) return;  // it has not been programmed yet
  for (; posted_ != 0; --posted_, ++head_) pool_.give_back(slots_[ring_.slot(head_)].buffer);
  for (std::uint32_t i = 0; i < ring_.size(); ++i) {
    if (ReceivePool::Buffer* const frame = std::exchange(slots_[i].frame, nullptr)) drop(frame, counters_.dropped_errors);
  }
}

ReceiveInfo ReceiveQueue::info_of(std::uint64_t first, std::uint64_t status) noexcept {
  const bool ip_checked = Written::get_ip_checksum_checked(first, status);
  const bool ip_error = Written::get_ip_error(first, status);
  const bool l4_checked = Written::get_l4_checksum_checked(first, status);
  const bool l4_error = Written::get_l4_error(first, status);
  // 82599 specification update: a UDP frame without a checksum may be marked as wrong. So for UDP a mark means that software must look.
  const bool l4_bad = l4_checked && l4_error && !Written::get_packet_udp(first, status);
  const std::uint32_t checksums = (l4_checked && !l4_error ? ReceiveInfo::l4_good : 0) |
                                  (ip_checked && !ip_error ? ReceiveInfo::ip_good : 0) |
                                  ((ip_checked && ip_error) || l4_bad ? ReceiveInfo::bad : 0);
  const std::uint32_t tag = Written::get_vlan_packet(first, status) ? Written::get_vlan(first, status) : 0;
  return ReceiveInfo(checksums, Written::get_rss_type(first, status), Written::get_rss_hash(first, status),
                     static_cast<std::uint16_t>(tag));
}

/// The same where no error is marked and no tag was taken out: what was checked is good.
ReceiveInfo ReceiveQueue::plain_info_of(std::uint64_t first, std::uint64_t status) noexcept {
  constexpr std::uint64_t l4 = Written::l4_checksum_checked_mask;
  constexpr std::uint64_t ip = Written::ip_checksum_checked_mask;
  static_assert(ip / l4 == ReceiveInfo::ip_good && ReceiveInfo::l4_good == 1);
  return ReceiveInfo(static_cast<std::uint32_t>((status & (l4 | ip)) / l4), Written::get_rss_type(first, status),
                     Written::get_rss_hash(first, status));
}

unsigned ReceiveQueue::receive(FrameReceiver& receiver, unsigned budget) noexcept {
  // Descriptors behind the posted ones still carry the DD bit of their last round.
  const std::uint32_t limit = std::min(budget, posted_);
  const std::uint32_t up_to_ring_end = std::min(limit, ring_.size() - ring_.slot(head_));
  const unsigned taken = receive_run(receiver, up_to_ring_end);
  return taken == up_to_ring_end && taken != limit ? taken + receive_run(receiver, limit - taken) : taken;
}

// Most descriptors are a whole frame, nothing wrong with it and no VLAN tag taken out of it, as one look at the status word tells. For
// these there is a straight way; `take_piece` knows all the others.
unsigned ReceiveQueue::receive_run(FrameReceiver& receiver, std::uint32_t limit) noexcept {
  constexpr std::uint64_t whole = Written::descriptor_done_mask | Written::end_of_packet_mask;
  constexpr std::uint64_t looked_at =
      whole | Written::receive_error_mask | Written::l4_error_mask | Written::ip_error_mask | Written::vlan_packet_mask;
  Descriptor* descriptor = ring_.at(head_);
  Descriptor* const end = descriptor + limit;
  Slot* slot = &slots_[ring_.slot(head_)];
  std::uint32_t bytes = 0;
  for (; descriptor != end; ++descriptor, ++slot) {
    const std::uint64_t status = descriptor->load_status();
    const std::uint32_t length = Written::get_length(0, status);
    bytes += length;  // 0 of one that is not done
    if ((status & looked_at) == whole && slot->frame == nullptr && length - 1 < ReceivePool::buffer_bytes) [[likely]] {
      ReceiveBuffer* const buffer = slot->buffer;
      buffer->bytes = length;
      buffer->next = nullptr;
      receiver.receive(buffer, plain_info_of(descriptor->load_first(), status));
    } else {
      if (!is_done(status)) break;
      take_piece(receiver, *descriptor, *slot);
    }
  }
  const auto taken = static_cast<std::uint32_t>(descriptor - ring_.at(head_));
  head_ += taken;
  posted_ -= taken;
  if (taken != 0) {
    traffic_.rx_descriptors.add(taken);
    traffic_.rx_frames.add(taken - std::exchange(parts_, 0));
    traffic_.rx_bytes.add(bytes);
  }
  return taken;
}

void ReceiveQueue::take_piece(FrameReceiver& receiver, Descriptor& descriptor, Slot& slot) noexcept {
  const std::uint64_t status = descriptor.load_status();
  const std::uint64_t first = descriptor.load_first();
  const bool last_piece = (status & Written::end_of_packet_mask) != 0;
  ReceivePool::Buffer* const piece = slot.buffer;
  piece->bytes = Written::get_length(first, status);
  piece->next = nullptr;
  ReceivePool::Buffer* frame = slot.frame;
  if (frame == nullptr) [[likely]] {
    frame = piece;
    frame->pieces = 1;
  } else if (frame == &thrown_away_) {
    pool_.give_back(piece);
  } else {
    frame->last->next = piece;
    ++frame->pieces;
  }
  slot.frame = nullptr;
  frame->last = piece;

  if (frame != &thrown_away_ && (piece->bytes == 0 || piece->bytes > ReceivePool::buffer_bytes)) [[unlikely]] {
    drop(frame, counters_.dropped_errors);
    frame = &thrown_away_;
  }
  if (!last_piece) {
    ++parts_;
    return keep_for_next(frame, static_cast<std::uint32_t>(&descriptor - ring_.at(0)) + 1, first, status);
  }
  if (frame == &thrown_away_) [[unlikely]]
    return;
  // 7.1.6.2: the error bits belong to the whole frame and are valid in its last descriptor.
  if ((status & Written::receive_error_mask) != 0) [[unlikely]]
    return drop(frame, counters_.dropped_errors);
  receiver.receive(frame, info_of(first, status));
}

void ReceiveQueue::keep_for_next(ReceivePool::Buffer* frame, std::uint32_t following, std::uint64_t first, std::uint64_t status) noexcept {
  if (frame != &thrown_away_ && frame->pieces >= pieces_max_) {
    drop(frame, counters_.dropped_overlong);
    frame = &thrown_away_;
  }
  using Part = descriptor::ReceiveWriteBackCoalesced;
  const std::uint32_t next = ring_.slot(Part::get_rsc_count(first, status) != 0 ? Part::get_next_descriptor(first, status) : following);
  Slot& slot = slots_[next];
  // A place that the card does not own, or that another frame waits for, is a fault of the card's.
  if (ring_.slot(next - following) >= ring_.size() - refill_batch_descriptors || slot.frame != nullptr) [[unlikely]] {
    if (frame != &thrown_away_) drop(frame, counters_.dropped_errors);
    return;
  }
  slot.frame = frame;
}

void ReceiveQueue::drop(ReceiveBuffer* frame, Counter& reason) noexcept {
  if (frame == &thrown_away_) return;
  reason.add();
  while (frame != nullptr) {
    ReceiveBuffer* const next = frame->next;
    pool_.give_back(static_cast<ReceivePool::Buffer*>(frame));
    frame = next;
  }
}

void ReceiveQueue::refill() noexcept {
  const std::uint32_t old_tail = tail_;
  while (posted_ + 2 * refill_batch_descriptors <= ring_.size()) {
    if (pool_.available() < refill_batch_descriptors) [[unlikely]] {
      counters_.pool_empty.add();
      if (wanted_ != nullptr) pool_.call_when(refill_batch_descriptors, wanted_, wanted_context_);
      break;
    }
    // A batch lies in one piece: it begins at a multiple of itself.
    Descriptor* descriptor = ring_.at(tail_);
    Slot* slot = &slots_[ring_.slot(tail_)];
    pool_.take(refill_batch_descriptors, [&](ReceivePool::Buffer* buffer) {
      (slot++)->buffer = buffer;
      (descriptor++)->store(buffer->bus_address, 0);
    });
    tail_ += refill_batch_descriptors;
    posted_ += refill_batch_descriptors;
  }
  if (tail_ == old_tail) return;
  assert(posted_ == tail_ - head_ && ring_.slot(tail_) != ring_.slot(head_));
  counters_.tail_writes.add();
  registers_.write(reg::RDT(index_), {.tail = ring_.slot(tail_)});
}

}  // namespace neap::ixgbe
