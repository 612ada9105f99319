// SPDX-License-Identifier: BSL-1.0
// The payload of segments on the general path: in order, out of order, and the end of the peer's stream. Also the memory that a connection
// holds for received bytes. None of this code runs for a request that is answered in the event in which it arrives.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "kernel/events.hpp"
#include "kernel/panic.hpp"
#include "net/connection_frames.hpp"
#include "net/gathered_piece.hpp"
#include "net/received_piece.hpp"

namespace neap::net {

namespace {

constexpr std::uint32_t header_bytes = memory::heap_bytes(sizeof(GatheredPiece));
/// The memory of a connection's out-of-order bytes. A full receive window, in segments of less than a full frame.
constexpr std::size_t out_of_order_factor = 4;

std::size_t memory_of_block(const GatheredBlock& block) noexcept { return memory::heap_bytes(sizeof(GatheredBlock) + block.room_bytes); }
void release_gathered_on_own_core(RemoteNode* node) noexcept { GatheredPiece::release(static_cast<GatheredPiece*>(node)); }

/// Releases a piece that waits out of order, on its own core.
void release_waiting(void* owner) noexcept {
  ReceivedPiece& piece = *static_cast<ReceivedPiece*>(owner);
  Stack::here()->received_buffer_freed(&piece.buffer());
}

}  // namespace

// --- Pieces ------------------------------------------------------------------------------------------------------------------------------
Buffer ConnectionState::pieces_of(IncomingSegment& segment, std::uint32_t skip, std::uint32_t bytes, Buffer::Release release,
                                  std::uint32_t& memory_bytes) noexcept {
  Buffer data;
  std::uint32_t at = segment.payload_at + skip;
  for (ReceiveBuffer* buffer = segment.take_frame(); buffer != nullptr;) {
    ReceiveBuffer& own = *std::exchange(buffer, buffer->next);
    own.next = nullptr;
    const std::uint32_t part = at < own.bytes ? std::min(bytes, own.bytes - at) : 0;
    if (part == 0) {
      at -= std::min(at, own.bytes);
      own.release();
      continue;
    }
    ReceivedPiece& piece = ReceivedPiece::make(own);
    piece.connection = this;
    piece.bytes = part;
    piece.piece = {.data = own.data + at, .bytes = part, .release = release, .owner = &piece};
    stack_.hold_buffer(own);
    memory_bytes += static_cast<std::uint32_t>(Stack::memory_of(own));
    data.append_piece(piece.piece);
    bytes -= part;
    at = 0;
  }
  require(bytes == 0, "the buffers of a frame hold its payload", bytes);
  return data;
}

/// The pieces are those of `pieces_of`, perhaps trimmed.
void ConnectionState::count_held(Buffer& data) noexcept {
  for (Buffer::Piece* piece = data.first(); piece != nullptr; piece = piece->next) {
    ReceivedPiece& received = *static_cast<ReceivedPiece*>(piece->owner);
    received.bytes = piece->bytes;
    received_memory_ += static_cast<std::uint32_t>(Stack::memory_of(received.buffer()));
    ++references_;
  }
  held_bytes_ += static_cast<std::uint32_t>(data.bytes());
}

void ConnectionState::hand_to_handler(Buffer data) noexcept {
  if (data.empty()) return;
  call_handler([&](ConnectionHandler& handler) { handler.received(std::move(data)); });
}

// --- Segments ----------------------------------------------------------------------------------------------------------------------------
void ConnectionState::take_payload(IncomingSegment& segment) noexcept {
  if (!receives()) {  // behind the peer's FIN
    acknowledgements_.require_now();
    return;
  }
  const std::uint32_t next = receive_.next();
  bool fin = segment.has(flag::fin);
  std::uint32_t skip = tcp::before(segment.sequence, next) ? next - segment.sequence : 0;
  std::uint32_t bytes = segment.payload_bytes;
  if (skip > bytes) {  // only the FIN may be new
    require(fin, "a segment without new numbers is not accepted", skip);
    skip = bytes;
  }
  if (skip != 0) {
    if (sack_) out_of_order_.report_duplicate(segment.sequence, segment.sequence + skip);
    acknowledgements_.require_now();
  }
  const std::uint32_t begin = segment.sequence + skip;
  bytes -= skip;
  const std::uint32_t room = receive_.edge() - begin;
  if (bytes > room) {
    bytes = room;
    fin = false;
    acknowledgements_.require_now();
  }
  if (!out_of_order_.empty()) [[unlikely]] {
    // No byte follows a FIN, whatever the peer sends later.
    if (const auto last = out_of_order_.fin(); last.has_value() && tcp::before(*last, begin + bytes)) {
      bytes = tcp::before(begin, *last) ? *last - begin : 0;
      fin = false;
    }
  }
  if (bytes != 0 && stack_.refuses(*this)) {
    stack_.counters().payload_refused.add();
    acknowledgements_.require_now();
    return;
  }
  if (begin != next) {
    acknowledgements_.require_now();
    acknowledgements_.begin_quick();
    if (discards()) {  // nothing is kept, so nothing is reported
      stack_.counters().discarded_bytes.add(bytes);
      return;
    }
    if (skip != 0) return;
    keep_out_of_order(segment, bytes, fin);
    return;
  }
  if (out_of_order_.ranges() != 0) acknowledgements_.require_now();  // RFC 5681, 4.2: it fills a gap, or a part of one
  if (bytes != 0) take_in_order(segment, skip, bytes);
  if (receive_.next() != begin + bytes) return;  // memory was short
  if (out_of_order_.has_next(receive_.next())) {
    acknowledgements_.require_now();
    take_from_out_of_order();
  } else if (fin && !gone()) {
    take_fin();
  }
}

void ConnectionState::take_in_order(IncomingSegment& segment, std::uint32_t skip, std::uint32_t bytes) noexcept {
  if (discards()) {
    stack_.counters().discarded_bytes.add(bytes);
    receive_.advance(bytes);
    acknowledgements_.received(bytes);
    return;
  }
  Buffer data;
  if (stack_.card_buffers_short(held_bytes_ > 0)) [[unlikely]] {
    data = gather(segment.frame, segment.payload_at + skip, bytes);
    if (data.bytes() != bytes) stack_.counters().dropped_memory.add();
    bytes = static_cast<std::uint32_t>(data.bytes());
    if (bytes == 0) return;
  } else {
    std::uint32_t memory_bytes = 0;
    data = pieces_of(segment, skip, bytes, &ReceivedPiece::release, memory_bytes);
    count_held(data);
  }
  receive_.advance(bytes);
  acknowledgements_.received(bytes);
  hand_to_handler(std::move(data));
  if (receive_.tuning_due(held_bytes_)) [[unlikely]]
    tune(segment.options.has_timestamps ? segment.options.timestamps.echo : 0);
}

void ConnectionState::keep_out_of_order(IncomingSegment& segment, std::uint32_t bytes, bool fin) noexcept {
  tcp::StreamPart part{.begin = segment.sequence, .fin = fin};
  if (bytes != 0) part.data = pieces_of(segment, 0, bytes, &release_waiting, part.memory_bytes);
  const std::size_t memory_max = std::size_t{receive_.limit_bytes()} * out_of_order_factor;
  const tcp::OutOfOrder::Inserted inserted = out_of_order_.insert(std::move(part), receive_.next(), memory_max, sack_);
  if (inserted.bytes_dropped != 0) stack_.counters().out_of_order_dropped.add();
}

void ConnectionState::take_from_out_of_order() noexcept {
  while (!gone() && out_of_order_.has_next(receive_.next())) {
    tcp::StreamPart part = out_of_order_.take_next(receive_.next());
    const auto bytes = static_cast<std::uint32_t>(part.data.bytes());
    if (bytes != 0) {
      receive_.advance(bytes);
      acknowledgements_.received(bytes);
      if (discards()) {
        stack_.counters().discarded_bytes.add(bytes);
        part.data.clear();
      } else {
        for (Buffer::Piece* piece = part.data.first(); piece != nullptr; piece = piece->next) piece->release = &ReceivedPiece::release;
        count_held(part.data);
        hand_to_handler(std::move(part.data));
      }
    }
    if (part.fin && !gone()) take_fin();
  }
}

/// 3.10.7.4, eighth: the peer sends no more bytes.
void ConnectionState::take_fin() noexcept {
  receive_.advance(1);
  acknowledgements_.require_now();
  out_of_order_ = tcp::OutOfOrder();
  switch (state_) {
    case TcpState::established:
      state_ = TcpState::close_wait;
      break;
    case TcpState::fin_wait_1:
      state_ = TcpState::closing;
      break;
    default:
      break;
  }
  if (!close_wanted_ && !abort_wanted_ && handler_ != nullptr) call_handler([](ConnectionHandler& handler) { handler.peer_closed(); });
  if (state_ == TcpState::fin_wait_2 && !abort_wanted_) enter_time_wait();
}

// Copies out-of-order payload into memory of its size if card buffers are short; drops it if memory is short (RFC 2018, 8).
void ConnectionState::settle_out_of_order() noexcept {
  if (out_of_order_.ranges() == 0) return;
  if (stack_.refuses(*this)) {
    if (out_of_order_.drop_all() != 0) stack_.counters().out_of_order_dropped.add();
    return;
  }
  if (!stack_.card_buffers_short(true)) return;
  out_of_order_.compact([this](Buffer&& data, std::uint32_t& memory_bytes) -> Buffer {
    ReceiveBuffer* const copy = stack_.copy_of(data);
    if (copy == nullptr) return std::move(data);
    ReceivedPiece& piece = ReceivedPiece::make(*copy);
    piece.connection = this;
    piece.bytes = copy->bytes;
    piece.piece = {.data = copy->data, .bytes = copy->bytes, .release = &release_waiting, .owner = &piece};
    memory_bytes = static_cast<std::uint32_t>(Stack::memory_of(*copy));
    stack_.counters().receive_copied.add();
    data.clear();
    return Buffer(piece.piece);
  });
}

// --- Releases ----------------------------------------------------------------------------------------------------------------------------
void ReceivedPiece::release(void* owner) noexcept {
  auto& piece = *static_cast<ReceivedPiece*>(owner);
  ConnectionState& connection = *piece.connection;
  if (this_core() != connection.core()) [[unlikely]] {
    hand_over(connection.core(), *new (static_cast<RemoteNode*>(&piece))
                                     RemoteNode{.run = [](RemoteNode* node) noexcept { release(static_cast<ReceivedPiece*>(node)); }});
    return;
  }
  connection.delivered_released(piece);
}

void ConnectionState::delivered_released(ReceivedPiece& piece) noexcept {
  ReceiveBuffer& buffer = piece.buffer();
  const std::uint32_t bytes = piece.bytes;
  const std::size_t memory_bytes = Stack::memory_of(buffer);
  stack_.received_buffer_freed(&buffer);
  piece_released(bytes, memory_bytes);
}

void ConnectionState::piece_released(std::uint32_t bytes, std::size_t memory_bytes, std::uint32_t references) noexcept {
  require(held_bytes_ >= bytes && received_memory_ >= memory_bytes, "no more bytes are released than were received", bytes);
  held_bytes_ -= bytes;
  received_memory_ -= static_cast<std::uint32_t>(memory_bytes);
  if (!gone()) {
    ordinary_ = false;  // the window may have to be announced
    stack_.mark_dirty(*this);
  } else {
    charge();
  }
  drop_references(references);
}

// --- Gathered payload --------------------------------------------------------------------------------------------------------------------
Buffer ConnectionState::gather(const ReceiveBuffer* frame, std::uint32_t at, std::uint32_t bytes) noexcept {
  Buffer data;
  for (; frame != nullptr && bytes > 0; frame = frame->next) {
    if (at >= frame->bytes) {
      at -= frame->bytes;
      continue;
    }
    const std::byte* from = frame->data + at;
    std::size_t left = std::min<std::size_t>(bytes, frame->bytes - at);
    bytes -= static_cast<std::uint32_t>(left);
    at = 0;
    while (left > 0) {
      if (block_ == nullptr || block_->used_bytes == block_->room_bytes) {
        const std::size_t block_bytes =
            held_bytes_ + left <= memory::first_block_bytes / 2 ? memory::first_block_bytes : memory::block_bytes;
        void* const place = std::malloc(block_bytes);
        if (place == nullptr) {
          bytes = 0;
          break;
        }
        block_ =
            new (place) GatheredBlock{.connection = this, .room_bytes = static_cast<std::uint32_t>(block_bytes - sizeof(GatheredBlock))};
        received_memory_ += static_cast<std::uint32_t>(memory_of_block(*block_));
      }
      auto* const piece = new (std::nothrow) GatheredPiece{};
      if (piece == nullptr) {
        bytes = 0;
        break;
      }
      const auto part = static_cast<std::uint32_t>(std::min<std::size_t>(left, block_->room_bytes - block_->used_bytes));
      std::byte* const to = block_->data() + block_->used_bytes;
      require(block_->used_bytes <= block_->room_bytes, "payload is gathered within its block", part);
      std::memcpy(to, from, part);
      block_->used_bytes += part;
      ++block_->pieces;
      piece->block = block_;
      piece->bytes = part;
      piece->piece = {.data = to, .bytes = part, .release = &GatheredPiece::release, .owner = piece};
      data.append_piece(piece->piece);
      received_memory_ += header_bytes;
      held_bytes_ += part;
      ++references_;
      from += part;
      left -= part;
    }
  }
  if (block_ != nullptr && block_->pieces == 0) {
    received_memory_ -= static_cast<std::uint32_t>(memory_of_block(*block_));
    std::free(std::exchange(block_, nullptr));
  }
  stack_.counters().receive_copied.add();
  return data;
}

void GatheredPiece::release(void* owner) noexcept {
  auto& piece = *static_cast<GatheredPiece*>(owner);
  ConnectionState& connection = *piece.block->connection;
  if (this_core() != connection.core()) {
    piece.run = &release_gathered_on_own_core;
    hand_over(connection.core(), piece);
    return;
  }
  connection.gathered_released(piece);
}

void GatheredPiece::join(Buffer::Piece& last, Buffer::Piece& next) noexcept {
  GatheredPiece& one = *of(last);
  GatheredPiece* const other = of(next);
  require(one.block == other->block && last.data + last.bytes == next.data, "joined pieces are adjacent in one block", next.bytes);
  last.bytes += next.bytes;
  one.bytes += other->bytes;
  one.count += other->count;
  one.headers += other->headers;
  ConnectionState& connection = *one.block->connection;
  if (this_core() == connection.core()) {
    --one.headers;
    connection.header_joined();
  }
  delete other;
}

void ConnectionState::header_joined() noexcept {
  require(received_memory_ >= header_bytes, "no more memory is released than was received", received_memory_);
  received_memory_ -= header_bytes;
}

void ConnectionState::gathered_released(GatheredPiece& piece) noexcept {
  GatheredBlock* const block = piece.block;
  const std::uint32_t bytes = piece.bytes, count = piece.count;
  std::size_t memory_bytes = piece.headers * header_bytes;
  delete &piece;
  require(block->connection == this && block->pieces >= count, "no more pieces of a block are released than it has", count);
  block->pieces -= count;
  if (block->pieces == 0) {
    memory_bytes += memory_of_block(*block);
    if (block == block_) block_ = nullptr;
    std::free(block);
  }
  piece_released(bytes, memory_bytes, count);
}

}  // namespace neap::net
