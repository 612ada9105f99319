// SPDX-License-Identifier: BSL-1.0
// How a connection begins (RFC 9293, 3.5): a SYN is sent, or one is answered, or an ACK returns a cookie.
#include <algorithm>
#include <bit>
#include <new>

#include "kernel/panic.hpp"
#include "net/connection_frames.hpp"
#include "net/control_frames.hpp"
#include "net/listeners.hpp"
#include "net/tcp/cookies.hpp"
#include "net/tcp/initial_sequence.hpp"

namespace neap::net {

namespace {

constexpr std::chrono::seconds connect_limit{10};
/// CVE-2019-11479: with an MSS of a few bytes, every few bytes cost a segment. As Linux's TCP_MIN_MSS.
constexpr std::uint16_t mss_min = 88;
constexpr std::uint16_t mss_default = 536, mss_default_ipv6 = 1220;  // RFC 9293, MUST-15
constexpr std::uint16_t mss_usual = 1460;                            // of Ethernet without jumbo frames

/// The name of a destination in `PathMtuCache`. Two destinations over IPv6 may have the same name: they then use the smaller size of both.
std::uint64_t destination_of_cache(const Address& address) noexcept {
  return address.is_v4() ? address.v4().value : address.high() ^ std::rotl(address.low(), 32);
}

}  // namespace

ConnectionState::ConnectionState(Stack& stack, const SegmentAddresses& key) noexcept
    : stack_(stack), core_(static_cast<std::uint16_t>(stack.core())) {
  const SegmentAddresses sent = key.reversed();
  headers_.addresses = sent.addresses;
  headers_.ports = sent.ports;
  control_ = is_control_port(local_port());
  received_at_ = static_cast<std::uint32_t>(stack.now_us() >> 10);
}

ConnectionState::ConnectionState(Stack& stack, std::unique_ptr<ConnectionIpv6> part) noexcept
    : stack_(stack), core_(static_cast<std::uint16_t>(stack.core())), over_ipv6_(true) {
  headers_.ports = part->headers.ports;
  headers_.ipv6 = part.release();
  control_ = is_control_port(local_port());
  received_at_ = static_cast<std::uint32_t>(stack.now_us() >> 10);
}

void ConnectionState::begin(std::uint32_t initial_at_least) noexcept {
  const tcp::InitialNumbers numbers = std::visit([&](const auto& own) { return tcp::initial_numbers(own, stack_.now_us()); }, key());
  std::uint32_t first = numbers.sequence;
  if (initial_at_least != 0 && tcp::before(first, initial_at_least)) first = initial_at_least;
  timestamp_offset_ = numbers.timestamp_offset;
  send_.begin(first, tcp::settings);
  since_s_ = stack_.now_s();
  stack_.insert(*this);
}

void ConnectionState::send_syn() noexcept {
  OutgoingSegment* const made = OutgoingSegment::make(0);
  if (made == nullptr) return;
  made->set(tcp::SentSegment::syn);
  const std::uint64_t now_us = stack_.now_us();
  static_cast<void>(transmit(*made, send_.nxt, flags_of(*made)));  // a SYN that the card refuses is sent again as if it were lost
  sent_memory_ += memory_of(*made);
  send_.sent(*made, now_us);
  arm_timer(now_us);
}

// --- Active ------------------------------------------------------------------------------------------------------------------------------
void ConnectionState::connect(ConnectAttempt& attempt) noexcept {
  connecting_ = true;
  attempt_ = &attempt;
  state_ = TcpState::syn_sent;
  receive_.start(0, tcp::ReceiveWindow::first_limit_bytes, static_cast<std::uint32_t>(stack_.now_us()));
  begin(0);
  stack_.add(*this);
  attempt.limit.arm(connect_limit, [this] { request_abort(); });
  send_syn();
  charge();
}

ConnectAttempt& ConnectionState::take_attempt() noexcept {
  require(connecting_, "an established connection had an attempt", core_);
  connecting_ = false;
  ConnectAttempt& attempt = *attempt_;
  handler_ = nullptr;
  attempt.limit.cancel();
  return attempt;
}

// --- Passive -----------------------------------------------------------------------------------------------------------------------------
ConnectionState::Agreement ConnectionState::agree(const IncomingSegment& segment) const noexcept {
  const tcp::Options& options = segment.options;
  return {.peer_mss = options.mss,
          .window_shift = options.window_shift,
          .window_scale = options.has_window_shift,
          .sack = tcp::settings.sack && options.sack_permitted,
          .timestamps = tcp::settings.timestamps && options.has_timestamps,
          .ecn = tcp::settings.ecn && segment.has(flag::ece) && segment.has(flag::cwr)};
}

void ConnectionState::use(const Agreement& agreement) noexcept {
  const std::uint16_t peer_default = over_ipv6_ ? mss_default_ipv6 : mss_default;
  peer_mss_ = agreement.peer_mss == 0 ? peer_default : std::max(agreement.peer_mss, mss_min);
  send_shift_ = agreement.window_scale ? agreement.window_shift : std::uint8_t{0};
  receive_.set_shift(agreement.window_scale ? tcp::window_shift_for(tcp::settings.receive_bytes_max) : std::uint8_t{0});
  sack_ = agreement.sack;
  timestamps_ = agreement.timestamps;
  ecn_ = agreement.ecn;
  const auto mtu = static_cast<std::uint16_t>(std::min(link_mss(), peer_mss_) + headers_bytes());
  // A peer with an ordinary interface does not fill a jumbo frame.
  acknowledgements_.set_full_bytes_max(std::min(link_mss(), std::max(peer_mss_, mss_usual)));
  const std::uint32_t now_s = stack_.now_s();
  const Address peer = remote().address;
  std::uint16_t known = stack_.path_mtu_cache().find(destination_of_cache(peer), now_s);
  if (over_ipv6_) known = std::min<std::uint16_t>(known == 0 ? mtu : known, stack_.ipv6().mtu(peer));
  path_mtu_.start(mtu, known, over_ipv6_ ? tcp::mtu_min_6 : tcp::mtu_min_4, now_s);
}

std::uint16_t ConnectionState::link_mss() const noexcept {
  return static_cast<std::uint16_t>((over_ipv6_ ? stack_.ipv6().link_mtu() : stack_.mtu()) - headers_bytes());
}

void ConnectionState::remember_path_mtu(std::uint32_t now_s) noexcept {
  stack_.path_mtu_cache().set(destination_of_cache(remote().address), path_mtu_.mtu(), now_s);
}

std::uint32_t ConnectionState::mss_of_path() const noexcept {
  return path_mtu_.mtu() - headers_bytes() - (timestamps_ ? static_cast<std::uint32_t>(tcp::timestamps_bytes) : 0);
}

void ConnectionState::answer_syn(Listener& listener, const IncomingSegment& segment, std::uint32_t initial_at_least) noexcept {
  listener_ = &listener;
  ++listener.half_open;
  stack_.count_half_open(1);
  state_ = TcpState::syn_received;
  begin(initial_at_least);
  receive_.start(segment.sequence, tcp::ReceiveWindow::first_limit_bytes, static_cast<std::uint32_t>(stack_.now_us()));
  timestamp_recent_ = segment.options.has_timestamps ? segment.options.timestamps.value : 0;
  use(agree(segment));
  send_syn();
  if (send_.head == nullptr) drop_half_open();  // no memory
}

void ConnectionState::accept_cookie(Listener& listener, const IncomingSegment& segment, const Agreement& agreement) noexcept {
  listener_ = &listener;
  ++listener.half_open;
  stack_.count_half_open(1);
  state_ = TcpState::syn_received;
  begin(0);
  send_.begin(segment.acknowledgement, tcp::settings);
  receive_.start(segment.sequence - 1, tcp::ReceiveWindow::first_limit_bytes, static_cast<std::uint32_t>(stack_.now_us()));
  use(agreement);
  if (segment.options.has_timestamps) timestamp_recent_ = segment.options.timestamps.value;
  acknowledged_to_ = segment.sequence;
  send_.window = segment.window << send_shift_;
  send_.wl1 = segment.sequence;
  send_.wl2 = segment.acknowledgement;
  establish();
}

// --- Open --------------------------------------------------------------------------------------------------------------------------------
void ConnectionState::establish() noexcept {
  send_.establish(mss_of_path(), sack_, ecn_);
  open();
}

void ConnectionState::open() noexcept {
  const auto make = [this](auto& acceptor) -> std::unique_ptr<ConnectionHandler> {
    try {
      return acceptor(*this);
    } catch (const std::bad_alloc&) {
      return nullptr;
    }
  };
  if (connecting_) {
    ConnectAttempt& attempt = take_attempt();
    state_ = TcpState::established;
    stack_.counters().connections_made.add();
    if (adopt(make(attempt.acceptor))) {
      attempt.done.fulfil({});
    } else {
      attempt.done.fulfil(failure(ErrorCode::closed, "no handler was made for the connection"));
    }
    return;
  }
  Listener& listener = *listener_;
  handler_ = nullptr;
  --listener.half_open;
  stack_.count_half_open(-1);
  state_ = TcpState::established;
  stack_.add(*this);
  stack_.counters().connections_accepted.add();
  adopt(make(listener.acceptor));
}

bool ConnectionState::adopt(std::unique_ptr<ConnectionHandler> handler) noexcept {
  stack_.mark_dirty(*this);
  if (handler == nullptr) {
    stack_.counters().connections_refused.add();
    request_abort();
    return false;
  }
  require(handler_ == nullptr && !connecting_, "a connection has one handler", core_);
  handler_ = handler.release();
  bind(*handler_);
  return true;
}

}  // namespace neap::net
