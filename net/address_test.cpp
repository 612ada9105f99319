// SPDX-License-Identifier: BSL-1.0
#include <gtest/gtest.h>

#include <array>
#include <string>

#include "kernel/siphash.hpp"
#include "net/network.hpp"

namespace neap::net {
namespace {

TEST(AddressSetting, DefaultAndDhcpAskTheNetwork) {
  for (const char* line : {"", "ip=dhcp"}) {
    Arguments arguments(line);
    EXPECT_TRUE(AddressSetting::from(arguments).dhcp);
    EXPECT_EQ(arguments.complaints(), "");
  }
}

TEST(AddressSetting, StaticAddressWithAndWithoutGateway) {
  Arguments arguments("ip=192.168.7.20/24,192.168.7.1");
  const AddressSetting setting = AddressSetting::from(arguments);
  EXPECT_EQ(arguments.complaints(), "");
  EXPECT_FALSE(setting.dhcp);
  EXPECT_EQ(setting.address.to_string(), "192.168.7.20");
  EXPECT_EQ(setting.netmask.to_string(), "255.255.255.0");
  EXPECT_EQ(setting.gateway.to_string(), "192.168.7.1");
  Arguments without("ip=10.1.2.3/8");
  EXPECT_EQ(AddressSetting::from(without).gateway.value, 0U);
  EXPECT_EQ(without.complaints(), "");
}

TEST(AddressSetting, AnythingElseIsRefused) {
  for (const char* bad : {"",
                          "x",
                          "10.0.0.1",
                          "10.0.0.1/",
                          "10.0.0.1/0",
                          "10.0.0.1/31",
                          "10.0.0.1/33",
                          "10.0.0/24",
                          "10.0.0.0.1/24",
                          "10.0.0.256/24",
                          "10.0.0.1/24,",
                          "10.0.0.1/24,10.0.1.1",
                          "10.0.0.1/24,x",
                          "10.0.0.1/24,10.0.0.2,10.0.0.3",
                          "224.0.0.1/24",
                          "127.0.0.1/8",
                          "0.0.0.1/24",
                          "10..0.1/24",
                          "-1.0.0.1/24",
                          "10.0.0.1/2 4",
                          "10.0.0.1/+8",
                          "DHCP"}) {
    Arguments arguments(std::string("ip=") + bad);
    static_cast<void>(AddressSetting::from(arguments));
    EXPECT_NE(arguments.complaints(), "") << bad;
  }
}

// Appendix A of the SipHash paper: key 00 01 … 0f, input 00 01 … 0e.
TEST(SipHash, GivesThePapersVector) {
  std::array<std::uint8_t, 15> input;
  for (std::uint8_t i = 0; i < input.size(); ++i) input[i] = i;
  EXPECT_EQ(siphash({.low = 0x0706050403020100, .high = 0x0f0e0d0c0b0a0908}, input), 0xa129ca6149be45e5U);
}

}  // namespace
}  // namespace neap::net
