// SPDX-License-Identifier: BSL-1.0
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <utility>

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

std::string canonical(const char* text) {
  const auto address = Address::parse(text);
  return address ? address->to_string() : "refused";
}

// RFC 5952, sections 1, 2 and 4; the IPv4 forms are those of RFC 4291, 2.2.
TEST(Address, IsPrintedInTheCanonicalForm) {
  for (const auto& [text, expected] : {std::pair{"::", "::"},
                                       {"::1", "::1"},
                                       {"1::", "1::"},
                                       {"0:0:0:0:0:0:0:1", "::1"},
                                       {"2001:DB8::AaAa", "2001:db8::aaaa"},
                                       {"2001:0db8:0000:0000:0001:0000:0000:0001", "2001:db8::1:0:0:1"},
                                       {"2001:db8:0:1:1:1:1:1", "2001:db8:0:1:1:1:1:1"},
                                       {"2001:0:0:1:0:0:0:1", "2001:0:0:1::1"},
                                       {"0:1:2:3:4:5:6:7", "0:1:2:3:4:5:6:7"},
                                       {"1:2:3:4:5:6:0:0", "1:2:3:4:5:6::"},
                                       {"1:2:3:4:5:6:7::", "1:2:3:4:5:6:7:0"},
                                       {"ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"},
                                       {"64:ff9b::192.0.2.33", "64:ff9b::c000:221"},
                                       {"::ffff:192.0.2.33", "192.0.2.33"},
                                       {"::ffff:c000:221", "192.0.2.33"},
                                       {"10.0.0.1", "10.0.0.1"}}) {
    EXPECT_EQ(canonical(text), expected) << text;
    EXPECT_EQ(canonical(expected), expected) << text;
  }
}

TEST(Address, RefusesEveryOtherText) {
  for (const char* bad : {"",
                          ":",
                          ":::",
                          "1",
                          "1:2:3:4:5:6:7",
                          "1:2:3:4:5:6:7:8:9",
                          "1::2::3",
                          "1:::2",
                          ":1:2:3:4:5:6:7",
                          "1:2:3:4:5:6:7:",
                          "1:2:3:4:5:6:7:8::",
                          "::1:2:3:4:5:6:7:8",
                          "12345::",
                          "g::",
                          "0x1::",
                          "+1::",
                          "-1::",
                          " ::1",
                          "::1 ",
                          "fe80::1%1",
                          "::/0",
                          "::1.2.3",
                          "::1.2.3.256",
                          "1.2.3.4::",
                          "::1.2.3.4:1",
                          "1:2:3:4:5:6:7:1.2.3.4",
                          "1.2.3.4.5",
                          "[::1]"}) {
    EXPECT_FALSE(Address::parse(bad).has_value()) << bad;
  }
}

TEST(Address, KnowsItsVersionAndScope) {
  const auto of = [](const char* text) { return *Address::parse(text); };
  EXPECT_TRUE(Address(Ipv4Address{0x0A000001}).is_v4());
  EXPECT_EQ(of("10.0.0.1").v4(), Ipv4Address{0x0A000001});
  EXPECT_FALSE(of("::10.0.0.1").is_v4());
  EXPECT_TRUE(Address().is_unspecified() && of("0.0.0.0").is_unspecified() && !of("::1").is_unspecified());
  EXPECT_TRUE(of("::1").is_loopback() && of("127.1.2.3").is_loopback() && !of("::2").is_loopback());
  EXPECT_TRUE(of("febf::1").is_link_local() && of("169.254.0.1").is_link_local() && !of("fec0::1").is_link_local());
  EXPECT_TRUE(of("ff0e::1").is_multicast() && of("224.0.0.1").is_multicast() && !of("fe80::1").is_multicast());
  EXPECT_TRUE(of("fd00::1").is_unique_local() && !of("fe00::1").is_unique_local());
  EXPECT_EQ(of("ff05::2").scope(), 5U);
  EXPECT_EQ(of("fe80::1").scope(), 2U);
  EXPECT_EQ(of("2001:db8::1").solicited_node(), of("ff02::1:ff00:1"));
  EXPECT_TRUE(of("fe80::1234:5678").solicited_node().is_solicited_node());
  EXPECT_FALSE(of("ff02::1").is_solicited_node());
  EXPECT_TRUE(of("2001:db8::1").is_in(of("2001:db8::"), 64) && !of("2001:db8:0:1::1").is_in(of("2001:db8::"), 64));
  EXPECT_EQ(of("2001:db8:1:2:3::4").network(60), of("2001:db8:1::"));
  EXPECT_EQ(of("2001:db8:1:2:3::4").network(0), Address());
  EXPECT_EQ(of("2001:db8::1").common_bits(of("2001:db8::2")), 126U);
  EXPECT_EQ(of("2001:db8::1").peer_key(), of("2001:db8::2").peer_key());
  EXPECT_NE(of("10.0.0.1").peer_key(), of("10.0.0.2").peer_key());
}

