// SPDX-License-Identifier: BSL-1.0
// The transmitter chooses the sizes; a receiver finds them by end marks, and refuses those above its bound.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "apps/netpipe/session.hpp"
#include "apps/netpipe/session_sides.hpp"

namespace neap::netpipe {
namespace {

using namespace std::string_view_literals;

struct OtherSizes {
  const char* name;
  Options transmitter, receiver;
};
class ReceiverWithOtherSizes : public ::testing::TestWithParam<OtherSizes> {};

// The transmitter's sizes hold, because its first messages end with a mark.
TEST_P(ReceiverWithOtherSizes, MeasuresTheTransmitters) {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    Side transmitter(Role::transmitter, GetParam().transmitter), receiver(Role::receiver, GetParam().receiver);
    converse(transmitter, receiver, seed);
    EXPECT_TRUE(transmitter.session.completed()) << transmitter.session.reason();
    EXPECT_TRUE(receiver.session.completed()) << receiver.session.reason();
    EXPECT_GT(transmitter.points.size(), 5U);
    EXPECT_EQ(sizes_of(receiver), sizes_of(transmitter));
    for (std::size_t i = 0; i < receiver.points.size(); ++i) EXPECT_EQ(receiver.points[i].index, transmitter.points[i].index);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Session, ReceiverWithOtherSizes,
    ::testing::Values(OtherSizes{"LargerFrom", {.from = 100, .to = 5000, .repeats = 3}, {}},
                      OtherSizes{"SmallerFrom", {.to = 700, .repeats = 3}, {.from = 64}},
                      OtherSizes{"NoPerturbation", {.to = 700, .perturbation = 0, .repeats = 3}, {}},
                      OtherSizes{"MorePerturbation", {.to = 1500, .perturbation = 17, .repeats = 3}, {}},
                      OtherSizes{"LessPerturbation", {.from = 1000, .to = 4000, .perturbation = 1, .repeats = 3}, {.perturbation = 100}},
                      OtherSizes{"SmallerTo", {.to = 100, .repeats = 3}, {.to = Options::bytes_max}},
                      OtherSizes{"Stream", {.from = 10, .to = 3000, .perturbation = 5, .repeats = 4, .stream = true}, {.stream = true}},
                      OtherSizes{"Bidirectional",
                                 {.from = 10, .to = 3000, .perturbation = 5, .repeats = 4, .bidirectional = true},
                                 {.perturbation = 0, .bidirectional = true}},
                      OtherSizes{"Integrity",
                                 {.from = 77, .to = 3000, .perturbation = 0, .repeats = 4, .integrity = true},
                                 {.from = 5, .perturbation = 0, .integrity = true}},
                      OtherSizes{"Reset", {.from = 10, .to = 300, .perturbation = 5, .repeats = 2, .reset = true}, {.reset = true}}),
    [](const auto& tested) { return tested.param.name; });

// A peer whose sizes are not NetPIPE's series at all is followed, too.
TEST(Session, SizesOfNoSeriesAreFollowed) {
  Side receiver(Role::receiver, {.to = 1000});
  receiver.session.begin();
  receiver.must_answer("SyncMe", "SyncMe");
  for (int i = 0; i < 100; ++i) receiver.must_answer("b", "a");
  receiver.must_answer("SyncMe", "SyncMe");
  for (const std::size_t size : {7U, 300U, 20U, 1000U}) {
    receiver.must_answer("SyncMe", "SyncMe");
    receiver.must_hear("\0\0\0\3"sv);
    for (int trial = 0; trial < 3; ++trial) {
      receiver.must_answer("SyncMe", "SyncMe");
      for (int i = 0; i < 3; ++i)
        receiver.must_answer(std::string(size - 1, 'a') + (trial == 0 && i == 0 ? 'b' : 'a'), std::string(size, 'a'));
    }
  }
  receiver.must_answer("QUIT\0"sv, "QUIT\0"sv);
  EXPECT_TRUE(receiver.session.completed()) << receiver.session.reason();
  EXPECT_EQ(sizes_of(receiver), (std::vector<std::uint64_t>{7, 300, 20, 1000}));
}

// Without marks, the options decide. NPtcp -I fills its messages with 'b'. Messages of 'a' without a mark end with a second of silence.
TEST(Session, WithoutMarksTheOptionsDecide) {
  for (const char fill : {'b', 'x', 'a'}) {
    Side receiver(Role::receiver, {.from = 3, .to = 3});
    receiver.session.begin();
    receiver.must_answer("SyncMe", "SyncMe");
    const std::string message(3, fill);
    for (int i = 0; i < 100; ++i) {
      receiver.must_hear(message);
      EXPECT_EQ(receiver.session.awaits_mark(), fill == 'a' && i == 0);
      if (receiver.session.awaits_mark()) {
        EXPECT_EQ(receiver.said(), "");
        receiver.session.take_silence_as_mark();
      }
      EXPECT_EQ(receiver.said(), "aaa");
    }
    for (const auto words : {"SyncMe"sv, "SyncMe"sv, "\0\0\0\1"sv}) {
      receiver.must_hear(words);
      receiver.said();
    }
    for (int trial = 0; trial < 3; ++trial) {
      receiver.must_answer("SyncMe", "SyncMe");
      receiver.must_answer(message, "aaa");
    }
    receiver.must_answer("QUIT\0"sv, "QUIT\0"sv);
    EXPECT_TRUE(receiver.session.completed()) << receiver.session.reason();
  }
  for (unsigned seed = 1; seed <= 5; ++seed) {
    Side transmitter(Role::transmitter, {.from = 5, .to = 500, .repeats = 3}), receiver(Role::receiver, {.from = 5});
    transmitter.marks = false;
    transmitter.session.begin();
    receiver.session.begin();
    receiver.must_answer(transmitter.said(), "SyncMe");
    transmitter.must_hear("SyncMe");
    receiver.must_hear(transmitter.said());
    ASSERT_TRUE(receiver.session.awaits_mark());
    receiver.session.take_silence_as_mark();
    exchange(transmitter, receiver, seed);
    EXPECT_TRUE(receiver.session.completed()) << receiver.session.reason();
    EXPECT_EQ(sizes_of(receiver), sizes_of(transmitter));
  }
}

TEST(Session, ASizeAboveTheBoundIsRefusedByName) {
  // The next size of the series: the peer gets QUIT, and the sizes before it are kept.
  Side transmitter(Role::transmitter, {.to = 1000, .repeats = 3}), receiver(Role::receiver, {.to = 10});
  converse(transmitter, receiver, 1);
  EXPECT_EQ(receiver.session.reason(), "refused a size of 12 bytes, more than to=10; to=12 admits it");
  EXPECT_EQ(sizes_of(receiver), (std::vector<std::uint64_t>{1, 2, 3, 4, 6, 8}));
  EXPECT_EQ(transmitter.session.reason(), "the peer ended the run before 12 bytes; its largest size is smaller");
  // the smallest size
  Side larger(Role::transmitter, {.from = 100, .to = 1000}), smaller(Role::receiver, {.to = 99});
  converse(larger, smaller, 1);
  EXPECT_EQ(smaller.session.state(), Session::State::failed);
  EXPECT_EQ(smaller.session.reason(), "refused a size of 100 bytes, more than to=99; to=100 admits it");
  // a size of no series, and a message that does not end
  Side odd(Role::receiver, {.to = 50, .perturbation = 0});
  introduce(odd);
  for (const auto words : {"SyncMe"sv, "\0\0\0\3"sv, "SyncMe"sv}) {
    odd.must_hear(words);
    odd.said();
  }
  odd.hear(std::string(50, 'a') + 'b');
  EXPECT_EQ(odd.session.reason(), "refused a size of 51 bytes, more than to=50; to=51 admits it");
  Side endless(Role::receiver, {});
  endless.session.begin();
  endless.must_answer("SyncMe", "SyncMe");
  const std::string piece(1 << 20, 'a');
  for (int i = 0; i < 1000 && endless.session.state() == Session::State::running; ++i) endless.hear(piece);
  EXPECT_TRUE(endless.session.reason().ends_with("more than to=10000000; to= is at most 268435456")) << endless.session.reason();
}

TEST(Session, AFailureWithinAMessageNamesItsSize) {
  Side transmitter(Role::transmitter, {.from = 100, .to = 100});
  transmitter.session.begin();
  transmitter.said();
  transmitter.must_hear("SyncMe");
  transmitter.said();
  transmitter.session.fail_idle(20);
  EXPECT_EQ(transmitter.session.reason(),
            "nothing came or went for 20 s within a message of 100 bytes; the peer may have other options for sizes or mode");
}

}  // namespace
}  // namespace neap::netpipe
