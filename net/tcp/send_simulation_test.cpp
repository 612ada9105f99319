// SPDX-License-Identifier: BSL-1.0
// The sender over simulated links. The bounds of goodput are what Linux reaches in the same conditions, or the link's limit.
#include "net/tcp/send_simulation.hpp"

#include <gtest/gtest.h>

namespace neap::net::tcp {
namespace {

SimulatedResult run(SimulatedTransfer transfer) {
  const SimulatedResult result = Simulation(transfer).run();
  Flow::trim();
  return result;
}

constexpr CongestionControl kinds[] = {CongestionControl::cubic, CongestionControl::reno};

TEST(SendSimulation, ALinkWithoutLossIsFilled) {
  for (const CongestionControl congestion : kinds) {
    for (const std::uint32_t joined : {1U, 22U}) {
      const SimulatedResult result = run({.settings = {.congestion = congestion}, .bytes = 20'000'000, .frames_joined = joined});
      EXPECT_TRUE(result.complete);
      EXPECT_GT(result.megabits, 90);
      EXPECT_EQ(result.frames_unnecessary, 0U);
      EXPECT_EQ(result.time_outs, 0U);
    }
  }
}

TEST(SendSimulation, LossCostsNoMoreThanOnLinux) {
  const struct {
    double loss, cubic, reno;
  } rows[] = {{.loss = 0.001, .cubic = 60, .reno = 60}, {.loss = 0.01, .cubic = 26, .reno = 25}, {.loss = 0.05, .cubic = 8.8, .reno = 8.7}};
  for (const auto& row : rows) {
    for (const CongestionControl congestion : kinds) {
      const SimulatedResult result = run({.link = {.loss = row.loss}, .settings = {.congestion = congestion}, .bytes = 15'000'000});
      EXPECT_TRUE(result.complete);
      EXPECT_GT(result.megabits, congestion == CongestionControl::cubic ? row.cubic : row.reno) << row.loss;
      EXPECT_EQ(result.frames_unnecessary, 0U) << row.loss;
      EXPECT_LE(result.time_outs, 1U) << row.loss;
    }
  }
}

// RACK would send again whatever arrives late, and each time reduce the window.
TEST(SendSimulation, ReorderingIsNotTakenForLoss) {
  for (const std::uint32_t delay_us : {5'000U, 10'000U, 25'000U}) {
    const SimulatedResult result = run({.link = {.delay_us = delay_us, .reordering = 0.05}, .bytes = 15'000'000});
    EXPECT_TRUE(result.complete);
    EXPECT_GT(result.megabits, 75) << delay_us;
    EXPECT_LT(static_cast<double>(result.frames_unnecessary), 0.005 * static_cast<double>(result.frames)) << delay_us;
  }
}

TEST(SendSimulation, DuplicatesByTheNetworkAreHarmless) {
  const SimulatedResult result = run({.link = {.duplication = 0.02}, .bytes = 20'000'000});
  EXPECT_GT(result.megabits, 88);
  // DSACK blocks of these duplicates must not undo reductions.
  const double losses = run({.link = {.loss = 0.01}, .bytes = 30'000'000}).megabits;
  EXPECT_LT(run({.link = {.loss = 0.01, .duplication = 0.02}, .bytes = 30'000'000}).megabits, 1.2 * losses);
}

TEST(SendSimulation, DelayIsFilledByTheWindow) {
  EXPECT_GT(run({.link = {.delay_us = 25'000, .return_delay_us = 25'000}, .bytes = 40'000'000}).megabits, 73);
  EXPECT_GT(run({.link = {.megabits = 1'000, .delay_us = 25'000, .return_delay_us = 25'000, .queue_frames = 5'000}, .bytes = 300'000'000})
                .megabits,
            700);
  EXPECT_GT(run({.link = {.delay_us = 50'000, .loss = 0.01}, .bytes = 3'000'000}).megabits, 1.6);
}

// Slow start ends by HyStart++ before it fills a queue that holds several round trips.
TEST(SendSimulation, SlowStartEndsWithoutLossOnALongQueue) {
  const SimulatedResult result = run({.link = {.delay_us = 20'000, .queue_frames = 1'000'000}, .bytes = 20'000'000});
  EXPECT_EQ(result.frames_resent, 0U);
  EXPECT_LT(result.queue_max, 2'200U);
  EXPECT_GT(result.megabits, 85);
}

TEST(SendSimulation, AShortQueueIsEnough) {
  const SimulatedResult result = run({.link = {.queue_frames = 30}, .bytes = 20'000'000});
  EXPECT_GT(result.megabits, 80);
  EXPECT_EQ(result.frames_unnecessary, 0U);
}

TEST(SendSimulation, LostAcknowledgementsCostLittle) {
  const SimulatedResult result = run({.link = {.acknowledgement_loss = 0.1}, .bytes = 20'000'000});
  EXPECT_TRUE(result.complete);
  EXPECT_GT(result.megabits, 75);
}

TEST(SendSimulation, BurstsOfLossAreRepairedWithoutTimeOut) {
  const SimulatedResult result = run({.link = {.burst_loss = 0.001}, .bytes = 20'000'000});
  EXPECT_GT(result.megabits, 55);
  EXPECT_LE(result.time_outs, 1U);
  EXPECT_EQ(result.frames_unnecessary, 0U);
}

TEST(SendSimulation, WithoutSackTheTransferCompletes) {
  for (const double loss : {0.0, 0.001, 0.01, 0.05}) {
    SimulatedTransfer transfer{.link = {.loss = loss}, .bytes = 10'000'000};
    transfer.settings.sack = false;
    const SimulatedResult result = run(transfer);
    EXPECT_TRUE(result.complete);
    EXPECT_GT(result.megabits, loss == 0 ? 65 : loss == 0.001 ? 45 : loss == 0.01 ? 12 : 2.5) << loss;
  }
}

// F-RTO, Eifel and DSACK: the acknowledgements after the spike are those of the originals.
TEST(SendSimulation, ADelaySpikeIsNotALoss) {
  for (const bool timestamps : {true, false}) {
    const SimulatedResult result =
        run({.link = {.stall_from_us = 1'000'000, .stall_to_us = 2'000'000}, .bytes = 40'000'000, .echo_timestamps = timestamps});
    EXPECT_TRUE(result.complete);
    EXPECT_GT(result.megabits, 60) << timestamps;
    EXPECT_LT(result.frames_unnecessary, 60U) << timestamps;
  }
}

TEST(SendSimulation, AnOutageEndsWithTheTransfer) {
  for (const bool sack : {true, false}) {
    SimulatedTransfer transfer{.link = {.outage_from_us = 500'000, .outage_to_us = 3'000'000}, .bytes = 20'000'000};
    transfer.settings.sack = sack;
    const SimulatedResult result = run(transfer);
    EXPECT_TRUE(result.complete);
    EXPECT_LT(result.us, 8'000'000U);
    EXPECT_LE(result.time_outs, sack ? 5U : 10U) << "each time-out doubles the next one";
  }
}

TEST(SendSimulation, ASilentPeerIsGivenUp) {
  const SimulatedResult result = run({.link = {.outage_from_us = 500'000, .outage_to_us = ~0ULL}, .limit_us = 2'000'000'000});
  EXPECT_TRUE(result.gave_up);
  EXPECT_GE(result.us, SendState::give_up_s * 1'000'000ULL);
  EXPECT_LE(result.time_outs, 30U);
}

// DCTCP keeps the queue near the marking threshold. A sender that reacts to marks as to losses would leave the link idle.
TEST(SendSimulation, DctcpKeepsTheQueueShort) {
  SimulatedTransfer transfer{.link = {.delay_us = 2'000, .queue_frames = 1'000, .mark_frames = 20}, .bytes = 40'000'000};
  transfer.settings.congestion = CongestionControl::dctcp;
  transfer.settings.ecn = true;
  const SimulatedResult result = run(transfer);
  EXPECT_GT(result.marks, 0U);
  EXPECT_EQ(result.frames_resent, 0U);
  EXPECT_GT(result.megabits, 88);
  EXPECT_LT(result.queue_max, 120U);
}

TEST(SendSimulation, EcnReplacesLoss) {
  for (const CongestionControl congestion : kinds) {
    SimulatedTransfer transfer{.link = {.queue_frames = 300, .mark_frames = 60}, .bytes = 30'000'000};
    transfer.settings.congestion = congestion;
    transfer.settings.ecn = true;
    const SimulatedResult result = run(transfer);
    EXPECT_EQ(result.frames_resent, 0U);
    EXPECT_GT(result.megabits, 80);
  }
}

TEST(SendSimulation, PacingFillsTheLinkWithAShorterQueue) {
  SimulatedTransfer transfer{.link = {.delay_us = 10'000, .queue_frames = 60}, .bytes = 30'000'000};
  transfer.settings.pacing = true;
  const SimulatedResult result = run(transfer);
  EXPECT_TRUE(result.complete);
  EXPECT_GT(result.megabits, 75);
}

TEST(SendSimulation, WithoutMemoryForSplitsTheTransferCompletes) {
  const SimulatedResult result = run({.link = {.loss = 0.01}, .bytes = 5'000'000, .lack_memory = true});
  EXPECT_TRUE(result.complete);
}

// Every combination of errors, with all counts checked after each event (Simulation::check).
TEST(SendSimulation, CountsStayTrueUnderAllErrors) {
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    SimulatedTransfer transfer{.link = {.loss = 0.02,
                                        .burst_loss = 0.001,
                                        .acknowledgement_loss = 0.02,
                                        .reordering = 0.03,
                                        .duplication = 0.02,
                                        .outage_from_us = 800'000,
                                        .outage_to_us = 1'200'000},
                               .bytes = 2'000'000,
                               .seed = seed};
    transfer.settings.sack = seed % 4 != 0;
    transfer.settings.pacing = seed % 3 == 0;
    transfer.settings.congestion = static_cast<CongestionControl>(seed % 3);
    transfer.lack_memory = seed % 5 == 0;
    transfer.check_every = 1;
    transfer.frames_joined = seed % 2 == 0 ? 8 : 1;
    transfer.echo_timestamps = seed % 7 != 0;
    EXPECT_TRUE(run(transfer).complete) << seed;
  }
}

}  // namespace
}  // namespace neap::net::tcp
