// SPDX-License-Identifier: BSL-1.0
// Passes lwIP's frames to the card: a chain of pbufs becomes the pieces of a frame. The pbufs are freed when the card has read them.
// Segments are passed by `send_frame`.
#include <array>
#include <cstring>

#include "kernel/log.hpp"
#include "lwip/prot/ethernet.h"
#include "lwip/prot/ip4.h"
#include "lwip/prot/tcp.h"
#include "net/control_frames.hpp"
#include "net/outgoing_segment.hpp"
#include "net/stack.hpp"
#include "net/transmit_offload.hpp"

namespace neap::net {

void Stack::count_control_sent(FramesSent sent) noexcept {
  log::count_control({.tx_frames = sent.frames, .tx_bytes = sent.bytes});
  counters_.control_frames_sent.add(sent.frames);
  counters_.control_bytes_sent.add(sent.bytes);
}

err_t Stack::transmit(pbuf* frame) noexcept {
  if (transmitting_stopped_) return ERR_IF;
  want_checks();
  std::array<TransmitPiece, pieces_max> pieces;
  const unsigned limit = pieces_limit();
  unsigned count = 0;
  bool fits = true;
  for (const pbuf* piece = frame; piece != nullptr; piece = piece->next) {
    if (piece->len == 0) continue;
    if (count == limit) {
      fits = false;
      break;
    }
    pieces[count++] = {.data = static_cast<const std::byte*>(piece->payload), .bytes = piece->len};
  }
  pbuf* held = frame;
  if (!fits) {
    held = pbuf_clone(PBUF_RAW, PBUF_RAM, frame);
    if (held == nullptr) {
      counters_.dropped_memory.add();
      return ERR_MEM;
    }
    counters_.transmit_copied.add();
    pieces[0] = {.data = static_cast<const std::byte*>(held->payload), .bytes = held->len};
    count = 1;
  } else {
    pbuf_ref(held);
  }

  require(held->len >= SIZEOF_ETH_HDR, "a frame's first piece holds the Ethernet header", held->len);
  const TransmitOffload offload = limits_.checksum_offload ? offload_checksums(*held, limits_.ip_header_offload) : TransmitOffload{};
  std::uint16_t ethertype;
  std::memcpy(&ethertype, static_cast<const std::byte*>(held->payload) + 12, sizeof ethertype);
  if (ethertype == PP_HTONS(ETHTYPE_ARP)) {
    arp_dirty_ = true;
    note_asked(*held);
  }

  const err_t error = give({pieces.data(), count}, offload, held, held->tot_len);
  if (error != ERR_OK) pbuf_free(held);
  return error;
}

err_t Stack::give(TransmitPieces pieces, TransmitOffload offload, pbuf* held, std::uint32_t bytes) noexcept {
  if (const auto taken = sender_->transmit(pieces, offload, held); !taken.has_value()) {
    if (taken.error() == ErrorCode::full) {
      counters_.transmit_full.add();
      return ERR_MEM;
    }
    counters_.transmit_failed.add();
    return ERR_IF;
  }
  count_sent(frames_sent(bytes, offload), is_control_frame(pieces[0].data, pieces[0].bytes, LocalPort::source));
  return ERR_OK;
}

bool Stack::count_refused(ErrorCode error) noexcept {
  (error == ErrorCode::full ? counters_.transmit_full : counters_.transmit_failed).add();
  return error != ErrorCode::full;
}

// Mostly no segment is acknowledged yet, so its connection has a reference too.
void Stack::transmitted(std::span<void* const> tokens) noexcept {
  require(tokens.size() <= frames_in_flight_, "no more TX completions are reported than frames are in flight", tokens.size());
  frames_in_flight_ -= static_cast<unsigned>(tokens.size());
  for (void* const token : tokens) {
    const auto value = reinterpret_cast<std::uintptr_t>(token);
    if ((value & segment_token) != 0) [[likely]] {
      OutgoingSegment::release(*reinterpret_cast<OutgoingSegment*>(value - segment_token));
    } else {
      pbuf_free(static_cast<pbuf*>(token));
    }
  }
}

void Stack::transmit_room() noexcept {
  retry_blocked_ = true;
  want_checks();
}

}  // namespace neap::net
