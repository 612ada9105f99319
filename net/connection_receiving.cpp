// SPDX-License-Identifier: BSL-1.0
// The short way of received segments through TCP.
//
// Nearly every segment of an open connection carries the next bytes, or acknowledges sent bytes, or both. lwIP's general code handles such
// a segment in some 900 instructions. Here a few comparisons recognise it ("header prediction", Jacobson 1988), and the same changes are
// made to lwIP's state of the connection (tcp_pcb) directly. Any other segment is left to lwIP untouched, so lwIP remains the only
// implementation of reordering, loss, windows that close, and the end of a connection. The comments name the function of lwIP whose effects
// a part has. connection_sending.cpp is the counterpart for sent bytes. All functions for a segment are in this file, so that the compiler
// can inline them into one.
#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "kernel/events.hpp"
#include "kernel/panic.hpp"
#include "lwip/priv/tcp_priv.h"
#include "lwip/prot/ip4.h"
#include "lwip/stats.h"
#include "lwip/tcp.h"
#include "net/arrived_segment.hpp"
#include "net/connection_state.hpp"
#include "net/headers_to_follow.hpp"
#include "net/outgoing_segment.hpp"
#include "net/received_piece.hpp"
#include "net/stack.hpp"

namespace neap::net {

// Timestamps would be an option of every segment.
static_assert(LWIP_TCP_TIMESTAMPS == 0, "headers have no options");

namespace {

void release_on_own_core(RemoteNode* node) noexcept;

/// Releases a piece that the handler has kept, or that another core releases.
void release_delivered(void* owner) noexcept {
  auto& piece = *static_cast<ReceivedPiece*>(owner);
  ConnectionState& connection = *piece.connection;
  if (this_core() != connection.core()) [[unlikely]] {
    hand_over(connection.core(), *new (static_cast<RemoteNode*>(&piece)) RemoteNode{.run = &release_on_own_core});
    return;
  }
  connection.delivered_released(piece);
}

void release_on_own_core(RemoteNode* node) noexcept { release_delivered(static_cast<ReceivedPiece*>(node)); }

/// Adds to a window, which stops at its type's maximum (lwIP's TCP_WND_INC).
void increase(tcpwnd_size_t& window, tcpwnd_size_t by) noexcept {
  const auto sum = static_cast<tcpwnd_size_t>(window + by);
  window = sum >= window ? sum : static_cast<tcpwnd_size_t>(-1);
}

/// tcp_receive(): takes the window that the segment announces, unless a segment with a later number has announced one, which may have
/// overtaken this segment. `acknowledgement` is not below that of an earlier update.
[[gnu::always_inline]] inline void update_send_window(tcp_pcb& pcb, std::uint32_t sequence, std::uint32_t acknowledgement,
                                                      std::uint16_t unscaled_window) noexcept {
  const auto window = static_cast<tcpwnd_size_t>(SND_WND_SCALE(&pcb, unscaled_window));
  const bool newer = pcb.snd_wl1 == sequence ? pcb.snd_wl2 != acknowledgement : TCP_SEQ_LT(pcb.snd_wl1, sequence);
  if (newer || (pcb.snd_wl2 == acknowledgement && window > pcb.snd_wnd)) [[likely]] {
    pcb.snd_wnd = window;
    if (pcb.snd_wnd_max < window) pcb.snd_wnd_max = window;
    pcb.snd_wl1 = sequence;
    pcb.snd_wl2 = acknowledgement;
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

/// tcp_update_rcv_ann_wnd(): moves the window's right edge only by steps that are worth an announcement.
[[gnu::always_inline]] inline void update_announced_window(tcp_pcb& pcb) noexcept {
  const std::uint32_t right_edge = pcb.rcv_nxt + pcb.rcv_wnd;
  if (TCP_SEQ_GEQ(right_edge, pcb.rcv_ann_right_edge + std::min<std::uint32_t>(TCP_WND / 2, pcb.mss))) {
    pcb.rcv_ann_wnd = pcb.rcv_wnd;
  } else {
    pcb.rcv_ann_wnd = TCP_SEQ_GT(pcb.rcv_nxt, pcb.rcv_ann_right_edge) ? 0 : pcb.rcv_ann_right_edge - pcb.rcv_nxt;
  }
}

// The functions that are not inlined are rare, and would take registers from the frequent case.

/// tcp_receive(): measures the round trip, if the measured segment is acknowledged (Jacobson 1988).
[[gnu::noinline]] void measure_round_trip(tcp_pcb& pcb, std::uint32_t acknowledgement) noexcept {
  if (!TCP_SEQ_LT(pcb.rtseq, acknowledgement)) return;
  auto m = static_cast<s16_t>(tcp_ticks - pcb.rttest);
  m = static_cast<s16_t>(m - (pcb.sa >> 3));
  pcb.sa = static_cast<s16_t>(pcb.sa + m);
  if (m < 0) m = static_cast<s16_t>(-m);
  m = static_cast<s16_t>(m - (pcb.sv >> 2));
  pcb.sv = static_cast<s16_t>(pcb.sv + m);
  pcb.rto = static_cast<s16_t>((pcb.sa >> 3) + pcb.sv);
  pcb.rttest = 0;
}

[[gnu::noinline]] void release_list(tcp_seg* segment) noexcept {
  while (segment != nullptr) OutgoingSegment::release(*std::exchange(segment, segment->next));
}

/// The part of `take_acknowledgement` for an acknowledgement that leaves bytes in flight.
[[gnu::noinline]] std::uint32_t release_part(tcp_pcb& pcb, std::uint32_t acknowledgement) noexcept {
  std::uint32_t released = 0;
  pcb.unacked = release_acknowledged(pcb, pcb.unacked, acknowledgement, released);
  if (pcb.unsent != nullptr) pcb.unsent = release_acknowledged(pcb, pcb.unsent, acknowledgement, released);
  if (pcb.unsent == nullptr) pcb.unsent_oversize = 0;
  pcb.rtime = pcb.unacked == nullptr ? s16_t{-1} : s16_t{0};
  pcb.snd_buf += released;
  return released;
}

/// tcp_receive(): an acknowledgement of `bytes` new bytes, which arrived in so many segments. Returns the bytes of the segments that it
/// completes. The poll timer is left alone: it counts only for connections that this side has closed, which lwIP handles.
[[gnu::always_inline]] inline std::uint32_t take_acknowledgement(tcp_pcb& pcb, std::uint32_t acknowledgement, std::uint32_t bytes,
                                                                 unsigned acknowledgements) noexcept {
  if (pcb.nrtx != 0) [[unlikely]] {  // only retransmissions change the time-out
    pcb.nrtx = 0;
    pcb.rto = static_cast<s16_t>((pcb.sa >> 3) + pcb.sv);
  }
  pcb.dupacks = 0;
  pcb.lastack = acknowledgement;
  if (pcb.cwnd < pcb.ssthresh) {  // slow start, RFC 3465
    increase(pcb.cwnd, std::min<tcpwnd_size_t>(bytes, tcpwnd_size_t{2} * pcb.mss * acknowledgements));
  } else {
    increase(pcb.bytes_acked, bytes);
    if (pcb.bytes_acked >= pcb.cwnd) {
      pcb.bytes_acked -= pcb.cwnd;
      increase(pcb.cwnd, pcb.mss);
    }
  }
  if (pcb.rttest != 0) [[unlikely]]
    measure_round_trip(pcb, acknowledgement);
  if (acknowledgement == pcb.snd_lbb && pcb.unsent == nullptr) [[likely]] {  // nothing is left
    if (tcp_seg* const segments = std::exchange(pcb.unacked, nullptr); segments != nullptr) [[likely]] {
      if (!OutgoingSegment::release_alone(*segments)) release_list(segments);
    }
    const std::uint32_t released = TCP_SND_BUF - pcb.snd_buf;
    require(released <= TCP_SND_BUF, "a send buffer has its size when it is empty", pcb.snd_buf);
    pcb.snd_buf = TCP_SND_BUF;
    pcb.snd_queuelen = 0;
    pcb.unsent_oversize = 0;
    pcb.rtime = -1;
    return released;
  }
  return release_part(pcb, acknowledgement);
}

}  // namespace

// --- The segment of a connection ---------------------------------------------------------------------------------------------------------
/// Returns true if lwIP has no work pending for the connection that a segment may affect, and the handler wants what arrives.
[[gnu::always_inline]] inline bool ConnectionState::is_ordinary() noexcept {
  if (ordinary_at_ == stack_.lwip_uses()) [[likely]]
    return true;
  constexpr tcpflags_t unusual_flags = TF_INFR | TF_CLOSEPEND | TF_RXCLOSED | TF_FIN | TF_RTO;
  const tcp_pcb& pcb = *pcb_;
  if (pcb.state != ESTABLISHED || (pcb.flags & unusual_flags) != 0 || pcb.ooseq != nullptr || pcb.persist_backoff != 0 ||
      LWIP_TCP_SACK_VALID(&pcb, 0) || end_wanted_ || abort_wanted_ || handler_ == nullptr || control_ || pcb.mss > pcb.snd_wnd_max / 2)
    return false;
  ordinary_at_ = stack_.lwip_uses();
  return true;
}

namespace {

template <typename T>
[[gnu::always_inline]] inline T read_raw(const std::byte* at) noexcept {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

using Headers = SegmentHeaders;
constexpr std::size_t ip = Headers::ethernet_bytes, tcp = ip + Headers::ip_header_bytes;

/// True if the card found the frame's checksums right, and its headers are those of a segment as `ArrivedSegment` describes it. The fields
/// that must have one value each are compared several at a time. A frame that differs in any way passes lwIP's checks instead.
[[gnu::always_inline]] inline bool has_ordinary_headers(const ReceiveBuffer& frame, ReceiveInfo info) noexcept {
  if (frame.bytes < Headers::bytes || !info.checksums_good()) return false;
  const std::byte* const at = frame.data;
  // EtherType IPv4, version 4, a header without options; the type of service may have any value.
  constexpr std::uint32_t type_mask = 0x00FF'FFFF, type = 0x0045'0008;
  // No fragment and no reserved bit (don't-fragment may be set), any time to live, TCP.
  constexpr std::uint32_t protocol_mask = 0xFF00'FFBF, protocol = std::uint32_t{IP_PROTO_TCP} << 24;
  // A header without options, ACK, perhaps PSH.
  constexpr unsigned flags_mask = 0xFFFF & ~(unsigned{TCP_PSH} << 8), flags = 0x50 | unsigned{TCP_ACK} << 8;
  return (at[0] & std::byte{1}) == std::byte{0} && (read_raw<std::uint32_t>(at + ip - 2) & type_mask) == type &&
         (read_raw<std::uint32_t>(at + ip + 6) & protocol_mask) == protocol &&
         (read_raw<std::uint16_t>(at + tcp + 12) & flags_mask) == flags;
}

SegmentAddresses addresses_of(const std::byte* frame) noexcept {
  return {.addresses = read_raw<std::uint64_t>(frame + ip + 12), .ports = read_raw<std::uint32_t>(frame + tcp)};
}

/// Returns the payload's length of a frame of `frame_bytes` with ordinary headers; `no_payload_length` if the packet exceeds the frame.
/// Ethernet pads short packets.
constexpr std::uint32_t no_payload_length = ~0U;
[[gnu::always_inline]] inline std::uint32_t payload_bytes_of(const std::byte* frame, std::size_t frame_bytes) noexcept {
  const std::size_t ip_bytes = lwip_ntohs(read_raw<std::uint16_t>(frame + ip + 2));
  if (ip_bytes < Headers::bytes - ip || ip_bytes > frame_bytes - ip) return no_payload_length;
  return static_cast<std::uint32_t>(ip_bytes - (Headers::bytes - ip));
}

/// The number of a frame's buffers, and of their bytes.
struct Extent {
  std::size_t bytes;
  unsigned buffers = 1;
};
[[gnu::always_inline]] inline Extent extent_of(const ReceiveBuffer& frame) noexcept {
  Extent extent{.bytes = frame.bytes};
  for (const ReceiveBuffer* piece = frame.next; piece != nullptr; piece = piece->next) {
    extent.bytes += piece->bytes;
    ++extent.buffers;
  }
  return extent;
}

/// True if `next` may be a segment of the same connection as `frame`. Mostly that is decided by RSS, without a look at the frame.
[[gnu::always_inline]] inline bool may_follow(const ReceivedFrame& next, const ReceivedFrame& frame) noexcept {
  return next.info.rss_hash() == frame.info.rss_hash();
}

/// True if `next` makes the acknowledgement in `frame`, which carries no payload, superfluous: it is a segment of the same connection with
/// the same sequence number and a greater acknowledgement number.
bool supersedes(const ReceivedFrame& next, const std::byte* frame) noexcept {
  if (!has_ordinary_headers(*next.frame, next.info) || !(addresses_of(next.frame->data) == addresses_of(frame))) return false;
  const ArrivedSegment one(frame + tcp), other(next.frame->data + tcp);
  return other.sequence() == one.sequence() && TCP_SEQ_GT(other.acknowledgement(), one.acknowledgement());
}

/// The RemoteNode is made when it is needed.
[[gnu::always_inline]] inline ReceivedPiece& make_delivered(ReceiveBuffer& buffer, ConnectionState& connection, const std::byte* data,
                                                            std::uint32_t bytes, unsigned core) noexcept {
  ReceivedPiece& piece = ReceivedPiece::in(buffer);
  piece.connection = &connection;
  piece.pbuf.len = static_cast<u16_t>(bytes);
  piece.piece = {.data = data, .bytes = bytes, .lent_on = static_cast<std::uint16_t>(core), .release = &release_delivered, .owner = &piece};
  return piece;
}

/// The payload of frames that is passed to the handler in one call. Links the frames' buffers.
class JoinedPayload {
 public:
  JoinedPayload(ConnectionState& connection, ReceiveBuffer& first) noexcept
      : connection_(connection), core_(connection.core()), end_(&first), first_(&ReceivedPiece::in(first).piece), last_(first_) {}
  /// Appends a frame with `bytes` of payload. The first frame MUST be that of the constructor.
  [[gnu::always_inline]] void append(ReceiveBuffer& frame, const std::byte* payload, std::uint32_t bytes) noexcept {
    if (&frame != end_) end_->next = &frame;
    if (frame.next == nullptr) [[likely]] {
      add(frame, payload, bytes);
      end_ = &frame;
    } else {
      append_chain(frame, payload, bytes);
    }
  }
  [[nodiscard]] Buffer buffer() const noexcept { return {*first_, *last_, bytes_, pieces_}; }
  [[nodiscard]] std::uint32_t bytes() const noexcept { return bytes_; }

 private:
  [[gnu::always_inline]] void add(ReceiveBuffer& buffer, const std::byte* data, std::uint32_t bytes) noexcept {
    Buffer::Piece& piece = make_delivered(buffer, connection_, data, bytes, core_).piece;
    if (&piece != first_) last_->next = &piece;
    last_ = &piece;
    bytes_ += bytes;
    ++pieces_;
  }
  void append_chain(ReceiveBuffer& frame, const std::byte* payload, std::uint32_t left) noexcept {
    for (ReceiveBuffer* buffer = &frame; buffer != nullptr; buffer = buffer->next) {
      if (buffer != &frame) payload = buffer->data;
      const std::uint32_t bytes = std::min(left, buffer->bytes - static_cast<std::uint32_t>(payload - buffer->data));
      if (bytes != 0 || buffer == &frame) [[likely]] {
        add(*buffer, payload, bytes);
        left -= bytes;
      } else {
        ReceivedPiece::in(*buffer).piece.lent_on = Buffer::Piece::not_lent;  // padding
      }
      end_ = buffer;
    }
    require(left == 0, "the buffers of a frame hold its payload", left);
  }

  ConnectionState& connection_;
  const unsigned core_;
  ReceiveBuffer* end_;
  Buffer::Piece* const first_;
  Buffer::Piece* last_;
  std::uint32_t bytes_ = 0, pieces_ = 0;
};

}  // namespace

// The first condition is RFC 9293, 3.10.7.4 and RFC 5961, 5, for a segment that starts at RCV.NXT and fits the window: lwIP's checks
// (lwip-patches/0013) accept such a segment with the same numbers. A segment that brings nothing new may be a duplicate acknowledgement or
// a probe, and is left to lwIP.
[[gnu::always_inline]] inline unsigned ConnectionState::take_segment(ArrivedSegment segment, std::uint32_t bytes, unsigned buffers,
                                                                     std::span<const ReceivedFrame> received) noexcept {
  if (!is_ordinary()) [[unlikely]]
    return 0;
  tcp_pcb& pcb = *pcb_;
  const std::uint32_t sequence = segment.sequence(), acknowledgement = segment.acknowledgement();
  const std::uint32_t newly_acknowledged = acknowledgement - pcb.lastack;
  if (sequence != pcb.rcv_nxt || bytes > pcb.rcv_wnd || newly_acknowledged > pcb.snd_nxt - pcb.lastack || (bytes | newly_acknowledged) == 0)
    return 0;
  if (stack_.may_be_short(buffers) && bytes != 0 && (stack_.memory_short() || stack_.card_buffers_short(held_bytes_ > 0, buffers)))
      [[unlikely]]
    return 0;
  ReceiveBuffer& buffer = *received.front().frame;

  pcb.tmr = tcp_ticks;
  pcb.keep_cnt_sent = 0;
  pcb.persist_probe = 0;
  update_send_window(pcb, sequence, acknowledgement, segment.window());
  stack_.mark_dirty_at_receipt(*this);
  if (newly_acknowledged != 0) {
    const std::uint32_t sent = take_acknowledgement(pcb, acknowledgement, newly_acknowledged, 1 + stack_.take_merged());
    if (sent != 0) acknowledged();
  }
  if (bytes == 0) {
    Stack::release_chain(&buffer);
    return 1;
  }
  // tcp_ack(): every second segment is acknowledged at once, unless a reply carries the acknowledgement. The peer's segments have at most
  // TCP_MSS bytes, so a longer one is a frame that the card has made of several segments.
  const bool now = (pcb.flags & TF_ACK_DELAY) != 0 || bytes > TCP_MSS;
  pcb.flags = static_cast<tcpflags_t>(now ? (pcb.flags & ~unsigned{TF_ACK_DELAY}) | TF_ACK_NOW : pcb.flags | TF_ACK_DELAY);
  unsigned taken = 1;
  if (buffer.next == nullptr && (received.size() == 1 || !may_follow(received[1], received[0]))) [[likely]] {
    pcb.rcv_nxt += bytes;
    deliver(segment.payload(), bytes, buffer);
  } else {
    taken = deliver_joined(segment, bytes, buffers, received);
  }
  update_announced_window(pcb);
  return taken;
}

// Nearly every handler releases the bytes before it returns. Then the bytes neither close the window nor count as held, and no request of
// the handler takes effect before that is known.
[[gnu::always_inline]] inline void ConnectionState::deliver(const std::byte* payload, std::uint32_t bytes, ReceiveBuffer& buffer) noexcept {
  ReceivedPiece& piece = make_delivered(buffer, *this, payload, bytes, core_);
  call_handler([&](ConnectionHandler& handler) { handler.received(Buffer(piece.piece)); });
  if (piece.piece.end_loan()) [[unlikely]] {
    retain(piece);
  } else {
    buffer.release();
  }
}

// Frames behind the first one that carry the next bytes, and nothing else that is new, are delivered with it. So the handler is called once
// for most of an event's bytes, and the work for a segment is done once for all of them. The effects are those of one segment after the
// other: equal acknowledgements change nothing, and of equal windows the last one holds.
unsigned ConnectionState::deliver_joined(ArrivedSegment segment, std::uint32_t bytes, unsigned buffers,
                                         std::span<const ReceivedFrame> received) noexcept {
  tcp_pcb& pcb = *pcb_;
  ReceiveBuffer& first = *received.front().frame;
  const HeadersToFollow headers(first.data);
  JoinedPayload payload(*this, first);
  payload.append(first, segment.payload(), bytes);
  const std::uint32_t begin = segment.sequence(), room = pcb.rcv_wnd;
  const unsigned buffers_max = stack_.spare_buffers();
  std::uint32_t sequence = begin;
  bool delayed = (pcb.flags & TF_ACK_DELAY) != 0;
  unsigned taken = 1;
  for (; taken != received.size(); ++taken) {
    const ReceiveInfo info = received[taken].info;
    ReceiveBuffer& frame = *received[taken].frame;
    if (!may_follow(received[taken], received.front()) || !info.checksums_good() || frame.bytes < Headers::bytes ||
        !headers.match(frame.data))
      break;
    const ArrivedSegment other(frame.data + tcp);
    const Extent extent = extent_of(frame);
    const std::uint32_t more = payload_bytes_of(frame.data, extent.bytes);
    buffers += extent.buffers;
    if (other.sequence() != begin + payload.bytes() || more - 1 >= room - payload.bytes() || buffers > buffers_max) break;
    stack_.counters().bytes_received.add(extent.bytes);
    sequence = other.sequence();
    delayed = !delayed && more <= TCP_MSS;
    payload.append(frame, other.payload(), more);
  }
  pcb.rcv_nxt += payload.bytes();
  if (taken != 1) {
    update_send_window(pcb, sequence, segment.acknowledgement(), segment.window());
    pcb.flags = static_cast<tcpflags_t>((pcb.flags & ~unsigned{TF_ACK_DELAY}) | TF_ACK_NOW | (delayed ? TF_ACK_DELAY : 0U));
  }
  call_handler([&](ConnectionHandler& handler) { handler.received(payload.buffer()); });
  for (ReceiveBuffer* buffer = &first; buffer != nullptr;) {
    ReceiveBuffer& done = *buffer;
    buffer = std::exchange(done.next, nullptr);
    ReceivedPiece& piece = ReceivedPiece::in(done);
    if (piece.piece.end_loan()) [[unlikely]] {
      retain(piece);
    } else {
      done.release();
    }
  }
  return taken;
}

/// The handler has kept the piece.
void ConnectionState::retain(ReceivedPiece& piece) noexcept {
  ReceiveBuffer& buffer = piece.buffer();
  stack_.hold_buffer(buffer);
  received_memory_ += static_cast<std::uint32_t>(Stack::memory_of(buffer));
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

// --- The frames of an event --------------------------------------------------------------------------------------------------------------
[[gnu::always_inline]] inline ConnectionState* Stack::find(const SegmentAddresses& addresses) noexcept {
  ConnectionState*& cached = found_[addresses.hash(found_bits)];
  if (cached != nullptr && cached->sent_addresses() == addresses.reversed()) [[likely]]
    return cached;
  const ip_addr_t from{.addr = static_cast<std::uint32_t>(addresses.addresses)},
      to{.addr = static_cast<std::uint32_t>(addresses.addresses >> 32)};
  const tcp_pcb* const pcb = tcp_pcb_find(&to, lwip_ntohs(static_cast<std::uint16_t>(addresses.ports >> 16)), &from,
                                          lwip_ntohs(static_cast<std::uint16_t>(addresses.ports)));
  if (pcb == nullptr || pcb->state != ESTABLISHED || ConnectionState::of(*pcb) == nullptr) return nullptr;
  cached = ConnectionState::of(*pcb);
  return cached;
}

[[gnu::always_inline]] inline unsigned Stack::take_in_segments(std::span<const ReceivedFrame> received) noexcept {
  ReceiveBuffer& frame = *received.front().frame;
  const Extent extent = extent_of(frame);
  counters_.bytes_received.add(extent.bytes);
  if (!short_path_ || !has_ordinary_headers(frame, received.front().info)) return 0;
  const std::byte* const at = frame.data;
  const std::uint32_t bytes = payload_bytes_of(at, extent.bytes);
  if (bytes == no_payload_length) return 0;
  if (bytes == 0 && received.size() != 1 && may_follow(received[1], received[0]) && supersedes(received[1], at)) {
    ++merged_acknowledgements_;
    release_chain(&frame);
    return 1;
  }
  ConnectionState* const connection = find(addresses_of(at));
  if (connection == nullptr) return 0;
  wake_clock(true);
  return connection->take_segment(ArrivedSegment(at + tcp), bytes, extent.buffers, received);
}

void Stack::receive(std::span<const ReceivedFrame> frames) noexcept {
  require(this_core() == core_, "a stack receives frames on its own core", core_);
  want_event_end();
  counters_.frames_received.add(frames.size());
  while (!frames.empty()) {
    unsigned taken = take_in_segments(frames);
    lwip_stats.tcp.recv += taken;
    if (taken == 0) [[unlikely]] {
      taken = 1;
      merged_acknowledgements_ = 0;
      take_in(frames.front().frame, extent_of(*frames.front().frame).bytes, frames.front().info);
    }
    frames = frames.subspan(taken);
  }
}

}  // namespace neap::net
