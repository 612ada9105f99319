// SPDX-License-Identifier: BSL-1.0
#include "drivers/ixgbe/receive_queue.hpp"

#include <algorithm>
#include <cassert>
#include <new>

namespace neap::ixgbe {

using namespace std::chrono_literals;

Result<void> ReceiveQueue::allocate(std::uint32_t ring_descriptors, std::uint32_t buffers, std::uint32_t frame_bytes_max) {
  if (auto allocated = ring_.allocate(ring_descriptors); !allocated) return allocated;
  if (buffers < ring_descriptors) return failure(ErrorCode::invalid, "ixgbe: fewer receive buffers than descriptors", buffers);
  if (auto allocated = pool_.allocate(buffers); !allocated) return allocated;
  buffers_.reset(new (std::nothrow) ReceivePool::Buffer*[ring_descriptors]());
  if (!buffers_) return failure(ErrorCode::out_of_memory, "ixgbe: no memory for the receive ring's notes", ring_descriptors);
  // A tag that the card leaves in place is not counted in the frame's size.
  constexpr std::uint32_t vlan_tags_bytes = 8;
  chain_pieces_max_ = (frame_bytes_max + vlan_tags_bytes + ReceivePool::buffer_bytes - 1) / ReceivePool::buffer_bytes;
  return {};
}

void ReceiveQueue::program() const noexcept {
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
                                         .drop_enable = true});
  // 4.6.7: software clears this bit, whose meaning the datasheet keeps to itself.
  registers_.modify(reg::DCA_RXCTRL(index_), [](reg::DcaRxctrl& value) { value.cleared_by_software = false; });
}

task<Result<void>> ReceiveQueue::enable() {
  // 4.6.7: RXDCTL.ENABLE, poll it, and only then the tail.
  registers_.modify(reg::RXDCTL(index_), [](reg::Rxdctl& value) { value.enable = true; });
  auto enabled = co_await wait_for(
      registers_, reg::RXDCTL(index_), [](reg::Rxdctl value) { return value.enable; }, 100ms, "ixgbe: RXDCTL.ENABLE did not come up");
  if (enabled) refill();
  co_return enabled;
}

ReceiveInfo ReceiveQueue::info_of(std::uint64_t first, std::uint64_t status) noexcept {
  const Written written = Written::from_raw(first, status);
  ReceiveInfo info;
  info.ip_checksum_checked = written.ip_checksum_checked;
  info.ip_checksum_good = written.ip_checksum_checked && !written.ip_error;
  // 82599 specification update: a UDP frame without a checksum may be marked as wrong. So for UDP a mark means that software must look.
  info.l4_checksum_checked = written.l4_checksum_checked && !(written.l4_error && written.packet_udp);
  info.l4_checksum_good = written.l4_checksum_checked && !written.l4_error;
  info.rss_valid = written.rss_type != 0;
  info.rss_hash = written.rss_hash;
  info.vlan_tag = written.vlan_packet ? static_cast<std::uint16_t>(written.vlan) : std::uint16_t{0};
  return info;
}

unsigned ReceiveQueue::receive(FrameReceiver& receiver, unsigned budget) noexcept {
  // Descriptors behind the posted ones still carry the DD bit of their last round.
  const unsigned limit = std::min(budget, posted_);
  unsigned taken = 0;
  unsigned frames = 0;
  std::uint64_t bytes = 0;
  for (; taken < limit; ++taken) {
    const std::uint64_t status = ring_.load_status(head_);
    if (!is_done(status)) break;
    const std::uint64_t first = ring_.load_first(head_);
    ReceivePool::Buffer* const buffer = buffers_[ring_.slot(head_)];
    ++head_;
    bytes += Written::from_raw(first, status).length;
    if ((status & Written::end_of_packet_mask) != 0) ++frames;
    take_piece(receiver, buffer, first, status);
  }
  posted_ -= taken;
  if (taken != 0) {
    traffic_.rx_descriptors.add(taken);
    traffic_.rx_frames.add(frames);
    traffic_.rx_bytes.add(bytes);
  }
  return taken;
}

void ReceiveQueue::take_piece(FrameReceiver& receiver, ReceivePool::Buffer* buffer, std::uint64_t first, std::uint64_t status) noexcept {
  const bool last_piece = (status & Written::end_of_packet_mask) != 0;
  buffer->data = buffer->start;
  buffer->bytes = Written::from_raw(first, status).length;
  buffer->next = nullptr;

  if (skip_to_end_) [[unlikely]] {
    pool_.give_back(buffer);
    skip_to_end_ = !last_piece;
    return;
  }
  if (chain_first_ == nullptr) {
    chain_first_ = buffer;
  } else {
    chain_last_->next = buffer;
  }
  chain_last_ = buffer;
  ++chain_pieces_;

  if (buffer->bytes == 0 || buffer->bytes > ReceivePool::buffer_bytes) [[unlikely]] {
    counters_.dropped_errors.add();
    drop_chain();
    skip_to_end_ = !last_piece;
    return;
  }
  if (!last_piece) {
    if (chain_pieces_ < chain_pieces_max_) return;
    counters_.dropped_overlong.add();
    drop_chain();
    skip_to_end_ = true;
    return;
  }
  // 7.1.6.2: the error bits belong to the whole frame and are valid in its last descriptor.
  if ((status & Written::receive_error_mask) != 0) [[unlikely]] {
    counters_.dropped_errors.add();
    drop_chain();
    return;
  }
  ReceiveBuffer* const frame = chain_first_;
  chain_first_ = nullptr;
  chain_pieces_ = 0;
  receiver.receive(frame, info_of(first, status));
}

void ReceiveQueue::drop_chain() noexcept {
  while (chain_first_ != nullptr) {
    ReceiveBuffer* const piece = chain_first_;
    chain_first_ = piece->next;
    pool_.give_back(static_cast<ReceivePool::Buffer*>(piece));
  }
  chain_pieces_ = 0;
}

void ReceiveQueue::refill() noexcept {
  const std::uint32_t old_tail = tail_;
  while (posted_ + 2 * refill_batch_descriptors <= ring_.size()) {
    if (pool_.available() < refill_batch_descriptors) [[unlikely]] {
      counters_.pool_empty.add();
      if (wanted_ != nullptr) pool_.call_when(refill_batch_descriptors, wanted_, wanted_context_);
      break;
    }
    for (std::uint32_t i = 0; i < refill_batch_descriptors; ++i, ++tail_) {
      ReceivePool::Buffer* const buffer = pool_.take();
      buffers_[ring_.slot(tail_)] = buffer;
      ring_.store(tail_, buffer->bus_address, 0);
    }
    posted_ += refill_batch_descriptors;
  }
  if (tail_ == old_tail) return;
  assert(posted_ == tail_ - head_ && ring_.slot(tail_) != ring_.slot(head_));
  counters_.tail_writes.add();
  registers_.write(reg::RDT(index_), {.tail = ring_.slot(tail_)});
}

}  // namespace neap::ixgbe
