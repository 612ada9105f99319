// SPDX-License-Identifier: BSL-1.0
// A fuzzer of TCP's input during a genuine transfer.
//
// One input is one connection. In half of the inputs, a third machine forges segments with unacceptable sequence or acknowledgement numbers
// (RFC 9293 3.10.7.4, RFC 5961) or unexpected flags. Meanwhile both ends send genuine bytes, which must arrive unchanged, on time and
// without a retransmission. In the other half of the inputs, the peer itself is hostile: it sends arbitrary numbers, flags, lengths,
// options and fragments. Half of all connections are over IPv6. The machine must survive, and must never announce a window larger than its
// first one.
//
// With clang the program is a libFuzzer target (-DNEAP_LIBFUZZER=ON). Usage with any other compiler: `fuzz_segments [SECONDS] [SEED]`.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>

#include "net/testing/choices.hpp"
#include "net/testing/hand_peer.hpp"
#include "tests/host/fuzzing.hpp"

namespace neap::net::testing {
namespace {

Bytes options(Choices& choices) {
  static const std::vector<std::vector<std::uint8_t>> known{{2, 4, 0, 1},
                                                            {2, 4, 0, 0},
                                                            {2, 4, 5, 0xB4},
                                                            {3, 3, 14},
                                                            {4, 2},
                                                            {1},
                                                            {0},
                                                            {8, 10, 1, 2, 3, 4, 5, 6, 7, 8},
                                                            {5, 10, 0, 0, 0, 1, 0, 0, 0, 2},
                                                            {2},
                                                            {3, 1},
                                                            {254, 0},
                                                            {254, 255}};
  Bytes result;
  for (std::uint32_t count = choices.below(4); count > 0; --count) {
    for (const std::uint8_t byte : known[choices.below(static_cast<std::uint32_t>(known.size()))]) result.push_back(std::byte{byte});
  }
  if (choices.below(8) == 0) result = choices.any(choices.below(41));
  if (result.size() > 40) result.resize(40);
  return result;
}

// A sequence number at least this far ahead of the expected one, or behind it, is outside of any window.
constexpr std::uint32_t far = 1'000'000;
std::uint32_t far_from(Choices& choices, std::uint32_t number) { return number + far + choices.bits(4) % (0U - 2 * far); }

class Transfer {
 public:
  explicit Transfer(Choices& choices) : choices_(choices) {}

