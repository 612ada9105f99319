// SPDX-License-Identifier: BSL-1.0
// The short path of received segments (connection_receiving.cpp) has the effects of the general path (connection_input.cpp).
//
// Each test runs a script (testing/scripted_machine.hpp) on a machine that uses the short path, and the same script on a machine whose
// segments all take the general path. Frames, calls of handlers, and the state of each connection must be equal after every step. The
// intended differences are in `Comparison`.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <ostream>
#include <set>
#include <sstream>
#include <string_view>

#include "net/testing/scripted_machine.hpp"

namespace neap::net::testing {
namespace {

using namespace std::chrono_literals;

/// How strictly two traces are compared.
struct Comparison {
  /// False: the machine may acknowledge at other times. The receive window is tuned once for segments that the short path joins, and a
  /// larger window is announced.
  bool same_acknowledgements = false;
  /// True: the comparison ends, without an error, where segments begin elsewhere. Later acknowledgements, and so the script, depend on
  /// that.
  bool until_segments_differ = false;
  /// True: the machine may announce another window. The short path does not count bytes that the handler releases within its call. So an
  /// acknowledgement within that event, or a later step of the window's edge, may differ.
  bool other_windows = true;
  /// Fields that may differ. The short path drops an acknowledgement that the next one supersedes, and a handler that closes the connection
  /// in `received` has got the bytes of all segments that arrived together, while the general path discards those of the later ones.
  std::set<std::string_view> ignored{"segments_received",
                                     "discarded_bytes",
                                     "transmit_failed",
                                     "transmit_copied",
                                     "held_bytes",
                                     "charged_bytes",
                                     "edge",
                                     "limit",
                                     "tcp_ms",
                                     "connections_ms",
                                     "frames_sent",
                                     "bytes_sent",
                                     "segments_sent"};
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
  out << what << ": the short path has " << one.size() << ", the general path " << other.size() << "; number " << first - one.begin()
      << " differs\n";
  if (first != one.end()) out << *first;
  if (second != other.end()) out << *second;
}

/// Joins frames of a peer whose bytes follow each other and, with `same_acknowledgements`, whose acknowledgements are equal. Drops PSH:
/// it depends on the calls of an event. Without `same_acknowledgements`, drops these, too.
std::vector<SentFrame> joined(const std::vector<SentFrame>& frames, bool same_acknowledgements, bool other_windows) {
  std::vector<SentFrame> result;
  std::map<unsigned, std::size_t> last;  // of each peer, in `result`
  for (SentFrame frame : frames) {
    const std::size_t bytes = frame.payload.size();
    frame.flags &= ~psh_flag;
    frame.identification = 0;
    put_word(frame.others, 16, 0);  // the length
    if (other_windows) frame.window = 0;
    if (!same_acknowledgements) {
      if (bytes == 0 && frame.flags == ack_flag) continue;
      frame.acknowledged = frame.window = 0;
      frame.options.clear();
    }
    const auto before = last.find(frame.peer);
    if (before != last.end() && bytes != 0) {
      SentFrame& earlier = result[before->second];
      if (!earlier.payload.empty() && earlier.sequence + earlier.payload.size() == frame.sequence && earlier.flags == frame.flags &&
          earlier.acknowledged == frame.acknowledged && earlier.window == frame.window && earlier.others == frame.others) {
        earlier.payload.insert(earlier.payload.end(), frame.payload.begin(), frame.payload.end());
        continue;
      }
    }
    last[frame.peer] = result.size();
    result.push_back(std::move(frame));
  }
  return result;
}

/// Joins consecutive calls of `received` of one connection: the short path makes one call for segments that arrive together.
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
  const std::vector<SentFrame> frames = joined(one.frames, how.same_acknowledgements, how.other_windows);
  const std::vector<SentFrame> other_frames = joined(other.frames, how.same_acknowledgements, how.other_windows);
  if (frames != other_frames) show_difference(out, "frames", frames, other_frames, std::equal_to<>{});
  if (joined(one.calls) != joined(other.calls)) show_difference(out, "calls", one.calls, other.calls, std::equal_to<>{});
  if (one.fields.size() != other.fields.size()) out << "connections differ\n";
  for (std::size_t i = 0; i < std::min(one.fields.size(), other.fields.size()); ++i) {
    const Field &first = one.fields[i], &second = other.fields[i];
    if (std::strcmp(first.name, second.name) != 0 || first.peer != second.peer) {
      out << "connections differ\n";
      break;
    }
    if (first.value == second.value || how.ignored.contains(first.name)) continue;
    out << "peer " << first.peer << ' ' << first.name << ": short path " << first.value << ", the general path " << second.value << '\n';
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

bool same_segments(const ScriptStep& one, const ScriptStep& other) {
  const auto bounds = [](const ScriptStep& step) {
    std::vector<std::array<std::uint64_t, 3>> found;
    for (const SentFrame& frame : step.frames) {
      if (!frame.payload.empty()) found.push_back({frame.peer, frame.sequence, frame.payload.size()});
    }
    return found;
  };
  return bounds(one) == bounds(other);
}

/// True if the receive windows are equal. The short path tunes them once for segments that it joins. The script depends on them.
bool same_windows(const ScriptStep& one, const ScriptStep& other) {
  const auto windows = [](const ScriptStep& step) {
    std::vector<std::int64_t> found;
    for (const Field& field : step.fields) {
      if (std::string_view(field.name) == "edge" || std::string_view(field.name) == "limit") found.push_back(field.value);
    }
    return found;
  };
  return windows(one) == windows(other);
}

/// Compares the traces of a script with and without the short path, until receive windows differ. Returns the number of compared steps.
std::size_t expect_same(ScriptOptions options, const Comparison& how = {}) {
  options.short_path = true;
  const std::vector<ScriptStep> with = ScriptedMachine(options).run();
  options.short_path = false;
  const std::vector<ScriptStep> without = ScriptedMachine(options).run();
  for (std::size_t i = 0; i < std::min(with.size(), without.size()); ++i) {
    if (how.until_segments_differ && !same_segments(with[i], without[i])) return i;
    if (!same_windows(with[i], without[i])) return i;
    const std::string found = difference(with[i], without[i], how);
    if (found.empty()) continue;
    std::ostringstream before;
    for (std::size_t j = i > 12 ? i - 12 : 0; j <= i; ++j) before << j << ": " << with[j].what << '\n';
    if (i > 0) before << text_of_fields(with[i - 1].fields, {0, 1, 2});
    ADD_FAILURE() << "seed " << options.seed << ", step " << i << '\n' << before.str() << found;
    return i;
  }
  EXPECT_EQ(with.size(), without.size());
  return with.size();
}

class SegmentPaths : public ::testing::TestWithParam<std::uint32_t> {};

TEST_P(SegmentPaths, AreEqual) {
  std::size_t steps = 0;
  for (std::uint32_t i = 0; i < 4; ++i) steps += expect_same({.seed = GetParam() * 100 + i});
  EXPECT_GT(steps, 1000U);
}

TEST_P(SegmentPaths, AreEqualWithoutFaults) {
  for (std::uint32_t i = 0; i < 4; ++i) {
    expect_same({.seed = GetParam() * 100 + 10 + i, .faults = 0});
  }
}

// The ring is full at times, and segments are repeated while the card has not read them.
TEST_P(SegmentPaths, AreEqualWithASlowCard) {
  Comparison how{.until_segments_differ = true};
  how.ignored.insert("transmit_full");
  std::size_t steps = 0;
  for (std::uint32_t i = 0; i < 6; ++i) {
    steps += expect_same({.seed = GetParam() * 100 + 20 + i, .steps = 300, .card = {.ring_frames = 64, .read_delay = 600ms}}, how);
  }
  EXPECT_GT(steps, 300U);
}

TEST_P(SegmentPaths, AreEqualWithSegmentation) {
  Comparison how;
  how.until_segments_differ = true;
  std::size_t steps = 0;
  for (std::uint32_t i = 0; i < 6; ++i) {
    const char* const tso = i % 2 == 0 ? "chain" : "copy";
    steps += expect_same({.seed = GetParam() * 100 + 30 + i, .steps = 300, .tso = tso, .card = {.tso_bytes_max = 0x10000}}, how);
  }
  EXPECT_GT(steps, 300U);
}

// The short path calls the handler once for segments that follow each other.
TEST(SegmentsTogether, AreReceivedInOneCall) {
  const auto calls_of = [](bool short_path) {
    ScriptedMachine machine({.seed = 7, .short_path = short_path, .faults = 0, .ends = 0});
    static_cast<void>(machine.run());
    return machine.received_calls();
  };
  EXPECT_LT(calls_of(true), calls_of(false) * 3 / 4);
}

// Coalesced frames arrive in several buffers.
TEST_P(SegmentPaths, AreEqualWithCoalescedFrames) {
  expect_same({.seed = GetParam() * 100 + 40, .segment_bytes_max = 20'000});
  expect_same({.seed = GetParam() * 100 + 41, .card = {.receive_buffer_bytes = 256}});
}

TEST_P(SegmentPaths, AreEqualWithEchoesByReference) { expect_same({.seed = GetParam() * 100 + 60, .echo_by_reference = true}); }

/// Checks that each byte of a connection has one value, in every segment that carries it, and that it is the byte that the application
/// sent. Scripts without echoes only.
void expect_right_bytes(const ScriptOptions& options) {
  std::size_t checked = 0, wrong = 0;
  for (const ScriptStep& step : ScriptedMachine(options).run()) {
    for (const SentFrame& frame : step.frames) {
      for (std::size_t i = 0; i < frame.payload.size(); ++i) {
        ++checked;
        wrong += static_cast<std::size_t>(frame.payload[i] != pattern(frame.sequence - 1 + i, 80 + frame.peer));
      }
    }
  }
  EXPECT_GT(checked, 5'000U) << "seed " << options.seed;
  EXPECT_EQ(wrong, 0U) << "seed " << options.seed;
}

TEST_P(SegmentPaths, EveryByteIsRight) {
  const std::uint32_t first = GetParam() * 100 + 70;
  expect_right_bytes({.seed = first, .echoes = false, .card = {.ring_frames = 4, .read_delay = 120ms}});
  expect_right_bytes({.seed = first + 1, .tso = "chain", .echoes = false, .card = {.pieces_max = 3, .tso_bytes_max = 0x10000}});
  expect_right_bytes({.seed = first + 2,
                      .tso = "chain",
                      .faults = 400,
                      .echoes = false,
                      .card = {.ring_frames = 4, .tso_bytes_max = 0x10000, .read_delay = 250ms}});
  expect_right_bytes({.seed = first + 3, .tso = "chain", .faults = 400, .echoes = false, .card = {.tso_bytes_max = 0x10000}});
}

// The scripted machine has one core, and the script waits for each step. So all seeds have the same two threads, which take turns in the
// same way, and the thread sanitizer needs one of them. The address sanitizer's build runs all.
#ifdef __SANITIZE_THREAD__
constexpr std::uint32_t seeds = 1;
#else
constexpr std::uint32_t seeds = 4;
#endif
INSTANTIATE_TEST_SUITE_P(Seeds, SegmentPaths, ::testing::Range(0U, seeds));

}  // namespace
}  // namespace neap::net::testing
