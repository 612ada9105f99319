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

// 7.2.3.2.3, 7.2.3.2.4: DTYP, TUCMD.L4T and the indices of the two contexts.
constexpr std::uint32_t context_type = 2;
constexpr std::uint32_t data_type = 3;
constexpr std::uint32_t l4_type_udp = 0;
constexpr std::uint32_t l4_type_tcp = 1;
constexpr unsigned checksum_context = 0;
constexpr unsigned segment_context = 1;

constexpr std::uint32_t context_index(const TransmitFrame& frame) noexcept {
  return frame.segment_bytes != 0 ? segment_context : checksum_context;
}

constexpr bool wants_offload(const TransmitFrame& frame) noexcept {
  return frame.ipv4_checksum || frame.layer4 != Layer4::none || frame.segment_bytes != 0;
}

/// Header lengths that the card's fields can hold and that make sense (7.2.3.2.3; 7.2.4.5 wants all headers of TSO within 512 bytes).
constexpr bool headers_are_valid(const TransmitFrame& frame) noexcept {
  constexpr std::uint32_t mac_length_max = 127;  // seven bits
  const std::uint32_t headers = frame.l2_bytes + frame.l3_bytes + frame.l4_bytes;
  if (frame.l2_bytes < 14 || frame.l2_bytes > mac_length_max || frame.l3_bytes < 20 || headers > frame.frame_bytes) return false;
  if (frame.segment_bytes == 0) return true;
  return frame.layer4 == Layer4::tcp && frame.l4_bytes >= 20 && headers < frame.frame_bytes && (!frame.ipv4 || frame.ipv4_checksum);
}

}  // namespace

Result<void> TransmitQueue::prepare(const QueueOptions& options) {
  const std::uint32_t count = options.transmit_descriptors;
  Memory memory;
  if (auto allocated = memory.ring.allocate(count); !allocated) return allocated;
  memory.reports.reset(new (std::nothrow) Report[count]());
  memory.tokens.reset(new (std::nothrow) void*[count]());
  if (!memory.reports || !memory.tokens) return failure(ErrorCode::out_of_memory, "ixgbe: no memory for the transmit ring's notes", count);
  auto head = DmaMemory::allocate(sizeof(std::uint32_t));
  if (!head) return std::unexpected(head.error());
  memory.head = std::move(*head);
  spare_ = std::move(memory);
  return {};
}

void TransmitQueue::program(const QueueOptions& options) noexcept {
  assert(pending() == 0 && tokens_head_ == tokens_tail_);
  if (spare_.reports) {
    ring_ = std::move(spare_.ring);
    reports_ = std::move(spare_.reports);
    tokens_ = std::move(spare_.tokens);
    head_ = std::move(spare_.head);
  }
  ring_.clear();
  next_ = clean_ = told_ = reported_ = reports_head_ = reports_tail_ = tokens_head_ = tokens_sent_ = tokens_tail_ = 0;
  contexts_ = {};  // the card's are gone
  frame_bytes_max_ = options.frame_bytes_max;
  frame_descriptors_max_ = frame_descriptors_max - options.write_back_threshold;
  // 4.6.8: base and length of the ring, head and tail to zero.
  const std::uint64_t address = ring_.bus_address();
  registers_.write(reg::TDBAL(index_), reg::Tdbal::from_raw(static_cast<std::uint32_t>(address)));
  registers_.write(reg::TDBAH(index_), {.address_high = static_cast<std::uint32_t>(address >> 32)});
  registers_.write(reg::TDLEN(index_), reg::Tdlen::from_raw(ring_.bytes()));
  registers_.write(reg::TDH(index_), {.head = 0});
  registers_.write(reg::TDT(index_), {.tail = 0});
  // 7.2.3.5.2, 8.2.3.9.11: the head's place, 4 bytes that the card writes.
  const bool head_write_back = options.head_write_back != 0;
  std::memset(head_.start(), 0, sizeof(std::uint32_t));
  written_head_ = head_write_back ? reinterpret_cast<const std::uint32_t*>(head_.start()) : nullptr;
  registers_.write(reg::TDWBAL(index_),
                   {.head_write_back = head_write_back, .address_low_4 = static_cast<std::uint32_t>(head_.bus_address()) >> 2});
  registers_.write(reg::TDWBAH(index_), {.address_high = static_cast<std::uint32_t>(head_.bus_address() >> 32)});
  registers_.write(reg::TXDCTL(index_), {.prefetch_threshold = options.prefetch_threshold,
                                         .host_threshold = options.host_threshold,
                                         .write_back_threshold = options.write_back_threshold});
}

