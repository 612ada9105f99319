// SPDX-License-Identifier: BSL-1.0
#include "net/testing/wire.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <new>
#include <numeric>
#include <utility>

#include "kernel/events.hpp"
#include "kernel/panic.hpp"
#include "net/testing/frames.hpp"

namespace neap::net::testing {

namespace {

constexpr std::size_t buffer_bytes = 2048, frame_bytes_min = 60, frame_bytes_max = 0x10000;
constexpr unsigned engine_batch = 64;

constexpr std::size_t l3 = 14;  ///< offset of the IP header
constexpr std::size_t ipv6_header_bytes = 40;
constexpr unsigned tcp = 6, udp = 17, icmpv6 = 58;

/// Offsets in a frame of IPv4 or IPv6 (from the first byte of Ethernet).
struct Layout {
  bool ipv4 = false, ipv6 = false, fragment = false;
  std::size_t l4 = 0, end = 0;
  unsigned protocol = 0;
  std::size_t checksum = 0;  ///< offset of the checksum of TCP or UDP; 0: none
};

/// Skips the extension headers that the 82599 skips. If another one follows, it counts as the protocol.
bool skip_extensions(const Bytes& frame, Layout& where) {
  constexpr unsigned hop_by_hop = 0, routing = 43, fragment = 44, destination_options = 60;
  for (;;) {
    const bool skipped = where.protocol == hop_by_hop || where.protocol == destination_options || where.protocol == routing;
    if (!skipped && where.protocol != fragment) return true;
    if (where.l4 + 8 > where.end) return false;
    if (where.protocol == hop_by_hop && where.l4 != l3 + ipv6_header_bytes) return true;
    // The checksum may include an address of a routing header.
    if (where.protocol == routing && (octet(frame, where.l4 + 1) != 0 || octet(frame, where.l4 + 3) != 0)) return true;
    where.fragment = where.protocol == fragment;
    const std::size_t bytes = where.fragment ? 8 : 8 + octet(frame, where.l4 + 1) * std::size_t{8};
    where.protocol = octet(frame, where.l4);
    where.l4 += bytes;
    if (where.l4 > where.end) return false;
    if (where.fragment) return true;
  }
}

Layout layout(const Bytes& frame) {
  Layout result;
  if (frame.size() < l3 + 20) return result;
  if (word(frame, 12) == 0x0800) {
    result.ipv4 = true;
    result.l4 = l3 + (octet(frame, l3) & 0xF) * 4;
    result.end = l3 + word(frame, l3 + 2);
    result.fragment = (word(frame, l3 + 6) & 0x3FFF) != 0;
    result.protocol = octet(frame, l3 + 9);
  } else if (word(frame, 12) == 0x86DD && frame.size() >= l3 + ipv6_header_bytes) {
    result.ipv6 = true;
    result.l4 = l3 + ipv6_header_bytes;
    result.end = result.l4 + word(frame, l3 + 4);
    result.protocol = octet(frame, l3 + 6);
  } else {
    return result;
  }
  if (result.end > frame.size() || result.l4 > result.end) return {};
  if (result.ipv6 && !skip_extensions(frame, result)) return {};
  if (result.protocol == tcp && result.end >= result.l4 + 20) result.checksum = result.l4 + 16;
  if (result.protocol == udp && result.end >= result.l4 + 8) result.checksum = result.l4 + 6;
  return result;
}

/// Returns the ports of TCP or UDP, source first; 0 if the frame has none.
std::uint32_t ports_of(const Bytes& frame, const Layout& where) {
  return where.checksum != 0 && !where.fragment ? quad(frame, where.l4) : 0;
}

Ipv6Octets ipv6_address(const Bytes& frame, std::size_t at) { return Ipv6Octets(reinterpret_cast<const std::uint8_t*>(&frame.at(at)), 16); }

std::uint32_t pseudo_header(const Bytes& frame, const Layout& where) {
  const auto addresses = where.ipv4 ? std::span(frame).subspan(l3 + 12, 8) : std::span(frame).subspan(l3 + 8, 32);
  return std::uint32_t{internet_sum(addresses)} + where.protocol + static_cast<std::uint32_t>(where.end - where.l4);
}

std::uint16_t l4_sum(const Bytes& frame, const Layout& where, std::uint32_t initial) {
  return internet_sum(std::span(frame).subspan(where.l4, where.end - where.l4), initial);
}

/// Writes the checksum of layer 4. UDP sends 0 as 0xFFFF, because 0 means that there is none (RFC 768).
void put_l4_checksum(Bytes& frame, const Layout& where, std::uint32_t initial) {
  const auto sum = static_cast<std::uint16_t>(~l4_sum(frame, where, initial));
  put_word(frame, where.checksum, sum == 0 && where.protocol == udp ? 0xFFFF : sum);
}

/// A receive buffer; its memory follows it.
struct OwnBuffer {
  ReceiveBuffer buffer;
  std::atomic<std::int64_t>* out;
  std::size_t bytes;  ///< of its memory
  [[nodiscard]] std::byte* memory() noexcept { return reinterpret_cast<std::byte*>(this + 1); }
};

void take_back(ReceiveBuffer* buffer) noexcept {
  auto* const own = reinterpret_cast<OwnBuffer*>(buffer);
  require(this_core() == buffer->pool_index, "a receive buffer is returned on its own core", this_core());
  --*own->out;
  std::memset(own->memory(), 0xDD, own->bytes);  // as if the card reused the buffer
  own->~OwnBuffer();
  ::operator delete(own);
}

std::uint16_t folded(std::uint64_t sum) noexcept {
  while (sum > 0xFFFF) sum = (sum & 0xFFFF) + (sum >> 16);
  return static_cast<std::uint16_t>(sum);
}

/// Returns the sum of the 16-bit words in the order of the bytes in memory, which the sum keeps (RFC 1071 2(B)). Many tests spend much of
/// their time here, so no sanitizer checks each access. The bytes are a test's own, or the card has copied them with checks before.
[[gnu::no_sanitize("address"), gnu::no_sanitize("undefined")]] std::uint64_t sum_in_memory(const std::byte* at, std::size_t left) noexcept {
  std::uint64_t sum = 0;
  for (; left >= sizeof sum; left -= sizeof sum, at += sizeof sum) {
    std::uint64_t eight;
    __builtin_memcpy(&eight, at, sizeof eight);
    sum += (eight & 0xFFFF'FFFF) + (eight >> 32);
  }
  for (; left >= 2; left -= 2, at += 2) {
    std::uint16_t two;
    __builtin_memcpy(&two, at, sizeof two);
    sum += two;
  }
  if (left > 0) sum += std::endian::native == std::endian::little ? std::to_integer<unsigned>(*at) : std::to_integer<unsigned>(*at) << 8;
  return sum;
}

}  // namespace

std::uint16_t internet_sum(std::span<const std::byte> bytes, std::uint32_t sum) noexcept {
  const std::uint16_t in_memory = folded(sum_in_memory(bytes.data(), bytes.size()));
  return folded(std::uint64_t{sum} + (std::endian::native == std::endian::little ? std::byteswap(in_memory) : in_memory));
}

void fill_checksums(Bytes& frame) {
  Layout where = layout(frame);
  if (where.ipv4) {
    put_word(frame, 24, 0);
    put_word(frame, 24, static_cast<std::uint16_t>(~internet_sum(std::span(frame).subspan(l3, where.l4 - l3))));
  } else if (where.ipv6 && where.protocol == icmpv6 && where.end >= where.l4 + 4) {
    where.checksum = where.l4 + 2;
  }
  if (where.checksum == 0 || where.fragment) return;
  put_word(frame, where.checksum, 0);
  put_l4_checksum(frame, where, pseudo_header(frame, where));
}

WireCard::WireCard(CardOptions options) : options_(options), lost_(options.lost), repeated_(options.repeated), late_(options.late) {
  for (unsigned i = 0; i < options.cores; ++i) {
    queues_.push_back(std::make_unique<Queue>(*this));
    queues_.back()->random.seed(options.seed * 131 + i + 1);
  }
}

WireCard::~WireCard() = default;

void WireCard::join(WireCard& one, WireCard& other) noexcept {
  one.other_ = &other;
  other.other_ = &one;
}

NetDeviceLimits WireCard::limits() const noexcept {
  return {.queue_pairs = options_.cores,
          .transmit_queues = options_.cores,
          .frame_bytes_max = options_.frame_bytes_max,
          .transmit_pieces_max = options_.pieces_max,
          .tso_bytes_max = options_.tso_bytes_max,
          .checksum_offload = options_.checksum_offload,
          .ip_header_offload = options_.ip_header_offload};
}

WireCard::Queue& WireCard::queue() noexcept {
  require(this_core() >= options_.first_core && this_core() < options_.first_core + options_.cores, "the calling core has a queue pair",
          this_core());
  return *queues_[this_core() - options_.first_core];
}

FrameSender& WireCard::attach(FrameReceiver& receiver) {
  queue().receiver = &receiver;
  return queue();
}

void WireCard::set_link(bool up) {
  link_ = up;
  for (unsigned i = 0; i < options_.cores; ++i) {
    if (queues_[i]->receiver == nullptr) continue;
    const Result<void> spawned = spawn_on(options_.first_core + i, [this, i, up] { queues_[i]->receiver.load()->link_changed(up); });
    require(spawned.has_value(), "a core's queue has room for a link change");
  }
}

void WireCard::set_faults(double lost, double repeated, double late) noexcept {
  lost_ = lost;
  repeated_ = repeated;
  late_ = late;
}

std::uint64_t WireCard::frames_sent() const noexcept {
  std::uint64_t sent = 0;
  for (const auto& queue : queues_) sent += queue->sent.value();
  return sent;
}

void WireCard::report_counters(std::optional<unsigned> core, const Emit& emit) const {
  std::uint64_t sent = 0;
  for (unsigned i = 0; i < queues_.size(); ++i) sent += !core || options_.first_core + i == *core ? queues_[i]->sent.value() : 0;
  emit("wire.sent", sent);
  if (!core) emit("wire.found_full", full_);
}

task<Result<void>> WireCard::report_device_counters(std::optional<unsigned> core, const Emit& emit) {
  if (gone_) co_return failure(ErrorCode::closed, "the card is gone");
  const std::uint64_t visited = co_await on_core(options_.first_core, [] { return this_core(); });
  emit("wire.own.visited", visited);
  emit("wire.own.queue", core.value_or(options_.cores));
  emit("wire.own.reads", ++own_reads_);
  co_return Result<void>{};
}

unsigned WireCard::receiving_core(std::uint32_t source_ip, std::uint32_t destination_ip, std::uint16_t source_port,
                                  std::uint16_t destination_port) const noexcept {
  if (options_.decides) return device_decides;
  return core_of_ipv4(source_ip, destination_ip, source_port, destination_port);
}

unsigned WireCard::core_of_ipv4(std::uint32_t source_ip, std::uint32_t destination_ip, std::uint16_t source_port,
                                std::uint16_t destination_port) const noexcept {
  return core_of(0, std::uint64_t{source_ip} << 32 | destination_ip, std::uint32_t{source_port} << 16 | destination_port);
}

unsigned WireCard::receiving_core_ipv6(Ipv6Octets source_ip, Ipv6Octets destination_ip, std::uint16_t source_port,
                                       std::uint16_t destination_port) const noexcept {
  if (options_.decides) return device_decides;
  return core_of_ipv6(source_ip, destination_ip, source_port, destination_port);
}

unsigned WireCard::core_of_ipv6(Ipv6Octets source_ip, Ipv6Octets destination_ip, std::uint16_t source_port,
                                std::uint16_t destination_port) const noexcept {
  const auto mixed = [](Ipv6Octets address) {
    return std::accumulate(address.begin(), address.end(), std::uint64_t{0},
                           [](std::uint64_t sum, std::uint8_t octet) { return std::rotl((sum ^ octet) * 0x9E3779B97F4A7C15, 29); });
  };
  return core_of(mixed(source_ip), mixed(destination_ip), std::uint32_t{source_port} << 16 | destination_port);
}

unsigned WireCard::core_of(std::uint64_t source, std::uint64_t destination, std::uint32_t ports) const noexcept {
  std::uint64_t hash = (std::rotl(source, 17) ^ destination) * 0x9E3779B97F4A7C15;
  hash = (hash ^ ports) * 0xBF58476D1CE4E5B9;
  return options_.first_core + static_cast<unsigned>((hash >> 33) % options_.cores);
}

// --- Sending -----------------------------------------------------------------------------------------------------------------------------
TransmitResult WireCard::transmit(Queue& own, Posted posted) noexcept {
  require(&own == &queue(), "a queue is used on its own core", this_core());
  if (!link_) return std::unexpected(ErrorCode::closed);
  if (own.ring.size() >= options_.ring_frames) {
    ++full_;
    own.said_full = true;
    return std::unexpected(ErrorCode::full);
  }
  for (const TransmitPiece& piece : posted.pieces) posted.bytes += piece.bytes;
  const std::size_t limit = posted.offload.segment_bytes != 0 ? options_.tso_bytes_max : options_.frame_bytes_max;
  if (posted.pieces.empty() || posted.pieces.size() > options_.pieces_max || posted.bytes > limit)
    return std::unexpected(ErrorCode::invalid);
  bytes_max_ = std::max(bytes_max_.load(), static_cast<std::uint32_t>(posted.bytes));
  pieces_max_ = std::max<unsigned>(pieces_max_, static_cast<unsigned>(posted.pieces.size()));
  own.ring.push_back(std::move(posted));
  if (!own.engine_runs) start_engine(own);
  return {};
}

void WireCard::start_engine(Queue& own) {
  own.engine_runs = true;
  if (options_.read_delay.count() > 0) {
    own.engine.arm(options_.read_delay, [this, &own] { run_engine(own); });
  } else {
    spawn([this, &own] { run_engine(own); });
  }
}

void WireCard::run_engine(Queue& own) {
  own.engine_runs = false;
  for (unsigned i = 0; i < engine_batch && !own.ring.empty(); ++i) {
    Posted posted = std::move(own.ring.front());
    own.ring.pop_front();
    Bytes bytes;
    bytes.reserve(std::max(posted.bytes, frame_bytes_min));
    for (const TransmitPiece& piece : posted.pieces) bytes.insert(bytes.end(), piece.data, piece.data + piece.bytes);
    if (posted.offload.segment_bytes != 0) {
      own.complete(posted);
      send_segments(own, bytes, posted.offload);
      continue;
    }
    const Layout where = layout(bytes);
    if (posted.offload.ipv4()) {
      const auto header = std::span(bytes).subspan(l3, where.l4 - l3);
      require(where.ipv4 && (options_.ip_header_offload ? word(bytes, 24) == 0 : internet_sum(header) == 0xFFFF),
              "the IPv4 checksum is 0 before the card fills it in, or right if it does not");
      if (options_.ip_header_offload) put_word(bytes, 24, static_cast<std::uint16_t>(~internet_sum(header)));
    }
    if (posted.offload.tcp() || posted.offload.udp()) {
      require(where.checksum != 0 && !where.fragment && where.l4 == l3 + posted.offload.l3_bytes && where.ipv4 == posted.offload.ipv4() &&
                  where.protocol == (posted.offload.tcp() ? tcp : udp),
              "the headers match the offload");
      put_l4_checksum(bytes, where, 0);  // the stack left the pseudo-header's sum in the field
    }
    if (bytes.size() < frame_bytes_min) bytes.resize(frame_bytes_min);
    own.sent.add();
    own.complete(posted);
    send(own, std::move(bytes));
  }
  if (std::exchange(own.said_full, false)) own.receiver.load()->transmit_room();
  if (!own.ring.empty() && !own.engine_runs) start_engine(own);
}

void WireCard::Queue::complete(const Posted& posted) {
  completed.push_back(posted.token);
  if (!card.options_.completes_late) reap();
}

void WireCard::Queue::reap() noexcept {
  if (completed.empty()) return;
  std::vector<void*> tokens = std::exchange(completed, std::exchange(spare, {}));
  if (FrameReceiver* const to = receiver; to != nullptr) to->transmitted(tokens);
  tokens.clear();
  spare = std::move(tokens);
}

void WireCard::send_segments(Queue& own, const Bytes& frame, TransmitOffload offload) {
  const std::size_t headers = offload.headers_bytes();
  const std::size_t l4 = std::size_t{offload.l2_bytes} + offload.l3_bytes;
  const bool ipv4 = offload.checksums == Checksums::tcp_ipv4 && offload.l3_bytes == 20;
  const bool ipv6 = offload.checksums == Checksums::tcp_ipv6 && offload.l3_bytes == ipv6_header_bytes;
  require((ipv4 || ipv6) && offload.l2_bytes == l3 && frame.size() > headers, "the card can segment the frame");
  require(word(frame, 12) == (ipv4 ? 0x0800 : 0x86DD) && (ipv4 ? octet(frame, l3) == 0x45 : octet(frame, l3) >> 4 == 6) &&
              octet(frame, l3 + (ipv4 ? 9 : 6)) == tcp && offload.l4_bytes == (octet(frame, l4 + 12) >> 4) * 4,
          "the headers match the offload");
  const std::size_t length_field = l3 + (ipv4 ? 2 : 4);
  if (options_.ip_header_offload) {
    require(word(frame, length_field) == 0 && (ipv6 || word(frame, 24) == 0), "length and checksum are 0 before the card fills them in");
  } else {
    require(
        word(frame, length_field) == frame.size() - (ipv4 ? l3 : l4) && (ipv6 || internet_sum(std::span(frame).subspan(l3, 20)) == 0xFFFF),
        "length and checksum are right, for a card that does not fill them in");
  }
  constexpr unsigned last_only = 0x09;  // FIN, PSH
  ++segmented_;
  for (std::size_t begin = headers, number = 0; begin < frame.size(); begin += offload.segment_bytes, ++number) {
    const std::size_t end = std::min(frame.size(), begin + offload.segment_bytes);
    Bytes segment;
    segment.reserve(std::max(headers + end - begin, frame_bytes_min));
    append(segment, std::span(frame).first(headers));
    append(segment, std::span(frame).subspan(begin, end - begin));
    put_word(segment, length_field, segment.size() - (ipv4 ? l3 : l4));  // IPv6 does not count its header
    const std::uint32_t sequence = quad(frame, l4 + 4) + static_cast<std::uint32_t>(begin - headers);
    put_quad(segment, l4 + 4, sequence);
    if (end != frame.size()) segment[l4 + 13] &= std::byte{0xFF ^ last_only};
    if (ipv4) {
      put_word(segment, 18, word(frame, 18) + number);
      put_word(segment, 24, 0);
      put_word(segment, 24, static_cast<std::uint16_t>(~internet_sum(std::span(segment).subspan(l3, 20))));
    }
    // The seed (the pseudo-header's sum) does not include the length, or includes that of the whole frame.
    const std::size_t counted = options_.ip_header_offload ? 0 : frame.size() - l4;
    put_l4_checksum(segment, layout(segment), static_cast<std::uint32_t>(segment.size() - l4 + (0xFFFF - counted) % 0xFFFF));
    if (segment.size() < frame_bytes_min) segment.resize(frame_bytes_min);
    own.sent.add();
    send(own, std::move(segment));
  }
}

void WireCard::send(Queue& own, Bytes bytes) {
  std::uniform_real_distribution<double> share;
  if (tap_ && !tap_(bytes)) return;
  if (share(own.random) < lost_) return;
  if (own.held_back != nullptr) {
    Bytes late = std::move(*std::exchange(own.held_back, nullptr));
    pass(std::move(bytes));
    pass(std::move(late));
    return;
  }
  if (share(own.random) < late_) {
    own.held_back = std::make_unique<Bytes>(std::move(bytes));
    return;
  }
  if (share(own.random) < repeated_) pass(bytes);
  pass(std::move(bytes));
}

void WireCard::pass(Bytes bytes) {
  if (other_ != nullptr) other_->arrive(std::move(bytes));
}

// --- Receiving ---------------------------------------------------------------------------------------------------------------------------
task<void> WireCard::set_multicast(std::vector<MacAddress> groups) {
  const std::lock_guard lock(groups_lock_);
  groups_ = std::move(groups);
  co_return;
}

std::vector<MacAddress> WireCard::multicast() const {
  const std::lock_guard lock(groups_lock_);
  return groups_;
}

bool WireCard::accepts(const Bytes& frame) {
  MacAddress to;
  if (frame.size() < to.size()) return true;
  std::memcpy(to.data(), frame.data(), to.size());
  constexpr MacAddress broadcast{0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF};
  if ((to[0] & 1) == 0 || to == broadcast || std::ranges::count(multicast(), to) != 0) return true;
  ++filtered_;
  return false;
}

void WireCard::arrive(Bytes frame, int core) {
  if (cut_ || !accepts(frame)) return;
  if (core < 0) {
    const Layout where = layout(frame);
    core = static_cast<int>(options_.first_core);
    const std::uint32_t ports = ports_of(frame, where);
    const auto source_port = static_cast<std::uint16_t>(ports >> 16), destination_port = static_cast<std::uint16_t>(ports);
    if (where.ipv4) {
      core = static_cast<int>(core_of_ipv4(quad(frame, l3 + 12), quad(frame, l3 + 16), source_port, destination_port));
    } else if (where.ipv6) {
      core = static_cast<int>(core_of_ipv6(ipv6_address(frame, l3 + 8), ipv6_address(frame, l3 + 24), source_port, destination_port));
    }
  }
  // If the core's event queue is full, the frame is dropped, as by a card without free descriptors.
  static_cast<void>(spawn_on(static_cast<unsigned>(core), [this, core, bytes = std::move(frame)] {
    std::vector<ReceivedFrame> received;
    receive(received, static_cast<unsigned>(core), bytes);
    pass(received, static_cast<unsigned>(core));
  }));
}

void WireCard::arrive_together(std::vector<Bytes> frames, unsigned core) {
  static_cast<void>(spawn_on(core, [this, core, frames = std::move(frames)]() mutable {
    std::vector<ReceivedFrame> received;
    for (const Bytes& frame : frames) receive(received, core, frame);
    pass(received, core);
  }));
}

void WireCard::receive(std::vector<ReceivedFrame>& received, unsigned core, const Bytes& frame) {
  FrameReceiver* const receiver = queues_[core - options_.first_core]->receiver;
  if (cut_ || receiver == nullptr || frame.size() > frame_bytes_max) return;
  ReceiveBuffer* first = nullptr;
  ReceiveBuffer** end = &first;
  for (std::size_t at = 0; at < frame.size() || at == 0; at += options_.receive_buffer_bytes) {
    const std::size_t bytes = std::min<std::size_t>(frame.size() - at, options_.receive_buffer_bytes);
    const std::size_t memory_bytes = options_.exact_buffers ? std::max(bytes, frame_bytes_min) : buffer_bytes;
    auto* const own = new (::operator new(sizeof(OwnBuffer) + memory_bytes)) OwnBuffer;
    if (bytes > 0) std::memcpy(own->memory(), frame.data() + at, bytes);
    own->buffer = {.data = own->memory(), .bytes = static_cast<std::uint32_t>(bytes), .return_to = &take_back, .pool_index = core};
    own->out = &buffers_out_;
    own->bytes = memory_bytes;
    ++buffers_out_;
    *end = &own->buffer;
    end = &own->buffer.next;
  }
  ++arrived_;
  std::uint32_t checksums = 0;
  const Layout where = layout(frame);
  if (options_.checksum_offload && (where.ipv4 || where.ipv6)) {
    if (where.ipv4 && options_.ip_header_offload) {
      checksums |= internet_sum(std::span(frame).subspan(l3, where.l4 - l3)) == 0xFFFF ? ReceiveInfo::ip_good : ReceiveInfo::bad;
    }
    if (where.checksum != 0 && !where.fragment && word(frame, where.checksum) != 0) {
      checksums |= l4_sum(frame, where, pseudo_header(frame, where)) == 0xFFFF ? ReceiveInfo::l4_good : ReceiveInfo::bad;
    }
    if (options_.checks_fragments && where.fragment) checksums |= ReceiveInfo::l4_good;
    if ((checksums & ReceiveInfo::bad) != 0) ++bad_;
  }
  received.push_back({.frame = first, .info = ReceiveInfo(checksums)});
}

void WireCard::pass(std::span<const ReceivedFrame> received, unsigned core) noexcept {
  constexpr std::size_t frames_max = 64;  // as the driver passes in one call
  if (!received.empty()) queues_[core - options_.first_core]->reap();
  while (!received.empty()) {
    const auto now = received.first(std::min(received.size(), frames_max));
    queues_[core - options_.first_core]->receiver.load()->receive(now);
    received = received.subspan(now.size());
  }
}

}  // namespace neap::net::testing
