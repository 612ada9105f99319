// SPDX-License-Identifier: BSL-1.0
// The card sends the same bytes whether it segments frames or gets segments one by one.
#include "net/segment_joiner.hpp"

#include <gtest/gtest.h>

#include <mutex>
#include <random>

#include "lwip/pbuf.h"
#include "net/stack.hpp"
#include "net/testing/handlers.hpp"
#include "net/testing/two_machines.hpp"

namespace neap::net::testing {
namespace {

constexpr unsigned headers_bytes = 54, mss = 1460;
constexpr unsigned ack = 0x10, push = 0x08, finish = 0x01;
constexpr std::uint16_t control_port = 5002;

/// A segment as lwIP sends it: the fields of its headers, and its payload's parts.
struct Segment {
  unsigned connection = 0;
  std::uint32_t sequence = 0, acknowledged = 1;
  unsigned window = 4096, flags = ack, options_bytes = 0, payload_bytes = mss;
  unsigned payload_at = 0;  ///< offset in the pattern
  unsigned parts = 1;       ///< parts of the payload after the headers
  bool apart = false;       ///< the parts are not adjacent
  bool tcp = true;
  std::uint16_t id = 0;
};

/// Returns the bytes from which segments take their payload. They are adjacent in memory, as in an application that sends a large value.
std::vector<std::byte>& stored() {
  static std::vector<std::byte> bytes = [] {
    std::vector<std::byte> made(512 * 1024);
    for (std::size_t i = 0; i < made.size(); ++i) made[i] = pattern(i, 7);
    return made;
  }();
  return bytes;
}

void put(std::byte* at, std::uint32_t value, unsigned bytes) {
  for (unsigned i = 0; i < bytes; ++i) at[i] = static_cast<std::byte>(value >> (8 * (bytes - 1 - i)));
}

pbuf* make(const Segment& segment) {
  const unsigned headers = headers_bytes + segment.options_bytes;
  pbuf* const first = pbuf_alloc(PBUF_RAW, static_cast<u16_t>(headers), PBUF_RAM);
  auto* const bytes = static_cast<std::byte*>(first->payload);
  std::fill_n(bytes, headers, std::byte{1});  // options: NOP
  const unsigned ip_bytes = headers - 14 + segment.payload_bytes;
  put(bytes, 0x02000000, 4), put(bytes + 4, 2, 2), put(bytes + 6, 0x02000000, 4), put(bytes + 10, 1, 2), put(bytes + 12, 0x0800, 2);
  put(bytes + 14, 0x4500, 2), put(bytes + 16, ip_bytes, 2), put(bytes + 18, segment.id, 2), put(bytes + 20, 0, 2);
  put(bytes + 22, segment.tcp ? 0x4006 : 0x4011, 2), put(bytes + 24, 0, 2);
  put(bytes + 26, server_address.value, 4), put(bytes + 30, client_address.value, 4);
  const unsigned port = segment.connection == 0 ? control_port : 1000 + segment.connection;
  put(bytes + 34, port, 2), put(bytes + 36, 40000 + segment.connection, 2);
  put(bytes + 38, segment.sequence, 4), put(bytes + 42, segment.acknowledged, 4);
  put(bytes + 46, (5 + segment.options_bytes / 4) << 12 | segment.flags, 2), put(bytes + 48, segment.window, 2), put(bytes + 50, 0, 4);
  unsigned at = segment.payload_at % (256 * 1024);
  for (unsigned left = segment.payload_bytes, parts = segment.parts; left > 0; --parts) {
    const unsigned part_bytes = parts <= 1 ? left : std::min(left, std::max(1U, segment.payload_bytes / segment.parts));
    pbuf* const part = pbuf_alloc(PBUF_RAW, static_cast<u16_t>(part_bytes), PBUF_REF);
    part->payload = &stored()[at];
    pbuf_cat(first, part);
    at += part_bytes + (segment.apart ? 64 : 0);
    left -= part_bytes;
  }
  return first;
}

/// Passes frames to one machine's stack event by event, and collects the frames that its card sends.
struct Sender {
  explicit Sender(const char* form, CardOptions card = {.mac = {0x02, 0, 0, 0, 0, 1}, .tso_bytes_max = 64 * 1024})
      : world({.server = card}) {
    EXPECT_EQ(world.set_tso(form), "");
    world.machine.on(0, [] { EXPECT_EQ(Stack::here()->core(), 0U); });
    world.server_card.tap([this](const Bytes& frame) {
      const std::lock_guard guard(lock);
      const bool arp = frame[13] == std::byte{6};  // ARP from the machine's start may still arrive
      if (collecting && !arp) frames.push_back(frame);
      return !collecting;
    });
    world.machine.on(0, [] { static_cast<void>(count_as_control(control_port)); });
    const std::lock_guard guard(lock);
    collecting = true;
  }