task<Result<void>> TransmitQueue::enable(bool on) const {
  // 4.6.8: TXDCTL.ENABLE after DMATXCTL.TE, then poll it.
  registers_.modify(reg::TXDCTL(index_), [on](reg::Txdctl& value) { value.enable = on; });
  co_return co_await wait_for(
      registers_, reg::TXDCTL(index_), [on](reg::Txdctl value) { return value.enable == on; }, 100ms,
      on ? "ixgbe: TXDCTL.ENABLE did not come up" : "ixgbe: TXDCTL.ENABLE did not go down");
}

std::uint32_t TransmitQueue::empty() noexcept {
  reclaim();
  std::uint32_t frames = 0;
  for (; clean_ != next_; ++clean_) {
    const auto descriptor = TransmitData::from_raw(0, ring_.load_status(clean_));
    frames += descriptor.type == data_type && descriptor.end_of_packet ? 1 : 0;
  }
  reports_head_ = reports_tail_;
  tokens_sent_ = tokens_tail_;
  counters_.lost.add(frames);
  return frames;
}

std::uint32_t TransmitQueue::descriptors_of(const TransmitFrame& frame) const noexcept {
  const bool segment = frame.segment_bytes != 0;
  if (frame.frame_bytes == 0 || frame.frame_bytes > (segment ? tso_bytes_max : frame_bytes_max_)) return 0;
  if (wants_offload(frame) && !headers_are_valid(frame)) return 0;
  if (segment && frame.l2_bytes + frame.l3_bytes + frame.l4_bytes + std::uint32_t{frame.segment_bytes} > frame_bytes_max_) return 0;
  std::uint32_t descriptors = 0;
  std::uint32_t bytes = 0;
  for (const TransmitPiece& piece : frame.pieces) {
    descriptors += (piece.bytes + descriptor_bytes_max - 1) / descriptor_bytes_max;
    bytes += piece.bytes;
  }
  return bytes == frame.frame_bytes && descriptors < frame_descriptors_max_ ? descriptors : 0;
}

TransmitQueue::Context TransmitQueue::context_of(const TransmitFrame& frame) noexcept {
  constexpr Context always = TransmitContext{.type = context_type, .extension = true}.raw();
  const std::uint32_t l4_type = frame.layer4 == Layer4::tcp ? l4_type_tcp : l4_type_udp;
  const std::uint32_t l4_bytes = frame.segment_bytes != 0 ? frame.l4_bytes : std::uint32_t{0};
  return {always[0] | TransmitContext::put_ip_length(frame.l3_bytes) | TransmitContext::put_mac_length(frame.l2_bytes),
          always[1] | TransmitContext::put_ipv4(frame.ipv4) | TransmitContext::put_l4_type(l4_type) |
              TransmitContext::put_index(context_index(frame)) | TransmitContext::put_l4_length(l4_bytes) |
              TransmitContext::put_mss(frame.segment_bytes)};
}

