// SPDX-License-Identifier: BSL-1.0
// Two machines measure each other: sessions that move between cores and connections, and the control command.
#include "apps/netpipe/service.hpp"

#include <gtest/gtest.h>

#include "apps/netpipe/commands.hpp"
#include "net/testing/handlers.hpp"
#include "net/testing/two_machines.hpp"

namespace neap::netpipe {
namespace {

using namespace std::chrono_literals;
using host::HostMachine;
using net::testing::TwoMachines;
constexpr std::uint16_t port = 5003;
constexpr net::Endpoint server_endpoint{.address = net::testing::server_address, .port = port};

/// A server and a client with two cores each. The client measures.
class ServiceTest : public ::testing::Test {
 public:
  ServiceTest() {
    world_.machine.run(0, [&]() -> task<void> {
      const Result<void> serving = co_await server_.serve(port);
      EXPECT_TRUE(serving.has_value());
    });
  }
  static net::testing::TwoMachinesOptions two_cores_each() {
    net::testing::TwoMachinesOptions options;
    options.server.cores = options.client.cores = 2;
    return options;
  }
  void serve_with(const Options& options) { server_.set_serving(options); }
  netpipe::Run measure(const Options& options, unsigned core = 2, net::Endpoint peer = server_endpoint) {
    netpipe::Run run;
    world_.machine.run(2, [&]() -> task<void> {
      auto measured = co_await client_.measure({.measured = options, .peer = peer, .core = core});
      EXPECT_TRUE(measured.has_value());
      if (measured.has_value()) run = std::move(*measured);
    });
    return run;
  }
  std::string ask(Service& service, unsigned core, std::vector<std::string_view> words) {
    std::string answer;
    world_.machine.run(core, [&]() -> task<void> { answer = co_await command(service, words); });
    return answer;
  }
  /// Waits until the server's last run has ended, and returns it.
  netpipe::Run served_run() {
    netpipe::Run run;
    EXPECT_TRUE(HostMachine::wait_until([&] {
      world_.machine.on(0, [&] { run = server_.run(0); });
      return run.number != 0 && run.state != Session::State::running;
    }));
    return run;
  }

