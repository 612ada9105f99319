// SPDX-License-Identifier: BSL-1.0
// Control on machines of one, two and four cores.
#include <gtest/gtest.h>

#include <string>

#include "observe/testing.hpp"

namespace neap::observe::testing {
namespace {

class ControlOnCores : public ::testing::TestWithParam<unsigned> {};

// With any number of cores, every core serves clients, appears in reports and applies settings.
TEST_P(ControlOnCores, ARunIsRecordedAndConfiguredOnEveryCore) {
  WorldOptions options = small_log();
  options.serving_cores = GetParam();
  World world(options);
  for (unsigned i = 0; i < 3 * GetParam(); ++i) EXPECT_TRUE(world.peer().ask("rdtsc").starts_with("ok tsc="));
  Peer& peer = world.peer();
  EXPECT_EQ(peer.ask("start"), "ok run=1");
  world.record(50);
  for (unsigned core = 0; core < GetParam(); ++core) {
    const std::string number = std::to_string(core);
    EXPECT_TRUE(world.peers[core]->ask("itr," + std::to_string(8 + 2 * core) + "," + number).ends_with(" cores=" + number));
    EXPECT_EQ(world.device.itr_us(core), 8 + 2 * core);
    EXPECT_NE(peer.ask("timers," + number).find("ok " + number + " pending="), std::string::npos);
  }
  EXPECT_TRUE(peer.ask("stop").starts_with("ok run=1 lines="));
  for (unsigned core = 0; core < GetParam(); ++core) {
    const std::string all = peer.ask("stats," + std::to_string(core));
    const std::size_t at = all.find("log.lines=");
    ASSERT_NE(at, all.npos) << all;
    EXPECT_GE(std::stoul(all.substr(at + 10)), 50U) << core;
  }
}

INSTANTIATE_TEST_SUITE_P(Observe, ControlOnCores, ::testing::Values(1, 2, 4));

}  // namespace
}  // namespace neap::observe::testing