Result<void> TransmitQueue::transmit(const TransmitFrame& frame) noexcept {
  const std::uint32_t data_descriptors = descriptors_of(frame);
  if (data_descriptors == 0) {
    counters_.refused_invalid.add();
    return failure(ErrorCode::invalid, "ixgbe: this frame cannot be sent", frame.frame_bytes);
  }
  const bool offload = wants_offload(frame);
  const std::uint32_t index = context_index(frame);
  const Context context = offload ? context_of(frame) : Context{};
  const bool new_context = offload && context != contexts_[index];
  const std::uint32_t descriptors = data_descriptors + (new_context ? 1 : 0);
  const bool token = frame.token != nullptr;
  if (!has_room_for(descriptors, token)) {
    reclaim();
    if (!has_room_for(descriptors, token)) {
      counters_.refused_full.add();
      room_wanted_ = true;
      return failure(ErrorCode::full, "ixgbe: transmit ring is full", index_);
    }
  }

  if (new_context) {
    contexts_[index] = context;
    ring_.store(next_++, context[0], context[1]);
    counters_.contexts.add();
  }
  const bool segment = frame.segment_bytes != 0;
  // 7.2.3.2.4: PAYLEN is the whole frame, for TSO what follows the headers.
  const std::uint32_t headers_bytes = segment ? std::uint32_t{frame.l2_bytes} + frame.l3_bytes + frame.l4_bytes : 0;
  constexpr std::uint64_t always = TransmitData{.type = data_type, .insert_fcs = true, .extension = true}.raw()[1];
  write_data(frame, always | TransmitData::put_segment(segment) | TransmitData::put_index(offload ? index : 0) |
                        TransmitData::put_insert_ip_checksum(frame.ipv4_checksum) |
                        TransmitData::put_insert_l4_checksum(frame.layer4 != Layer4::none) |
                        TransmitData::put_payload_length(frame.frame_bytes - headers_bytes));
  if (token) tokens_[ring_.slot(tokens_tail_++)] = frame.token;
  traffic_.tx_descriptors.add(descriptors);
  const FramesSent sent = frames_sent(frame);
  traffic_.tx_frames.add(sent.frames);
  traffic_.tx_bytes.add(sent.bytes);
  if (next_ - reported_ >= report_interval_descriptors) ask_for_report();
  return {};
}

void TransmitQueue::write_data(const TransmitFrame& frame, std::uint64_t common) noexcept {
  for (const TransmitPiece& piece : frame.pieces) {
    std::uint64_t address = piece.bytes != 0 ? machine::physical_address(piece.data) : 0;
    for (std::uint32_t left = piece.bytes; left != 0;) {
      const std::uint32_t bytes = std::min(left, descriptor_bytes_max);
      ring_.store(next_++, address, common | bytes);  // DTALEN is the lowest field of the second word
      address += bytes;
      left -= bytes;
    }
  }
  ring_.add_bits(next_ - 1, TransmitData::end_of_packet_mask);
}

void TransmitQueue::ask_for_report() noexcept {
  assert(reports_tail_ - reports_head_ < ring_.size());
  ring_.add_bits(next_ - 1, TransmitData::report_status_mask);
  reports_[ring_.slot(reports_tail_++)] = {.end = next_, .tokens_end = tokens_tail_};
  reported_ = next_;
}

void TransmitQueue::flush() noexcept {
  if (told_ == next_) return;
  if (reported_ != next_) ask_for_report();
  told_ = next_;
  counters_.tail_writes.add();
  registers_.write(reg::TDT(index_), {.tail = ring_.slot(next_)});
}

bool TransmitQueue::oldest_report_is_done() const noexcept {
  const std::uint32_t end = reports_[ring_.slot(reports_head_)].end;
  if (written_head_ != nullptr) {
    const std::uint32_t head = std::atomic_ref(*const_cast<std::uint32_t*>(written_head_)).load(std::memory_order_acquire);
    return ring_.slot(head - clean_) >= end - clean_;
  }
  return (ring_.load_status(end - 1) & descriptor::TransmitWriteBack::descriptor_done_mask) != 0;
}

void TransmitQueue::reclaim() noexcept {
  while (reports_head_ != reports_tail_ && oldest_report_is_done()) {
    const Report report = reports_[ring_.slot(reports_head_++)];
    clean_ = report.end;
    tokens_sent_ = report.tokens_end;
  }
}

void TransmitQueue::deliver(FrameReceiver& receiver) noexcept {
  // `transmitted` may queue new frames and so add tokens behind; those here are taken first.
  while (tokens_head_ != tokens_sent_) receiver.transmitted(tokens_[ring_.slot(tokens_head_++)]);
  if (room_wanted_ && has_room()) {
    room_wanted_ = false;
    receiver.transmit_room();
  }
}

}  // namespace neap::ixgbe
