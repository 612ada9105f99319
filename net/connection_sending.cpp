// SPDX-License-Identifier: BSL-1.0
// The short way of sent bytes through TCP.
//
// Nearly every reply fits one frame, or is long and consists of whole segments. lwIP makes a tcp_seg, pbufs and headers for each segment,
// in some 700 instructions. Here queued bytes become one object with all of these (outgoing_segment.hpp). A long object has up to 64 KiB,
// and the card cuts it into segments (TSO), so the cost of a long reply does not grow with its segments. The same changes are made to
// lwIP's state of the connection (tcp_pcb) as by lwIP, which keeps the objects, and sends them again if they are lost (lwip-patches/0025,
// 0027). Closed windows, the end of a connection and a neighbour whose address is not known are left to lwIP. The comments name the
// function of lwIP whose effects a part has.
#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "kernel/panic.hpp"
#include "lwip/etharp.h"
#include "lwip/ip4.h"
#include "lwip/priv/tcp_priv.h"
#include "lwip/stats.h"
#include "lwip/tcp.h"
#include "net/connection_state.hpp"
#include "net/outgoing_segment.hpp"
#include "net/payload_reference.hpp"
#include "net/stack.hpp"
#include "net/transmit_offload.hpp"

namespace neap::net {

// Timestamps would be an option of every segment.
static_assert(LWIP_TCP_TIMESTAMPS == 0, "headers have no options");
static_assert(OutgoingSegment::payload_bytes_max >= TCP_MSS);

namespace {

/// The largest payload of a long segment. An IP datagram has at most 65,535 bytes.
constexpr std::uint32_t long_bytes_max = 0xFFFF - SegmentHeaders::bytes;

std::uint32_t sequence_of(const tcp_seg& segment) noexcept { return lwip_ntohl(segment.tcphdr->seqno); }

/// The bytes that may be sent now, by the peer's window, congestion control and lwIP's limit of bytes in flight.
std::uint32_t room_of(const tcp_pcb& pcb, std::uint32_t in_flight) noexcept {
  const std::uint32_t window = std::min(pcb.snd_wnd, pcb.cwnd);
  return std::min(window - std::min(window, in_flight), pcb.snd_buf);
}

}  // namespace

// --- To the card ------------------------------------------------------------------------------------------------------------------------
[[gnu::always_inline]] inline bool Stack::send_pieces(OutgoingSegment& segment, TransmitPieces pieces, TransmitOffload offload,
                                                      bool control) noexcept {
  if (transmitting_stopped_ || (joiner_.holds() && !send_held())) return false;
  pbuf& frame = segment.custom.pbuf;
  if (const auto taken = sender_->transmit(pieces, offload, &frame); !taken.has_value()) [[unlikely]] {
    (taken.error() == ErrorCode::full ? counters_.transmit_full : counters_.transmit_failed).add();
    return false;
  }
  ++frame.ref;  // the card's
  count_sent(frames_sent(frame.tot_len, offload), control);
  return true;
}

[[gnu::always_inline]] inline bool Stack::send_segment(OutgoingSegment& segment, bool control) noexcept {
  constexpr TransmitOffload offload{.l3_bytes = IP_HLEN, .l4_bytes = TCP_HLEN, .checksums = Checksums::tcp_ipv4};
  const pbuf& frame = segment.custom.pbuf;
  if (frame.next != nullptr) [[unlikely]]  // lwIP has added bytes
    return send_long_segment(segment, 0, control);
  const TransmitPiece piece{.data = static_cast<const std::byte*>(frame.payload), .bytes = frame.len};
  return send_pieces(segment, {&piece, 1}, offload, control);
}

bool Stack::send_long_segment(OutgoingSegment& segment, std::uint16_t segment_bytes, bool control) noexcept {
  std::array<TransmitPiece, pieces_max> pieces;
  unsigned count = 0;
  for (const pbuf* piece = &segment.custom.pbuf; piece != nullptr; piece = piece->next) {
    require(count < pieces.size(), "a segment has no more pieces than a frame may have", count);
    pieces[count++] = {.data = static_cast<const std::byte*>(piece->payload), .bytes = piece->len};
  }
  const TransmitOffload offload{
      .l3_bytes = IP_HLEN, .l4_bytes = TCP_HLEN, .checksums = Checksums::tcp_ipv4, .segment_bytes = segment_bytes};
  if (!send_pieces(segment, {pieces.data(), count}, offload, control)) return false;
  if (segment_bytes != 0) {
    counters_.joined_frames.add();
    counters_.joined_segments.add(frames_sent(segment.custom.pbuf.tot_len, offload).frames);
  }
  return true;
}

// --- The end of an event -----------------------------------------------------------------------------------------------------------------
// Called at the end of the event. If the handler has sent further bytes meanwhile, for example the reply to a request that came with the
// acknowledgement, not all bytes are acknowledged.
void ConnectionState::report_acknowledged() noexcept {
  const bool room = wanted_bytes_ != 0 && send_space_bytes() >= wanted_bytes_;
  if (!room && unacknowledged_bytes() != 0) return;
  wanted_bytes_ = 0;
  if (!gone() && handler_ != nullptr && !end_wanted_ && !abort_wanted_)
    call_handler([](ConnectionHandler& handler) { handler.writable(); });
}

// If a segment changed the connection without lwIP, and lwIP was not used since, only queued bytes and an acknowledgement may be due.
[[gnu::always_inline]] inline void ConnectionState::settle() noexcept {
  if (std::exchange(acknowledged_, false) && (ready_ == nullptr || wanted_bytes_ != 0)) report_acknowledged();
  if (gone()) return;
  if (ordinary_at_ == stack_.lwip_uses() && (released_bytes_ | reordered_memory_) == 0) [[likely]] {
    if (ready_ != nullptr && fits_now(ready_bytes())) [[likely]] {
      if (pass(*std::exchange(ready_, nullptr), TCP_ACK | TCP_PSH, false, false) == Sent::all) [[likely]]
        return charge_sent();
    } else if (send_queued() == Sent::all && ((pcb_->flags & (TF_ACK_NOW | TF_NAGLEMEMERR)) == 0 || acknowledge())) {
      return charge();
    }
  }
  settle_with_lwip();
}

void Stack::settle_dirty() noexcept {
  while (ConnectionState* const connection = dirty_.pop_front()) connection->settle();
}

void ConnectionState::queue_ready() noexcept {
  if (ready_ == nullptr) return;
  require(queued_.empty(), "bytes of `send_copy` wait alone", queued_.bytes());
  queued_ = Buffer(std::exchange(ready_, nullptr)->as_piece());
}

// --- Segments ----------------------------------------------------------------------------------------------------------------------------
// The headers are valid until `etharp_generation` changes (lwip-patches/0026).
void ConnectionState::remember_headers(const pbuf& frame) noexcept {
  if (frame.len < SegmentHeaders::bytes || !stack_.makes_segments()) return;
  SegmentHeaders headers;
  headers.read(frame.payload);
  if (headers.ethertype != ETHTYPE_IP || headers.version_and_length != SegmentHeaders::version_4_without_options ||
      headers.protocol != IP_PROTO_TCP || headers.service != 0 || headers.time_to_live != TCP_TTL || !headers_.has_addresses_of(headers) ||
      std::memcmp(headers.from_mac, stack_.common_headers().from_mac, sizeof headers.from_mac) != 0)
    return;
  ip_hdr ip;
  std::memcpy(&ip, static_cast<const std::byte*>(frame.payload) + SegmentHeaders::ethernet_bytes, sizeof ip);
  headers_.checksum = pseudo_header_sum(ip, 0);
  std::memcpy(headers_.to_mac, headers.to_mac, sizeof headers_.to_mac);
  headers_.generation = etharp_generation;
}

/// True if a segment of `bytes` can be sent without lwIP, at once. For an ordinary connection, so its windows hold two segments.
[[gnu::always_inline]] inline bool ConnectionState::fits_now(std::uint32_t bytes) const noexcept {
  const tcp_pcb& pcb = *pcb_;
  return headers_.generation == etharp_generation && pcb.unsent == nullptr && pcb.snd_queuelen < TCP_SND_QUEUELEN && bytes <= pcb.mss &&
         bytes <= pcb.snd_buf && pcb.snd_nxt - pcb.lastack + bytes <= std::min(pcb.snd_wnd, pcb.cwnd);
}

// tcp_write(), tcp_output() and ip4_output(). Avoids silly windows (RFC 9293, 3.8.6.2.1): only the last bytes of the queue are sent in a
// segment that is not full.
[[gnu::noinline]] ConnectionState::Sent ConnectionState::send_queued() noexcept {
  queue_ready();
  tcp_pcb& pcb = *pcb_;
  if (headers_.generation != etharp_generation || pcb.state != ESTABLISHED || end_wanted_) return Sent::not_possible;
  if (pcb.unsent != nullptr) [[unlikely]] {
    const Sent waiting = send_waiting();
    if (waiting != Sent::all) return waiting;
  }
  const std::uint32_t mss = pcb.mss;
  while (!queued_.empty()) {
    if (pcb.snd_nxt != pcb.snd_lbb || pcb.snd_queuelen >= TCP_SND_QUEUELEN || mss > pcb.snd_wnd_max / 2) return Sent::not_possible;
    const std::uint32_t in_flight = pcb.snd_nxt - pcb.lastack;
    const std::uint32_t room = room_of(pcb, in_flight);
    if (queued_.bytes() <= std::min(room, mss)) [[likely]]
      return send_frame(static_cast<std::uint32_t>(queued_.bytes()));
    std::uint32_t bytes = room;
    if (queued_.bytes() <= room) {
      bytes = static_cast<std::uint32_t>(queued_.bytes());
    } else {
      bytes -= bytes % mss;
      if (bytes == 0) return in_flight != 0 ? Sent::all : Sent::not_possible;  // an acknowledgement makes room
    }
    if (bytes > mss && !stack_.sends_long_segments()) return Sent::not_possible;
    const Sent sent = bytes <= mss ? send_frame(bytes) : send_long(bytes);
    if (sent != Sent::all) return sent;
  }
  return Sent::all;
}

inline ConnectionState::Sent ConnectionState::send_frame(std::uint32_t bytes) noexcept {
  const bool whole = bytes == queued_.bytes();
  OutgoingSegment* const made = OutgoingSegment::make(bytes);
  if (made == nullptr) return Sent::not_possible;  // lwIP reports and repeats it
  std::byte* to = made->payload();
  std::size_t left = bytes;
  for (const Buffer::Piece* piece = queued_.first(); left != 0; piece = piece->next) {
    require(piece != nullptr, "the pieces of a buffer have its length", left);
    const std::size_t part = std::min<std::size_t>(piece->bytes, left);
    std::memcpy(to, piece->data, part);
    to += part;
    left -= part;
  }
  if (whole) {
    queued_.clear();
  } else {
    queued_.drop_front(bytes);
  }
  return pass(*made, flags_for_rest(), false, control_);
}

// Short pieces are copied behind the headers, because a reference costs more. If there are too many pieces, or no memory for one, the
// segment ends before it, at a multiple of the MSS.
ConnectionState::Sent ConnectionState::send_long(std::uint32_t bytes) noexcept {
  OutgoingSegment* const made = OutgoingSegment::make(Connection::copy_bytes_max);
  if (made == nullptr) return Sent::not_possible;
  const std::uint32_t mss = pcb_->mss, wanted = std::min(bytes, long_bytes_max - long_bytes_max % mss);
  pbuf& first = made->custom.pbuf;
  first.len = first.tot_len = SegmentHeaders::bytes;
  std::byte* to = made->payload();
  std::size_t room = Connection::copy_bytes_max;
  std::uint32_t done = 0;
  unsigned pieces = 1;
  for (Buffer::Piece* piece = queued_.first(); done != wanted; piece = piece->next) {
    require(piece != nullptr, "the pieces of a buffer have its length", wanted - done);
    const std::uint32_t part = std::min(piece->bytes, wanted - done);
    const bool copied = part <= room;
    if (copied && first.next == nullptr) {
      first.len = static_cast<u16_t>(first.len + part);
      first.tot_len = static_cast<u16_t>(first.tot_len + part);
    } else {
      pbuf* const own = pieces == stack_.pieces_limit() ? nullptr : copied ? refer_to(to, part) : refer_to(*piece, part);
      if (own == nullptr) break;
      pbuf_cat(&first, own);
      ++pieces;
    }
    if (copied) {
      std::memcpy(to, piece->data, part);
      to += part;
      room -= part;
    }
    done += part;
  }
  if (done != wanted) {
    done -= done % mss;
    if (done <= mss) {
      pbuf_free(&first);
      return Sent::not_possible;
    }
    pbuf_realloc(&first, static_cast<u16_t>(SegmentHeaders::bytes + done));
  }
  made->segment.len = static_cast<u16_t>(done);
  made->segment.flags = TF_SEG_IN_PBUF | TF_SEG_LONG;
  queued_.drop_front(done);
  return pass(*made, flags_for_rest(), true, control_);
}

// Numbers the new segment before the card has accepted it, as lwIP does. So a segment that the card refuses waits in `unsent`.
[[gnu::always_inline]] inline ConnectionState::Sent ConnectionState::pass(OutgoingSegment& made, unsigned flags, bool is_long,
                                                                          bool control) noexcept {
  tcp_pcb& pcb = *pcb_;
  const std::uint32_t bytes = made.segment.len;
  const std::uint32_t sequence = pcb.snd_lbb;
  pcb.snd_lbb += bytes;
  pcb.snd_buf -= bytes;
  const std::uint16_t buffers = is_long ? pbuf_clen(&made.custom.pbuf) : std::uint16_t{1};
  pcb.snd_queuelen = static_cast<u16_t>(pcb.snd_queuelen + buffers);
  if (pass_to_card(made, sequence, flags, is_long, control)) [[likely]]
    return Sent::all;
  pcb.unsent = &made.segment;
  pcb.unsent_oversize = 0;
  tcp_set_flags(&pcb, TF_NAGLEMEMERR);
  return Sent::waits;
}

// tcp_output_segment(), and the part of tcp_output() for a segment that was sent.
[[gnu::always_inline]] inline bool ConnectionState::pass_to_card(OutgoingSegment& made, std::uint32_t sequence, unsigned flags,
                                                                 bool is_long, bool control) noexcept {
  tcp_pcb& pcb = *pcb_;
  tcp_seg& segment = made.segment;
  const std::uint32_t bytes = segment.len;
  fill_in_headers(made.headers, bytes, is_long, flags);
  made.headers.sequence = sequence;
  if (pcb.rtime < 0) pcb.rtime = 0;
  if (pcb.rttest == 0 && (pcb.rtt_tick != tcp_ticks || pcb.rto > 3)) {  // lwip-patches/0028
    pcb.rtt_tick = tcp_ticks;
    pcb.rttest = tcp_ticks;
    pcb.rtseq = sequence;
  }
  std::uint32_t frames = 1;
  if (is_long) [[unlikely]] {
    frames = (bytes + pcb.mss - 1U) / pcb.mss;
    if (!stack_.send_long_segment(made, pcb.mss, control)) return false;
  } else if (!stack_.send_segment(made, control)) [[unlikely]] {
    return false;
  }
  lwip_stats.tcp.xmit += frames;
  ip_id = static_cast<u16_t>(ip_id + frames);
  pcb.rcv_ann_right_edge = pcb.rcv_nxt + pcb.rcv_ann_wnd;
  pcb.snd_nxt = sequence + bytes;
  tcp_clear_flags(&pcb, TF_ACK_DELAY | TF_ACK_NOW | TF_NAGLEMEMERR);
  if (pcb.unacked == nullptr) [[likely]] {
    pcb.unacked = &segment;
    return true;
  }
  tcp_seg* last = pcb.unacked;
  while (last->next != nullptr) last = last->next;
  last->next = &segment;
  return true;
}

[[gnu::always_inline]] inline void ConnectionState::fill_in_headers(SegmentHeaders& headers, std::uint32_t payload_bytes, bool cut_up,
                                                                    unsigned flags) noexcept {
  const tcp_pcb& pcb = *pcb_;
  headers_.write(stack_.common_headers(), headers);
  headers.id = ip_id;
  headers.time_to_live = TCP_TTL;
  headers.protocol = IP_PROTO_TCP;
  headers.ip_checksum = 0;
  headers.acknowledgement = pcb.rcv_nxt;
  headers.length_and_flags = static_cast<std::uint16_t>(SegmentHeaders::no_options | flags);
  headers.window = static_cast<std::uint16_t>(TCPWND_MIN16(RCV_WND_SCALE(&pcb, pcb.rcv_ann_wnd)));
  std::uint32_t sum = headers_.checksum;
  if (!cut_up) {  // otherwise, the card fills in the lengths (82599 datasheet 7.2.4)
    const auto tcp_bytes = static_cast<std::uint16_t>(SegmentHeaders::tcp_header_bytes + payload_bytes);
    headers.ip_bytes = static_cast<std::uint16_t>(SegmentHeaders::ip_header_bytes + tcp_bytes);
    sum += lwip_htons(tcp_bytes);
    sum += sum >> 16;
  }
  headers.set_checksum(static_cast<std::uint16_t>(sum));
}

// A segment that the card refused is as `pass` made it, unless lwIP has tried to send it or has added to it.
ConnectionState::Sent ConnectionState::send_waiting() noexcept {
  tcp_pcb& pcb = *pcb_;
  tcp_seg& segment = *pcb.unsent;
  if ((segment.flags & TF_SEG_IN_PBUF) == 0 || segment.next != nullptr || segment.p->ref != 1) return Sent::not_possible;
  OutgoingSegment& made = OutgoingSegment::of(segment);
  const std::uint32_t in_flight = pcb.snd_nxt - pcb.lastack;
  if (segment.p->payload != made.headers.to_mac || segment.p->tot_len != SegmentHeaders::bytes + segment.len ||
      sequence_of(segment) != pcb.snd_nxt || pcb.snd_nxt + segment.len != pcb.snd_lbb ||
      in_flight + segment.len > std::min(pcb.snd_wnd, pcb.cwnd) || (TCPH_FLAGS(segment.tcphdr) & TCP_FIN) != 0)
    return Sent::not_possible;
  if (!pass_to_card(made, pcb.snd_nxt, flags_for_rest(), (segment.flags & TF_SEG_LONG) != 0, control_)) return Sent::waits;
  pcb.unsent = nullptr;
  pcb.persist_backoff = 0;
  return Sent::all;
}

// tcp_send_empty_ack(). An acknowledgement with selective ones is left to lwIP.
[[gnu::noinline]] bool ConnectionState::acknowledge() noexcept {
  tcp_pcb& pcb = *pcb_;
  if (headers_.generation != etharp_generation || LWIP_TCP_SACK_VALID(&pcb, 0)) return false;
  OutgoingSegment* const made = OutgoingSegment::make(0);
  if (made == nullptr) return false;
  fill_in_headers(made->headers, 0, false, TCP_ACK);
  made->headers.sequence = pcb.snd_nxt;
  const bool sent = stack_.send_segment(*made, control_);
  OutgoingSegment::release(made->segment);
  if (!sent) return false;
  ++ip_id;
  TCP_STATS_INC(tcp.xmit);
  pcb.rcv_ann_right_edge = pcb.rcv_nxt + pcb.rcv_ann_wnd;
  tcp_clear_flags(&pcb, TF_ACK_DELAY | TF_ACK_NOW);
  return true;
}

bool ConnectionState::output() noexcept {
  if (pcb_->unsent == nullptr) {
    if ((pcb_->flags & (TF_ACK_NOW | TF_NAGLEMEMERR)) == 0) return true;
    if ((pcb_->flags & TF_ACK_NOW) != 0 && acknowledge()) return true;
  }
  const bool headers_valid = headers_.generation == etharp_generation;
  if (!headers_valid) stack_.remember_headers_of(this);
  const bool sent = tcp_output(pcb_) == ERR_OK;
  if (!headers_valid) stack_.remember_headers_of(nullptr);
  return sent;
}

}  // namespace neap::net
