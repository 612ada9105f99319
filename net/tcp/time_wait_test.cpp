// SPDX-License-Identifier: BSL-1.0
#include "net/tcp/time_wait.hpp"

#include <gtest/gtest.h>

namespace neap::net::tcp {
namespace {

constexpr std::uint64_t start_us = std::uint64_t{0xFFFF'F000} * 1000;  // the clock in ms wraps during the test
constexpr std::uint64_t second_us = 1'000'000;

SegmentAddresses key_of(std::uint32_t number) { return {.addresses = 0x0A00'0001'C0A8'0001, .ports = number}; }

class TimeWait : public ::testing::Test {
 protected:
  TimeWait() { EXPECT_TRUE(table.start(8, 100)); }

  /// A connection in TIME-WAIT whose peer's next number is 5000, with timestamps up to 700.
  void add(std::uint32_t number, bool timestamps) {
    ASSERT_TRUE(table.add(key_of(number),
                          {.send_next = 9000,
                           .receive_next = 5000,
                           .timestamp_recent = 700,
                           .timestamp_offset = 33,
                           .window = 44,
                           .has_timestamps = timestamps},
                          now_us));
  }
  TimeWaitVerdict verdict(std::uint32_t number, TimeWaitSegment segment) {
    const auto decision = table.decide(key_of(number), segment, now_us);
    EXPECT_TRUE(decision.found);
    return decision.verdict;
  }

  TimeWaitTable<SegmentAddresses> table;
  std::uint64_t now_us = start_us;
};

TEST_F(TimeWait, AnEntryEndsAfterItsTimeWithOrWithoutExpire) {
  add(1, false);
  now_us += second_us;
  add(2, false);
  EXPECT_EQ(table.due_us(now_us), start_us + 60 * second_us);
  now_us = start_us + 60 * second_us - 1000;
  EXPECT_TRUE(table.contains(key_of(1), now_us));
  now_us += 1000;
  EXPECT_FALSE(table.contains(key_of(1), now_us));
  EXPECT_FALSE(table.decide(key_of(1), {.ack = true}, now_us).found);
  EXPECT_EQ(table.count(), 1U);
  now_us += second_us;
  EXPECT_EQ(table.due_us(now_us), now_us);
  table.expire(now_us);
  EXPECT_EQ(table.count(), 0U);
  EXPECT_EQ(table.due_us(now_us), 0U);
}

TEST_F(TimeWait, AnswersCarryTheNumbersOfTheConnection) {
  add(1, true);
  const auto decision =
      table.decide(key_of(1), {.sequence = 4999, .length = 1, .ack = true, .fin = true, .has_timestamps = true, .timestamp = 705}, now_us);
  EXPECT_EQ(decision.verdict, TimeWaitVerdict::acknowledge);
  EXPECT_EQ(decision.numbers.send_next, 9000U);
  EXPECT_EQ(decision.numbers.receive_next, 5000U);
  EXPECT_EQ(decision.numbers.timestamp_recent, 705U);
  EXPECT_EQ(decision.numbers.timestamp_offset, 33U);
  EXPECT_EQ(decision.numbers.window, 44);
  EXPECT_TRUE(decision.numbers.has_timestamps);
}

// RFC 9293, 3.10.7.4: the FIN again restarts the time. Nothing else does, or a forger could hold entries for ever.
TEST_F(TimeWait, OnlyThePeersOwnFinRestartsTheTime) {
  add(1, false);
  add(2, false);
  now_us += 30 * second_us;
  EXPECT_EQ(verdict(1, {.sequence = 4990, .length = 10, .ack = true, .fin = true}), TimeWaitVerdict::acknowledge);
  EXPECT_EQ(verdict(2, {.sequence = 4990, .length = 11, .ack = true, .fin = true}), TimeWaitVerdict::acknowledge);
  EXPECT_EQ(table.due_us(now_us), start_us + 60 * second_us);
  now_us = start_us + 60 * second_us;
  EXPECT_TRUE(table.contains(key_of(1), now_us));
  EXPECT_FALSE(table.contains(key_of(2), now_us));
  table.expire(now_us);
  EXPECT_EQ(table.due_us(now_us), start_us + 90 * second_us);
}

// RFC 1337: a reset must not end TIME-WAIT, not even one with an exact number.
TEST_F(TimeWait, ResetsAreIgnored) {
  add(1, false);
  EXPECT_EQ(verdict(1, {.sequence = 5000, .rst = true}), TimeWaitVerdict::drop);
  EXPECT_EQ(verdict(1, {.sequence = 5000, .ack = true, .rst = true}), TimeWaitVerdict::drop);
  EXPECT_TRUE(table.contains(key_of(1), now_us));
  EXPECT_EQ(table.counters().resets_ignored, 2U);
}

TEST_F(TimeWait, TheLastAcknowledgementIsNotAnsweredAndOthersAreAtALimitedRate) {
  add(1, false);
  EXPECT_EQ(verdict(1, {.sequence = 5000, .ack = true}), TimeWaitVerdict::drop);
  EXPECT_EQ(verdict(1, {.sequence = 4000, .length = 100}), TimeWaitVerdict::drop);  // without ACK
  unsigned answers = 0;
  for (int i = 0; i < 1000; ++i, now_us += 1000) {
    answers += verdict(1, {.sequence = 4000, .length = 100, .ack = true}) == TimeWaitVerdict::acknowledge ? 1 : 0;
    answers += verdict(1, {.sequence = 5000, .length = 100, .ack = true}) == TimeWaitVerdict::acknowledge ? 1 : 0;
    answers += verdict(1, {.sequence = 4000, .length = 1, .syn = true, .ack = true}) == TimeWaitVerdict::acknowledge ? 1 : 0;
  }
  EXPECT_EQ(answers, 2U);
}

// RFC 6191, 2, case by case.
TEST_F(TimeWait, ASynIsAcceptedIfItsTimestampOrSequenceIsLater) {
  struct Case {
    bool old_timestamps, new_timestamps;
    std::uint32_t timestamp, sequence;
    bool accepted;
  };
  std::uint32_t number = 0;
  for (const Case& each : std::initializer_list<Case>{{true, true, 701, 100, true},
                                                      {true, true, 700, 5001, true},
                                                      {true, true, 700, 5000, false},
                                                      {true, true, 699, 6000, false},
                                                      {true, false, 0, 5001, true},
                                                      {true, false, 0, 4000, false},
                                                      {false, true, 1, 100, true},
                                                      {false, false, 0, 5001, true},
                                                      {false, false, 0, 4999, false}}) {
    add(++number, each.old_timestamps);
    const TimeWaitSegment syn{
        .sequence = each.sequence, .length = 1, .syn = true, .has_timestamps = each.new_timestamps, .timestamp = each.timestamp};
    EXPECT_EQ(verdict(number, syn), each.accepted ? TimeWaitVerdict::accept_syn : TimeWaitVerdict::acknowledge) << number;
    EXPECT_EQ(table.contains(key_of(number), now_us), !each.accepted) << number;
  }
  EXPECT_EQ(table.counters().syns_accepted, 5U);
}

TEST_F(TimeWait, OldTimestampsAreAnsweredButRestartNothing) {
  add(1, true);
  now_us += second_us;
  EXPECT_EQ(verdict(1, {.sequence = 4999, .length = 1, .ack = true, .fin = true, .has_timestamps = true, .timestamp = 600}),
            TimeWaitVerdict::acknowledge);
  EXPECT_EQ(table.due_us(now_us), start_us + 60 * second_us);
}

TEST_F(TimeWait, AFullTableReplacesItsOldestEntry) {
  for (std::uint32_t number = 0; number < 250; ++number) add(number, false);
  EXPECT_EQ(table.count(), 100U);
  EXPECT_EQ(table.counters().replaced, 150U);
  EXPECT_FALSE(table.contains(key_of(149), now_us));
  EXPECT_TRUE(table.contains(key_of(150), now_us));
  now_us += 60 * second_us;
  add(1000, false);  // the replaced entry is over, which is no loss
  EXPECT_EQ(table.counters().replaced, 150U);
  table.expire(now_us, 10);
  EXPECT_EQ(table.count(), 90U);
  table.expire(now_us, 1000);
  EXPECT_EQ(table.count(), 1U);
}

TEST_F(TimeWait, ANewConnectionsNumbersAreAboveTheOldOnes) {
  EXPECT_EQ(sequence_after(9001, 9000), 9001U);
  EXPECT_EQ(sequence_after(8999, 9000), 9000U + 65'537);
  EXPECT_EQ(sequence_after(5, 0xFFFF'FFF0), 5U);
}

TEST(TimeWait6, EntriesOfIpv6AreFound) {
  TimeWaitTable<SegmentAddresses6> table;
  ASSERT_TRUE(table.start(4, 10));
  const SegmentAddresses6 key{.addresses = {1, 2, 3, 4}, .ports = 5};
  ASSERT_TRUE(table.add(key, {.send_next = 1}, start_us));
  EXPECT_TRUE(table.decide(key, {.ack = true}, start_us).found);
  EXPECT_FALSE(table.decide(key.reversed(), {.ack = true}, start_us).found);
}

}  // namespace
}  // namespace neap::net::tcp
