// SPDX-License-Identifier: BSL-1.0
// The memory that a connection holds after an event: gathered payload, and lwIP's out-of-order queue. None of this code runs for a request
// that is answered in the event in which it arrives.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "kernel/events.hpp"
#include "kernel/panic.hpp"
#include "lwip/priv/tcp_priv.h"
#include "lwip/tcp.h"
#include "net/connection_state.hpp"
#include "net/gathered_piece.hpp"
#include "net/received_piece.hpp"
#include "net/stack.hpp"
#include "net/stack_memory.hpp"

namespace neap::net {

namespace {

constexpr std::uint32_t header_bytes = memory::heap_bytes(sizeof(GatheredPiece));

std::size_t memory_of(const GatheredBlock& block) noexcept { return memory::heap_bytes(sizeof(GatheredBlock) + block.room_bytes); }
void release_on_own_core(RemoteNode* node) noexcept { GatheredPiece::release(static_cast<GatheredPiece*>(node)); }

/// Copies an out-of-order segment into memory of the segment's size. lwIP also reads the segment's TCP header, so the header is copied too.
void copy_segment(Stack& stack, tcp_seg& segment) noexcept {
  if (ReceivedPiece::of(*segment.p).buffer().return_to == &Stack::free_heap_buffer) return;
  pbuf* const copy = stack.copy_of(*segment.p, segment.tcphdr, TCP_HLEN);
  if (copy == nullptr) return;
  segment.tcphdr = static_cast<tcp_hdr*>(copy->payload);
  pbuf_remove_header(copy, TCP_HLEN);
  copy->flags |= segment.p->flags & PBUF_FLAG_PUSH;
  pbuf_free(std::exchange(segment.p, copy));
  stack.counters().receive_copied.add();
}

}  // namespace

// --- Gathered payload --------------------------------------------------------------------------------------------------------------------
bool ConnectionState::gather(pbuf* chain, Buffer& data) noexcept {
  bool complete = true;
  for (const pbuf* part = chain; part != nullptr && complete; part = part->next) {
    const auto* from = static_cast<const std::byte*>(part->payload);
    std::size_t left = part->len;
    while (left > 0) {
      if (block_ == nullptr || block_->used_bytes == block_->room_bytes) {
        const std::size_t block_bytes =
            held_bytes_ + left <= memory::first_block_bytes / 2 ? memory::first_block_bytes : memory::block_bytes;
        void* const place = std::malloc(block_bytes);
        if (place == nullptr) {
          complete = false;
          break;
        }
        block_ =
            new (place) GatheredBlock{.connection = this, .room_bytes = static_cast<std::uint32_t>(block_bytes - sizeof(GatheredBlock))};
        received_memory_ += static_cast<std::uint32_t>(memory_of(*block_));
      }
      auto* const piece = new (std::nothrow) GatheredPiece{};
      if (piece == nullptr) {
        complete = false;
        break;
      }
      const auto bytes = static_cast<std::uint32_t>(std::min<std::size_t>(left, block_->room_bytes - block_->used_bytes));
      std::byte* const to = block_->data() + block_->used_bytes;
      require(bytes <= block_->room_bytes - block_->used_bytes && block_->used_bytes <= block_->room_bytes,
              "payload is gathered within its block", bytes);
      std::memcpy(to, from, bytes);
      block_->used_bytes += bytes;
      ++block_->pieces;
      piece->block = block_;
      piece->bytes = bytes;
      piece->piece = {.data = to, .bytes = bytes, .release = &GatheredPiece::release, .owner = piece};
      data.append_piece(piece->piece);
      received_memory_ += header_bytes;
      held_bytes_ += bytes;
      ++references_;
      from += bytes;
      left -= bytes;
    }
  }
  if (block_ != nullptr && block_->pieces == 0) {
    received_memory_ -= static_cast<std::uint32_t>(memory_of(*block_));
    std::free(std::exchange(block_, nullptr));
  }
  stack_.counters().receive_copied.add();
  pbuf_free(chain);
  return complete;
}

void GatheredPiece::release(void* owner) noexcept {
  auto& piece = *static_cast<GatheredPiece*>(owner);
  ConnectionState& connection = *piece.block->connection;
  if (this_core() != connection.core()) {
    piece.run = &release_on_own_core;
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
    memory_bytes += memory_of(*block);
    if (block == block_) block_ = nullptr;
    std::free(block);
  }
  piece_released(bytes, memory_bytes, count);
}

void ConnectionState::charge(std::size_t now) noexcept {
  stack_.charge(std::exchange(charged_bytes_, static_cast<std::uint32_t>(now)), now);
}

// --- Out of order ------------------------------------------------------------------------------------------------------------------------
void ConnectionState::settle_out_of_order() noexcept {
  if (pcb_->ooseq != nullptr && stack_.refuses(*this)) {
    tcp_free_ooseq(pcb_);  // RFC 2018, 8: a receiver may drop bytes that it has reported by SACK
    stack_.counters().out_of_order_dropped.add();
  }
  std::size_t bytes = pcb_->rcv_sacks == nullptr ? 0 : memory::heap_bytes(LWIP_TCP_MAX_SACK_NUM * sizeof(tcp_sack_range));
  for (tcp_seg* segment = pcb_->ooseq; segment != nullptr; segment = segment->next) {
    if (stack_.card_buffers_short(true)) copy_segment(stack_, *segment);
    bytes += memory::heap_bytes(sizeof(tcp_seg));
    for (pbuf* part = segment->p; part != nullptr; part = part->next) bytes += Stack::memory_of(ReceivedPiece::of(*part).buffer());
  }
  reordered_memory_ = static_cast<std::uint32_t>(bytes);
}

}  // namespace neap::net
