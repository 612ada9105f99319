// SPDX-License-Identifier: BSL-1.0
// The short way of received segments through TCP.
//
// Nearly every segment of an open connection carries the next bytes, or acknowledges sent bytes, or both. lwIP's general code handles such a
// segment in some 900 instructions. Here a few comparisons recognise it ("header prediction", Jacobson 1988), and the same changes are made
// to lwIP's state of the connection (tcp_pcb) directly. Any other segment is left to lwIP untouched, so lwIP remains the only implementation
// of reordering, loss, windows that close, and the end of a connection. The comments name the function of lwIP whose effects a part has.
// connection_sending.cpp is the counterpart for sent bytes.
#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "kernel/events.hpp"
#include "kernel/panic.hpp"
#include "lwip/etharp.h"
#include "lwip/ip4.h"
#include "lwip/priv/tcp_priv.h"
#include "lwip/stats.h"
#include "lwip/tcp.h"
#include "net/arrived_segment.hpp"
#include "net/connection_state.hpp"
#include "net/control_frames.hpp"
#include "net/outgoing_segment.hpp"
#include "net/received_piece.hpp"
#include "net/stack.hpp"
#include "net/transmit_offload.hpp"

namespace neap::net {

// Timestamps would be an option of every segment.
static_assert(LWIP_TCP_TIMESTAMPS == 0, "headers have no options");

namespace {

void release_on_own_core(RemoteNode* node) noexcept;

// The state of a piece that `deliver` made, in `pbuf.ref`. lwIP has no part in such a piece.
constexpr u8_t delivered_and_released = 0, being_delivered = 1, retained = 2;

void release_delivered(void* owner) noexcept {
  auto& piece = *static_cast<ReceivedPiece*>(owner);
  ConnectionState& connection = *piece.connection;
  if (this_core() != connection.core()) [[unlikely]] {
    piece.run = &release_on_own_core;
    hand_over(connection.core(), piece);
    return;
  }
  if (piece.pbuf.ref == being_delivered) [[likely]] {
    piece.pbuf.ref = delivered_and_released;
  } else {
    connection.delivered_released(piece);
  }
}

void release_on_own_core(RemoteNode* node) noexcept { release_delivered(static_cast<ReceivedPiece*>(node)); }

/// Adds to a window, which stops at its type's maximum (lwIP's TCP_WND_INC).
void increase(tcpwnd_size_t& window, tcpwnd_size_t by) noexcept {
  const auto sum = static_cast<tcpwnd_size_t>(window + by);
  window = sum >= window ? sum : static_cast<tcpwnd_size_t>(-1);
}

/// tcp_receive(): takes the window that the segment announces, unless a newer segment has announced one.
[[gnu::always_inline]] inline void update_send_window(tcp_pcb& pcb, const ArrivedSegment& segment) noexcept {
  const auto window = static_cast<tcpwnd_size_t>(SND_WND_SCALE(&pcb, segment.window));
  if (TCP_SEQ_LT(pcb.snd_wl1, segment.sequence) || (pcb.snd_wl1 == segment.sequence && TCP_SEQ_LT(pcb.snd_wl2, segment.acknowledgement)) ||
      (pcb.snd_wl2 == segment.acknowledgement && window > pcb.snd_wnd)) {
    pcb.snd_wnd = window;
    if (pcb.snd_wnd_max < window) pcb.snd_wnd_max = window;
    pcb.snd_wl1 = segment.sequence;
    pcb.snd_wl2 = segment.acknowledgement;
  }
}

/// tcp_free_acked_segments(): releases the segments at the front of `list` that `acknowledgement` covers. Returns the rest of the list, and
/// adds the released bytes to `bytes`.
[[gnu::always_inline]] inline tcp_seg* release_acknowledged(tcp_pcb& pcb, tcp_seg* list, std::uint32_t acknowledgement,
                                                            std::uint32_t& bytes) noexcept {
  while (list != nullptr && TCP_SEQ_LEQ(lwip_ntohl(list->tcphdr->seqno) + TCP_TCPLEN(list), acknowledgement)) {
    tcp_seg& segment = *list;
    list = segment.next;
    const std::uint16_t buffers = segment.p->next == nullptr ? std::uint16_t{1} : pbuf_clen(segment.p);
    require(pcb.snd_queuelen >= buffers, "a connection's queue counts all buffers of its segments", pcb.snd_queuelen);
    pcb.snd_queuelen = static_cast<u16_t>(pcb.snd_queuelen - buffers);
    bytes += std::uint32_t{segment.len} + segment.acked;
    OutgoingSegment::release(segment);
  }
  return list;
}

/// tcp_receive(): measures the round trip, if the measured segment is acknowledged (Jacobson 1988).
[[gnu::always_inline]] inline void measure_round_trip(tcp_pcb& pcb, std::uint32_t acknowledgement) noexcept {
  if (pcb.rttest == 0 || !TCP_SEQ_LT(pcb.rtseq, acknowledgement)) return;
  auto m = static_cast<s16_t>(tcp_ticks - pcb.rttest);
  m = static_cast<s16_t>(m - (pcb.sa >> 3));
  pcb.sa = static_cast<s16_t>(pcb.sa + m);
  if (m < 0) m = static_cast<s16_t>(-m);
  m = static_cast<s16_t>(m - (pcb.sv >> 2));
  pcb.sv = static_cast<s16_t>(pcb.sv + m);
  pcb.rto = static_cast<s16_t>((pcb.sa >> 3) + pcb.sv);
  pcb.rttest = 0;
}

/// tcp_receive(): an acknowledgement of `bytes` new bytes. Returns the bytes of the segments that it completes.
[[gnu::always_inline]] inline std::uint32_t take_acknowledgement(tcp_pcb& pcb, std::uint32_t acknowledgement,
                                                                 std::uint32_t bytes) noexcept {
  pcb.nrtx = 0;
  pcb.rto = static_cast<s16_t>((pcb.sa >> 3) + pcb.sv);
  pcb.dupacks = 0;
  pcb.lastack = acknowledgement;
  if (pcb.cwnd < pcb.ssthresh) {  // slow start, RFC 3465
    increase(pcb.cwnd, std::min<tcpwnd_size_t>(bytes, tcpwnd_size_t{2} * pcb.mss));
  } else {
    increase(pcb.bytes_acked, bytes);
    if (pcb.bytes_acked >= pcb.cwnd) {
      pcb.bytes_acked -= pcb.cwnd;
      increase(pcb.cwnd, pcb.mss);
    }
  }
  std::uint32_t released = 0;
  pcb.unacked = release_acknowledged(pcb, pcb.unacked, acknowledgement, released);
  if (pcb.unsent != nullptr) pcb.unsent = release_acknowledged(pcb, pcb.unsent, acknowledgement, released);
  pcb.rtime = pcb.unacked == nullptr ? s16_t{-1} : s16_t{0};
  pcb.polltmr = 0;
  if (pcb.unsent == nullptr) pcb.unsent_oversize = 0;
  pcb.snd_buf += released;
  measure_round_trip(pcb, acknowledgement);
  return released;
}

}  // namespace

// --- Receiving ---------------------------------------------------------------------------------------------------------------------------

// The first condition is RFC 9293, 3.10.7.4 and RFC 5961, 5, for a segment that starts at RCV.NXT and fits the window: lwIP's checks
// (lwip-patches/0013) accept such a segment with the same numbers. A segment that brings nothing new may be a duplicate acknowledgement or
// a probe, and is left to lwIP.
bool ConnectionState::take_segment(const ArrivedSegment& segment, ReceiveBuffer& buffer) noexcept {
  tcp_pcb& pcb = *pcb_;
  if (pcb.state != ESTABLISHED) return false;
  constexpr tcpflags_t unusual_flags = TF_INFR | TF_CLOSEPEND | TF_RXCLOSED | TF_FIN | TF_RTO;
  const std::uint32_t newly_acknowledged = segment.acknowledgement - pcb.lastack;
  if (segment.sequence != pcb.rcv_nxt || segment.bytes > pcb.rcv_wnd || newly_acknowledged > pcb.snd_nxt - pcb.lastack ||
      (segment.bytes | newly_acknowledged) == 0)
    return false;
  if ((pcb.flags & unusual_flags) != 0 || pcb.ooseq != nullptr || pcb.refused_data != nullptr || pcb.persist_backoff != 0 ||
      LWIP_TCP_SACK_VALID(&pcb, 0))
    return false;
  if (close_wanted_ || abort_wanted_ || handler_ == nullptr) return false;
  if (segment.bytes != 0 && (stack_.memory_short() || stack_.card_buffers_short(held_bytes_ > 0, segment.buffers))) return false;

  TCP_STATS_INC(tcp.recv);
  pcb.tmr = tcp_ticks;
  pcb.keep_cnt_sent = 0;
  pcb.persist_probe = 0;
  update_send_window(pcb, segment);
  stack_.mark_dirty(*this);
  if (newly_acknowledged != 0) {
    const std::uint32_t sent = take_acknowledgement(pcb, segment.acknowledgement, newly_acknowledged);
    if (sent != 0) acknowledged(sent);
  }
  if (segment.bytes == 0) {
    Stack::release_chain(&buffer);
    return true;
  }
  pcb.rcv_nxt += segment.bytes;
  // tcp_ack(): every second segment is acknowledged at once, unless a reply carries the acknowledgement. More than one MSS is a frame that
  // the card has made of several segments.
  const bool now = (pcb.flags & TF_ACK_DELAY) != 0 || segment.bytes > pcb.mss;
  pcb.flags = static_cast<tcpflags_t>(now ? (pcb.flags & ~unsigned{TF_ACK_DELAY}) | TF_ACK_NOW : pcb.flags | TF_ACK_DELAY);
  if (buffer.next == nullptr) [[likely]] {
    deliver(segment, buffer);
  } else {
    deliver_chain(segment, buffer);
  }
  tcp_update_rcv_ann_wnd(&pcb);
  return true;
}

namespace {

ReceivedPiece& make_delivered(ReceiveBuffer& buffer, ConnectionState& connection, const std::byte* data, std::uint32_t bytes) noexcept {
  ReceivedPiece& piece = ReceivedPiece::make(buffer);
  piece.connection = &connection;
  piece.pbuf.len = static_cast<u16_t>(bytes);
  piece.pbuf.ref = being_delivered;
  piece.piece = {.data = data, .bytes = bytes, .release = &release_delivered, .owner = &piece};
  return piece;
}

}  // namespace

// Nearly every handler releases the bytes before it returns. Then the bytes neither close the window nor count as held, and no request of
// the handler takes effect before that is known.
inline void ConnectionState::deliver(const ArrivedSegment& segment, ReceiveBuffer& buffer) noexcept {
  ReceivedPiece& piece = make_delivered(buffer, *this, segment.payload, segment.bytes);
  call_handler([&](ConnectionHandler& handler) { handler.received(Buffer(piece.piece)); });
  if (piece.pbuf.ref == delivered_and_released) [[likely]] {
    buffer.release();
  } else {
    retain(piece);
  }
}

void ConnectionState::deliver_chain(const ArrivedSegment& segment, ReceiveBuffer& first) noexcept {
  Buffer data;
  const std::byte* payload = segment.payload;
  std::uint32_t left = segment.bytes;
  for (ReceiveBuffer* buffer = &first; buffer != nullptr; buffer = buffer->next) {
    const std::uint32_t bytes = std::min(left, buffer->bytes - static_cast<std::uint32_t>(payload - buffer->data));
    data.append_piece(make_delivered(*buffer, *this, payload, bytes).piece);
    left -= bytes;
    if (buffer->next != nullptr) payload = buffer->next->data;
  }
  require(left == 0, "the buffers of a frame hold its payload", left);
  call_handler([&](ConnectionHandler& handler) { handler.received(std::move(data)); });
  for (ReceiveBuffer* buffer = &first; buffer != nullptr;) {
    ReceiveBuffer& done = *buffer;
    buffer = std::exchange(done.next, nullptr);
    ReceivedPiece& piece = ReceivedPiece::in(done);
    if (piece.pbuf.ref == delivered_and_released) {
      done.release();
    } else {
      retain(piece);
    }
  }
}

/// The handler has kept the piece.
void ConnectionState::retain(ReceivedPiece& piece) noexcept {
  piece.pbuf.ref = retained;
  ReceiveBuffer& buffer = piece.buffer();
  stack_.hold_buffer(buffer);
  received_memory_ += Stack::memory_of(buffer);
  held_bytes_ += piece.pbuf.len;
  ++references_;
  pcb_->rcv_wnd -= piece.pbuf.len;
}

void ConnectionState::delivered_released(ReceivedPiece& piece) noexcept {
  ReceiveBuffer& buffer = piece.buffer();
  const std::uint32_t bytes = piece.pbuf.len;
  const std::size_t memory_bytes = Stack::memory_of(buffer);
  stack_.received_buffer_freed(&buffer);
  piece_released(bytes, memory_bytes);
}

}  // namespace neap::net