  TwoMachines world_{two_cores_each()};
  Service server_{*world_.server, {}, 0};
  Service client_{*world_.client, {}, 2};
};

struct Mode {
  const char* name;
  Options options;
};
class EveryModeOverTcp : public ServiceTest, public ::testing::WithParamInterface<Mode> {};

TEST_P(EveryModeOverTcp, BothSidesMeasureTheSamePoints) {
  serve_with(GetParam().options);
  const netpipe::Run run = measure(GetParam().options, 3);
  EXPECT_EQ(run.state, Session::State::finished) << run.reason;
  const netpipe::Run served = served_run();
  EXPECT_EQ(served.state, Session::State::finished) << served.reason;
  EXPECT_GT(run.points.size(), 5U);
  ASSERT_EQ(run.points.size(), served.points.size());
  for (std::size_t i = 0; i < run.points.size(); ++i) {
    EXPECT_EQ(run.points[i].bytes, served.points[i].bytes);
    EXPECT_EQ(run.points[i].repeats, served.points[i].repeats);
    EXPECT_GT(run.points[i].seconds, 0.0);
  }
  EXPECT_EQ(server_.counters().finished, 1U);
  EXPECT_EQ(server_.counters().strangers, 0U);
}

INSTANTIATE_TEST_SUITE_P(
    Service, EveryModeOverTcp,
    ::testing::Values(Mode{"PingPong", {.to = 500'000, .perturbation = 0, .repeats = 3}},
                      Mode{"Stream", {.to = 20'000, .repeats = 5, .stream = true}},
                      Mode{"Bidirectional", {.to = 3'000'000, .perturbation = 0, .repeats = 2, .bidirectional = true}},
                      Mode{"Integrity", {.from = 5, .to = 300'000, .perturbation = 0, .repeats = 2, .integrity = true}},
                      Mode{"IntegrityStream",
                           {.from = 5, .to = 30'000, .perturbation = 0, .repeats = 3, .stream = true, .integrity = true}},
                      Mode{"Reset", {.to = 40, .repeats = 3, .reset = true}}),
    [](const auto& tested) { return tested.param.name; });

// If each trial has its own connection, the connections of one session arrive on every core of the server.
TEST_F(ServiceTest, SessionMovesFromCoreToCore) {
  const Options options{.to = 64, .repeats = 3, .stream = true};
  serve_with(options);
  EXPECT_EQ(measure(options).state, Session::State::finished);
  EXPECT_GT(world_.counters_of(0).connections_accepted, 5U);
  EXPECT_GT(world_.counters_of(1).connections_accepted, 5U);
  EXPECT_EQ(served_run().points.size(), 22U);
  EXPECT_EQ(server_.counters().begun, 1U);
}

TEST_F(ServiceTest, ThePeerChoosesTheSizes) {
  const netpipe::Run run = measure({.from = 100, .to = 300'000, .perturbation = 7, .repeats = 3});
  EXPECT_EQ(run.state, Session::State::finished) << run.reason;
  const netpipe::Run served = served_run();
  EXPECT_EQ(served.state, Session::State::finished) << served.reason;
  EXPECT_GT(run.points.size(), 50U);
  ASSERT_EQ(run.points.size(), served.points.size());
  for (std::size_t i = 0; i < run.points.size(); ++i) EXPECT_EQ(run.points[i].bytes, served.points[i].bytes);
}

TEST_F(ServiceTest, ASizeAboveTheBoundIsRefusedByName) {
  serve_with({.to = 100});
  netpipe::Run run = measure({.to = 1000, .repeats = 3});
  EXPECT_EQ(run.state, Session::State::failed);
  EXPECT_EQ(run.reason, "the peer ended the run before 125 bytes; its largest size is smaller");
  const netpipe::Run served = served_run();
  EXPECT_EQ(served.state, Session::State::failed);
  EXPECT_EQ(served.reason, "refused a size of 128 bytes, more than to=100; to=128 admits it");
  EXPECT_EQ(served.points.back().bytes, 99U);
  EXPECT_EQ(run.points.size(), served.points.size());
  run = measure({.from = 1000, .to = 2000});
  EXPECT_EQ(run.state, Session::State::failed);
  EXPECT_TRUE(run.reason.ends_with(" within a message of 1000 bytes; the peer may have other options for sizes or mode")) << run.reason;
  EXPECT_TRUE(HostMachine::wait_until([&] { return server_.counters().failed == 2U; }));
  EXPECT_EQ(server_.counters().finished, 0U);
}

// A peer that is not NPtcp may send messages without an end mark. The first one is complete after a second without a byte.
TEST_F(ServiceTest, SilenceEndsAFirstMessageWithoutAMark) {
  auto record = std::make_shared<net::testing::Record>();
  EXPECT_EQ(world_.connect(server_endpoint,
                           [&](net::Connection& connection) {
                             auto handler = net::testing::recording(record, {})(connection);
                             EXPECT_TRUE(connection.send(net::Buffer::copy(std::as_bytes(std::span("SyncMeaaaaa", 11)))).has_value());
                             return handler;
                           }),
            std::nullopt);
  EXPECT_TRUE(HostMachine::wait_until([&] { return record->received >= 11U; }));
  EXPECT_EQ(record->received, 11U);
}

TEST_F(ServiceTest, ARefusedConnectionIsReported) {
  const netpipe::Run run = measure({}, 2, {.address = net::testing::server_address, .port = 9});
  EXPECT_EQ(run.state, Session::State::failed);
  EXPECT_EQ(run.reason, "the peer refused the connection");
  EXPECT_EQ(run.points.size(), 0U);
}

TEST_F(ServiceTest, APeerThatListensLaterIsWaitedFor) {
  constexpr std::uint16_t later = 6000;
  netpipe::Run run;
  std::atomic<bool> ended{false};
  world_.machine.on(2, [&] {
    neap::start([](ServiceTest& test, netpipe::Run& outcome, std::atomic<bool>& done) -> task<void> {
      auto measured = co_await test.client_.measure(
          {.measured = {.to = 3, .repeats = 3}, .peer = {.address = net::testing::server_address, .port = later}, .core = 2, .wait = 20s});
      if (measured.has_value()) outcome = std::move(*measured);
      done = true;
    }(*this, run, ended));
  });
  serve_with({.to = 3});
  EXPECT_FALSE(HostMachine::wait_until([&] { return ended.load(); }, 1s));
  world_.machine.run(0, [&]() -> task<void> { EXPECT_TRUE((co_await server_.serve(later)).has_value()); });
  EXPECT_TRUE(HostMachine::wait_until([&] { return ended.load(); }));
  EXPECT_EQ(run.state, Session::State::finished) << run.reason;
}

TEST_F(ServiceTest, OneMeasurementAtATime) {
  world_.machine.run(2, [&]() -> task<void> {
    const Result<unsigned> first = client_.begin({.measured = {.to = 10'000}, .peer = server_endpoint, .core = 3});
    EXPECT_TRUE(first.has_value());
    const Result<unsigned> second = client_.begin({.measured = {}, .peer = server_endpoint, .core = 2});
    EXPECT_FALSE(second.has_value());
    co_return;
  });
  EXPECT_TRUE(HostMachine::wait_until([&] { return ask(client_, 2, {"results"}).find("; 1 ") != std::string::npos; }));
  EXPECT_EQ(ask(client_, 2, {"stop"}), "ok it ends before its next length");
  EXPECT_TRUE(HostMachine::wait_until([&] { return ask(client_, 2, {"results"}).find("state=finished") != std::string::npos; }));
  EXPECT_EQ(ask(client_, 2, {"stop"}), "error: nothing is being measured");
}

// The session runs on another core, and may not have begun there when `stop` is called.
TEST_F(ServiceTest, AMeasurementOnAnotherCoreIsStoppedAsSoonAsItHasBegun) {
  world_.machine.run(2, [&]() -> task<void> {
    EXPECT_TRUE(client_.begin({.measured = {}, .peer = server_endpoint, .core = 3}).has_value());
    EXPECT_TRUE(co_await client_.stop());
  });
  EXPECT_TRUE(HostMachine::wait_until([&] { return ask(client_, 2, {"results"}).ends_with("state=finished"); }));
}

// A peer that does not speak the protocol is counted, but causes no line on the console and no run.
TEST_F(ServiceTest, StrangersAreCountedAndForgotten) {
  for (const bool talks : {true, false}) {
    auto record = std::make_shared<net::testing::Record>();
    net::testing::RecordingHandler::Behaviour behaviour;
    if (talks) behaviour = {.send_seed = 1, .send_bytes = 50'000, .close_when_sent = false};
    EXPECT_EQ(world_.connect(server_endpoint,
                             [&](net::Connection& connection) {
                               auto handler = net::testing::recording(record, behaviour)(connection);
                               if (!talks) connection.close();
                               return handler;
                             }),
              std::nullopt);
    EXPECT_TRUE(HostMachine::wait_until([&] { return record->destroyed > 0; }));
  }
  EXPECT_TRUE(HostMachine::wait_until([&] { return server_.counters().strangers == 2U; }));
  EXPECT_EQ(ask(server_, 0, {"results"}), "error: nothing was measured yet");
}

TEST_F(ServiceTest, ConnectionsBeyondTheBoundAreRefused) {
  std::vector<std::shared_ptr<net::testing::Record>> records;
  for (unsigned i = 0; i < Service::sessions_max + 10; ++i) {
    records.push_back(std::make_shared<net::testing::Record>());
    EXPECT_EQ(world_.connect(server_endpoint, net::testing::recording(records.back())), std::nullopt);
  }
  EXPECT_TRUE(HostMachine::wait_until([&] { return server_.counters().refused == 10U; }));
  EXPECT_EQ(server_.counters().begun, Service::sessions_max);
}

TEST_F(ServiceTest, CommandsAnswerInOneLineAndBadOnesChangeNothing) {
  EXPECT_EQ(ask(server_, 0, {"serve", "stream=on", "to=1M"}),
            "ok from=1; to=1048576; perturbation=3; repeats=0; stream=on; bidirectional=off; integrity=off; reset=off");
  for (const std::vector<std::string_view>& bad : std::vector<std::vector<std::string_view>>{{},
                                                                                             {"no"},
                                                                                             {"serve", "stream=maybe"},
                                                                                             {"serve", "speed=9"},
                                                                                             {"serve", "from=9", "to=1"},
                                                                                             {"run"},
                                                                                             {"run", "peer=10.0.0.1"},
                                                                                             {"run", "peer=10.0.0.1:0"},
                                                                                             {"run", "peer=10.0.0.1:5003", "core=2"},
                                                                                             {"results", "x"},
                                                                                             {"results", "0"},
                                                                                             {"results", "7"},
                                                                                             {"stop", "now"}}) {
    const std::string answer = ask(server_, 0, bad);
    EXPECT_TRUE(answer.starts_with("error: ")) << answer;
    EXPECT_EQ(answer.find('\n'), std::string::npos) << answer;
  }
  EXPECT_EQ(server_.serving(), (Options{.to = 1 << 20, .stream = true}));
  // The server measures and the client answers, because `core=` counts from 0 and the client's cores are 2 and 3.
  client_.set_serving({.to = 3});
  world_.machine.run(2, [&]() -> task<void> { EXPECT_TRUE((co_await client_.serve(port)).has_value()); });
  EXPECT_EQ(ask(server_, 0, {"run", "peer=10.0.0.2:5003", "to=3", "repeats=5", "core=1"}), "ok run=1");
  EXPECT_TRUE(HostMachine::wait_until([&] { return ask(server_, 0, {"results"}).find("state=finished; 1 ") != std::string::npos; }));
  const std::string results = ask(server_, 0, {"results", "1"});
  EXPECT_TRUE(results.starts_with("ok run=1; role=transmitter; peer=10.0.0.2:5003; state=finished; 1 ")) << results;
  EXPECT_EQ(std::ranges::count(results, ';'), 6) << results;
}

}  // namespace
}  // namespace neap::netpipe
