// SPDX-License-Identifier: BSL-1.0
// The lease of the machine's address (RFC 2131), with servers that offer short leases, refuse, or are hostile. The test controls the clock.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <string>

#include "net/bring_up.hpp"
#include "net/testing/dhcp_server.hpp"
#include "tests/host/host_machine.hpp"

namespace neap::net::testing {
namespace {

using namespace std::chrono_literals;

constexpr Ipv4Address offered{0x0A000042}, server_address{0x0A000001};

class DhcpLease : public ::testing::Test {
 protected:
  ~DhcpLease() override {
    card_.cut();
    const host::ClockRunner runner(clock_);
    machine_.run(0, [this] { return network_->take_down(); });
  }
  [[nodiscard]] static DhcpTerms good() { return {.server = server_address, .router = server_address}; }
  [[nodiscard]] static DhcpTerms lasting(std::uint32_t seconds) {
    DhcpTerms terms = good();
    terms.lease_s = seconds;
    return terms;
  }
  void bring_up_under(const DhcpTerms& terms) {
    server_.set_terms(terms);
    const host::ClockRunner runner(clock_);
    machine_.run(0, [this]() -> task<void> { network_ = std::move(*co_await bring_up(card_, {}, 0, 1)); });
  }
  void pass(std::chrono::seconds time) {
    for (auto passed = 0ms; passed < time; passed += 100ms) {
      clock_.advance(100ms);
      for (int i = 0; i < 4; ++i) machine_.on(0, [] {});
    }
  }
  /// Advances the clock second by second until `condition` holds; returns the number of seconds, at most `limit`.
  int seconds_until(const std::function<bool()>& condition, int limit) {
    int seconds = 0;
    for (; seconds < limit && !condition(); ++seconds) pass(1s);
    return seconds;
  }
  [[nodiscard]] Counters counters() {
    return machine_.value_on(0, [] { return net::counters(0); });
  }