TEST(Address, BytesAreInNetworkOrder) {
  std::array<std::byte, 16> bytes{};
  const Address address = *Address::parse("2001:db8::1234");
  address.write(bytes.data());
  EXPECT_EQ(bytes[0], std::byte{0x20});
  EXPECT_EQ(bytes[15], std::byte{0x34});
  EXPECT_EQ(Address::read(bytes.data()), address);
}

TEST(Endpoint, TextIsParsedAndPrinted) {
  for (const char* good : {"10.0.0.1:80", "[2001:db8::1]:65535"}) {
    const auto endpoint = Endpoint::parse(good);
    ASSERT_TRUE(endpoint.has_value()) << good;
    EXPECT_EQ(endpoint->to_string(), good);
  }
  for (const char* bad : {"10.0.0.1", "10.0.0.1:", "10.0.0.1:0", "0.0.0.0:1", "10.0.0.1:65536", "[::1]", "[::1]:", "::1:80",
                          "[10.0.0.1]:80", "[::1:80", "[::]:80", ""}) {
    EXPECT_FALSE(Endpoint::parse(bad).has_value()) << bad;
  }
}

TEST(AddressSetting, Ipv6IsAutomaticOffOrFixed) {
  const auto of = [](const char* line) {
    Arguments arguments(line);
    const AddressSetting setting = AddressSetting::from(arguments);
    EXPECT_EQ(arguments.complaints(), "") << line;
    return setting;
  };
  EXPECT_EQ(of("").ipv6.mode, Ipv6Setting::Mode::automatic);
  EXPECT_EQ(of("ip6=off").ipv6.mode, Ipv6Setting::Mode::off);
  EXPECT_FALSE(of("ip=off").ipv4);
  const Ipv6Setting fixed = of("ip6=2001:db8::5/64,fe80::1").ipv6;
  EXPECT_EQ(fixed.mode, Ipv6Setting::Mode::fixed);
  EXPECT_EQ(fixed.address.to_string(), "2001:db8::5");
  EXPECT_EQ(fixed.prefix_bits, 64U);
  EXPECT_EQ(fixed.gateway.to_string(), "fe80::1");
  for (const char* bad : {"ip6=", "ip6=on", "ip6=2001:db8::5", "ip6=2001:db8::5/0", "ip6=2001:db8::5/129", "ip6=10.0.0.1/24", "ip6=::1/64",
                          "ip6=::/64", "ip6=ff02::1/64", "ip6=2001:db8::5/64,2001:db8:1::1", "ip6=2001:db8::5/64,", "ip=off ip6=off"}) {
    Arguments arguments(bad);
    static_cast<void>(AddressSetting::from(arguments));
    EXPECT_NE(arguments.complaints(), "") << bad;
  }
}

TEST(AddressSetting, TheMtuIsOneThatACardAndIpv6CanHave) {
  const auto of = [](const char* line) {
    Arguments arguments(line);
    const AddressSetting setting = AddressSetting::from(arguments);
    EXPECT_EQ(arguments.complaints(), "") << line;
    return setting;
  };
  EXPECT_EQ(of("").mtu, 1500);
  EXPECT_EQ(of("").frame_bytes_max(), 1514U);
  EXPECT_EQ(of("mtu=9000").mtu, 9000);
  EXPECT_EQ(of("mtu=9710").frame_bytes_max(), 9724U);
  EXPECT_EQ(of("mtu=1280").ipv6.mode, Ipv6Setting::Mode::automatic);
  EXPECT_EQ(of("mtu=1279").ipv6.mode, Ipv6Setting::Mode::off);
  EXPECT_EQ(of("mtu=576 ip6=off").mtu, 576);
  const auto complaint = [](const char* line) {
    Arguments arguments(line);
    static_cast<void>(AddressSetting::from(arguments));
    return arguments.complaints();
  };
  for (const char* bad : {"mtu=", "mtu=575", "mtu=9711", "mtu=65536", "mtu=9k", "mtu=-1"}) EXPECT_NE(complaint(bad), "") << bad;
  EXPECT_NE(complaint("mtu=1000 ip6=auto").find("IPv6 needs 1280 or more, or ip6=off"), std::string::npos);
  EXPECT_NE(complaint("mtu=1000 ip6=2001:db8::5/64").find("IPv6 needs 1280 or more, or ip6=off"), std::string::npos);
  EXPECT_NE(complaint("mtu=1000 ip=off").find("IPv6 needs an mtu of 1280 or more"), std::string::npos);
}

// Appendix A of the SipHash paper: key 00 01 … 0f, input 00 01 … 0e.
TEST(SipHash, GivesThePapersVector) {
  std::array<std::uint8_t, 15> input;
  for (std::uint8_t i = 0; i < input.size(); ++i) input[i] = i;
  EXPECT_EQ(siphash({.low = 0x0706050403020100, .high = 0x0f0e0d0c0b0a0908}, input), 0xa129ca6149be45e5U);
}

}  // namespace
}  // namespace neap::net