  /// Sends as many frames in one event as the card accepts, and the others in the next events.
  void send(std::span<const Segment> segments) {
    for (std::size_t next = 0; next < segments.size();) {
      const std::size_t before = next;
      world.machine.on(0, [&] {
        while (next < segments.size()) {
          pbuf* const frame = make(segments[next]);
          const err_t error = Stack::here()->transmit(frame);
          pbuf_free(frame);
          if (error != ERR_OK) {
            EXPECT_EQ(error, ERR_MEM);
            break;
          }
          ++next;
        }
      });
      if (next == before) std::this_thread::sleep_for(100us);
    }
    expected += segments.size();
  }
  /// Waits until the card has sent all frames.
  void settle() {
    EXPECT_TRUE(HostMachine::wait_until([&] { return count() == expected; }, 60s)) << count() << " of " << expected;
  }
  Counters counters() {
    settle();
    return world.counters_of(0);
  }
  std::size_t count() {
    const std::lock_guard guard(lock);
    return frames.size();
  }

  std::mutex lock;
  bool collecting = false;
  std::vector<Bytes> frames;
  std::size_t expected = 0;
  TwoMachines world;
};

std::vector<Segment> run_of(unsigned segments, Segment first = {}) {
  std::vector<Segment> run;
  for (unsigned i = 0; i < segments; ++i) {
    run.push_back(first);
    first.sequence += first.payload_bytes;
    first.payload_at += first.payload_bytes;
    ++first.id;
  }
  return run;
}

/// Makes mostly runs of consecutive segments of a few connections, and every kind of segment that ends a run.
std::vector<std::vector<Segment>> random_events(unsigned seed) {
  std::minstd_rand random(seed);
  const auto below = [&](unsigned end) { return std::uniform_int_distribution<unsigned>(0, end - 1)(random); };
  std::vector<Segment> next(3);
  for (unsigned i = 0; i < next.size(); ++i) next[i] = {.connection = i, .sequence = 0xFFFF'0000U + 1000 * i, .payload_at = 1000 * i};
  std::uint16_t id = 0xFFF0;
  std::vector<std::vector<Segment>> events(30);
  for (auto& event : events) {
    for (unsigned runs = 1 + below(4); runs > 0; --runs) {
      Segment& connection = next[below(3)];
      connection.acknowledged += below(3) == 0 ? 100 : 0;
      connection.options_bytes = below(8) == 0 ? 12 : 0;
      for (unsigned left = 1 + below(below(3) == 0 ? 60 : 8); left > 0; --left) {
        Segment segment = connection;
        segment.payload_bytes = below(12) == 0 ? below(mss + 1) : mss - segment.options_bytes;
        segment.flags = ack | (left == 1 || below(15) == 0 ? push : 0) | (below(40) == 0 ? finish : 0);
        if (below(30) == 0) segment.window += 1;
        if (below(30) == 0) segment.sequence -= mss;  // a retransmission
        if (below(40) == 0) segment.tcp = false;
        segment.parts = 1 + below(4);
        segment.apart = below(4) == 0;
        segment.id = id++;
        if (below(50) == 0) ++id;
        event.push_back(segment);
        connection.sequence += segment.payload_bytes;
        connection.payload_at += segment.payload_bytes;
      }
    }
  }
  return events;
}

struct Sent {
  std::vector<Bytes> frames;
  Counters counters;
  std::uint64_t frames_segmented;
};

Sent send_all(const CardOptions& card, const char* form, unsigned seed) {
  Sender sender(form, card);
  for (const auto& event : random_events(seed)) sender.send(event);
  const Counters counters = sender.counters();
  EXPECT_LE(sender.world.server_card.bytes_max_seen(), std::string_view(form) == "off" ? 1514U : card.tso_bytes_max);
  EXPECT_LE(sender.world.server_card.pieces_max_seen(), card.pieces_max);
  return {.frames = sender.frames, .counters = counters, .frames_segmented = sender.world.server_card.frames_segmented()};
}

// Tests random mixes of connections, sizes, flags, gaps and retransmissions, also for cards with small rings and few pieces in a frame.
TEST(SegmentJoiner, TheCardSendsTheSameBytes) {
  for (unsigned seed = 1; seed <= 5; ++seed) {
    CardOptions card{.mac = {0x02, 0, 0, 0, 0, 1}, .tso_bytes_max = seed % 2 == 0 ? 64U * 1024 : 20'000};
    if (seed % 3 == 0) card.ring_frames = 5;
    if (seed % 3 == 1) card.pieces_max = 8;
    const Sent alone = send_all(card, "off", seed);
    EXPECT_EQ(alone.frames_segmented, 0U);
    EXPECT_GT(alone.counters.control_frames_sent, 0U);
    for (const char* form : {"copy", "chain"}) {
      const Sent joined = send_all(card, form, seed);
      ASSERT_EQ(joined.frames.size(), alone.frames.size()) << seed;
      for (std::size_t i = 0; i < joined.frames.size(); ++i) ASSERT_EQ(joined.frames[i], alone.frames[i]) << seed << ": frame " << i;
      EXPECT_EQ(joined.counters.joined_frames, joined.frames_segmented);
      EXPECT_GT(joined.counters.joined_frames, 30U);
      EXPECT_GT(joined.counters.joined_segments, 3 * joined.counters.joined_frames);
      EXPECT_EQ(joined.counters.joined_copied_bytes > 0, std::string_view(form) == "copy");
      EXPECT_EQ(joined.counters.frames_sent, alone.counters.frames_sent);
      EXPECT_EQ(joined.counters.bytes_sent, alone.counters.bytes_sent);
      EXPECT_EQ(joined.counters.control_frames_sent, alone.counters.control_frames_sent);
      EXPECT_EQ(joined.counters.control_bytes_sent, alone.counters.control_bytes_sent);
    }
  }
}

TEST(SegmentJoiner, AContiguousValueIsOnePiece) {
  Sender sender("chain");
  sender.send(run_of(44));
  EXPECT_EQ(sender.counters().joined_frames, 1U);
  EXPECT_EQ(sender.world.server_card.bytes_max_seen(), headers_bytes + 44 * mss);
  EXPECT_EQ(sender.world.server_card.pieces_max_seen(), 2U);
}

TEST(SegmentJoiner, TooManySegmentsBecomeSeveralFrames) {
  Sender sender("chain");
  sender.send(run_of(100));  // 146,000 bytes become frames of 44, 44 and 12 segments
  EXPECT_EQ(sender.counters().joined_frames, 3U);
  sender.send(run_of(100, {.sequence = 1U << 20, .payload_bytes = 300}));  // frames of 48, 48 and 4
  EXPECT_EQ(sender.counters().joined_frames, 6U);
}

TEST(SegmentJoiner, ASingleSegmentIsUnchanged) {
  Sender sender("copy");
  sender.send(run_of(1));
  EXPECT_EQ(sender.counters().joined_frames, 0U);
  EXPECT_EQ(sender.counters().joined_copied_bytes, 0U);
}

// While a slow card holds all copy buffers, segments are sent one by one, and none is lost.
TEST(SegmentJoiner, WithoutABufferSegmentsAreSentAlone) {
  Sender sender("copy", {.mac = {0x02, 0, 0, 0, 0, 1}, .tso_bytes_max = 64 * 1024, .read_delay = 2ms});
  std::vector<Segment> pairs;
  for (unsigned i = 0; i < SegmentJoiner::copy_buffers_max + 8; ++i) {
    for (const Segment& segment : run_of(2, {.connection = i})) pairs.push_back(segment);
  }
  sender.send(pairs);
  EXPECT_EQ(sender.counters().joined_frames, SegmentJoiner::copy_buffers_max);
  EXPECT_EQ(sender.counters().joined_no_memory, 8U);
  sender.send(run_of(2, {.connection = 99}));  // the buffers are free again
  EXPECT_EQ(sender.counters().joined_frames, SegmentJoiner::copy_buffers_max + 1);
}

// `copy` frees lwIP's segments at once; `chain` frees them when the card has read them.
TEST(SegmentJoiner, SegmentsAreHeldWhileTheCardMayReadThem) {
  for (const char* form : {"copy", "chain"}) {
    Sender sender(form, {.mac = {0x02, 0, 0, 0, 0, 1}, .tso_bytes_max = 64 * 1024, .read_delay = 1ms});
    pbuf* frames[2] = {};
    sender.world.machine.on(0, [&] {
      for (unsigned i = 0; i < 2; ++i) {
        frames[i] = make(run_of(2)[i]);
        EXPECT_EQ(Stack::here()->transmit(frames[i]), ERR_OK);
        EXPECT_EQ(frames[i]->ref, i == 0 || std::string_view(form) == "chain" ? 2 : 1) << form;
      }
      EXPECT_EQ(frames[0]->ref, std::string_view(form) == "chain" ? 2 : 1);
    });
    EXPECT_TRUE(HostMachine::wait_until([&] { return sender.count() == 2; }));
    sender.world.machine.on(0, [&] {
      for (pbuf* const frame : frames) {
        EXPECT_EQ(frame->ref, 1) << form;
        pbuf_free(frame);
      }
    });
  }
}

// Without a link segments are dropped and counted, and no memory is held.
TEST(SegmentJoiner, WithoutALinkNoMemoryIsHeld) {
  Sender sender("chain");
  sender.world.server_card.set_link(false);
  sender.world.machine.on(0, [] {
    for (const Segment& segment : run_of(10)) {
      pbuf* const frame = make(segment);
      static_cast<void>(Stack::here()->transmit(frame));
      pbuf_free(frame);
    }
  });
  EXPECT_EQ(sender.counters().transmit_failed, 1U);
  EXPECT_EQ(sender.counters().joined_frames, 0U);
  EXPECT_EQ(sender.count(), 0U);
}

TEST(SegmentJoiner, IsRefusedWithoutTheCardsSupport) {
  {
    TwoMachines world({.server = {.tso_bytes_max = 64 * 1024, .seed = 1}, .client = {.mac = {0x02, 0, 0, 0, 0, 2}}});
    EXPECT_EQ(world.set_tso("chain"), "");  // cores whose card does not support TSO keep "off"
    world.machine.run(0, [&]() -> task<void> {
      const auto set = co_await policy::set(policy::Setting::segmentation, "copy", world.client_core);
      EXPECT_EQ(set.has_value() ? "" : set.error().why, "tso: the network card cannot segment");
    });
    EXPECT_EQ(policy::of(0).segmentation, policy::Segmentation::chain);
    EXPECT_EQ(policy::of(world.client_core).segmentation, policy::Segmentation::off);
  }
  const CardOptions cannot{.checksum_offload = false, .tso_bytes_max = 64 * 1024};
  TwoMachines world({.server = cannot, .client = cannot});
  EXPECT_EQ(world.set_tso("chain"), "tso: the network card does not fill in checksums");
}

}  // namespace
}  // namespace neap::net::testing