  host::ManualClock clock_{1'000'000'000};
  WireCard card_{{.mac = {2, 0, 0, 0, 0, 0x77}}};
  DhcpServer server_{card_, offered, server_address};
  host::HostMachine machine_{1};
  std::unique_ptr<NetworkControl> network_;
};

// Unpatched lwIP counts lease times in minutes and never renews a lease below 90 s: address and connections end each minute.
class ShortLease : public DhcpLease, public ::testing::WithParamInterface<int> {
 protected:
  ShortLease() {
    server_.answers_arp = true;
    bring_up_under(lasting(static_cast<std::uint32_t>(lease)));
  }
  const int lease = GetParam();
};

TEST_P(ShortLease, IsRenewedAtHalfItsTime) {
  pass(1s);
  for (int turn = 1; turn <= 4; ++turn) {
    const auto before = static_cast<std::uint64_t>(turn - 1);
    ASSERT_EQ(counters().dhcp_renewals, before);
    const int waited = seconds_until([&] { return counters().dhcp_renewals > before; }, lease);
    EXPECT_GE(waited, lease / 2 - 2);
    EXPECT_LE(waited, lease / 2 + 2);
    EXPECT_EQ(network_->address(), offered);
  }
  EXPECT_EQ(server_.discovers(), 1);
}

TEST_P(ShortLease, SurvivesALostRenewal) {
  for (int turn = 0; turn < 3; ++turn) {
    server_.ignore_first = 1;
    const std::uint64_t before = counters().dhcp_renewals;
    EXPECT_LT(seconds_until([&] { return counters().dhcp_renewals > before; }, lease), lease);
    EXPECT_EQ(network_->address(), offered);
  }
  EXPECT_EQ(server_.discovers(), 1);
}

TEST_P(ShortLease, EndsWhenNoServerAnswers) {
  server_.ignore_first = 1'000'000;
  const int lasted = seconds_until([&] { return network_->address() == Ipv4Address{}; }, 2 * lease);
  EXPECT_GE(lasted, lease - 2);
  EXPECT_LE(lasted, lease + 2);
  server_.ignore_first = 0;
  EXPECT_LE(seconds_until([&] { return network_->address() == offered; }, 100), 70);
}

INSTANTIATE_TEST_SUITE_P(Dhcp, ShortLease, ::testing::Values(10, 30, 60, 89, 150));

// In an earlier version, the machine asked again without a delay after each refusal: 10,000 broadcasts in 15 s.
TEST_F(DhcpLease, ServerThatRefusesIsAskedMoreAndMoreRarely) {
  bring_up_under(lasting(10));
  DhcpTerms terms = lasting(10);
  terms.refuse = true;
  server_.set_terms(terms);
  EXPECT_LE(seconds_until([&] { return counters().dhcp_naks > 0; }, 20), 11);
  EXPECT_EQ(network_->address(), Ipv4Address{});
  const std::uint64_t frames = card_.frames_sent();
  pass(15s);
  EXPECT_LE(card_.frames_sent() - frames, 8U);
  EXPECT_GE(counters().dhcp_naks, 3U);
  pass(120s);
  EXPECT_LE(card_.frames_sent() - frames, 20U);
  server_.set_terms(good());
  EXPECT_LE(seconds_until([&] { return network_->address() == offered; }, 100), 66);
}

struct HostileTerms {
  const char* name;
  std::function<void(DhcpTerms&)> change;
};

class Hostile : public DhcpLease, public ::testing::WithParamInterface<HostileTerms> {};

TEST_P(Hostile, TermsAreRefused) {
  bring_up_under(lasting(10));
  DhcpTerms terms = good();
  terms.refuse = true;
  server_.set_terms(terms);
  ASSERT_LE(seconds_until([&] { return counters().dhcp_naks > 0; }, 20), 11);
  terms = good();
  GetParam().change(terms);
  server_.set_terms(terms);
  const int before = server_.discovers() + server_.requests();
  for (int second = 0; second < 60; ++second) {
    pass(1s);
    ASSERT_EQ(network_->address(), Ipv4Address{});
    ASSERT_EQ(network_->netmask(), Ipv4Address{});
  }
  EXPECT_GE(counters().dhcp_refused, 2U);
  EXPECT_LE(server_.discovers() + server_.requests() - before, 9);
  server_.set_terms(good());
  EXPECT_LE(seconds_until([&] { return network_->address() == offered; }, 200), 140);
}

INSTANTIATE_TEST_SUITE_P(
    Dhcp, Hostile,
    ::testing::Values(HostileTerms{"LeaseOfNoTime", [](DhcpTerms& terms) { terms.lease_s = 0; }},
                      HostileTerms{"LeaseOfNineSeconds", [](DhcpTerms& terms) { terms.lease_s = 9; }},
                      HostileTerms{"MaskOfTheWholeWorld", [](DhcpTerms& terms) { terms.mask = 0; }},
                      HostileTerms{"MaskOfHalfTheWorld", [](DhcpTerms& terms) { terms.mask = 0x80000000; }},
                      HostileTerms{"MaskWithAGap", [](DhcpTerms& terms) { terms.mask = 0xFF00FF00; }},
                      HostileTerms{"NoMaskAndNoRouter", [](DhcpTerms& terms) { terms.mask = {}, terms.router = {}; }},
                      HostileTerms{"NoAddress", [](DhcpTerms& terms) { terms.address = Ipv4Address{}; }},
                      HostileTerms{"Loopback", [](DhcpTerms& terms) { terms.address = Ipv4Address{0x7F000001}; }},
                      HostileTerms{"Multicast", [](DhcpTerms& terms) { terms.address = Ipv4Address{0xE0000001}; }},
                      HostileTerms{"Broadcast", [](DhcpTerms& terms) { terms.address = Ipv4Address{0xFFFFFFFF}; }},
                      HostileTerms{"NetworksBroadcast", [](DhcpTerms& terms) { terms.address = Ipv4Address{0x0A0000FF}; }},
                      HostileTerms{"NetworkItself", [](DhcpTerms& terms) { terms.address = Ipv4Address{0x0A000000}; }},
                      HostileTerms{"NoServer", [](DhcpTerms& terms) { terms.server = {}; }},
                      HostileTerms{"ServerIsBroadcast", [](DhcpTerms& terms) { terms.server = Ipv4Address{0xFFFFFFFF}; }},
                      HostileTerms{"ServerIsNone", [](DhcpTerms& terms) { terms.server = Ipv4Address{}; }},
                      HostileTerms{"AnotherAddressIsAcknowledged", [](DhcpTerms& terms) { terms.acknowledged = Ipv4Address{0x0A000043}; }}),
    [](const auto& one) { return std::string(one.param.name); });

// If an answer has no netmask (option 1), unpatched lwIP assumes the network 10.0.0.0/8. Control accepts clients of the machine's network,
// so any address in 10.0.0.0/8 could connect to control.
TEST_F(DhcpLease, WithoutAMaskTheAddressIsAlone) {
  DhcpTerms terms = good();
  terms.mask = {};
  bring_up_under(terms);
  EXPECT_EQ(network_->address(), offered);
  EXPECT_EQ(network_->netmask(), Ipv4Address{0xFFFFFFFF});
  EXPECT_NE(host::take_console_text().find("10.0.0.66/32 gateway 10.0.0.1"), std::string::npos);
}

TEST_F(DhcpLease, GatewayOutsideTheNetworkIsLeftOut) {
  DhcpTerms terms = good();
  terms.router = Ipv4Address{0x0B000001};
  static_cast<void>(host::take_console_text());
  bring_up_under(terms);
  EXPECT_EQ(network_->netmask(), Ipv4Address{0xFFFFFF00});
  EXPECT_EQ(host::take_console_text().find("gateway"), std::string::npos);
}

// In an earlier version, the parser read beyond a fragment's end if an option was longer than the next fragment. The test sends the long
// option in the answer to a renewal, because a machine without an address accepts no fragments.
TEST_F(DhcpLease, LongOptionInSmallFragmentsIsSkipped) {
  server_.answers_arp = true;
  bring_up_under(lasting(10));
  DhcpTerms terms = good();
  terms.mask = 0xFFFF0000;
  terms.unknown_option_bytes = 255;
  terms.fragment_bytes = 64;
  server_.set_terms(terms);
  EXPECT_LT(seconds_until([&] { return counters().dhcp_renewals > 0; }, 10), 8);
  EXPECT_EQ(network_->address(), offered);
  EXPECT_EQ(network_->netmask(), Ipv4Address{0xFFFF0000});
}

TEST_F(DhcpLease, TimesOutOfOrderAreReplaced) {
  server_.answers_arp = true;
  for (const auto& [renew, rebind] : {std::pair{3000U, 2000U}, {1U, 87U}, {99U, 100U}, {0U, 0U}, {60U, 50U}}) {
    DhcpTerms terms = lasting(100);
    terms.renew_s = renew;
    terms.rebind_s = rebind;
    if (network_ == nullptr) {
      bring_up_under(terms);
    } else {
      server_.set_terms(terms);
      const std::uint64_t before = counters().dhcp_renewals;
      seconds_until([&] { return counters().dhcp_renewals > before; }, 100);
    }
    const std::uint64_t before = counters().dhcp_renewals;
    const int waited = seconds_until([&] { return counters().dhcp_renewals > before; }, 100);
    EXPECT_GE(waited, 48) << renew << ' ' << rebind;
    EXPECT_LE(waited, 52) << renew << ' ' << rebind;
  }
}

// An infinite lease may follow a finite one, whose end and renewal times then no longer apply.
TEST_F(DhcpLease, InfiniteLeaseNeverEnds) {
  server_.answers_arp = true;
  bring_up_under(lasting(10));
  server_.set_terms(lasting(0xFFFFFFFF));
  EXPECT_LE(seconds_until([&] { return counters().dhcp_renewals > 0; }, 10), 7);
  const int asked = server_.requests();
  pass(100s);
  const Waits waits = machine_.value_on(0, [] { return net::waits(); });
  EXPECT_EQ(waits.lease_ms + waits.dhcp_ms, 0U);
  for (int day = 0; day < 100; ++day) {
    clock_.advance(24h);
    machine_.on(0, [] {});
  }
  EXPECT_EQ(network_->address(), offered);
  EXPECT_EQ(server_.requests(), asked);
}

// The test uses the longest finite lease. The stack does not count the lease's seconds one by one.
TEST_F(DhcpLease, LongLeaseCostsNothingToCount) {
  bring_up_under(lasting(0xFFFFFFFE));
  for (int day = 0; day < 10'000; day += 100) {
    clock_.advance(100 * 24h);
    machine_.on(0, [] {});
  }
  const auto before = std::chrono::steady_clock::now();
  card_.set_link(false);  // makes the stack count the time that has passed
  for (int i = 0; i < 4; ++i) machine_.on(0, [] {});
  EXPECT_LT(std::chrono::steady_clock::now() - before, 500ms);
  EXPECT_EQ(network_->address(), offered);
}

}  // namespace
}  // namespace neap::net::testing
