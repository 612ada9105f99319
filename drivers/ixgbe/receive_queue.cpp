// SPDX-License-Identifier: BSL-1.0
#include "drivers/ixgbe/receive_queue.hpp"

#include <algorithm>
#include <new>
#include <utility>

namespace neap::ixgbe {

using namespace std::chrono_literals;

namespace {

constexpr std::uint32_t coalesced_pieces_max = 16;

std::uint32_t pieces_of(const QueueOptions& options) noexcept {
  // `frame_bytes_max` does not include VLAN tags that the card leaves in place.
  constexpr std::uint32_t vlan_tags_bytes = 8;
  const std::uint32_t pieces = (options.frame_bytes_max + vlan_tags_bytes + ReceivePool::buffer_bytes - 1) / ReceivePool::buffer_bytes;
  return options.coalescing != 0 ? std::max(pieces, coalesced_pieces_max) : pieces;
}

using Written = descriptor::ReceiveWriteBack;

constexpr std::uint64_t one_byte = Written::put_length(1);
// A length is valid if it is 1 to the size of a buffer. The bits of `wrong_length` are zero in (length - 1) of every valid length.
static_assert(std::has_single_bit(ReceivePool::buffer_bytes));
constexpr std::uint64_t wrong_length = Written::length_mask & ~Written::put_length(ReceivePool::buffer_bytes - 1);
constexpr std::uint64_t special_bits =
    Written::receive_error_mask | Written::l4_error_mask | Written::ip_error_mask | Written::vlan_packet_mask;

// As `info_of`, for a status without any of `special_bits`. 7.1.6.2: the card's results are at the same bits as in `ReceiveInfo`, so a mask
// is enough and no shift is needed.
static_assert(Written::l4_checksum_checked_mask == ReceiveInfo::l4_good && Written::ip_checksum_checked_mask == ReceiveInfo::ip_good);
static_assert(Written::rss_hash_mask == ReceiveInfo::hash_mask && Written::rss_type_mask == ReceiveInfo::hash_type_mask);
[[gnu::always_inline]] inline ReceiveInfo info_without_error(std::uint64_t first, std::uint64_t status) noexcept {
  return ReceiveInfo::of_parts(first & (ReceiveInfo::hash_mask | ReceiveInfo::hash_type_mask),
                               status & (ReceiveInfo::l4_good | ReceiveInfo::ip_good));
}

}  // namespace

Result<void> ReceiveQueue::prepare(const QueueOptions& options) {
  Memory memory;
  if (auto allocated = memory.ring.allocate(options.receive_descriptors); !allocated) return allocated;
  memory.slots.reset(new (std::nothrow) ReceivedFrame[options.receive_descriptors]());
  memory.unfinished.reset(new (std::nothrow) ReceivePool::Buffer*[options.receive_descriptors]());
  if (!memory.slots || !memory.unfinished)
    return failure(ErrorCode::out_of_memory, "ixgbe: no memory for the receive ring's slots", options.receive_descriptors);
  const std::uint32_t wanted =
      options.receive_buffers != 0 ? options.receive_buffers : options.receive_descriptors + QueueOptions::buffers_beyond_ring;
  if (auto grown = pool_.grow_to(std::max(wanted, options.receive_descriptors)); !grown) return grown;
  spare_ = std::move(memory);
  return {};
}

void ReceiveQueue::program(const QueueOptions& options) noexcept {
  require(posted_ == 0 && (spare_.slots || slots_), "ixgbe: a receive queue is programmed while buffers are posted", index_);
  if (spare_.slots) {
    ring_ = std::move(spare_.ring);
    slots_ = std::move(spare_.slots);
    unfinished_ = std::move(spare_.unfinished);
  }
  ring_.clear();
  head_ = tail_ = 0;
  pieces_max_ = pieces_of(options);
  vlan_ = options.vlan;
  // 4.6.7: "program base and length of the ring", then head and tail to zero.
  const std::uint64_t address = ring_.bus_address();
  registers_.write(reg::RDBAL(index_), reg::Rdbal::from_raw(static_cast<std::uint32_t>(address)));
  registers_.write(reg::RDBAH(index_), {.address_high = static_cast<std::uint32_t>(address >> 32)});
  registers_.write(reg::RDLEN(index_), reg::Rdlen::from_raw(ring_.bytes()));
  registers_.write(reg::RDH(index_), {.head = 0});
  registers_.write(reg::RDT(index_), {.tail = 0});
  // 8.2.3.8.7: one buffer for each descriptor; its size is written in KiB. With `drop_enable`, the card drops frames for a queue without
  // descriptors and counts them in QPRDC. So a core that falls behind does not block other cores' frames in the shared packet buffer.
  constexpr std::uint32_t advanced_one_buffer = 1;
  registers_.write(reg::SRRCTL(index_), {.packet_buffer_kib = ReceivePool::buffer_bytes / 1024,
                                         .header_buffer_64 = 4,
                                         .descriptor_type = advanced_one_buffer,
                                         .drop_enable = options.drops()});
  // 7.1.12, 8.2.3.8.13: the maximum number of buffers for a merged frame.
  constexpr std::uint32_t descriptors_16 = 3;
  registers_.write(reg::RSCCTL(index_), {.enable = options.coalescing != 0, .max_descriptors = descriptors_16});
  // 7.4.1: with `vlan_strip`, the card moves the tag from the frame into the descriptor.
  registers_.modify(reg::RXDCTL(index_), [&](reg::Rxdctl& value) { value.vlan_strip = options.vlan != 0; });
  // 4.6.7: software clears bit 12, whose meaning the datasheet does not state. 8.2.3.11.1: the card's writes keep their order (PCIe 2.4.1).
  registers_.modify(reg::DCA_RXCTRL(index_), [](reg::DcaRxctrl& value) {
    value.cleared_by_software = value.descriptor_write_relaxed = value.payload_write_relaxed = value.header_write_relaxed = false;
  });
}

task<Result<void>> ReceiveQueue::enable(bool on) const {
  // 4.6.7: set RXDCTL.ENABLE, poll it, and only then write the tail. A queue is turned off in the same way, but the card may write for
  // another 100 us (4.6.7.1.2).
  registers_.modify(reg::RXDCTL(index_), [on](reg::Rxdctl& value) { value.enable = on; });
  auto done = co_await wait_for(
      registers_, reg::RXDCTL(index_), [on](reg::Rxdctl value) { return value.enable == on; }, 100ms,
      on ? "ixgbe: RXDCTL.ENABLE did not come up" : "ixgbe: RXDCTL.ENABLE did not go down");
  if (!on) co_await sleep_for(100us);
  co_return done;
}

void ReceiveQueue::empty() noexcept {
  if (!slots_) return;  // not programmed yet
  for (; posted_ != 0; --posted_, ++head_) slots_[ring_.slot(head_)].frame->release();
  for (std::uint32_t i = 0; i < ring_.size(); ++i) {
    if (ReceivePool::Buffer* const frame = std::exchange(unfinished_[i], nullptr)) drop(frame, counters_.dropped_errors);
  }
  unfinished_count_ = 0;
  require(posted_ == 0 && head_ == tail_, "ixgbe: a stopped receive ring still has posted descriptors", index_);
}

ReceiveInfo ReceiveQueue::info_of(std::uint64_t first, std::uint64_t status) noexcept {
  const bool ip_checked = Written::get_ip_checksum_checked(first, status);
  const bool ip_error = Written::get_ip_error(first, status);
  const bool l4_checked = Written::get_l4_checksum_checked(first, status);
  const bool l4_error = Written::get_l4_error(first, status);
  // 82599 specification update: a UDP frame without a checksum may be marked as wrong. So for UDP the mark means that software must check.
  const bool l4_bad = l4_checked && l4_error && !Written::get_packet_udp(first, status);
  const std::uint32_t checksums = (l4_checked && !l4_error ? ReceiveInfo::l4_good : 0) |
                                  (ip_checked && !ip_error ? ReceiveInfo::ip_good : 0) |
                                  ((ip_checked && ip_error) || l4_bad ? ReceiveInfo::bad : 0);
  const std::uint32_t tag = Written::get_vlan_packet(first, status) ? Written::get_vlan(first, status) : 0;
  return ReceiveInfo(checksums, Written::get_rss_type(first, status), Written::get_rss_hash(first, status),
                     static_cast<std::uint16_t>(tag));
}

// Most descriptors hold a whole frame without errors and without a stripped VLAN tag. One test of the status word detects this, for the
// fast path. `take_run` handles frames in several descriptors, and `take_piece` all other descriptors.
unsigned ReceiveQueue::receive_ready(FrameReceiver& receiver, unsigned budget) noexcept {
  constexpr std::uint64_t whole = Written::descriptor_done_mask | Written::end_of_packet_mask;
  constexpr std::uint64_t tested_bits = whole | wrong_length | special_bits;
  const auto fast_path = [this] { return unfinished_count_ == 0 && vlan_ == 0 ? whole : ~std::uint64_t{0}; };
  std::uint64_t wanted = fast_path();
  // Descriptors after the posted ones still have the DD bit of the previous round, so they must not be read.
  const std::uint32_t begin = ring_.slot(head_), limit = std::min(std::min(budget, posted_), ring_.size() - begin);
  Descriptor* const descriptors = ring_.at(begin);
  ReceivedFrame* const slots = &slots_[begin];
  std::size_t taken = 0;
  std::uint32_t bytes = 0;
  do {
    const std::uint64_t status = descriptors[taken].load_status();
    // A descriptor that is not done adds 0 to `bytes`, because `refill` has cleared its length.
    const std::uint32_t length = Written::get_length(0, status);
    bytes += length;
    if (((status - one_byte) & tested_bits) == wanted) [[likely]] {
      ReceivedFrame& slot = slots[taken];
      slot.frame->bytes = length;
      slot.frame->next = nullptr;
      const std::uint64_t first = descriptors[taken].load_first();
      if ((first & Joined::rsc_count_mask) != 0) [[unlikely]]
        count_joined_in_one_buffer(first);
      // No error bit is set here.
      slot.info = info_without_error(first, status);
    } else {
      if (!is_done(status)) break;
      if (wanted == whole && (status & Written::end_of_packet_mask) == 0) {
        const Run run = take_run(begin + static_cast<std::uint32_t>(taken), limit - static_cast<std::uint32_t>(taken));
        if (run.descriptors != 0) [[likely]] {
          taken += run.descriptors - 1;
          bytes += run.bytes - length;
          continue;
        }
      }
      if (!take_piece(begin + static_cast<std::uint32_t>(taken))) {
        slots[taken].frame = nullptr;
        ++holes_;
      }
      wanted = fast_path();
    }
  } while (++taken != limit);
  // One call, because the stack joins segments that follow each other.
  if (holes_ == 0) [[likely]] {
    receiver.receive({slots, taken});
  } else {
    receive_without_holes(receiver, {slots, taken});
  }
  // `head_` moves only now, because the slots of frames MUST NOT be reused while the frames are passed up.
  head_ += static_cast<std::uint32_t>(taken);
  posted_ -= static_cast<std::uint32_t>(taken);
  log::Traffic& traffic = traffic_;
  traffic.rx_descriptors.add(taken);
  traffic.rx_frames.add(taken - std::exchange(parts_, 0));
  traffic.rx_bytes.add(bytes);
  if (ring_.slot(head_) != 0) [[likely]]
    return static_cast<unsigned>(taken);
  return receive_from_start(receiver, budget, static_cast<unsigned>(taken));
}

unsigned ReceiveQueue::receive_from_start(FrameReceiver& receiver, unsigned budget, unsigned taken) noexcept {
  return taken != budget && ready() ? taken + receive_ready(receiver, budget - taken) : taken;
}

void ReceiveQueue::receive_without_holes(FrameReceiver& receiver, std::span<ReceivedFrame> slots) noexcept {
  holes_ = 0;
  const auto holes = std::ranges::remove(slots, nullptr, &ReceivedFrame::frame);
  if (holes.begin() != slots.begin()) receiver.receive({slots.begin(), holes.begin()});
}

void ReceiveQueue::count_joined_in_one_buffer(std::uint64_t first) noexcept { count_joined(first, true); }

// Until the frame's end is seen, only fields of buffers are written that `take_piece` writes, too. So it can take the descriptors instead.
ReceiveQueue::Run ReceiveQueue::take_run(std::uint32_t place, std::uint32_t limit) noexcept {
  constexpr std::uint64_t done = Written::descriptor_done_mask;
  Descriptor* const descriptors = ring_.at(place);
  ReceivedFrame* const slots = &slots_[place];
  const std::uint32_t descriptors_max = std::min<std::uint32_t>(limit, pieces_max_);
  ReceiveBuffer* last = nullptr;
  std::uint32_t taken = 0, bytes = 0, joined = 0, count = 0;
  std::uint64_t first = 0, status = 0;
  for (;;) {
    status = descriptors[taken].load_status();
    ReceiveBuffer* const piece = slots[taken].frame;
    if (((status - one_byte) & (done | wrong_length)) != done || piece == nullptr) [[unlikely]]
      return {};
    first = descriptors[taken].load_first();
    piece->bytes = Written::get_length(0, status);
    piece->next = nullptr;
    if (last != nullptr) last->next = piece;
    last = piece;
    bytes += piece->bytes;
    count = Joined::get_rsc_count(first, 0);
    joined += count != 0 ? count - 1 : 0;
    ++taken;
    if ((status & Written::end_of_packet_mask) != 0) break;
    if (taken == descriptors_max || (count != 0 && Joined::get_next_descriptor(first, status) != place + taken)) return {};
  }
  if ((status & special_bits) != 0) [[unlikely]]
    return {};
  slots[taken - 1] = {.frame = std::exchange(slots[0].frame, nullptr), .info = info_without_error(first, status)};
  for (std::uint32_t i = 1; i < taken - 1; ++i) slots[i].frame = nullptr;
  holes_ += taken - 1;
  // As `count_joined` counts them.
  parts_ += taken - 1 + (count != 0 ? 1 : 0);
  traffic_.rx_frames.add(joined);
  return {.descriptors = taken, .bytes = bytes};
}

bool ReceiveQueue::take_piece(std::uint32_t place) noexcept {
  require(place < ring_.size() && slots_[place].frame != nullptr, "ixgbe: a completed receive descriptor without a buffer", place);
  const std::uint64_t status = ring_.at(place)->load_status();
  const std::uint64_t first = ring_.at(place)->load_first();
  const bool last_piece = (status & Written::end_of_packet_mask) != 0;
  count_joined(first, last_piece);
  auto* const piece = static_cast<ReceivePool::Buffer*>(slots_[place].frame);
  piece->bytes = Written::get_length(first, status);
  piece->next = nullptr;
  ReceivePool::Buffer* frame = std::exchange(unfinished_[place], nullptr);
  if (frame == nullptr) [[likely]] {
    frame = piece;
    frame->pieces = 1;
  } else {
    --unfinished_count_;
    if (frame == &discarded_) {
      pool_.put_back(piece);
    } else {
      frame->last->next = piece;
      ++frame->pieces;
    }
  }
  frame->last = piece;

  if (frame != &discarded_ && (piece->bytes == 0 || piece->bytes > ReceivePool::buffer_bytes)) [[unlikely]] {
    drop(frame, counters_.dropped_errors);
    frame = &discarded_;
  }
  if (!last_piece) {
    ++parts_;
    keep_for_next(frame, place + 1, first, status);
    return false;
  }
  if (frame == &discarded_) [[unlikely]]
    return false;
  // 7.1.6.2: the error bits apply to the whole frame and are valid in its last descriptor.
  if ((status & Written::receive_error_mask) != 0) [[unlikely]] {
    drop(frame, counters_.dropped_errors);
    return false;
  }
  const ReceiveInfo info = info_of(first, status);
  constexpr std::uint32_t vlan_mask = 0xFFF;
  // 7.4.5: the card's filter passes frames without a tag, so they are dropped here.
  if (vlan_ != 0 && (info.vlan_tag() & vlan_mask) != vlan_) [[unlikely]] {
    drop(frame, counters_.dropped_untagged);
    return false;
  }
  slots_[place] = {.frame = frame, .info = info};
  return true;
}

void ReceiveQueue::keep_for_next(ReceivePool::Buffer* frame, std::uint32_t following, std::uint64_t first, std::uint64_t status) noexcept {
  if (frame != &discarded_ && frame->pieces >= pieces_max_) {
    drop(frame, counters_.dropped_overlong);
    frame = &discarded_;
  }
  const bool joined = Joined::get_rsc_count(first, status) != 0;
  const std::uint32_t next = joined ? Joined::get_next_descriptor(first, status) : ring_.slot(following);
  // The next descriptor must follow this one and belong to the card. Any other slot is a fault of the card. A slot in which another frame
  // continues is a fault, too.
  const std::uint32_t owned = posted_ - ring_.slot(following - head_);
  const bool wrong_place = joined && (next >= ring_.size() || ring_.slot(next - following) >= owned);
  if (wrong_place || unfinished_[next] != nullptr) [[unlikely]] {
    if (frame != &discarded_) drop(frame, counters_.dropped_errors);
    return;
  }
  require(next < ring_.size(), "ixgbe: a frame is continued outside of its ring", next);
  unfinished_[next] = frame;
  ++unfinished_count_;
}

void ReceiveQueue::drop(ReceiveBuffer* frame, Counter& reason) noexcept {
  if (frame == &discarded_) return;
  require(frame != nullptr, "ixgbe: a received frame is dropped twice", index_);
  reason.add();
  while (frame != nullptr) std::exchange(frame, frame->next)->release();
}

void ReceiveQueue::post_batches() noexcept {
  const std::uint32_t old_tail = tail_;
  while (posted_ + 2 * refill_batch_descriptors <= ring_.size()) {
    if (!pool_.has(refill_batch_descriptors)) [[unlikely]] {
      counters_.pool_empty.add();
      break;
    }
    // A batch is contiguous, because it begins at a multiple of its size, which divides the ring's size.
    Descriptor* const descriptors = ring_.at(tail_);
    ReceivedFrame* const slots = &slots_[ring_.slot(tail_)];
    pool_.take<refill_batch_descriptors>([=](std::uint32_t i, ReceivePool::Buffer* buffer) {
      slots[i].frame = buffer;
      descriptors[i].store(buffer->bus_address, 0);
    });
    tail_ += refill_batch_descriptors;
    posted_ += refill_batch_descriptors;
  }
  if (tail_ == old_tail) return;
  require(posted_ == tail_ - head_ && posted_ < ring_.size(), "ixgbe: receive ring positions out of step", index_);
  counters_.tail_writes.add();
  registers_.write(tail_register_, {.tail = ring_.slot(tail_)});
}

}  // namespace neap::ixgbe
