// SPDX-License-Identifier: BSL-1.0
#include "drivers/ixgbe/transmit_queue.hpp"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cstring>
#include <new>

namespace neap::ixgbe {

using namespace std::chrono_literals;
using descriptor::TransmitContext;
using descriptor::TransmitData;

namespace {

// 7.2.3.2.3, 7.2.3.2.4: values of DTYP and TUCMD.L4T, and the indices of the two contexts.
constexpr std::uint32_t context_type = 2, data_type = 3;
constexpr std::uint32_t l4_type_udp = 0, l4_type_tcp = 1;
constexpr unsigned checksum_context = 0, segment_context = 1;

constexpr bool wants_offload(TransmitOffload offload) noexcept {
  return offload.checksums != Checksums::none || offload.segment_bytes != 0;
}

}  // namespace

Result<void> TransmitQueue::prepare(const QueueOptions& options) {
  const std::uint32_t count = options.transmit_descriptors;
  Memory memory;
  if (auto allocated = memory.ring.allocate(count); !allocated) return allocated;
  memory.reports.reset(new (std::nothrow) Report[count]());
  memory.tokens.reset(new (std::nothrow) void*[count]());
  if (!memory.reports || !memory.tokens) return failure(ErrorCode::out_of_memory, "ixgbe: no memory for the transmit ring's tokens", count);
  auto head = DmaMemory::allocate(sizeof(std::uint32_t));
  if (!head) return std::unexpected(head.error());
  memory.head = std::move(*head);
  spare_ = std::move(memory);
  return {};
}

void TransmitQueue::program(const QueueOptions& options) noexcept {
  require(pending() == 0 && tokens_head_ == tokens_tail_, "ixgbe: a transmit queue is programmed with frames in it", index_);
  if (spare_.reports) {
    ring_ = std::move(spare_.ring);
    reports_ = std::move(spare_.reports);
    tokens_ = std::move(spare_.tokens);
    head_ = std::move(spare_.head);
  }
  ring_.clear();
  next_ = clean_ = notified_ = reported_ = reports_head_ = reports_tail_ = tokens_head_ = tokens_sent_ = tokens_tail_ = tokens_flushed_ = 0;
  run_ = {};
  crowded_ = room_wanted_;
  contexts_ = {};  // the card has lost its copies of the contexts
  frame_bytes_max_ = options.frame_bytes_max;
  vlan_ = options.vlan;
  frame_descriptors_max_ = frame_descriptors_max - options.write_back_threshold;
  // 4.6.8: program base and length of the ring, and set head and tail to zero.
  const std::uint64_t address = ring_.bus_address();
  registers_.write(reg::TDBAL(index_), reg::Tdbal::from_raw(static_cast<std::uint32_t>(address)));
  registers_.write(reg::TDBAH(index_), {.address_high = static_cast<std::uint32_t>(address >> 32)});
  registers_.write(reg::TDLEN(index_), reg::Tdlen::from_raw(ring_.bytes()));
  registers_.write(reg::TDH(index_), {.head = 0});
  registers_.write(reg::TDT(index_), {.tail = 0});
  // 7.2.3.5.2, 8.2.3.9.11: the address to which the card writes the head (4 bytes).
  const bool head_write_back = options.head_write_back != 0;
  std::memset(head_.start(), 0, sizeof(std::uint32_t));
  written_head_ = head_write_back ? reinterpret_cast<const std::uint32_t*>(head_.start()) : nullptr;
  registers_.write(reg::TDWBAL(index_),
                   {.head_write_back = head_write_back, .address_low_4 = static_cast<std::uint32_t>(head_.bus_address()) >> 2});
  registers_.write(reg::TDWBAH(index_), {.address_high = static_cast<std::uint32_t>(head_.bus_address() >> 32)});
  // 8.2.3.11.2: write-backs keep their order (PCIe 2.4.1), so that no older head overwrites a newer one.
  registers_.modify(reg::DCA_TXCTRL(index_), [](reg::DcaTxctrl& value) { value.descriptor_write_relaxed = false; });
  registers_.write(reg::TXDCTL(index_), {.prefetch_threshold = options.prefetch_threshold,
                                         .host_threshold = options.host_threshold,
                                         .write_back_threshold = options.write_back_threshold});
}

task<Result<void>> TransmitQueue::enable(bool on) const {
  // 4.6.8: set TXDCTL.ENABLE (after DMATXCTL.TE), then poll it.
  registers_.modify(reg::TXDCTL(index_), [on](reg::Txdctl& value) { value.enable = on; });
  co_return co_await wait_for(
      registers_, reg::TXDCTL(index_), [on](reg::Txdctl value) { return value.enable == on; }, 100ms,
      on ? "ixgbe: TXDCTL.ENABLE did not come up" : "ixgbe: TXDCTL.ENABLE did not go down");
}

std::uint32_t TransmitQueue::empty() noexcept {
  reclaim();
  std::uint32_t frames = 0;
  for (; clean_ != next_; ++clean_) {
    const auto descriptor = TransmitData::from_raw(0, ring_.at(clean_)->load_status());
    frames += descriptor.type == data_type && descriptor.end_of_packet ? 1 : 0;
  }
  reports_head_ = reports_tail_;
  tokens_sent_ = tokens_tail_;
  require(pending() == 0, "ixgbe: an emptied transmit queue has pending descriptors", index_);
  counters_.lost.add(frames);
  return frames;
}

TransmitQueue::Context TransmitQueue::context_of(TransmitOffload offload) const noexcept {
  constexpr Context always = TransmitContext{.type = context_type, .extension = true}.raw();
  const bool segment = offload.segment_bytes != 0;
  const std::uint32_t l4_type = offload.tcp() ? l4_type_tcp : l4_type_udp;
  return {always[0] | TransmitContext::put_vlan(vlan_) | TransmitContext::put_ip_length(offload.l3_bytes) |
              TransmitContext::put_mac_length(offload.l2_bytes),
          always[1] | TransmitContext::put_ipv4(offload.ipv4()) | TransmitContext::put_l4_type(l4_type) |
              TransmitContext::put_index(segment ? segment_context : checksum_context) |
              TransmitContext::put_l4_length(segment ? offload.l4_bytes : 0U) | TransmitContext::put_mss(offload.segment_bytes)};
}

[[gnu::always_inline]] inline void TransmitQueue::request_report() noexcept {
  // `flush` checks that no more descriptors are pending than the ring has. Each report covers at least one of them, so the list has room.
  assert(reports_tail_ - reports_head_ < ring_.size());
  const Report report{.end = next_, .tokens_end = tokens_tail_};
  reports_[ring_.slot(reports_tail_++)] = report;
  reported_ = report.end;
  ring_.add_bits(report.end - 1, TransmitData::report_status_mask);
}

TransmitResult TransmitQueue::transmit(TransmitPieces pieces, TransmitOffload offload, void* token) noexcept {
  end_run();
  std::uint64_t bytes = 0;
  std::uint64_t data_descriptors = 0;
  for (const TransmitPiece& piece : pieces) {
    bytes += piece.bytes;
    data_descriptors += (std::uint64_t{piece.bytes} + descriptor_bytes_max - 1) / descriptor_bytes_max;
  }
  constexpr std::uint32_t mac_length_max = 127;  // 7.2.3.2.3: MACLEN has seven bits
  const FrameLengths lengths = frame_lengths(offload, frame_bytes_max_, tso_bytes_max);
  if (!lengths.contain(bytes) || offload.l2_bytes > mac_length_max || data_descriptors >= frame_descriptors_max_) {
    counters_.refused_invalid.add();
    return std::unexpected(ErrorCode::invalid);
  }
  const bool segment = offload.segment_bytes != 0;
  const std::uint32_t index = segment ? segment_context : checksum_context;
  const Context context = wants_offload(offload) || vlan_ != 0 ? context_of(offload) : contexts_[index];
  const bool new_context = context != contexts_[index];
  const auto descriptors = static_cast<std::uint32_t>(data_descriptors) + (new_context ? 1 : 0);
  if (!has_room_for(descriptors)) {
    crowded_ = true;  // `reclaim` may find tokens to deliver
    reclaim();
    if (!has_room_for(descriptors)) {
      counters_.refused_full.add();
      room_wanted_ = true;
      return std::unexpected(ErrorCode::full);
    }
  }

  crowded_ |= half_in_use();
  if (next_ - reported_ >= report_interval_descriptors) request_report();
  if (new_context) {
    contexts_[index] = context;
    ring_.at(next_++)->store(context[0], context[1]);
    counters_.contexts.add();
  }
  constexpr std::uint64_t always = TransmitData{.type = data_type, .insert_fcs = true, .extension = true}.raw()[1];
  const std::uint64_t common = always | TransmitData::put_segment(segment) | TransmitData::put_index(index) |
                               TransmitData::put_vlan_enable(vlan_ != 0) | TransmitData::put_insert_ip_checksum(offload.ipv4()) |
                               TransmitData::put_insert_l4_checksum(offload.tcp() || offload.udp());
  // 7.2.3.2.4: PAYLEN is the length of the whole frame; for TSO it is the length after the headers.
  const auto payload_bytes = static_cast<std::uint32_t>(bytes) - (segment ? offload.headers_bytes() : 0);
  write_data(pieces, common | TransmitData::put_payload_length(payload_bytes));
  tokens_[ring_.slot(tokens_tail_++)] = token;
  const FramesSent sent = frames_sent(static_cast<std::uint32_t>(bytes), offload);
  segments_unflushed_ += sent.frames - 1;
  bytes_unflushed_ += sent.bytes;

  if (!segment) {
    run_.offload = std::bit_cast<std::uint64_t>(offload);
    run_.common = common | TransmitData::end_of_packet_mask;
    run_.lengths = {.min = lengths.min, .range = std::min(lengths.range, descriptor_bytes_max - lengths.min)};
  }
  return {};
}

void TransmitQueue::begin_run() noexcept {
  end_run();
  if (next_ - reported_ >= report_interval_descriptors) request_report();
  if (held_) return;
  crowded_ |= half_in_use();
  const std::uint32_t first = ring_.slot(next_);
  const std::uint32_t first_token = ring_.slot(tokens_tail_);
  run_.begin = run_.next = ring_.at(first);
  run_.token = &tokens_[first_token];
  const std::uint32_t room = std::min(free_descriptors(), free_tokens());
  const std::uint32_t up_to_ring_end = ring_.size() - std::max(first, first_token);
  run_.end = run_.limit = run_.begin + std::min(std::min(room, up_to_ring_end), report_interval_descriptors - (next_ - reported_));
}

void TransmitQueue::write_data(TransmitPieces pieces, std::uint64_t common) noexcept {
  for (const TransmitPiece& piece : pieces) {
    std::uint64_t address = piece.bytes != 0 ? machine::physical_address(piece.data) : 0;
    for (std::uint32_t left = piece.bytes; left != 0;) {
      const std::uint32_t bytes = std::min(left, descriptor_bytes_max);
      ring_.at(next_++)->store(address, common | bytes);  // DTALEN is the lowest field of the second word
      address += bytes;
      left -= bytes;
    }
  }
  ring_.add_bits(next_ - 1, TransmitData::end_of_packet_mask);
}

void TransmitQueue::flush() noexcept {
  close_run();
  const std::uint32_t next = next_, descriptors = next - notified_;
  if (descriptors == 0) return;
  require(next - clean_ < ring_.size(), "ixgbe: more transmit descriptors than the ring has", index_);
  if (reported_ != next) request_report();
  const std::uint32_t frames = tokens_tail_ - tokens_flushed_ + segments_unflushed_, bytes = bytes_unflushed_;
  notified_ = next;
  tokens_flushed_ = tokens_tail_;
  bytes_unflushed_ = segments_unflushed_ = 0;
  registers_.write(tail_register_, {.tail = ring_.slot(next)});
  log::Traffic& traffic = traffic_;
  traffic.tx_descriptors.add(descriptors);
  traffic.tx_frames.add(frames);
  traffic.tx_bytes.add(bytes);
  counters_.tail_writes.add();
}

bool TransmitQueue::oldest_report_is_done() const noexcept {
  const std::uint32_t end = reports_[ring_.slot(reports_head_)].end;
  if (written_head_ != nullptr) return done_by_head().value_or(0) >= end - clean_;
  return is_done(end - 1);
}

std::optional<std::uint32_t> TransmitQueue::done_by_head() const noexcept {
  const std::uint32_t head = std::atomic_ref(*const_cast<std::uint32_t*>(written_head_)).load(std::memory_order_acquire);
  const std::uint32_t done = ring_.slot(head - clean_);
  return head < ring_.size() && done <= notified_ - clean_ ? std::optional(done) : std::nullopt;
}

[[gnu::noinline]] void TransmitQueue::reclaim_up_to_head() noexcept {
  const auto done = done_by_head();
  if (!done) counters_.wrong_heads.add();
  for (const std::uint32_t first = clean_; reports_head_ != reports_tail_; ++reports_head_) {
    const Report report = reports_[ring_.slot(reports_head_)];
    if (report.end - first > done.value_or(0)) return;
    clean_ = report.end;
    tokens_sent_ = report.tokens_end;
  }
}

void TransmitQueue::reclaim() noexcept {
  std::uint32_t head = reports_head_;
  if (head == reports_tail_) return;
  if (written_head_ != nullptr) [[unlikely]]
    return reclaim_up_to_head();
  do {
    const Report report = reports_[ring_.slot(head)];
    if (!is_done(report.end - 1)) break;
    clean_ = report.end;
    tokens_sent_ = report.tokens_end;
  } while (++head != reports_tail_);
  reports_head_ = head;
}

void TransmitQueue::deliver(FrameReceiver& receiver) noexcept {
  // One call passes at most 32 contiguous tokens. Their slots stay in use during the call, in which the stack may queue new frames.
  while (tokens_head_ != tokens_sent_) {
    const std::uint32_t first = ring_.slot(tokens_head_);
    const std::uint32_t count = std::min(std::min(tokens_sent_ - tokens_head_, ring_.size() - first), report_interval_descriptors);
    receiver.transmitted({&tokens_[first], count});
    tokens_head_ += count;
  }
  if (!crowded_) [[likely]]
    return;
  end_run();
  const bool room = room_wanted_ && has_room();
  room_wanted_ &= !room;
  crowded_ = room_wanted_ || half_in_use();
  if (room) receiver.transmit_room();
}

}  // namespace neap::ixgbe
