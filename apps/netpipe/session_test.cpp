// SPDX-License-Identifier: BSL-1.0
// The protocol without a network. A session talks to another session, to the recorded words of NPtcp 3.7.2, and to hostile peers.
#include "apps/netpipe/session.hpp"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "apps/netpipe/session_sides.hpp"

namespace neap::netpipe {
namespace {

using namespace std::string_view_literals;

// --- Sizes and results -------------------------------------------------------------------------------------------------------------------

// Both sides must compute the same sizes. The expected sizes are those that NPtcp printed.
TEST(Sweep, SizesAreThoseOfNPtcp) {
  Sweep sweep(1, 200, 3);
  std::vector<std::uint64_t> sizes;
  while (const auto point = sweep.next()) sizes.push_back(point->bytes);
  EXPECT_EQ(sizes, (std::vector<std::uint64_t>{1,  2,  3,  4,  6,  8,  12, 13, 16, 19,  21,  24,  27,  29,  32, 35,
                                               45, 48, 51, 61, 64, 67, 93, 96, 99, 125, 128, 131, 189, 192, 195}));
}

TEST(Sweep, BoundsAndPerturbationsMoveTheSizes) {
  const auto sizes = [](std::uint32_t from, std::uint32_t to, std::uint32_t perturbation) {
    Sweep sweep(from, to, perturbation);
    std::vector<std::uint64_t> all;
    while (const auto point = sweep.next()) all.push_back(point->bytes);
    return all;
  };
  EXPECT_EQ(sizes(1, 64, 0), (std::vector<std::uint64_t>{1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64}));
  EXPECT_EQ(sizes(100, 400, 0), (std::vector<std::uint64_t>{100, 150, 200, 300, 400}));
  EXPECT_EQ(sizes(1, 1, 3), (std::vector<std::uint64_t>{1}));
}

TEST(Sweep, EverySizeIsPositiveAndBounded) {
  std::minstd_rand random(1);
  for (int i = 0; i < 2000; ++i) {
    const auto to = static_cast<std::uint32_t>(1 + random() % Options::bytes_max);
    const auto from = static_cast<std::uint32_t>(1 + random() % to);
    const auto perturbation = static_cast<std::uint32_t>(random() % (random() % 2 == 0 ? 8 : Options::perturbation_max));
    Sweep sweep(from, to, perturbation);
    unsigned points = 0;
    for (; const auto point = sweep.next(); ++points) {
      ASSERT_GE(point->bytes, 1U) << from << " " << to << " " << perturbation;
      ASSERT_LE(point->bytes, std::uint64_t{to} + perturbation);
    }
    ASSERT_LE(points, Sweep::points_max + 2);
  }
}

// Observed with NPtcp: 2 bytes took 148.51 us, then 3 bytes were repeated 673 times; 3 bytes took 122.25 us, then 4 bytes 545 times.
TEST(Sweep, RepeatsAreThoseOfNPtcp) {
  EXPECT_EQ(Sweep::repeats(2, 1, 148.51e-6), 673U);
  EXPECT_EQ(Sweep::repeats(3, 2, 122.25e-6), 545U);
  EXPECT_EQ(Sweep::repeats(1000, 1, 10.0), 3U);
  EXPECT_EQ(Sweep::repeats(1, 1, 0.0), 100'000'000U);
}

// The numbers are from a run of NPtcp. The expected lines are those that it printed, and those of its output file.
TEST(Measurement, LinesAreThoseOfNPtcp) {
  const Measurement point{.index = 16, .bytes = 45, .repeats = 355, .seconds = 160.93e-6};
  EXPECT_EQ(point.shown_line(), " 16:      45 bytes    355 times -->      2.13 Mbps in     160.93 usec");
  EXPECT_EQ((Measurement{.bytes = 12, .repeats = 436, .seconds = 151.585e-6}.file_line()), "      12 0.603970   0.00015159");
  EXPECT_EQ((Measurement{.index = 3, .bytes = 100, .repeats = 7, .seconds = 1, .checked = true}.shown_line()),
            "  3:     100 bytes      7 times -->  Integrity check passed");
  EXPECT_EQ((Measurement{.bytes = 100, .repeats = 7, .seconds = 1, .checked = true}.file_line()), "     100 7");
  EXPECT_EQ((Measurement{.bytes = 1048576, .seconds = 1, .bidirectional = true}.file_line()), " 2097152 16.000000   1.00000000");
}

TEST(Options, WordsAreCheckedTogether) {
  const auto complaints = [](const char* words) {
    Arguments arguments(words);
    static_cast<void>(Options::from_words(arguments, {}));
    return arguments.complaints();
  };
  EXPECT_EQ(complaints("stream=on from=10 to=1M perturbation=0 repeats=5 integrity=on reset=on"), "");
  EXPECT_NE(complaints("stream=on bidirectional=on"), "");
  EXPECT_NE(complaints("from=10 to=9"), "");
  EXPECT_NE(complaints("from=0"), "");
  EXPECT_NE(complaints("to=1G"), "");
  EXPECT_NE(complaints("perturbation=-1"), "");
  EXPECT_NE(complaints("nonsense=1"), "");
  Arguments arguments("integrity=on");
  const Options checked = Options::from_words(arguments, {});
  EXPECT_EQ(checked.from, 5U);
  EXPECT_EQ(checked.perturbation, 0U);
}

// --- The protocol ------------------------------------------------------------------------------------------------------------------------

// The input is what strace showed of an NPtcp transmitter with one size.
TEST(Session, ReceiverAnswersAsNPtcpDoes) {
  Side receiver(Role::receiver, {.from = 2, .to = 2});
  receiver.session.begin();
  EXPECT_EQ(receiver.said(), "");
  receiver.must_answer("SyncMe", "SyncMe");
  for (int i = 0; i < 100; ++i) receiver.must_answer("ab", "aa");
  receiver.must_answer("SyncMe", "SyncMe");
  receiver.must_answer("SyncMe", "SyncMe");
  receiver.must_hear("\0\0\0\4"sv);
  for (int trial = 0; trial < 3; ++trial) {
    receiver.must_answer("SyncMe", "SyncMe");
    for (int i = 0; i < 4; ++i) {
      clock_ns += trial == 1 ? 30'000 : 80'000;
      receiver.must_answer("ab", "aa");
    }
    clock_ns += 8'000;  // includes the time in which the transmitter receives the last message
  }
  EXPECT_EQ(receiver.session.messages(), 3U * 4);  // messages of the probe do not count
  EXPECT_TRUE(receiver.points.empty()) << "the last message has not arrived yet";
  receiver.must_hear("Q");
  clock_ns += 1'000'000;
  receiver.must_answer("UIT\0"sv, "QUIT\0"sv);
  ASSERT_EQ(receiver.points.size(), 1U);
  EXPECT_EQ(receiver.points[0].repeats, 4U);
  EXPECT_NEAR(receiver.points[0].seconds, 16e-6, 1e-9);  // the best trial's time of one direction
  receiver.expect_finished();
}

TEST(Session, TransmitterSpeaksAsNPtcpDoes) {
  Side transmitter(Role::transmitter, {.from = 3, .to = 3, .repeats = 258});
  transmitter.session.begin();
  EXPECT_EQ(transmitter.said(), "SyncMe");
  transmitter.must_hear("SyncMe");
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(transmitter.said(), i == 0 ? "aab" : "aaa");
    transmitter.must_hear("aab");
  }
  EXPECT_EQ(transmitter.said(), "SyncMe");
  // NPtcp does not wait for the answer before it sends the next word, so two words may arrive at once.
  transmitter.must_hear("SyncMe");
  EXPECT_EQ(transmitter.said(), "SyncMe");
  transmitter.must_hear("SyncMe");
  EXPECT_EQ(transmitter.said(), "\0\0\1\2SyncMe"sv);
  transmitter.must_hear("SyncMe");
  for (int i = 0; i < 258; ++i) {
    EXPECT_EQ(transmitter.said(), i == 0 ? "aab" : "aaa");
    transmitter.must_hear(i == 257 ? "aabSyncMe" : "aab");
  }
  EXPECT_EQ(transmitter.said(), "SyncMeaaa");
  EXPECT_EQ(transmitter.session.state(), Session::State::running);
}

TEST(Session, StreamedTimeIsTheReceiversAndComesInTheNextConnection) {
  const Options options{.from = 4, .to = 4, .repeats = 5, .stream = true};
  Side transmitter(Role::transmitter, options), receiver(Role::receiver, options);
  EXPECT_EQ(converse(transmitter, receiver, 1), 1 + 1 + 3);  // the probe's connection, one after the probe, one after each trial
  transmitter.expect_finished();
  receiver.expect_finished();
  ASSERT_EQ(transmitter.points.size(), 1U);
  ASSERT_EQ(receiver.points.size(), 1U);
  EXPECT_NEAR(transmitter.points[0].seconds, receiver.points[0].seconds, 1e-8);
}

struct Mode {
  const char* name;
  Options options;
};
class EveryMode : public ::testing::TestWithParam<Mode> {};

// For any split of the bytes, both sides have results for the same sizes, and finish without an error.
TEST_P(EveryMode, BothSidesAgreeForAnySplit) {
  for (unsigned seed = 1; seed <= 5; ++seed) {
    Options served = GetParam().options;
    served.repeats = 0;  // the transmitter's value is used
    Side transmitter(Role::transmitter, GetParam().options), receiver(Role::receiver, served);
    const int connections = converse(transmitter, receiver, seed);
    transmitter.expect_finished();
    receiver.expect_finished();
    EXPECT_GT(transmitter.points.size(), 5U);
    ASSERT_EQ(transmitter.points.size(), receiver.points.size());
    const auto trials = GetParam().options.integrity ? 1 : 3;
    EXPECT_EQ(connections, GetParam().options.resets() ? 2 + trials * static_cast<int>(receiver.points.size()) : 1);
    for (std::size_t i = 0; i < receiver.points.size(); ++i) {
      EXPECT_EQ(transmitter.points[i].bytes, receiver.points[i].bytes);
      EXPECT_EQ(transmitter.points[i].repeats, receiver.points[i].repeats);
      EXPECT_GT(transmitter.points[i].seconds, 0.0);
      // A receiver's time begins before the transmitter's and ends after it. With `stream` both use the receiver's time, rounded.
      EXPECT_GE(receiver.points[i].seconds, transmitter.points[i].seconds - (GetParam().options.stream ? 1e-6 : 1e-12));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Session, EveryMode,
    ::testing::Values(Mode{"PingPong", {.to = 1000, .repeats = 3}}, Mode{"Stream", {.to = 5000, .repeats = 7, .stream = true}},
                      Mode{"Bidirectional", {.to = 3000, .repeats = 4, .bidirectional = true}},
                      Mode{"Integrity", {.from = 5, .to = 9000, .perturbation = 0, .repeats = 3, .integrity = true}},
                      Mode{"IntegrityStream", {.from = 5, .to = 9000, .repeats = 3, .stream = true, .integrity = true}},
                      Mode{"Reset", {.to = 500, .repeats = 2, .reset = true}}),
    [](const auto& tested) { return tested.param.name; });

TEST(Session, TransmitterChoosesRepeatsForATenthOfASecond) {
  const Options options{.from = 1000, .to = 1000, .perturbation = 0};
  Side transmitter(Role::transmitter, options), receiver(Role::receiver, options);
  converse(transmitter, receiver, 3);  // 10 us each way
  ASSERT_EQ(transmitter.points.size(), 1U);
  // Sweep::repeats takes the 10 us for the time of 501 bytes: 1,000 less a step of 500, plus 1. So it expects 19.96 us, or 5,010 in 0.1 s.
  EXPECT_NEAR(transmitter.points[0].repeats, 5010, 20);
  EXPECT_NEAR(transmitter.points[0].seconds, 10e-6, 1e-7);
}

// --- Ends --------------------------------------------------------------------------------------------------------------------------------

TEST(Session, EitherSideMayEndFirst) {
  Side shorter(Role::transmitter, {.to = 10, .repeats = 3}), longer(Role::receiver, {.to = 1000});
  converse(shorter, longer, 1);
  shorter.expect_finished();
  longer.expect_finished();
  Side eager(Role::transmitter, {.to = 1000, .repeats = 3}), reluctant(Role::receiver, {.to = 10});
  converse(eager, reluctant, 1);
  reluctant.expect_finished();
  eager.expect_finished();
  EXPECT_EQ(eager.points.size(), reluctant.points.size());
}

TEST(Session, StopEndsBeforeTheNextLength) {
  Side transmitter(Role::transmitter, {.to = 1000, .repeats = 3}), receiver(Role::receiver, {.to = 1000});
  transmitter.session.stop();
  converse(transmitter, receiver, 1);
  transmitter.expect_finished();
  receiver.expect_finished();
  EXPECT_EQ(receiver.points.size(), 0U);
}

TEST(Session, WrongContentsFailTheIntegrityCheck) {
  const Options options{.from = 6, .to = 6, .integrity = true};
  for (const bool wrong : {false, true}) {
    Side receiver(Role::receiver, options);
    receiver.session.begin();
    receiver.must_hear("SyncMe");
    receiver.said();
    for (int i = 0; i < 100; ++i) {
      receiver.must_hear("xxxxxx");  // contents of the probe's messages are not checked
      receiver.said();
    }
    for (const auto words : {"SyncMe"sv, "SyncMe"sv, "\0\0\0\2"sv, "SyncMe"sv}) {
      receiver.must_hear(words);
      receiver.said();
    }
    receiver.must_hear("\0\0\0\0\7\7"sv);  // bytes after the last whole word are not checked
    EXPECT_EQ(receiver.said().substr(0, 4), "\0\0\0\0"sv);
    receiver.hear(wrong ? "\0\0\1\0xx"sv : "\0\0\0\0xx"sv);
    EXPECT_EQ(receiver.session.state(), wrong ? Session::State::failed : Session::State::running);
    EXPECT_EQ(receiver.session.reason(), wrong ? "integrity check failed: a message of 6 bytes has 1 where 0 was expected, at byte 2" : "");
  }
}

TEST(Session, WrongWordsFail) {
  for (const auto words : {"SyncMf"sv, "GET / HTTP/1.0"sv, "QUIT\0QUIT"sv, "\0\0\0\0\0\0"sv}) {
    Side receiver(Role::receiver, {});
    receiver.session.begin();
    receiver.hear(words);
    EXPECT_EQ(receiver.session.state(), Session::State::failed);
    EXPECT_FALSE(receiver.session.introduced());
    EXPECT_FALSE(receiver.session.has_output());
    EXPECT_EQ(receiver.hear("SyncMe"), 0U);
  }
  for (const auto number : {"\0\0\0\0"sv, "\x80\0\0\0"sv, "\xFF\xFF\xFF\xFF"sv}) {
    Side receiver(Role::receiver, {});
    introduce(receiver);
    receiver.must_hear("SyncMe");
    receiver.said();
    receiver.hear(number);
    EXPECT_EQ(receiver.session.state(), Session::State::failed);
  }
}

// A session's memory does not grow if a peer requests many messages and reads none.
TEST(Session, UnreadAnswersStopTheInput) {
  Side receiver(Role::receiver, {});
  introduce(receiver);
  receiver.must_hear("SyncMe");
  receiver.said();
  receiver.must_hear("\x7F\xFF\xFF\xFF"sv);
  receiver.must_hear("SyncMe");
  receiver.said();
  EXPECT_EQ(receiver.hear(std::string(1000, 'b')), 1U);
  EXPECT_EQ(receiver.session.bulk_bytes(), 1U);
  EXPECT_EQ(receiver.hear(std::string(1000, 'b')), 0U);
}

TEST(Session, LostConnectionsFailUnlessTheyAreExpected) {
  Side receiver(Role::receiver, {});
  introduce(receiver);
  receiver.session.connection_lost("gone");
  EXPECT_EQ(receiver.session.state(), Session::State::failed);
  EXPECT_EQ(receiver.session.reason(), "gone");
  // If each trial has its own connection, a connection that ends before its first byte is tried again.
  Side resetting(Role::receiver, {.reset = true});
  introduce(resetting);
  resetting.must_answer("QUIT\0"sv, "QUIT\0"sv);
  EXPECT_EQ(resetting.session.state(), Session::State::between);
  resetting.session.begin();
  resetting.session.connection_lost("gone");
  EXPECT_EQ(resetting.session.state(), Session::State::between);
  resetting.session.begin();
  resetting.must_hear("Syn");
  resetting.session.connection_lost("gone");
  EXPECT_EQ(resetting.session.state(), Session::State::failed);
}

// No input may cause a crash, a sanitizer's report or more output than was requested. An ended session stays ended.
TEST(Session, SurvivesAnyPeer) {
  std::mt19937 random(4711);
  constexpr std::string_view vocabulary[] = {"SyncMe"sv,           "QUIT\0"sv, "\0\0\0\3"sv, "\0\0\0\0"sv,
                                             "\xFF\xFF\xFF\xFF"sv, "b"sv,      "bbbbbbbb"sv, "Sync"sv};
  int failed = 0, finished = 0;
  for (int i = 0; i < 10'000; ++i) {
    Options options{.from = 1 + static_cast<std::uint32_t>(random() % 4), .to = 50, .repeats = 2};
    options.stream = random() % 3 == 0;
    options.bidirectional = !options.stream && random() % 3 == 0;
    options.integrity = random() % 4 == 0;
    options.reset = random() % 4 == 0;
    Side side(random() % 2 == 0 ? Role::receiver : Role::transmitter, options);
    side.session.begin();
    for (int turn = 0; turn < 300; ++turn) {
      std::string words;
      if (random() % 40 != 0) {
        // in most rounds, the peer sends the word that the session expects
        side.said();
        words = random() % 5 == 0 ? "QUIT\0"sv : random() % 3 == 0 ? "SyncMe"sv : "bbbb"sv.substr(0, options.from);
      } else {
        words = vocabulary[random() % std::size(vocabulary)];
      }
      side.hear(words);
      ASSERT_LE(side.session.text().size(), 16U);
      if (side.session.state() == Session::State::between) side.session.begin();
      if (random() % 200 == 0) side.session.connection_lost("gone");
    }
    failed += side.session.state() == Session::State::failed;
    finished += side.session.state() == Session::State::finished;
  }
  EXPECT_GT(failed, 1000);
  EXPECT_GT(finished, 0);
}

}  // namespace
}  // namespace neap::netpipe
