// SPDX-License-Identifier: BSL-1.0
// The short path of received segments.
//
// Nearly every segment of an open connection carries the next bytes, or acknowledges sent bytes, or both. A few comparisons recognise such
// a segment ("header prediction", Jacobson 1988). Its only option is timestamps, or it has none. Any other segment goes to `input`
// (connection_input.cpp) untouched, whose rules these functions follow. connection_sending.cpp is the counterpart for sent bytes. All
// functions for a segment are in this file, so that the compiler can inline them into one.
#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "kernel/events.hpp"
#include "kernel/panic.hpp"
#include "net/arrived_segment.hpp"
#include "net/connection_frames.hpp"
#include "net/headers_to_follow.hpp"
#include "net/received_piece.hpp"

namespace neap::net {

/// An ordinary connection is open in both directions, nothing waits out of order, and neither its end nor another rare case is due.
void ConnectionState::update_ordinary() noexcept {
  ordinary_ = state_ == TcpState::established && !end_wanted_ && !abort_wanted_ && !connecting_ && handler_ != nullptr && !control_ &&
              !ecn_ && !nagle_ && out_of_order_.empty();
}

// --- The segment of a connection ---------------------------------------------------------------------------------------------------------
namespace {

template <typename T>
[[gnu::always_inline]] inline T read_raw(const std::byte* at) noexcept {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

using Headers = SegmentHeaders;
constexpr std::size_t ip = Headers::ethernet_bytes, tcp_at = ip + Headers::ip_header_bytes;
constexpr std::uint32_t without_options = 5U << 4;
constexpr std::uint32_t with_timestamps = 8U << 4;

/// True if the frame's checksums are right, as far as card and this function can tell. A card may leave the header of IPv4 to the stack.
/// The frame MUST have at least the headers of a segment.
[[gnu::always_inline]] inline bool has_good_checksums(const ReceiveBuffer& frame, ReceiveInfo info) noexcept {
  return info.checksums_good() || (info.l4_checksum_good() && !info.checksum_bad() && has_good_ipv4_header(frame.data));
}

/// True if the frame's checksums are right, and its headers are those of a segment as `ArrivedSegment` describes it. The fields
/// that must have one value each are compared several at a time. A frame that differs in any way passes all checks instead.
[[gnu::always_inline]] inline bool has_ordinary_headers(const ReceiveBuffer& frame, ReceiveInfo info) noexcept {
  if (frame.bytes < Headers::bytes || !has_good_checksums(frame, info)) return false;
  const std::byte* const at = frame.data;
  // EtherType IPv4, version 4, a header without options; the type of service may have any value.
  constexpr std::uint32_t type_mask = 0x00FF'FFFF, type = 0x0045'0008;
  // No fragment and no reserved bit (don't-fragment may be set), any time to live, TCP.
  constexpr std::uint32_t protocol_mask = 0xFF00'FFBF, protocol = 6U << 24;
  // ACK, perhaps PSH.
  constexpr unsigned flags_mask = 0xFF & ~flag::psh;
  const auto length = std::to_integer<std::uint32_t>(at[tcp_at + 12]);
  return (at[0] & std::byte{1}) == std::byte{0} && (read_raw<std::uint32_t>(at + ip - 2) & type_mask) == type &&
         (read_raw<std::uint32_t>(at + ip + 6) & protocol_mask) == protocol &&
         (std::to_integer<unsigned>(at[tcp_at + 13]) & flags_mask) == flag::ack && (length == with_timestamps || length == without_options);
}

/// The bytes of a frame's options; the frame MUST have ordinary headers.
[[gnu::always_inline]] inline std::uint32_t options_bytes_of(const std::byte* frame) noexcept {
  return (std::to_integer<std::uint32_t>(frame[tcp_at + 12]) >> 4) * 4 - Headers::tcp_header_bytes;
}

SegmentAddresses addresses_of(const std::byte* frame) noexcept {
  return {.addresses = read_raw<std::uint64_t>(frame + ip + 12), .ports = read_raw<std::uint32_t>(frame + tcp_at)};
}

/// Returns the payload's length of a frame of `frame_bytes` with ordinary headers; `no_payload_length` if the packet exceeds the frame.
/// Ethernet pads short packets.
constexpr std::uint32_t no_payload_length = ~0U;
[[gnu::always_inline]] inline std::uint32_t payload_bytes_of(const ReceiveBuffer& frame, std::size_t frame_bytes,
                                                             std::uint32_t options_bytes) noexcept {
  const auto headers_bytes = static_cast<std::uint32_t>(Headers::bytes + options_bytes);
  // A packet shorter than its headers has a length that no frame has.
  const std::uint32_t bytes = std::byteswap(read_raw<std::uint16_t>(frame.data + ip + 2)) + static_cast<std::uint32_t>(ip) - headers_bytes;
  if (frame.bytes < headers_bytes || bytes > frame_bytes - headers_bytes) return no_payload_length;
  return bytes;
}

/// The number of a frame's buffers, and of their bytes.
struct Extent {
  std::size_t bytes, buffers = 1;
};
[[gnu::always_inline]] inline Extent extent_of(const ReceiveBuffer& frame) noexcept {
  Extent extent{.bytes = frame.bytes};
  for (const ReceiveBuffer* piece = frame.next; piece != nullptr; piece = piece->next) {
    extent.bytes += piece->bytes;
    ++extent.buffers;
  }
  return extent;
}

/// True if `next` may be a segment of the same connection as `frame`, which has ordinary headers. Mostly that is decided by the hash of
/// RSS, without a look at `next`. From a card without a hash, frames of other connections are recognised by their ports.
[[gnu::always_inline]] inline bool may_follow(const ReceivedFrame& next, const ReceivedFrame& frame) noexcept {
  if (next.info.rss_hash() != frame.info.rss_hash()) return false;
  return next.info.rss_type() != 0 || (next.frame->bytes >= Headers::bytes && read_raw<std::uint32_t>(next.frame->data + tcp_at) ==
                                                                                  read_raw<std::uint32_t>(frame.frame->data + tcp_at));
}

[[gnu::always_inline]] inline ReceivedPiece& make_delivered(ReceiveBuffer& buffer, ConnectionState& connection, const std::byte* data,
                                                            std::uint32_t bytes, unsigned core) noexcept {
  ReceivedPiece& piece = ReceivedPiece::in(buffer);
  piece.connection = &connection;
  piece.bytes = bytes;
  piece.piece = {
      .data = data, .bytes = bytes, .lent_on = static_cast<std::uint16_t>(core), .release = &ReceivedPiece::release, .owner = &piece};
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

// The first condition is RFC 9293, 3.10.7.4 and RFC 5961, 5, for a segment that starts at RCV.NXT and fits the window: `input` accepts such
// a segment with the same numbers. A segment that brings nothing new may be a duplicate acknowledgement or a probe, and is left to `input`.
[[gnu::always_inline]] inline unsigned ConnectionState::take_segment(ArrivedSegment segment, std::uint32_t options_bytes,
                                                                     std::uint32_t bytes, unsigned buffers,
                                                                     std::span<const ReceivedFrame> received) noexcept {
  if (!ordinary_) [[unlikely]]
    return 0;
  const std::uint32_t sequence = segment.sequence(), acknowledgement = segment.acknowledgement();
  const std::uint32_t newly_acknowledged = acknowledgement - send_.una;
  if (sequence != receive_.next() || !receive_.fits(bytes) || newly_acknowledged > send_.nxt - send_.una ||
      (bytes | newly_acknowledged) == 0)
    return 0;
  std::uint32_t echo = 0;
  if (timestamps_) {
    tcp::Timestamps timestamps;
    if (options_bytes == 0 || !tcp::read_timestamps(segment.options(), timestamps) ||
        tcp::timestamp_is_old(timestamps.value, timestamp_recent_))
      return 0;
    echo = timestamps.echo;
    if (tcp::at_or_before(sequence, acknowledged_to_)) timestamp_recent_ = timestamps.value;
  } else if (options_bytes != 0) {
    return 0;
  }
  if (stack_.may_be_short(buffers) && bytes != 0 && (stack_.memory_short() || stack_.card_buffers_short(held_bytes_ > 0, buffers)))
      [[unlikely]]
    return 0;
  ReceiveBuffer& buffer = *received.front().frame;
  const std::uint64_t now_us = stack_.receipt_us();

  received_at_ = static_cast<std::uint32_t>(now_us >> 10);
  stack_.mark_dirty_at_receipt(*this);
  const std::uint32_t window = std::uint32_t{segment.window()} << send_shift_;
  if (newly_acknowledged != 0 && send_.plain(acknowledgement)) [[likely]] {
    OutgoingSegment& acked = OutgoingSegment::of(*send_.ack_all(now_us));
    send_.take_window(sequence, acknowledgement, window);
    acknowledged_ = true;
    if (acked.next == nullptr) [[likely]] {
      sent_memory_ = 0;
      OutgoingSegment::release(acked);
    } else {
      release_acknowledged(&acked);
    }
  } else if (newly_acknowledged != 0 || send_.flow != nullptr || send_.timer() == tcp::SendState::Timer::window_probe) {
    take_plain_ack(sequence, acknowledgement, window, bytes, echo);
  } else {
    send_.take_window(sequence, acknowledgement, window);
  }
  if (bytes == 0) {
    Stack::release_chain(&buffer);
    return 1;
  }
  unsigned taken = 1;
  if (buffer.next == nullptr && (received.size() == 1 || !may_follow(received[1], received[0]))) [[likely]] {
    receive_.advance_within(bytes);
    acknowledgements_.received(bytes);
    deliver(segment.options() + options_bytes, bytes, buffer);
  } else {
    taken = deliver_joined(segment, options_bytes, bytes, buffers, received);
  }
  if (receive_.tuning_due(held_bytes_)) [[unlikely]]
    tune(echo);
  return taken;
}

/// An acknowledgement that leaves bytes in flight, or of a connection with a Flow.
[[gnu::noinline]] void ConnectionState::take_plain_ack(std::uint32_t sequence, std::uint32_t acknowledgement, std::uint32_t window,
                                                       std::uint32_t bytes, std::uint32_t echo) noexcept {
  const tcp::SendState::Acknowledged done = send_.on_ack({.now_us = stack_.receipt_us(),
                                                          .number = acknowledgement,
                                                          .sequence = sequence,
                                                          .window = window,
                                                          .segment_length = bytes,
                                                          .sack = {},
                                                          .echoed_ms = echo - timestamp_offset_,
                                                          .has_echo = timestamps_,
                                                          .more_queued = waiting_bytes() != 0},
                                                         &OutgoingSegment::split);
  if (done.segments != nullptr) release_acknowledged(done.segments);
  if (done.numbers != 0) acknowledged_ = true;
}

/// The receive window may grow.
[[gnu::noinline]] void ConnectionState::tune(std::uint32_t echo) noexcept {
  const std::uint32_t round_trip_us =
      timestamps_ && echo != 0 ? (stack_.now_ms() + timestamp_offset_ - echo) * 1000 : send_.round_trip.smoothed_us();
  static_cast<void>(receive_.tune(held_bytes_, static_cast<std::uint32_t>(stack_.now_us()), round_trip_us, tcp::settings.receive_bytes_max,
                                  !stack_.memory_short()));
}

// Nearly every handler releases the bytes before it returns. Then the bytes neither close the window nor count as held, and no request of
// the handler takes effect before that is known.
[[gnu::always_inline]] inline void ConnectionState::deliver(const std::byte* payload, std::uint32_t bytes, ReceiveBuffer& buffer) noexcept {
  ReceivedPiece& piece = make_delivered(buffer, *this, payload, bytes, core_);
  call_handler([&] [[gnu::always_inline]] (ConnectionHandler & handler) { handler.received(Buffer(piece.piece)); });
  if (piece.piece.end_loan()) [[unlikely]] {
    retain(piece);
  } else {
    buffer.release();
  }
}

// Frames behind the first one that carry the next bytes, and nothing else that is new, are delivered with it. So the handler is called once
// for most of an event's bytes, and the work for a segment is done once for all of them. The effects are those of one segment after the
// other: equal acknowledgements change nothing, and of equal windows the last one holds.
unsigned ConnectionState::deliver_joined(ArrivedSegment segment, std::uint32_t options_bytes, std::uint32_t bytes, unsigned buffers,
                                         std::span<const ReceivedFrame> received) noexcept {
  ReceiveBuffer& first = *received.front().frame;
  const HeadersToFollow headers(first.data, options_bytes);
  JoinedPayload payload(*this, first);
  payload.append(first, segment.options() + options_bytes, bytes);
  const std::uint32_t begin = segment.sequence(), room = receive_.window();
  const unsigned buffers_max = stack_.spare_buffers();
  std::uint32_t sequence = begin;
  acknowledgements_.received(bytes);
  unsigned taken = 1;
  for (; taken != received.size(); ++taken) {
    const ReceiveInfo info = received[taken].info;
    ReceiveBuffer& frame = *received[taken].frame;
    if (!may_follow(received[taken], received.front()) || frame.bytes < Headers::bytes + options_bytes ||
        !has_good_checksums(frame, info) || !headers.match(frame.data))
      break;
    const ArrivedSegment other(frame.data + tcp_at);
    const Extent extent = extent_of(frame);
    const std::uint32_t more = payload_bytes_of(frame, extent.bytes, options_bytes);
    buffers += static_cast<unsigned>(extent.buffers);
    if (other.sequence() != begin + payload.bytes() || more - 1 >= room - payload.bytes() || buffers > buffers_max) break;
    stack_.counters().bytes_received.add(extent.bytes);
    sequence = other.sequence();
    acknowledgements_.received(more);
    payload.append(frame, other.options() + options_bytes, more);
  }
  receive_.advance(payload.bytes());
  if (taken != 1) send_.take_window(sequence, segment.acknowledgement(), std::uint32_t{segment.window()} << send_shift_);
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
  held_bytes_ += piece.bytes;
  ++references_;
}

// --- The frames of an event --------------------------------------------------------------------------------------------------------------
/// Drops acknowledgements without payload that the frame behind each one makes superfluous: their headers are equal but for
/// identification, checksums, window, timestamps and a greater acknowledgement number. The first frame MUST have ordinary headers, no
/// payload and one buffer. Returns the number of dropped frames.
[[gnu::noinline]] unsigned Stack::drop_superseded(std::span<const ReceivedFrame> received) noexcept {
  ReceiveBuffer* last = received.front().frame;
  const HeadersOfAcknowledgement headers(last->data);
  const std::uint32_t headers_bytes = static_cast<std::uint32_t>(Headers::bytes) + options_bytes_of(last->data);
  std::uint32_t acknowledged = ArrivedSegment(last->data + tcp_at).acknowledgement();
  std::size_t bytes = 0;  // of the frames from the second one to `last`
  const ReceivedFrame* next = received.data() + 1;
  for (const ReceivedFrame* const end = received.data() + received.size(); next != end; ++next) {
    ReceiveBuffer& frame = *next->frame;
    if (frame.next != nullptr || frame.bytes < headers_bytes || !has_good_checksums(frame, next->info) || !headers.match(frame.data)) break;
    const std::uint32_t number = ArrivedSegment(frame.data + tcp_at).acknowledgement();
    if (!tcp::after(number, acknowledged)) break;
    acknowledged = number;
    bytes += frame.bytes;
    last->release();
    last = &frame;
  }
  const auto dropped = static_cast<unsigned>(next - received.data() - 1);
  // The first frame is counted already, and the one that is left when it is handled.
  if (dropped != 0) counters_.bytes_received.add(bytes - last->bytes);
  return dropped;
}

[[gnu::always_inline]] inline unsigned Stack::take_in_segments(std::span<const ReceivedFrame> received) noexcept {
  ReceiveBuffer& frame = *received.front().frame;
  const Extent extent = extent_of(frame);
  counters_.bytes_received.add(extent.bytes);
  if (!short_path_ || !has_ordinary_headers(frame, received.front().info)) return 0;
  const std::byte* const at = frame.data;
  const std::uint32_t options_bytes = options_bytes_of(at);
  const std::uint32_t bytes = payload_bytes_of(frame, extent.bytes, options_bytes);
  if (bytes == no_payload_length) return 0;
  ConnectionState* const connection = table_.find(addresses_of(at));
  if (connection == nullptr) return 0;
  if (bytes == 0 && received.size() != 1 && frame.next == nullptr && may_follow(received[1], received[0]) &&
      connection->sender().is_open()) {
    if (const unsigned dropped = drop_superseded(received); dropped != 0) return dropped;
  }
  return connection->take_segment(ArrivedSegment(at + tcp_at), options_bytes, bytes, static_cast<unsigned>(extent.buffers), received);
}

// Over IPv6, a segment in one buffer takes the short path. Segments that arrive together are not joined. An address that the machine has
// lost has no connections, so the addresses need no other check than that of the table.
[[gnu::noinline]] bool Stack::take_in_segment_ipv6(const ReceivedFrame& received) noexcept {
  using Headers6 = SegmentHeaders6;
  constexpr std::size_t tcp6_at = ip + Headers6::ip_header_bytes;
  const ReceiveBuffer& frame = *received.frame;
  const std::byte* const at = frame.data;
  if (!short_path_ || frame.next != nullptr || frame.bytes < Headers6::bytes || !received.info.ipv6_checksum_good()) return false;
  // EtherType IPv6, version 6, any traffic class and flow label; TCP, any hop limit.
  constexpr std::uint32_t type_mask = 0x00F0'FFFF, type = 0x0060'DD86;
  constexpr std::uint16_t next_mask = 0x00FF, next = 6;
  constexpr unsigned flags_mask = 0xFF & ~flag::psh;
  const auto length = std::to_integer<std::uint32_t>(at[tcp6_at + 12]);
  if ((at[0] & std::byte{1}) != std::byte{0} || (read_raw<std::uint32_t>(at + ip - 2) & type_mask) != type ||
      (read_raw<std::uint16_t>(at + ip + 6) & next_mask) != next ||
      (std::to_integer<unsigned>(at[tcp6_at + 13]) & flags_mask) != flag::ack || (length != with_timestamps && length != without_options))
    return false;
  const std::uint32_t options_bytes = (length >> 4) * 4 - Headers6::tcp_header_bytes;
  const std::uint32_t tcp_bytes = std::byteswap(read_raw<std::uint16_t>(at + ip + 4));
  const std::uint32_t tcp_header_bytes = Headers6::tcp_header_bytes + options_bytes;
  if (tcp_bytes < tcp_header_bytes || tcp_bytes > frame.bytes - tcp6_at) return false;
  SegmentAddresses6 key{.addresses = {}, .ports = read_raw<std::uint32_t>(at + tcp6_at)};
  std::memcpy(&key.addresses, at + ip + 8, sizeof key.addresses);
  ConnectionState* const connection = table6_.find(key);
  if (connection == nullptr) return false;
  if (connection->take_segment(ArrivedSegment(at + tcp6_at), options_bytes, tcp_bytes - tcp_header_bytes, 1, {&received, 1}) == 0)
    return false;
  counters_.segments_received.add();
  counters_.ipv6_received.add();
  return true;
}

void Stack::receive(std::span<const ReceivedFrame> frames) noexcept {
  require(this_core() == core_, "a stack receives frames on its own core", core_);
  static_cast<void>(now_us());  // also requests the end of the event, where connections with work are settled
  counters_.frames_received.add(frames.size());
  while (!frames.empty()) {
    unsigned taken = take_in_segments(frames);
    counters_.segments_received.add(taken);
    if (taken == 0) [[unlikely]] {
      taken = 1;
      if (!take_in_segment_ipv6(frames.front())) take_in(frames.front().frame, extent_of(*frames.front().frame).bytes, frames.front().info);
    }
    frames = frames.subspan(taken);
  }
}

}  // namespace neap::net
