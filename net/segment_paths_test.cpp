// SPDX-License-Identifier: BSL-1.0
// The short path of segments (connection_receiving.cpp, connection_sending.cpp) has the effects of lwIP.
//
// Each test runs a script (testing/scripted_machine.hpp) on a machine that uses the short path, and the same script on a machine whose
// segments are all handled and made by lwIP. Frames, calls of handlers, and the state of each connection must be equal after every step.
// The intended differences are in `Comparison`.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <ostream>
#include <set>
#include <sstream>
#include <string_view>

#include "lwip/opt.h"
#include "net/testing/scripted_machine.hpp"

namespace neap::net::testing {
namespace {

using namespace std::chrono_literals;

/// How strictly two traces are compared.
struct Comparison {
  /// False: the bytes of a step's frames, and its last acknowledgement and window, are compared, but not how frames divide them.
  bool each_frame = true;
  /// False: the bytes of a step's calls of `received` are compared, but not how calls divide them.
  bool each_call = true;
  /// True: the machine may announce a larger window. lwIP opens the window at the end of the event in which the handler released its bytes.
  /// The short path does not close it for such bytes. So an acknowledgement that lwIP sends within that event differs. Later, the window's
  /// edge may be behind lwIP's by less than a segment, because it moves in steps of at least a segment.
  bool larger_windows = true;
  /// Fields that may differ. A segment of the short path is one buffer, and holds a copy of bytes that lwIP would refer to. So the queue
  /// may have fewer buffers, and other memory is held.
  std::set<std::string_view> ignored{"snd_queuelen", "held_bytes", "charged_bytes"};
};

std::ostream& operator<<(std::ostream& out, const SentFrame& frame) {
  out << "  peer " << frame.peer << " seq " << frame.sequence << " ack " << frame.acknowledged << " flags " << frame.flags << " window "
      << frame.window << " id " << frame.identification << " options " << frame.options.size() << " bytes " << frame.payload.size() << " #"
      << std::hash<std::string_view>{}({reinterpret_cast<const char*>(frame.payload.data()), frame.payload.size()}) % 100'000 << " headers";
  for (const std::byte byte : frame.others) out << ' ' << std::hex << std::to_integer<unsigned>(byte) << std::dec;
  return out << '\n';
}

std::ostream& operator<<(std::ostream& out, const HandlerCall& call) {
  static constexpr const char* names[] = {"accepted", "received", "writable", "peer_closed", "closed"};
  return out << "  connection " << call.connection << ' ' << names[static_cast<unsigned>(call.kind)] << ' ' << call.bytes.size() << '\n';
}

/// Appends the first elements that differ.
template <typename T, typename Same>
void show_difference(std::ostream& out, const char* what, const std::vector<T>& one, const std::vector<T>& other, Same same) {
  const auto [first, second] = std::ranges::mismatch(one, other, same);
  out << what << ": the short path has " << one.size() << ", lwIP " << other.size() << "; number " << first - one.begin() << " differs\n";
  if (first != one.end()) out << *first;
  if (second != other.end()) out << *second;
}

/// The bytes that a step's frames carry to a peer, by their position, and what the last frame announces.
struct Stream {
  std::map<std::uint32_t, std::byte> bytes;
  std::uint32_t acknowledged = 0;
  unsigned window = 0, ends = 0;
  bool operator==(const Stream&) const = default;
};

std::map<unsigned, Stream> streams(const std::vector<SentFrame>& frames) {
  std::map<unsigned, Stream> found;
  for (const SentFrame& frame : frames) {
    Stream& stream = found[frame.peer];
    for (std::size_t i = 0; i < frame.payload.size(); ++i) stream.bytes[frame.sequence + static_cast<std::uint32_t>(i)] = frame.payload[i];
    stream.acknowledged = frame.acknowledged;
    stream.window = frame.window;
    stream.ends |= frame.flags & (fin_flag | syn_flag | rst_flag);
  }
  return found;
}

/// Joins consecutive calls of `received` of one connection.
std::vector<HandlerCall> joined(const std::vector<HandlerCall>& calls) {
  std::vector<HandlerCall> result;
  for (const HandlerCall& call : calls) {
    const auto same =
        std::ranges::find_if(result.rbegin(), result.rend(), [&](const auto& one) { return one.connection == call.connection; });
    if (call.kind == HandlerCall::Kind::received && same != result.rend() && same->kind == call.kind) {
      same->bytes.insert(same->bytes.end(), call.bytes.begin(), call.bytes.end());
    } else {
      result.push_back(call);
    }
  }
  return result;
}

/// Returns the difference of two steps, as a text; empty if they are equal.
std::string difference(const ScriptStep& one, const ScriptStep& other, const Comparison& how) {
  std::ostringstream out;
  if (one.what != other.what) out << "the peers do: " << one.what << "\n         and: " << other.what << '\n';
  const auto same_frame = [&](SentFrame first, const SentFrame& second) {
    if (how.larger_windows && first.window + TCP_MSS > second.window) first.window = second.window;
    return first == second;
  };
  const bool frames =
      how.each_frame ? std::ranges::equal(one.frames, other.frames, same_frame) : streams(one.frames) == streams(other.frames);
  if (!frames) show_difference(out, "frames", one.frames, other.frames, same_frame);
  const bool calls = how.each_call ? one.calls == other.calls : joined(one.calls) == joined(other.calls);
  if (!calls) show_difference(out, "calls", one.calls, other.calls, std::equal_to<>{});
  if (one.fields.size() != other.fields.size()) out << "connections differ\n";
  for (std::size_t i = 0; i < std::min(one.fields.size(), other.fields.size()); ++i) {
    const Field &first = one.fields[i], &second = other.fields[i];
    if (std::strcmp(first.name, second.name) != 0 || first.peer != second.peer) {
      out << "connections differ\n";
      break;
    }
    if (first.value == second.value || how.ignored.contains(first.name)) continue;
    const std::string_view name = first.name;
    if (how.larger_windows && name == "rcv_ann_wnd") continue;
    if (how.larger_windows && name == "rcv_ann_right_edge" && first.value + TCP_MSS > second.value) continue;
    out << "peer " << first.peer << ' ' << first.name << ": short path " << first.value << ", lwIP " << second.value << '\n';
  }
  return out.str();
}

/// Returns the fields of those peers that have a difference, each before the step.
std::string text_of_fields(const std::vector<Field>& fields, const std::set<unsigned>& peers) {
  std::ostringstream out;
  unsigned peer = ~0U;
  for (const Field& field : fields) {
    if (!peers.contains(field.peer)) continue;
    if (field.peer != peer) out << "before, peer " << (peer = field.peer) << ':';
    out << ' ' << field.name << ' ' << field.value;
  }
  out << '\n';
  return out.str();
}

/// Compares the traces of a script with and without the short path.
void expect_same(ScriptOptions options, const Comparison& how = {}) {
  options.short_path = true;
  const std::vector<ScriptStep> with = ScriptedMachine(options).run();
  options.short_path = false;
  const std::vector<ScriptStep> without = ScriptedMachine(options).run();
  ASSERT_EQ(with.size(), without.size());
  for (std::size_t i = 0; i < with.size(); ++i) {
    const std::string found = difference(with[i], without[i], how);
    if (found.empty()) continue;
    std::ostringstream before;
    for (std::size_t j = i > 12 ? i - 12 : 0; j <= i; ++j) before << j << ": " << with[j].what << '\n';
    if (i > 0) before << text_of_fields(with[i - 1].fields, {0, 1, 2});
    FAIL() << "seed " << options.seed << ", step " << i << '\n' << before.str() << found;
  }
}

class SegmentPaths : public ::testing::TestWithParam<std::uint32_t> {};

TEST_P(SegmentPaths, AreEqual) {
  for (std::uint32_t i = 0; i < 4; ++i) expect_same({.seed = GetParam() * 100 + i});
}

// Without faults, even the windows are equal.
TEST_P(SegmentPaths, AreEqualWithoutFaults) {
  for (std::uint32_t i = 0; i < 4; ++i) {
    expect_same({.seed = GetParam() * 100 + 10 + i, .faults = 0}, {.larger_windows = false});
  }
}

// The ring is full at times, and segments are repeated while the card has not read them.
TEST_P(SegmentPaths, AreEqualWithASlowCard) {
  expect_same({.seed = GetParam() * 100 + 20, .card = {.ring_frames = 4, .read_delay = 120ms}});
  expect_same({.seed = GetParam() * 100 + 21, .card = {.ring_frames = 64, .read_delay = 600ms}});
}

TEST_P(SegmentPaths, AreEqualWithSegmentation) {
  expect_same({.seed = GetParam() * 100 + 30, .tso = "chain", .card = {.tso_bytes_max = 0x10000}});
  expect_same({.seed = GetParam() * 100 + 31, .tso = "copy", .card = {.tso_bytes_max = 0x10000}});
}

// Coalesced frames arrive in several buffers.
TEST_P(SegmentPaths, AreEqualWithCoalescedFrames) {
  expect_same({.seed = GetParam() * 100 + 40, .segment_bytes_max = 20'000});
  expect_same({.seed = GetParam() * 100 + 41, .card = {.receive_buffer_bytes = 256}});
}

// The short path copies the echoed bytes of a frame, and releases their buffers earlier than lwIP. So the window may be larger.
TEST_P(SegmentPaths, AreEqualWithEchoesByReference) {
  Comparison how;
  how.ignored.insert("rcv_wnd");
  how.ignored.insert("rcv_ann_right_edge");
  expect_same({.seed = GetParam() * 100 + 60, .echo_by_reference = true}, how);
}

INSTANTIATE_TEST_SUITE_P(Seeds, SegmentPaths, ::testing::Range(0U, 4U));

}  // namespace
}  // namespace neap::net::testing
