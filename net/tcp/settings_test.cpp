// SPDX-License-Identifier: BSL-1.0
#include "net/tcp/settings.hpp"

#include <gtest/gtest.h>

#include <string>

#include "kernel/policy.hpp"
#include "kernel/task.hpp"
#include "tests/host/host_machine.hpp"

namespace neap::net::tcp {
namespace {

class TcpSettings : public ::testing::Test {
 protected:
  TcpSettings() {
    machine.on(0, [] { policy::follow_network_settings(&load_settings); });
    for (unsigned core = 0; core < 2; ++core) machine.on(core, [] { load_settings(); });
  }
  ~TcpSettings() override {
    machine.on(0, [] { policy::follow_network_settings(nullptr); });
  }

  std::expected<policy::Applied, policy::Refusal> set(policy::Setting setting, std::string value, unsigned core = policy::all_cores) {
    std::expected<policy::Applied, policy::Refusal> done;
    machine.run(0, [&]() -> task<void> { done = co_await policy::set(setting, value, core); });
    return done;
  }

  host::HostMachine machine{2};
};

TEST_F(TcpSettings, TheDefaultsOfTheTableAreThoseOfTheStructure) {
  machine.on(1, [] {
    const Settings defaults;
    EXPECT_EQ(settings.congestion, defaults.congestion);
    EXPECT_EQ(settings.ecn, defaults.ecn);
    EXPECT_EQ(settings.pacing, defaults.pacing);
    EXPECT_EQ(settings.rto_min_us, defaults.rto_min_us);
    EXPECT_EQ(settings.keep_alive_s, defaults.keep_alive_s);
    EXPECT_EQ(settings.zero_window_end_s, defaults.zero_window_end_s);
    EXPECT_EQ(settings.receive_bytes_max, defaults.receive_bytes_max);
    EXPECT_EQ(settings.send_bytes_max, defaults.send_bytes_max);
  });
}

TEST_F(TcpSettings, AChangeReachesEachCoreAndNamesNone) {
  using policy::Setting;
  const auto done = set(Setting::tcp_congestion, "dctcp");
  ASSERT_TRUE(done.has_value());
  EXPECT_EQ(done->value, "tcp_congestion=dctcp");
  EXPECT_EQ(done->cores, "0-1");
  EXPECT_TRUE(set(Setting::tcp_ecn, "on").has_value());
  EXPECT_TRUE(set(Setting::tcp_rto_min, "5ms").has_value());
  EXPECT_TRUE(set(Setting::tcp_keep_alive, "off").has_value());
  EXPECT_TRUE(set(Setting::tcp_receive, "64").has_value());
  for (unsigned core = 0; core < 2; ++core) {
    machine.on(core, [] {
      EXPECT_EQ(settings.congestion, CongestionControl::dctcp);
      EXPECT_TRUE(settings.ecn);
      EXPECT_EQ(settings.rto_min_us, 5000U);
      EXPECT_EQ(settings.keep_alive_s, 0U);
      EXPECT_EQ(settings.receive_bytes_max, 65'536U);
    });
  }
  EXPECT_EQ(policy::value_of(Setting::tcp_receive, 1), 64U);
  EXPECT_EQ(set(Setting::tcp_ecn, "off", 1).error().why, "tcp_ecn: holds for the whole machine");
  EXPECT_FALSE(set(Setting::tcp_rto_min, "1ms").has_value());
  EXPECT_FALSE(set(Setting::tcp_congestion, "vegas").has_value());
  for (const auto& [setting, value] : {std::pair{Setting::tcp_congestion, "cubic"},
                                       {Setting::tcp_ecn, "off"},
                                       {Setting::tcp_rto_min, "200ms"},
                                       {Setting::tcp_keep_alive, "7200"},
                                       {Setting::tcp_receive, "8192"}})
    EXPECT_TRUE(set(setting, value).has_value());
}

}  // namespace
}  // namespace neap::net::tcp
