// SPDX-License-Identifier: BSL-1.0
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <thread>

#include "net/tcp/receive_window.hpp"
#include "net/testing/two_machines.hpp"

namespace neap::net::testing {
namespace {

/// A connection from the client to port 7 of the server.
class ConnectionTest : public ::testing::Test {
 protected:
  explicit ConnectionTest(const TwoMachinesOptions& options = {}) : world(options) {}

  void listen(const RecordingHandler::Behaviour& behaviour) { world.listen(7, recording(server, behaviour)); }
  void connect(const RecordingHandler::Behaviour& behaviour) { connect(recording(client, behaviour)); }
  void connect(std::function<std::unique_ptr<ConnectionHandler>(Connection&)> acceptor) {
    EXPECT_EQ(world.connect(world.service(7), std::move(acceptor)), std::nullopt);
  }
  void expect_both_end_well(std::chrono::seconds limit = 20s) {
    EXPECT_TRUE(HostMachine::wait_until([&] { return ended(*server) && ended(*client); }, limit))
        << server->received << " " << client->received;
    expect_ended_well(*server);
    expect_ended_well(*client);
  }

  TwoMachines world;
  std::shared_ptr<Record> server = std::make_shared<Record>(), client = std::make_shared<Record>();
};

TEST_F(ConnectionTest, EchoesReceivedBytes) {
  world.listen(7, echoing());
  served(world, 7, 300'000);
}

struct TransferCase {
  const char* name;
  double lost, repeated, late;
  bool offload;
  std::size_t piece_bytes;
  const char* tso = nullptr;  ///< the setting `tso`; "changing": all its values in turn during the transfer
  bool ipv6 = false, ip_header_offload = true;
};

class Transfer : public ConnectionTest, public ::testing::WithParamInterface<TransferCase> {
 protected:
  Transfer() : ConnectionTest(options_for(GetParam())) {}
  static TwoMachinesOptions options_for(const TransferCase& with) {
    TwoMachinesOptions options;
    options.server.checksum_offload = options.client.checksum_offload = with.offload;
    options.server.ip_header_offload = options.client.ip_header_offload = with.ip_header_offload;
    options.server.read_delay = options.client.read_delay = 200us;
    options.server.ring_frames = options.client.ring_frames = 64;
    options.ipv6 = with.ipv6;
    if (with.tso != nullptr) options.server.tso_bytes_max = options.client.tso_bytes_max = 64 * 1024;
    return options;
  }
};

// 10 MB arrive complete in both directions at once, for every TransferCase. Payload is overwritten and freed at its release, and the test's
// cards read frames late. So a release before the last read shows as a wrong byte or a sanitizer's report.
TEST_P(Transfer, BothWaysComplete) {
  const TransferCase& with = GetParam();
  const bool changing = with.tso != nullptr && std::string_view(with.tso) == "changing";
  if (with.tso != nullptr && !changing) EXPECT_EQ(world.set_tso(with.tso), "");
  const std::size_t total = with.lost > 0 || with.tso != nullptr ? 2'000'000 : 10'000'000;
  const std::size_t piece = with.piece_bytes;
  listen({.check_seed = 1, .send_seed = 2, .send_bytes = total, .piece_bytes = piece, .expect_bytes = total});
  world.server_card.set_faults(with.lost, with.repeated, with.late);
  world.client_card.set_faults(with.lost, with.repeated, with.late);
  connect({.check_seed = 2, .send_seed = 1, .send_bytes = total, .piece_bytes = piece, .expect_bytes = total});
  for (unsigned change = 0; changing && !(ended(*server) && ended(*client)); ++change) {
    EXPECT_EQ(world.set_tso(policy::segmentation_names[change % 3]), "");
    std::this_thread::sleep_for(2ms);
  }
  expect_both_end_well(100s);
  EXPECT_EQ(server->received, total);
  EXPECT_EQ(client->received, total);
  const Counters counters = world.counters_of(0);
  if (with.lost > 0) EXPECT_GT(counters.retransmissions + world.counters_of(1).retransmissions, 0U);
  EXPECT_EQ(counters.joined_frames, world.server_card.frames_segmented());
  EXPECT_EQ(counters.joined_frames > 0, with.tso != nullptr);
  EXPECT_GE(counters.joined_segments, 2 * counters.joined_frames);
  // The card reads the last frames a little later.
  EXPECT_TRUE(HostMachine::wait_until([&] { return world.counters_of(0).frames_sent == world.server_card.frames_sent(); }));
}

INSTANTIATE_TEST_SUITE_P(
    Wire, Transfer,
    ::testing::Values(TransferCase{"Clean", 0, 0, 0, true, 16384}, TransferCase{"SoftwareChecksums", 0, 0, 0, false, 16384},
                      TransferCase{"TransportChecksums", 0, 0, 0, true, 16384, nullptr, false, false},
                      TransferCase{"TransportChecksumsAndTso", 0.01, 0.01, 0.01, true, 50'000, "changing", false, false},
                      TransferCase{"Ipv6TransportChecksumsAndTso", 0, 0, 0, true, 16384, "chain", true, false},
                      TransferCase{"SmallPieces", 0, 0, 0, true, 700}, TransferCase{"Reordering", 0, 0.02, 0.05, true, 16384},
                      TransferCase{"Loss", 0.01, 0.01, 0.01, true, 5000}, TransferCase{"TsoCopied", 0, 0, 0, true, 16384, "copy"},
                      TransferCase{"TsoChained", 0, 0, 0, true, 16384, "chain"},
                      TransferCase{"TsoOfSmallPieces", 0, 0, 0, true, 700, "chain"},
                      TransferCase{"TsoCopiedWithLoss", 0.01, 0.01, 0.01, true, 50'000, "copy"},
                      TransferCase{"TsoChainedWithLoss", 0.01, 0.01, 0.01, true, 50'000, "chain"},
                      TransferCase{"TsoChanging", 0.002, 0.01, 0.01, true, 50'000, "changing"},
                      TransferCase{"Ipv6Clean", 0, 0, 0, true, 16384, nullptr, true},
                      TransferCase{"Ipv6SoftwareChecksums", 0, 0, 0, false, 16384, nullptr, true},
                      TransferCase{"Ipv6SmallPieces", 0, 0, 0, true, 700, nullptr, true},
                      TransferCase{"Ipv6Loss", 0.01, 0.01, 0.01, true, 5000, nullptr, true},
                      TransferCase{"Ipv6TsoCopied", 0, 0, 0, true, 16384, "copy", true},
                      TransferCase{"Ipv6TsoChainedWithLoss", 0.01, 0.01, 0.01, true, 50'000, "chain", true},
                      TransferCase{"Ipv6TsoChanging", 0.002, 0.01, 0.01, true, 50'000, "changing", true}),
    [](const auto& tested) { return tested.param.name; });

// Several writes of one event must leave in one segment, because each segment costs an acknowledgement and a wake-up.
TEST_F(ConnectionTest, GathersAnEventsWritesIntoOneSegment) {
  std::atomic<int> data_segments{0};
  world.server_card.tap([&](const Bytes& frame) {
    if (frame.size() > 100) ++data_segments;
    return true;
  });
  static constexpr char stored[512] = {'x'};
  listen({.on_received = [](RecordingHandler& handler, Buffer) {
    Connection& connection = handler.connection();
    for (const char* word : {"VALUE ", "key ", "0 ", "512\r\n"}) {
      EXPECT_TRUE(connection.send(Buffer::copy(std::as_bytes(std::span(word, std::strlen(word))))).has_value());
    }
    EXPECT_TRUE(connection.send(Buffer::reference(std::as_bytes(std::span(stored)), nullptr, nullptr)).has_value());
    EXPECT_TRUE(connection.send(Buffer::copy(std::as_bytes(std::span("\r\nEND\r\n", 7)))).has_value());
  }});
  connect({.send_seed = 1, .send_bytes = 20, .keep_text = true, .close_when_sent = false});
  const std::size_t answer = 6 + 4 + 2 + 5 + 512 + 7;
  EXPECT_TRUE(HostMachine::wait_until([&] { return client->received == answer; }));
  EXPECT_EQ(data_segments, 1);
  world.machine.on(world.client_core, [&] { EXPECT_TRUE(client->text.starts_with("VALUE key 0 512\r\nx")) << client->text; });
}

// The peer closes its side first and still receives the whole answer.
TEST_F(ConnectionTest, AnswerIsSentAfterAHalfClose) {
  listen({.check_seed = 1, .send_seed = 2, .send_bytes = 3'000'000, .answer_close = false});
  connect([&](Connection& connection) {
    connection.end_sending();
    return std::make_unique<RecordingHandler>(client, RecordingHandler::Behaviour{.check_seed = 2});
  });
  expect_both_end_well();
  EXPECT_EQ(client->received, 3'000'000U);
  EXPECT_EQ(client->peer_closed, 1);
}

// Bytes that a peer sends after this side's close are discarded and counted. They must neither reset the connection nor keep it open.
TEST_F(ConnectionTest, CloseDiscardsLaterBytes) {
  listen({.on_received = [](RecordingHandler& handler, Buffer) { handler.connection().close(); }});
  connect({.send_seed = 1, .send_bytes = 1'000'000, .answer_close = false});
  expect_both_end_well();
  EXPECT_GT(world.counters_of(0).discarded_bytes, 900'000U);
  EXPECT_EQ(world.counters_of(0).connections_reset, 0U);
}

TEST_F(ConnectionTest, ResetInTheMiddleEndsBothHandlersOnce) {
  listen({.send_seed = 2, .send_bytes = 50'000'000, .on_received = [](RecordingHandler& handler, Buffer) {
            if (handler.record().received > 500'000) {
              handler.connection().abort();
              EXPECT_FALSE(handler.connection().send(Buffer::copy(std::as_bytes(std::span("x", 1)))).has_value());
            }
          }});
  connect({.check_seed = 2, .send_seed = 1, .send_bytes = 5'000'000});
  expect_both_end_well();
  EXPECT_EQ(world.counters_of(0).connections_reset, 1U);
  EXPECT_EQ(world.counters_of(1).connections_reset, 1U);
}

// While handlers keep received bytes, their receive windows close. After they have released them, all bytes of the peers arrive. Together,
// the four connections may hold more of the card's buffers than is permitted.
TEST_F(ConnectionTest, KeptBuffersCloseTheWindowAndOpenItAgain) {
  constexpr std::size_t connections = 4, each_bytes = 1'500'000;
  struct Kept {
    std::vector<Buffer> buffers;
    bool keep = true;
  };
  auto kept = std::make_shared<Kept>();
  listen({.on_received = [kept](RecordingHandler&, Buffer data) {
    if (kept->keep) kept->buffers.push_back(std::move(data));
  }});
  std::vector<std::shared_ptr<Record>> clients;
  for (std::size_t i = 0; i < connections; ++i) {
    clients.push_back(std::make_shared<Record>());
    connect(recording(clients.back(), {.send_seed = 1, .send_bytes = each_bytes}));
  }
  std::size_t stalled = 0;
  EXPECT_TRUE(HostMachine::wait_until([&] {
    const std::size_t before = std::exchange(stalled, server->received.load());
    std::this_thread::sleep_for(700ms);
    return stalled == before && stalled > 0;
  }));
  EXPECT_LE(stalled, connections * (tcp::ReceiveWindow::first_limit_bytes + 1024));
  EXPECT_GT(stalled, connections * tcp::ReceiveWindow::first_limit_bytes * 3 / 4);
  const Counters held = world.counters_of(0);
  EXPECT_LE(held.receive_held_max, 129U + connections);  // the card's buffers were not used up
  EXPECT_GT(held.receive_copied, 0U);
  world.machine.on(0, [&] {
    kept->keep = false;
    kept->buffers.clear();
  });
  EXPECT_TRUE(HostMachine::wait_until([&] { return std::ranges::all_of(clients, [](const auto& one) { return ended(*one); }); }, 50s));
  EXPECT_TRUE(HostMachine::wait_until([&] { return server->received == connections * each_bytes; }));
}

// Received bytes may be handed over to another core, and released there after their connection has ended.
TEST_F(ConnectionTest, ReceivedBytesMayBeReleasedElsewhereAndLate) {
  auto kept = std::make_shared<std::vector<Buffer>>();
  listen({.on_received = [kept](RecordingHandler&, Buffer data) { kept->push_back(std::move(data)); }});
  connect({.send_seed = 1, .send_bytes = 20'000});
  EXPECT_TRUE(HostMachine::wait_until([&] { return ended(*server) && ended(*client); }));
  world.machine.on(world.client_core, [&] { kept->clear(); });
  EXPECT_TRUE(HostMachine::wait_until([&] { return world.server_card.buffers_out() == 0; }));
}

// Frames that a full ring refused are sent later, in order and without loss.
class FullRing : public ConnectionTest, public ::testing::WithParamInterface<const char*> {
 protected:
  FullRing() : ConnectionTest({.server = {.ring_frames = 1, .pieces_max = 3, .tso_bytes_max = 64 * 1024, .read_delay = 300us}}) {}
};

TEST_P(FullRing, DelaysAndLosesNothing) {
  EXPECT_EQ(world.set_tso(GetParam()), "");
  listen({.send_seed = 2, .send_bytes = 1'000'000, .piece_bytes = 333});
  connect({.check_seed = 2});
  EXPECT_TRUE(HostMachine::wait_until([&] { return ended(*server) && ended(*client); }));
  EXPECT_EQ(client->received, 1'000'000U);
  EXPECT_GT(world.server_card.found_full(), 0U);
  const Counters counters = world.counters_of(0);
  EXPECT_EQ(counters.transmit_full, world.server_card.found_full());
  EXPECT_EQ(counters.retransmissions, 0U);  // frames that a full ring refuses are not lost
  if (GetParam() != std::string_view("copy")) {
    EXPECT_GT(counters.transmit_copied, 0U);  // frames with more pieces than this card accepts
  }
  EXPECT_LE(world.server_card.pieces_max_seen(), 3U);
  expect_ended_well(*server);
}

INSTANTIATE_TEST_SUITE_P(Tso, FullRing, ::testing::ValuesIn(policy::segmentation_names),
                         [](const auto& tested) { return std::string(tested.param); });

TEST_F(ConnectionTest, RefusalAndTimeOutAreReported) {
  EXPECT_EQ(world.connect({.address = server_address, .port = 9}, recording(std::make_shared<Record>())), ErrorCode::closed);
  EXPECT_EQ(world.connect({.address = Ipv4Address{0x0A000063}, .port = 9}, recording(std::make_shared<Record>())), ErrorCode::timeout);
  world.machine.run(0, [&]() -> task<void> {
    const Result<void> elsewhere = co_await world.client->connect(service(7), recording(std::make_shared<Record>()));
    EXPECT_EQ(elsewhere.error().code, ErrorCode::unsupported);
  });
}

// A port that was just used may still be in TIME-WAIT at the peer, which then does not answer a SYN. So all other ports are used first.
TEST_F(ConnectionTest, LocalPortsRestBeforeTheyAreUsedAgain) {
  world.listen(7, echoing());
  std::set<std::uint16_t> ports;
  for (int i = 0; i < 500; ++i) {
    const auto record = std::make_shared<Record>();
    connect([&](Connection& connection) {
      ports.insert(connection.local().port);
      connection.abort();
      return std::make_unique<RecordingHandler>(record, RecordingHandler::Behaviour{});
    });
    EXPECT_TRUE(HostMachine::wait_until([&] { return ended(*record); }));
  }
  EXPECT_EQ(ports.size(), 500U);
}

TEST_F(ConnectionTest, AnAcceptorMayRefuse) {
  world.listen(7, [](Connection&) -> std::unique_ptr<ConnectionHandler> { return nullptr; });
  connect(recording(client));
  EXPECT_TRUE(HostMachine::wait_until([&] { return ended(*client); }));
  EXPECT_EQ(world.counters_of(0).connections_refused, 1U);
  EXPECT_EQ(world.counters_of(0).connections_open, 0U);
  expect_ended_well(*client);
}

// A handler that runs out of memory ends its connection, not the machine.
TEST_F(ConnectionTest, HandlerOutOfMemoryEndsItsConnectionOnly) {
  listen({.on_received = [](RecordingHandler&, Buffer) { throw std::bad_alloc(); }});
  connect({.send_seed = 1, .send_bytes = 10, .close_when_sent = false});
  EXPECT_TRUE(HostMachine::wait_until([&] { return ended(*client) && ended(*server); }));
  EXPECT_EQ(world.counters_of(0).handler_out_of_memory, 1U);
}

TEST_F(ConnectionTest, SendTakesAllOrNothing) {
  listen({.check_seed = 3});
  static std::vector<std::byte> big(Connection::send_queue_bytes_max);
  for (std::size_t i = 0; i < big.size(); ++i) big[i] = pattern(i, 3);
  connect([&](Connection& connection) {
    Buffer all = Buffer::reference(big, nullptr, nullptr);
    EXPECT_TRUE(connection.send(std::move(all)).has_value());
    EXPECT_EQ(connection.send_space_bytes(), 0U);
    Buffer more = Buffer::reference(std::span(big).first(1), nullptr, nullptr);
    const Result<void> refused = connection.send(std::move(more));
    EXPECT_EQ(refused.error().code, ErrorCode::full);
    EXPECT_EQ(more.bytes(), 1U);  // NOLINT: a refused `send` leaves it unchanged
    return std::make_unique<RecordingHandler>(client, RecordingHandler::Behaviour{});
  });
  EXPECT_TRUE(HostMachine::wait_until([&] { return server->received == big.size() && client->writable > 0; }));
  EXPECT_EQ(server->mismatches, 0U);
}

}  // namespace
}  // namespace neap::net::testing