  void run() {
    Bytes syn_options;
    if (choices_.below(4) != 0) syn_options = {std::byte{2}, std::byte{4}, std::byte(choices_.bits(1) % 8), std::byte(choices_.bits(1))};
    if (choices_.below(2) == 0)
      syn_options.insert(syn_options.end(), {std::byte{3}, std::byte{3}, std::byte(choices_.below(3)), std::byte{1}});
    if (choices_.below(2) == 0) syn_options.insert(syn_options.end(), {std::byte{4}, std::byte{2}});
    window_ = static_cast<std::uint16_t>(4000 + choices_.below(61'535));
    peer_.open(40000, window_, syn_options);
    while (!choices_.empty()) {
      step();
      drain();
    }
    drain();
    if (received_ != sent_) fail("bytes of the machine's application did not arrive at once", sent_ - received_);
    if (peer_.record().received != peer_sent_) fail("bytes of the peer did not arrive at once", peer_sent_ - peer_.record().received);
    if (peer_.record().mismatches != 0) fail("wrong bytes reached the application", peer_.record().mismatches);
    if (peer_.record().closed + peer_.record().peer_closed != 0) fail("the connection ended", 0);
    if (peer_.counters().retransmissions != 0) fail("retransmissions on a wire without loss", peer_.counters().retransmissions);
    if (peer_.counters().transmit_failed != 0) fail("frames that the card refused", peer_.counters().transmit_failed);
  }

 private:
  void step() {
    switch (choices_.below(4)) {
      case 0: {
        const std::size_t bytes = 1 + choices_.below(12'000);
        peer_.application_sends(bytes);
        sent_ += bytes;
        break;
      }
      case 1: {  // data with unexpected options, which must be ignored
        Bytes payload(1 + choices_.below(1400));
        for (std::size_t i = 0; i < payload.size(); ++i) payload[i] = pattern(peer_sent_ + i, 6);
        peer_.send({.seq = peer_.seq,
                    .acknowledged = peer_.acknowledged,
                    .window = window_,
                    .payload = payload,
                    .options = choices_.below(2) == 0 ? Bytes{} : options(choices_)});
        peer_.seq += static_cast<std::uint32_t>(payload.size());
        peer_sent_ += payload.size();
        break;
      }
      case 2:
        peer_.advance(std::chrono::milliseconds(choices_.below(8) * 50));
        break;
      default:
        if (choices_.below(2) == 0) {  // the forged segment arrives while data is in flight
          const std::size_t bytes = 1 + choices_.below(12'000);
          peer_.application_sends(bytes);
          sent_ += bytes;
        }
        for (std::uint32_t count = 1 + choices_.below(3); count > 0; --count) peer_.send(forged());
    }
  }
  Segment forged() {
    Segment segment{.seq = peer_.seq,
                    .acknowledged = peer_.acknowledged,
                    .flags = static_cast<std::uint8_t>(choices_.bits(1)),
                    .window = static_cast<std::uint16_t>(choices_.bits(2)),
                    .payload = {},
                    .options = options(choices_)};
    switch (choices_.below(4)) {
      case 0:
        segment.seq = far_from(choices_, peer_.seq);
        segment.acknowledged = choices_.below(2) == 0 ? choices_.bits(4) : peer_.acknowledged;
        break;
      case 1:
        segment.acknowledged = far_from(choices_, peer_.acknowledged);
        segment.seq += choices_.below(3000);
        break;
      case 2:
        segment.flags &= static_cast<std::uint8_t>(~tcp::ack);
        segment.seq += choices_.below(3000);
        break;
      default:
        segment.flags |= choices_.below(2) == 0 ? tcp::syn : tcp::rst;
        segment.seq += choices_.below(3000);
    }
    // A third machine that knows the exact sequence number can reset the connection, so this case is excluded.
    if ((segment.flags & tcp::rst) != 0 && segment.seq == peer_.seq) ++segment.seq;
    segment.payload = choices_.any(choices_.below(2) == 0 ? 0 : choices_.below(200));
    return segment;
  }
  /// The peer reads and acknowledges all segments.
  void drain() {
    for (int round = 0; round < 10'000; ++round) {
      bool any = false;
      for (const Segment& segment : peer_.take_segments()) {
        if ((segment.flags & (tcp::rst | tcp::fin)) != 0) fail("the machine ended the connection", segment.flags);
        if (segment.payload.empty()) continue;
        any = true;
        if (segment.seq != peer_.acknowledged) fail("a segment out of order", segment.seq - peer_.acknowledged);
        if (segment.payload.size() < 88 && segment.payload.size() < sent_ - received_) small_ += 1;
        for (const std::byte byte : segment.payload) {
          if (byte != pattern(received_++, 5)) fail("a wrong byte", received_);
        }
        peer_.acknowledged += static_cast<std::uint32_t>(segment.payload.size());
      }
      if (!any) break;
      peer_.acknowledge(window_);
    }
    if (small_ > 200 + sent_ / 500) fail("segments of a few bytes", small_);
  }

  Choices& choices_;
  HandPeer peer_{{.check_seed = 6, .close_when_sent = false}, choices_.below(2) == 0};
  std::uint16_t window_ = 0;
  std::size_t sent_ = 0, received_ = 0, peer_sent_ = 0, small_ = 0;
};

class HostilePeer {
 public:
  explicit HostilePeer(Choices& choices) : choices_(choices) {}
  ~HostilePeer() {
    peer_.machine().on(0, [this] { held_ = Buffer{}; });
  }

  void run() {
    peer_.open(40000, static_cast<std::uint16_t>(choices_.bits(2) >> choices_.below(16)), {});
    edge_ = peer_.seq + 0xFFFF;
    while (!choices_.empty()) step();
    peer_.machine().on(0, [this] { held_ = Buffer{}; });
    peer_.advance(std::chrono::seconds(1));
    check();
  }

 private:
  void step() {
    switch (choices_.below(8)) {
      case 0:
        if (peer_.record().closed == 0 && !closed_) peer_.application_sends(1 + choices_.below(6000));
        break;
      case 1:
        peer_.advance(std::chrono::milliseconds(choices_.below(60) * 50));
        break;
      case 2:
        if (choices_.below(4) == 0) peer_.machine().on(0, [this] { held_ = Buffer{}; });
        break;
      case 3:
        if (choices_.below(16) == 0 && peer_.record().closed == 0) {
          peer_.close_by_application();
          closed_ = true;
        }
        break;
      case 4:
        peer_.card().arrive(
            HandPeer::ipv4_frame(choices_.below(2) == 0 ? 6 : 17, choices_.any(choices_.below(100)),
                                 static_cast<std::uint16_t>(choices_.below(3)),
                                 static_cast<std::uint16_t>(choices_.below(2) << 13 |
                                                            (choices_.below(2) == 0 ? choices_.below(12) : choices_.bits(2) & 0x1FFF))),
            0);
        peer_.settle();
        break;
      case 5:  // segments in order, which fill the window
        for (std::uint32_t count = choices_.below(50); count > 0; --count) peer_.send_data(Bytes(1 + choices_.below(1460)), 1000);
        break;
      default: {
        Segment segment{.seq = peer_.seq,
                        .acknowledged = peer_.acknowledged,
                        .flags = choices_.below(4) == 0 ? static_cast<std::uint8_t>(choices_.bits(1)) : tcp::ack,
                        .window = static_cast<std::uint16_t>(choices_.bits(2) >> choices_.below(16)),
                        .payload = Bytes(choices_.below(4) == 0 ? 0 : choices_.below(1460)),
                        .options = options(choices_)};
        if (choices_.below(4) == 0) segment.flags |= tcp::fin;
        if (choices_.below(8) != 0) segment.flags &= static_cast<std::uint8_t>(~(tcp::rst | tcp::syn));
        switch (choices_.below(4)) {
          case 0:
            segment.seq += choices_.below(70'000);
            break;
          case 1:
            segment.seq = edge_ - choices_.below(3000);
            break;
          case 2:
            segment.seq -= choices_.below(3000);
            break;
          default:
            break;
        }
        if (choices_.below(2) == 0) segment.acknowledged += choices_.below(8000) - 1000;
        peer_.send(segment);
      }
    }
    check();
  }
  void check() {
    for (const Segment& segment : peer_.take_segments()) {
      if (segment.payload.size() > 1460) fail("a segment longer than the link's limit", segment.payload.size());
      if (segment.flags == (tcp::syn | tcp::ack) || (segment.flags & tcp::rst) != 0) continue;
      // The handler keeps received bytes for a while. The window's right edge moves only when the handler releases bytes.
      const std::uint32_t room = segment.acknowledged + segment.window - peer_.seq;
      if (static_cast<std::int32_t>(room) > 0xFFFF + 70'000) fail("a window beyond the sent bytes", room);
      // The peer continues at the machine's acknowledgement number.
      if (static_cast<std::int32_t>(segment.acknowledged - peer_.seq) > 0) peer_.seq = segment.acknowledged;
      if (segment.seq + segment.payload.size() - peer_.acknowledged < 0x10000000) {
        peer_.acknowledged = segment.seq + static_cast<std::uint32_t>(segment.payload.size());
      }
      edge_ = segment.acknowledged + segment.window;
    }
    if (peer_.counters().transmit_failed != 0) fail("frames that the card refused", peer_.counters().transmit_failed);
  }

  Choices& choices_;
  Buffer held_;
  HandPeer peer_{{.close_when_sent = false,
                  .answer_close = false,
                  .on_received =
                      [this](RecordingHandler&, Buffer data) {
                        if (held_.bytes() < 200'000) held_.append(std::move(data));
                      }},
                 choices_.below(2) == 0};
  std::uint32_t edge_ = 0;
  bool closed_ = false;
};

}  // namespace
}  // namespace neap::net::testing

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  GTEST_FLAG_SET(break_on_failure, true);
  neap::net::testing::Choices choices(data, size);
  if (choices.below(2) == 0) {
    neap::net::testing::Transfer(choices).run();
  } else {
    neap::net::testing::HostilePeer(choices).run();
  }
  static_cast<void>(neap::host::take_console_text());  // frees the console's text
  return 0;
}

#ifndef NEAP_LIBFUZZER
int main(int count, char** words) { return neap::fuzzing::run<neap::fuzzing::AnyBytes<20, 300, 3000>>("fuzz_segments", count, words); }
#endif
